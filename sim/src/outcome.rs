//! The result of a simulation as data: the contract of `kube-batch simulate -o json`.
//!
//! Pods and groups are named `namespace/name`; amounts are Kubernetes quantities. The JSON schema is
//! generated from these types.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use kube_batch_framework::report::{Cycle, JobReport, Phase, QueueReport};
use kube_batch_model::{
    column::Dim,
    decision::Decision,
    facts::{node::Taint, pod::TaskFacts},
    name::{JobKey, Name, ObjectKey},
    resource::{Dimensions, ResourceList, ResourceVector, Unit, quantities},
    status::TaskStatus,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    device_outcome::{DevicesOutcome, devices_of_pod, devices_outcome},
    simulation::LastCycle,
    usage::UseOverTime,
    world::World,
};

/// The result of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Every cycle with a decision, and the last one.
    pub cycles: Vec<CycleOutcome>,
    /// Every job: PodGroups, and pods without a group by their controller.
    pub pod_groups: Vec<GroupOutcome>,
    /// Every queue.
    pub queues: Vec<QueueOutcome>,
    /// Every node.
    pub nodes: Vec<NodeOutcome>,
    /// Every pod for this scheduler.
    pub pods: Vec<PodOutcome>,
    /// The devices of each class on each node; a device can be of several classes.
    pub devices: Vec<DevicesOutcome>,
    /// All nodes together.
    pub cluster: ClusterOutcome,
    /// How long pods waited.
    pub waiting: WaitingOutcome,
    /// The virtual time at the end.
    pub time: String,
    /// Problems in the input, including objects that were ignored.
    pub warnings: Vec<String>,
}

/// All nodes together at the end, and the most that was used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOutcome {
    /// Allocatable resources.
    pub allocatable: BTreeMap<String, String>,
    /// Resources allocated to pods.
    pub used: BTreeMap<String, String>,
    /// The used fraction of each resource.
    pub utilization: BTreeMap<String, f64>,
    /// The most of each resource that was allocated to pods at one time.
    pub peak: BTreeMap<String, String>,
    /// The fraction of each resource that this is.
    pub peak_utilization: BTreeMap<String, f64>,
}

/// The most of each resource that was in use at one time.
#[derive(Clone, Debug, Default)]
pub struct Peak(ResourceList);

impl Peak {
    /// Takes into account what is in use now.
    pub fn record(&mut self, world: &World) {
        let cluster = world.snapshot().cluster;
        let used = cluster.nodes.used.total();
        let mut now = ResourceList::default();
        for dim in cluster.dimensions.ids() {
            now.set(cluster.dimensions.name(dim), used[dim]);
        }
        self.0.max(&now);
    }
}

/// Waiting times, from the creation of a pod to its binding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingOutcome {
    /// Number of pods that were bound.
    pub bound: usize,
    /// Seconds that the first of them waited, by waiting time.
    pub min_seconds: i64,
    /// Seconds that half of them waited at most.
    pub median_seconds: i64,
    /// Seconds that the last of them waited.
    pub max_seconds: i64,
    /// Number of pods that wait at the end.
    pub pending: usize,
    /// Seconds for which the oldest of them has waited.
    pub pending_max_seconds: i64,
}

/// The decisions of one cycle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct CycleOutcome {
    /// Its number, from 1.
    pub cycle: u64,
    /// Pods bound, in order.
    pub binds: Vec<PodPlacement>,
    /// Pods evicted, in order.
    pub evictions: Vec<EvictionOutcome>,
    /// Pods that were nominated for a node: its resources are still being released, or held until
    /// the whole gang fits.
    pub pipelined: Vec<PodPlacement>,
    /// Claims for devices that lost devices which could be used nowhere, `namespace/name`.
    pub deallocated: Vec<String>,
}

/// A pod and a node.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Placement")]
pub struct PodPlacement {
    /// The pod, `namespace/name`.
    pub pod: String,
    /// The node.
    pub node: String,
}

/// A pod evicted.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct EvictionOutcome {
    /// The pod, `namespace/name`.
    pub pod: String,
    /// The node it ran on.
    pub node: String,
    /// `preempt`, `reclaim` or `stale-gang`.
    pub reason: String,
    /// The group that gets the resources, `namespace/name`; of a stale gang, the gang itself.
    #[serde(rename = "for")]
    pub for_: String,
}

