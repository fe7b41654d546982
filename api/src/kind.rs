//! The table of the kinds of objects that are read.
//!
//! [`each_kind`](crate::each_kind) has a row for each kind of Kubernetes and of JobSet. PodGroups and queues, of which
//! every API has its own, are in [`dialect`].
//! To add a kind, write its facts (`model/src/facts/`) and its reader (`api/src/read/`), and add a row to this table
//! and one to the tables of the store (`cache/src/tables.rs`). It is then watched, stored, copied, dumped, read from
//! manifests and from clusters, and created and deleted in a simulation.

use std::fmt::{self, Debug};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube_batch_cache::{
    history::{ObjectVersion, Version},
    store::{Change, Store, Stored},
};
use kube_batch_model::{
    facts::{FactError, fact::Fact, group::GroupFacts, pod::Interner, queue::QueueFacts},
    group_version::GroupVersion,
    name::{Name, ObjectKey},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::dialect::{self, GroupOf, QueueOf, RawObject};

/// Calls a macro with a row for each kind but PodGroup and Queue:
///
/// - its variant in [`Kind`] and its type,
/// - its name in manifests, its resource (plural and API group, as RBAC and kubectl name it) and its version,
/// - whether its objects have a namespace, and where it is served,
/// - what follows if its objects are missing from the input of a simulation,
/// - for kinds that the scheduler watches: whether cycles need it, the facts that are kept of an object, and their
///   reader. Other kinds are read by the simulator only, which imitates their controllers.
///
/// The crate that calls it depends on `k8s-openapi` and `kube-batch-model`.
#[macro_export]
macro_rules! each_kind {
    ($callback:ident) => {
        $callback! {
            /// A node.
            Node: k8s_openapi::api::core::v1::Node,
                "Node", "nodes", "v1", Cluster, Everywhere,
                "no pod can be placed",
                watched(Required, kube_batch_model::facts::node::NodeFacts = $crate::read::node);
            /// A pod.
            Pod: k8s_openapi::api::core::v1::Pod,
                "Pod", "pods", "v1", Namespaced, Everywhere,
                "nodes look empty, and pods that wait are missing",
                watched(Required, kube_batch_model::facts::pod::TaskFacts = $crate::read::pod);
            /// A namespace.
            Namespace: k8s_openapi::api::core::v1::Namespace,
                "Namespace", "namespaces", "v1", Cluster, Everywhere,
                "namespace selectors of pod affinity match no namespace",
                watched(Required, kube_batch_model::facts::node::NamespaceFacts = $crate::read::namespace);
            /// A volume.
            PersistentVolume: k8s_openapi::api::core::v1::PersistentVolume,
                "PersistentVolume", "persistentvolumes", "v1", Cluster, Everywhere,
                "pods whose claims are bound to a volume wait",
                watched(Required, kube_batch_model::facts::storage::VolumeFacts = $crate::read::volume);
            /// A claim to a volume.
            PersistentVolumeClaim: k8s_openapi::api::core::v1::PersistentVolumeClaim,
                "PersistentVolumeClaim", "persistentvolumeclaims", "v1", Namespaced, Everywhere,
                "pods with claims wait",
                watched(Required, kube_batch_model::facts::storage::ClaimFacts = $crate::read::claim);
            /// A class of volumes.
            StorageClass: k8s_openapi::api::storage::v1::StorageClass,
                "StorageClass", "storageclasses.storage.k8s.io", "v1", Cluster, Everywhere,
                "pods with claims that are not bound wait",
                watched(Required, kube_batch_model::facts::storage::StorageClassFacts = $crate::read::storage_class);
            /// The volume limits of a node.
            CsiNode: k8s_openapi::api::storage::v1::CSINode,
                "CSINode", "csinodes.storage.k8s.io", "v1", Cluster, Everywhere,
                "limits on the number of volumes of a node are not applied",
                watched(Required, kube_batch_model::facts::storage::CsiNodeFacts = $crate::read::csi_node);
            /// Whether a driver must be on the nodes of its pods.
            CsiDriver: k8s_openapi::api::storage::v1::CSIDriver,
                "CSIDriver", "csidrivers.storage.k8s.io", "v1", Cluster, Everywhere,
                "no CSI driver is required on a node",
                watched(Optional, kube_batch_model::facts::storage::CsiDriverFacts = $crate::read::csi_driver);
            /// A claim for devices.
            ResourceClaim: k8s_openapi::api::resource::v1::ResourceClaim,
                "ResourceClaim", "resourceclaims.resource.k8s.io", "v1", Namespaced, Everywhere,
                "pods with resource claims wait",
                watched(Optional, kube_batch_model::facts::device::claim::ResourceClaimFacts = $crate::read::resource_claim);
            /// A template of claims for devices.
            ResourceClaimTemplate: k8s_openapi::api::resource::v1::ResourceClaimTemplate,
                "ResourceClaimTemplate", "resourceclaimtemplates.resource.k8s.io", "v1", Namespaced, Everywhere,
                "no claims are made for pods";
            /// Devices of a driver.
            ResourceSlice: k8s_openapi::api::resource::v1::ResourceSlice,
                "ResourceSlice", "resourceslices.resource.k8s.io", "v1", Cluster, Everywhere,
                "there are no devices for resource claims",
                watched(Optional, kube_batch_model::facts::device::slice::SliceFacts = $crate::read::slice);
            /// A class of devices.
            DeviceClass: k8s_openapi::api::resource::v1::DeviceClass,
                "DeviceClass", "deviceclasses.resource.k8s.io", "v1", Cluster, Everywhere,
                "pods with resource claims for the class wait",
                watched(Optional, kube_batch_model::facts::device::class::DeviceClassFacts = $crate::read::device_class);
            /// A taint of devices.
            DeviceTaintRule: k8s_openapi::api::resource::v1::DeviceTaintRule,
                "DeviceTaintRule", "devicetaintrules.resource.k8s.io", "v1", Cluster, NewReleases,
                "no device is tainted by a rule",
                watched(Optional, kube_batch_model::facts::device::taint::DeviceTaintRuleFacts = $crate::read::taint_rule);
            /// A named priority.
            PriorityClass: k8s_openapi::api::scheduling::v1::PriorityClass,
                "PriorityClass", "priorityclasses.scheduling.k8s.io", "v1", Cluster, Everywhere,
                "PodGroups that name one have priority 0",
                watched(Required, kube_batch_model::facts::policy::PriorityClassFacts = $crate::read::priority_class);
            /// A disruption budget; a legacy gang.
            PodDisruptionBudget: k8s_openapi::api::policy::v1::PodDisruptionBudget,
                "PodDisruptionBudget", "poddisruptionbudgets.policy", "v1", Namespaced, Everywhere,
                "gangs that a budget defines are not known",
                watched(Required, kube_batch_model::facts::policy::BudgetFacts = $crate::read::budget);
            /// A job of `batch`.
            Job: k8s_openapi::api::batch::v1::Job,
                "Job", "jobs.batch", "v1", Namespaced, Everywhere,
                "no further pods are created for them",
                watched(Optional, kube_batch_model::facts::batch_job::BatchJobFacts = $crate::read::batch_job);
            /// A replica set.
            ReplicaSet: k8s_openapi::api::apps::v1::ReplicaSet,
                "ReplicaSet", "replicasets.apps", "v1", Namespaced, Everywhere,
                "no further pods are created for them";
            /// A deployment.
            Deployment: k8s_openapi::api::apps::v1::Deployment,
                "Deployment", "deployments.apps", "v1", Namespaced, Everywhere,
                "no further pods are created for them";
            /// A stateful set.
            StatefulSet: k8s_openapi::api::apps::v1::StatefulSet,
                "StatefulSet", "statefulsets.apps", "v1", Namespaced, Everywhere,
                "no further pods are created for them";
            /// A set of jobs.
            JobSet: $crate::jobset::JobSet,
                "JobSet", "jobsets.jobset.x-k8s.io", "v1alpha2", Namespaced, IfInstalled,
                "no further pods are created for them";
            /// A group of PodGroups.
            CompositePodGroup: k8s_openapi::api::scheduling::v1alpha3::CompositePodGroup,
                "CompositePodGroup", "compositepodgroups.scheduling.k8s.io", "v1alpha3", Namespaced, IfInstalled,
                "PodGroups that are part of one wait",
                watched(Optional, kube_batch_model::facts::composite::CompositeFacts = $crate::read::composite);
        }
    };
}

/// Whether the objects of a kind have a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindScope {
    /// They have none.
    Cluster,
    /// They have one.
    Namespaced,
}

