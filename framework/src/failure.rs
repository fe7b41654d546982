//! Why a task could not be placed.

use kube_batch_model::{
    column::{Dim, JobIdx, NodeIdx},
    name::{Name, ObjectKey},
    reason::FitReport,
};

/// Why a task could not be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It fits on no node.
    Unfit(FitReport),
    /// Its job requires one topology domain, and none that it may use holds enough of its tasks.
    NoDomain(Box<NoDomain>),
    /// The minimum of its job can never fit, whatever else ends.
    NeverFits(NeverFits),
    /// Too few groups of a composite PodGroup that its job is a part of have a place.
    NotEnoughGroups(Box<NotEnoughGroups>),
    /// Its queue would exceed a hard limit.
    Capability(Dim),
    /// The idle resources it fits into are withheld for a job of another queue, if it still waits.
    Withheld(Option<JobIdx>),
    /// Tasks of different sizes fit in none of the orders that were tried, and the search for another ended at its bound.
    Undecided(FitReport),
    /// It is held back: the next cycle would evict it for this job.
    Held(JobIdx),
    /// A node has room for it, but that is reserved.
    Reserved {
        /// The node.
        node: NodeIdx,
        /// The job for which it is reserved.
        holder: JobIdx,
    },
}

/// The groups of a composite PodGroup that have a place at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotEnoughGroups {
    /// The composite PodGroup.
    pub composite: ObjectKey,
    /// How many groups have a place.
    pub n_fitting: u32,
    /// How many start together.
    pub min: u32,
    /// What a domain is called, if they must be in one.
    pub domain: Option<Name>,
}

/// Why no topology domain holds enough tasks of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoDomain {
    /// The node label of the level.
    pub key: Name,
    /// What a domain is called.
    pub noun: Name,
    /// How many tasks have to find a place together.
    pub n_tasks: u32,
    /// The domain with most room for them; `None` if no node is in a domain.
    pub best: Option<BestDomain>,
}

/// The domain that holds most tasks of a job, which are too few.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BestDomain {
    /// Its name.
    pub name: Name,
    /// How many tasks of the job are there already; if any, it is the only domain that the job may use.
    pub n_there: u32,
    /// How many of those that have to find a place do.
    pub n_fitting: u32,
    /// Why the next one finds none.
    pub report: FitReport,
}

impl Failure {
    /// Why a task fits on no node, if that is known for each node.
    pub(crate) fn fit_report(&self) -> Option<&FitReport> {
        match self {
            Self::Unfit(report) | Self::Undecided(report) => Some(report),
            Self::NoDomain(failure) => failure.best.as_ref().map(|best| &best.report),
            Self::NeverFits(_)
            | Self::NotEnoughGroups(_)
            | Self::Capability(_)
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
        /// What a domain is called, if they must be in one.
        domain: Option<Name>,
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
