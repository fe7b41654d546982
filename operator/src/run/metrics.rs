//! Metrics of the scheduler, for Prometheus.
//!
//! Names of kube-batch v0.5.0 are kept, with the prefix of its design document; docs/metrics.md
//! lists all of them.

use std::{
    fmt,
    sync::{Mutex, atomic::AtomicU64},
    time::Duration,
};

use kube_batch_framework::milestone::Milestone;
use kube_batch_model::{cluster::Cluster, column::ClassIdx};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};

/// v0.5.0's buckets, in milliseconds or microseconds, with finer ones below: our cycles are shorter.
const LATENCY: [f64; 13] =
    [0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0];
/// v0.5.0's buckets in microseconds, and longer ones: tasks wait for seconds.
const MICROSECONDS: [f64; 12] = [
    5.0,
    20.0,
    80.0,
    320.0,
    1_280.0,
    5_000.0,
    20_000.0,
    80_000.0,
    320_000.0,
    1_280_000.0,
    10_000_000.0,
    100_000_000.0,
];
/// Seconds that jobs wait, from one second to two days: from an idle cluster to a backlog.
const WAITING: [f64; 14] = [
    1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 57_600.0,
    86_400.0, 172_800.0,
];
/// Seconds, from a tenth of a millisecond to one second, in steps fine enough for percentiles.
const HOPS: [f64; 13] =
    [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0];
/// Seconds, from a tenth of a millisecond to ten seconds.
const SECONDS: [f64; 11] = [1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 5.0, 10.0];

macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
    )* };
}

