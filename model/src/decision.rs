//! What a cycle decides: plain data, by uid and name.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    devices::ExtendedClaim,
    facts::device::{
        DeviceId,
        claim::{Allocation, Consumer},
    },
    name::{JobKey, Name, ObjectKey},
};

/// A pod, as decisions name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodRef {
    /// Its uid: a pod of the same name created later is another pod.
    pub uid: Name,
    /// Namespace and name.
    pub key: ObjectKey,
}

/// The volume chosen for a claim when its pod is bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimChoice {
    /// The claim.
    pub claim: ObjectKey,
    /// The volume; `None` if the provisioner is to create one.
    pub volume: Option<Name>,
    /// The node for which it is created: that of the first pod that uses the claim. `None` is the node of this pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_for: Option<Name>,
}

impl ClaimChoice {
    /// The node for which the provisioner is to create a volume, for a pod on this node.
    pub fn node<'a>(&'a self, of_pod: &'a Name) -> &'a Name {
        self.made_for.as_ref().unwrap_or(of_pod)
    }
}

/// What is written to a claim for devices before its pod is bound: who uses it, and its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceChoice {
    /// The claim.
    pub claim: ObjectKey,
    /// The devices that it is given; `None` if it has some already.
    pub allocation: Option<Allocation>,
    /// What it is created with, if it is for the extended resources of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<Arc<ExtendedClaim>>,
    /// The PodGroup that is recorded as one that uses it, instead of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Consumer>,
}

impl DeviceChoice {
    /// Who is recorded as one that uses the claim, for this pod.
    pub fn consumer(&self, pod: &PodRef) -> Consumer {
        self.group.clone().unwrap_or_else(|| Consumer::pod(&pod.key.name, &pod.uid))
    }
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Bind a pod to a node.
    Bind {
        /// The pod.
        pod: PodRef,
        /// The node.
        node: Name,
        /// The queue of its job, for which it counts from now on.
        queue: Name,
        /// How many pods of its job start together.
        minimum: u32,
        /// The volumes chosen for its claims that were not bound yet.
        claims: Vec<ClaimChoice>,
        /// What is written to its claims for devices, in their order.
        devices: Vec<DeviceChoice>,
        /// Until when it may not be reclaimed, because its job starts from a reservation.
        protected_until: Option<Timestamp>,
    },
    /// Delete a running pod, so that others get its resources.
    Evict {
        /// The victim.
        pod: PodRef,
        /// The node it runs on.
        node: Name,
        /// Why.
        cause: EvictionCause,
    },
    /// Nominate a pod for a node on which it cannot start yet, because resources are still being
    /// released or because other tasks of its job wait.
    Nominate {
        /// The pod.
        pod: PodRef,
        /// The node.
        node: Name,
        /// The devices that were chosen for those of its claims that have none.
        devices: Arc<[DeviceId]>,
    },
    /// Withdraw an earlier nomination.
    Withdraw {
        /// The pod.
        pod: PodRef,
    },
    /// Take the devices from a claim of a waiting pod that can be used nowhere, so that it gets others.
    Deallocate {
        /// The pod.
        pod: PodRef,
        /// The claim, which has no other users.
        claim: ObjectKey,
    },
}

impl Decision {
    /// Whether it is a write of its own. Nominations are part of the status of their pods.
    pub const fn is_write(&self) -> bool {
        match self {
            Self::Bind { .. } | Self::Evict { .. } | Self::Deallocate { .. } => true,
            Self::Nominate { .. } | Self::Withdraw { .. } => false,
        }
    }

    /// The pod that it is about.
    pub const fn pod(&self) -> &PodRef {
        match self {
            Self::Bind { pod, .. }
            | Self::Evict { pod, .. }
            | Self::Nominate { pod, .. }
            | Self::Withdraw { pod }
            | Self::Deallocate { pod, .. } => pod,
        }
    }
}

/// Why a pod is evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EvictionCause {
    /// For a job of higher priority in the same queue.
    Preempt(JobInQueue),
    /// For a queue that has less than it deserves.
    Reclaim(JobInQueue),
    /// Its own job, which this is, has had fewer pods than its minimum for too long. No other job is meant to get the
    /// resources.
    StaleGang(JobInQueue),
}

/// A job, and its queue, as those read of it who own another job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInQueue {
    /// The job.
    pub job: JobKey,
    /// Its queue.
    pub queue: Name,
    /// Whether their conditions and events name the job. The log and the audit log always do.
    // Parity: see docs/parity.md#e10.
    pub is_named: bool,
}

impl EvictionCause {
    /// The cause of evictions for this reason; `job` gets the resources, or is the stale gang.
    pub const fn new(reason: EvictReason, job: JobInQueue) -> Self {
        match reason {
            EvictReason::Preempt => Self::Preempt(job),
            EvictReason::Reclaim => Self::Reclaim(job),
            EvictReason::StaleGang => Self::StaleGang(job),
        }
    }

    /// The cause without the job.
    pub const fn reason(&self) -> EvictReason {
        match self {
            Self::Preempt(_) => EvictReason::Preempt,
            Self::Reclaim(_) => EvictReason::Reclaim,
            Self::StaleGang(_) => EvictReason::StaleGang,
        }
    }

    /// The job that gets the resources; `None` if the pod is evicted for no other job.
    pub const fn taker(&self) -> Option<&JobInQueue> {
        match self {
            Self::Preempt(job) | Self::Reclaim(job) => Some(job),
            Self::StaleGang(_) => None,
        }
    }

    /// The job that gets the resources, or else the stale gang.
    pub const fn job(&self) -> &JobInQueue {
        match self {
            Self::Preempt(job) | Self::Reclaim(job) | Self::StaleGang(job) => job,
        }
    }
}

/// Of which kind the cause of an eviction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EvictReason {
    /// For a job of higher priority in the same queue.
    Preempt,
    /// For a queue that has less than it deserves.
    Reclaim,
    /// Its job has had fewer than its minimum for too long.
    StaleGang,
}

impl EvictReason {
    /// All, in order.
    pub const ALL: [Self; 3] = [Self::Preempt, Self::Reclaim, Self::StaleGang];

    /// The name of the action that evicts for this reason; `stale-gang` if that is no action.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Preempt => "preempt",
            Self::Reclaim => "reclaim",
            Self::StaleGang => "stale-gang",
        }
    }
}

impl fmt::Display for EvictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
