//! Queues in which no job goes before one that waits.
//!
//! After a job of such a queue that lacks its minimum has had a turn, the jobs behind it get none in the same action. A job
//! that never fits and one that has nominations block no other job.
// Parity: new, see docs/parity.md#q12.

use std::collections::BTreeMap;

use kube_batch_model::column::{JobIdx, QueueIdx};

/// The jobs that hold up those behind them.
#[derive(Debug, Default)]
pub(crate) struct StrictOrder {
    /// How many actions had begun.
    n_started: usize,
    /// In the action that runs.
    now: BTreeMap<QueueIdx, JobIdx>,
    /// In any action.
    ever: BTreeMap<QueueIdx, JobIdx>,
}

impl StrictOrder {
    /// The first job of a queue, if it holds up others in the action of this number.
    pub(crate) fn in_action(&self, n_started: usize, queue: QueueIdx) -> Option<JobIdx> {
        self.now.get(&queue).filter(|_| self.n_started == n_started).copied()
    }

    /// The first job of a queue, if it has held up others.
    pub(crate) fn in_any_action(&self, queue: QueueIdx) -> Option<JobIdx> {
        self.ever.get(&queue).copied()
    }

    /// Has a job hold up those of its queue in the action of this number.
    pub(crate) fn hold_up(&mut self, n_started: usize, queue: QueueIdx, job: JobIdx) {
        if self.n_started != n_started {
            self.now.clear();
            self.n_started = n_started;
        }
        self.now.insert(queue, job);
        self.ever.insert(queue, job);
    }
}
