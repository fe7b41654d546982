//! What a cycle decides: plain data, by uid and name.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::{JobKey, Name, ObjectKey};

/// A pod, as decisions name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// The volume; `None` if the provisioner is to create one for the node.
    pub volume: Option<Name>,
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
        /// The volumes chosen for its claims that were not bound yet.
        claims: Vec<ClaimChoice>,
    },
    /// Delete a running pod, so that others get its resources.
    Evict {
        /// The victim.
        pod: PodRef,
        /// The node it runs on.
        node: Name,
        /// Why.
        reason: EvictReason,
        /// The job that gets the resources; the job of the pod itself for [`EvictReason::StaleGang`].
        by: JobKey,
        /// The queue of that job.
        queue: Name,
    },
    /// Nominate a pod for a node on which it cannot start yet, because resources are still being
    /// released or because other tasks of its job wait.
    Nominate {
        /// The pod.
        pod: PodRef,
        /// The node.
        node: Name,
    },
    /// Withdraw an earlier nomination.
    Withdraw {
        /// The pod.
        pod: PodRef,
    },
}

impl Decision {
    /// The pod that it is about.
    pub const fn pod(&self) -> &PodRef {
        match self {
            Self::Bind { pod, .. }
            | Self::Evict { pod, .. }
            | Self::Nominate { pod, .. }
            | Self::Withdraw { pod } => pod,
        }
    }
}

/// Why a pod is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