/// Which clusters serve a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Availability {
    /// All.
    Everywhere,
    /// Those of new releases of Kubernetes.
    NewReleases,
    /// Those in which an administrator has installed or enabled it.
    IfInstalled,
}

struct Row {
    name: &'static str,
    resource: &'static str,
    version: &'static str,
    scope: KindScope,
    availability: Availability,
    if_missing: &'static str,
}

macro_rules! is_watched {
    () => {
        false
    };
    ($need:ident) => {
        true
    };
}

macro_rules! delete {
    ($store:expr, $name:expr, $type:ty,) => {
        false
    };
    ($store:expr, $name:expr, $type:ty, $facts:ty) => {
        <$facts as Stored>::table($store).delete(&<$type as WatchedKind>::key($name))
    };
}

macro_rules! declare_kinds {
    ($(
        $(#[$doc:meta])* $variant:ident: $type:ty,
        $name:literal, $resource:literal, $version:literal, $scope:ident, $availability:ident, $if_missing:literal
        $(, watched($need:ident, $facts:ty = $read:path))?;
    )*) => {
        /// A kind of object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $( #[doc = concat!("`", $name, "`.")] $variant, )*
            /// `PodGroup`, of any API.
            PodGroup,
            /// `Queue`, of any API.
            Queue,
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Self] = &[$( Self::$variant, )* Self::PodGroup, Self::Queue];

            const fn row(self) -> Row {
                match self {
                    $( Self::$variant => Row {
                        name: $name,
                        resource: $resource,
                        version: $version,
                        scope: KindScope::$scope,
                        availability: Availability::$availability,
                        if_missing: $if_missing,
                    }, )*
                    Self::PodGroup => POD_GROUP,
                    Self::Queue => QUEUE,
                }
            }

            /// Whether the scheduler watches it. Other kinds are read by the simulator only.
            pub const fn is_watched(self) -> bool {
                match self {
                    $( Self::$variant => is_watched!($($need)?), )*
                    Self::PodGroup | Self::Queue => true,
                }
            }

            /// Removes the facts of an object from the store, of a PodGroup or queue those of all APIs. Returns whether
            /// there were any.
            pub fn delete(self, name: &ObjectKey, store: &mut Store) -> bool {
                match self {
                    $( Self::$variant => delete!(store, name, $type, $($facts)?), )*
                    Self::PodGroup => {
                        GroupVersion::ALL.map(|v| store.groups.delete(&(name.clone(), v))).contains(&true)
                    }
                    Self::Queue => {
                        let name = &name.name;
                        GroupVersion::ALL.map(|v| store.queues.delete(&(name.clone(), v))).contains(&true)
                    }
                }
            }
        }
    };
}

