//! How other jobs and queues keep a job waiting: who uses the resources that it lacks, for whom idle ones are kept, and
//! which borrowed ones its queue cannot reclaim yet.
//!
//! It changes as others come and go, while the obstacle of the job stays the same, so it is not part of a result that is
//! remembered. It is only for messages: no decision reads it.
// Parity: new, see docs/parity.md#e10.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{decision::JobInQueue, name::Name};

/// How other jobs and queues keep a job waiting, and what else explains why nodes refuse it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Others {
    /// What one of its pods is short of.
    pub short: Option<Arc<Shortage>>,
    /// The nodes that a pod selects by their labels, if other nodes refuse it for that.
    pub selected: Option<SelectedNodes>,
    /// What it requests of devices, if nodes have none for it.
    pub devices: Option<WantedDevices>,
    /// The volume that it lacks, if volumes keep it from nodes.
    pub volume: Option<WantedVolume>,
    /// Nodes that have enough for it, which is kept for another job.
    pub kept: Option<KeptRoom>,
    /// What its queue uses of what the job is short of.
    pub queue: Option<Arc<QueueUse>>,
    /// How many jobs of its queue that wait too are older or have a higher priority.
    pub n_before: u32,
}

impl Others {
    /// Whether there is nothing to say of them.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The nodes that a pod selects by their labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SelectedNodes {
    /// What it requires of them, each as `key=value` or in the words of a selector, the first of them.
    pub requirements: Vec<Name>,
    /// One of them that no node meets.
    pub unmet: Option<Name>,
    /// How many nodes meet all.
    pub n_nodes: u32,
}

/// A request of a claim for devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WantedDevices {
    /// The name of the claim in the pod.
    pub claim: Name,
    /// The request.
    pub request: Name,
    /// The DeviceClass.
    pub class: Name,
    /// How many devices it needs, all on one node or reachable from it.
    pub n_wanted: u64,
    /// How many there are in the cluster.
    pub n_devices: u64,
    /// How many of them no claim has.
    pub n_idle: u64,
}

/// A claim for a volume that is not bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WantedVolume {
    /// The claim, in the namespace of the pod.
    pub claim: Name,
    /// Its StorageClass.
    pub storage_class: Option<Name>,
    /// Where its volume comes from.
    pub has: ClassOfVolume,
}

/// Where volumes of a StorageClass come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ClassOfVolume {
    /// The class does not exist.
    Missing,
    /// An administrator makes them.
    Static {
        /// How many PersistentVolumes of it are free.
        n_free: u32,
    },
    /// They are made when they are needed.
    Provisioned,
}

/// The resource that a pod is short of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shortage {
    /// The resource.
    pub resource: Name,
    /// What one pod requests of it.
    pub requested: i64,
    /// The node that has most of it free, of those that are large enough.
    pub closest: Option<ClosestNode>,
}

/// The node that comes closest to what a pod requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClosestNode {
    /// The node.
    pub node: Name,
    /// What is free of the resource.
    pub free: i64,
    /// What others use of it there.
    pub used: i64,
    /// The job that uses most of it; `None` for pods that this scheduler does not know as a job's.
    pub user: Option<JobInQueue>,
    /// How many other jobs use some.
    pub n_more: u32,
}

/// Nodes that have enough for a pod, which is kept for other jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptRoom {
    /// The first of them.
    pub node: Name,
    /// How many more there are.
    pub n_more: u32,
    /// The job for which the first is kept.
    pub holder: JobInQueue,
}

/// What a queue uses and deserves of a resource, and who uses more than they deserve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueUse {
    /// The queue.
    pub queue: Name,
    /// The resource.
    pub resource: Name,
    /// What the queue uses of it.
    pub used: i64,
    /// What it deserves of it.
    pub deserved: i64,
    /// If it uses less than that, the queue that uses most above what that deserves.
    pub borrower: Option<Borrower>,
}

/// A queue that uses more than it deserves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Borrower {
    /// The queue.
    pub queue: Name,
    /// How much more.
    pub excess: i64,
    /// How many other queues use more than they deserve.
    pub n_more: usize,
    /// What keeps that from being taken back.
    pub kept_by: Vec<Protection>,
}

/// What keeps resources from being taken back from a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Protection {
    /// The configuration has no action that reclaims.
    NoReclaim,
    /// This queue says that nothing is reclaimed from it.
    NotReclaimable {
        /// The queue.
        queue: Name,
    },
    /// This much is being released already.
    Leaving {
        /// How much.
        amount: i64,
    },
    /// Pods have not run for as long as their queue lets them.
    MinRuntime {
        /// How much they use.
        amount: i64,
        /// When the first of them has.
        first_end: Timestamp,
    },
    /// Pods started from a reservation.
    Reservation {
        /// How much they use.
        amount: i64,
        /// Until when the first of them is protected.
        first_end: Timestamp,
    },
    /// Disruption budgets allow no eviction.
    Budget {
        /// How much those pods use.
        amount: i64,
    },
}