labels! {
    /// An action of a cycle.
    Action { action: &'static str }
    /// A plugin, and when in a cycle it was called.
    #[allow(non_snake_case, reason = "the label is named as v0.5.0 has it")]
    Plugin { plugin: &'static str, OnSession: &'static str }
    /// A phase of a cycle.
    Phase { phase: &'static str }
    /// A part of the way of a pod to its binding.
    Hop { hop: &'static str }
    /// A result.
    Ended { result: &'static str }
    /// A kind of objects.
    Kind { kind: &'static str }
    /// A kind of write.
    WriteKind { write: Write }
    /// A kind of write, and its result.
    Written { write: Write, result: &'static str }
    /// A job, as `namespace/name`.
    Job { job_id: String }
    /// A queue.
    Queue { queue: String }
    /// A resource of a queue.
    QueueResource { queue: String, resource: String }
    /// A background task.
    Task { task: &'static str }
    /// The groups of a queue that are in a phase.
    QueuePhase { queue: String, phase: &'static str }
    /// A queue, the queue above it, and whether it starts jobs.
    QueueInfo { queue: String, parent: String, state: String }
    /// A queue that loses pods, and why.
    QueueEvicted { queue: String, reason: &'static str }
}

/// What is written to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Write {
    /// A pod to its node.
    Bind,
    /// A victim's condition, then its deletion.
    Evict,
    /// A claim's node, or a volume's claim.
    Volume,
    /// The devices and the users of a claim for devices.
    ResourceClaim,
    /// A pod's condition or nominated node.
    PodStatus,
    /// A PodGroup's status.
    GroupStatus,
    /// A queue's status.
    QueueStatus,
    /// The default queue.
    Queue,
    /// An event.
    Event,
    /// The lock of leader election.
    Lease,
}

impl EncodeLabelValue for Write {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        EncodeLabelValue::encode(
            &match self {
                Self::Bind => "bind",
                Self::Evict => "evict",
                Self::Volume => "volume",
                Self::ResourceClaim => "resource_claim",
                Self::PodStatus => "pod_status",
                Self::GroupStatus => "pod_group_status",
                Self::QueueStatus => "queue_status",
                Self::Queue => "queue",
                Self::Event => "event",
                Self::Lease => "lease",
            },
            encoder,
        )
    }
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// All metrics.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    pub(crate) e2e_latency: Histogram,
    pub(crate) plugin_latency: Histograms<Plugin>,
    pub(crate) action_latency: Histograms<Action>,
    pub(crate) task_latency: Histogram,
    pub(crate) schedule_attempts: Family<Ended, Counter>,
    pub(crate) preemption_victims: Gauge,
    pub(crate) preemption_attempts: Gauge,
    pub(crate) unready_tasks: Family<Job, Gauge>,
    pub(crate) unready_jobs: Gauge,
    pub(crate) job_retries: Family<Job, Gauge>,
    pub(crate) cycles: Family<Ended, Counter>,
    pub(crate) cycle_phases: Histograms<Phase>,
    pub(crate) pod_hops: Histograms<Hop>,
    pub(crate) snapshot_objects: Family<Kind, Gauge>,
    pub(crate) queue_share: Family<Queue, Gauge<f64, AtomicU64>>,
    pub(crate) queue_fair_share: Family<QueueResource, Gauge<f64, AtomicU64>>,
    pub(crate) queue_deserved: Family<QueueResource, Gauge<f64, AtomicU64>>,
    pub(crate) queue_reserved: Family<QueueResource, Gauge<f64, AtomicU64>>,
    pub(crate) queue_guaranteed: Family<QueueResource, Gauge<f64, AtomicU64>>,
    pub(crate) queue_allocated: Family<QueueResource, Gauge<f64, AtomicU64>>,
    pub(crate) queue_requested: Family<QueueResource, Gauge<f64, AtomicU64>>,
    pub(crate) queue_pending: Family<QueueResource, Gauge<f64, AtomicU64>>,
    pub(crate) queue_capability: Family<QueueResource, Gauge<f64, AtomicU64>>,
    pub(crate) queue_weight: Family<Queue, Gauge>,
    pub(crate) queue_unready_tasks: Family<Queue, Gauge>,
    pub(crate) queue_groups: Family<QueuePhase, Gauge>,
    pub(crate) queue_info: Family<QueueInfo, Gauge>,
    pub(crate) queue_evictions: Family<QueueEvicted, Counter>,
    pub(crate) queue_job_wait: Histograms<Queue>,
    pub(crate) watch_synced: Family<Kind, Gauge>,
    pub(crate) watch_last_message: Family<Kind, Gauge>,
    pub(crate) watch_events: Family<Kind, Counter>,
    pub(crate) watch_failures: Family<Kind, Counter>,
    pub(crate) watch_lag: Histogram,
    pub(crate) malformed_objects: Family<Kind, Counter>,
    pub(crate) effects_queued: Gauge,
    pub(crate) effects_in_flight: Gauge,
    pub(crate) bindings_waiting_for_claims: Gauge,
    pub(crate) events_dropped: Counter,
    pub(crate) audit_lines_lost: Counter,
    pub(crate) writes: Family<Written, Counter>,
    pub(crate) write_retries: Family<WriteKind, Counter>,
    pub(crate) write_latency: Histograms<WriteKind>,
    pub(crate) pods_placed: Counter,
    pub(crate) decisions_unconfirmed: Counter,
    pub(crate) device_conflicts: Counter,
    pub(crate) leader: Gauge,
    pub(crate) config_valid: Gauge,
    pub(crate) config_reloads: Family<Ended, Counter>,
    pub(crate) task_failures: Family<Task, Counter>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: Mutex::new(Registry::with_prefix("kube_batch")),
            e2e_latency: Histogram::new(LATENCY.into_iter().chain([2560.0])),
            plugin_latency: Family::new_with_constructor(|| Histogram::new(MICROSECONDS)),
            action_latency: Family::new_with_constructor(|| Histogram::new(MICROSECONDS)),
            task_latency: Histogram::new(MICROSECONDS),
            schedule_attempts: Family::default(),
            preemption_victims: Gauge::default(),
            preemption_attempts: Gauge::default(),
            unready_tasks: Family::default(),
            unready_jobs: Gauge::default(),
            job_retries: Family::default(),
            cycles: Family::default(),
            cycle_phases: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            pod_hops: Family::new_with_constructor(|| Histogram::new(HOPS)),
            snapshot_objects: Family::default(),
            queue_share: Family::default(),
            queue_fair_share: Family::default(),
            queue_deserved: Family::default(),
            queue_reserved: Family::default(),
            queue_guaranteed: Family::default(),
            queue_allocated: Family::default(),
            queue_requested: Family::default(),
            queue_pending: Family::default(),
            queue_capability: Family::default(),
            queue_weight: Family::default(),
            queue_unready_tasks: Family::default(),
            queue_groups: Family::default(),
            queue_info: Family::default(),
            queue_evictions: Family::default(),
            queue_job_wait: Family::new_with_constructor(|| Histogram::new(WAITING)),
            watch_synced: Family::default(),
            watch_last_message: Family::default(),
            watch_events: Family::default(),
            watch_failures: Family::default(),
            watch_lag: Histogram::new(SECONDS),
            malformed_objects: Family::default(),
            effects_queued: Gauge::default(),
            effects_in_flight: Gauge::default(),
            bindings_waiting_for_claims: Gauge::default(),
            events_dropped: Counter::default(),
            audit_lines_lost: Counter::default(),
            writes: Family::default(),
            write_retries: Family::default(),
            write_latency: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            pods_placed: Counter::default(),
            decisions_unconfirmed: Counter::default(),
            device_conflicts: Counter::default(),
            leader: Gauge::default(),
            config_valid: Gauge::default(),
            config_reloads: Family::default(),
            task_failures: Family::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let registry = &mut *self.registry.lock().expect("registering and encoding do not panic");
        macro_rules! register {
            ($($name:literal, $help:literal, $metric:ident;)*) => {
                $( registry.register($name, $help, self.$metric.clone()); )*
            };
        }
        register! {
            "e2e_scheduling_latency_milliseconds", "Duration of a cycle, from its snapshot to its decisions", e2e_latency;
            "plugin_scheduling_latency_microseconds", "Duration of opening a plugin's session", plugin_latency;
            "action_scheduling_latency_microseconds", "Duration of an action", action_latency;
            "task_scheduling_latency_microseconds", "Time from the creation of a pod to the answer to its binding", task_latency;
            "schedule_attempts", "Scheduling attempts by result: scheduled, unschedulable, error", schedule_attempts;
            "pod_preemption_victims", "Victims of the last cycle that evicted any", preemption_victims;
            "total_preemption_attempts", "Jobs for which pods were evicted (counter)", preemption_attempts;
            "unschedule_task_count", "Tasks that a job which is not ready lacks to its minimum", unready_tasks;
            "unschedule_job_count", "Jobs that are not ready", unready_jobs;
            "job_retry_counts", "Cycles in which a job was not ready (counter)", job_retries;
            "cycles", "Cycles by result: done, abandoned", cycles;
            "snapshot_objects", "Objects in the snapshot of the last cycle; refused_tasks are waiting pods that are too large", snapshot_objects;
            "queue_share", "Largest fraction of its deserved amount that a queue has allocated, over all resources", queue_share;
            "queue_fair_share", "Amount that a queue would deserve if it and all queues that have jobs requested all that there is, in cores, bytes or units", queue_fair_share;
            "queue_deserved", "Amount that a queue deserves, in cores, bytes or units: of its fair share and what others leave, what its pods request", queue_deserved;
            "queue_reserved", "Amount that is kept free for a job of a queue that has waited long, in cores, bytes or units", queue_reserved;
            "queue_guaranteed", "Amount that is kept free for a queue, whether it uses it or not, in cores, bytes or units", queue_guaranteed;
            "queue_allocated", "Amount that a queue has allocated, in cores, bytes or units", queue_allocated;
            "queue_requested", "Amount that a queue has allocated and its waiting pods request, in cores, bytes or units", queue_requested;
            "queue_pending", "Amount that the waiting pods of a queue request, in cores, bytes or units", queue_pending;
            "queue_capability", "Hard limit of a queue, in cores, bytes or units", queue_capability;
            "queue_weight", "Weight of a queue", queue_weight;
            "queue_unready_tasks", "Tasks that the jobs of a queue which are not ready lack to their minimums", queue_unready_tasks;
            "queue_pod_groups", "PodGroups of a queue by phase", queue_groups;
            "queue_info", "1 for each queue, with the queue above it and its state: Open, Closing, Closed", queue_info;
            "queue_evictions", "Pods of a queue that were evicted, by reason: preempt, reclaim, stale-gang", queue_evictions;
            "watch_synced", "1 if the complete list of a kind was received, otherwise 0", watch_synced;
            "watch_last_message_timestamp_seconds", "When the API server last sent anything about a kind, in seconds since 1970", watch_last_message;
            "watch_events", "Watch events, including listed objects", watch_events;
            "watch_failures", "Failures of a watch, which is retried automatically", watch_failures;
            "malformed_objects", "Malformed objects that were skipped", malformed_objects;
            "effects_queued", "Writes that wait to be sent", effects_queued;
            "effects_in_flight", "Writes in flight, including bindings that wait for their claims or devices", effects_in_flight;
            "bindings_waiting_for_claims", "Bindings that wait until their claims are bound or their devices ready", bindings_waiting_for_claims;
            "events_dropped", "Events that were dropped because too many waited", events_dropped;
            "audit_lines_lost", "Lines of the audit log that could not be written, or not in time", audit_lines_lost;
            "writes", "Writes by result: done, gone, conflict, refused, forbidden, failed", writes;
            "write_retries", "Retries of writes", write_retries;
            "pods_placed", "Pods bound", pods_placed;
            "decisions_unconfirmed", "Answered decisions that the watch did not show within 30 s, so that the pod was read", decisions_unconfirmed;
            "device_conflicts", "Devices that two claims were seen to hold, which another scheduler may cause", device_conflicts;
            "leader", "1 if this replica is the leader, otherwise 0", leader;
            "config_valid", "1 if the current configuration file is in use, 0 if it was rejected", config_valid;
            "config_reloads", "Reloads of the configuration file by result: done, refused", config_reloads;
            "task_failures", "Background tasks that panicked or returned unexpectedly", task_failures;
        }
        let mut seconds = |name, help, metric: Histograms<_>| {
            registry.register_with_unit(name, help, Unit::Seconds, metric);
        };
        seconds(
            "cycle_phase",
            "Duration of a phase of a cycle: fold, decide, report, dispatch",
            self.cycle_phases.clone(),
        );
        registry.register_with_unit(
            "pod_hop",
            "Duration of a part of the way of a pod that the first cycle binds: wait, snapshot, decide, queue",
            Unit::Seconds,
            self.pod_hops.clone(),
        );
        let registry = &mut *registry;
        registry.register_with_unit(
            "queue_job_wait",
            "Time that a job of a queue waited for its start",
            Unit::Seconds,
            self.queue_job_wait.clone(),
        );
        registry.register_with_unit(
            "watch_lag",
            "Time from the answer to a binding until the watch shows it",
            Unit::Seconds,
            self.watch_lag.clone(),
        );
        registry.register_with_unit(
            "write_latency",
            "Time from sending a write to its answer",
            Unit::Seconds,
            self.write_latency.clone(),
        );
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Build information", build);
    }

    /// Records how long a phase of a cycle took.
    pub(crate) fn observe_phase(&self, phase: &'static str, duration: Duration) {
        self.cycle_phases.get_or_create(&Phase { phase }).observe(duration.as_secs_f64());
    }

    /// Records how long it took to reach a milestone of a cycle, if that is measured.
    pub(crate) fn observe_milestone(&self, milestone: Milestone<'_>, duration: Duration) {
        let micros = duration.as_secs_f64() * 1e6;
        match milestone {
            Milestone::PluginOpened(plugin) => {
                let plugin = Plugin { plugin, OnSession: "OnSessionOpen" };
                self.plugin_latency.get_or_create(&plugin).observe(micros);
            }
            Milestone::Acted(action) => {
                self.action_latency.get_or_create(&Action { action }).observe(micros);
            }
            Milestone::Validated
            | Milestone::Opened
            | Milestone::Decided(_)
            | Milestone::Closed => {}
        }
    }

    /// Records how many objects a snapshot has.
    pub(crate) fn observe_sizes(&self, cluster: &Cluster) {
        for (kind, n_objects) in [
            ("nodes", cluster.nodes.facts.len()),
            ("queues", cluster.queues.facts.len()),
            ("jobs", cluster.jobs.key.len()),
            ("tasks", cluster.tasks.facts.len()),
            ("task_classes", cluster.classes.template.len()),
            ("refused_tasks", refused_tasks(cluster)),
        ] {
            let n_objects = i64::try_from(n_objects).unwrap_or(i64::MAX);
            self.snapshot_objects.get_or_create(&Kind { kind }).set(n_objects);
        }
    }

    /// All metrics in OpenMetrics' text format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().expect("registering and encoding do not panic");
        encode(&mut text, &registry).expect("a text takes all");
        text
    }
}

/// The number of waiting tasks that are refused because their pods are too large.
// Parity: see docs/parity.md#j11.
fn refused_tasks(cluster: &Cluster) -> usize {
    let is_refused = |class: ClassIdx| cluster.classes.template[class].refused.is_some();
    if !cluster.classes.template.ids().any(is_refused) {
        return 0;
    }
    let tasks = cluster.tasks.class.iter();
    tasks.filter(|(task, class)| is_refused(**class) && cluster.is_waiting(*task)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_design() {
        let metrics = Metrics::new();
        metrics.writes.get_or_create(&Written { write: Write::Bind, result: "done" }).inc();
        metrics.unready_tasks.get_or_create(&Job { job_id: "ns/g".into() }).set(2);
        metrics.preemption_attempts.inc();
        let text = metrics.text();
        for line in [
            "kube_batch_writes_total{write=\"bind\",result=\"done\"} 1",
            "kube_batch_unschedule_task_count{job_id=\"ns/g\"} 2",
            "kube_batch_total_preemption_attempts 1",
            "# TYPE kube_batch_e2e_scheduling_latency_milliseconds histogram",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    /// One sample of every series.
    fn sampled() -> Metrics {
        let metrics = Metrics::new();
        // A metric that is not named here is an error: without a sample it would not show.
        let Metrics {
            registry: _,
            e2e_latency: _,
            plugin_latency,
            action_latency,
            task_latency: _,
            schedule_attempts,
            preemption_victims: _,
            preemption_attempts: _,
            unready_tasks,
            unready_jobs: _,
            job_retries,
            cycles,
            cycle_phases,
            pod_hops,
            snapshot_objects,
            queue_share,
            queue_fair_share,
            queue_deserved,
            queue_reserved,
            queue_guaranteed,
            queue_allocated,
            queue_requested,
            queue_pending,
            queue_capability,
            queue_weight,
            queue_unready_tasks,
            queue_groups,
            queue_info,
            queue_evictions,
            queue_job_wait,
            watch_synced,
            watch_last_message,
            watch_events,
            watch_failures,
            watch_lag: _,
            malformed_objects,
            effects_queued: _,
            effects_in_flight: _,
            bindings_waiting_for_claims: _,
            events_dropped: _,
            audit_lines_lost: _,
            writes,
            write_retries,
            write_latency,
            pods_placed: _,
            decisions_unconfirmed: _,
            device_conflicts: _,
            leader: _,
            config_valid: _,
            config_reloads,
            task_failures,
        } = &metrics;
        let queue = || "q".to_owned();
        let of = || QueueResource { queue: queue(), resource: "cpu".to_owned() };
        let plugin = Plugin { plugin: "drf", OnSession: "OnSessionOpen" };
        drop(plugin_latency.get_or_create(&plugin));
        drop(action_latency.get_or_create(&Action { action: "allocate" }));
        drop(cycle_phases.get_or_create(&Phase { phase: "fold" }));
        drop(pod_hops.get_or_create(&Hop { hop: "wait" }));
        drop(write_latency.get_or_create(&WriteKind { write: Write::Bind }));
        drop(write_retries.get_or_create(&WriteKind { write: Write::Bind }));
        drop(writes.get_or_create(&Written { write: Write::Bind, result: "done" }));
        drop(queue_share.get_or_create(&Queue { queue: queue() }));
        drop(queue_fair_share.get_or_create(&of()));
        drop(queue_deserved.get_or_create(&of()));
        drop(queue_reserved.get_or_create(&of()));
        drop(queue_guaranteed.get_or_create(&of()));
        drop(queue_allocated.get_or_create(&of()));
        drop(queue_requested.get_or_create(&of()));
        drop(queue_pending.get_or_create(&of()));
        drop(queue_capability.get_or_create(&of()));
        drop(queue_weight.get_or_create(&Queue { queue: queue() }));
        drop(queue_unready_tasks.get_or_create(&Queue { queue: queue() }));
        drop(queue_job_wait.get_or_create(&Queue { queue: queue() }));
        let evicted = QueueEvicted { queue: queue(), reason: "reclaim" };
        drop(queue_evictions.get_or_create(&evicted));
        drop(queue_groups.get_or_create(&QueuePhase { queue: queue(), phase: "Pending" }));
        let info = QueueInfo { queue: queue(), parent: queue(), state: "Open".to_owned() };
        drop(queue_info.get_or_create(&info));
        drop(snapshot_objects.get_or_create(&Kind { kind: "jobs" }));
        drop(watch_synced.get_or_create(&Kind { kind: "pods" }));
        drop(watch_last_message.get_or_create(&Kind { kind: "pods" }));
        drop(task_failures.get_or_create(&Task { task: "http" }));
        for family in [unready_tasks, job_retries] {
            drop(family.get_or_create(&Job { job_id: "ns/g".to_owned() }));
        }
        for family in [schedule_attempts, cycles, config_reloads] {
            drop(family.get_or_create(&Ended { result: "done" }));
        }
        for family in [watch_events, watch_failures, malformed_objects] {
            drop(family.get_or_create(&Kind { kind: "pods" }));
        }
        metrics
    }

    /// Name, type, labels and meaning of each metric, as Prometheus sees them.
    fn shown(text: &str) -> Vec<[String; 4]> {
        let mut shown: Vec<[String; 4]> = Vec::new();
        let mut help = "";
        for line in text.lines() {
            let mut words = line.splitn(4, ' ');
            match (words.next(), words.next(), words.next(), words.next()) {
                (Some("#"), Some("HELP"), Some(_), Some(text)) => help = text,
                (Some("#"), Some("TYPE"), Some(name), Some(type_)) => {
                    let (suffix, type_) = match type_ {
                        "counter" => ("_total", type_),
                        "info" => ("_info", "gauge"),
                        _ => ("", type_),
                    };
                    let meaning = help.trim_end_matches('.').to_owned();
                    shown.push([
                        format!("{name}{suffix}"),
                        type_.to_owned(),
                        String::new(),
                        meaning,
                    ]);
                }
                (Some(sample), ..) if !sample.starts_with('#') => {
                    let inside = line.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
                    let pairs = inside.map_or("", |(pairs, _)| pairs).split(',');
                    let names = pairs.filter_map(|pair| Some(pair.split_once('=')?.0));
                    let names: Vec<&str> = names.filter(|name| *name != "le").collect();
                    let last = shown.last_mut().expect("a sample follows its type");
                    last[2] = names.join(" ");
                }
                _ => {}
            }
        }
        shown.sort();
        shown
    }

    /// The metrics in the table of a Markdown file.
    fn documented(markdown: &str) -> Vec<[String; 4]> {
        let rows = markdown.lines().filter(|line| line.starts_with("| `kube_batch_"));
        let mut documented: Vec<[String; 4]> = rows
            .map(|row| {
                let cells: Vec<&str> = row.split('|').map(str::trim).collect();
                // Values stand in brackets behind their label.
                let labels = cells[3].split(['(', ')']).step_by(2).flat_map(|part| part.split('`'));
                let labels = labels.filter(|name| name.chars().any(char::is_alphabetic));
                let labels: Vec<&str> = labels.collect();
                let name = cells[1].trim_matches('`').to_owned();
                [name, cells[2].to_owned(), labels.join(" "), cells[5].to_owned()]
            })
            .collect();
        documented.sort();
        documented
    }

    #[test]
    fn documented_metrics_are_those_that_exist() {
        let shown = shown(&sampled().text());
        let documented = documented(include_str!("../../../docs/metrics.md"));
        let only = |some: &[[String; 4]], others: &[[String; 4]]| {
            let only = some.iter().filter(|row| !others.contains(row));
            only.map(|row| row.join(" | ")).collect::<Vec<_>>().join("\n")
        };
        let (missing, stale) = (only(&shown, &documented), only(&documented, &shown));
        assert!(
            missing.is_empty() && stale.is_empty(),
            "docs/metrics.md lacks\n{missing}\nand has\n{stale}"
        );
    }
}
