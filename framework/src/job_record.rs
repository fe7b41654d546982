//! What a cycle records of a job: whether it had a turn, how much of it fits, and why the rest does not.

use std::{
    ops::{Index, IndexMut},
    sync::Arc,
};

use kube_batch_model::column::{Column, JobIdx};

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

/// What a cycle has recorded of all jobs. Of most there is nothing.
#[derive(Debug)]
pub(crate) struct JobRecords {
    /// The first one is that of all jobs of which nothing is recorded.
    records: Vec<JobRecord>,
    at: Column<JobIdx, u32>,
}

impl JobRecords {
    pub(crate) fn new(n_jobs: usize) -> Self {
        Self { records: vec![JobRecord::default()], at: Column::filled(0, n_jobs) }
    }

    pub(crate) fn has_some(&self, job: JobIdx) -> bool {
        self.at[job] != 0
    }
}

impl Index<JobIdx> for JobRecords {
    type Output = JobRecord;

    fn index(&self, job: JobIdx) -> &JobRecord {
        &self.records[self.at[job] as usize]
    }
}

impl IndexMut<JobIdx> for JobRecords {
    fn index_mut(&mut self, job: JobIdx) -> &mut JobRecord {
        if self.at[job] == 0 {
            self.at[job] =
                u32::try_from(self.records.len()).expect("there are fewer jobs than 2^32");
            self.records.push(JobRecord::default());
        }
        &mut self.records[self.at[job] as usize]
    }
}

/// Why a task of a job could not be placed, and in which action.
#[derive(Debug)]
pub struct RecordedFailure {
    pub(crate) failure: Arc<Failure>,
    pub(crate) action: &'static str,
}
