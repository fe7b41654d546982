//! The resources that lending must leave idle, and the jobs they are left for.
//!
//! Resources are withheld for a queue that holds less than it deserves, but only for jobs that they
//! can help: jobs whose minimum fits beside the pods of other schedulers, beside what their queue uses
//! into its capability, and into what their queue deserves. Another job withholds nothing.
//!
//! The work of finding these jobs is bounded for each queue, as that of its turns in vain, see [`crate::memory`]:
//! further jobs withhold nothing.
// Parity: new, see docs/parity.md#a9.

use kube_batch_model::{
    cluster::Cluster,
    column::{Column, Dim, JobIdx, Ordinal, QueueIdx, TaskIdx},
    resource::{Ledger, ResourceVector},
};

use crate::{candidates::Room, minimum::Minimum, plugin::Proposal, session::Session};

/// What must stay idle while idle resources are lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// For each queue, what is withheld for its jobs; for one with others below it, the most for them together.
    by_queue: Ledger<QueueIdx>,
    /// What must stay idle when this begins, by dimension.
    amounts: ResourceVector,
    /// For each dimension, the first task for which an amount is withheld.
    holders: Vec<Option<TaskIdx>>,
}

impl Withheld {
    /// What the waiting jobs of a session withhold.
    pub fn of(session: &mut Session) -> Self {
        let width = session.cluster().dimensions.len();
        let n_queues = session.cluster().queues.facts.len();
        let total = session.cluster().total();
        let mut placeable = Column::filled(ResourceVector::zero(width), n_queues);
        let mut holders = vec![None; width];
        let queues: Vec<QueueIdx> = session.cluster().queues.facts.ids().collect();
        for queue in queues {
            let shares = session.plugins().queue_shares(queue);
            let is_short = |dim: Dim| {
                let shares = shares.as_ref().filter(|shares| !shares.overused);
                shares.is_some_and(|shares| shares.allocated[dim] < shares.deserved[dim])
            };
            let dims = session.cluster().dimensions.ids();
            if shares.is_some() && !dims.into_iter().any(is_short) {
                continue;
            }
            let above = session.cluster().queues.tree.path(queue).skip(1);
            let of_above = above.filter_map(|queue| session.plugins().queue_shares(queue));
            let deserved = shares.iter().cloned().chain(of_above).map(|shares| shares.deserved);
            let deserved = deserved.collect();
            let limits = Limits { total: &total, deserved };
            let most_work = session.work().saturating_add(session.turn_log.part);
            for job in session.cluster().queues.jobs[queue].clone() {
                if session.work() > most_work {
                    break;
                }
                // What is reserved is not idle.
                if !session.has_waiting_tasks(job)
                    || session.reservation_of(job).is_some()
                    || !limits.admit(session, queue, job)
                {
                    continue;
                }
                for task in placeable_tasks(session, job) {
                    for (dim, amount) in session.cluster().request(task).amounts() {
                        placeable[queue][*dim] = placeable[queue][*dim].saturating_add(*amount);
                        if *amount > 0 && is_short(*dim) {
                            holders[dim.at()].get_or_insert(task);
                        }
                    }
                }
            }
        }
        let by_queue = session.plugins().withheld(&placeable);
        let mut withheld = Self { by_queue, amounts: ResourceVector::zero(width), holders };
        for dim in session.cluster().dimensions.shared() {
            withheld.amounts[dim] = withheld.sum(session, dim, None);
        }
        withheld
    }

    /// Nothing.
    pub fn none(session: &Session) -> Self {
        let width = session.cluster().dimensions.len();
        let n_queues = session.cluster().queues.facts.len();
        Self {
            by_queue: Ledger::zero(width, n_queues),
            amounts: ResourceVector::zero(width),
            holders: vec![None; width],
        }
    }

    /// What must stay idle of a resource; `without` this task, which has been placed.
    pub fn amount(&self, session: &Session, dim: Dim, without: Option<TaskIdx>) -> i64 {
        if session.guarantees.is_empty() {
            self.amounts[dim]
        } else {
            self.sum(session, dim, without)
        }
    }

