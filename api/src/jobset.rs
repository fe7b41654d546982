//! The JobSet of `jobset.x-k8s.io`, as far as its Jobs depend on it.
//!
//! The other fields are named, so that a misspelt one is reported, and not read.

use k8s_openapi::{
    api::batch::v1::JobTemplateSpec,
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
};
use serde::Deserialize;
use serde_json::Value;

/// A set of Jobs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct JobSet {
    /// Name, namespace and the like.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: JobSetSpec,
    /// What its controller has reported.
    pub status: JobSetStatus,
}

/// What a [`JobSet`] wants.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JobSetSpec {
    /// The Jobs.
    pub replicated_jobs: Vec<ReplicatedJob>,
    /// Whether its Jobs are suspended.
    pub suspend: Option<bool>,
    /// What follows if one of its Jobs fails; without it, the JobSet fails.
    pub failure_policy: Option<JobSetFailurePolicy>,
    coordinator: Value,
    managed_by: Value,
    network: Value,
    startup_policy: Value,
    success_policy: Value,
    ttl_seconds_after_finished: Value,
    volume_claim_policies: Value,
}

/// What follows if a Job fails.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JobSetFailurePolicy {
    /// How often all Jobs are created again before the JobSet fails, 0 by default.
    pub max_restarts: Option<i32>,
    /// The first rule that matches decides; if none does, the Jobs are created again.
    pub rules: Vec<JobSetFailureRule>,
    restart_strategy: Value,
}

/// What follows if certain Jobs fail for certain reasons.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JobSetFailureRule {
    /// `FailJobSet`, `RestartJobSet` or `RestartJobSetAndIgnoreMaxRestarts`.
    pub action: String,
    /// Reasons of the condition of the Job; empty for all.
    pub on_job_failure_reasons: Vec<String>,
    /// Names of the replicated Jobs; empty for all.
    pub target_replicated_jobs: Vec<String>,
    name: Value,
    on_job_failure_message_patterns: Value,
}

/// Jobs from one template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReplicatedJob {
    /// Part of the names of the Jobs.
    pub name: String,
    /// Number of Jobs, 1 by default.
    pub replicas: Option<i32>,
    /// The template.
    pub template: JobTemplateSpec,
    depends_on: Value,
    group_name: Value,
}

/// What the controller of a [`JobSet`] has reported.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JobSetStatus {
    /// `Completed` or `Failed`, among others.
    pub conditions: Vec<Condition>,
    individual_job_status: Value,
    previous_individual_job_status: Value,
    replicated_jobs_status: Value,
    restarts: Value,
    restarts_count_towards_max: Value,
    terminal_state: Value,
}

impl JobSet {
    /// Whether it has completed or failed.
    pub fn is_finished(&self) -> bool {
        let finished = |condition: &Condition| {
            ["Completed", "Failed"].contains(&&*condition.type_) && condition.status == "True"
        };
        self.status.conditions.iter().any(finished)
    }
}
