//! The jobs that a cycle looks at one by one.
//!
//! Of the others, nothing has changed since their last report, and nothing waits: see
//! [`LastReports`](crate::last_reports::LastReports). They are still there for sums, and as victims; one of whose tasks is
//! moved is looked at from then on.

use std::collections::BTreeMap;

use kube_batch_model::{
    column::{Column, JobIdx, TaskIdx},
    resource::Share,
};

use super::Session;

/// The jobs that are looked at one by one.
#[derive(Debug)]
pub(super) struct ActiveJobs {
    /// Ascending.
    rows: Vec<JobIdx>,
    is_active: Column<JobIdx, bool>,
    /// What those were like that became active since the cycle began, before they were moved.
    late: BTreeMap<JobIdx, AtOpening>,
}

/// What a job was like when the cycle began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtOpening {
    pub(crate) share: Option<Share>,
    pub(crate) had_started: bool,
}

impl ActiveJobs {
    pub(super) fn new(rows: Vec<JobIdx>, n_jobs: usize) -> Self {
        let mut is_active = Column::filled(false, n_jobs);
        rows.iter().for_each(|job| is_active[*job] = true);
        Self { rows, is_active, late: BTreeMap::new() }
    }
}

impl Session {
    /// The jobs of which something waits, or has changed since their last report, ascending. All others run or have ended.
    pub fn active_jobs(&self) -> &[JobIdx] {
        &self.active.rows
    }

    pub(crate) fn is_active(&self, job: JobIdx) -> bool {
        self.active.is_active[job]
    }

    /// The active jobs that wait, ascending.
    pub(crate) fn waiting_jobs(&self) -> impl Iterator<Item = JobIdx> {
        self.active_jobs().iter().copied().filter(|job| self.has_waiting_tasks(*job))
    }

    /// Makes the job of a task active that is about to be moved.
    pub(super) fn activate(&mut self, task: TaskIdx) {
        let Some(job) = self.cluster.tasks.job[task].filter(|job| !self.is_active(*job)) else {
            return;
        };
        let at_opening = self.as_it_is(job);
        let place = self.active.rows.partition_point(|other| *other < job);
        self.active.rows.insert(place, job);
        self.active.is_active[job] = true;
        self.active.late.insert(job, at_opening);
    }

    /// What a job is like now.
    pub(crate) fn as_it_is(&self, job: JobIdx) -> AtOpening {
        AtOpening {
            share: self.plugins().job_share(job),
            had_started: self.ready(job).have_started(),
        }
    }

    /// What a job was like when the cycle began, if it has become active since.
    pub(crate) fn late_opening(&self, job: JobIdx) -> Option<AtOpening> {
        self.active.late.get(&job).copied()
    }
}