each_kind!(declare_kinds);

/// All APIs of PodGroups; see [`Kind::resources`] for the resource and version of each.
const POD_GROUP: Row = Row {
    name: "PodGroup",
    resource: "podgroups",
    version: "",
    scope: KindScope::Namespaced,
    availability: Availability::IfInstalled,
    if_missing: "pods that name a PodGroup wait",
};

/// All APIs of queues, as of PodGroups.
const QUEUE: Row = Row {
    name: "Queue",
    resource: "queues",
    version: "",
    scope: KindScope::Cluster,
    availability: Availability::IfInstalled,
    if_missing: "jobs wait, because their queues do not exist",
};

impl Kind {
    /// The name in manifests.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The kind with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Whether its objects have a namespace.
    pub fn is_namespaced(self) -> bool {
        self.row().scope == KindScope::Namespaced
    }

    /// Which clusters serve it.
    pub const fn availability(self) -> Availability {
        self.row().availability
    }

    /// What follows if its objects are missing from the input of a simulation, in words that complete "so ...".
    pub const fn if_missing(self) -> &'static str {
        self.row().if_missing
    }

    /// The plural in URLs.
    pub fn plural(self) -> &'static str {
        let resource = self.row().resource;
        resource.split_once('.').map_or(resource, |(plural, _)| plural)
    }

    /// The API group that serves it now; empty for the core group, and of PodGroup and Queue, which have several.
    pub fn group(self) -> &'static str {
        self.row().resource.split_once('.').map_or("", |(_, group)| group)
    }

    /// Whether several APIs have a kind of this name.
    const fn is_of_dialects(self) -> bool {
        matches!(self, Self::PodGroup | Self::Queue)
    }

    /// The APIs of PodGroups, or those of queues; none of other kinds.
    pub fn versions(self) -> impl Iterator<Item = GroupVersion> {
        let has_queues = |version: GroupVersion| dialect::spec(version).queues.is_some();
        GroupVersion::ALL.into_iter().filter(move |version| {
            self == Self::PodGroup || self == Self::Queue && has_queues(*version)
        })
    }

    /// Whether an API group serves it, or did in the past. Of PodGroup and Queue, the groups of this project do.
    pub fn is_in(self, group: &str) -> bool {
        let was_extension = matches!(self, Self::ReplicaSet | Self::Deployment);
        if self.is_of_dialects() {
            GroupVersion::OWN.iter().any(|own| own.group() == group)
        } else {
            self.group() == group || was_extension && group == "extensions"
        }
    }

    /// Its resources as RBAC and kubectl name them: plural and group. PodGroup and Queue have several.
    pub fn resources(self) -> Vec<String> {
        if self.is_of_dialects() {
            let name = |version: GroupVersion| format!("{}.{}", self.plural(), version.group());
            self.versions().map(name).collect()
        } else {
            vec![self.row().resource.to_owned()]
        }
    }

    /// Its API versions, as in manifests: `v1`, `batch/v1`. In the order of [`resources`](Self::resources).
    pub fn api_versions(self) -> Vec<String> {
        let (group, version) = (self.group(), self.row().version);
        if self.is_of_dialects() {
            self.versions().map(|version| version.to_string()).collect()
        } else if group.is_empty() {
            vec![version.to_owned()]
        } else {
            vec![format!("{group}/{version}")]
        }
    }

    /// The kinds for `kubectl get` that print everything a simulation reads and any cluster serves.
    /// `kube-batch` is the category of PodGroups and Queues.
    pub fn kubectl_list() -> String {
        let served =
            Self::ALL.iter().filter(|kind| kind.availability() == Availability::Everywhere);
        let kinds = served.map(|kind| kind.plural());
        kinds.chain(["kube-batch"]).collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether cycles need a kind that the scheduler watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchNeed {
    /// No cycle runs before all its objects are known.
    Required,
    /// Roles that were made for earlier versions of the scheduler do not name it. Without the permission it counts as
    /// not served, so that an update of the image alone does not stop scheduling.
    Optional,
}

/// A kind of object of which the scheduler keeps facts.
pub trait WatchedKind:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// What is kept of an object.
    type Facts: Stored;

    /// Plural and API group, as RBAC and `kubectl` name it.
    const RESOURCE: &'static str;
    /// Whether cycles need it.
    const NEED: WatchNeed;
    /// The API that it is a PodGroup or queue of.
    const API: Option<GroupVersion> = None;

    /// The key in the store of the object with this name.
    fn key(name: &ObjectKey) -> <Self::Facts as Stored>::Key;

    /// Whether a key in the table of these facts is that of an object of this kind. The tables of PodGroups and queues
    /// hold those of all APIs.
    fn has_key(_key: &<Self::Facts as Stored>::Key) -> bool {
        true
    }

    /// Reads an object.
    ///
    /// # Errors
    ///
    /// [`FactError`] if a field that the scheduler uses cannot be read, or if more would be kept of the object than
    /// the bounds of its kind allow: skip the object.
    fn facts(&self, interner: &mut Interner) -> Result<Self::Facts, FactError>;
}

