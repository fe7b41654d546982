//! The jobs that a cycle looks at one by one.
//!
//! Of the others, nothing has changed since their last report, and nothing waits: see
//! [`LastReports`](crate::last_reports::LastReports). They are still there for sums, and as victims; one of whose tasks is
//! moved is looked at from then on.

use kube_batch_model::column::{JobIdx, TaskIdx};

use super::Session;
use crate::active_jobs::AtOpening;

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
