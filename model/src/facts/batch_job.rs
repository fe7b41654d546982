//! Jobs of `batch`: what becomes of one when its pods are evicted, and why one creates no pods.
//!
//! The Job controller counts an evicted pod as a failed one, and gives a Job up once too many of its pods have failed. So
//! which pods are evicted decides whether a Job survives.
// Parity: new, see docs/parity.md#p16.

use serde::{Deserialize, Serialize};

use super::{fact::Fact, group_refs::GroupRefs, size::Bounds};
use crate::{
    group_version::{Join, ServedApis},
    name::{Name, ObjectKey},
};

/// The fields of a Job that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchJobFacts {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid, by which pods name their controller.
    pub uid: Name,
    /// The PodGroups that its pods name.
    #[serde(default, skip_serializing_if = "GroupRefs::is_empty")]
    pub groups: GroupRefs,
    /// What it means for the Job that a pod is evicted.
    pub on_eviction: OnEviction,
    /// Whether a pod that is being terminated counts as failed only once it has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts_ended_pods: bool,
    /// Whether it creates pods.
    pub state: BatchJobState,
}

/// What it means for a Job that one of its pods is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum OnEviction {
    /// The Job goes on, however often.
    Survives,
    /// The pod counts as failed.
    Counts {
        /// With how many more of these the Job goes on.
        left: u32,
    },
    /// The pod counts as failed for its index, and an index that fails makes the Job fail once the others have ended.
    CountsForIndex {
        /// How many pods of an index may fail.
        limit: u32,
    },
}

/// Whether a Job creates pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum BatchJobState {
    /// It does.
    Active {
        /// How many of its pods have failed or were evicted, as far as they count.
        n_failed: u32,
    },
    /// `spec.suspend` is set.
    Suspended,
    /// It has completed.
    Complete,
    /// It has failed for good.
    Failed {
        /// The reason of its condition `Failed`: one word.
        reason: Name,
    },
}

impl BatchJobState {
    /// Whether it has failed for good.
    pub const fn has_failed(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }

    /// Whether it creates no pods any more.
    pub const fn has_ended(&self) -> bool {
        match self {
            Self::Complete | Self::Failed { .. } => true,
            Self::Active { .. } | Self::Suspended => false,
        }
    }
}

impl BatchJobFacts {
    /// The PodGroup that its pods are in.
    pub fn group(&self, served: ServedApis) -> Option<(Join, ObjectKey)> {
        let group = self.groups.first(served)?;
        let key = ObjectKey { namespace: self.key.namespace.clone(), name: group.name.clone() };
        Some((group.join, key))
    }
}

impl Fact for BatchJobFacts {
    const BOUNDS: Bounds = Bounds::USERS;

    /// Running pods depend on it: `ClusterInput::protection` in the framework has what does.
    fn concerns_only_its_job(&self) -> bool {
        true
    }
}
