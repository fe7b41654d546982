//! Pods bound per second against a real API server: `cargo bench -p kube-batch-tests --bench
//! cluster -- [SHAPE…] [--nodes N]`, with SHAPE as `GANGSxPODS`.
//!
//! Three contenders on the same servers, one after the other in one run: a bare loop that only
//! posts the bindings, this scheduler, and Kubernetes' own. Pods are there before a contender
//! starts; times are those of the API server's audit log.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use kube_batch_testbed::{
    audit::AuditEvent,
    cluster::{ControlPlane, Options, Server},
    nodes::Nodes,
    process::Process,
};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// The shapes of KUBEMARK-G and its neighbours.
const STANDARD: [&str; 3] = ["100x100", "10000x1", "1x10000"];
/// Bindings the bare loop sends at once: the best found on two cores.
const N_AT_ONCE: usize = 32;
/// How long a contender may take.
const PATIENCE: Duration = Duration::from_secs(400);
const NAMESPACE: &str = "bench";

struct Shape {
    n_gangs: usize,
    n_pods: usize,
    n_nodes: usize,
}

/// What one contender did.
struct Result {
    bound: usize,
    /// From the start of the contender to the first binding, and from there to the last, in seconds.
    first: f64,
    window: f64,
    /// Seconds of processor time, and the largest size of the process in MB.
    cpu: f64,
    peak_mb: u64,
    writes: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let n_nodes = arguments
        .iter()
        .position(|argument| argument == "--nodes")
        .and_then(|at| arguments.get(at + 1)?.parse().ok())
        .unwrap_or(1000);
    let mut shapes: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|argument| {
            argument.split_once('x').is_some_and(|(n, _)| n.parse::<usize>().is_ok())
        })
        .collect();
    if shapes.is_empty() {
        shapes = STANDARD.to_vec();
    }
    println!(
        "{:10} {:15} {:>7} {:>9} {:>9} {:>9} {:>8} {:>8} {:>10}",
        "shape",
        "contender",
        "bound",
        "first s",
        "window s",
        "binds/s",
        "cpu s",
        "peak MB",
        "writes/pod"
    );
    for name in shapes {
        let (gangs, pods) = name.split_once('x').expect("GANGSxPODS");
        let parse = |text: &str| text.parse().expect("a number");
        let shape = Shape { n_gangs: parse(gangs), n_pods: parse(pods), n_nodes };
        for (contender, run) in [
            ("bare loop", bare_loop as fn(&Shape) -> Result),
            ("kube-batch", kube_batch),
            ("kube-scheduler", kube_scheduler),
        ] {
            let Result { bound, first, window, cpu, peak_mb, writes } = run(&shape);
            println!(
                "{name:10} {contender:15} {bound:7} {first:9.2} {window:9.2} {:9.0} {cpu:8.2} {peak_mb:8} {:10.2}",
                bound as f64 / window,
                writes as f64 / bound.max(1) as f64,
            );
        }
    }
}

/// A control plane with nodes and pods for a scheduler of this name.
fn plane(shape: &Shape, scheduler: &str, options: Options) -> ControlPlane {
    let options = Options { kwok: false, audit: true, load: true, ..options };
    let plane = ControlPlane::start(options).unwrap_or_else(|error| panic!("{error}"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in it");
    let deploy = root.join("deploy");
    for (flag, path) in [("--kustomize", deploy.clone()), ("--filename", deploy.join("queue.yaml"))]
    {
        let path = path.to_str().expect("a plain path");
        plane.kubectl(["apply", flag, path]).unwrap_or_else(|error| panic!("{error}"));
    }
    let nodes =
        Nodes { n: shape.n_nodes, cpu: "32".into(), memory: "256Gi".into(), ..Nodes::default() };
    plane.create_nodes(&nodes).expect("nodes are made");
    plane.kubectl(["create", "namespace", NAMESPACE]).expect("a namespace");
    let groups: Vec<Value> = (0..shape.n_gangs)
        .map(|gang| {
            json!({
                "apiVersion": "scheduling.sigs.dev/v1alpha2",
                "kind": "PodGroup",
                "metadata": {"name": format!("job-{gang:05}"), "namespace": NAMESPACE},
                "spec": {"minMember": shape.n_pods},
            })
        })
        .collect();
    plane.create(&groups).expect("groups are made");
    let gangs = (0..shape.n_gangs).flat_map(|gang| (0..shape.n_pods).map(move |pod| (gang, pod)));
    let pods: Vec<Value> = gangs.map(|(gang, pod)| pod_of(gang, pod, scheduler)).collect();
    plane.create(&pods).expect("pods are made");
    plane
}

fn pod_of(gang: usize, pod: usize, scheduler: &str) -> Value {
    let group = format!("job-{gang:05}");
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{group}-{pod:05}"),
            "namespace": NAMESPACE,
            "annotations": {"scheduling.k8s.io/group-name": group},
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [{
                "name": "work",
                "image": "busybox",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
            }],
        },
    })
}

