//! A cluster to try the scheduler in: real servers, simulated nodes.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    process::Command,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::Context;
use kube_batch_testbed::{
    assets::{Assets, Binary},
    cluster::{ControlPlane, Options},
    nodes::Nodes,
    process::{Process, wait_for},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use xtask_launcher::build::{self, root};

/// The service account of the scheduler; `deploy/` creates it with its roles.
const NAMESPACE: &str = "kube-batch-system";
const SERVICE_ACCOUNT: &str = "kube-batch";

/// A first job to submit.
const EXAMPLE: &str = "examples/first-job.yaml";

/// How long the scheduler may take to start, and to end after SIGTERM. Guessed.
const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(30);

/// How often it is checked that the servers are running.
const WATCH: Duration = Duration::from_millis(500);

/// Arguments of `up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of nodes in the cluster.
    #[arg(long, default_value_t = 100)]
    nodes: usize,
}

/// Starts a cluster, and stops it at Ctrl-C.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let program = build::release()?;
    let options = Options { scheduler: true, ..Options::default() };
    Assets::provide(&Binary::ALL)?;
    // Before this there is nothing to stop.
    let stop = stop_signal()?;
    let mut plane = ControlPlane::start(options)?;
    plane.create_nodes(&Nodes { n: args.nodes, ..Nodes::default() })?;
    plane.apply_crds(&root().join("deploy/chart/crds"))?;
    let (mut scheduler, address) = deploy(&plane, &program)?;
    greet(&plane, args.nodes, &program, scheduler.log(), address);
    let ended = watch(&stop, &mut plane, &mut scheduler);
    // SIGTERM, not SIGKILL: it has a lease to release and events to send.
    scheduler.stop(SCHEDULER_TIMEOUT)?;
    if ended.is_err() {
        plane.keep_logs();
    }
    ended
}

/// Applies `deploy/` and runs the scheduler under the account it creates.
fn deploy(plane: &ControlPlane, program: &Path) -> anyhow::Result<(Process, SocketAddr)> {
    let directory = root().join("deploy");
    plane.kubectl(["apply".as_ref(), "--kustomize".as_ref(), directory.as_os_str()])?;
    // Its pod would be bound to a simulated node, where nothing runs.
    plane.kubectl(["delete", "deployments", "--all", "--namespace", NAMESPACE])?;
    start_scheduler(plane, program)
}

/// Starts the scheduler as a local process and waits until it has created the default queue.
fn start_scheduler(plane: &ControlPlane, program: &Path) -> anyhow::Result<(Process, SocketAddr)> {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mut command = Command::new(program);
    command
        .args(["run", "--create-default-queue", "--scheduler-conf"])
        .arg(root().join("examples/scheduler.yaml"))
        .arg("--kubeconfig")
        .arg(plane.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT)?)
        .args(["--listen-address", &address.to_string()]);
    let log = plane.log_dir().join("kube-batch.log");
    let mut scheduler = Process::start("kube-batch", &command, &log)?;
    wait_for("the scheduler to create the default queue", SCHEDULER_TIMEOUT, || {
        scheduler.expect_running()?;
        Ok(plane.kubectl(["get", "queues.scheduling.sigs.dev", "default"]).ok())
    })
    .inspect_err(|_| plane.keep_logs())?;
    Ok((scheduler, address))
}

/// Prints what is running: shell commands to standard output, the rest to standard error.
fn greet(plane: &ControlPlane, n_nodes: usize, program: &Path, log: &Path, address: SocketAddr) {
    let binaries = program.parent().unwrap_or(program).display();
    eprintln!("\na cluster with {n_nodes} nodes is up; in another terminal:\n");
    println!("export KUBECONFIG={}", plane.kubeconfig().display());
    println!("export PATH={}:{binaries}:$PATH", plane.assets().directory().display());
    eprintln!("kubectl apply --filename {}", root().join(EXAMPLE).display());
    eprintln!("kubectl get kube-batch,pods\n");
    eprintln!("metrics: http://{address}/metrics\nlogs: {}", log.display());
    eprintln!("Ctrl-C stops the cluster");
}

/// Waits for the signal to stop, and fails if a server ends before.
fn watch(
    stop: &Receiver<()>,
    plane: &mut ControlPlane,
    scheduler: &mut Process,
) -> anyhow::Result<()> {
    loop {
        match stop.recv_timeout(WATCH) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        plane.expect_running()?;
        scheduler.expect_running()?;
    }
}

/// Receives a message at Ctrl-C, SIGTERM or SIGHUP.
fn stop_signal() -> anyhow::Result<Receiver<()>> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("listen for Ctrl-C")?;
    let (sender, stop) = mpsc::channel();
    thread::spawn(move || {
        for _ in signals.forever() {
            // A second Ctrl-C while servers are being stopped changes nothing.
            let _ = sender.send(());
        }
    });
    Ok(stop)
}
