//! Persistent volumes, claims, storage classes and what nodes can attach.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::{CSIDriver, CSINode, StorageClass},
};
use serde::{Deserialize, Serialize};

use super::{Controller, FactError, object_key, pod::Interner};
use crate::{
    name::{Name, ObjectKey},
    quantity::Quantity,
    selector::{LabelSelector, Labels, NodeTerm, Requirement},
};

/// Annotation of a claim whose binding is complete.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation of a claim that a scheduler has chosen a node for.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The storage class annotation from before the field existed.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

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

/// The fields of a PersistentVolumeClaim that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimFacts {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Name,
    /// The pod that owns it, for generic ephemeral volumes.
    pub controller: Option<Controller>,
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

/// The fields of a CSIDriver that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiDriverFacts {
    /// Its name.
    pub name: Name,
    /// `preventPodSchedulingIfMissing`: pods with its volumes go only to nodes that have the driver.
    pub is_required: bool,
}

impl VolumeFacts {
    /// Reads a PersistentVolume.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name or a capacity that cannot be read: skip it.
    pub fn from_volume(volume: &PersistentVolume) -> Result<Self, FactError> {
        let key = object_key("PersistentVolume", &volume.metadata)?;
        let spec = volume.spec.clone().unwrap_or_default();
        let capacity = spec.capacity.as_ref().and_then(|c| c.get("storage"));
        let object = || format!("PersistentVolume {}", key.name);
        let phase = volume.status.as_ref().and_then(|s| s.phase.as_deref());
        let required = spec.node_affinity.as_ref().and_then(|a| a.required.as_ref());
        Ok(Self {
            labels: Labels::from_map(volume.metadata.labels.as_ref()),
            capacity_bytes: bytes(capacity.map(|q| q.0.as_str()))
                .map_err(|problem| FactError::new(object(), "spec.capacity.storage", problem))?,
            access_modes: names(spec.access_modes.as_deref()),
            volume_mode: Name::from(spec.volume_mode.as_deref().unwrap_or("Filesystem")),
            class: Name::from(
                annotation(&volume.metadata, CLASS_ANNOTATION)
                    .or(spec.storage_class_name.as_deref())
                    .unwrap_or_default(),
            ),
            node_affinity: required
                .map(|r| r.node_selector_terms.iter().map(NodeTerm::from_api).collect()),
            claim: spec.claim_ref.as_ref().map(|claim| {
                let text = |t: &Option<String>| t.as_deref().unwrap_or_default().to_owned();
                let key = ObjectKey::new(text(&claim.namespace), text(&claim.name));
                (key, claim.uid.as_deref().filter(|u| !u.is_empty()).map(Name::from))
            }),
            available: matches!(phase, None | Some("" | "Available" | "Pending")),
            csi: spec
                .csi
                .as_ref()
                .map(|csi| (Name::from(&*csi.driver), Name::from(&*csi.volume_handle))),
            name: key.name,
        })
    }
}

impl ClaimFacts {
    /// Whether it has its volume.
    pub fn is_bound(&self) -> bool {
        self.bind_completed && self.volume.is_some()
    }

    /// Reads a PersistentVolumeClaim.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name or a request that cannot be read: skip it.
    pub fn from_claim(claim: &PersistentVolumeClaim) -> Result<Self, FactError> {
        let key = object_key("PersistentVolumeClaim", &claim.metadata)?;
        let spec = claim.spec.clone().unwrap_or_default();
        let request = spec.resources.as_ref().and_then(|r| r.requests.as_ref()?.get("storage"));
        let object = || format!("PersistentVolumeClaim {key}");
        let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
        Ok(Self {
            uid: Name::from(claim.metadata.uid.as_deref().unwrap_or_default()),
            controller: Controller::of(&claim.metadata),
            volume: spec.volume_name.as_deref().filter(|v| !v.is_empty()).map(Name::from),
            bind_completed: annotation(&claim.metadata, BIND_COMPLETED).is_some(),
            lost: phase == Some("Lost"),
            deleting: claim.metadata.deletion_timestamp.is_some(),
            class: annotation(&claim.metadata, CLASS_ANNOTATION)
                .or(spec.storage_class_name.as_deref())
                .map(Name::from),
            request_bytes: bytes(request.map(|q| q.0.as_str())).map_err(|problem| {
                FactError::new(object(), "spec.resources.requests.storage", problem)
            })?,
            access_modes: names(spec.access_modes.as_deref()),
            volume_mode: Name::from(spec.volume_mode.as_deref().unwrap_or("Filesystem")),
            selector: spec.selector.as_ref().map(LabelSelector::from_api),
            selected_node: annotation(&claim.metadata, SELECTED_NODE).map(Name::from),
            key,
        })
    }
}