/// A job at the end.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupOutcome {
    /// `namespace/name` of the PodGroup; of the controller, or the pod, where there is no group.
    pub pod_group: String,
    /// Whether there is a PodGroup of that name.
    pub has_pod_group: bool,
    /// Its queue; absent if that does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// `Pending`, `Running`, `Unknown` or `Completed`; `Failed` for a Job that has failed in the
    /// simulation, and whose pods are gone.
    pub phase: String,
    /// Number of pods that must start together.
    pub min_member: u32,
    /// Number of pods.
    pub total: u32,
    /// Running pods.
    pub running: u32,
    /// Pods that have a node and do not run yet.
    pub bound: u32,
    /// Pending pods.
    pub pending: u32,
    /// Succeeded pods.
    pub succeeded: u32,
    /// Failed pods.
    pub failed: u32,
    /// Why it is pending, or why its Job has failed, in one word: `NotEnoughResources`,
    /// `NotEnoughTasks`, `QueueNotFound`, `QueueCapability`, `BackoffLimitExceeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it, or some of its pods, are pending, or why its Job has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the oldest of its pending pods was created, or the group itself if it has no pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<String>,
    /// Seconds since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_seconds: Option<i64>,
}

/// A queue at the end.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueOutcome {
    /// Its name.
    pub queue: String,
    /// The queue above it; absent at the top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Whether it starts jobs: `Open`, `Closing` or `Closed`.
    pub state: String,
    /// Its weight.
    pub weight: u32,
    /// The higher is served before its siblings.
    pub priority: i32,
    /// What it would deserve if it and all leaves that have jobs requested all that there is.
    pub fair_share: BTreeMap<String, String>,
    /// Its hard limits; empty without any.
    pub capability: BTreeMap<String, String>,
    /// Its deserved resources.
    pub deserved: BTreeMap<String, String>,
    /// What of that is kept free for it.
    pub guaranteed: BTreeMap<String, String>,
    /// Resources allocated to its pods.
    pub allocated: BTreeMap<String, String>,
    /// That, and what its waiting pods request.
    pub requested: BTreeMap<String, String>,
    /// Why it starts no jobs; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inactive: Option<String>,
    /// What of promises cannot be kept; absent if all can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oversubscribed: Option<String>,
    /// What is kept for a job that has waited long; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationOutcome>,
    /// The largest fraction of a deserved resource that is allocated.
    pub share: f64,
    /// Pending PodGroups.
    pub pending: u32,
    /// Running PodGroups.
    pub running: u32,
    /// PodGroups with fewer running pods than the minimum.
    pub unknown: u32,
    /// PodGroups all of whose pods have finished.
    pub completed: u32,
    /// How long its pods waited that were bound, without those of queues below it.
    pub waits: QueueWaits,
    /// Number of its pods that were evicted, without those of queues below it.
    pub evictions: u32,
    /// What its pods used over time, in hours of a unit of each resource; of memory, of a GiB. Empty of a queue with others
    /// below it.
    pub hours: BTreeMap<String, f64>,
}

/// How long the pods of a queue waited, from their creation to their binding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueWaits {
    /// Number of pods that were bound.
    pub pods: usize,
    /// Seconds that half of them waited at most.
    pub p50_seconds: i64,
    /// Seconds that 95 of 100 waited at most.
    pub p95_seconds: i64,
    /// Seconds that the last of them waited.
    pub longest_seconds: i64,
}

/// What is kept for a job that has waited long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReservationOutcome {
    /// The job.
    pub job: String,
    /// Since when it has waited.
    pub since: String,
    /// When all of it is free at the latest; absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The reserved nodes.
    pub nodes: Vec<String>,
    /// What is reserved.
    pub reserved: BTreeMap<String, String>,
}

/// A node at the end.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct NodeOutcome {
    /// Its name.
    pub node: String,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Its taints, as `key=value:effect`.
    pub taints: Vec<String>,
    /// Its allocatable resources.
    pub allocatable: BTreeMap<String, String>,
    /// Resources allocated to its pods.
    pub used: BTreeMap<String, String>,
    /// The largest used fraction of CPU, memory or an extended resource.
    pub utilization: f64,
}

