//! Kubernetes' own PodGroups, `scheduling.k8s.io/v1beta1`.
//!
//! Controllers and autoscalers wait for the condition PodGroupInitiallyScheduled, so this scheduler writes it
//! as kube-scheduler does. While the gang cannot start, it is False with the reason Unschedulable; its message
//! begins with the numbers that kube-scheduler reports and ends with our own text. Once the gang has started,
//! it is True and never changes again. Unlike kube-scheduler, this scheduler also writes it when pods are
//! missing.
//!
//! Source: `pkg/scheduler/schedule_one_podgroup.go` and `plugins/gangscheduling` of Kubernetes 1.37.1.
// Parity: see docs/parity.md#k1.

use std::sync::Arc;

use k8s_openapi::{
    api::scheduling::v1beta1::{PodGroupSchedulingPolicy, PodGroupSpec},
    apimachinery::pkg::apis::meta::v1::Time,
};

use serde_json::{Value, json};

use super::{
    object::RawObject,
    spec::{Dialect, DialectSpec, Patch, no_queues},
    status::{Transition, texts},
};
use crate::{
    api_version::ApiVersion,
    crd::{PodGroupCondition, PodGroupStatus},
    facts::{
        FactError,
        device::claim::ClaimEntry,
        group::{GroupFacts, positive},
        metadata::MetadataPrefixes,
        queue::QueueFacts,
        topology::TopologyFacts,
    },
    job_report::JobReport,
    name::Name,
    naming::{Class, Naming, PRIORITY_CLASS, QUEUE_IN_METADATA},
    reason::JobProblem,
};

pub(super) const SPEC: DialectSpec = DialectSpec {
    groups: "podgroups.scheduling.k8s.io",
    queues: None,
    naming: Naming { queue: QUEUE_IN_METADATA, class: Class::Resolved(PRIORITY_CLASS) },
    patch: Patch::StatusByType,
    dialect: &Kubernetes,
};

/// The condition that reports whether a gang has started.
const INITIALLY_SCHEDULED: &str = "PodGroupInitiallyScheduled";
/// The reason of a gang that cannot start.
const UNSCHEDULABLE: &str = "Unschedulable";

struct Kubernetes;

impl Dialect for Kubernetes {
    fn read_group(
        &self,
        object: &RawObject,
        prefixes: &MetadataPrefixes,
    ) -> Result<GroupFacts, FactError> {
        let spec: PodGroupSpec = object.spec("PodGroup")?;
        let mut facts = GroupFacts::new(
            (ApiVersion::Kubernetes, SPEC.naming),
            (&object.metadata, &object.spec),
            prefixes,
        )?;
        facts.min_member = min_member(&spec.scheduling_policy).map_err(|problem| {
            FactError::new(
                format!("PodGroup {}", facts.key),
                "spec.schedulingPolicy.gang.minCount",
                problem,
            )
        })?;
        facts.priority = Some(spec.priority.unwrap_or(0));
        facts.never_preempts = spec.preemption_policy.map(|policy| policy == "Never");
        facts.leaves_whole = spec.disruption_mode.is_some_and(|mode| mode.all.is_some());
        let constraints = spec.scheduling_constraints.and_then(|all| all.topology);
        let key = constraints.into_iter().flatten().next().map(|constraint| constraint.key);
        let required = |key: String| Arc::new(TopologyFacts::required(Name::from(key)));
        facts.topology = key.map(required);
        facts.claims = ClaimEntry::of_group(spec.resource_claims.as_deref());
        facts.parent = spec.parent_composite_pod_group_name.map(Name::from);
        facts.status = object.status("PodGroup")?;
        Ok(facts)
    }

    fn read_queue(&self, object: &RawObject) -> Result<QueueFacts, FactError> {
        Err(no_queues(object))
    }

    fn next_status(
        &self,
        stored: &PodGroupStatus,
        report: &JobReport,
        at: Transition<'_>,
    ) -> PodGroupStatus {
        let mut next = stored.clone();
        let known = next.conditions.iter().find(|condition| condition.type_ == INITIALLY_SCHEDULED);
        if known.is_some_and(|condition| condition.status == "True") {
            return next;
        }
        if report.has_started {
            set(&mut next.conditions, ("True", "Scheduled", String::new()), at);
        } else if let Some((reason, message)) = report.unschedulable.as_ref().map(texts) {
            let (reason, message) = match reason {
                JobProblem::INCONSISTENT => (reason, message.to_owned()),
                _ => (UNSCHEDULABLE, not_satisfied(report, message)),
            };
            set(&mut next.conditions, ("False", reason, message), at);
        }
        next
    }

    fn reports(&self, status: &PodGroupStatus, _: &str, message: &str) -> bool {
        let mut conditions = status.conditions.iter();
        conditions.any(|own| own.type_ == INITIALLY_SCHEDULED && own.message.ends_with(message))
    }

    fn status_value(&self, status: &PodGroupStatus) -> Value {
        let mut conditions = status.conditions.iter();
        match conditions.find(|condition| condition.type_ == INITIALLY_SCHEDULED) {
            Some(condition) => {
                let mut value = json!(condition);
                // A strategic merge keeps the fields that a patch omits, so an empty message has to be sent.
                value["reason"] = json!(condition.reason);
                value["message"] = json!(condition.message);
                json!({"conditions": [value]})
            }
            None => json!({}),
        }
    }
}

/// The minimum of a policy: 1 of a basic group.
fn min_member(policy: &PodGroupSchedulingPolicy) -> Result<u32, String> {
    match &policy.gang {
        None => Ok(1),
        Some(gang) => positive(gang.min_count),
    }
}

/// Why a gang waits: the text of kube-scheduler, which programs may parse, and then our own.
fn not_satisfied(report: &JobReport, message: &str) -> String {
    let JobReport { min_available, n_fitting, n_remaining, .. } = report;
    format!(
        "minCount ({min_available}) cannot be satisfied: {n_fitting} scheduled, {n_remaining} \
         remaining, {message}"
    )
}

/// Sets the condition. As kube-scheduler does, the time changes only with the status.
fn set(
    conditions: &mut Vec<PodGroupCondition>,
    (status, reason, message): (&str, &str, String),
    at: Transition<'_>,
) {
    let known = conditions.iter().position(|condition| condition.type_ == INITIALLY_SCHEDULED);
    let known = known.unwrap_or_else(|| {
        let type_ = INITIALLY_SCHEDULED.to_owned();
        conditions.push(PodGroupCondition { type_, ..PodGroupCondition::default() });
        conditions.len() - 1
    });
    let condition = &mut conditions[known];
    if condition.status != status {
        condition.status = status.to_owned();
        condition.last_transition_time = Some(Time(at.now));
    }
    condition.reason = reason.to_owned();
    condition.message = message;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_message_is_written() {
        let mut status = PodGroupStatus::default();
        let at = Transition { cycle_id: "1", now: jiff::Timestamp::UNIX_EPOCH };
        set(&mut status.conditions, ("True", "Scheduled", String::new()), at);
        let written = json!({"conditions": [{
            "type": "PodGroupInitiallyScheduled",
            "status": "True",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
            "reason": "Scheduled",
            "message": "",
        }]});
        assert_eq!(Kubernetes.status_value(&status), written);
    }
}
