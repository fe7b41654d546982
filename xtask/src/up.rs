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
use kube_batch_tests::build;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::root;

/// Who the scheduler is in the cluster; `deploy/` makes the account and its rights.
const NAMESPACE: &str = "kube-batch-system";
const SERVICE_ACCOUNT: &str = "kube-batch";

/// A first thing to submit.
const EXAMPLE: &str = "examples/first-job.yaml";

/// How long the scheduler may take until it works, and until it has ended after being told to. Guessed.
const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(30);

/// How often the servers are looked after while nothing happens.
const WATCH: Duration = Duration::from_millis(500);

/// What `up` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many nodes the cluster has.
    #[arg(long, default_value_t = 100)]
    nodes: usize,
}

/// Brings a cluster up and takes it down when told to stop.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let program = build::release()?;
    let options = Options { scheduler: true, ..Options::default() };
    Assets::provide(&Binary::ALL)?;
    // Only from here on is there something to take down.
    let stop = stop_signal()?;
    let mut plane = ControlPlane::start(options)?;
    plane.create_nodes(&Nodes { n: args.nodes, ..Nodes::default() })?;
    plane.apply_crds(&root().join("crds"))?;
    let (mut scheduler, address) = deploy(&plane, &program)?;
    greet(&plane, args.nodes, &program, scheduler.log(), address);
    let ended = watch(&stop, &mut plane, &mut scheduler);
    // Asked, not killed: it has a lease to give back and events to send.
    scheduler.stop(SCHEDULER_TIMEOUT)?;
    if ended.is_err() {
        plane.keep_logs();
    }
    ended
}

/// Applies `deploy/` and runs the scheduler under the account it makes.
fn deploy(plane: &ControlPlane, program: &Path) -> anyhow::Result<(Process, SocketAddr)> {
    let folder = root().join("deploy");
    plane.kubectl(["apply".as_ref(), "--kustomize".as_ref(), folder.as_os_str()])?;
    // It would run on a simulated node, that is, not at all, and look as if it did.
    plane.kubectl(["delete", "deployments", "--all", "--namespace", NAMESPACE])?;
    start_scheduler(plane, program)
}

/// Starts the scheduler as a process of this machine and waits until it has made the default queue.
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
    wait_for("the scheduler to make the default queue", SCHEDULER_TIMEOUT, || {
        scheduler.expect_running()?;
        Ok(plane.kubectl(["get", "queues.scheduling.incubator.k8s.io", "default"]).ok())
    })
    .inspect_err(|_| plane.keep_logs())?;
    Ok((scheduler, address))
}

/// Says what there is: to standard output what a shell understands, all else to standard error.
fn greet(plane: &ControlPlane, n_nodes: usize, program: &Path, log: &Path, address: SocketAddr) {
    let binaries = program.parent().unwrap_or(program).display();
    eprintln!("\na cluster with {n_nodes} nodes is up; in another terminal:\n");
    println!("export KUBECONFIG={}", plane.kubeconfig().display());
    println!("export PATH={}:{binaries}:$PATH", plane.assets().folder().display());
    eprintln!("kubectl apply --filename {}", root().join(EXAMPLE).display());
    eprintln!("kubectl get podgroups,queues,pods\n");
    eprintln!("metrics: http://{address}/metrics\nlogs: {}", log.display());
    eprintln!("Ctrl-C takes it down");
}

/// Waits for the signal to stop, and fails if something ends before.
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

/// Hears of Ctrl-C and its like once.
fn stop_signal() -> anyhow::Result<Receiver<()>> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("listen for Ctrl-C")?;
    let (sender, stop) = mpsc::channel();
    thread::spawn(move || {
        for _ in signals.forever() {
            // A second Ctrl-C while things are taken down changes nothing.
            let _ = sender.send(());
        }
    });
    Ok(stop)
}
