//! Which tasks an action may evict.

use kube_batch_framework::{
    plugin::{JobProposal, Proposal},
    session::Session,
    withheld::Withheld,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, TaskIdx},
    decision::EvictReason,
};

/// Which tasks an action may evict, and in which order.
pub(crate) trait VictimPolicy {
    /// The reason that is given for an eviction.
    const REASON: EvictReason;

    /// Whether the victims are of the task's own queue.
    ///
    /// If so, evicting them makes up for the task in the capability of the queue. If not, the
    /// victims of the queue with the highest share, as shares are now, are evicted first.
    const SAME_QUEUE: bool;

    /// Whether the victims are of other jobs than the task.
    const OTHER_JOBS: bool;

    /// Whether a task is a candidate at all, before plugins are called.
    fn considers(&self, cluster: &Cluster, task: TaskIdx, victim: TaskIdx) -> bool;

    /// Whether the plugins permit the eviction.
    fn allows(&self, session: &Session, proposal: &Proposal<'_>) -> bool;

    /// Whether a job, of which these tasks are on nodes, may be evicted as a whole, before plugins are called.
    fn considers_job(
        &self,
        cluster: &Cluster,
        task: TaskIdx,
        job: JobIdx,
        tasks: &[TaskIdx],
    ) -> bool;

    /// Whether the plugins permit that.
    fn allows_job(&self, session: &Session, proposal: &JobProposal<'_>) -> bool;

    /// What must stay idle for other queues, if the queue is overused. `None` otherwise: the queue may
    /// use what it finds.
    fn withheld(&self) -> Option<&Withheld>;
}
