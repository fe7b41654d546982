//! Composite PodGroups of Kubernetes, `scheduling.k8s.io/v1alpha3`: groups of PodGroups, and of further
//! composite ones, that start together.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{fact::Fact, size::Bounds, topology::TopologyFacts};
use crate::name::{Name, ObjectKey};

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

impl Fact for CompositeFacts {
    const BOUNDS: Bounds = Bounds::USERS;
}
