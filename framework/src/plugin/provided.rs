//! Interfaces that at most one plugin of a configuration provides, such as the shares of queues.

use std::fmt;

use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, CompositeIdx, Dim, JobIdx, QueueIdx, TaskIdx},
    decision::{ClaimChoice, DeviceChoice},
    name::ObjectKey,
    reason::Unfit,
    resource::{Ledger, ResourceVector, Share},
};
use serde::{Deserialize, Serialize};

use super::{
    dependency::OrderScope,
    victims::{JobProposal, Proposal},
};
use crate::topology::{JobLevel, JobTopology};

/// What a plugin provides, as [`Plugin::provides`](super::Plugin::provides) returns it.
///
/// A configuration with two plugins that provide the same thing is rejected.
#[derive(Clone, Copy, Default)]
pub struct Provided<'p> {
    /// What queues deserve. Without it, no queue is overused, and none reclaims whole gangs.
    pub shares: Option<&'p dyn Shares>,
    /// The shares of jobs. Without it, a report has none.
    pub job_shares: Option<&'p dyn JobShares>,
    /// The topology that jobs ask for. Without it, a job that requires one is not scheduled.
    pub topology: Option<&'p dyn Topology>,
    /// What claims get. Without it, no volume and no device is chosen.
    pub claims: Option<&'p dyn Claims>,
    /// Disruption budgets. Without it, none is considered.
    pub budgets: Option<&'p dyn Budgets>,
}

/// One of the things that [`Provided`] has a field for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provision {
    /// [`Provided::shares`]
    Shares,
    /// [`Provided::job_shares`]
    JobShares,
    /// [`Provided::topology`]
    Topology,
    /// [`Provided::claims`]
    Claims,
    /// [`Provided::budgets`]
    Budgets,
}

impl Provision {
    /// All, in the order of [`Provided`].
    pub const ALL: [Self; 5] =
        [Self::Shares, Self::JobShares, Self::Topology, Self::Claims, Self::Budgets];

    /// Whether it is among what a plugin provides.
    pub const fn is_in(self, provided: &Provided<'_>) -> bool {
        match self {
            Self::Shares => provided.shares.is_some(),
            Self::JobShares => provided.job_shares.is_some(),
            Self::Topology => provided.topology.is_some(),
            Self::Claims => provided.claims.is_some(),
            Self::Budgets => provided.budgets.is_some(),
        }
    }
}

impl fmt::Display for Provision {
    /// What is provided: `the shares of queues`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shares => "the shares of queues",
            Self::JobShares => "the shares of jobs",
            Self::Topology => "the topology of jobs",
            Self::Claims => "what claims get",
            Self::Budgets => "disruption budgets",
        })
    }
}

/// What queues deserve of the cluster, and what they hold of it.
pub trait Shares {
    /// Whether the queue or one above it uses at least what it deserves, in a resource that waiting tasks of the queue request.
    /// The action `allocate` serves an overused queue only after all other queues, from resources that
    /// are not withheld for them. The action `reclaim` does not serve it.
    /// Returns that of them which is nearest to the queue.
    fn overused(&self, cluster: &Cluster, queue: QueueIdx) -> Option<QueueIdx>;

    /// What each queue is guaranteed of what it deserves.
    // Parity: new, see docs/parity.md#q4.
    fn guaranteed(&self) -> &Ledger<QueueIdx>;

    /// Whether a job requests a resource of which a queue of its path deserves nothing although the cluster has some: it is
    /// then served only from what is lent.
    // Parity: new, see docs/parity.md#q6.
    fn gets_loans_only(&self, cluster: &Cluster, job: JobIdx) -> bool;

    /// Whether the queue or one above it, but not above `other`, uses more than it deserves, in a resource that the job
    /// requests.
    fn exceeds_deserved(
        &self,
        cluster: &Cluster,
        queue: QueueIdx,
        job: JobIdx,
        other: Option<QueueIdx>,
    ) -> bool;

    /// How much of a resource the queue or one above it uses at most above what it deserves; negative if all use less.
    fn excess(&self, cluster: &Cluster, queue: QueueIdx, dim: Dim) -> i64;

    /// How much of a resource the queue holds above what it deserves; negative if it holds less. For a vote that depends
    /// on [`VictimScope::QUEUE`](super::VictimScope::QUEUE), a victim may be evicted if, of some resource that both it
    /// and the preemptor request, it and the other victims of its queue hold no more than this.
    fn spare(&self, cluster: &Cluster, queue: QueueIdx, dim: Dim) -> i64;

    /// The resources to keep idle for each queue below its fair share while overused queues borrow; for a queue with others
    /// below it, the most that is kept for these together.
    ///
    /// `placeable` is, for each queue, the sum of the requests of its waiting tasks that would each fit
    /// on some node of an empty cluster. It may exceed the cluster.
    // Parity: new, see docs/parity.md#a9 and docs/parity.md#q6.
    fn withheld(
        &self,
        cluster: &Cluster,
        placeable: &Column<QueueIdx, ResourceVector>,
    ) -> Ledger<QueueIdx>;

