//! What pods request and use, and of which group they are.

use serde_json::Value;

use crate::server::{KUBERNETES_GROUPS, Key, Kind, PODS, Server};

/// The extended resource that the class of devices stands for.
pub(crate) const RESOURCE: &str = "example.com/gpu";
/// The annotation of pods with the name of their group.
pub(crate) const GROUP_ANNOTATION: &str = "scheduling.k8s.io/group-name";

/// Whether a pod has ended.
pub(crate) fn is_done(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// What pods use on a node.
pub(crate) fn used(server: &Server, node: &str, resource: &str) -> u64 {
    let pods = server.all(PODS).map(|(_, pod)| &**pod);
    let is_there = |pod: &&Value| pod["spec"]["nodeName"] == node && !is_done(pod);
    pods.filter(is_there).map(|pod| requested(pod, resource)).sum()
}

/// What a pod requests, in whole units.
pub(crate) fn requested(pod: &Value, resource: &str) -> u64 {
    if resource == "pods" {
        return 1;
    }
    let containers = pod["spec"]["containers"].as_array();
    let amounts = containers.into_iter().flatten();
    amounts.map(|container| number(&container["resources"]["requests"][resource])).sum()
}

pub(crate) fn number(amount: &Value) -> u64 {
    amount.as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether a pod is one of a group in its namespace.
pub(crate) fn is_member(kind: Kind, group: &str, pod: &Value) -> bool {
    if kind == KUBERNETES_GROUPS {
        return pod["spec"]["schedulingGroup"]["podGroupName"] == *group;
    }
    pod["metadata"]["annotations"][GROUP_ANNOTATION] == *group
}

/// The group of a pod, or the pod itself if it is in none.
pub(crate) fn job_of(key: &Key, pod: &Value) -> Key {
    let names = [
        &pod["metadata"]["annotations"][GROUP_ANNOTATION],
        &pod["spec"]["schedulingGroup"]["podGroupName"],
    ];
    let name = names.into_iter().find_map(Value::as_str).unwrap_or(&key.1);
    (key.0.clone(), name.to_owned())
}

/// Keys of the pods of a group.
pub(crate) fn members(server: &Server, kind: Kind, group: &Key) -> Vec<Key> {
    let pods = server.all(PODS).filter(|(_, pod)| is_member(kind, &group.1, pod));
    pods.map(|(key, _)| key.clone()).collect()
}