/// A pod at the end.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodOutcome {
    /// `namespace/name`.
    pub pod: String,
    /// Its group, as in `podGroups`.
    pub pod_group: String,
    /// Its status: `Pending`, `Bound`, `Running`, `Releasing`, `Succeeded`, `Failed`,
    /// `Unknown`.
    pub status: String,
    /// Its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The node it is nominated for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nominated_node: Option<String>,
    /// The devices of its claims, `driver/pool/device`.
    pub devices: Vec<String>,
    /// When it was created.
    pub created: String,
    /// When it was bound; absent if that was not in the simulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// Why it is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl CycleOutcome {
    /// The decisions of a cycle.
    pub fn of(number: u64, cycle: &Cycle) -> Self {
        let mut outcome = Self { cycle: number, ..Self::default() };
        let placement = |pod: &ObjectKey, node: &str| PodPlacement {
            pod: pod.to_string(),
            node: node.to_owned(),
        };
        for decision in &cycle.decisions {
            match decision {
                Decision::Bind { pod, node, .. } => outcome.binds.push(placement(&pod.key, node)),
                Decision::Nominate { pod, node, .. } => {
                    outcome.pipelined.push(placement(&pod.key, node));
                }
                // Shown by the absent `nominatedNode` of the pod.
                Decision::Withdraw { .. } => {}
                Decision::Deallocate { claim, .. } => outcome.deallocated.push(claim.to_string()),
                Decision::Evict { pod, node, cause } => {
                    outcome.evictions.push(EvictionOutcome {
                        pod: pod.key.to_string(),
                        node: node.to_string(),
                        reason: cause.reason().to_string(),
                        for_: cause.job().job.to_string(),
                    });
                }
            }
        }
        outcome
    }

    /// Whether it decided nothing.
    pub const fn is_idle(&self) -> bool {
        self.binds.is_empty()
            && self.evictions.is_empty()
            && self.pipelined.is_empty()
            && self.deallocated.is_empty()
    }
}

impl Outcome {
    /// The state of a simulated cluster and the decisions so far.
    pub fn of(
        cycles: Vec<CycleOutcome>,
        world: &World,
        last: Option<&LastCycle>,
        mut peak: Peak,
        warnings: Vec<String>,
    ) -> Self {
        let cycle = last.map(|last| &last.cycle);
        let jobs = cycle.into_iter().flat_map(|cycle| cycle.jobs.iter());
        let queues = cycle.into_iter().flat_map(|cycle| &cycle.queues);
        peak.record(world);
        let counts = pods_of_jobs(world);
        let counts_of = |job: &JobReport| counts.get(&job.key).copied().unwrap_or_default();
        let mut pod_groups: Vec<GroupOutcome> =
            jobs.map(|job| group(job, counts_of(job), world)).collect();
        add_failed_jobs(&mut pod_groups, world);
        Self {
            cycles,
            pod_groups,
            queues: queues.map(queue).collect(),
            nodes: nodes(world),
            devices: devices_outcome(world),
            pods: pods(world),
            cluster: cluster(world, &peak),
            waiting: waiting(world),
            time: world.now().to_string(),
            warnings,
        }
    }
}

impl Outcome {
    /// With what queues used over time, how long their pods waited, and how many were evicted.
    #[must_use]
    pub fn with_usage(mut self, usage: &UseOverTime) -> Self {
        for queue in &mut self.queues {
            let name = Name::from(&*queue.queue);
            queue.hours = usage.hours(&name);
            let Some(record) = usage.queues.get(&name) else { continue };
            queue.evictions = record.n_evicted;
            queue.waits = QueueWaits {
                pods: record.waits.len(),
                p50_seconds: record.wait_of(50),
                p95_seconds: record.wait_of(95),
                longest_seconds: record.wait_of(100),
            };
        }
        self
    }
}

fn cluster(world: &World, Peak(peak): &Peak) -> ClusterOutcome {
    let cluster = world.snapshot().cluster;
    let dimensions = &cluster.dimensions;
    let (allocatable, used) = (cluster.nodes.allocatable.total(), cluster.nodes.used.total());
    let peak = dimensions.vector(peak);
    let fraction = |of: &ResourceVector, dim| {
        let whole = allocatable[dim];
        if whole == 0 { 0.0 } else { of[dim] as f64 / whole as f64 }
    };
    let utilization = |of: &ResourceVector| {
        let of = counted(dimensions, &allocatable, of);
        let dims = dimensions.ids().filter(|dim| allocatable[*dim] > 0 || of[*dim] > 0);
        dims.map(|dim| (dimensions.name(dim).to_string(), fraction(&of, dim))).collect()
    };
    ClusterOutcome {
        allocatable: dimensions.display(&allocatable),
        used: dimensions.display(&counted(dimensions, &allocatable, &used)),
        utilization: utilization(&used),
        peak: dimensions.display(&counted(dimensions, &allocatable, &peak)),
        peak_utilization: utilization(&peak),
    }
}

