//! How much may be lost for what a job needs.
//!
//! Compares what victims request with what the waiting jobs of the preemptor's queue can use, both of the scarce
//! resource: the one of which what will be idle is enough for the fewest tasks of the preemptor.
// Parity: new, see docs/parity.md#p15.

use kube_batch_framework::session::Session;
use kube_batch_model::{
    cluster::Cluster,
    column::{Dim, JobIdx, QueueIdx, TaskIdx},
    resource::ResourceVector,
};

use super::policy::VictimPolicy;

/// Which gangs may be evicted. The narrower one is tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bound {
    /// Those whose loss is in proportion, and in reclaim those of queues that can spare them.
    Preferred,
    /// All that may be evicted at all: in reclaim, the loss must be in proportion.
    Widest,
}

/// What the waiting jobs of a queue can use, and the largest accepted ratio of what is lost to that.
#[derive(Clone, Debug)]
pub(super) struct Need {
    usable: ResourceVector,
    max_ratio: i64,
}

/// What the waiting jobs of a queue can use of one resource, and the most that may be lost of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NeedOf {
    pub(super) dim: Dim,
    pub(super) usable: i64,
    /// The most that may be evicted: `usable` times the ratio.
    pub(super) most: i64,
}

impl Need {
    /// What the queue of a job needs now; `None` if any loss is accepted. In reclaim, it is no more than what the
    /// queue deserves and does not hold.
    pub(super) fn of(policy: VictimPolicy<'_>, session: &Session, job: JobIdx) -> Option<Self> {
        let max_ratio = session.plugins().max_loss()?;
        let cluster = session.cluster();
        let shares = session.plugins().queue_shares(cluster.jobs.queue[job]?)?;
        let usable = |dim: Dim| {
            let owed = shares.deserved[dim] - shares.allocated[dim];
            let limit = if policy.is_in_queue() { i64::MAX } else { owed.max(0) };
            shares.pending[dim].min(limit)
        };
        Some(Self {
            usable: cluster.dimensions.ids().map(usable).collect(),
            max_ratio: i64::from(max_ratio),
        })
    }

    pub(super) fn of_resource(&self, dim: Dim) -> NeedOf {
        let usable = self.usable[dim];
        NeedOf { dim, usable, most: usable.saturating_mul(self.max_ratio) }
    }
}

impl NeedOf {
    /// Whether these tasks may be evicted together. Some of them may be evicted already.
    pub(super) fn admits(
        self,
        policy: VictimPolicy<'_>,
        session: &Session,
        bound: Bound,
        tasks: &[TaskIdx],
    ) -> bool {
        let is_within = self.is_in_proportion(session.cluster(), tasks);
        match bound {
            Bound::Preferred if policy.is_in_queue() => is_within,
            Bound::Preferred => is_within && !self.leaves_short(session, tasks),
            Bound::Widest => policy.is_in_queue() || is_within,
        }
    }

    pub(super) fn is_in_proportion(self, cluster: &Cluster, tasks: &[TaskIdx]) -> bool {
        self.amount(cluster, tasks) <= self.most
    }

    pub(super) fn amount(self, cluster: &Cluster, tasks: &[TaskIdx]) -> i64 {
        let amounts = tasks.iter().map(|task| cluster.request(*task).get(self.dim));
        amounts.fold(0, i64::saturating_add)
    }

    /// Whether evicting these tasks leaves a queue below what it deserves by more than `usable`.
    fn leaves_short(self, session: &Session, tasks: &[TaskIdx]) -> bool {
        let cluster = session.cluster();
        let mut queues: Vec<QueueIdx> =
            tasks.iter().filter_map(|task| cluster.queue_of(*task)).collect();
        queues.sort_unstable();
        queues.dedup();
        queues.into_iter().any(|queue| {
            let to_leave: Vec<TaskIdx> = tasks
                .iter()
                .copied()
                .filter(|task| cluster.queue_of(*task) == Some(queue))
                .filter(|task| cluster.status(*task).may_be_evicted())
                .collect();
            let spare = session.plugins().spare(queue, self.dim);
            spare.is_some_and(|spare| self.amount(cluster, &to_leave) - spare > self.usable)
        })
    }
}
