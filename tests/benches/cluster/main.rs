//! Pods bound per second against a real API server: `cargo xtask bench-cluster --help`.
//!
//! It compares contenders, one after the other, each with a new control plane: a bare loop that
//! only posts the bindings, this scheduler, and kube-scheduler. All pods are created before a contender
//! starts; times are taken from the audit log of the API server.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};
use futures::StreamExt;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioExecutor};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Config,
    api::{ListParams, Patch, PatchParams, PostParams},
    client::{Body, ClientBuilder, ConfigExt},
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
use tower::ServiceBuilder;
use xtask_launcher::build::{self, root};

/// Number of concurrent bindings of the bare loop: the best value found on two cores.
const N_CONCURRENT: usize = 32;
/// Maximum time for a contender to bind all pods.
const TIMEOUT: Duration = Duration::from_secs(400);
/// How long the idle scheduler is measured.
const IDLE_PERIOD: Duration = Duration::from_secs(30);
/// How often a kubelet reports the status of its node when nothing has changed.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(300);
const NAMESPACE: &str = "bench";
/// The annotation that names a PodGroup of kube-batch.
const GROUP_NAME: &str = "scheduling.k8s.io/group-name";

/// Counts the pods bound per second against a real API server.
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench-cluster")]
struct Args {
    /// Shapes to run: GANGSxPODS, or GANGSxPODS+RUNNING to start with this many running pods and
    /// also measure the idle scheduler; with the prefix native-, the gangs are PodGroups of
    /// Kubernetes, which kube-scheduler starts whole too.
    #[arg(value_parser = Shape::parse,
        default_values = ["100x100", "10000x1", "1x10000", "10x1+20000"])]
    shapes: Vec<Shape>,
    /// Number of nodes of the cluster.
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// Contenders to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [
        Contender::Loop, Contender::KubeBatch, Contender::KubeScheduler,
    ])]
    contenders: Vec<Contender>,
    /// Binaries of kube-batch to compare (default: the one built from this repository).
    #[arg(long, value_delimiter = ',')]
    binaries: Vec<PathBuf>,
    /// Number of runs of each contender; with more than one, medians are printed at the end.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Passed to every benchmark by Cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Contender {
    /// A loop that only posts the bindings, over HTTP/1.1.
    Loop,
    /// A loop that only posts the bindings, over one HTTP/2 connection.
    LoopHttp2,
    /// A loop that only posts the bindings, over four HTTP/2 connections.
    LoopHttp2x4,
    KubeBatch,
    KubeScheduler,
}

/// How a contender is run.
enum Runner {
    /// Over this number of HTTP/2 connections, or over HTTP/1.1.
    Loop(Option<usize>),
    KubeBatch(PathBuf),
    KubeScheduler,
}

impl Runner {
    /// The requested contenders with the names that the table shows.
    fn all(args: &Args) -> Vec<(String, Self)> {
        let mut all = Vec::new();
        for contender in &args.contenders {
            let value = contender.to_possible_value().expect("every contender has a name");
            let name = value.get_name().to_owned();
            match contender {
                Contender::Loop => all.push((name, Self::Loop(None))),
                Contender::LoopHttp2 => all.push((name, Self::Loop(Some(1)))),
                Contender::LoopHttp2x4 => all.push((name, Self::Loop(Some(4)))),
                Contender::KubeBatch if args.binaries.is_empty() => {
                    all.push((
                        name,
                        Self::KubeBatch(build::release().expect("the scheduler builds")),
                    ));
                }
                Contender::KubeBatch => all.extend(args.binaries.iter().map(|binary| {
                    let name = binary.file_name().unwrap_or(binary.as_os_str());
                    (name.display().to_string(), Self::KubeBatch(binary.clone()))
                })),
                Contender::KubeScheduler => all.push((name, Self::KubeScheduler)),
            }
        }
        all
    }

    fn run(&self, shape: &Shape, n_nodes: usize) -> Result {
        match self {
            Self::Loop(http2) => bare_loop(shape, n_nodes, *http2),
            Self::KubeBatch(binary) => kube_batch(shape, n_nodes, binary),
            Self::KubeScheduler => kube_scheduler(shape, n_nodes),
        }
    }
}