    /// For each queue, the larger of what is withheld for its jobs, or for those below it together, and what it lacks of
    /// what it is guaranteed.
    // Parity: see docs/parity.md#q6.
    fn sum(&self, session: &Session, dim: Dim, without: Option<TaskIdx>) -> i64 {
        let cluster = session.cluster();
        let tree = &cluster.queues.tree;
        let lacks = session.guarantees.lacking_without(cluster, dim, without);
        let mut stays: Column<QueueIdx, i64> = Column::filled(0, cluster.queues.facts.len());
        let mut sum: i64 = 0;
        for queue in tree.parents_first().iter().rev() {
            let own = self.by_queue[*queue][dim];
            let of_jobs = if tree.is_leaf(*queue) { own } else { own.min(stays[*queue]) };
            let stay = of_jobs.max(lacks(*queue));
            match tree.parent(*queue) {
                Some(parent) => stays[parent] = stays[parent].saturating_add(stay),
                None => sum = sum.saturating_add(stay),
            }
        }
        sum
    }

    /// Whether anything must stay idle.
    pub fn is_any(&self) -> bool {
        self.amounts.iter().any(|amount| *amount > 0)
    }

    /// The first job for which some of a resource must stay idle.
    pub fn job(&self, session: &Session, dim: Dim) -> Option<JobIdx> {
        session.cluster().tasks.job[self.holders[dim.at()]?]
    }

    /// Whether a task that has just been placed may use what is withheld of a resource: because an
    /// action that reclaims, which runs in every cycle, could evict it for the task that waits.
    pub fn can_be_reclaimed(&self, session: &Session, victim: TaskIdx, dim: Dim) -> bool {
        let Some(preemptor) = self.holders[dim.at()] else { return false };
        let proposal = Proposal { preemptor, victim, evicted: &[] };
        session.reclaims()
            && !session.cluster().never_preempts(preemptor)
            && session.may_be_evicted_at_once(preemptor, victim)
            && session.plugins().reclaimable(&proposal)
            && !session.plugins().vetoes(&proposal)
    }
}

/// The waiting tasks of a job that would each fit on some node without other pods of kube-batch.
fn placeable_tasks(session: &mut Session, job: JobIdx) -> Vec<TaskIdx> {
    let cluster = session.cluster();
    let all = cluster.jobs.tasks[job].iter().filter(|task| cluster.is_waiting(*task));
    let mut tasks: Vec<TaskIdx> = all.collect();
    tasks.retain(|task| {
        let class = session.cluster().tasks.class[*task];
        session.search().is_placeable(class)
    });
    tasks
}

/// The amounts that the minimum of a job must fit into, by dimension.
struct Limits<'a> {
    /// What all nodes have.
    total: &'a ResourceVector,
    /// What the queues of the path of the job deserve; empty if no plugin computes that.
    deserved: Vec<ResourceVector>,
}

impl Limits<'_> {
    /// Whether the minimum of the job fits on a cluster without other pods of kube-batch, beside what
    /// its queue uses into the capability of the queue, and into what its queue deserves. An upper
    /// bound: see [`Session::count_placeable`].
    fn admit(&self, session: &mut Session, queue: QueueIdx, job: JobIdx) -> bool {
        let cluster = session.cluster();
        let minimum = Minimum::of(cluster, job);
        let total = cluster.dimensions.ids().map(|dim| (dim, self.total[dim]));
        let deserved = self
            .deserved
            .iter()
            .flat_map(|deserved| cluster.dimensions.shared().map(|dim| (dim, deserved[dim])));
        let queues = &cluster.queues;
        let path = queues.tree.path(queue);
        let capability = path.flat_map(|queue| queues.capability[queue].iter().copied());
        minimum.exceeded(cluster, total.chain(deserved).chain(capability)).is_none()
            && !self.is_capped(cluster, queue, job, &minimum)
            && minimum.count_placeable(session, Room::WithoutOwnPods) == minimum.n_tasks()
    }

    /// Whether a capability of the path of the queue makes the job wait until other jobs of the queue end.
    fn is_capped(
        &self,
        cluster: &Cluster,
        queue: QueueIdx,
        job: JobIdx,
        minimum: &Minimum,
    ) -> bool {
        let queues = &cluster.queues;
        !self.deserved.is_empty()
            && queues.tree.path(queue).any(|queue| {
                queues.capability[queue].iter().any(|(dim, limit)| {
                    let held = i128::from(queues.held[queue][*dim]);
                    let others = held - Minimum::held(cluster, job, *dim);
                    others + minimum.request(cluster, *dim) > i128::from(*limit)
                })
            })
    }
}
