//! Metrics of jobs and queues, from the report of a cycle.
//!
//! Series of jobs and queues that are gone are removed by the first cycle without them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use jiff::Timestamp;
use kube_batch_framework::report::{Cycle, JobReport, Phase, QueueReport};
use kube_batch_model::{decision::EvictReason, name::Name, resource::Unit, text::shortened};
use prometheus_client::metrics::{family::Family, gauge::Gauge};
use tokio::time::Instant;

use super::metrics::{Job, Metrics, Queue, QueueEvicted, QueueInfo, QueuePhase, QueueResource};

/// How often the state of jobs and queues is recorded. Prometheus reads it every few seconds, and there may be hundreds
/// of cycles in a second.
const PERIOD: Duration = Duration::from_secs(1);

/// Writes metrics, and remembers which series the last cycle left.
pub(crate) struct ReportMetrics {
    metrics: Arc<Metrics>,
    /// The last cycle, if its state is not recorded yet.
    last: Option<Cycle>,
    /// When the state was recorded.
    recorded: Option<Instant>,
    /// How many cycles there were since.
    n_cycles: i64,
    /// How many jobs have series of their own.
    n_jobs: usize,
    unready_jobs: HashSet<Job>,
    queues: HashSet<Queue>,
    infos: HashSet<QueueInfo>,
    amounts: HashSet<QueueResource>,
    capabilities: HashSet<QueueResource>,
}

impl ReportMetrics {
    pub(crate) fn new(metrics: Arc<Metrics>, n_jobs: usize) -> Self {
        Self {
            metrics,
            last: None,
            recorded: None,
            n_cycles: 0,
            n_jobs,
            unready_jobs: HashSet::new(),
            queues: HashSet::new(),
            infos: HashSet::new(),
            amounts: HashSet::new(),
            capabilities: HashSet::new(),
        }
    }

    /// Counts what happened in a cycle that ended at `now`.
    pub(crate) fn count(&mut self, cycle: &Cycle, now: Timestamp) {
        self.n_cycles += 1;
        let jobs: BTreeSet<usize> = cycle.decided_jobs.iter().flatten().copied().collect();
        self.record_starts(jobs.into_iter().map(|at| &*cycle.jobs[at]), now);
        for report in &cycle.queues {
            for (reason, n_evicted) in &report.evicted {
                let queue = report.queue.name.to_string();
                let labels = QueueEvicted { queue, reason: reason.name() };
                self.metrics.queue_evictions.get_or_create(&labels).inc_by((*n_evicted).into());
            }
        }
    }

    /// Records the state that a cycle leaves when that is due.
    pub(crate) fn record_later(&mut self, mut cycle: Cycle) {
        // The other jobs lack nothing. Their reports would be copied for the next cycle if they were held here.
        cycle.keep_unsettled();
        self.last = Some(cycle);
        self.record_due(Instant::now());
    }

    /// Records the state that the last cycle left, if that is due.
    pub(crate) fn record_due(&mut self, now: Instant) {
        if self.recorded.is_none_or(|recorded| recorded + PERIOD <= now)
            && let Some(cycle) = self.last.take()
        {
            self.recorded = Some(now);
            self.record(&cycle);
        }
    }

    fn record(&mut self, cycle: &Cycle) {
        self.record_jobs(&cycle.jobs);
        self.record_unready_tasks(cycle);
        self.record_queues(&cycle.queues);
        self.record_amounts(&cycle.queues);
        self.n_cycles = 0;
    }

    /// Anybody may create jobs, so only those that lack most tasks have series of their own. Of equal
    /// ones those that have them already, and then the oldest.
    fn record_jobs(&mut self, jobs: &[Arc<JobReport>]) {
        let mut unready: Vec<(&JobReport, Job)> = jobs
            .iter()
            .filter(|report| report.unschedulable.is_some())
            .map(|report| {
                let job_id = shortened(&report.key.to_string()).into_owned();
                (&**report, Job { job_id })
            })
            .collect();
        self.metrics.unready_jobs.set(i64::try_from(unready.len()).unwrap_or(i64::MAX));
        unready.sort_by_key(|(report, job)| {
            (Reverse(report.lacking), !self.unready_jobs.contains(job))
        });
        unready.truncate(self.n_jobs);
        for (report, job) in &unready {
            self.metrics.unready_tasks.get_or_create(job).set(report.lacking.into());
            self.metrics.job_retries.get_or_create(job).inc_by(self.n_cycles);
        }
        let unready: HashSet<Job> = unready.into_iter().map(|(_, job)| job).collect();
        for gone in self.unready_jobs.difference(&unready) {
            self.metrics.unready_tasks.remove(gone);
            self.metrics.job_retries.remove(gone);
        }
        self.unready_jobs = unready;
    }

