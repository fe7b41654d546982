//! Which jobs a cycle looks at one by one: see `session/active.rs`.

use std::collections::BTreeMap;

use kube_batch_model::{
    column::{Column, JobIdx},
    resource::Share,
};

/// The jobs that are looked at one by one.
#[derive(Debug)]
pub(crate) struct ActiveJobs {
    /// Ascending.
    rows: Vec<JobIdx>,
    is_active: Column<JobIdx, bool>,
    /// What the jobs that were added since the cycle began were like before.
    late: BTreeMap<JobIdx, AtOpening>,
}

/// What a job was like when the cycle began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtOpening {
    pub(crate) share: Option<Share>,
    pub(crate) had_started: bool,
}

impl ActiveJobs {
    pub(crate) fn new(rows: Vec<JobIdx>, n_jobs: usize) -> Self {
        let mut is_active = Column::filled(false, n_jobs);
        rows.iter().for_each(|job| is_active[*job] = true);
        Self { rows, is_active, late: BTreeMap::new() }
    }

    /// Ascending.
    pub(crate) fn rows(&self) -> &[JobIdx] {
        &self.rows
    }

    pub(crate) fn has(&self, job: JobIdx) -> bool {
        self.is_active[job]
    }

    /// Adds a job that was not active when the cycle began.
    pub(crate) fn add(&mut self, job: JobIdx, at_opening: AtOpening) {
        let place = self.rows.partition_point(|other| *other < job);
        self.rows.insert(place, job);
        self.is_active[job] = true;
        self.late.insert(job, at_opening);
    }

    /// What a job was like when the cycle began, if it was added since.
    pub(crate) fn late_opening(&self, job: JobIdx) -> Option<AtOpening> {
        self.late.get(&job).copied()
    }
}
