//! A snapshot made from manifests.

use k8s_openapi::{
    api::{
        core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::{CSIDriver, CSINode, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube_batch_api::kind::ApplyObject as _;
use kube_batch_cache::{
    assumed::Assumed,
    snapshot::{SnapshotOptions, take_snapshot},
    store::Store,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx},
};
use serde::Deserialize;

/// Manifests by kind. An absent namespace is `default`, an absent uid namespace and name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    pub(crate) existing_pods: Vec<Pod>,
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) storage_classes: Vec<StorageClass>,
    pub(crate) persistent_volumes: Vec<PersistentVolume>,
    pub(crate) persistent_volume_claims: Vec<PersistentVolumeClaim>,
    pub(crate) csi_nodes: Vec<CSINode>,
    pub(crate) csi_drivers: Vec<CSIDriver>,
}

impl World {
    /// This world, with a volume for each claim that is bound to one that is not there.
    pub(crate) fn with_volumes(mut self) -> Self {
        let bound = self.persistent_volume_claims.iter().filter_map(|claim| {
            let name = claim.spec.as_ref()?.volume_name.clone()?;
            let mut volume = PersistentVolume::default();
            volume.metadata.name = Some(name);
            Some(volume)
        });
        let is_known = |volume: &PersistentVolume| {
            let mut known = self.persistent_volumes.iter();
            known.any(|known| known.metadata.name == volume.metadata.name)
        };
        let missing: Vec<PersistentVolume> = bound.filter(|volume| !is_known(volume)).collect();
        self.persistent_volumes.extend(missing);
        self
    }

    /// The snapshot with `pods` beside the existing ones; they wait for us.
    pub(crate) fn snapshot(&self, pods: &[Pod]) -> Cluster {
        let mut store = Store::default();
        let mut ours = pods.to_vec();
        for pod in &mut ours {
            pod.spec.get_or_insert_default().scheduler_name = Some("kube-batch".to_owned());
        }
        for pod in self.existing_pods.iter().chain(&ours) {
            let mut pod = pod.clone();
            pod.spec.get_or_insert_default();
            identify(&mut pod.metadata);
            store.apply(&pod).expect("the pod can be read");
        }
        for claim in &self.persistent_volume_claims {
            let mut claim = claim.clone();
            identify(&mut claim.metadata);
            store.apply(&claim).expect("the claim can be read");
        }
        for node in &self.nodes {
            store.apply(node).expect("the node can be read");
        }
        for namespace in &self.namespaces {
            store.apply(namespace).expect("the namespace can be read");
        }
        for class in &self.storage_classes {
            store.apply(class).expect("the class can be read");
        }
        for volume in &self.persistent_volumes {
            store.apply(volume).expect("the volume can be read");
        }
        for node in &self.csi_nodes {
            store.apply(node).expect("the CSINode can be read");
        }
        for driver in &self.csi_drivers {
            store.apply(driver).expect("the CSIDriver can be read");
        }
        take_snapshot(&store, &Assumed::default(), &SnapshotOptions::default()).cluster
    }
}

fn identify(meta: &mut ObjectMeta) {
    let namespace = meta.namespace.get_or_insert_with(|| "default".to_owned()).clone();
    let name = meta.name.clone().unwrap_or_default();
    meta.uid.get_or_insert_with(|| format!("{namespace}/{name}"));
}

/// The class of the first task that waits for us.
pub(crate) fn waiting(cluster: &Cluster) -> Option<ClassIdx> {
    let task = cluster.tasks.facts.ids().find(|task| cluster.is_waiting(*task));
    task.map(|task| cluster.tasks.class[task])
}

/// The node of a name.
pub(crate) fn node(cluster: &Cluster, name: &str) -> NodeIdx {
    let mut nodes = cluster.nodes.facts.iter();
    nodes.find(|(_, facts)| *facts.name == *name).expect("the node exists").0
}