/// Amounts in use, without the resources that are devices where they are used.
fn counted(dimensions: &Dimensions, allocatable: &[i64], used: &[i64]) -> ResourceVector {
    let is_counted = |dim: Dim| dimensions.is_counted(dim, allocatable[dim]);
    dimensions.ids().map(|dim| if is_counted(dim) { used[dim] } else { 0 }).collect()
}

fn waiting(world: &World) -> WaitingOutcome {
    let mut waits: Vec<i64> = world.waits.iter().map(SignedDuration::as_secs).collect();
    waits.sort_unstable();
    let at = |index: usize| waits.get(index).copied().unwrap_or(0);
    let pending: Vec<i64> = ours(world)
        .filter(|facts| facts.status == TaskStatus::Pending)
        .map(|facts| world.now().duration_since(facts.created).as_secs())
        .collect();
    WaitingOutcome {
        bound: waits.len(),
        min_seconds: at(0),
        // Of an even number, the lower one in the middle.
        median_seconds: at(waits.len().saturating_sub(1) / 2),
        max_seconds: at(waits.len().saturating_sub(1)),
        pending: pending.len(),
        pending_max_seconds: pending.into_iter().max().unwrap_or(0),
    }
}

/// The pods of the simulated scheduler.
fn ours(world: &World) -> impl Iterator<Item = &Arc<TaskFacts>> {
    world.pods().filter(|facts| world.options().scheduler_names.contains(&facts.scheduler))
}

/// When the oldest pending pod of a waiting job was created, else its PodGroup.
fn waiting_since(report: &JobReport, world: &World) -> Option<Timestamp> {
    let is_waiting = report.unschedulable.is_some() || !report.unplaced.is_empty();
    let pending = report.unplaced.iter().filter_map(|pod| world.store.pods.get(&pod.key));
    let oldest = pending.map(|facts| facts.created).min();
    oldest.or_else(|| Some(report.group.as_ref()?.created)).filter(|_| is_waiting)
}

/// Pods of a job, after the last cycle.
#[derive(Clone, Copy, Debug, Default)]
struct PodCounts {
    total: u32,
    running: u32,
    bound: u32,
    pending: u32,
    succeeded: u32,
    failed: u32,
}

/// The pods of each job. What a cycle reports is older than what it decided.
fn pods_of_jobs(world: &World) -> BTreeMap<JobKey, PodCounts> {
    let mut counts: BTreeMap<JobKey, PodCounts> = BTreeMap::new();
    for facts in ours(world) {
        let own = counts.entry(facts.job_key(world.store.served())).or_default();
        own.total += 1;
        match facts.status {
            TaskStatus::Running => own.running += 1,
            TaskStatus::Allocated | TaskStatus::Binding | TaskStatus::Bound => own.bound += 1,
            TaskStatus::Pending | TaskStatus::Pipelined => own.pending += 1,
            TaskStatus::Succeeded => own.succeeded += 1,
            TaskStatus::Failed => own.failed += 1,
            TaskStatus::Releasing | TaskStatus::Stuck | TaskStatus::Unknown => {}
        }
    }
    counts
}

fn group(report: &JobReport, counts: PodCounts, world: &World) -> GroupOutcome {
    let PodCounts { total, running, bound, pending, succeeded, failed } = counts;
    let since = waiting_since(report, world);
    let unplaced = report.unplaced_because.as_ref();
    let (reason, message) = match report.unschedulable_in_words() {
        Some((reason, words)) => (Some(reason.to_string()), Some(words.to_owned())),
        None => (None, unplaced.map(|why| why.words().to_owned())),
    };
    GroupOutcome {
        pod_group: report.key.to_string(),
        has_pod_group: matches!(report.key, JobKey::Group(..)) && report.group.is_some(),
        queue: report.queue.as_ref().map(ToString::to_string),
        phase: report.phase.to_string(),
        min_member: report.min_available,
        total,
        running,
        bound,
        pending,
        succeeded,
        failed,
        reason,
        message,
        waiting_since: since.as_ref().map(ToString::to_string),
        waiting_seconds: since.map(|since| world.now().duration_since(since).as_secs()),
    }
}