    /// What all jobs of each queue lack.
    fn record_unready_tasks(&self, cycle: &Cycle) {
        let mut lacking: BTreeMap<&Name, i64> = BTreeMap::new();
        for report in cycle.jobs.iter().filter(|report| report.unschedulable.is_some()) {
            if let Some(queue) = &report.queue {
                *lacking.entry(queue).or_default() += i64::from(report.lacking);
            }
        }
        for report in &cycle.queues {
            let name = &report.queue.name;
            let n_tasks = lacking.get(name).copied().unwrap_or(0);
            let queue = Queue { queue: name.to_string() };
            self.metrics.queue_unready_tasks.get_or_create(&queue).set(n_tasks);
        }
    }

    fn record_starts<'r>(&self, jobs: impl Iterator<Item = &'r JobReport>, now: Timestamp) {
        for report in jobs {
            if let Some((queue, since)) = report.queue.as_ref().zip(report.waited_since) {
                let queue = Queue { queue: queue.to_string() };
                // The clock of the API server may be ahead.
                let waited = now.duration_since(since).as_secs_f64().max(0.0);
                self.metrics.queue_job_wait.get_or_create(&queue).observe(waited);
            }
        }
    }

    fn record_queues(&mut self, reports: &[QueueReport]) {
        let (mut queues, mut infos) = (HashSet::new(), HashSet::new());
        for report in reports {
            let parent = report.queue.parent.as_ref();
            let info = QueueInfo {
                queue: report.queue.name.to_string(),
                parent: parent.map(ToString::to_string).unwrap_or_default(),
                state: report.state.to_string(),
            };
            self.metrics.queue_info.get_or_create(&info).set(1);
            infos.insert(info);
            let name = report.queue.name.to_string();
            let queue = Queue { queue: name.clone() };
            let share = report.closing.as_ref().map_or(0.0, |shares| shares.share.as_f64());
            self.metrics.queue_share.get_or_create(&queue).set(share);
            self.metrics.queue_weight.get_or_create(&queue).set(report.queue.weight.into());
            for phase in Phase::ALL {
                let labels = QueuePhase { queue: name.clone(), phase: phase.name() };
                let count = report.groups.get(&phase).copied().unwrap_or(0);
                self.metrics.queue_groups.get_or_create(&labels).set(count.into());
            }
            queues.insert(queue);
        }
        for gone in self.queues.difference(&queues) {
            self.metrics.queue_share.remove(gone);
            self.metrics.queue_weight.remove(gone);
            self.metrics.queue_unready_tasks.remove(gone);
            self.metrics.queue_job_wait.remove(gone);
            for phase in Phase::ALL {
                let labels = QueuePhase { queue: gone.queue.clone(), phase: phase.name() };
                self.metrics.queue_groups.remove(&labels);
            }
            for reason in EvictReason::ALL {
                let labels = QueueEvicted { queue: gone.queue.clone(), reason: reason.name() };
                self.metrics.queue_evictions.remove(&labels);
            }
        }
        for gone in self.infos.difference(&infos) {
            self.metrics.queue_info.remove(gone);
        }
        (self.queues, self.infos) = (queues, infos);
    }

    fn record_amounts(&mut self, reports: &[QueueReport]) {
        let (mut amounts, mut capabilities) = (HashSet::new(), HashSet::new());
        for report in reports {
            let labels = |resource: &str| QueueResource {
                queue: report.queue.name.to_string(),
                resource: resource.to_owned(),
            };
            let requested = report.requested();
            let shown = [
                &report.fair_share,
                &report.deserved,
                &report.guaranteed,
                &report.allocated,
                &requested,
                &report.pending,
                &report.reserved,
            ];
            let resources: BTreeSet<&Name> = shown.iter().flat_map(|map| map.keys()).collect();
            for resource in resources {
                let (labels, unit) = (labels(resource), Unit::of(resource));
                for (map, gauge) in shown.into_iter().zip(self.amount_gauges()) {
                    // Zeros are not in the map.
                    let amount = map.get(resource).copied().unwrap_or(0);
                    gauge.get_or_create(&labels).set(unit.as_f64(amount));
                }
                amounts.insert(labels);
            }
            for (resource, amount) in report.queue.capability.iter() {
                let labels = labels(resource);
                let amount = Unit::of(resource).as_f64(amount);
                self.metrics.queue_capability.get_or_create(&labels).set(amount);
                capabilities.insert(labels);
            }
        }
        for gone in self.amounts.difference(&amounts) {
            for gauge in self.amount_gauges() {
                gauge.remove(gone);
            }
        }
        for gone in self.capabilities.difference(&capabilities) {
            self.metrics.queue_capability.remove(gone);
        }
        (self.amounts, self.capabilities) = (amounts, capabilities);
    }

    /// The gauges of the fair share of a queue, and of what it deserves, is guaranteed, has allocated, has allocated and waits for, waits for, and is
    /// kept for a job of it.
    fn amount_gauges(&self) -> [&Family<QueueResource, Gauge<f64, AtomicU64>>; 7] {
        let metrics = &self.metrics;
        [
            &metrics.queue_fair_share,
            &metrics.queue_deserved,
            &metrics.queue_guaranteed,
            &metrics.queue_allocated,
            &metrics.queue_requested,
            &metrics.queue_pending,
            &metrics.queue_reserved,
        ]
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kube_batch_api::{crd::v1alpha2, dialect::RawObject, kind::ApplyObject as _};
    use kube_batch_cache::{
        assumed::Assumed,
        snapshot::{SnapshotOptions, take_snapshot},
        store::Store,
    };
    use kube_batch_framework::candidates::Search;
    use kube_batch_model::{group_version::GroupVersion::V1Alpha2, name::ObjectKey};
    use kube_batch_scheduler::{
        conf::{Conf, parse},
        registry::Registry,
    };
    use serde_json::{Value, json};

    use super::*;

    const CONF: &str = "\
actions: reclaim, allocate
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
";
    const CREATED: &str = "2026-01-01T00:00:00Z";

    /// A cluster, and the metrics of its cycles.
    struct World {
        store: Store,
        conf: Conf,
        metrics: Arc<Metrics>,
        report: ReportMetrics,
    }

    impl World {
        fn new() -> Self {
            let conf = parse(CONF, &Registry::builtin()).expect("a configuration").conf;
            let metrics = Arc::new(Metrics::new());
            let report = ReportMetrics::new(Arc::clone(&metrics), 2);
            let mut store = Store::default();
            let node = json!({
                "metadata": {"name": "n"},
                "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
            });
            store.apply::<Node>(&serde_json::from_value(node).expect("a node")).expect("facts");
            Self { store, conf, metrics, report }
        }

        fn queue(&mut self, name: &str, spec: Value) {
            let queue = json!({"metadata": {"name": name, "uid": name}, "spec": spec});
            let queue: v1alpha2::Queue = serde_json::from_value(queue).expect("a queue");
            let applied =
                self.store.apply_queue(V1Alpha2, &RawObject::new(&queue.metadata, &queue.spec));
            applied.expect("facts of a queue");
        }

        fn group(&mut self, name: &str, min_member: u32) {
            let group = json!({
                "metadata": {"name": name, "namespace": "ns", "uid": name},
                "spec": {"minMember": min_member, "queue": name},
            });
            let group: v1alpha2::PodGroup = serde_json::from_value(group).expect("a group");
            let applied =
                self.store.apply_group(V1Alpha2, &RawObject::new(&group.metadata, &group.spec));
            applied.expect("facts of a group");
        }

        /// A pod that requests one CPU, and runs if it has a node.
        fn pod(&mut self, group: &str, name: &str, node: Option<&str>) {
            let pod = json!({
                "metadata": {
                    "name": name, "namespace": "ns", "uid": name, "creationTimestamp": CREATED,
                    "annotations": {"scheduling.k8s.io/group-name": group},
                },
                "spec": {
                    "schedulerName": "kube-batch", "nodeName": node,
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                },
                "status": {"phase": if node.is_some() { "Running" } else { "Pending" }},
            });
            self.store.apply::<Pod>(&serde_json::from_value(pod).expect("a pod")).expect("facts");
        }

        /// Runs a cycle that ends this many seconds after the pods were created, and returns the
        /// samples of queues.
        fn cycle(&mut self, seconds: i64) -> String {
            let options = SnapshotOptions::default();
            let cluster = take_snapshot(&self.store, &Assumed::default(), &options).cluster;
            let cycle =
                self.conf.run_cycle(cluster, jiff::Timestamp::MAX, Search::Index, &mut |_| {});
            let created: Timestamp = CREATED.parse().expect("a time");
            self.report.count(&cycle, created + jiff::SignedDuration::from_secs(seconds));
            self.report.record(&cycle);
            let text = self.metrics.text();
            let of_queues = text.lines().filter(|line| line.starts_with("kube_batch_queue_"));
            of_queues.map(|line| format!("{line}\n")).collect()
        }
    }

    fn has(samples: &str, expected: &[&str]) {
        for line in expected {
            let line = format!("kube_batch_queue_{line}");
            assert!(samples.lines().any(|found| found == line), "{line} is not in\n{samples}");
        }
    }

    #[test]
    fn queues_have_series_while_they_exist() {
        let mut world = World::new();
        world.queue("lender", json!({"weight": 3, "capability": {"cpu": "6", "memory": "1Gi"}}));
        world.group("lender", 1);
        for name in ["a", "b", "c", "d"] {
            world.pod("lender", name, Some("n"));
        }
        let samples = world.cycle(0);
        has(
            &samples,
            &[
                r#"weight{queue="lender"} 3"#,
                r#"capability{queue="lender",resource="cpu"} 6.0"#,
                r#"capability{queue="lender",resource="memory"} 1073741824.0"#,
                r#"allocated{queue="lender",resource="cpu"} 4.0"#,
                r#"pending{queue="lender",resource="cpu"} 0.0"#,
                r#"pod_groups{queue="lender",phase="Running"} 1"#,
            ],
        );
        assert!(!samples.contains("evictions") && !samples.contains("wait"), "{samples}");

        // The weights are equal now, so the gang of two is entitled to two CPUs.
        world.queue("lender", json!({"weight": 1}));
        world.queue("owner", json!({"weight": 1}));
        world.group("owner", 2);
        world.pod("owner", "x", None);
        world.pod("owner", "y", None);
        let samples = world.cycle(1);
        has(
            &samples,
            &[
                r#"evictions_total{queue="lender",reason="reclaim"} 2"#,
                r#"deserved{queue="owner",resource="cpu"} 2.0"#,
            ],
        );
        assert!(!samples.contains("capability"), "the limit was removed\n{samples}");
        assert!(!samples.contains("wait"), "the gang has not started\n{samples}");

        // Two pods less: the gang starts, after 90 seconds.
        world.store.pods.delete(&ObjectKey::new("ns", "c"));
        world.store.pods.delete(&ObjectKey::new("ns", "d"));
        let samples = world.cycle(90);
        has(
            &samples,
            &[
                r#"job_wait_seconds_bucket{le="60.0",queue="owner"} 0"#,
                r#"job_wait_seconds_bucket{le="180.0",queue="owner"} 1"#,
                r#"job_wait_seconds_sum{queue="owner"} 90.0"#,
                r#"allocated{queue="owner",resource="cpu"} 2.0"#,
                r#"pending{queue="owner",resource="cpu"} 0.0"#,
            ],
        );
        assert!(!samples.contains(r#"wait_seconds_sum{queue="lender"}"#), "{samples}");

        for queue in ["lender", "owner"] {
            world.store.queues.delete(&(queue.into(), V1Alpha2));
        }
        assert_eq!(world.cycle(91), "", "queues are gone");
    }

    #[test]
    fn the_jobs_that_lack_most_have_series_of_their_own() {
        let mut world = World::new();
        for (name, min_member) in [("a", 5), ("b", 7), ("c", 6), ("d", 8)] {
            world.queue(name, json!({"weight": 1}));
            world.group(name, min_member);
            world.pod(name, &format!("{name}-0"), None);
        }
        has(&world.cycle(0), &[r#"unready_tasks{queue="a"} 5"#, r#"unready_tasks{queue="d"} 8"#]);
        let text = world.metrics.text();
        let series = |text: &str| -> Vec<String> {
            let of_jobs = text.lines().filter(|line| line.contains("unschedule_task_count{"));
            let mut series: Vec<String> = of_jobs.map(str::to_owned).collect();
            series.sort();
            series
        };
        let of = |job: &str, n: u32| {
            format!(r#"kube_batch_unschedule_task_count{{job_id="ns/{job}"}} {n}"#)
        };
        assert_eq!(series(&text), [of("b", 7), of("d", 8)]);
        assert!(text.lines().any(|line| line == "kube_batch_unschedule_job_count 4"), "{text}");
        world.group("c", 9);
        world.cycle(1);
        assert_eq!(series(&world.metrics.text()), [of("c", 9), of("d", 8)]);
    }

    #[test]
    fn waiting_pods_are_demand_of_their_queue() {
        let mut world = World::new();
        world.queue("big", json!({"weight": 1}));
        world.group("big", 1);
        for nth in 0..6 {
            world.pod("big", &format!("p{nth}"), None);
        }
        has(
            &world.cycle(5),
            &[
                r#"allocated{queue="big",resource="cpu"} 4.0"#,
                r#"pending{queue="big",resource="cpu"} 2.0"#,
                r#"job_wait_seconds_sum{queue="big"} 5.0"#,
            ],
        );
    }
}
