//! The log of moves of a session, from which indexes and orders catch up.

use kube_batch_model::column::{JobIdx, NodeIdx};

use super::Session;
use crate::move_log::LogPosition;

impl Session {
    /// The nodes and jobs whose tasks have moved since a position in the log of moves; and the position now.
    pub fn moved_since(&mut self, seen: LogPosition) -> (&[NodeIdx], &[JobIdx], LogPosition) {
        self.log.read = self.log.end();
        (&self.log.nodes[seen.nodes..], &self.log.jobs[seen.jobs..], self.log.end())
    }

    /// Number of moves of jobs so far.
    pub(crate) fn moves_logged(&self) -> usize {
        self.log.jobs.len()
    }

    /// Jobs whose tasks have moved since a position of the log.
    pub(crate) fn jobs_moved_since(&mut self, seen: usize) -> &[JobIdx] {
        self.log.read.jobs = self.log.jobs.len();
        &self.log.jobs[seen..]
    }

    pub(crate) fn log_end(&self) -> LogPosition {
        self.log.end()
    }

    pub(crate) fn roll_back_log(&mut self, position: LogPosition) {
        self.log.roll_back_to(position);
    }

    /// Logs that something about these nodes has changed.
    pub(crate) fn log_nodes(&mut self, nodes: impl IntoIterator<Item = NodeIdx>) {
        self.log.nodes.extend(nodes);
    }
}