fn bare_loop(shape: &Shape) -> Result {
    let plane = plane(shape, "nobody", Options::default());
    let started = jiff::Timestamp::now();
    let before = own_cpu();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("threads").block_on(post_bindings(&plane.kubeconfig(), shape.n_nodes));
    let cpu = own_cpu() - before;
    result(&plane, "admin", started, cpu, 0)
}

async fn post_bindings(kubeconfig: &Path, n_nodes: usize) {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a configuration");
    let pods: Api<Pod> = Api::namespaced(Client::try_from(config).expect("a client"), NAMESPACE);
    let names: Vec<String> = pods
        .list_metadata(&kube::api::ListParams::default())
        .await
        .expect("pods")
        .items
        .into_iter()
        .filter_map(|pod| pod.metadata.name)
        .collect();
    let nodes = Nodes::default();
    let post = |(row, name): (usize, String)| {
        let (pods, node) = (pods.clone(), nodes.name(row % n_nodes));
        async move {
            let binding = json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            let params = PostParams::default();
            pods.create_subresource::<_, IgnoredAny>("binding", &name, &params, &binding)
                .await
                .expect("bound");
        }
    };
    futures::stream::iter(names.into_iter().enumerate())
        .map(post)
        .buffer_unordered(N_AT_ONCE)
        .collect::<Vec<()>>()
        .await;
}

fn kube_batch(shape: &Shape) -> Result {
    let plane = plane(shape, "kube-batch", Options::default());
    let kubeconfig = plane
        .service_account_kubeconfig("kube-batch-system", "kube-batch")
        .expect("deploy/ has a service account");
    let mut command = Command::new(binary());
    command.args(["run", "--listen-address=", "--kubeconfig"]).arg(kubeconfig);
    let log = plane.log_dir().join("kube-batch.log");
    let started = jiff::Timestamp::now();
    let process =
        Process::start("kube-batch", &command, &log).unwrap_or_else(|error| panic!("{error}"));
    let user = "system:serviceaccount:kube-batch-system:kube-batch";
    wait_until_bound(&plane, user, shape.n_gangs * shape.n_pods);
    // Status and events follow the bindings.
    thread::sleep(Duration::from_secs(5));
    let (cpu, peak_mb) = cost(process.id());
    result(&plane, user, started, cpu, peak_mb)
}

fn kube_scheduler(shape: &Shape) -> Result {
    let mut plane =
        plane(shape, "default-scheduler", Options { scheduler: true, ..Options::default() });
    // It has been binding since the first pod: what counts is from when all are there.
    let _ = plane.stop(Server::Scheduler);
    let started = jiff::Timestamp::now();
    plane.restart(Server::Scheduler).expect("it starts");
    let user = "system:kube-scheduler";
    wait_until_bound(&plane, user, shape.n_gangs * shape.n_pods);
    thread::sleep(Duration::from_secs(5));
    let (cpu, peak_mb) = plane.process_id(Server::Scheduler).map_or((0.0, 0), cost);
    result(&plane, user, started, cpu, peak_mb)
}

fn is_binding(event: &AuditEvent, user: &str) -> bool {
    event.user == user
        && event.verb == "create"
        && event.subresource == "binding"
        && event.code < 300
}

fn wait_until_bound(plane: &ControlPlane, user: &str, n_pods: usize) {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let events = plane.audit_events().expect("an audit log");
        if events.iter().filter(|event| is_binding(event, user)).count() >= n_pods {
            return;
        }
        thread::sleep(Duration::from_secs(1));
    }
    plane.keep_logs();
    eprintln!("not everything was bound; logs are in {}", plane.log_dir().display());
}

fn result(
    plane: &ControlPlane,
    user: &str,
    started: jiff::Timestamp,
    cpu: f64,
    peak_mb: u64,
) -> Result {
    let events = plane.audit_events().expect("an audit log");
    let bindings: Vec<&AuditEvent> = events
        .iter()
        .filter(|event| is_binding(event, user) && event.received >= started)
        .collect();
    let first = bindings.iter().map(|event| event.received).min().unwrap_or(started);
    let last = bindings.iter().map(|event| event.answered).max().unwrap_or(started);
    let seconds =
        |from: jiff::Timestamp, to: jiff::Timestamp| to.duration_since(from).as_secs_f64();
    let is_write = |event: &&AuditEvent| {
        event.user == user
            && event.received >= started
            && ["create", "update", "patch", "delete"].contains(&event.verb.as_str())
    };
    Result {
        bound: bindings.len(),
        first: seconds(started, first),
        window: seconds(first, last),
        cpu,
        peak_mb,
        writes: events.iter().filter(is_write).count(),
    }
}

/// Processor time of a process in seconds, and its largest size in MB.
fn cost(pid: u32) -> (f64, u64) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak_kb = peak.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    (ticks / 100.0, peak_kb.unwrap_or(0) / 1024)
}

fn own_cpu() -> f64 {
    cost(std::process::id()).0
}

/// The scheduler as it is released.
fn binary() -> PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in it");
    let built = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--release",
            "--package",
            "kube-batch",
            "--message-format",
            "json",
        ])
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let messages = String::from_utf8(built.stdout).expect("cargo writes text");
    let executable = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    executable.expect("cargo tells where the binary is")
}