impl ClaimFacts {
    /// The same, with the names that many claims have in common shared.
    #[must_use]
    pub fn shared(mut self, interner: &mut Interner) -> Self {
        let optional = [self.class.as_mut(), self.selected_node.as_mut()].into_iter().flatten();
        let names = [&mut self.key.namespace, &mut self.volume_mode].into_iter().chain(optional);
        names.chain(&mut self.access_modes).for_each(|name| interner.share(name));
        self
    }
}

impl StorageClassFacts {
    /// Reads a StorageClass.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name: skip it.
    pub fn from_class(class: &StorageClass) -> Result<Self, FactError> {
        let key = object_key("StorageClass", &class.metadata)?;
        let topologies = class.allowed_topologies.iter().flatten().map(|term| {
            LabelSelector::new(term.match_label_expressions.iter().flatten().map(|expression| {
                let values = expression.values.iter().map(|v| Name::from(v.as_str())).collect();
                Requirement::one_of(Name::from(expression.key.as_str()), values)
            }))
        });
        Ok(Self {
            name: key.name,
            provisioner: Name::from(class.provisioner.as_str()),
            waits_for_consumer: class
                .volume_binding_mode
                .as_deref()
                .map(|mode| mode == "WaitForFirstConsumer"),
            topologies: topologies.collect(),
        })
    }
}

impl CsiNodeFacts {
    /// Reads a CSINode.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name: skip it.
    pub fn from_csi_node(node: &CSINode) -> Result<Self, FactError> {
        let key = object_key("CSINode", &node.metadata)?;
        let limits = node.spec.drivers.iter().filter_map(|driver| {
            let count = driver.allocatable.as_ref()?.count?;
            Some((Name::from(driver.name.as_str()), i64::from(count)))
        });
        let drivers = node.spec.drivers.iter().map(|driver| Name::from(driver.name.as_str()));
        let topology_keys = node.spec.drivers.iter().filter_map(|driver| {
            let keys = names(driver.topology_keys.as_deref());
            (!keys.is_empty()).then(|| (Name::from(driver.name.as_str()), keys))
        });
        Ok(Self {
            name: key.name,
            limits: limits.collect(),
            drivers: drivers.collect(),
            topology_keys: topology_keys.collect(),
        })
    }
}

impl CsiDriverFacts {
    /// Reads a CSIDriver.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name: skip it.
    pub fn from_csi_driver(driver: &CSIDriver) -> Result<Self, FactError> {
        let key = object_key("CSIDriver", &driver.metadata)?;
        let is_required = driver.spec.prevent_pod_scheduling_if_missing.unwrap_or(false);
        Ok(Self { name: key.name, is_required })
    }
}

fn annotation<'a>(
    meta: &'a k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    key: &str,
) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

fn names(texts: Option<&[String]>) -> Vec<Name> {
    texts.into_iter().flatten().map(|text| Name::from(text.as_str())).collect()
}

fn bytes(text: Option<&str>) -> Result<i64, String> {
    text.map_or(Ok(0), |text| {
        text.parse::<Quantity>().map(Quantity::units).map_err(|error| error.to_string())
    })
}
