//! Persistent volumes, claims, storage classes and what nodes can attach.

use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::{CSIDriver, CSINode, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube_batch_model::{
    facts::{
        FactError,
        storage::{ClaimFacts, CsiDriverFacts, CsiNodeFacts, StorageClassFacts, VolumeFacts},
    },
    name::{Name, ObjectKey},
    quantity::Quantity,
    selector::{LabelSelector, Labels, Requirement},
};

use super::{
    metadata::{controlled_by, names, object_key},
    selector::{label_selector, node_terms},
};

/// Annotation of a claim whose binding is complete.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation of a claim that a scheduler has chosen a node for.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The storage class annotation from before the field existed.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Reads a PersistentVolume.
///
/// # Errors
///
/// [`FactError`] if it has no name or a capacity that cannot be read: skip it.
pub fn volume(volume: &PersistentVolume) -> Result<VolumeFacts, FactError> {
    let key = object_key("PersistentVolume", &volume.metadata)?;
    let spec = volume.spec.clone().unwrap_or_default();
    let capacity = spec.capacity.as_ref().and_then(|c| c.get("storage"));
    let object = || format!("PersistentVolume {}", key.name);
    let phase = volume.status.as_ref().and_then(|s| s.phase.as_deref());
    let required = spec.node_affinity.as_ref().and_then(|a| a.required.as_ref());
    Ok(VolumeFacts {
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
        node_affinity: required.map(node_terms),
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

/// Reads a PersistentVolumeClaim.
///
/// # Errors
///
/// [`FactError`] if it has no name or a request that cannot be read: skip it.
pub fn claim(claim: &PersistentVolumeClaim) -> Result<ClaimFacts, FactError> {
    let key = object_key("PersistentVolumeClaim", &claim.metadata)?;
    let spec = claim.spec.clone().unwrap_or_default();
    let request = spec.resources.as_ref().and_then(|r| r.requests.as_ref()?.get("storage"));
    let object = || format!("PersistentVolumeClaim {key}");
    let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
    Ok(ClaimFacts {
        uid: Name::from(claim.metadata.uid.as_deref().unwrap_or_default()),
        controller: controlled_by(&claim.metadata),
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
        selector: spec.selector.as_ref().map(label_selector),
        selected_node: annotation(&claim.metadata, SELECTED_NODE).map(Name::from),
        key,
    })
}

/// Reads a StorageClass.
///
/// # Errors
///
/// [`FactError`] if it has no name: skip it.
pub fn storage_class(class: &StorageClass) -> Result<StorageClassFacts, FactError> {
    let key = object_key("StorageClass", &class.metadata)?;
    let topologies = class.allowed_topologies.iter().flatten().map(|term| {
        LabelSelector::new(term.match_label_expressions.iter().flatten().map(|expression| {
            let values = expression.values.iter().map(|v| Name::from(v.as_str())).collect();
            Requirement::one_of(Name::from(expression.key.as_str()), values)
        }))
    });
    Ok(StorageClassFacts {
        name: key.name,
        provisioner: Name::from(class.provisioner.as_str()),
        waits_for_consumer: class
            .volume_binding_mode
            .as_deref()
            .map(|mode| mode == "WaitForFirstConsumer"),
        topologies: topologies.collect(),
    })
}

/// Reads a CSINode.
///
/// # Errors
///
/// [`FactError`] if it has no name: skip it.
pub fn csi_node(node: &CSINode) -> Result<CsiNodeFacts, FactError> {
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
    Ok(CsiNodeFacts {
        name: key.name,
        limits: limits.collect(),
        drivers: drivers.collect(),
        topology_keys: topology_keys.collect(),
    })
}

/// Reads a CSIDriver.
///
/// # Errors
///
/// [`FactError`] if it has no name: skip it.
pub fn csi_driver(driver: &CSIDriver) -> Result<CsiDriverFacts, FactError> {
    let key = object_key("CSIDriver", &driver.metadata)?;
    let is_required = driver.spec.prevent_pod_scheduling_if_missing.unwrap_or(false);
    Ok(CsiDriverFacts { name: key.name, is_required })
}

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

fn bytes(text: Option<&str>) -> Result<i64, String> {
    text.map_or(Ok(0), |text| {
        text.parse::<Quantity>().map(Quantity::units).map_err(|error| error.to_string())
    })
}