#[derive(Clone, Debug)]
struct Shape {
    name: String,
    n_gangs: usize,
    /// Pods of each gang.
    n_pods: usize,
    /// Pods that run before the contender starts.
    n_running: usize,
    /// Whether PodGroups are of Kubernetes' own API.
    is_native: bool,
}

impl Shape {
    fn parse(name: &str) -> std::result::Result<Self, String> {
        let native = name.strip_prefix("native-");
        let numbers = || {
            let (gangs, pods) = native.unwrap_or(name).split_once('x')?;
            let (pods, running) = pods.split_once('+').unwrap_or((pods, "0"));
            Some((gangs.parse().ok()?, pods.parse().ok()?, running.parse().ok()?))
        };
        let (n_gangs, n_pods, n_running) =
            numbers().ok_or("expected GANGSxPODS or GANGSxPODS+RUNNING, such as 100x100")?;
        let is_native = native.is_some();
        Ok(Self { name: name.to_owned(), n_gangs, n_pods, n_running, is_native })
    }
}

/// The measurements of one run of a contender.
struct Result {
    bound: usize,
    /// From the start of the contender to the first binding, and from there to the last, in seconds.
    first: f64,
    window: f64,
    /// CPU time in seconds, and the peak memory of the process in MB.
    cpu: f64,
    peak_mb: u64,
    writes: usize,
    /// CPU used while nothing changes, in percent of a core.
    idle: Option<f64>,
}

fn main() {
    let args = Args::parse();
    // Builds missing binaries now, so that a build does not disturb a measurement.
    let runners = Runner::all(&args);
    println!(
        "{:12} {:16} {:>7} {:>9} {:>9} {:>9} {:>8} {:>8} {:>10} {:>7}",
        "shape",
        "contender",
        "bound",
        "first s",
        "window s",
        "binds/s",
        "cpu s",
        "peak MB",
        "writes/pod",
        "idle %"
    );
    for shape in &args.shapes {
        let mut results: Vec<Vec<Result>> = runners.iter().map(|_| Vec::new()).collect();
        for _ in 0..args.rounds {
            for ((runner_name, runner), results) in runners.iter().zip(&mut results) {
                let result = runner.run(shape, args.nodes);
                show(&shape.name, runner_name, &result);
                results.push(result);
            }
        }
        if args.rounds > 1 {
            println!("medians");
            for ((runner_name, _), results) in runners.iter().zip(&results) {
                show(&shape.name, runner_name, &median(results));
            }
        }
    }
}

/// The median of each measurement.
fn median(results: &[Result]) -> Result {
    let median_of = |field: fn(&Result) -> f64| {
        let mut values: Vec<f64> = results.iter().map(field).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Result {
        bound: median_of(|result| result.bound as f64) as usize,
        first: median_of(|result| result.first),
        window: median_of(|result| result.window),
        cpu: median_of(|result| result.cpu),
        peak_mb: median_of(|result| result.peak_mb as f64) as u64,
        writes: median_of(|result| result.writes as f64) as usize,
        idle: results[0].idle.map(|_| median_of(|result| result.idle.unwrap_or_default())),
    }
}

fn show(shape: &str, contender: &str, result: &Result) {
    let Result { bound, first, window, cpu, peak_mb, writes, idle } = result;
    let idle = idle.map_or_else(String::new, |percent| format!("{percent:.2}"));
    println!(
        "{shape:12} {contender:16} {bound:7} {first:9.2} {window:9.2} {:9.0} {cpu:8.2} {peak_mb:8} {:10.2} {idle:>7}",
        *bound as f64 / window,
        *writes as f64 / (*bound).max(1) as f64,
    );
}

/// Starts a control plane with the nodes and pods of a shape; the pods name this scheduler.
fn plane(shape: &Shape, n_nodes: usize, scheduler: &str) -> ControlPlane {
    let pod_groups = shape.is_native;
    let options =
        Options { kwok: false, audit: true, load: true, pod_groups, ..Options::default() };
    let plane = ControlPlane::start(options).unwrap_or_else(|error| panic!("{error}"));
    let deploy = root().join("deploy");
    plane
        .kubectl(["apply", "--kustomize", deploy.to_str().expect("a plain path")])
        .unwrap_or_else(|error| panic!("{error}"));
    let nodes = Nodes { n: n_nodes, cpu: "32".into(), memory: "256Gi".into(), ..Nodes::default() };
    plane.create_nodes(&nodes).expect("nodes are created");
    plane.kubectl(["create", "namespace", NAMESPACE]).expect("a namespace");
    let groups: Vec<Value> = (0..shape.n_gangs)
        .map(|gang| {
            let (version, spec) = if shape.is_native {
                let gang = json!({"gang": {"minCount": shape.n_pods}});
                ("scheduling.k8s.io/v1beta1", json!({"schedulingPolicy": gang}))
            } else {
                ("scheduling.sigs.dev/v1alpha2", json!({"minMember": shape.n_pods}))
            };
            json!({
                "apiVersion": version,
                "kind": "PodGroup",
                "metadata": {"name": format!("job-{gang:05}"), "namespace": NAMESPACE},
                "spec": spec,
            })
        })
        .collect();
    plane.create(&groups).expect("groups are created");
    let gangs = (0..shape.n_gangs).flat_map(|gang| (0..shape.n_pods).map(move |pod| (gang, pod)));
    let pods = gangs.map(|(gang, pod)| pod_of(shape, gang, pod, scheduler));
    let running = (0..shape.n_running).map(|nth| {
        let mut pod = pod_of(shape, shape.n_gangs, nth, scheduler);
        // Small, so that all of them fit.
        pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "100m"});
        pod["spec"]["nodeName"] = json!(nodes.name(nth % n_nodes));
        pod
    });
    create_pods(&plane.kubeconfig(), pods.chain(running));
    plane
}

