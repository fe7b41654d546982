//! The case format: a scenario in a simulated cluster, and what must come of it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// One scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Case {
    pub name: String,
    #[serde(default)]
    pub area: Option<String>,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub rows: Vec<String>,
    #[serde(default)]
    pub source: Option<String>,
    #[serde(default)]
    pub options: Options,
    #[serde(default)]
    pub environment: EnvironmentSpec,
    #[serde(default)]
    pub config: Option<Value>,
    #[serde(default)]
    pub objects: Vec<Value>,
    #[serde(default)]
    pub cycles: Option<u32>,
    #[serde(default)]
    pub expect: Option<Expect>,
    #[serde(default)]
    pub steps: Option<Vec<Step>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Options {
    pub scheduler_name: Option<String>,
    pub default_queue: Option<String>,
    pub priority_class: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EnvironmentSpec {
    pub start_cycles: Option<u32>,
    pub termination_cycles: Option<u32>,
    pub kubelet: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Step {
    pub apply: Vec<Value>,
    pub update: Vec<Value>,
    pub delete: Vec<Target>,
    pub set_pod_phase: BTreeMap<String, String>,
    pub cycles: u32,
    pub eventually: Option<Eventually>,
    pub expect: Option<Expect>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    pub kind: String,
    #[serde(default)]
    pub namespace: Option<String>,
    pub name: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Eventually {
    pub max_cycles: u32,
    pub expect: Expect,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Expect {
    pub binds: BTreeMap<String, NodeChoice>,
    pub bind_count: Option<Count>,
    pub not_scheduled: Vec<String>,
    pub same_node: Vec<Vec<String>>,
    pub evicts: Vec<String>,
    pub evict_count: Option<Count>,
    pub evicts_any_of: Option<Vec<String>>,
    pub evicts_not: Vec<String>,
    pub events: Vec<EventMatch>,
    pub events_not: Vec<EventMatch>,
    pub pipelined: BTreeMap<String, NodeChoice>,
    pub pipelined_count: Option<Count>,
    pub queues: BTreeMap<String, QueueMatch>,
    pub jobs: BTreeMap<String, JobMatch>,
    pub pod_groups: BTreeMap<String, GroupMatch>,
    pub pod_conditions: BTreeMap<String, ConditionMatch>,
    pub pods: BTreeMap<String, PodsMatch>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum NodeChoice {
    One(String),
    Any(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Quantity {
    Exactly(i64),
    Between(Range),
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    pub min: Option<i64>,
    pub max: Option<i64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Count {
    Of(CountOf),
    All(Quantity),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CountOf {
    pub total: Option<Quantity>,
    pub groups: BTreeMap<String, Quantity>,
    pub queues: BTreeMap<String, Quantity>,
    pub nodes: BTreeMap<String, Quantity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct EventMatch {
    pub object: Option<String>,
    #[serde(rename = "type")]
    pub type_: Option<String>,
    pub reason: Option<String>,
    pub message_contains: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueMatch {
    pub deserved: BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
    pub allocated: BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
    pub request: BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
    pub share: Option<f64>,
    pub overused: Option<bool>,
    pub pending: Option<Quantity>,
    pub running: Option<Quantity>,
    pub unknown: Option<Quantity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobMatch {
    pub share: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupMatch {
    pub phase: Option<String>,
    pub running: Option<Quantity>,
    pub succeeded: Option<Quantity>,
    pub failed: Option<Quantity>,
    pub conditions: Vec<ConditionMatch>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ConditionMatch {
    #[serde(rename = "type")]
    pub type_: Option<String>,
    pub status: Option<String>,
    pub reason: Option<String>,
    pub message_contains: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PodsMatch {
    pub running: Option<Quantity>,
    pub pending: Option<Quantity>,
    pub total: Option<Quantity>,
}
