//! All pods exist before a contender starts: how many are bound in a second?

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use kube_batch_testbed::{cluster::ControlPlane, nodes::Nodes};
use serde::de::IgnoredAny;
use serde_json::json;

use super::{
    scheduler::{Running, Scheduler, is_binding, is_write, usage},
    setup::{
        N_CONCURRENT, NAMESPACE, client, config, create_pods, group, http2_client, join,
        on_threads, plane, pod, running,
    },
};

/// How long the idle scheduler is measured.
const IDLE_PERIOD: Duration = Duration::from_secs(30);
/// How often a kubelet reports the status of its node when nothing has changed.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(300);

/// The pods that wait when a contender starts.
#[derive(Clone, Debug)]
pub(crate) struct Burst {
    pub(crate) n_gangs: usize,
    /// Pods of each gang.
    pub(crate) n_pods: usize,
    /// Pods that run before the contender starts.
    pub(crate) n_running: usize,
    /// Whether PodGroups are of Kubernetes' own API.
    pub(crate) is_native: bool,
}

/// What binds the pods.
pub(crate) enum Contender {
    /// A loop that only posts the bindings, over this number of HTTP/2 connections, or over HTTP/1.1.
    Loop(Option<usize>),
    Scheduler(Scheduler),
}

/// The measurements of one run of a contender.
pub(crate) struct BurstResult {
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

impl Burst {
    /// GANGSxPODS or GANGSxPODS+RUNNING, for PodGroups of Kubernetes with the prefix native-.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let native = name.strip_prefix("native-");
        let (gangs, pods) = native.unwrap_or(name).split_once('x')?;
        let (pods, running) = pods.split_once('+').unwrap_or((pods, "0"));
        let (n_gangs, n_pods) = (gangs.parse().ok()?, pods.parse().ok()?);
        Some(Self {
            n_gangs,
            n_pods,
            n_running: running.parse().ok()?,
            is_native: native.is_some(),
        })
    }

    pub(crate) fn run(&self, contender: &Contender, n_nodes: usize) -> BurstResult {
        match contender {
            Contender::Loop(http2) => self.bare_loop(n_nodes, *http2),
            Contender::Scheduler(scheduler) => self.schedule(n_nodes, scheduler),
        }
    }

    /// A control plane with the pods, which name this scheduler.
    fn plane(&self, n_nodes: usize, scheduler: &str) -> ControlPlane {
        let plane = plane(n_nodes, self.is_native);
        let gang_name = |gang| format!("job-{gang:05}");
        let groups: Vec<_> = (0..self.n_gangs)
            .map(|gang| group(&gang_name(gang), self.n_pods, self.is_native))
            .collect();
        plane.create(&groups).expect("groups are created");
        let gangs = (0..self.n_gangs).flat_map(|gang| (0..self.n_pods).map(move |nth| (gang, nth)));
        let pods = gangs.map(|(gang, nth)| {
            let gang = gang_name(gang);
            let mut pod = pod(&format!("{gang}-{nth:05}"), scheduler, "1", "1Gi");
            join(&mut pod, &gang, self.is_native);
            pod
        });
        let running = running(self.n_running, n_nodes, scheduler);
        create_pods(&plane.kubeconfig(), pods.chain(running));
        plane
    }

    fn bare_loop(&self, n_nodes: usize, http2: Option<usize>) -> BurstResult {
        let plane = self.plane(n_nodes, "none");
        let started = Timestamp::now();
        let before = usage(std::process::id()).0;
        on_threads(post_bindings(&plane.kubeconfig(), n_nodes, http2));
        let cpu = usage(std::process::id()).0 - before;
        result(&plane, "admin", started, (cpu, 0))
    }

    fn schedule(&self, n_nodes: usize, scheduler: &Scheduler) -> BurstResult {
        let mut plane = self.plane(n_nodes, scheduler.name());
        let running = scheduler.start(&mut plane, false);
        running.wait_until_bound(&plane, self.n_gangs * self.n_pods);
        // Status and events are written after the bindings.
        thread::sleep(Duration::from_secs(5));
        let usage = running.usage(&plane);
        let is_measured = self.n_running > 0 && matches!(scheduler, Scheduler::KubeBatch(_));
        let idle = is_measured.then(|| idle(&plane, n_nodes, &running));
        BurstResult { idle, ..result(&plane, running.user, running.started, usage) }
    }
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

/// CPU that a process uses, in percent of a core, while nothing but node heartbeats changes.
fn idle(plane: &ControlPlane, n_nodes: usize, running: &Running) -> f64 {
    let before = running.usage(plane).0;
    let start = Instant::now();
    on_threads(async {
        let nodes: Api<Node> = Api::all(client(&plane.kubeconfig()).await);
        let pause =
            HEARTBEAT_PERIOD / u32::try_from(n_nodes).expect("the number of nodes is small");
        for row in (0..n_nodes).cycle() {
            if start.elapsed() > IDLE_PERIOD {
                break;
            }
            let condition = json!({"type": "Ready", "lastHeartbeatTime": Timestamp::now()});
            let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
            let name = Nodes::default().name(row);
            let params = PatchParams::default();
            nodes.patch_status(&name, &params, &patch).await.expect("a heartbeat");
            tokio::time::sleep(pause).await;
        }
    });
    (running.usage(plane).0 - before) / start.elapsed().as_secs_f64() * 100.0
}

fn result(
    plane: &ControlPlane,
    user: &str,
    started: Timestamp,
    (cpu, peak_mb): (f64, u64),
) -> BurstResult {
    let mut events = plane.audit_events().expect("an audit log");
    events.retain(|event| event.received >= started);
    let bindings = || events.iter().filter(|event| is_binding(event, user));
    let first = bindings().map(|event| event.received).min().unwrap_or(started);
    let last = bindings().map(|event| event.completed).max().unwrap_or(started);
    let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64();
    BurstResult {
        bound: bindings().count(),
        first: seconds(started, first),
        window: seconds(first, last),
        cpu,
        peak_mb,
        writes: events.iter().filter(|event| is_write(event, user)).count(),
        idle: None,
    }
}

impl BurstResult {
    /// The median of each measurement.
    pub(crate) fn median(results: &[Self]) -> Self {
        let median_of = |field: fn(&Self) -> f64| {
            let mut values: Vec<f64> = results.iter().map(field).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Self {
            bound: median_of(|result| result.bound as f64) as usize,
            first: median_of(|result| result.first),
            window: median_of(|result| result.window),
            cpu: median_of(|result| result.cpu),
            peak_mb: median_of(|result| result.peak_mb as f64) as u64,
            writes: median_of(|result| result.writes as f64) as usize,
            idle: results[0].idle.map(|_| median_of(|result| result.idle.unwrap_or_default())),
        }
    }

    pub(crate) fn header() -> String {
        format!(
            "{:>7} {:>9} {:>9} {:>9} {:>8} {:>8} {:>10} {:>7}",
            "bound", "first s", "window s", "binds/s", "cpu s", "peak MB", "writes/pod", "idle %"
        )
    }

    pub(crate) fn row(&self) -> String {
        let Self { bound, first, window, cpu, peak_mb, writes, idle } = self;
        let idle = idle.map_or_else(String::new, |percent| format!("{percent:.2}"));
        format!(
            "{bound:7} {first:9.2} {window:9.2} {:9.0} {cpu:8.2} {peak_mb:8} {:10.2} {idle:>7}",
            *bound as f64 / window,
            *writes as f64 / (*bound).max(1) as f64,
        )
    }
}
