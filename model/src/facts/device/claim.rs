//! ResourceClaims: what they request, what they were given, and who uses it.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{DeviceId, OpaqueConfig, request::ClaimSpec, taint::DeviceToleration};
use crate::{
    facts::{fact::Fact, size::Bounds},
    name::{Name, ObjectKey},
    quantity::Quantity,
    selector::NodeTerm,
};

/// The finalizer that keeps an allocated claim, without which the claim controller never frees its devices.
pub const DELETE_PROTECTION: &str = "resource.kubernetes.io/delete-protection";

/// Annotation of the claims that a scheduler makes for extended resources.
pub const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

/// The fields of a ResourceClaim that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceClaimFacts {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    #[serde(default)]
    pub uid: Name,
    /// The uid of the object that controls it.
    #[serde(default)]
    pub controller: Option<Name>,
    /// Whether it is being deleted.
    #[serde(default)]
    pub deleting: bool,
    /// Whether it has the finalizer [`DELETE_PROTECTION`].
    #[serde(default)]
    pub is_protected: bool,
    /// The name of the pod for whose extended resources a scheduler made it.
    #[serde(default)]
    pub extended_for: Option<Name>,
    /// What it requests.
    #[serde(default)]
    pub spec: Arc<ClaimSpec>,
    /// What it was given.
    pub allocation: Option<Allocation>,
    /// Who uses it.
    #[serde(default)]
    pub reserved_for: Vec<Consumer>,
    /// The conditions that are true of its devices, besides those of the other devices.
    #[serde(default, with = "by_device")]
    pub conditions: BTreeMap<DeviceId, Vec<Name>>,
}

impl Fact for ResourceClaimFacts {
    const BOUNDS: Bounds = Bounds::WITH_PARAMETERS;

    /// A claim that was made for a pod, as long as it has no devices. Jobs whose pods name claims that were not made
    /// for them are tried in every cycle.
    fn concerns_only_its_job(&self) -> bool {
        self.allocation.is_none() && self.controller.is_some()
    }
}

/// Who uses a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Consumer {
    /// The API group, empty for pods.
    pub group: Name,
    /// The resource: `pods` or `podgroups`.
    pub resource: Name,
    /// Its name.
    pub name: Name,
    /// Its uid.
    pub uid: Name,
}

/// The devices of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// The devices, in the order in which they were chosen.
    #[serde(default)]
    pub results: Vec<DeviceResult>,
    /// Configuration for the drivers.
    #[serde(default)]
    pub config: Vec<AllocationConfig>,
    /// Alternatives of the nodes that can use them; `None` if all can.
    pub nodes: Option<Vec<NodeTerm>>,
    /// When it was made.
    #[serde(default)]
    pub timestamp: Option<Timestamp>,
}

impl Allocation {
    /// The devices that are allocated exclusively.
    pub fn exclusive(&self) -> impl Iterator<Item = &DeviceId> {
        let exclusive = self.results.iter().filter(|result| result.is_exclusive());
        exclusive.map(|result| &result.id)
    }
}

/// Configuration of an allocation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AllocationConfig {
    /// `FromClass` or `FromClaim`.
    pub source: Name,
    /// The requests that it is about; empty for all.
    pub requests: Vec<Name>,
    /// The parameters; `None` for a kind that is not known.
    pub opaque: Option<OpaqueConfig>,
}

/// One device of an allocation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceResult {
    /// The request, or `request/alternative`.
    pub request: Name,
    /// The device.
    pub id: DeviceId,
    /// Whether it may be in use by others.
    pub admin_access: bool,
    /// The share, if others can have a share too.
    pub share: Option<Name>,
    /// What the share consumes, by capacity.
    pub consumed: BTreeMap<Name, Quantity>,
    /// The tolerations of the request.
    pub tolerations: Vec<DeviceToleration>,
    /// Conditions that must be true before a pod is bound.
    pub binding_conditions: Vec<Name>,
    /// Conditions of which none may be true.
    pub binding_failure_conditions: Vec<Name>,
}

