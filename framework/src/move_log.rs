//! The nodes and jobs of all moves of a session, in order: indexes and orders catch up from it.

use kube_batch_model::column::{JobIdx, NodeIdx};

/// The nodes and jobs of all moves, in order.
#[derive(Debug, Default)]
pub(crate) struct MoveLog {
    pub(crate) nodes: Vec<NodeIdx>,
    pub(crate) jobs: Vec<JobIdx>,
    /// Entries up to here have been read and must not be removed.
    pub(crate) read: LogPosition,
}

/// A position in the log of moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    pub(crate) nodes: usize,
    pub(crate) jobs: usize,
}

impl MoveLog {
    pub(crate) fn end(&self) -> LogPosition {
        LogPosition { nodes: self.nodes.len(), jobs: self.jobs.len() }
    }

    /// Removes the entries of moves that have been rolled back, unless they have been read.
    pub(crate) fn roll_back_to(&mut self, position: LogPosition) {
        if self.read.nodes <= position.nodes && self.read.jobs <= position.jobs {
            self.nodes.truncate(position.nodes);
            self.jobs.truncate(position.jobs);
        }
    }
}
