//! Persistent volumes, claims, storage classes and what nodes can attach.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{ControllerRef, fact::Fact, pod::Interner, size::Bounds};
use crate::{
    name::{Name, ObjectKey},
    selector::{LabelSelector, Labels, NodeTerm},
};

/// The fields of a PersistentVolume that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeFacts {
    /// Its name.
    pub name: Name,
    /// Labels; zones and regions among them.
    pub labels: Labels,
    /// Bytes.
    pub capacity_bytes: i64,
    /// Access modes.
    pub access_modes: Vec<Name>,
    /// `Filesystem` or `Block`.
    pub volume_mode: Name,
    /// Storage class, empty if none.
    pub class: Name,
    /// Alternatives of the required node affinity; `None` without one.
    pub node_affinity: Option<Vec<NodeTerm>>,
    /// The claim it is reserved for, with the claim's uid if the binding names it.
    pub claim: Option<(ObjectKey, Option<Name>)>,
    /// Whether it can be bound: phase Available, Pending or absent.
    pub available: bool,
    /// The CSI driver and the driver's handle.
    pub csi: Option<(Name, Name)>,
}

impl Fact for VolumeFacts {}

/// The fields of a PersistentVolumeClaim that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimFacts {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Name,
    /// The pod that owns it, for generic ephemeral volumes.
    pub controller: Option<ControllerRef>,
    /// The volume it is bound to, or requests by name.
    pub volume: Option<Name>,
    /// Whether the binding is complete.
    pub bind_completed: bool,
    /// Phase Lost: the volume does not exist any more.
    pub lost: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Storage class; `None` where not even the default was filled in.
    pub class: Option<Name>,
    /// Requested bytes.
    pub request_bytes: i64,
    /// Requested access modes.
    pub access_modes: Vec<Name>,
    /// `Filesystem` or `Block`.
    pub volume_mode: Name,
    /// Volumes by label.
    pub selector: Option<LabelSelector>,
    /// The node a scheduler chose for it.
    pub selected_node: Option<Name>,
}

impl Fact for ClaimFacts {
    const BOUNDS: Bounds = Bounds::USERS;
}

/// The fields of a StorageClass that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageClassFacts {
    /// Its name.
    pub name: Name,
    /// The provisioner.
    pub provisioner: Name,
    /// Whether binding waits for a pod to be placed; `None` where the mode is not set.
    pub waits_for_consumer: Option<bool>,
    /// Where volumes can be made: alternatives, each a set of label requirements. Empty: anywhere.
    pub topologies: Vec<LabelSelector>,
}

impl Fact for StorageClassFacts {}

/// The fields of a CSINode that the scheduler uses: which drivers the node has, and how many volumes
/// of a driver it can attach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiNodeFacts {
    /// The node's name.
    pub name: Name,
    /// Limit by driver; a driver without a limit is not listed.
    pub limits: BTreeMap<Name, i64>,
    /// The drivers of the node.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub drivers: BTreeSet<Name>,
    /// The node labels by which each driver tells from where a volume can be reached; a driver without any is not
    /// listed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub topology_keys: BTreeMap<Name, Vec<Name>>,
}

impl Fact for CsiNodeFacts {}

/// The fields of a CSIDriver that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiDriverFacts {
    /// Its name.
    pub name: Name,
    /// `preventPodSchedulingIfMissing`: pods with its volumes go only to nodes that have the driver.
    pub is_required: bool,
}

impl Fact for CsiDriverFacts {}

impl ClaimFacts {
    /// Whether it has its volume.
    pub fn is_bound(&self) -> bool {
        self.bind_completed && self.volume.is_some()
    }
}

impl ClaimFacts {
    /// These facts, with the names that many claims have in common shared.
    #[must_use]
    pub fn shared(mut self, interner: &mut Interner) -> Self {
        let optional = [self.class.as_mut(), self.selected_node.as_mut()].into_iter().flatten();
        let names = [&mut self.key.namespace, &mut self.volume_mode].into_iter().chain(optional);
        names.chain(&mut self.access_modes).for_each(|name| interner.share(name));
        self
    }
}
