//! Moves of tasks in a session.

use kube_batch_model::{column::TaskIdx, decision::EvictReason, status::Placement};

/// One move of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) task: TaskIdx,
    pub(crate) from: Placement,
    pub(crate) intent: Intent,
}

/// What a move becomes once it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Allocate,
    Pipeline,
    Evict(EvictReason),
}

impl Move {
    /// The task that was moved.
    pub(crate) const fn task(&self) -> TaskIdx {
        self.task
    }

    /// Whether the task waits for resources that are being released.
    pub(crate) const fn is_pipeline(&self) -> bool {
        matches!(self.intent, Intent::Pipeline)
    }
}
