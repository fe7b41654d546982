//! Nodes that exist on paper.

use serde_json::{Value, json};

use crate::{cluster::ControlPlane, error::Result};

/// Nodes that are alike but for name and zone.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// What their names start with: `node-00000`, `node-00001` and so on.
    pub prefix: String,
    /// How many.
    pub n: usize,
    /// CPU of each, as a quantity.
    pub cpu: String,
    /// Memory of each, as a quantity.
    pub memory: String,
    /// How many pods each holds.
    pub n_pods: u32,
    /// How many zones they are dealt out to in turn: `zone-0`, `zone-1` and so on.
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
    /// The name of one of them.
    pub fn name(&self, row: usize) -> String {
        format!("{}-{row:05}", self.prefix)
    }

    /// Its object. It is born ready, so that it can be used at once whether or not somebody plays its kubelet.
    pub fn manifest(&self, row: usize) -> Value {
        let name = self.name(row);
        let resources =
            json!({"cpu": self.cpu, "memory": self.memory, "pods": self.n_pods.to_string()});
        let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason});
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

impl ControlPlane {
    /// Makes nodes.
    ///
    /// # Errors
    ///
    /// [`Error::Kubectl`](crate::Error::Kubectl) if one is refused, as one that is there already.
    pub fn create_nodes(&self, nodes: &Nodes) -> Result<()> {
        let manifests: Vec<Value> = (0..nodes.n).map(|row| nodes.manifest(row)).collect();
        self.create(&manifests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_dealt_out_to_zones_and_named_in_order() {
        let nodes = Nodes { n: 12_000, n_zones: 2, ..Nodes::default() };
        assert!(nodes.name(2) < nodes.name(11_999));
        assert_eq!(
            nodes.manifest(3)["metadata"]["labels"]["topology.kubernetes.io/zone"],
            "zone-1"
        );
    }
}