/// A key that is an object's name, or its namespace and name.
trait Named {
    fn named(name: &ObjectKey) -> Self;
}

impl Named for Name {
    fn named(name: &ObjectKey) -> Self {
        name.name.clone()
    }
}

impl Named for ObjectKey {
    fn named(name: &ObjectKey) -> Self {
        name.clone()
    }
}

/// Reads an object with the reader of its row.
macro_rules! read {
    (Pod, $read:path, $object:expr, $interner:expr) => {
        $read($object, $interner)
    };
    (PersistentVolumeClaim, $read:path, $object:expr, $interner:expr) => {
        $read($object).map(|facts| facts.shared($interner))
    };
    ($variant:ident, $read:path, $object:expr, $interner:expr) => {{
        let _ = $interner;
        $read($object)
    }};
}

macro_rules! impl_watched_kinds {
    ($(
        $(#[$doc:meta])* $variant:ident: $type:ty,
        $name:literal, $resource:literal, $version:literal, $scope:ident, $availability:ident, $if_missing:literal
        $(, watched($need:ident, $facts:ty = $read:path))?;
    )*) => { $( $(
        impl WatchedKind for $type {
            type Facts = $facts;

            const RESOURCE: &'static str = $resource;
            const NEED: WatchNeed = WatchNeed::$need;

            fn key(name: &ObjectKey) -> <$facts as Stored>::Key {
                Named::named(name)
            }

            fn facts(&self, interner: &mut Interner) -> Result<$facts, FactError> {
                let facts = read!($variant, $read, self, interner)?;
                // What is kept of a pod is bounded field by field, in its reader.
                if matches!(Kind::$variant, Kind::Pod) {
                    return Ok(facts);
                }
                let key = facts.key();
                within_bounds(facts, self, ($name, &key))
            }
        }
    )? )* };
}

each_kind!(impl_watched_kinds);

/// Refuses an object of which more would be kept than the bounds of its kind allow.
fn within_bounds<F: Fact>(
    facts: F,
    object: &impl Serialize,
    (kind, name): (&str, &dyn fmt::Display),
) -> Result<F, FactError> {
    match F::BOUNDS.excess(&facts, object) {
        None => Ok(facts),
        Some(excess) => Err(excess.into_error(format!("{kind} {name}"))),
    }
}

fn group(
    version: GroupVersion,
    object: &RawObject,
    interner: &Interner,
) -> Result<GroupFacts, FactError> {
    let facts = dialect::of(version).read_group(object, interner.prefixes())?.with_short_messages();
    let key = facts.key.clone();
    within_bounds(facts, object, ("PodGroup", &key))
}

fn queue(version: GroupVersion, object: &RawObject) -> Result<QueueFacts, FactError> {
    let facts = dialect::of(version).read_queue(object)?;
    let name = facts.name.clone();
    within_bounds(facts, object, ("Queue", &name))
}

/// Roles of earlier versions do not name the APIs of other projects.
const fn need(version: GroupVersion) -> WatchNeed {
    if version.is_own() { WatchNeed::Required } else { WatchNeed::Optional }
}

impl<const VERSION: u8> WatchedKind for GroupOf<VERSION> {
    type Facts = GroupFacts;

    const RESOURCE: &'static str = dialect::spec(Self::VERSION).groups;
    const NEED: WatchNeed = need(Self::VERSION);
    const API: Option<GroupVersion> = Some(Self::VERSION);

    fn key(name: &ObjectKey) -> (ObjectKey, GroupVersion) {
        (name.clone(), Self::VERSION)
    }

    fn has_key((_, version): &(ObjectKey, GroupVersion)) -> bool {
        *version == Self::VERSION
    }

    fn facts(&self, interner: &mut Interner) -> Result<GroupFacts, FactError> {
        group(Self::VERSION, &self.0, interner)
    }
}

impl<const VERSION: u8> WatchedKind for QueueOf<VERSION> {
    type Facts = QueueFacts;

    // No queue of an API that has none is watched.
    const RESOURCE: &'static str = match dialect::spec(Self::VERSION).queues {
        Some(resource) => resource,
        None => "",
    };
    const NEED: WatchNeed = need(Self::VERSION);
    const API: Option<GroupVersion> = Some(Self::VERSION);

    fn key(name: &ObjectKey) -> (Name, GroupVersion) {
        (name.name.clone(), Self::VERSION)
    }

    fn has_key((_, version): &(Name, GroupVersion)) -> bool {
        *version == Self::VERSION
    }

    fn facts(&self, _: &mut Interner) -> Result<QueueFacts, FactError> {
        queue(Self::VERSION, &self.0)
    }
}

