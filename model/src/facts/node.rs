//! Nodes and namespaces.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::fact::Fact;
use crate::{name::Name, resource::ResourceList, selector::Labels};

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

impl Fact for NodeFacts {}

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
    /// Whether the node takes new tasks, according to its conditions and whether it is cordoned.
    pub fn is_usable(&self) -> bool {
        !self.unschedulable && !self.conditions.not_ready && !self.conditions.network_unavailable
    }
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

impl Fact for NamespaceFacts {}
