//! What the tries of all jobs depend on: see [`crate::job_input`].

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use kube_batch_model::{
    cluster::Cluster, column::JobIdx, name::JobKey, resource::ResourceVector, status::TaskStatus,
};
use serde::{Deserialize, Serialize};

use crate::plugin::QueueShares;

/// What the tries of all jobs depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClusterInput {
    /// See [`Memory::set_generation`].
    ///
    /// [`Memory::set_generation`]: crate::memory::Memory::set_generation
    pub(crate) generation: u64,
    /// The shares of the queues, without what the queues request.
    pub(crate) shares: Vec<Option<QueueShares>>,
    /// A hash of what decides which running tasks may be evicted; 0 if no action evicts any.
    pub(crate) protection: u64,
    /// When the next task may be evicted that may not be now.
    pub(crate) protected_until: Option<Timestamp>,
    /// When an answer of a plugin changes next although nothing in the cluster does.
    pub(crate) answers_until: Option<Timestamp>,
    /// A hash of the tasks that decisions of earlier cycles have moved, and of their nodes.
    pub(crate) in_flight: u64,
    /// A hash of what is reserved.
    pub(crate) reserved: u64,
    /// A hash of what is kept of the capability of queues.
    pub(crate) headroom: u64,
}

/// The shares without what the queues request. That changes whenever a pod arrives, and matters only by what the queues
/// deserve, and whether they are overused.
pub(crate) fn without_demand(shares: Vec<Option<QueueShares>>) -> Vec<Option<QueueShares>> {
    let nothing = || ResourceVector::zero(0);
    let without =
        |shares: QueueShares| QueueShares { request: nothing(), pending: nothing(), ..shares };
    shares.into_iter().map(|shares| shares.map(without)).collect()
}

/// A hash of the tasks that decisions of earlier cycles have moved, and of their nodes.
pub(crate) fn in_flight(cluster: &Cluster, active: &[JobIdx]) -> u64 {
    let mut hasher = DefaultHasher::new();
    // Only tasks that wait are nominated. Where that was renewed, they have their places already.
    let may_be_moved = |status| {
        matches!(
            status,
            TaskStatus::Binding
                | TaskStatus::Releasing
                | TaskStatus::Stuck
                | TaskStatus::Pending
                | TaskStatus::Allocated
                | TaskStatus::Pipelined
        )
    };
    // Nothing of the other jobs is in flight.
    for task in cluster.tasks_of_jobs(active.iter().copied(), may_be_moved) {
        let (placement, nominated) = (cluster.tasks.placement[task], cluster.tasks.nominated[task]);
        if placement.status != TaskStatus::Pending || nominated.is_some() {
            let node = placement.node.or(nominated);
            let node = node.map(|node| cluster.node_name(node));
            (&cluster.tasks.facts[task].uid, placement.status as u8, node).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// A hash of what decides which running tasks may be evicted: the minimum, priority, queue and roles of their
/// jobs, the metadata that plugins read, whether they leave only together, and what their Jobs of `batch` make of an
/// eviction. A single pod without a PodGroup is left out: these change only with the pod itself.
pub(crate) fn protection(cluster: &Cluster) -> u64 {
    let mut hasher = DefaultHasher::new();
    for job in cluster.jobs.key.ids() {
        let is_group = matches!(cluster.jobs.key[job], JobKey::Group(..));
        let may_change = is_group || cluster.jobs.tasks[job].len() > 1;
        if may_change && cluster.jobs.counts[job].ready() > 0 {
            let queue = cluster.jobs.queue[job].map(|queue| &cluster.queues.facts[queue].name);
            (&cluster.jobs.key[job], queue).hash(&mut hasher);
            (cluster.jobs.min_available[job], cluster.jobs.priority[job]).hash(&mut hasher);
            cluster.jobs.leaves_whole[job].hash(&mut hasher);
            let roles = cluster.jobs.group[job].iter().flat_map(|group| &group.roles);
            roles.for_each(|role| (&role.name, role.min).hash(&mut hasher));
            let metadata = cluster.jobs.group[job].iter().map(|group| &group.metadata);
            metadata.filter(|own| !own.is_empty()).for_each(|own| own.hash(&mut hasher));
            let above = cluster.jobs.composites[job].iter().flat_map(|above| above.iter());
            above.for_each(|composite| composite.key.hash(&mut hasher));
        }
        if cluster.jobs.counts[job].ready() > 0 {
            for own in &cluster.jobs.batch[job] {
                (&own.uid, own.on_eviction, own.counts_ended_pods).hash(&mut hasher);
            }
        }
    }
    hasher.finish()
}
