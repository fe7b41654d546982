//! Which tasks an action may evict.

use kube_batch_framework::{
    plugin::{JobProposal, Proposal},
    session::Session,
    withheld::Withheld,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, QueueIdx, TaskIdx},
    decision::EvictReason,
};

/// Which tasks an action may evict, and in which order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VictimPolicy<'a> {
    from: VictimsFrom,
    withheld: Option<&'a Withheld>,
}

/// Whose tasks they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VictimsFrom {
    /// Of the job of the task that gets their place.
    SameJob,
    /// Of other jobs of its queue.
    SameQueue,
    /// Of other queues, if the side of the task's queue has at most this number of queues.
    OtherQueues { most: usize },
}

impl<'a> VictimPolicy<'a> {
    /// Tasks of the same job. `withheld` is what must stay idle for other queues, if its queue is overused.
    pub(crate) const fn same_job(withheld: Option<&'a Withheld>) -> Self {
        Self { from: VictimsFrom::SameJob, withheld }
    }

    /// Tasks of other jobs of the queue; `withheld` as in [`Self::same_job`].
    pub(crate) const fn same_queue(withheld: Option<&'a Withheld>) -> Self {
        Self { from: VictimsFrom::SameQueue, withheld }
    }

    /// Tasks of other queues, for a queue that is not overused, as far as no queue on its side is: the first `most` queues of
    /// its path are not. `withheld` as in [`Self::same_job`], if one above them is.
    // Parity: see docs/parity.md#q7.
    pub(crate) const fn other_queues(most: usize, withheld: Option<&'a Withheld>) -> Self {
        Self { from: VictimsFrom::OtherQueues { most }, withheld }
    }

    /// The reason that is given for an eviction.
    pub(super) const fn reason(self) -> EvictReason {
        match self.from {
            VictimsFrom::SameJob | VictimsFrom::SameQueue => EvictReason::Preempt,
            VictimsFrom::OtherQueues { .. } => EvictReason::Reclaim,
        }
    }

    /// Whether the victims are of the task's own queue.
    ///
    /// If so, evicting them makes up for the task in the capability of the queue. If not, the
    /// victims of the queue with the highest share, as shares are now, are evicted first.
    pub(super) const fn is_in_queue(self) -> bool {
        match self.from {
            VictimsFrom::SameJob | VictimsFrom::SameQueue => true,
            VictimsFrom::OtherQueues { .. } => false,
        }
    }

    /// Whether the victims are of other jobs than the task.
    pub(super) const fn is_between_jobs(self) -> bool {
        match self.from {
            VictimsFrom::SameJob => false,
            VictimsFrom::SameQueue | VictimsFrom::OtherQueues { .. } => true,
        }
    }

    /// What must stay idle for other queues, if the queue is overused. `None` otherwise: the queue may
    /// use what it finds.
    pub(super) const fn withheld(self) -> Option<&'a Withheld> {
        self.withheld
    }

    /// Whether a task is a candidate at all, before plugins are called.
    pub(crate) fn considers(self, cluster: &Cluster, task: TaskIdx, victim: TaskIdx) -> bool {
        let has_same_job = cluster.tasks.job[victim] == cluster.tasks.job[task];
        let has_same_queue = || cluster.queue_of(victim) == cluster.queue_of(task);
        match self.from {
            VictimsFrom::SameJob => {
                has_same_job
                    && has_same_queue()
                    && cluster.tasks.priority[victim] < cluster.tasks.priority[task]
            }
            VictimsFrom::SameQueue => {
                let has_lower_priority = || has_lower_priority(cluster, victim, task);
                !has_same_job
                    && has_same_queue()
                    && (!cluster.request(task).is_best_effort() || has_lower_priority())
            }
            // A job's own tasks are never its victims, though they may count for another queue.
            VictimsFrom::OtherQueues { most } => {
                !has_same_job
                    && !has_same_queue()
                    && is_within(cluster, cluster.queue_of(task), cluster.queue_of(victim), most)
            }
        }
    }

    /// Whether the plugins permit the eviction.
    pub(crate) fn allows(self, session: &Session, proposal: &Proposal<'_>) -> bool {
        let plugins = session.plugins();
        let is_permitted = match self.is_in_queue() {
            true => plugins.preemptable(proposal),
            false => plugins.reclaimable(proposal),
        };
        is_permitted && !plugins.vetoes(proposal)
    }

    /// Whether a job, of which these tasks are on nodes, may be evicted as a whole, before plugins are called.
    // Parity: see docs/parity.md#p10.
    pub(crate) fn considers_job(
        self,
        cluster: &Cluster,
        task: TaskIdx,
        job: JobIdx,
        tasks: &[TaskIdx],
    ) -> bool {
        let has_same_queue = || cluster.queue_of_most(tasks) == cluster.queue_of(task);
        match self.from {
            // A job does not evict itself.
            VictimsFrom::SameJob => false,
            VictimsFrom::SameQueue => {
                cluster.jobs.priority[job] < cluster.priority_as_preemptor(task) && has_same_queue()
            }
            VictimsFrom::OtherQueues { most } => {
                Some(job) != cluster.tasks.job[task]
                    && !has_same_queue()
                    && is_within(
                        cluster,
                        cluster.queue_of(task),
                        cluster.queue_of_most(tasks),
                        most,
                    )
            }
        }
    }

    /// Whether the plugins permit that.
    pub(super) fn allows_job(self, session: &Session, proposal: &JobProposal<'_>) -> bool {
        let plugins = session.plugins();
        match self.from {
            VictimsFrom::SameJob => false,
            VictimsFrom::SameQueue => plugins.job_preemptable(proposal),
            VictimsFrom::OtherQueues { .. } => {
                // Without shares, two queues would evict each other's gangs in turn.
                let queue = session.cluster().queue_of(proposal.preemptor);
                let has_shares = queue.is_some_and(|queue| plugins.queue_shares(queue).is_some());
                has_shares && plugins.job_reclaimable(proposal)
            }
        }
    }
}

/// Whether the side of a queue towards another one has at most `most` queues.
fn is_within(
    cluster: &Cluster,
    own: Option<QueueIdx>,
    other: Option<QueueIdx>,
    most: usize,
) -> bool {
    let tree = &cluster.queues.tree;
    let Some(own) = own else { return true };
    other.map_or_else(|| tree.path(own).count(), |other| tree.sides(own, other)[0]) <= most
}

/// Whether the job of a victim has a lower priority than a task that preempts. Whatever the plugins say, this decides
/// about victims of best-effort tasks, which change no share.
fn has_lower_priority(cluster: &Cluster, victim: TaskIdx, task: TaskIdx) -> bool {
    let of_victim = cluster.tasks.job[victim].map_or(0, |job| cluster.jobs.priority[job]);
    of_victim < cluster.priority_as_preemptor(task)
}
