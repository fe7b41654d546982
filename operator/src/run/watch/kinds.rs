//! The kinds that are watched: the table, the key and the parser of each.

use std::fmt::Debug;

use k8s_openapi::{
    api::{
        core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
        policy::v1::PodDisruptionBudget,
        resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice},
        scheduling::{v1::PriorityClass, v1alpha3::CompositePodGroup},
        storage::v1::{CSIDriver, CSINode, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use kube_batch_api::{
    dialect::{self, GroupOf, QueueOf},
    with_version,
};
use kube_batch_cache::store::{Change, Fact, Store, Table};
use kube_batch_model::{
    api_version::ApiVersion,
    facts::{
        FactError,
        composite::CompositeFacts,
        device::{
            claim::ResourceClaimFacts, class::DeviceClassFacts, slice::SliceFacts,
            taint::DeviceTaintRuleFacts,
        },
        group::GroupFacts,
        node::{NamespaceFacts, NodeFacts},
        pod::TaskFacts,
        policy::{BudgetFacts, PriorityClassFacts},
        queue::QueueFacts,
        storage::{ClaimFacts, CsiDriverFacts, CsiNodeFacts, StorageClassFacts, VolumeFacts},
    },
    name::{Name, ObjectKey},
};
use serde::de::DeserializeOwned;

use crate::run::scheduler_cache::CacheState;

/// Kinds that roles of earlier versions do not name. Without the permission they count as not served,
/// so that an update of the image alone does not stop scheduling.
const OPTIONAL_KINDS: &[&str] = &[
    ResourceClaim::KIND,
    ResourceSlice::KIND,
    DeviceClass::KIND,
    DeviceTaintRule::KIND,
    CSIDriver::KIND,
    CompositePodGroup::KIND,
];

/// Whether cycles run although the scheduler may not watch a kind.
pub(super) fn is_optional<K: Watched>() -> bool {
    OPTIONAL_KINDS.contains(&K::KIND) || is_of_other_api::<K>()
}

/// Whether these are PodGroups or queues of another project.
pub(super) fn is_of_other_api<K: Watched>() -> bool {
    K::API.is_some_and(|version| !version.is_own())
}

/// Whether every API server serves a kind: that of other kinds may not be installed yet.
pub(super) fn is_core<K: Watched>() -> bool {
    K::API.is_none() && !OPTIONAL_KINDS.contains(&K::KIND)
}

/// A kind of object that is watched.
pub(crate) trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// Its key in the store.
    type Key: Clone + Ord;
    /// What is stored of it.
    type Fact: Fact;
    /// Plural and group, as RBAC and `kubectl` name it.
    const KIND: &'static str;
    /// The API that it is a PodGroup or queue of.
    const API: Option<ApiVersion> = None;

    fn key(meta: &ObjectMeta) -> Self::Key;
    fn apply(&self, state: &mut CacheState) -> Result<Change, FactError>;
    fn table(store: &mut Store) -> &mut Table<Self::Key, Self::Fact>;
    /// Whether a key in the table is that of an object of this kind. The tables of PodGroups and queues hold
    /// those of all APIs.
    fn has_key(_: &Self::Key) -> bool {
        true
    }
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

/// The table, the key and the parser of each kind.
macro_rules! watched {
    ($($type:ty as $kind:literal:
        $table:ident[$key_type:ty = $key:expr => $fact:ty],
        |$object:ident, $state:ident| $apply:expr;)*) => {
        $( impl Watched for $type {
            type Key = $key_type;
            type Fact = $fact;
            const KIND: &'static str = $kind;

            fn key(meta: &ObjectMeta) -> Self::Key {
                $key(meta)
            }
            fn apply(&self, $state: &mut CacheState) -> Result<Change, FactError> {
                let $object = self;
                $apply
            }
            fn table(store: &mut Store) -> &mut Table<Self::Key, Self::Fact> {
                &mut store.$table
            }
        } )*

        const CORE_KINDS: &[&str] = &[$(<$type as Watched>::KIND),*];

        /// Visits every kind, in the order of [`kinds`].
        pub(super) fn visit_all(visitor: &mut impl Visit) {
            $( visitor.visit::<$type>(); )*
            visit_dialects(visitor);
        }
    };
}

watched! {
    Node as "nodes": nodes[Name = name => NodeFacts], |node, state| state.store.apply_node(node);
    Pod as "pods": pods[ObjectKey = key => TaskFacts], |pod, state| state.apply_pod(&key(&pod.metadata), pod);
    Namespace as "namespaces": namespaces[Name = name => NamespaceFacts],
        |namespace, state| state.store.apply_namespace(namespace);
    PersistentVolume as "persistentvolumes": volumes[Name = name => VolumeFacts],
        |volume, state| state.store.apply_volume(volume);
    PersistentVolumeClaim as "persistentvolumeclaims": claims[ObjectKey = key => ClaimFacts],
        |claim, state| state.apply_claim(claim);
    PodDisruptionBudget as "poddisruptionbudgets.policy": budgets[ObjectKey = key => BudgetFacts],
        |budget, state| state.store.apply_budget(budget);
    PriorityClass as "priorityclasses.scheduling.k8s.io": priority_classes[Name = name => PriorityClassFacts],
        |class, state| state.store.apply_priority_class(class);
    StorageClass as "storageclasses.storage.k8s.io": storage_classes[Name = name => StorageClassFacts],
        |class, state| state.store.apply_storage_class(class);
    CSINode as "csinodes.storage.k8s.io": csi_nodes[Name = name => CsiNodeFacts],
        |node, state| state.store.apply_csi_node(node);
    CSIDriver as "csidrivers.storage.k8s.io": csi_drivers[Name = name => CsiDriverFacts],
        |driver, state| state.store.apply_csi_driver(driver);
    ResourceClaim as "resourceclaims.resource.k8s.io": resource_claims[ObjectKey = key => ResourceClaimFacts],
        |claim, state| state.apply_resource_claim(&key(&claim.metadata), claim);
    ResourceSlice as "resourceslices.resource.k8s.io": resource_slices[Name = name => SliceFacts],
        |slice, state| state.store.apply_resource_slice(slice);
    DeviceClass as "deviceclasses.resource.k8s.io": device_classes[Name = name => DeviceClassFacts],
        |class, state| state.store.apply_device_class(class);
    DeviceTaintRule as "devicetaintrules.resource.k8s.io":
        device_taint_rules[Name = name => DeviceTaintRuleFacts],
        |rule, state| state.store.apply_device_taint_rule(rule);
    CompositePodGroup as "compositepodgroups.scheduling.k8s.io":
        composites[ObjectKey = key => CompositeFacts],
        |composite, state| state.store.apply_composite(composite);
}

/// The key and the parser of a kind of each dialect.
macro_rules! watched_of_dialects {
    ($type:ident: $table:ident[$name:ty = $key:expr => $fact:ty], $apply:ident,
        $spec:ident => $kind:expr) => {
        impl<const VERSION: u8> Watched for $type<VERSION> {
            type Key = ($name, ApiVersion);
            type Fact = $fact;
            const KIND: &'static str = {
                let $spec = dialect::spec(Self::VERSION);
                $kind
            };
            const API: Option<ApiVersion> = Some(Self::VERSION);

            fn key(meta: &ObjectMeta) -> Self::Key {
                ($key(meta), Self::VERSION)
            }
            fn apply(&self, state: &mut CacheState) -> Result<Change, FactError> {
                state.store.$apply(Self::VERSION, &self.0)
            }
            fn table(store: &mut Store) -> &mut Table<Self::Key, Self::Fact> {
                &mut store.$table
            }
            fn has_key((_, version): &Self::Key) -> bool {
                *version == Self::VERSION
            }
        }
    };
}

watched_of_dialects!(GroupOf: groups[ObjectKey = key => GroupFacts], apply_group_object, spec => spec.groups);
watched_of_dialects!(QueueOf: queues[Name = name => QueueFacts], apply_queue_object, spec => match spec.queues {
    Some(kind) => kind,
    None => "",
});

/// Visits the kinds of all dialects.
fn visit_dialects(visitor: &mut impl Visit) {
    for version in ApiVersion::ALL {
        with_version!(version, V => visitor.visit::<GroupOf<V>>());
    }
    for version in
        ApiVersion::ALL.into_iter().filter(|version| dialect::spec(*version).queues.is_some())
    {
        with_version!(version, V => visitor.visit::<QueueOf<V>>());
    }
}

/// Every kind, as RBAC and `kubectl` name it.
pub(super) fn kinds() -> impl Iterator<Item = &'static str> {
    let groups = ApiVersion::ALL.into_iter().map(|version| dialect::spec(version).groups);
    let queues = ApiVersion::ALL.into_iter().filter_map(|version| dialect::spec(version).queues);
    CORE_KINDS.iter().copied().chain(groups).chain(queues)
}
