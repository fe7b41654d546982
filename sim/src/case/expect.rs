//! The expectations of a case: only given keys are checked, and each must be met.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use serde::Deserialize;

/// The expectations at one point of a case.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Expect {
    /// Pods that were bound, with their nodes.
    pub binds: BTreeMap<String, NodeChoice>,
    /// Number of pods that were bound.
    pub bind_count: Option<Count>,
    /// Pods that were not bound.
    pub not_scheduled: Vec<String>,
    /// All bound pods of each list of pods or groups share a node.
    pub same_node: Vec<Vec<String>>,
    /// Pods that were evicted.
    pub evicts: Vec<String>,
    /// Number of pods that were evicted.
    pub evict_count: Option<Count>,
    /// The only pods that may have been evicted.
    pub evicts_any_of: Option<Vec<String>>,
    /// Pods that were not evicted.
    pub evicts_not: Vec<String>,
    /// Events that were emitted.
    pub events: Vec<EventMatch>,
    /// Events that were not emitted.
    pub events_not: Vec<EventMatch>,
    /// Pods that are nominated for a node.
    pub pipelined: BTreeMap<String, NodeChoice>,
    /// Number of pods that are nominated for a node.
    pub pipelined_count: Option<Count>,
    /// Shares and counts of queues.
    pub queues: BTreeMap<String, QueueMatch>,
    /// Shares of jobs.
    pub jobs: BTreeMap<String, JobMatch>,
    /// Status of PodGroups.
    pub pod_groups: BTreeMap<String, GroupMatch>,
    /// Conditions of pods.
    pub pod_conditions: BTreeMap<String, ConditionMatch>,
    /// Number of existing pods, by group.
    pub pods: BTreeMap<String, PodsMatch>,
    /// Devices of claims, each as driver, pool and name.
    pub devices: BTreeMap<String, Vec<String>>,
}

/// A node, one of several, or `*` for any.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum NodeChoice {
    /// This node, or any if it is `*`.
    One(String),
    /// One of these.
    Any(Vec<String>),
}

/// A number, exactly or between bounds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum ExpectedNumber {
    /// Exactly this.
    Exactly(i64),
    /// Between bounds.
    Between(Range),
}

/// Bounds; either may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// At least this.
    pub min: Option<i64>,
    /// At most this.
    pub max: Option<i64>,
}

/// A number of pods, in total or by group, queue and node.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Count {
    /// In total.
    All(ExpectedNumber),
    /// By group, queue and node.
    Of(CountOf),
}

/// Numbers of pods by group, queue and node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CountOf {
    /// In total.
    pub total: Option<ExpectedNumber>,
    /// By group.
    pub groups: BTreeMap<String, ExpectedNumber>,
    /// By queue.
    pub queues: BTreeMap<String, ExpectedNumber>,
    /// By node.
    pub nodes: BTreeMap<String, ExpectedNumber>,
}

/// An event; absent keys match anything.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct EventMatch {
    /// `Kind ns/name`.
    pub object: Option<String>,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// The reason, one word.
    pub reason: Option<String>,
    /// Part of the message.
    pub message_contains: Option<String>,
}

/// A queue: shares at the start of the last cycle, PodGroups by phase after it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueMatch {
    /// Its deserved resources.
    pub deserved: BTreeMap<String, ApiQuantity>,
    /// What is kept free for it.
    pub guaranteed: BTreeMap<String, ApiQuantity>,
    /// Its allocated resources.
    pub allocated: BTreeMap<String, ApiQuantity>,
    /// Its allocated and requested resources.
    pub request: BTreeMap<String, ApiQuantity>,
    /// The largest fraction of a deserved resource that is allocated, within 1e-6.
    pub share: Option<f64>,
    /// Whether it is overused.
    pub overused: Option<bool>,
    /// Number of pending PodGroups.
    pub pending: Option<ExpectedNumber>,
    /// Number of running PodGroups.
    pub running: Option<ExpectedNumber>,
    /// Number of PodGroups with fewer running pods than the minimum.
    pub unknown: Option<ExpectedNumber>,
    /// `Open`, `Closing` or `Closed`.
    pub state: Option<String>,
    /// Each matches one of the conditions of its status.
    pub conditions: Vec<ConditionMatch>,
}

/// A job at the start of the last cycle.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobMatch {
    /// Its dominant share, within 1e-6.
    pub share: f64,
}

/// The status of a PodGroup.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupMatch {
    /// Its phase.
    pub phase: Option<String>,
    /// Running pods.
    pub running: Option<ExpectedNumber>,
    /// Succeeded pods.
    pub succeeded: Option<ExpectedNumber>,
    /// Failed pods.
    pub failed: Option<ExpectedNumber>,
    /// Each matches one of its conditions.
    pub conditions: Vec<ConditionMatch>,
}

/// A condition; absent keys match anything. Status `absent`: no such condition is True.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ConditionMatch {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// True, False, Unknown or absent.
    pub status: Option<String>,
    /// The reason, one word.
    pub reason: Option<String>,
    /// Part of the message.
    pub message_contains: Option<String>,
}

/// Existing pods that are not terminating.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PodsMatch {
    /// Running or succeeded.
    pub running: Option<ExpectedNumber>,
    /// Pending or not started.
    pub pending: Option<ExpectedNumber>,
    /// All of them.
    pub total: Option<ExpectedNumber>,
}
