//! Jobs of `batch`.

use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use kube_batch_model::{
    facts::{
        FactError,
        batch_job::{BatchJobFacts, BatchJobState, OnEviction},
        group_refs::{GroupRef, GroupRefs},
    },
    name::{Name, is_dns_subdomain},
};

use super::{
    failure_policy::{DEFAULT_BACKOFF_LIMIT, End, FailureAction, FailurePolicy},
    metadata::object_key,
};
use crate::membership::named_groups;

/// Reads a Job.
///
/// # Errors
///
/// [`FactError`] if it has no name: skip it.
pub fn batch_job(job: &Job) -> Result<BatchJobFacts, FactError> {
    let key = object_key("Job", &job.metadata)?;
    let (spec, status) = (job.spec.clone().unwrap_or_default(), job.status.clone());
    let status = status.unwrap_or_default();
    let only_failed = spec.pod_replacement_policy.as_deref() == Some("Failed");
    let n_failed = n_failed(&status);
    Ok(BatchJobFacts {
        uid: Name::from(job.metadata.uid.as_deref().unwrap_or_default()),
        groups: groups(&spec),
        on_eviction: on_eviction(&spec, n_failed),
        counts_ended_pods: only_failed || spec.pod_failure_policy.is_some(),
        state: state(&spec, &status, n_failed),
        key,
    })
}

/// The PodGroups that its pods will name. The reader of a pod reports names that are none.
fn groups(spec: &JobSpec) -> GroupRefs {
    let meta = spec.template.metadata.clone().unwrap_or_default();
    let named = named_groups(&meta, spec.template.spec.as_ref());
    let named = named.filter(|(_, name)| is_dns_subdomain(name));
    let group_ref = |(field, name): (&crate::membership::MemberField, &String)| GroupRef {
        join: field.version.join(),
        name: Name::from(name.as_str()),
        only_with: field.only_if_served.then_some(field.version),
    };
    named.map(group_ref).collect()
}

/// How many of its pods have failed, those included that the status lists until they are counted.
fn n_failed(status: &JobStatus) -> u32 {
    let uncounted = status.uncounted_terminated_pods.as_ref();
    let uncounted = uncounted.and_then(|pods| pods.failed.as_ref()).map_or(0, Vec::len);
    let counted = u32::try_from(status.failed.unwrap_or(0)).unwrap_or(0);
    counted.saturating_add(u32::try_from(uncounted).unwrap_or(u32::MAX))
}

fn on_eviction(spec: &JobSpec, n_failed: u32) -> OnEviction {
    let count = |limit: i32| match limit {
        // No limit, as API servers write it.
        i32::MAX => None,
        limit => Some(u32::try_from(limit).unwrap_or(0)),
    };
    match FailurePolicy::new(spec.pod_failure_policy.as_ref()).action(End::Evicted) {
        FailureAction::Ignore => return OnEviction::Survives,
        FailureAction::FailJob => return OnEviction::Counts { left: 0 },
        FailureAction::FailIndex => return OnEviction::CountsForIndex { limit: 0 },
        FailureAction::Count => {}
    }
    if let Some(limit) = spec.backoff_limit_per_index {
        return count(limit)
            .map_or(OnEviction::Survives, |limit| OnEviction::CountsForIndex { limit });
    }
    count(spec.backoff_limit.unwrap_or(DEFAULT_BACKOFF_LIMIT))
        .map_or(OnEviction::Survives, |limit| OnEviction::Counts {
            left: limit.saturating_sub(n_failed),
        })
}

