//! Nodes and namespaces.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, NodeSpec, NodeStatus};
use serde::{Deserialize, Serialize};

use super::{FactError, class::normalized_image, created, object_key};
use crate::{name::Name, naming::QUEUE_IN_METADATA, resource::ResourceList, selector::Labels};

/// The fields of a node that the scheduler uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Its name.
    pub name: Name,
    /// Creation time.
    pub created: Timestamp,
    /// Labels.
    pub labels: Labels,
    /// `spec.unschedulable`: cordoned.
    pub unschedulable: bool,
    /// Taints.
    pub taints: Vec<Taint>,
    /// `status.allocatable`.
    pub allocatable: ResourceList,
    /// Conditions that can keep tasks away.
    pub conditions: NodeConditions,
    /// Images present: every name of each, and its size in bytes.
    pub images: Vec<(Name, i64)>,
}

/// A taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Taint {
    /// Its key.
    pub key: Name,
    /// Its value, empty if absent.
    pub value: Name,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: Name,
}

/// Node conditions; one that is absent is false, and an absent Ready is true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeConditions {
    /// Ready is there and not True.
    pub not_ready: bool,
    /// NetworkUnavailable is there and not False.
    pub network_unavailable: bool,
    /// MemoryPressure is True.
    pub memory_pressure: bool,
    /// DiskPressure is True.
    pub disk_pressure: bool,
    /// PIDPressure is True.
    pub pid_pressure: bool,
}

impl NodeFacts {
    /// Reads a node.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name or an amount that cannot be read: skip it.
    pub fn from_node(node: &Node) -> Result<Self, FactError> {
        let key = object_key("Node", &node.metadata)?;
        let object = || format!("Node {}", key.name);
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let allocatable = allocatable.map_or(Ok(ResourceList::default()), |map| {
            ResourceList::from_map(map)
                .map_err(|error| FactError::amount(object(), "status.allocatable", &error))
        })?;
        Ok(Self {
            created: created(&node.metadata),
            labels: Labels::from_map(node.metadata.labels.as_ref()),
            unschedulable: node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false),
            taints: node.spec.as_ref().map(taints).unwrap_or_default(),
            allocatable,
            conditions: node.status.as_ref().map(conditions).unwrap_or_default(),
            images: node.status.as_ref().map(images).unwrap_or_default(),
            name: key.name,
        })
    }

    /// Whether the node takes new tasks, according to its conditions and whether it is cordoned.
    pub fn is_usable(&self) -> bool {
        !self.unschedulable && !self.conditions.not_ready && !self.conditions.network_unavailable
    }
}

fn taints(spec: &NodeSpec) -> Vec<Taint> {
    spec.taints
        .iter()
        .flatten()
        .map(|taint| Taint {
            key: Name::from(taint.key.as_str()),
            value: Name::from(taint.value.as_deref().unwrap_or_default()),
            effect: Name::from(taint.effect.as_str()),
        })
        .collect()
}

fn conditions(status: &NodeStatus) -> NodeConditions {
    let mut found = NodeConditions::default();
    for condition in status.conditions.iter().flatten() {
        let is = |value: &str| condition.status == value;
        match condition.type_.as_str() {
            "Ready" => found.not_ready = !is("True"),
            "NetworkUnavailable" => found.network_unavailable = !is("False"),
            "MemoryPressure" => found.memory_pressure = is("True"),
            "DiskPressure" => found.disk_pressure = is("True"),
            "PIDPressure" => found.pid_pressure = is("True"),
            _ => {}
        }
    }
    found
}

fn images(status: &NodeStatus) -> Vec<(Name, i64)> {
    let all = status.images.iter().flatten();
    all.flat_map(|image| {
        let size = image.size_bytes.unwrap_or(0).max(0);
        image.names.iter().flatten().map(move |name| (normalized_image(name), size))
    })
    .collect()
}

/// The fields of a namespace that the scheduler uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceFacts {
    /// Its name.
    pub name: Name,
    /// Labels.
    pub labels: Labels,
    /// The queue of its jobs that name none.
    // Parity: new, see docs/parity.md#k4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Name>,
}

impl NamespaceFacts {
    /// Reads a namespace.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name: skip it.
    pub fn from_namespace(namespace: &Namespace) -> Result<Self, FactError> {
        let key = object_key("Namespace", &namespace.metadata)?;
        Ok(Self {
            name: key.name,
            labels: Labels::from_map(namespace.metadata.labels.as_ref()),
            queue: QUEUE_IN_METADATA.read(&namespace.metadata, None).map(Name::from),
        })
    }
}
