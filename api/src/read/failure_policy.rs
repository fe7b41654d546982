//! `podFailurePolicy` of a Job: what the end of a pod means for it.
//!
//! The simulated Job controller counts by it, and the scheduler looks ahead with it.
//!
//! Source: `pkg/controller/job/pod_failure_policy.go` of Kubernetes 1.37.

use k8s_openapi::api::batch::v1::{PodFailurePolicy, PodFailurePolicyRule};

/// The exit code of containers that end by SIGTERM. Guessed: programs that handle the signal choose their own.
const EXIT_CODE: i32 = 143;

/// The `backoffLimit` that an API server sets.
pub const DEFAULT_BACKOFF_LIMIT: i32 = 6;

/// How a pod ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The scheduler evicted it; it has the condition `DisruptionTarget`.
    Evicted,
    /// Its deadline has passed, or it was deleted.
    Failed,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureAction {
    /// It counts as failed.
    Count,
    /// It does not count.
    Ignore,
    /// Its index fails.
    FailIndex,
    /// The Job fails.
    FailJob,
}

/// The first rule that matches decides.
#[derive(Clone, Debug, Default)]
pub struct FailurePolicy(Vec<PodFailurePolicyRule>);

impl FailurePolicy {
    /// The rules of a Job; none if it has no policy.
    pub fn new(policy: Option<&PodFailurePolicy>) -> Self {
        Self(policy.map(|policy| policy.rules.clone()).unwrap_or_default())
    }

    /// What the end of a pod means.
    pub fn action(&self, end: End) -> FailureAction {
        let rule = self.0.iter().find(|rule| matches(rule, end));
        match rule.map(|rule| &*rule.action) {
            Some("Ignore") => FailureAction::Ignore,
            Some("FailIndex") => FailureAction::FailIndex,
            Some("FailJob") => FailureAction::FailJob,
            Some(_) | None => FailureAction::Count,
        }
    }
}

fn matches(rule: &PodFailurePolicyRule, end: End) -> bool {
    let of_codes = rule.on_exit_codes.as_ref().is_some_and(|codes| {
        let is_in = codes.values.contains(&EXIT_CODE);
        is_in == (codes.operator != "NotIn")
    });
    let of_conditions = rule.on_pod_conditions.iter().flatten().any(|pattern| {
        let status = pattern.status.as_deref().unwrap_or("True");
        end == End::Evicted && pattern.type_ == "DisruptionTarget" && status == "True"
    });
    of_codes || of_conditions
}
