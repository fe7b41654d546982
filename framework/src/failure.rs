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
    /// The minimum of its job does not fit even on the empty cluster. With the reasons of the nodes.
    NeverFits(NeverFits, FitReport),
    /// Its queue would exceed a hard limit.
    Capability(Dim),
    /// The idle resources it fits into are reserved for a job of another queue, if it still waits.
    Reserved(Option<JobIdx>),
}

/// Why the minimum of a job does not fit even on the empty cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeverFits {
    /// It requests more of a resource than all nodes have.
    Total {
        /// The resource.
        dim: Dim,
        /// What the smallest tasks that make up the minimum request, saturated.
        requested: i64,
        /// What all nodes have.
        total: i64,
    },
    /// Fewer of its tasks fit than the minimum.
    Nodes {
        /// How many fit at most.
        n_fitting: u64,
    },
}
