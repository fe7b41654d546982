//! The status of PodGroups and queues, as it is stored.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{null::null_is_default, queue_condition::QueueCondition, seconds::in_seconds};

/// Condition type of a PodGroup that cannot start.
pub const UNSCHEDULABLE: &str = "Unschedulable";
/// Condition type of a PodGroup with a mistake that does not keep it from starting.
pub const MISCONFIGURED: &str = "Misconfigured";
/// The condition of a PodGroup whose gang was evicted as a whole for one of higher priority, and does not
/// run again yet.
pub const PREEMPTED: &str = "Preempted";
/// The condition of a PodGroup whose gang was evicted as a whole for a queue that has less than it deserves, and does
/// not run again yet.
pub const RECLAIMED: &str = "Reclaimed";
/// The reason of the conditions [`PREEMPTED`] and [`RECLAIMED`].
pub const GANG_EVICTED: &str = "GangEvicted";

/// What the scheduler last saw of a PodGroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupStatus {
    /// Pending: fewer than the minimum have a place. Running: at least the minimum have one.
    /// Unknown: some run, but the minimum cannot be reached. Completed: all pods have finished,
    /// or its Job was deleted.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The latest observations, one for each type.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PodGroupCondition>,
    /// Number of pods that count towards the minimum: those that have a node, and those that finished
    /// well.
    #[serde(deserialize_with = "null_is_default")]
    pub ready: i32,
    /// Number of pods that run.
    #[serde(deserialize_with = "null_is_default")]
    pub running: i32,
    /// Number of pods that finished well.
    #[serde(deserialize_with = "null_is_default")]
    pub succeeded: i32,
    /// Number of pods that failed.
    #[serde(deserialize_with = "null_is_default")]
    pub failed: i32,
}

/// One observation about a PodGroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupCondition {
    /// What is observed: Unschedulable, Misconfigured, Preempted or Reclaimed.
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub type_: String,
    /// True, False or Unknown.
    #[serde(deserialize_with = "null_is_default")]
    pub status: String,
    /// Id of the scheduling cycle that last changed the status.
    #[serde(
        rename = "transitionID",
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub transition_id: String,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "in_seconds")]
    pub last_transition_time: Option<Timestamp>,
    /// One word for programs, for instance NotEnoughResources, NeverFits, NotEnoughTasks,
    /// QueueNotFound, QueueCapability, QueueShare, NotTried, VolumeNotReady,
    /// PriorityClassNotFound or GangEvicted.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What is wrong, in a sentence.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What the scheduler last saw of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueStatus {
    /// `Open`, `Closing` while it is closed and pods of it run, then `Closed`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// How many queues name it as parent.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    pub children: i32,
    /// Number of its PodGroups, and of its gangs without one, in phase Unknown.
    #[serde(deserialize_with = "null_is_default")]
    pub unknown: i32,
    /// Number of its PodGroups, and of its gangs without one, in phase Pending.
    #[serde(deserialize_with = "null_is_default")]
    pub pending: i32,
    /// Number of its PodGroups, and of its gangs without one, in phase Running.
    #[serde(deserialize_with = "null_is_default")]
    pub running: i32,
    /// What its pods hold.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated: BTreeMap<String, String>,
    /// What its pods hold, and those that wait request.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub requested: BTreeMap<String, String>,
    /// What it deserves: its part of the cluster by weight, with what other queues do not request, but
    /// at most what its own pods request and its capability.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub deserved: BTreeMap<String, String>,
    /// What of that is kept free for it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub guaranteed: BTreeMap<String, String>,
    /// What it would deserve if it and all leaves that have jobs requested all that there is.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub fair_share: BTreeMap<String, String>,
    /// What is kept free for the job of the queue that has a reservation.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub reserved: BTreeMap<String, String>,
    /// The largest part of its deserved amount that is allocated, over all resources, as a
    /// decimal number.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub share: String,
    /// What is held of what is deserved, for people: `cpu 12/16, memory 40/64Gi`.
    #[serde(
        rename = "use",
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub usage: String,
    /// What else was seen.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<QueueCondition>,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}
