//! Why a task could not be placed.

use kube_batch_api::{
    column::{Dim, JobIdx},
    name::Name,
    reason::FitReport,
};

/// Why a task could not be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It fits on no node.
    Unfit(FitReport),
    /// The minimum of its job can never fit, whatever else ends.
    NeverFits(NeverFits),
    /// Its queue would exceed a hard limit.
    Capability(Dim),
    /// The idle resources it fits into are reserved for a job of another queue, if it still waits.
    Reserved(Option<JobIdx>),
}

/// Why the minimum of a job can never fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeverFits {
    /// It requests more of a resource than the limit of its queue.
    Capability(Excess),
    /// It requests more of a resource than all nodes have.
    Total(Excess),
    /// Its tasks request a resource that no node has.
    UnknownResource(Name),
    /// Fewer of its tasks than that fit on the empty cluster.
    Nodes {
        /// How many fit at most.
        n_fitting: u64,
        /// Why they do not fit now.
        now: FitReport,
    },
}

/// How much the smallest tasks that make up a minimum request, and a limit that they exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// The resource.
    pub dim: Dim,
    /// What they request, saturated.
    pub requested: i64,
    /// The limit.
    pub limit: i64,
}
