//! Reports that hold from one cycle to the next, because nothing about their jobs has changed and nothing of them waits.
//!
//! Most jobs of a large cluster only run. Their reports are those of the cycle before, so that a cycle costs what has
//! changed.

use std::sync::Arc;

use kube_batch_model::{
    cluster::{Cluster, FormerRow},
    column::{Column, JobIdx},
    job_report::{JobReport, Phase},
    resource::Share,
    status::TaskStatus,
};

/// The reports of the last cycle, by the rows of its snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastReports {
    pub(crate) reports: Column<JobIdx, Arc<JobReport>>,
    /// Whether each is of a job that is settled, and whose status is written.
    is_settled: Column<JobIdx, bool>,
    /// The phase of each job that has a PodGroup.
    pub(crate) phase: Column<JobIdx, Option<Phase>>,
}

impl LastReports {
    /// None.
    pub(crate) const fn new() -> Self {
        Self { reports: Column::new(), is_settled: Column::new(), phase: Column::new() }
    }

    /// The report of a job in the last cycle with its phase, if the job is settled and nothing about it has changed. The
    /// cycle must not have moved its tasks.
    pub(crate) fn of_settled(
        &self,
        cluster: &Cluster,
        job: JobIdx,
        share: Option<Share>,
    ) -> Option<(&Arc<JobReport>, Option<Phase>)> {
        let FormerRow(former) = cluster.jobs.former[job];
        let former = former.filter(|row| self.is_settled.get(*row).copied().unwrap_or(false))?;
        let report = &self.reports[former];
        let holds = cluster.jobs.problem[job].is_none()
            && cluster.jobs.incomplete_for[job].is_none()
            && report.share == share;
        holds.then_some((report, self.phase[former]))
    }

    /// Adds the report of the next job, which has held since the last cycle.
    pub(crate) fn push_settled(&mut self, report: Arc<JobReport>, phase: Option<Phase>) {
        self.reports.push(report);
        self.is_settled.push(true);
        self.phase.push(phase);
    }

    /// Adds the report of the next job.
    pub(crate) fn push(&mut self, report: Arc<JobReport>, is_settled: bool) {
        self.is_settled.push(is_settled);
        self.phase.push(report.group.is_some().then_some(report.phase));
        self.reports.push(report);
    }
}

/// Whether nothing about a job can change its report but a change of its objects, of its share, or of what plugins say of
/// it: it has tasks, all of them run or have ended, and it has had no turn.
pub(crate) fn is_settled(cluster: &Cluster, job: JobIdx, report: &JobReport) -> bool {
    let counts = &cluster.jobs.counts[job];
    let settled =
        [TaskStatus::Bound, TaskStatus::Running, TaskStatus::Succeeded, TaskStatus::Failed];
    let n_settled: u32 = settled.into_iter().map(|status| counts.of(status)).sum();
    let n_tasks = cluster.jobs.tasks[job].len();
    n_tasks > 0
        && n_settled as usize == n_tasks
        && cluster.jobs.composites[job].is_none()
        && cluster.jobs.incomplete_for[job].is_none()
        && report.unschedulable.is_none()
        && report.unplaced.is_empty()
        && report.evicted.is_none()
        && report.waited_since.is_none()
        && report.warnings.is_empty()
        && !report.tried
}
