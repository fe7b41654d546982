//! Nodes that exist only as API objects.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{cluster::ControlPlane, error::Result};

/// Nodes that differ only in name and zone.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// Prefix of their names: `node-00000`, `node-00001` and so on.
    pub prefix: String,
    /// Number of nodes.
    pub n: usize,
    /// CPU of each, as a quantity.
    pub cpu: String,
    /// Memory of each, as a quantity.
    pub memory: String,
    /// Maximum number of pods on each.
    pub n_pods: u32,
    /// Number of zones, which are assigned in turn: `zone-0`, `zone-1` and so on.
    pub n_zones: usize,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            prefix: "node".to_owned(),
            n: 1,
            cpu: "16".to_owned(),
            memory: "64Gi".to_owned(),
            n_pods: 110,
            n_zones: 3,
        }
    }
}

impl Nodes {
    /// The name of the node in this row.
    pub fn name(&self, row: usize) -> String {
        format!("{}-{row:05}", self.prefix)
    }

    /// The object of the node in this row. It is ready from the start, so that it can be used even
    /// if no kubelet is simulated.
    pub fn manifest(&self, row: usize) -> Value {
        let name = self.name(row);
        let resources =
            json!({"cpu": self.cpu, "memory": self.memory, "pods": self.n_pods.to_string()});
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "topology.kubernetes.io/zone": format!("zone-{}", row % self.n_zones.max(1)),
                },
            },
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": [
                    condition("Ready", "True", "KubeletReady"),
                    condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                    condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                    condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                ],
            },
        })
    }
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    // Without the time of a heartbeat the node lifecycle controller takes the node for an earlier one of the same name,
    // whose last heartbeat may be too long ago, and calls it unreachable.
    let heartbeat = Timestamp::now().to_string();
    json!({"type": kind, "status": status, "reason": reason, "lastHeartbeatTime": heartbeat})
}

impl ControlPlane {
    /// Creates nodes.
    ///
    /// # Errors
    ///
    /// [`Error::Kubectl`](crate::Error::Kubectl) if the API server rejects one, for example because it exists already.
    pub fn create_nodes(&self, nodes: &Nodes) -> Result<()> {
        let manifests: Vec<Value> = (0..nodes.n).map(|row| nodes.manifest(row)).collect();
        self.create(&manifests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_assigned_to_zones_in_turn_and_named_in_order() {
        let nodes = Nodes { n: 12_000, n_zones: 2, ..Nodes::default() };
        assert!(nodes.name(2) < nodes.name(11_999));
        assert_eq!(
            nodes.manifest(3)["metadata"]["labels"]["topology.kubernetes.io/zone"],
            "zone-1"
        );
    }
}
