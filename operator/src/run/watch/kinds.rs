//! The kinds that are watched: the table, the key and the parser of each.

use std::{collections::BTreeSet, fmt::Debug};

use k8s_openapi::{
    api::{
        core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
        policy::v1::PodDisruptionBudget,
        resource::v1::ResourceClaim,
        scheduling::v1::PriorityClass,
        storage::v1::{CSIDriver, CSINode, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use kube_batch_api::{
    crd::{
        ApiVersion::{self, V1Alpha1, V1Alpha2},
        v1alpha1, v1alpha2,
    },
    facts::FactError,
    name::{Name, ObjectKey},
};
use kube_batch_cache::store::{Change, Store};
use serde::de::DeserializeOwned;

use crate::run::scheduler_cache::CacheState;

/// Kinds that roles of earlier versions do not name. Without the permission they count as not served,
/// so that an update of the image alone does not stop scheduling.
pub(super) const OPTIONAL_KINDS: &[&str] = &[ResourceClaim::KIND, CSIDriver::KIND];

/// Whether every API server serves a kind: that of other kinds may not be installed yet.
pub(super) fn is_core<K: Watched>() -> bool {
    let is_ours = ApiVersion::ALL.iter().any(|version| version.group() == K::group(&()));
    !is_ours && !OPTIONAL_KINDS.contains(&K::KIND)
}

/// A kind of object that is watched.
pub(crate) trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// Its key in the store.
    type Key: Clone + Ord;
    /// Plural and group, as RBAC and `kubectl` name it.
    const KIND: &'static str;

    fn key(meta: &ObjectMeta) -> Self::Key;
    fn apply(&self, state: &mut CacheState) -> Result<Change, FactError>;
    fn forget(store: &mut Store, key: &Self::Key) -> bool;
    /// Removes those of the first `n` objects after a key that are not listed; returns whether there were
    /// any, and where to go on.
    fn retain_some(
        store: &mut Store,
        after: Option<&Self::Key>,
        n: usize,
        listed: &BTreeSet<Self::Key>,
    ) -> (bool, Option<Self::Key>);
}

fn name(meta: &ObjectMeta) -> Name {
    Name::from(meta.name.as_deref().unwrap_or_default())
}

pub(super) fn key(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

/// Does something for each kind.
pub(super) trait Visit {
    fn visit<K: Watched>(&mut self);
}

/// The table, the key and the parser of each kind. Where a table holds objects of several kinds,
/// `if` selects the keys of this one.
macro_rules! watched {
    ($($type:ty as $kind:literal:
        $table:ident[$key_type:ty = $key:expr] $(if $is_its:expr)?,
        |$object:ident, $state:ident| $apply:expr;)*) => {
        $( impl Watched for $type {
            type Key = $key_type;
            const KIND: &'static str = $kind;

            fn key(meta: &ObjectMeta) -> Self::Key {
                $key(meta)
            }
            fn apply(&self, $state: &mut CacheState) -> Result<Change, FactError> {
                let $object = self;
                $apply
            }
            fn forget(store: &mut Store, key: &Self::Key) -> bool {
                store.$table.delete(key)
            }
            fn retain_some(
                store: &mut Store,
                after: Option<&Self::Key>,
                n: usize,
                listed: &BTreeSet<Self::Key>,
            ) -> (bool, Option<Self::Key>) {
                let keep = |key: &Self::Key| listed.contains(key) $(|| !$is_its(key))?;
                store.$table.retain_some(after, n, keep)
            }
        } )*

        /// Every kind, as RBAC and `kubectl` name it.
        pub(super) const KINDS: &[&str] = &[$(<$type as Watched>::KIND),*];

        /// Visits every kind, in the order of [`KINDS`].
        pub(super) fn visit_all(visitor: &mut impl Visit) {
            $( visitor.visit::<$type>(); )*
        }
    };
}

watched! {
    Node as "nodes": nodes[Name = name], |node, state| state.store.apply_node(node);
    Pod as "pods": pods[ObjectKey = key], |pod, state| state.apply_pod(&key(&pod.metadata), pod);
    Namespace as "namespaces": namespaces[Name = name],
        |namespace, state| state.store.apply_namespace(namespace);
    PersistentVolume as "persistentvolumes": volumes[Name = name],
        |volume, state| state.store.apply_volume(volume);
    PersistentVolumeClaim as "persistentvolumeclaims": claims[ObjectKey = key],
        |claim, state| state.apply_claim(claim);
    PodDisruptionBudget as "poddisruptionbudgets.policy": budgets[ObjectKey = key],
        |budget, state| state.store.apply_budget(budget);
    PriorityClass as "priorityclasses.scheduling.k8s.io": priority_classes[Name = name],
        |class, state| state.store.apply_priority_class(class);
    StorageClass as "storageclasses.storage.k8s.io": storage_classes[Name = name],
        |class, state| state.store.apply_storage_class(class);
    CSINode as "csinodes.storage.k8s.io": csi_nodes[Name = name],
        |node, state| state.store.apply_csi_node(node);
    CSIDriver as "csidrivers.storage.k8s.io": csi_drivers[Name = name],
        |driver, state| state.store.apply_csi_driver(driver);
    ResourceClaim as "resourceclaims.resource.k8s.io": resource_claims[ObjectKey = key],
        |claim, state| state.store.apply_resource_claim(claim);
    v1alpha1::PodGroup as "podgroups.scheduling.incubator.k8s.io":
        groups[(ObjectKey, ApiVersion) = |meta| (key(meta), V1Alpha1)] if is_in(V1Alpha1),
        |group, state| {
            state.store.apply_group(V1Alpha1, &group.metadata, &group.spec, group.status.as_ref())
        };
    v1alpha2::PodGroup as "podgroups.scheduling.sigs.dev":
        groups[(ObjectKey, ApiVersion) = |meta| (key(meta), V1Alpha2)] if is_in(V1Alpha2),
        |group, state| {
            state.store.apply_group(V1Alpha2, &group.metadata, &group.spec, group.status.as_ref())
        };
    v1alpha1::Queue as "queues.scheduling.incubator.k8s.io":
        queues[(Name, ApiVersion) = |meta| (name(meta), V1Alpha1)] if is_in(V1Alpha1),
        |queue, state| {
            state.store.apply_queue(V1Alpha1, &queue.metadata, &queue.spec, queue.status.as_ref())
        };
    v1alpha2::Queue as "queues.scheduling.sigs.dev":
        queues[(Name, ApiVersion) = |meta| (name(meta), V1Alpha2)] if is_in(V1Alpha2),
        |queue, state| {
            state.store.apply_queue(V1Alpha2, &queue.metadata, &queue.spec, queue.status.as_ref())
        };
}

/// Whether a key is one of this API group.
fn is_in<K>(version: ApiVersion) -> impl Fn(&(K, ApiVersion)) -> bool {
    move |key| key.1 == version
}
