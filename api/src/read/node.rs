//! Nodes and namespaces.

use k8s_openapi::api::core::v1::{Namespace, Node, NodeSpec, NodeStatus};
use kube_batch_model::{
    facts::{
        FactError,
        node::{NamespaceFacts, NodeConditions, NodeFacts, Taint},
    },
    name::Name,
    resource::ResourceList,
    selector::Labels,
};

use super::{
    amounts::amounts,
    metadata::{created, object_key},
    template::normalized_image,
};
use crate::naming::QUEUE_IN_METADATA;

/// Reads a node.
///
/// # Errors
///
/// [`FactError`] if it has no name or an amount that cannot be read: skip it.
pub fn node(node: &Node) -> Result<NodeFacts, FactError> {
    let key = object_key("Node", &node.metadata)?;
    let object = || format!("Node {}", key.name);
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let allocatable = allocatable.map_or(Ok(ResourceList::default()), |map| {
        amounts(map).map_err(|error| FactError::amount(object(), "status.allocatable", &error))
    })?;
    Ok(NodeFacts {
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

/// Reads a namespace.
///
/// # Errors
///
/// [`FactError`] if it has no name: skip it.
pub fn namespace(namespace: &Namespace) -> Result<NamespaceFacts, FactError> {
    let key = object_key("Namespace", &namespace.metadata)?;
    Ok(NamespaceFacts {
        name: key.name,
        labels: Labels::from_map(namespace.metadata.labels.as_ref()),
        queue: QUEUE_IN_METADATA.read(&namespace.metadata, None).map(Name::from),
    })
}
