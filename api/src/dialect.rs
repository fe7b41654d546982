//! Dialects: the kinds of PodGroups that users and controllers create, one file each.
//!
//! A dialect defines which objects the scheduler watches, how it reads them as facts, and what it writes to
//! their status. The rest of the scheduler uses only the facts:
//! [`GroupFacts`](crate::facts::group::GroupFacts) and [`QueueFacts`](crate::facts::queue::QueueFacts).
//! To add a dialect, write its file and add it to [`ApiVersion`], to [`ApiVersion::spec`] below, and to the
//! macro [`with_version`](crate::with_version). If pods name its PodGroups in a new field, add that to
//! [`membership`](crate::membership).
//!
//! A dialect has no effect in a cluster that does not serve its API.

mod coscheduling;
mod kubernetes;
mod object;
mod own;
mod spec;
mod status;
mod volcano;

pub use self::{
    coscheduling::GroupSpec as CoschedulingGroupSpec,
    object::{GroupOf, QueueOf, RawObject},
    spec::{Dialect, DialectSpec, Patch},
    status::Transition,
    volcano::GroupSpec as VolcanoGroupSpec,
};
use crate::{
    api_version::ApiVersion,
    naming::{COMPOSITE, Naming, POD},
};

impl ApiVersion {
    /// The dialect of its objects, and where they are.
    pub const fn spec(self) -> &'static DialectSpec {
        match self {
            Self::Kubernetes => &kubernetes::SPEC,
            Self::Coscheduling => &coscheduling::SPEC,
            Self::Volcano => &volcano::SPEC,
            Self::V1Alpha1 => &own::V1ALPHA1,
            Self::V1Alpha2 => &own::V1ALPHA2,
        }
    }

    /// How its objects are read and reported.
    pub const fn dialect(self) -> &'static dyn Dialect {
        self.spec().dialect
    }
}

/// All kinds of objects that name a queue for themselves, each with its resource: plural and API group, as in
/// RBAC and `kubectl`.
pub fn kinds() -> impl Iterator<Item = (&'static str, Naming)> {
    let groups = ApiVersion::ALL.into_iter().map(ApiVersion::spec);
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
            $($crate::api_version::ApiVersion::$variant => {
                const $number: u8 = $crate::api_version::ApiVersion::$variant as u8;
                $body
            })*
        }
    };
}
