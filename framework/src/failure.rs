//! Why a task could not be placed: while a session lasts, with rows of its snapshot. What is reported of it, with
//! names, is an [`Obstacle`](kube_batch_model::why::Obstacle).

use kube_batch_model::{
    column::{Dim, JobIdx, NodeIdx, QueueIdx},
    reason::FitReport,
    why::{NeverFits, NoDomain, NotEnoughGroups},
};
use serde::{Deserialize, Serialize};

use crate::guarantees::KeptFree;

/// Why a task could not be placed. Those that other jobs can end are never remembered, and so not written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// It fits on no node.
    Unfit(FitReport),
    /// Its job requires one topology domain, and none that it may use holds enough of its tasks.
    NoDomain(Box<NoDomain>),
    /// The minimum of its job can never fit, whatever else ends.
    NeverFits(NeverFits),
    /// Too few groups of a composite PodGroup that its job is a part of have a place.
    NotEnoughGroups(Box<NotEnoughGroups>),
    /// Its queue may not hold more.
    #[serde(skip)]
    QueueLimit(QueueLimit),
    /// The idle resources it fits into are withheld for a job of another queue, if it still waits.
    #[serde(skip)]
    Withheld(Option<JobIdx>),
    /// Tasks of different sizes fit in none of the orders that were tried, and the search for another ended at its bound.
    Undecided(FitReport),
    /// It is held back: the next cycle would evict it for this job.
    #[serde(skip)]
    Held(JobIdx),
    /// A node has room for it, but that is reserved.
    #[serde(skip)]
    Reserved {
        /// The node.
        node: NodeIdx,
        /// The job for which it is reserved.
        holder: JobIdx,
    },
}

impl Failure {
    /// Why a task fits on no node, if that is known for each node.
    pub(crate) fn fit_report(&self) -> Option<&FitReport> {
        match self {
            Self::Unfit(report) | Self::Undecided(report) => Some(report),
            Self::NoDomain(failure) => failure.best.as_ref().map(|best| &best.report),
            Self::NeverFits(_)
            | Self::NotEnoughGroups(_)
            | Self::QueueLimit(_)
            | Self::Withheld(_)
            | Self::Held(_)
            | Self::Reserved { .. } => None,
        }
    }
}

/// A gang that `gang.maxLoss` protects from a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedGang {
    /// The gang that stays.
    pub gang: JobIdx,
    /// The scarce resource, in whose unit the amounts are.
    pub dim: Dim,
    /// What its eviction would free.
    pub amount: i64,
    /// What the waiting jobs of the queue can use.
    pub usable: i64,
}

/// What keeps a queue from holding more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Its capability, or that of a queue above it.
    Capability {
        /// The queue.
        queue: QueueIdx,
        /// The resource.
        dim: Dim,
    },
    /// Its number of jobs, or that of a queue above it.
    Jobs {
        /// The queue.
        queue: QueueIdx,
        /// How many may hold resources.
        most: u32,
    },
    /// What is kept free for another queue.
    Guarantee(KeptFree),
}

impl QueueLimit {
    /// The queue that may hold no more.
    pub const fn queue(self) -> Option<QueueIdx> {
        match self {
            Self::Capability { queue, .. } | Self::Jobs { queue, .. } => Some(queue),
            Self::Guarantee(_) => None,
        }
    }
}
