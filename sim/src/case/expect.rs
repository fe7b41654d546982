//! What a case expects: only what is written is checked, and every key given must hold.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use serde::Deserialize;

/// Everything that must hold at one point of a case.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Expect {
    /// Each of these pods was bound, there.
    pub binds: BTreeMap<String, NodeChoice>,
    /// So many pods were bound.
    pub bind_count: Option<Count>,
    /// None of these pods was bound.
    pub not_scheduled: Vec<String>,
    /// All bound pods of each list of pods or groups share a node.
    pub same_node: Vec<Vec<String>>,
    /// Each of these pods was evicted.
    pub evicts: Vec<String>,
    /// So many pods were evicted.
    pub evict_count: Option<Count>,
    /// Every evicted pod is one of these.
    pub evicts_any_of: Option<Vec<String>>,
    /// None of these pods was evicted.
    pub evicts_not: Vec<String>,
    /// Each of these events was emitted.
    pub events: Vec<EventMatch>,
    /// None of these events was emitted.
    pub events_not: Vec<EventMatch>,
    /// Each of these pods is promised room, there.
    pub pipelined: BTreeMap<String, NodeChoice>,
    /// So many pods are promised room.
    pub pipelined_count: Option<Count>,
    /// Shares and counts of queues.
    pub queues: BTreeMap<String, QueueMatch>,
    /// Shares of jobs.
    pub jobs: BTreeMap<String, JobMatch>,
    /// Status of PodGroups.
    pub pod_groups: BTreeMap<String, GroupMatch>,
    /// Conditions of pods.
    pub pod_conditions: BTreeMap<String, ConditionMatch>,
    /// Pods there are, by group.
    pub pods: BTreeMap<String, PodsMatch>,
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
pub enum Quantity {
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

/// How many pods, in all or by what they belong to.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Count {
    /// In all.
    All(Quantity),
    /// By what they belong to.
    Of(CountOf),
}

/// How many pods, by what they belong to.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CountOf {
    /// In all.
    pub total: Option<Quantity>,
    /// By group.
    pub groups: BTreeMap<String, Quantity>,
    /// By queue.
    pub queues: BTreeMap<String, Quantity>,
    /// By node.
    pub nodes: BTreeMap<String, Quantity>,
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
    /// One word.
    pub reason: Option<String>,
    /// Part of the message.
    pub message_contains: Option<String>,
}

/// A queue: shares as the last cycle began, PodGroups by phase after it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueMatch {
    /// What it deserves.
    pub deserved: BTreeMap<String, ApiQuantity>,
    /// What it holds.
    pub allocated: BTreeMap<String, ApiQuantity>,
    /// What it holds or asks for.
    pub request: BTreeMap<String, ApiQuantity>,
    /// The largest part of what it deserves that it holds, within 1e-6.
    pub share: Option<f64>,
    /// Whether it gets no turn in the fair pass.
    pub overused: Option<bool>,
    /// PodGroups that wait.
    pub pending: Option<Quantity>,
    /// PodGroups that run.
    pub running: Option<Quantity>,
    /// PodGroups of which some run, fewer than the minimum.
    pub unknown: Option<Quantity>,
}

/// A job, as the last cycle began.
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
    /// Members that run.
    pub running: Option<Quantity>,
    /// Members that finished well.
    pub succeeded: Option<Quantity>,
    /// Members that failed.
    pub failed: Option<Quantity>,
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
    /// One word.
    pub reason: Option<String>,
    /// Part of the message.
    pub message_contains: Option<String>,
}

/// Pods that are there and not terminating.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PodsMatch {
    /// Those that run or have succeeded.
    pub running: Option<Quantity>,
    /// Those that wait or have not started.
    pub pending: Option<Quantity>,
    /// All.
    pub total: Option<Quantity>,
}