    /// The share of a queue, without the tasks in `evicted`.
    fn queue_share(&self, cluster: &Cluster, queue: QueueIdx, evicted: &[TaskIdx]) -> Share;

    /// What each queue would deserve if it, and all leaves that have jobs, requested all that there is.
    // Parity: see docs/parity.md#q15.
    fn fair_shares(&self, cluster: &Cluster) -> Ledger<QueueIdx>;

    /// The amounts behind the share of a queue.
    fn queue_shares(&self, cluster: &Cluster, queue: QueueIdx) -> QueueShares;
}

/// The amounts from which the share of a queue is computed, for status, reports and metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueShares {
    /// What the queue deserves.
    pub deserved: ResourceVector,
    /// What of that is kept free for it.
    pub guaranteed: ResourceVector,
    /// What its tasks hold.
    pub allocated: ResourceVector,
    /// What its tasks hold or request.
    pub request: ResourceVector,
    /// What its waiting tasks request.
    pub pending: ResourceVector,
    /// The maximum of `allocated / deserved` over all resources.
    pub share: Share,
    /// Whether it holds at least what it deserves, in a resource that its waiting tasks request.
    pub overused: bool,
}

/// The shares by which jobs are ordered.
pub trait JobShares {
    /// The share of a job. Of stale gangs, the one with the smallest is evicted.
    fn job_share(&self, job: JobIdx) -> Share;

    /// What the shares depend on. With [`OrderScope::Own`], that of a job depends only on what its tasks hold, and on what all
    /// nodes and devices have, with or without what pods of other schedulers use.
    ///
    /// The default is correct for every plugin, but slow: each cycle looks at every job.
    fn share_scope(&self) -> OrderScope {
        OrderScope::Anything
    }
}

/// Which levels of the topology jobs ask for, and where their tasks are. The actions choose the domain.
pub trait Topology {
    /// The topology levels that the job asks for, and where its tasks are; `None` if it asks for none.
    fn topology(&self, job: JobIdx) -> Option<&JobTopology>;

    /// The level of which a composite PodGroup requires one domain for all its tasks, and where these are; `None`
    /// if it requires none.
    fn level_of_composite(&self, composite: CompositeIdx) -> Option<&JobLevel>;
}

/// What claims for volumes and devices get. Its plugin has the predicates about claims, so it is asked only while
/// its extension point `enablePredicate` is enabled.
pub trait Claims {
    /// The volumes chosen for the unbound claims of a task that has been placed. Called when the
    /// task is bound.
    fn claim_choices(&self, cluster: &Cluster, task: TaskIdx) -> Vec<ClaimChoice>;

    /// What is to be written to the claims for devices of a task that has been placed. Called when the task is
    /// bound.
    fn device_choices(&self, task: TaskIdx) -> Vec<DeviceChoice>;

    /// Whether a nominated task waits on its node even if its class fits there now, because what was chosen for it
    /// there in an earlier cycle, such as devices, is not free yet.
    fn must_wait(&self, task: TaskIdx) -> bool;

    /// How many alternatives a choice has that a placement of a task of the class makes, as of `firstAvailable`
    /// devices; 1 if there is nothing to choose. See
    /// [`Prescription::Alternative`](super::Prescription::Alternative).
    fn n_alternatives(&self, cluster: &Cluster, class: ClassIdx) -> usize;

    /// The text of a reason that a predicate about claims gave for the class, if it depends on more than the reason.
    fn reason_text(&self, cluster: &Cluster, class: ClassIdx, reason: Unfit) -> Option<String>;

    /// The claims for devices to deallocate, at most one for each waiting task: the task cannot use its devices, and
    /// no other pod uses the claim. `is_refused` says whether a job waits because some node cannot use
    /// the devices of a claim. Called at the end of a cycle, also if predicates are disabled.
    fn claims_to_deallocate(
        &self,
        cluster: &Cluster,
        is_refused: &dyn Fn(JobIdx) -> bool,
    ) -> Vec<(TaskIdx, ObjectKey)>;

    /// Whether some of the work has been postponed to the next cycle, because there is a limit for each. No job
    /// is then remembered as hopeless, and another cycle follows at once. Called also if predicates are disabled.
    fn has_postponed(&self) -> bool;
}

/// Disruption budgets. No extension point disables them.
pub trait Budgets {
    /// Whether a budget counts an eviction of the task. If none does, the answers about it are no.
    fn may_veto(&self, cluster: &Cluster, victim: TaskIdx) -> bool;

    /// Which of some evictions, made in this order, a budget does not allow: one answer for each victim, or none at
    /// all if there are no budgets. The cluster still shows the victims as running.
    fn violates_budget(&self, cluster: &Cluster, victims: &[TaskIdx]) -> Vec<bool>;

    /// Whether the victim must not be evicted for another task, whatever plugins vote.
    fn vetoes(&self, cluster: &Cluster, proposal: &Proposal<'_>) -> bool;

    /// Whether some task of the job must not be evicted, if all are evicted together.
    fn vetoes_job(&self, cluster: &Cluster, proposal: &JobProposal<'_>) -> bool;
}
