//! Queues.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::fact::Fact;
use crate::{
    group_version::GroupVersion, name::Name, object_status::QueueStatus, resource::ResourceList,
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
    /// How long its pods and gangs run before they may be evicted; zero if `spec.minRuntime` is absent.
    // Parity: new, see docs/parity.md#p12.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub min_runtime: Duration,
    /// Fields of its spec that have no effect here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_honoured: Vec<Name>,
    /// The version in which its status was stored; a write of the status says that it follows on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<Name>,
    /// The status as stored.
    pub status: QueueStatus,
}

impl Fact for QueueFacts {
    fn decides_like(&self, other: &Self) -> bool {
        let Self { status, resource_version, .. } = self;
        let (status, resource_version) = (status.clone(), resource_version.clone());
        *self == Self { status, resource_version, ..other.clone() }
    }
}
