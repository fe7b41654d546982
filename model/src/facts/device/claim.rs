//! ResourceClaims: what they request, what they were given, and who uses it.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{NodeSelector, Pod, PodResourceClaim},
        resource::v1::{
            AllocatedDeviceStatus, AllocationResult, DeviceAllocationConfiguration,
            DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim,
            ResourceClaimConsumerReference,
        },
        scheduling::v1beta1::PodGroupResourceClaim,
    },
    apimachinery::pkg::{api::resource::Quantity as ApiQuantity, apis::meta::v1::Time},
};
use serde::{Deserialize, Serialize};

use super::{DeviceId, OpaqueConfig, quantity, request::ClaimSpec, taint::DeviceToleration};
use crate::{
    facts::{FactError, controller, object_key},
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
    /// Reads a ResourceClaim.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name or an amount cannot be read: skip it.
    pub fn from_resource_claim(claim: &ResourceClaim) -> Result<Self, FactError> {
        let meta = &claim.metadata;
        let key = object_key("ResourceClaim", meta)?;
        let object = format!("ResourceClaim {key}");
        let status = claim.status.as_ref();
        let allocation = status.and_then(|status| status.allocation.as_ref());
        let reserved_for = status.and_then(|status| status.reserved_for.as_deref());
        let devices = status.and_then(|status| status.devices.as_deref());
        let annotations = meta.annotations.as_ref();
        let is_for_extended_resources = annotations
            .and_then(|annotations| annotations.get(EXTENDED_RESOURCE_CLAIM))
            .is_some_and(|value| value == "true");
        let owner = controller(meta);
        Ok(Self {
            uid: Name::from(meta.uid.as_deref().unwrap_or_default()),
            controller: owner.map(|owner| Name::from(owner.uid.as_str())),
            deleting: meta.deletion_timestamp.is_some(),
            is_protected: meta.finalizers.iter().flatten().any(|name| name == DELETE_PROTECTION),
            extended_for: owner
                .filter(|_| is_for_extended_resources)
                .map(|owner| Name::from(owner.name.as_str())),
            spec: Arc::new(ClaimSpec::from_api(
                &object,
                claim.spec.as_ref().and_then(|spec| spec.devices.as_ref()),
            )?),
            allocation: allocation
                .map(|allocation| Allocation::from_api(&object, allocation))
                .transpose()?,
            reserved_for: reserved_for.into_iter().flatten().map(Consumer::from_api).collect(),
            conditions: conditions(devices.unwrap_or_default()),
            key,
        })
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

/// The conditions of each device that are true.
fn conditions(devices: &[AllocatedDeviceStatus]) -> BTreeMap<DeviceId, Vec<Name>> {
    let of_device = devices.iter().filter_map(|device| {
        let conditions = device.conditions.iter().flatten();
        let is_true: Vec<Name> = conditions
            .filter(|condition| condition.status == "True")
            .map(|condition| Name::from(condition.type_.as_str()))
            .collect();
        let id = DeviceId {
            driver: Name::from(device.driver.as_str()),
            pool: Name::from(device.pool.as_str()),
            device: Name::from(device.device.as_str()),
        };
        (!is_true.is_empty()).then_some((id, is_true))
    });
    of_device.collect()
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

    /// The consumer as the API has it.
    pub fn to_api(&self) -> ResourceClaimConsumerReference {
        ResourceClaimConsumerReference {
            api_group: (!self.group.is_empty()).then(|| self.group.to_string()),
            resource: self.resource.to_string(),
            name: self.name.to_string(),
            uid: self.uid.to_string(),
        }
    }

    fn from_api(consumer: &ResourceClaimConsumerReference) -> Self {
        Self {
            group: Name::from(consumer.api_group.as_deref().unwrap_or_default()),
            resource: Name::from(consumer.resource.as_str()),
            name: Name::from(consumer.name.as_str()),
            uid: Name::from(consumer.uid.as_str()),
        }
    }
}

impl Allocation {
    fn from_api(object: &str, allocation: &AllocationResult) -> Result<Self, FactError> {
        let results = allocation.devices.as_ref().and_then(|devices| devices.results.as_deref());
        let results = results.into_iter().flatten().enumerate().map(|(at, result)| {
            let field = format!("status.allocation.devices.results[{at}]");
            DeviceResult::from_api((object, &field), result)
        });
        let config = allocation.devices.as_ref().and_then(|devices| devices.config.as_deref());
        Ok(Self {
            results: results.collect::<Result<_, _>>()?,
            config: config.into_iter().flatten().map(AllocationConfig::from_api).collect(),
            nodes: allocation.node_selector.as_ref().map(|selector| {
                selector.node_selector_terms.iter().map(NodeTerm::from_api).collect()
            }),
            timestamp: allocation.allocation_timestamp.as_ref().map(|time| time.0),
        })
    }
}

/// A list, or nothing if it is empty.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn texts(names: &[Name]) -> Option<Vec<String>> {
    some(names.iter().map(ToString::to_string).collect())
}

impl Allocation {
    /// The allocation as the API writes it.
    pub fn to_api(&self) -> AllocationResult {
        let results = self.results.iter().map(DeviceResult::to_api).collect();
        let config = self.config.iter().map(AllocationConfig::to_api).collect();
        AllocationResult {
            allocation_timestamp: self.timestamp.map(Time),
            devices: Some(DeviceAllocationResult { results: some(results), config: some(config) }),
            node_selector: self.nodes.as_ref().map(|terms| NodeSelector {
                node_selector_terms: terms.iter().map(NodeTerm::to_api).collect(),
            }),
        }
    }
}

impl AllocationConfig {
    fn to_api(&self) -> DeviceAllocationConfiguration {
        DeviceAllocationConfiguration {
            source: self.source.to_string(),
            requests: texts(&self.requests),
            opaque: self.opaque.as_ref().map(OpaqueConfig::to_api),
        }
    }

    fn from_api(config: &DeviceAllocationConfiguration) -> Self {
        let requests = config.requests.iter().flatten();
        Self {
            source: Name::from(config.source.as_str()),
            requests: requests.map(|name| Name::from(name.as_str())).collect(),
            opaque: config
                .opaque
                .as_ref()
                .map(|opaque| OpaqueConfig::from_api(&opaque.driver, &opaque.parameters)),
        }
    }
}

impl DeviceResult {
    fn to_api(&self) -> DeviceRequestAllocationResult {
        let consumed = self.consumed.iter();
        let consumed: BTreeMap<String, ApiQuantity> = consumed
            .map(|(name, amount)| (name.to_string(), ApiQuantity(amount.to_binary_string())))
            .collect();
        DeviceRequestAllocationResult {
            request: self.request.to_string(),
            driver: self.id.driver.to_string(),
            pool: self.id.pool.to_string(),
            device: self.id.device.to_string(),
            admin_access: self.admin_access.then_some(true),
            share_id: self.share.as_ref().map(ToString::to_string),
            consumed_capacity: (!consumed.is_empty()).then_some(consumed),
            tolerations: some(self.tolerations.iter().map(DeviceToleration::to_api).collect()),
            binding_conditions: texts(&self.binding_conditions),
            binding_failure_conditions: texts(&self.binding_failure_conditions),
            skip_node_operations: None,
        }
    }

    fn from_api(
        (object, field): (&str, &str),
        result: &DeviceRequestAllocationResult,
    ) -> Result<Self, FactError> {
        let consumed = result.consumed_capacity.iter().flatten().map(|(name, amount)| {
            let field = format!("{field}.consumedCapacity[{name}]");
            Ok((Name::from(name.as_str()), quantity(object, &field, amount)?))
        });
        let names = |list: &Option<Vec<String>>| {
            list.iter().flatten().map(|name| Name::from(name.as_str())).collect()
        };
        Ok(Self {
            request: Name::from(result.request.as_str()),
            id: DeviceId {
                driver: Name::from(result.driver.as_str()),
                pool: Name::from(result.pool.as_str()),
                device: Name::from(result.device.as_str()),
            },
            admin_access: result.admin_access == Some(true),
            share: result.share_id.as_deref().map(Name::from),
            consumed: consumed.collect::<Result<_, FactError>>()?,
            tolerations: result
                .tolerations
                .iter()
                .flatten()
                .map(DeviceToleration::from_api)
                .collect(),
            binding_conditions: names(&result.binding_conditions),
            binding_failure_conditions: names(&result.binding_failure_conditions),
        })
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
    /// The entries of a pod. Claims made from templates are named in the status of the pod.
    pub fn of(pod: &Pod) -> Vec<Self> {
        let entries = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref());
        let statuses =
            pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref());
        let source = |entry: &PodResourceClaim| {
            if let Some(name) = &entry.resource_claim_name {
                return ClaimSource::Named(Name::from(name.as_str()));
            }
            let Some(template) = &entry.resource_claim_template_name else {
                return ClaimSource::Unknown;
            };
            let mut statuses = statuses.into_iter().flatten();
            match statuses.find(|status| status.name == entry.name) {
                Some(status) => match &status.resource_claim_name {
                    Some(name) => ClaimSource::Generated {
                        claim: Name::from(name.as_str()),
                        template: Name::from(template.as_str()),
                    },
                    None => ClaimSource::NotNeeded,
                },
                None => ClaimSource::NotCreated(Name::from(template.as_str())),
            }
        };
        let entry = |entry: &PodResourceClaim| Self {
            name: Name::from(entry.name.as_str()),
            source: source(entry),
        };
        entries.into_iter().flatten().map(entry).collect()
    }

    /// The name of its claim, if it has one.
    pub fn claim(&self) -> Option<&Name> {
        match &self.source {
            ClaimSource::Named(claim) | ClaimSource::Generated { claim, .. } => Some(claim),
            ClaimSource::NotCreated(_) | ClaimSource::NotNeeded | ClaimSource::Unknown => None,
        }
    }

    /// The entries of a PodGroup, as they are before claims are made from templates.
    pub fn of_group(entries: Option<&[PodGroupResourceClaim]>) -> Vec<Self> {
        let entry = |entry: &PodGroupResourceClaim| {
            let claim = entry.resource_claim_name.as_deref();
            let template = entry.resource_claim_template_name.as_deref();
            let source = match (claim, template) {
                (Some(claim), _) => ClaimSource::Named(Name::from(claim)),
                (None, Some(template)) => ClaimSource::NotCreated(Name::from(template)),
                (None, None) => ClaimSource::Unknown,
            };
            Self { name: Name::from(entry.name.as_str()), source }
        };
        entries.into_iter().flatten().map(entry).collect()
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
