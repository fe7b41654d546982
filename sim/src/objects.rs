//! Manifests into the world: defaults filled in, facts stored.

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::ReplicaSet,
        batch::v1::Job,
        core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
        policy::v1::PodDisruptionBudget,
        scheduling::v1::PriorityClass,
        storage::v1::{CSINode, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube_batch_api::{
    crd::{ApiVersion, v1alpha2},
    name::{Name, ObjectKey},
};
use serde_json::Value;

use crate::{
    controllers::{Controller, ControllerKind},
    world::World,
};

/// Stores one manifest.
pub fn apply(world: &mut World, manifest: Value) -> Result<(), String> {
    let text = |key: &str| manifest[key].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let now = world.now();
    fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
        serde_json::from_value(value).map_err(|e| e.to_string())
    }
    let err = |e: kube_batch_api::facts::FactError| e.to_string();
    match kind.as_str() {
        "Node" => {
            let mut node: Node = read(manifest)?;
            fill(&mut node.metadata, None, now);
            let name = node.metadata.name.clone().unwrap_or_default();
            node.metadata
                .labels
                .get_or_insert_default()
                .entry("kubernetes.io/hostname".into())
                .or_insert(name);
            world.store.apply_node(&node).map_err(err)
        }
        "Pod" => {
            let mut pod: Pod = read(manifest)?;
            fill(&mut pod.metadata, Some("default"), now);
            world.store.apply_pod(&pod).map_err(err)
        }
        "Namespace" => {
            let mut o: Namespace = read(manifest)?;
            fill(&mut o.metadata, None, now);
            world.store.apply_namespace(&o).map_err(err)
        }
        "PersistentVolume" => {
            let mut o: PersistentVolume = read(manifest)?;
            fill(&mut o.metadata, None, now);
            world.store.apply_volume(&o).map_err(err)
        }
        "PersistentVolumeClaim" => {
            let mut o: PersistentVolumeClaim = read(manifest)?;
            fill(&mut o.metadata, Some("default"), now);
            world.store.apply_claim(&o).map_err(err)
        }
        "StorageClass" => {
            let mut o: StorageClass = read(manifest)?;
            fill(&mut o.metadata, None, now);
            world.store.apply_storage_class(&o).map_err(err)
        }
        "CSINode" => {
            let mut o: CSINode = read(manifest)?;
            fill(&mut o.metadata, None, now);
            world.store.apply_csi_node(&o).map_err(err)
        }
        "PriorityClass" => {
            let mut o: PriorityClass = read(manifest)?;
            fill(&mut o.metadata, None, now);
            world.store.apply_priority_class(&o).map_err(err)
        }
        "PodDisruptionBudget" => {
            let mut o: PodDisruptionBudget = read(manifest)?;
            fill(&mut o.metadata, Some("default"), now);
            world.store.apply_budget(&o).map_err(err)
        }
        "PodGroup" => {
            let version = ApiVersion::parse(&api_version).ok_or("unknown apiVersion")?;
            let mut o: v1alpha2::PodGroup = read(manifest)?;
            fill(&mut o.metadata, Some("default"), now);
            let key = ObjectKey::new(
                o.metadata.namespace.clone().unwrap_or_default(),
                o.metadata.name.clone().unwrap_or_default(),
            );
            let stored = world.store.groups.get(&(key, version)).map(|f| f.status.clone());
            world
                .store
                .apply_group(version, &o.metadata, &o.spec, o.status.as_ref().or(stored.as_ref()))
                .map_err(err)
        }
        "Queue" => {
            let version = ApiVersion::parse(&api_version).ok_or("unknown apiVersion")?;
            let mut o: v1alpha2::Queue = read(manifest)?;
            fill(&mut o.metadata, None, now);
            world.store.apply_queue(version, &o.metadata, &o.spec, o.status.as_ref()).map_err(err)
        }
        "Job" => {
            let mut o: Job = read(manifest)?;
            fill(&mut o.metadata, Some("default"), now);
            let spec = o.spec.unwrap_or_default();
            let wanted = spec.parallelism.unwrap_or(1);
            controller(world, ControllerKind::Job, &o.metadata, wanted, spec.template);
            Ok(())
        }
        "ReplicaSet" => {
            let mut o: ReplicaSet = read(manifest)?;
            fill(&mut o.metadata, Some("default"), now);
            let spec = o.spec;
            let wanted = spec.replicas.unwrap_or(1);
            controller(
                world,
                ControllerKind::ReplicaSet,
                &o.metadata,
                wanted,
                spec.template.unwrap_or_default(),
            );
            Ok(())
        }
        other => Err(format!("unknown kind {other}")),
    }
}

fn controller(
    world: &mut World,
    kind: ControllerKind,
    meta: &ObjectMeta,
    wanted: i32,
    template: k8s_openapi::api::core::v1::PodTemplateSpec,
) {
    world.controllers.apply(Controller {
        key: ObjectKey::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        ),
        uid: Name::from(meta.uid.clone().unwrap_or_default()),
        kind,
        created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0),
        wanted: usize::try_from(wanted).unwrap_or(0),
        template,
    });
}

fn fill(meta: &mut ObjectMeta, namespace: Option<&str>, now: Timestamp) {
    if let Some(namespace) = namespace {
        meta.namespace.get_or_insert_with(|| namespace.to_owned());
    }
    let name = meta.name.clone().unwrap_or_default();
    let uid = match &meta.namespace {
        Some(ns) => format!("{ns}/{name}"),
        None => name,
    };
    meta.uid.get_or_insert(uid);
    meta.creation_timestamp.get_or_insert(Time(now));
}