/// Creates pods concurrently, because `kubectl` is too slow for thousands of them.
fn create_pods(kubeconfig: &Path, pods: impl Iterator<Item = Value>) {
    on_threads(async {
        let client = client(kubeconfig).await;
        let api: Api<Pod> = Api::namespaced(client, NAMESPACE);
        let create = |pod: Value| {
            let api = api.clone();
            async move {
                let pod = serde_json::from_value(pod).expect("a pod");
                api.create(&PostParams::default(), &pod).await.expect("a pod is created");
            }
        };
        futures::stream::iter(pods)
            .map(create)
            .buffer_unordered(N_CONCURRENT)
            .for_each(|()| async {})
            .await;
    });
}

fn pod_of(shape: &Shape, gang: usize, pod: usize, scheduler: &str) -> Value {
    let group = format!("job-{gang:05}");
    let own_group = shape.is_native.then(|| json!({"podGroupName": group}));
    let annotations = if shape.is_native { json!({}) } else { json!({GROUP_NAME: group}) };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{group}-{pod:05}"),
            "namespace": NAMESPACE,
            "annotations": annotations,
        },
        "spec": {
            "schedulerName": scheduler,
            "schedulingGroup": own_group,
            "containers": [{
                "name": "work",
                "image": "busybox",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
            }],
        },
    })
}

fn bare_loop(shape: &Shape, n_nodes: usize, http2: Option<usize>) -> Result {
    let plane = plane(shape, n_nodes, "none");
    let started = jiff::Timestamp::now();
    let before = usage(std::process::id()).0;
    on_threads(post_bindings(&plane.kubeconfig(), n_nodes, http2));
    let cpu = usage(std::process::id()).0 - before;
    result(&plane, "admin", started, cpu, 0)
}

async fn config(kubeconfig: &Path) -> Config {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a configuration")
}

async fn client(kubeconfig: &Path) -> Client {
    Client::try_from(config(kubeconfig).await).expect("a client")
}

fn on_threads<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("threads").block_on(work)
}

/// A client that sends all requests over one HTTP/2 connection.
fn http2_client(config: &Config) -> Client {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config().expect("certificates"))
        .https_only()
        .enable_http2()
        .wrap_connector(connector);
    let http: hyper_util::client::legacy::Client<_, Body> =
        hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .http2_only(true)
            .build(connector);
    let service = ServiceBuilder::new().layer(config.base_uri_layer()).service(http);
    ClientBuilder::new(service, NAMESPACE).build()
}

