//! Kubernetes' own PodGroups, `scheduling.k8s.io/v1beta1`.
//!
//! What they say of priority, preemption, topology and claims counts for all of their pods. Of their status this
//! scheduler writes one condition, by its type, so that other controllers may write others.
//!
//! Source: `staging/src/k8s.io/api/scheduling/v1beta1/types.go` of Kubernetes 1.37.1.
// Parity: see docs/parity.md#k1.

use std::sync::Arc;

use k8s_openapi::api::scheduling::v1beta1::{PodGroupSchedulingPolicy, PodGroupSpec};
use serde_json::{Value, json};

use super::{
    object::RawObject,
    spec::{Dialect, DialectSpec, Patch, no_queues},
};
use crate::{
    naming::{Class, Naming, PRIORITY_CLASS, QUEUE_IN_METADATA},
    read::{
        device::claim::entries_of_group,
        group::{group, positive},
    },
};
use kube_batch_model::{
    dialect::INITIALLY_SCHEDULED,
    facts::{
        FactError, group::GroupFacts, metadata::MetadataPrefixes, queue::QueueFacts,
        topology::TopologyFacts,
    },
    group_version::GroupVersion,
    name::Name,
    object_status::PodGroupStatus,
};

pub(super) const SPEC: DialectSpec = DialectSpec {
    groups: "podgroups.scheduling.k8s.io",
    queues: None,
    naming: Naming { queue: QUEUE_IN_METADATA, class: Class::Resolved(PRIORITY_CLASS) },
    patch: Patch::StatusByType,
    dialect: &Kubernetes,
};

struct Kubernetes;

impl Dialect for Kubernetes {
    fn read_group(
        &self,
        object: &RawObject,
        prefixes: &MetadataPrefixes,
    ) -> Result<GroupFacts, FactError> {
        let spec: PodGroupSpec = object.spec("PodGroup")?;
        let mut facts = group(
            (GroupVersion::Kubernetes, SPEC.naming),
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
        facts.claims = entries_of_group(spec.resource_claims.as_deref());
        facts.parent = spec.parent_composite_pod_group_name.map(Name::from);
        facts.status = object.status("PodGroup")?;
        Ok(facts)
    }

    fn read_queue(&self, object: &RawObject) -> Result<QueueFacts, FactError> {
        Err(no_queues(object))
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

#[cfg(test)]
mod tests {
    use kube_batch_model::object_status::PodGroupCondition;

    use super::*;

    #[test]
    fn an_empty_message_is_written() {
        let mut status = PodGroupStatus::default();
        status.conditions.push(PodGroupCondition {
            type_: INITIALLY_SCHEDULED.to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(jiff::Timestamp::UNIX_EPOCH),
            reason: "Scheduled".to_owned(),
            ..PodGroupCondition::default()
        });
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
