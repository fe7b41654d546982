//! The static binary, run in a cluster as its image runs it: as the user of the image, in a root
//! directory with nothing but the binary and what the kubelet mounts.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use kube_batch_testbed::{
    cluster::{ControlPlane, Options},
    nodes::Nodes,
    process::{Process, wait_for},
};
use serde_json::Value;
use xtask_launcher::build::{self, root};

/// The service account of the scheduler; `deploy/` creates it with its roles.
const NAMESPACE: &str = "kube-batch-system";
const SERVICE_ACCOUNT: &str = "kube-batch";

/// Where the kubelet mounts what a pod needs to reach the API server.
const CREDENTIALS: &str = "var/run/secrets/kubernetes.io/serviceaccount";

/// What the scheduler places: six pods that start together.
const EXAMPLE: &str = "examples/first-job.yaml";
const N_PODS: usize = 6;

/// How long each step may take. Guessed; each takes a second or two.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Builds the binary, and fails if it does not schedule.
pub(crate) fn run() -> anyhow::Result<()> {
    let binary = build::static_release()?;
    let example = root().join("examples/gang.yaml");
    let simulated = Command::new(&binary).args(["simulate", "-f"]).arg(example).status()?;
    ensure!(simulated.success(), "kube-batch simulate failed");
    let plane = ControlPlane::start(Options::default())?;
    let scheduled = schedule(&plane, &binary);
    if scheduled.is_err() {
        plane.keep_logs();
    }
    scheduled
}

fn schedule(plane: &ControlPlane, binary: &Path) -> anyhow::Result<()> {
    let deploy = root().join("deploy");
    plane.kubectl(["apply".as_ref(), "--kustomize".as_ref(), deploy.as_os_str()])?;
    let deployment = deployment(plane)?;
    // Its pods would be bound to simulated nodes, where nothing runs.
    plane.kubectl(["delete", "deployments", "--all", "--namespace", NAMESPACE])?;
    plane.create_nodes(&Nodes { n: 3, ..Nodes::default() })?;
    let image = Image::prepare(plane, binary)?;
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let log = plane.log_dir().join("kube-batch.log");
    let mut scheduler =
        Process::start("kube-batch", &image.command(plane, &deployment, address)?, &log)?;
    for (what, path, expected) in [
        ("the scheduler to be ready", "/readyz", " 200 OK"),
        ("the scheduler to be healthy", "/healthz", " 200 OK"),
        ("the scheduler to become leader", "/metrics", "kube_batch_leader 1"),
    ] {
        wait_for(what, TIMEOUT, || {
            scheduler.expect_running()?;
            Ok(get(address, path).ok().filter(|answer| answer.contains(expected)))
        })?;
    }
    expect_user(&scheduler, &deployment)?;
    let example = root().join(EXAMPLE);
    wait_for("the default queue", TIMEOUT, || {
        Ok(plane.kubectl(["get", "queues.scheduling.sigs.dev", "default"]).ok())
    })?;
    plane.kubectl(["apply".as_ref(), "--filename".as_ref(), example.as_os_str()])?;
    wait_for("the pods to run", TIMEOUT, || {
        scheduler.expect_running()?;
        let phases =
            plane.kubectl(["get", "pods", "--output", "jsonpath={.items[*].status.phase}"])?;
        let n_running = phases.split_whitespace().filter(|phase| *phase == "Running").count();
        Ok((n_running == N_PODS).then_some(()))
    })?;
    let ended = scheduler.stop(TIMEOUT)?;
    ensure!(ended.success(), "the scheduler ended with {ended} after SIGTERM");
    println!("the static binary became leader, bound {N_PODS} pods, and ended in order");
    Ok(())
}

/// The Deployment that was applied.
fn deployment(plane: &ControlPlane) -> anyhow::Result<Value> {
    let args = ["get", "deployment", "kube-batch", "--namespace", NAMESPACE, "--output", "json"];
    Ok(serde_json::from_str(&plane.kubectl(args)?)?)
}

/// The user of the Deployment, which is that of the image.
fn user(deployment: &Value) -> anyhow::Result<u64> {
    let user = &deployment["spec"]["template"]["spec"]["securityContext"]["runAsUser"];
    user.as_u64().context("the Deployment has no user")
}

/// Fails if the process has another user than the Deployment: the check would show less than it says.
fn expect_user(scheduler: &Process, deployment: &Value) -> anyhow::Result<()> {
    let status = fs::read_to_string(format!("/proc/{}/status", scheduler.id()))?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let id = ids.split_whitespace().next().unwrap_or_default();
    // In a user namespace the id seen from outside is that of this user.
    let is_expected = !is_root()? || id == user(deployment)?.to_string();
    ensure!(is_expected, "the scheduler runs as user {id}");
    Ok(())
}

