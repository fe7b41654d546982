//! What the status of PodGroups and queues says, for each API.
//!
//! How the objects are read, and how a status is written, is in `kube-batch-api`.

mod coscheduling;
mod kubernetes;
mod own;
mod spec;
mod status;
mod volcano;

pub use self::{kubernetes::INITIALLY_SCHEDULED, spec::StatusDialect, status::Transition};
use crate::group_version::GroupVersion;

impl GroupVersion {
    /// What the status of its objects says.
    pub const fn statuses(self) -> &'static dyn StatusDialect {
        match self {
            Self::Kubernetes => &kubernetes::Kubernetes,
            Self::Coscheduling => &coscheduling::Coscheduling,
            Self::Volcano => &volcano::Volcano,
            Self::V1Alpha1 | Self::V1Alpha2 => &own::Own,
        }
    }
}
