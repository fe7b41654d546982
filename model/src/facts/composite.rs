//! Composite PodGroups of Kubernetes, `scheduling.k8s.io/v1alpha3`: groups of PodGroups, and of further
//! composite ones, that start together.

use std::sync::Arc;

use k8s_openapi::api::scheduling::v1alpha3::{
    CompositePodGroup, CompositePodGroupSchedulingPolicy,
};
use serde::{Deserialize, Serialize};

use super::{FactError, group::positive, object_key, topology::TopologyFacts};
use crate::{
    name::{Name, ObjectKey},
    naming::COMPOSITE,
};

/// The fields of a composite PodGroup that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompositeFacts {
    /// Namespace and name.
    pub key: ObjectKey,
    /// How many of its groups start together.
    pub min_groups: u32,
    /// The queue it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Name>,
    /// Its priority: the API server has resolved its PriorityClass.
    pub priority: i32,
    /// Whether its `preemptionPolicy` is `Never`; `None` if it has none, and the pods decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub never_preempts: Option<bool>,
    /// Whether all pods below it are victims only together.
    pub leaves_whole: bool,
    /// The topology it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Arc<TopologyFacts>>,
    /// The composite PodGroup that it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Name>,
}

impl CompositeFacts {
    /// Reads a composite PodGroup.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name, or its minimum is not positive: skip it.
    pub fn from_composite(object: &CompositePodGroup) -> Result<Self, FactError> {
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
        Ok(Self {
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
}

/// The minimum of a policy: 1 of a basic one.
fn min_groups(policy: &CompositePodGroupSchedulingPolicy) -> Result<u32, String> {
    match &policy.gang {
        None => Ok(1),
        Some(gang) => positive(gang.min_group_count),
    }
}
