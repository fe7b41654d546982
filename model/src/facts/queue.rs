//! Queues.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::fact::Fact;
use crate::{
    group_version::GroupVersion, name::Name, object_status::QueueStatus, resource::ResourceList,
    selector::LabelSelector,
};

/// The fields of a queue that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueFacts {
    /// Its name.
    pub name: Name,
    /// Its uid.
    pub uid: Name,
    /// The API group it lives in.
    pub version: GroupVersion,
    /// Creation time.
    pub created: Timestamp,
    /// Its weight; 0 where the object has none.
    // Parity: kept, see docs/parity.md#d3.
    pub weight: u32,
    /// Hard limits by resource.
    pub capability: ResourceList,
    /// The queue above it; `None` at the top.
    // Parity: new, see docs/parity.md#q1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Name>,
    /// Whether it stands for the top of the tree, as `root` of Volcano, and is no queue.
    // Parity: new, see docs/parity.md#q16.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_top: bool,
    /// What it gets before weights count. A resource that is not named is what its children are entitled to.
    // Parity: new, see docs/parity.md#q3.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub deserved: ResourceList,
    /// What is kept free for it.
    // Parity: new, see docs/parity.md#q4.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub guarantee: ResourceList,
    /// Its place among its siblings: the higher goes first.
    // Parity: new, see docs/parity.md#q8.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Whether queues outside it may not take back what its tasks hold.
    // Parity: new, see docs/parity.md#q9.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_reclaimable: bool,
    /// Whether it starts nothing.
    // Parity: new, see docs/parity.md#q10.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    /// How many jobs below it may hold resources at the same time.
    // Parity: new, see docs/parity.md#q11.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running_jobs: Option<u32>,
    /// The order of its jobs.
    // Parity: new, see docs/parity.md#q12.
    #[serde(default, skip_serializing_if = "QueueOrder::is_default")]
    pub order: QueueOrder,
    /// The namespaces whose jobs may use it; `None` for all.
    // Parity: new, see docs/parity.md#q13.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// How long its pods and gangs run before they may be evicted; `None` is that of its parent.
    // Parity: new, see docs/parity.md#p12 and docs/parity.md#q14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_runtime: Option<Duration>,
    /// How often its spec has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Fields of its spec that have no effect here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_honoured: Vec<Name>,
    /// The version in which its status was stored; a write of the status says that it follows on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<Name>,
    /// The status as stored.
    pub status: QueueStatus,
}

/// Whether a queue starts jobs.
// Parity: new, see docs/parity.md#q10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueState {
    /// It does.
    Open,
    /// It does not, and pods still run.
    Closing,
    /// It does not, and none runs.
    Closed,
}

impl fmt::Display for QueueState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Closing => "Closing",
            Self::Closed => "Closed",
        })
    }
}

/// The order in which the jobs of a queue get turns.
// Parity: new, see docs/parity.md#q12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueOrder {
    /// As the plugins say.
    #[default]
    Priority,
    /// By priority, if that plugin is configured, then by age.
    Fifo,
    /// The same, and no job goes before one that lacks its minimum.
    StrictFifo,
}

impl QueueOrder {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl Fact for QueueFacts {
    fn decides_like(&self, other: &Self) -> bool {
        let Self { status, resource_version, generation, .. } = self;
        let (status, resource_version) = (status.clone(), resource_version.clone());
        *self == Self { status, resource_version, generation: *generation, ..other.clone() }
    }
}
