//! Which jobs get no turn because another one of their queue is before them.
// Parity: new, see docs/parity.md#q12.

use kube_batch_model::{
    column::{JobIdx, QueueIdx},
    facts::queue::QueueOrder,
};

use super::Session;

impl Session {
    /// Whether the jobs of a queue are served strictly in their order.
    pub(crate) fn is_strict(&self, queue: QueueIdx) -> bool {
        self.cluster.queues.facts[queue].order == QueueOrder::StrictFifo
    }

    /// Whether a job gets no turn because another one is before it.
    pub(crate) fn is_held_up(&self, job: JobIdx) -> bool {
        let queue = self.cluster.jobs.queue[job];
        let first = queue.and_then(|queue| self.strict_order.in_action(self.n_started, queue));
        first.is_some_and(|first| first != job)
    }

    /// The job because of which another one had no turn.
    pub(crate) fn held_up_by(&self, job: JobIdx) -> Option<JobIdx> {
        let first = self.strict_order.in_any_action(self.cluster.jobs.queue[job]?)?;
        (first != job && !self.was_tried(job)).then_some(first)
    }
}
