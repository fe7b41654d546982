//! The kinds that are watched, and what else happens in the scheduler cache when their objects change.

use kube_batch_api::{
    dialect::{self, GroupOf, QueueOf},
    each_kind,
    kind::{ApplyObject as _, WatchNeed, WatchedKind},
    with_version,
};
use kube_batch_cache::store::{Change, Stored};
use kube_batch_model::{facts::FactError, group_version::GroupVersion};

use crate::run::scheduler_cache::CacheState;

/// The key of a kind in the store.
pub(super) type Key<K> = <<K as WatchedKind>::Facts as Stored>::Key;

/// Whether these are PodGroups or queues of another project.
pub(super) fn is_of_other_api<K: Watched>() -> bool {
    K::API.is_some_and(|version| !version.is_own())
}

/// Whether cycles run although the scheduler may not watch a kind.
pub(super) fn is_optional<K: Watched>() -> bool {
    K::NEED == WatchNeed::Optional
}

/// Whether every API server serves a kind: that of other kinds may not be installed yet.
pub(super) fn is_core<K: Watched>() -> bool {
    K::API.is_none() && K::NEED == WatchNeed::Required
}

/// A kind of object that is watched.
pub(crate) trait Watched: WatchedKind {
    /// Stores the facts of an object.
    fn store(&self, state: &mut CacheState) -> Result<Change, FactError> {
        state.store.apply(self)
    }
}

/// Does something for each kind.
pub(super) trait Visit {
    fn visit<K: Watched>(&mut self);
}

/// How the facts of an object are stored. Decisions in flight and bindings that wait depend on pods and claims.
macro_rules! store {
    (Pod) => {
        fn store(&self, state: &mut CacheState) -> Result<Change, FactError> {
            state.apply_pod(self)
        }
    };
    (PersistentVolumeClaim) => {
        fn store(&self, state: &mut CacheState) -> Result<Change, FactError> {
            state.apply_claim(self)
        }
    };
    (ResourceClaim) => {
        fn store(&self, state: &mut CacheState) -> Result<Change, FactError> {
            state.apply_resource_claim(self)
        }
    };
    ($other:ident) => {};
}

macro_rules! watch_kinds {
    ($(
        $(#[$doc:meta])* $variant:ident: $type:ty,
        $name:literal, $resource:literal, $version:literal, $scope:ident, $availability:ident, $if_missing:literal
        $(, watched($need:ident, $facts:ty = $read:path))?;
    )*) => {
        $( $(
            impl Watched for $type
            where
                $facts: Stored,
            {
                store!($variant);
            }
        )? )*

        /// Visits every kind, in the order of [`kinds`].
        pub(super) fn visit_all(visitor: &mut impl Visit) {
            $( visit!(visitor, $type, $($facts)?); )*
            visit_dialects(visitor);
        }

        /// Every kind, as RBAC and `kubectl` name it.
        pub(super) fn kinds() -> impl Iterator<Item = &'static str> {
            let mut kinds = Resources(Vec::new());
            visit_all(&mut kinds);
            kinds.0.into_iter()
        }
    };
}

macro_rules! visit {
    ($visitor:expr, $type:ty,) => {};
    ($visitor:expr, $type:ty, $facts:ty) => {
        $visitor.visit::<$type>()
    };
}

each_kind!(watch_kinds);

impl<const VERSION: u8> Watched for GroupOf<VERSION> {}

impl<const VERSION: u8> Watched for QueueOf<VERSION> {}

/// Collects the resource of each kind.
struct Resources(Vec<&'static str>);

impl Visit for Resources {
    fn visit<K: Watched>(&mut self) {
        self.0.push(K::RESOURCE);
    }
}

/// Visits the kinds of all dialects.
fn visit_dialects(visitor: &mut impl Visit) {
    for version in GroupVersion::ALL {
        with_version!(version, V => visitor.visit::<GroupOf<V>>());
    }
    for version in
        GroupVersion::ALL.into_iter().filter(|version| dialect::spec(*version).queues.is_some())
    {
        with_version!(version, V => visitor.visit::<QueueOf<V>>());
    }
}
