//! Composite PodGroups.

use std::sync::Arc;

use k8s_openapi::api::scheduling::v1alpha3::{
    CompositePodGroup, CompositePodGroupSchedulingPolicy,
};
use kube_batch_model::{
    facts::{FactError, composite::CompositeFacts, topology::TopologyFacts},
    name::Name,
};

use super::{group::positive, metadata::object_key};
use crate::naming::COMPOSITE;

/// Reads a composite PodGroup.
///
/// # Errors
///
/// [`FactError`] if it has no name, or its minimum is not positive: skip it.
pub fn composite(object: &CompositePodGroup) -> Result<CompositeFacts, FactError> {
    let (meta, spec) = (&object.metadata, &object.spec);
    let key = object_key("CompositePodGroup", meta)?;
    let min_groups = min_groups(&spec.scheduling_policy).map_err(|problem| {
        FactError::new(
            format!("CompositePodGroup {key}"),
            "spec.schedulingPolicy.gang.minGroupCount",
            problem,
        )
    })?;
    let constraints = spec.scheduling_constraints.as_ref();
    let constraint = constraints.and_then(|all| all.topology.as_deref()?.first());
    let required = |key: &String| Arc::new(TopologyFacts::required(Name::from(key.as_str())));
    Ok(CompositeFacts {
        key,
        min_groups,
        queue: COMPOSITE.queue.read(meta, None).map(Name::from),
        priority: spec.priority.unwrap_or(0),
        never_preempts: spec.preemption_policy.as_ref().map(|policy| policy == "Never"),
        leaves_whole: spec.disruption_mode.as_ref().is_some_and(|mode| mode.all.is_some()),
        topology: constraint.map(|constraint| required(&constraint.key)),
        parent: spec.parent_composite_pod_group_name.as_deref().map(Name::from),
    })
}

/// The minimum of a policy: 1 of a basic one.
fn min_groups(policy: &CompositePodGroupSchedulingPolicy) -> Result<u32, String> {
    match &policy.gang {
        None => Ok(1),
        Some(gang) => positive(gang.min_group_count),
    }
}