/// Reads objects and stores their facts.
pub trait ApplyObject {
    /// Reads an object, and stores its facts.
    ///
    /// # Errors
    ///
    /// [`FactError`] if the object is invalid: it is not stored, what was stored under its name is kept, and other
    /// objects are not affected.
    fn apply<K: WatchedKind>(&mut self, object: &K) -> Result<Change, FactError>;

    /// Reads a PodGroup of any API, and stores its facts.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply).
    fn apply_group(
        &mut self,
        version: GroupVersion,
        group: &RawObject,
    ) -> Result<Change, FactError>;

    /// Reads a queue of any API, and stores its facts.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply).
    fn apply_queue(
        &mut self,
        version: GroupVersion,
        queue: &RawObject,
    ) -> Result<Change, FactError>;
}

impl ApplyObject for Store {
    fn apply<K: WatchedKind>(&mut self, object: &K) -> Result<Change, FactError> {
        let facts = object.facts(self.interner_mut())?;
        Ok(self.put(facts))
    }

    fn apply_group(
        &mut self,
        version: GroupVersion,
        group: &RawObject,
    ) -> Result<Change, FactError> {
        let facts = self::group(version, group, self.interner_mut())?;
        Ok(self.put(facts))
    }

    fn apply_queue(
        &mut self,
        version: GroupVersion,
        queue: &RawObject,
    ) -> Result<Change, FactError> {
        Ok(self.put(self::queue(version, queue)?))
    }
}

/// Namespace and name of an object; a namespace that it does not have is empty.
pub fn name_of(meta: &ObjectMeta) -> ObjectKey {
    let text = |text: &Option<String>| text.as_deref().map(Name::from).unwrap_or_default();
    ObjectKey { namespace: text(&meta.namespace), name: text(&meta.name) }
}

/// Which version of an object this is.
pub fn version_of(meta: &ObjectMeta) -> ObjectVersion<'_> {
    ObjectVersion {
        namespace: meta.namespace.as_deref().unwrap_or_default(),
        name: meta.name.as_deref().unwrap_or_default(),
        uid: meta.uid.as_deref(),
        version: meta.resource_version.as_deref().and_then(Version::parse),
    }
}