impl DeviceResult {
    /// Whether the device is allocated exclusively.
    pub const fn is_exclusive(&self) -> bool {
        !self.admin_access && self.share.is_none()
    }
}

impl ResourceClaimFacts {
    /// The claim that a scheduler makes for the extended resources of a pod.
    pub fn extended(key: &ObjectKey, (pod, uid): (&Name, &Name), spec: &Arc<ClaimSpec>) -> Self {
        Self {
            key: key.clone(),
            uid: Name::default(),
            controller: Some(uid.clone()),
            deleting: false,
            is_protected: false,
            extended_for: Some(pod.clone()),
            spec: Arc::clone(spec),
            allocation: None,
            reserved_for: Vec::new(),
            conditions: BTreeMap::new(),
        }
    }
}

/// A map by device as JSON, where only a text can be a key.
mod by_device {
    use serde::{Deserializer, Serializer, de::Error};

    use super::{BTreeMap, Deserialize, DeviceId, Name};

    pub(super) fn serialize<S: Serializer>(
        conditions: &BTreeMap<DeviceId, Vec<Name>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(conditions.iter().map(|(id, names)| (id.to_string(), names)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<DeviceId, Vec<Name>>, D::Error> {
        let by_text = BTreeMap::<String, Vec<Name>>::deserialize(deserializer)?;
        let by_id = by_text.into_iter().map(|(text, names)| match DeviceId::parse(&text) {
            Some(id) => Ok((id, names)),
            None => Err(D::Error::custom(format!("{text:?} is not driver/pool/device"))),
        });
        by_id.collect()
    }
}

impl Consumer {
    /// A pod.
    pub fn pod(name: &Name, uid: &Name) -> Self {
        Self {
            group: Name::default(),
            resource: Name::from("pods"),
            name: name.clone(),
            uid: uid.clone(),
        }
    }

    /// A PodGroup of Kubernetes.
    pub fn group(name: &Name, uid: &Name) -> Self {
        Self {
            group: Name::from("scheduling.k8s.io"),
            resource: Name::from("podgroups"),
            name: name.clone(),
            uid: uid.clone(),
        }
    }

    /// Whether it is a pod.
    pub fn is_pod(&self) -> bool {
        self.group.is_empty() && *self.resource == *"pods"
    }
}

/// An entry of `spec.resourceClaims` of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimEntry {
    /// Its name.
    pub name: Name,
    /// The claim.
    pub source: ClaimSource,
}

/// The claim of an entry, in the namespace of the pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ClaimSource {
    /// The claim of this name.
    Named(Name),
    /// A claim that was made for the pod, or its PodGroup, from a template.
    Generated {
        /// The claim.
        claim: Name,
        /// The template.
        template: Name,
    },
    /// A claim that is still to be made from this template.
    NotCreated(Name),
    /// No claim is needed: the status of the pod says so.
    NotNeeded,
    /// Neither a claim nor a template is named.
    Unknown,
}

impl ClaimEntry {
    /// The name of its claim, if it has one.
    pub fn claim(&self) -> Option<&Name> {
        match &self.source {
            ClaimSource::Named(claim) | ClaimSource::Generated { claim, .. } => Some(claim),
            ClaimSource::NotCreated(_) | ClaimSource::NotNeeded | ClaimSource::Unknown => None,
        }
    }

    /// Whether an entry of a pod is the same as one of its PodGroup: of the same name, and with the same claim or
    /// template.
    pub fn is_same(&self, of_group: &Self) -> bool {
        let is_same_source = match (&self.source, &of_group.source) {
            (ClaimSource::Named(own), ClaimSource::Named(other))
            | (ClaimSource::NotCreated(own), ClaimSource::NotCreated(other))
            | (ClaimSource::Generated { template: own, .. }, ClaimSource::NotCreated(other)) => {
                own == other
            }
            _ => false,
        };
        self.name == of_group.name && is_same_source
    }
}
