//! Dialects: the kinds of PodGroups that users and controllers create, one file each.
//!
//! A dialect says which objects are watched, as what facts they are read, and what is written to their
//! status. The rest of the scheduler knows facts only: [`GroupFacts`](crate::facts::group::GroupFacts) and
//! [`QueueFacts`](crate::facts::queue::QueueFacts).
//! To add one, write its file, and name it in [`ApiVersion`], here in [`ApiVersion::spec`], and in the macro
//! [`with_version`](crate::with_version); if pods name its PodGroups in a way of their own, also in
//! [`membership`](crate::membership).
//!
//! A dialect whose API the cluster does not serve has no effect.

mod coscheduling;
mod kubernetes;
mod object;
mod own;
mod spec;
mod status;
mod volcano;

pub use self::{
    object::{GroupOf, QueueOf, RawObject},
    spec::{Dialect, DialectSpec, Patch},
    status::Transition,
};
use crate::api_version::ApiVersion;

impl ApiVersion {
    /// What is specific to its objects.
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

/// Evaluates an expression for the version that a variable has, with the constant `$number` for its number:
/// `with_version!(version, V => Api::<GroupOf<V>>::all(client))`.
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
