//! Pods that arrive one after the other while a scheduler runs: how long does each wait for its binding?

use std::{thread, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube_batch_testbed::{audit::AuditEvent, cluster::ControlPlane};
use serde_json::Value;
use tokio::{task::JoinSet, time::interval};

use super::{
    figures::{created, milliseconds, percentile},
    hops::show_hops,
    scheduler::{LOG, Running, Scheduler, is_write},
    setup::{
        NAMESPACE, client, create_pod, create_pods, group, join, on_threads, plane, pod, running,
    },
};

/// How long pods arrive: at least this long, and at least as many as [`LEAST_ARRIVALS`].
const PERIOD: Duration = Duration::from_secs(20);
/// One in a hundred of these is a few pods.
const LEAST_ARRIVALS: u32 = 300;
/// Pods arrive only after the scheduler has written nothing for this time. After the last pod it has the same time for
/// events and statuses.
const QUIET: Duration = Duration::from_secs(3);
/// Pods of a gang that waits.
const N_WAITING: usize = 8;

/// The pods that arrive, and what else there is.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    /// Pods a second.
    rate: u32,
    /// Pods that run before the contender starts.
    n_running: usize,
    /// Gangs that wait: each of their pods needs a whole node.
    n_waiting: usize,
}

/// The measurements of some runs of a contender.
#[derive(Clone)]
pub(crate) struct ArrivalsResult {
    /// From the end of the creation of a pod until its binding arrives, in milliseconds; sorted.
    waits: Vec<f64>,
    /// CPU time in seconds, from the first creation until a while after the last.
    cpu: f64,
    writes: usize,
}

impl Arrivals {
    /// `arrivals-RATE`, `arrivals-RATE+RUNNING` or `arrivals-RATE+RUNNING+WAITING`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.strip_prefix("arrivals-")?.split('+');
        let rate = numbers.next()?.parse().ok().filter(|rate| *rate > 0)?;
        let mut number = || numbers.next().unwrap_or("0").parse().ok();
        let (n_running, n_waiting) = (number()?, number()?);
        numbers.next().is_none().then_some(Self { rate, n_running, n_waiting })
    }

    pub(crate) fn run(&self, scheduler: &Scheduler, n_nodes: usize, hops: bool) -> ArrivalsResult {
        let mut plane = self.plane(n_nodes, scheduler.name());
        let running = scheduler.start(&mut plane, hops);
        let small = |name: &str| pod(name, scheduler.name(), "100m", "64Mi");
        create_pods(&plane.kubeconfig(), std::iter::once(small("first")));
        running.wait_until_bound(&plane, 1);
        running.wait_until_quiet(&plane, QUIET);
        let before = running.usage(&plane).0;
        let started = Timestamp::now();
        let n_pods = self.n_pods();
        let pods = (0..n_pods).map(|nth| small(&format!("arrival-{nth:05}")));
        on_threads(self.create(&plane, pods));
        running.wait_until_bound(&plane, 1 + n_pods as usize);
        thread::sleep(QUIET);
        let cpu = running.usage(&plane).0 - before;
        let mut events = plane.audit_events().expect("an audit log");
        events.retain(|event| event.received >= started);
        if hops && let Scheduler::KubeBatch(_) = scheduler {
            show_hops(&plane.log_dir().join(LOG), &events);
        }
        let is_written = |event: &&AuditEvent| is_write(event, running.user);
        let writes = events.iter().filter(is_written).count();
        ArrivalsResult { waits: waits(&events, &running), cpu, writes }
    }

    fn n_pods(&self) -> u32 {
        (self.rate * PERIOD.as_secs() as u32).max(LEAST_ARRIVALS)
    }

    /// A control plane with what is there before pods arrive.
    fn plane(&self, n_nodes: usize, scheduler: &str) -> ControlPlane {
        assert!(
            self.n_waiting == 0 || self.n_running >= n_nodes,
            "gangs wait only if pods run on each of the {n_nodes} nodes"
        );
        let plane = plane(n_nodes, false);
        create_pods(&plane.kubeconfig(), running(self.n_running, n_nodes, scheduler));
        let gang_name = |gang| format!("waiting-{gang:05}");
        let gangs = 0..self.n_waiting;
        let groups: Vec<Value> =
            gangs.clone().map(|gang| group(&gang_name(gang), N_WAITING, false)).collect();
        plane.create(&groups).expect("groups are created");
        let waiting = gangs.flat_map(|gang| (0..N_WAITING).map(move |nth| (gang, nth)));
        let waiting = waiting.map(|(gang, nth)| {
            let gang = gang_name(gang);
            let mut pod = pod(&format!("{gang}-{nth}"), scheduler, "32", "1Gi");
            join(&mut pod, &gang, false);
            pod
        });
        create_pods(&plane.kubeconfig(), waiting);
        plane
    }

    /// Creates pods at the rate, whether earlier ones are answered or not.
    async fn create(&self, plane: &ControlPlane, pods: impl Iterator<Item = Value>) {
        let api: Api<Pod> = Api::namespaced(client(&plane.kubeconfig()).await, NAMESPACE);
        let mut ticks = interval(Duration::from_secs(1) / self.rate);
        let mut calls = JoinSet::new();
        for pod in pods {
            ticks.tick().await;
            calls.spawn(create_pod(api.clone(), pod));
        }
        calls.join_all().await;
    }
}

/// How long each pod has waited for its binding, sorted.
fn waits(events: &[AuditEvent], running: &Running) -> Vec<f64> {
    let created = created(events);
    let bindings = events.iter().filter(|event| running.has_bound(event));
    let mut waits: Vec<f64> = bindings
        .filter_map(|binding| {
            let created = created.get(binding.name.as_str())?;
            Some(milliseconds(*created, binding.received))
        })
        .collect();
    waits.sort_by(f64::total_cmp);
    waits
}

impl ArrivalsResult {
    /// All runs as one.
    pub(crate) fn together(results: &[Self]) -> Self {
        let mut waits: Vec<f64> = results.iter().flat_map(|result| result.waits.clone()).collect();
        waits.sort_by(f64::total_cmp);
        let cpu = results.iter().map(|result| result.cpu).sum();
        Self { waits, cpu, writes: results.iter().map(|result| result.writes).sum() }
    }

    pub(crate) fn header() -> String {
        format!(
            "{:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10} {:>10}",
            "bound", "p50 ms", "p90 ms", "p99 ms", "max ms", "cpu s", "cpu ms/pod", "writes/pod"
        )
    }

    pub(crate) fn row(&self) -> String {
        let Self { waits, cpu, writes } = self;
        let [p50, p90, p99, max] = [50, 90, 99, 100].map(|percent| percentile(waits, percent));
        let n = waits.len().max(1) as f64;
        format!(
            "{:7} {p50:8.1} {p90:8.1} {p99:8.1} {max:8.1} {cpu:8.2} {:10.2} {:10.2}",
            waits.len(),
            cpu * 1e3 / n,
            *writes as f64 / n
        )
    }
}