fn is_root() -> anyhow::Result<bool> {
    let output = Command::new("id").arg("--user").output().context("run id")?;
    Ok(output.stdout == b"0\n")
}

/// The root directory of the container: what the image has, and what the kubelet mounts.
struct Image {
    directory: PathBuf,
}

impl Image {
    fn prepare(plane: &ControlPlane, binary: &Path) -> anyhow::Result<Self> {
        let directory = plane.log_dir().join("image");
        let credentials = directory.join(CREDENTIALS);
        fs::create_dir_all(&credentials)?;
        fs::create_dir_all(directory.join("etc/kube-batch"))?;
        fs::copy(binary, directory.join("kube-batch")).context("copy the binary")?;
        fs::copy(
            root().join("examples/scheduler.yaml"),
            directory.join("etc/kube-batch/scheduler.yaml"),
        )?;
        let token = ["create", "token", SERVICE_ACCOUNT, "--namespace", NAMESPACE];
        fs::write(credentials.join("token"), plane.kubectl(token)?.trim())?;
        fs::copy(plane.certificate_authority(), credentials.join("ca.crt"))?;
        fs::write(credentials.join("namespace"), NAMESPACE)?;
        random_devices(&directory.join("dev"))?;
        Ok(Self { directory })
    }

    /// The command of the Deployment, with this directory as root, and without any other variable of
    /// the environment than those that the kubelet sets.
    fn command(
        &self,
        plane: &ControlPlane,
        deployment: &Value,
        address: SocketAddr,
    ) -> anyhow::Result<Command> {
        let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        let args = args.as_array().context("the Deployment has no arguments")?;
        let args = args.iter().filter_map(Value::as_str);
        let server = plane.api_server_address();
        let server = server.trim_start_matches("https://");
        let (host, port) = server.rsplit_once(':').context("the API server has no port")?;
        let mut command = Command::new("env");
        command
            .arg("--ignore-environment")
            .arg(format!("PATH={}", std::env::var("PATH").unwrap_or_default()))
            .arg(format!("KUBERNETES_SERVICE_HOST={host}"))
            .arg(format!("KUBERNETES_SERVICE_PORT={port}"))
            .args(self.enter(user(deployment)?)?)
            .arg("/kube-batch")
            .args(args.map(|arg| arg.replace("$(NAMESPACE)", NAMESPACE)))
            .arg(format!("--listen-address={address}"))
            .current_dir("/");
        Ok(command)
    }

    /// The beginning of a command that runs a program in the directory. Only root may change its root
    /// directory and its user; others need a user namespace, which some systems forbid.
    fn enter(&self, user: u64) -> anyhow::Result<Vec<String>> {
        let directory = self.directory.display();
        if is_root()? {
            let user = format!("--userspec={user}:{user}");
            return Ok(vec![
                "chroot".to_owned(),
                user,
                "--groups=".to_owned(),
                directory.to_string(),
            ]);
        }
        let namespace =
            ["unshare", "--user", &format!("--map-user={user}"), &format!("--map-group={user}")];
        let allowed = Command::new(namespace[0]).args(&namespace[1..]).arg("true").status();
        ensure!(
            allowed.is_ok_and(|status| status.success()),
            "this check needs root or user namespaces, which this system does not allow"
        );
        let root = [format!("--root={directory}"), "--wd=/".to_owned()];
        Ok(namespace.map(str::to_owned).into_iter().chain(root).collect())
    }
}

/// The devices that every container runtime provides, as far as the binary needs them: a static glibc
/// reads random numbers from there. Only root may create devices; a file of random bytes is as good for
/// a process that reads some.
fn random_devices(directory: &Path) -> anyhow::Result<()> {
    const N_BYTES: u64 = 1 << 20;
    fs::create_dir_all(directory)?;
    for (name, minor) in [("random", "8"), ("urandom", "9")] {
        let path = directory.join(name);
        let mut mknod = Command::new("mknod");
        mknod.arg("--mode=444").arg(&path).args(["c", "1", minor]).stderr(Stdio::null());
        if is_root()? && mknod.status().is_ok_and(|status| status.success()) {
            continue;
        }
        let mut random = fs::File::open("/dev/urandom").context("open /dev/urandom")?.take(N_BYTES);
        std::io::copy(&mut random, &mut fs::File::create(&path)?)?;
    }
    Ok(())
}

/// The answer to a GET request, with its headers.
fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: scheduler\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
