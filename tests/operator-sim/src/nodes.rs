//! Whether nodes are ready.

use serde_json::{Value, json};

use crate::server::{Key, NODES, Server};

/// Sets the condition of a node, and the taint that Kubernetes derives from it.
pub(crate) fn set_ready(server: &mut Server, node: &Key, is_ready: bool) {
    server.change_object(NODES, node, |node| {
        let status = if is_ready { "True" } else { "False" };
        node["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
        let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        node["spec"]["taints"] = if is_ready { json!([]) } else { json!([taint]) };
    });
}

/// Whether a node is ready.
pub(crate) fn is_ready(node: &Value) -> bool {
    node["status"]["conditions"][0]["status"] == "True"
}