async fn post_bindings(kubeconfig: &Path, n_nodes: usize, http2: Option<usize>) {
    let clients: Vec<Client> = match http2 {
        Some(n_connections) => {
            let config = config(kubeconfig).await;
            (0..n_connections).map(|_| http2_client(&config)).collect()
        }
        None => vec![client(kubeconfig).await],
    };
    let apis: Vec<Api<Pod>> =
        clients.into_iter().map(|client| Api::namespaced(client, NAMESPACE)).collect();
    let pods = &apis[0];
    let names: Vec<String> = pods
        .list_metadata(&ListParams::default().fields("spec.nodeName="))
        .await
        .expect("pods")
        .items
        .into_iter()
        .filter_map(|pod| pod.metadata.name)
        .collect();
    let nodes = Nodes::default();
    let post = |(row, name): (usize, String)| {
        let (pods, node) = (apis[row % apis.len()].clone(), nodes.name(row % n_nodes));
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
        .buffer_unordered(N_CONCURRENT)
        .for_each(|()| async {})
        .await;
}

fn kube_batch(shape: &Shape, n_nodes: usize, binary: &Path) -> Result {
    let plane = plane(shape, n_nodes, "kube-batch");
    let kubeconfig = plane
        .service_account_kubeconfig("kube-batch-system", "kube-batch")
        .expect("deploy/ has a service account");
    let mut command = Command::new(binary);
    command.args(["run", "--create-default-queue", "--listen-address=", "--kubeconfig"]);
    command.arg(kubeconfig);
    let log = plane.log_dir().join("kube-batch.log");
    let started = jiff::Timestamp::now();
    let process =
        Process::start("kube-batch", &command, &log).unwrap_or_else(|error| panic!("{error}"));
    let user = "system:serviceaccount:kube-batch-system:kube-batch";
    wait_until_bound(&plane, user, shape.n_gangs * shape.n_pods);
    // Status and events are written after the bindings.
    thread::sleep(Duration::from_secs(5));
    let (cpu, peak_mb) = usage(process.id());
    let idle = (shape.n_running > 0).then(|| idle(&plane, n_nodes, process.id()));
    Result { idle, ..result(&plane, user, started, cpu, peak_mb) }
}

/// CPU that a process uses, in percent of a core, while nothing but node heartbeats changes.
fn idle(plane: &ControlPlane, n_nodes: usize, pid: u32) -> f64 {
    let before = usage(pid).0;
    let start = Instant::now();
    on_threads(async {
        let nodes: Api<Node> = Api::all(client(&plane.kubeconfig()).await);
        let pause =
            HEARTBEAT_PERIOD / u32::try_from(n_nodes).expect("the number of nodes is small");
        for row in (0..n_nodes).cycle() {
            if start.elapsed() > IDLE_PERIOD {
                break;
            }
            let condition = json!({"type": "Ready", "lastHeartbeatTime": jiff::Timestamp::now()});
            let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
            let name = Nodes::default().name(row);
            let params = PatchParams::default();
            nodes.patch_status(&name, &params, &patch).await.expect("a heartbeat");
            tokio::time::sleep(pause).await;
        }
    });
    (usage(pid).0 - before) / start.elapsed().as_secs_f64() * 100.0
}

fn kube_scheduler(shape: &Shape, n_nodes: usize) -> Result {
    let mut plane = plane(shape, n_nodes, "default-scheduler");
    let started = jiff::Timestamp::now();
    plane.restart(Server::Scheduler).expect("kube-scheduler starts");
    let user = "system:kube-scheduler";
    wait_until_bound(&plane, user, shape.n_gangs * shape.n_pods);
    thread::sleep(Duration::from_secs(5));
    let (cpu, peak_mb) = plane.process_id(Server::Scheduler).map_or((0.0, 0), usage);
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
    // Reads only new events, because reading uses the cores that are measured.
    let mut log = plane.audit_reader();
    let mut n_bound = 0;
    while start.elapsed() < TIMEOUT {
        let events = log.read().expect("an audit log");
        n_bound += events.iter().filter(|event| is_binding(event, user)).count();
        if n_bound >= n_pods {
            return;
        }
        thread::sleep(Duration::from_secs(1));
    }
    plane.keep_logs();
    eprintln!("not all pods were bound; logs are in {}", plane.log_dir().display());
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
    let last = bindings.iter().map(|event| event.completed).max().unwrap_or(started);
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
        idle: None,
    }
}

/// CPU time of a process in seconds, and its peak memory in MB.
fn usage(pid: u32) -> (f64, u64) {
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
