//! What a cycle records of a job: whether it had a turn, how much of it fits, and why the rest does not.

use std::sync::Arc;

use crate::failure::{Failure, RefusedGang};

/// What a cycle has recorded of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobRecord {
    /// Why the first task that could not be placed was not placed.
    pub(crate) failure: Option<Arc<Failure>>,
    /// In which action that was.
    pub(crate) failed_in: &'static str,
    /// The first action in which it had a turn.
    pub(crate) tried_in: Option<&'static str>,
    /// The largest number of its tasks that had a place at the same time, by action.
    pub(crate) fitting: Vec<(&'static str, u32)>,
    /// The smallest gang that `gang.maxLoss` protects from it.
    pub(crate) refused: Option<RefusedGang>,
}

/// Why a task of a job could not be placed, and in which action.
#[derive(Debug)]
pub struct RecordedFailure {
    pub(crate) failure: Arc<Failure>,
    pub(crate) action: &'static str,
}