fn state(spec: &JobSpec, status: &JobStatus, n_failed: u32) -> BatchJobState {
    let condition = |types: &[&str]| {
        let mut conditions = status.conditions.iter().flatten();
        conditions.find(|c| types.contains(&&*c.type_) && c.status == "True")
    };
    if let Some(failed) = condition(&["Failed", "FailureTarget"]) {
        let reason = Name::from(failed.reason.as_deref().unwrap_or_default());
        return BatchJobState::Failed { reason };
    }
    if condition(&["Complete", "SuccessCriteriaMet"]).is_some() {
        return BatchJobState::Complete;
    }
    match spec.suspend {
        Some(true) => BatchJobState::Suspended,
        _ => BatchJobState::Active { n_failed },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: Value, status: Value) -> BatchJobFacts {
        let mut job = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u"}});
        job["spec"] = spec;
        job["spec"]["template"] =
            json!({"metadata": {"annotations": {"scheduling.k8s.io/group-name": "gang"}}});
        job["status"] = status;
        batch_job(&serde_json::from_value(job).expect("a Job")).expect("it has a name")
    }

    fn on_eviction(spec: Value, status: Value) -> OnEviction {
        read(spec, status).on_eviction
    }

    #[test]
    fn a_limit_counts_what_has_failed_already() {
        let left = |left| OnEviction::Counts { left };
        assert_eq!(on_eviction(json!({}), json!({})), left(6));
        assert_eq!(on_eviction(json!({}), json!({"failed": 2})), left(4));
        let uncounted = json!({"failed": 2, "uncountedTerminatedPods": {"failed": ["x", "y"]}});
        assert_eq!(on_eviction(json!({"backoffLimit": 3}), uncounted), left(0));
        assert_eq!(on_eviction(json!({"backoffLimit": 0}), json!({"failed": 9})), left(0));
        let none = json!({"backoffLimit": 2_147_483_647});
        assert_eq!(on_eviction(none, json!({"failed": 9})), OnEviction::Survives);
        let of_index = json!({"backoffLimit": 2_147_483_647, "backoffLimitPerIndex": 1});
        assert_eq!(
            on_eviction(of_index, json!({"failed": 9})),
            OnEviction::CountsForIndex { limit: 1 }
        );
    }

    #[test]
    fn the_first_rule_that_matches_an_eviction_decides() {
        let rule = |action: &str| json!({"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
        let spec = |rules: Vec<Value>| json!({"podFailurePolicy": {"rules": rules}});
        let of = |rules| on_eviction(spec(rules), json!({"failed": 1}));
        assert_eq!(of(vec![rule("Ignore"), rule("FailJob")]), OnEviction::Survives);
        assert_eq!(of(vec![rule("FailJob"), rule("Ignore")]), OnEviction::Counts { left: 0 });
        assert_eq!(of(vec![rule("FailIndex")]), OnEviction::CountsForIndex { limit: 0 });
        assert_eq!(of(vec![rule("Count")]), OnEviction::Counts { left: 5 });
        let other =
            json!({"action": "Ignore", "onPodConditions": [{"type": "Other", "status": "True"}]});
        assert_eq!(of(vec![other]), OnEviction::Counts { left: 5 });
        // As the container of an evicted pod ends.
        let code = json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [143]}});
        assert_eq!(of(vec![code, rule("Ignore")]), OnEviction::Counts { left: 0 });
        assert!(read(spec(vec![rule("Count")]), json!({})).counts_ended_pods);
        assert!(read(json!({"podReplacementPolicy": "Failed"}), json!({})).counts_ended_pods);
        assert!(!read(json!({}), json!({})).counts_ended_pods);
    }

    #[test]
    fn a_job_that_creates_no_pods_says_why() {
        let condition = |type_: &str| json!({"conditions": [{"type": type_, "status": "True", "reason": "BackoffLimitExceeded"}]});
        let reason = Name::from("BackoffLimitExceeded");
        let failed = || BatchJobState::Failed { reason: reason.clone() };
        assert_eq!(read(json!({}), condition("Failed")).state, failed());
        assert_eq!(read(json!({}), condition("FailureTarget")).state, failed());
        assert_eq!(read(json!({}), condition("Complete")).state, BatchJobState::Complete);
        assert_eq!(read(json!({"suspend": true}), json!({})).state, BatchJobState::Suspended);
        let active = BatchJobState::Active { n_failed: 3 };
        assert_eq!(read(json!({"suspend": false}), json!({"failed": 3})).state, active);
    }

    #[test]
    fn it_knows_the_pod_group_of_its_pods() {
        let job = read(json!({}), json!({}));
        let served = kube_batch_model::group_version::ServedApis::default();
        let (_, group) = job.group(served).expect("a PodGroup");
        assert_eq!(group.to_string(), "ns/gang");
    }
}
