//! Why a task could not be placed.

use kube_batch_api::{
    column::{Dim, JobIdx},
    reason::FitReport,
};

/// Why a task could not be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It fits on no node.
    Unfit(FitReport),
    /// Its queue would exceed a hard limit.
    Capability(Dim),
    /// The idle resources it fits into are reserved for a job of another queue, if it still waits.
    Reserved(Option<JobIdx>),
}
