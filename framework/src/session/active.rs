//! The jobs that a cycle looks at one by one.
//!
//! Of the others, nothing has changed since their last report, and nothing waits: see
//! [`LastReports`](crate::last_reports::LastReports). They still count in sums, and their tasks
//! can be victims. Once a task of such a job is moved, the job is active too.

use kube_batch_model::column::{JobIdx, TaskIdx};

use super::Session;
use crate::active_jobs::AtOpening;

impl Session {
    /// The jobs of which something waits, or has changed since their last report, ascending. All others run or have ended.
    pub fn active_jobs(&self) -> &[JobIdx] {
        self.active.rows()
    }

    pub(crate) fn is_active(&self, job: JobIdx) -> bool {
        self.active.has(job)
    }

    /// The active jobs that wait, ascending.
    pub(crate) fn waiting_jobs(&self) -> impl Iterator<Item = JobIdx> {
        self.active_jobs().iter().copied().filter(|job| self.has_waiting_tasks(*job))
    }

    /// Makes the job of a task active. Called before the task is moved.
    pub(super) fn activate(&mut self, task: TaskIdx) {
        let Some(job) = self.cluster.tasks.job[task].filter(|job| !self.is_active(*job)) else {
            return;
        };
        let at_opening = self.as_it_is(job);
        self.active.add(job, at_opening);
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
        self.active.late_opening(job)
    }
}