/// Adds Jobs that have failed, and what is known of it to those of which no pod is left.
fn add_failed_jobs(groups: &mut Vec<GroupOutcome>, world: &World) {
    let options = world.options();
    for (job, failure) in world.controllers.failed_jobs() {
        let name = job.job().to_string();
        let is_ours = job.scheduler().is_some_and(|own| options.scheduler_names.contains(own));
        if !is_ours {
            continue;
        }
        let reason = Some(failure.reason().to_owned());
        let message = Some(format!("Job {} failed: {}", job.key, failure.message()));
        if let Some(group) = groups.iter_mut().find(|group| group.pod_group == name) {
            if group.running + group.bound + group.pending == 0 {
                (group.reason, group.message) = (reason, message);
            }
            continue;
        }
        let queue = world.store.queue(&options.default_queue);
        groups.push(GroupOutcome {
            pod_group: name,
            has_pod_group: false,
            queue: queue.map(|queue| queue.name.to_string()),
            phase: "Failed".to_owned(),
            min_member: 1,
            total: 0,
            running: 0,
            bound: 0,
            pending: 0,
            succeeded: 0,
            failed: 0,
            reason,
            message,
            waiting_since: None,
            waiting_seconds: None,
        });
    }
}

fn queue(report: &QueueReport) -> QueueOutcome {
    let groups = |phase| report.groups.get(&phase).copied().unwrap_or(0);
    QueueOutcome {
        queue: report.queue.name.to_string(),
        parent: report.queue.parent.as_ref().map(ToString::to_string),
        state: report.state.to_string(),
        weight: report.queue.weight,
        priority: report.queue.priority,
        fair_share: quantities(&report.fair_share),
        capability: report
            .queue
            .capability
            .iter()
            .map(|(name, amount)| (name.to_string(), Unit::of(name).display(amount)))
            .collect(),
        deserved: quantities(&report.deserved),
        guaranteed: quantities(&report.guaranteed),
        allocated: quantities(&report.allocated),
        requested: quantities(&report.requested()),
        inactive: report.inactive.as_ref().map(ToString::to_string),
        oversubscribed: report.oversubscribed.as_ref().map(ToString::to_string),
        reservation: report.reservation.as_ref().map(|own| ReservationOutcome {
            job: own.job.to_string(),
            since: own.since.to_string(),
            start: own.start.map(|start| start.to_string()),
            nodes: own.nodes.iter().map(ToString::to_string).collect(),
            reserved: quantities(&report.reserved),
        }),
        share: report.closing.as_ref().map_or(0.0, |shares| shares.share.as_f64()),
        pending: groups(Phase::Pending),
        running: groups(Phase::Running),
        unknown: groups(Phase::Unknown),
        completed: groups(Phase::Completed),
        waits: QueueWaits::default(),
        evictions: 0,
        hours: BTreeMap::new(),
    }
}

fn nodes(world: &World) -> Vec<NodeOutcome> {
    let cluster = world.snapshot().cluster;
    let dimensions = &cluster.dimensions;
    let utilization = |node| {
        let parts = dimensions.shared().map(|dim| {
            let whole = cluster.nodes.allocatable[node][dim];
            if whole == 0 { 0.0 } else { cluster.nodes.used[node][dim] as f64 / whole as f64 }
        });
        parts.fold(0.0, f64::max)
    };
    let ids = cluster.nodes.facts.ids();
    ids.map(|node| NodeOutcome {
        node: cluster.node_name(node).to_string(),
        ready: !cluster.nodes.facts[node].conditions.not_ready,
        unschedulable: cluster.nodes.facts[node].unschedulable,
        taints: cluster.nodes.facts[node].taints.iter().map(taint).collect(),
        allocatable: dimensions.display(&cluster.nodes.allocatable[node]),
        used: dimensions.display(&counted(
            dimensions,
            &cluster.nodes.allocatable[node],
            &cluster.nodes.used[node],
        )),
        utilization: utilization(node),
    })
    .collect()
}

/// A taint as kubectl writes it.
fn taint(taint: &Taint) -> String {
    let Taint { key, value, effect } = taint;
    if value.is_empty() { format!("{key}:{effect}") } else { format!("{key}={value}:{effect}") }
}

fn pods(world: &World) -> Vec<PodOutcome> {
    ours(world)
        .map(|facts| PodOutcome {
            devices: devices_of_pod(world, facts),
            pod: facts.key.to_string(),
            pod_group: world.group_of(&facts.key).to_string(),
            status: facts.status.to_string(),
            node: facts.node.as_ref().map(ToString::to_string),
            nominated_node: facts.nominated_node.as_ref().map(ToString::to_string),
            created: facts.created.to_string(),
            bound: world.bound_at(&facts.key).as_ref().map(ToString::to_string),
            message: facts
                .unscheduled
                .as_ref()
                .filter(|_| facts.status == TaskStatus::Pending)
                .map(|(_, message)| message.to_string()),
        })
        .collect()
}
