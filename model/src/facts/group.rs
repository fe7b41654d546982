//! PodGroups.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    device::claim::ClaimEntry, fact::Fact, metadata::Metadata, size::Bounds,
    topology::TopologyFacts,
};
use crate::{
    group_version::GroupVersion,
    name::{Name, ObjectKey},
    object_status::PodGroupStatus,
    resource::ResourceList,
    text::{MAX_MESSAGE, cut},
};

/// A role of a job, such as its workers, with its minimum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleFacts {
    /// Its name.
    pub name: Name,
    /// Minimum number of its pods that start together with those of the other roles.
    pub min: u32,
}

/// The fields of a PodGroup that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupFacts {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Name,
    /// The API group it lives in.
    pub version: GroupVersion,
    /// Creation time.
    pub created: Timestamp,
    /// How many members must be placeable together; 0 is always ready.
    pub min_member: u32,
    /// The queue it names; `None` means the default queue.
    pub queue: Option<Name>,
    /// The PriorityClass it names.
    pub priority_class: Option<Name>,
    /// Its priority, if the API server has resolved it; its PriorityClass is then not looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Whether its `preemptionPolicy` is `Never`; `None` if it has none, and its pods decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub never_preempts: Option<bool>,
    /// Whether its pods are victims only together.
    #[serde(default, skip_serializing_if = "is_false")]
    pub leaves_whole: bool,
    /// The minimum of each role; their sum is at most `min_member`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleFacts>,
    /// The topology it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Arc<TopologyFacts>>,
    /// The least that its pods will request together; used while they do not exist.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub min_resources: ResourceList,
    /// The claims for devices that its pods share, where pods have the same entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimEntry>,
    /// The composite group that it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Name>,
    /// The labels and annotations that plugins read.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub metadata: Arc<Metadata>,
    /// The version in which its status was stored; a write of the status says that it follows on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<Name>,
    /// The status as stored.
    pub status: PodGroupStatus,
}

impl Fact for GroupFacts {
    const BOUNDS: Bounds = Bounds::USERS;

    fn concerns_only_its_job(&self) -> bool {
        true
    }

    fn decides_like(&self, other: &Self) -> bool {
        let Self { status, resource_version, .. } = self;
        let (status, resource_version) = (status.clone(), resource_version.clone());
        *self == Self { status, resource_version, ..other.clone() }
    }
}

impl GroupFacts {
    /// These facts, with messages of conditions of at most [`MAX_MESSAGE`] bytes: another controller may write longer
    /// ones, and that is no reason not to read the object.
    #[must_use]
    pub fn with_short_messages(mut self) -> Self {
        for condition in &mut self.status.conditions {
            condition.message.truncate(cut(&condition.message, MAX_MESSAGE).len());
        }
        self
    }

    /// Sets the roles of its pods. They have no minimums of their own if its minimum, which is set before, is
    /// less than their sum: controllers write the number of all pods of a role there, also for a job that
    /// starts with fewer, and for one whose roles start one after another.
    // Parity: see docs/parity.md#k6.
    pub fn set_roles(&mut self, roles: Vec<RoleFacts>) {
        let sum = roles.iter().fold(0_u32, |sum, role| sum.saturating_add(role.min));
        self.roles = if self.min_member < sum { Vec::new() } else { roles };
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_empty(metadata: &Arc<Metadata>) -> bool {
    metadata.is_empty()
}
