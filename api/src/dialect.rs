//! Dialects: the kinds of PodGroups that users and controllers create, one file each.
//!
//! A dialect defines which objects the scheduler watches, and how it reads them as facts. The rest of the scheduler uses only the facts:
//! [`GroupFacts`](kube_batch_model::facts::group::GroupFacts) and [`QueueFacts`](kube_batch_model::facts::queue::QueueFacts).
//! To add a dialect, write its file and add it to [`GroupVersion`], to [`spec`] below, and to the
//! macro [`with_version`](crate::with_version). What its status says is in the file of the same name in
//! `model/src/dialect/`. If pods name its PodGroups in a new field, add that to
//! [`membership`](crate::membership).
//!
//! A dialect has no effect in a cluster that does not serve its API.

mod coscheduling;
mod kubernetes;
mod object;
mod own;
mod spec;
mod volcano;

pub use self::{
    coscheduling::CoschedulingGroupSpec,
    object::{GroupOf, QueueOf, RawObject},
    spec::{Dialect, DialectSpec, Patch},
    volcano::VolcanoGroupSpec,
};
use crate::naming::{COMPOSITE, Naming, POD};

#[doc(hidden)]
pub use kube_batch_model::group_version::GroupVersion;

/// The dialect of an API, and where its objects are.
pub const fn spec(version: GroupVersion) -> &'static DialectSpec {
    match version {
        GroupVersion::Kubernetes => &kubernetes::SPEC,
        GroupVersion::Coscheduling => &coscheduling::SPEC,
        GroupVersion::Volcano => &volcano::SPEC,
        GroupVersion::V1Alpha1 => &own::V1ALPHA1,
        GroupVersion::V1Alpha2 => &own::V1ALPHA2,
    }
}

/// How the objects of an API are read, and how their status is written.
pub const fn of(version: GroupVersion) -> &'static dyn Dialect {
    spec(version).dialect
}

/// All kinds of objects that name a queue for themselves, each with its resource: plural and API group, as in
/// RBAC and `kubectl`.
pub fn kinds() -> impl Iterator<Item = (&'static str, Naming)> {
    let groups = GroupVersion::ALL.into_iter().map(spec);
    let groups = groups.map(|dialect| (dialect.groups, dialect.naming));
    groups.chain([("compositepodgroups.scheduling.k8s.io", COMPOSITE), ("pods", POD)])
}

/// Evaluates an expression in which a constant is the number of a version, so that it can be the argument of
/// [`GroupOf`] or [`QueueOf`]: `with_version!(version, V => Api::<GroupOf<V>>::all(client))`.
#[macro_export]
macro_rules! with_version {
    ($version:expr, $number:ident => $body:expr) => {
        $crate::with_version!(@each $version, $number => $body;
            Kubernetes Coscheduling Volcano V1Alpha1 V1Alpha2)
    };
    (@each $version:expr, $number:ident => $body:expr; $($variant:ident)*) => {
        match $version {
            $($crate::dialect::GroupVersion::$variant => {
                const $number: u8 = $crate::dialect::GroupVersion::$variant as u8;
                $body
            })*
        }
    };
}
