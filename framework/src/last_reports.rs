//! Reports that hold from one cycle to the next, because nothing about their jobs has changed and nothing of them waits.
//!
//! Most jobs of a large cluster only run. Their reports are those of the cycle before, and no part of a cycle looks at them
//! one by one, so that a cycle costs what has changed.

use std::{sync::Arc, vec};

use kube_batch_model::{
    cluster::{Cluster, FormerRow},
    column::{Column, JobIdx, Ordinal, QueueIdx},
    facts::queue::QueueFacts,
    job_report::{JobReport, Phase},
    problem::JobWarning,
    resource::ResourceVector,
    status::TaskStatus,
};

/// How long a report holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Until the next cycle.
    Once,
    /// Until something about the job changes: bindings of it are not confirmed yet, the rest of it runs or has ended.
    Bound,
    /// The same, and no part of a cycle needs to look at the job: all of it runs or has ended, and its status is written.
    Settled,
}

/// The reports of the last cycle, by the rows of its snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastReports {
    /// Shared with the result of the cycle.
    pub(crate) reports: Arc<Vec<Arc<JobReport>>>,
    standing: Column<JobIdx, Standing>,
    /// The phase of each job that its queue counts.
    pub(crate) phase: Column<JobIdx, Option<Phase>>,
    /// What all reports depend on.
    whole: Whole,
}

/// What the reports of all jobs depend on. If it changes, so may they.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Whole {
    /// What the share of a job may be a part of: with what pods of other schedulers use, and without.
    totals: [ResourceVector; 2],
    /// Whether other queues may reclaim from each queue.
    is_reclaimable: Vec<bool>,
}

impl Whole {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let queues = &cluster.queues;
        let n_children = queues.n_named();
        let n_leaves = queues.facts.ids().filter(|queue| n_children[*queue] == 0).count();
        let is_reclaimable = |facts: &Arc<QueueFacts>| n_leaves > 1 && !facts.not_reclaimable;
        Self {
            totals: [cluster.total(), cluster.total_for_jobs()],
            is_reclaimable: queues.facts.values().map(is_reclaimable).collect(),
        }
    }

    /// Whether other queues may reclaim from a queue.
    pub(crate) fn is_reclaimable(&self, queue: QueueIdx) -> bool {
        self.is_reclaimable[queue.at()]
    }
}

impl LastReports {
    /// The jobs of this snapshot at which a cycle has to look, ascending: those about which something has changed, and those
    /// that were not settled.
    pub(crate) fn unsettled(&self, cluster: &Cluster, whole: &Whole) -> Vec<JobIdx> {
        if self.standing.is_empty() || self.whole != *whole {
            return cluster.jobs.key.ids().collect();
        }
        let is_settled = |FormerRow(former): &FormerRow| {
            former.is_some_and(|row| self.standing.get(row) == Some(&Standing::Settled))
        };
        let unsettled = cluster.jobs.former.iter().filter(|(_, former)| !is_settled(former));
        let unsettled: Vec<JobIdx> = unsettled.map(|(job, _)| job).collect();
        debug_assert!(
            cluster.jobs.key.ids().all(|job| {
                unsettled.binary_search(&job).is_ok() || has_no_problem(cluster, job)
            }),
            "nothing has changed about the other jobs"
        );
        unsettled
    }

    /// The reports that hold, to be taken in the order of their rows.
    pub(crate) fn into_held(self) -> HeldReports {
        let Self { reports, standing, phase, whole: _ } = self;
        // They are shared only with those who still look at the last cycle.
        let reports = Arc::try_unwrap(reports).unwrap_or_else(|shared| (*shared).clone());
        HeldReports { reports: reports.into_iter(), next: 0, standing, phase }
    }
}

fn has_no_problem(cluster: &Cluster, job: JobIdx) -> bool {
    cluster.jobs.problem[job].is_none() && cluster.jobs.incomplete_for[job].is_none()
}

/// Whether a queue counts a job: it has a PodGroup, or its pods start together without one.
// Parity: see docs/parity.md#e5.
fn is_gang(report: &JobReport) -> bool {
    report.group.is_some() || report.min_available > 1
}

/// A report, its phase if its queue counts the job, and how long it holds.
pub(crate) type HeldReport = (Arc<JobReport>, Option<Phase>, Standing);

/// The reports of the last cycle that were not taken yet.
pub(crate) struct HeldReports {
    reports: vec::IntoIter<Arc<JobReport>>,
    /// The row of the first of them.
    next: usize,
    standing: Column<JobIdx, Standing>,
    phase: Column<JobIdx, Option<Phase>>,
}

impl HeldReports {
    /// The report of a job about which nothing has changed, if it holds. Jobs keep their order, so rows are asked for in
    /// ascending order.
    pub(crate) fn take(&mut self, cluster: &Cluster, job: JobIdx) -> Option<HeldReport> {
        let FormerRow(former) = cluster.jobs.former[job];
        let former = former?;
        let standing = *self.standing.get(former)?;
        if standing == Standing::Once || !has_no_problem(cluster, job) {
            return None;
        }
        let report = self.reports.nth(former.at().checked_sub(self.next)?)?;
        self.next = former.at() + 1;
        Some((report, self.phase[former], standing))
    }
}

/// The reports of this cycle, as they are made.
pub(crate) struct NextReports {
    reports: Vec<Arc<JobReport>>,
    standing: Column<JobIdx, Standing>,
    phase: Column<JobIdx, Option<Phase>>,
}

impl NextReports {
    pub(crate) fn with_capacity(n_jobs: usize) -> Self {
        let reports = Vec::with_capacity(n_jobs);
        Self { reports, standing: Column::new(), phase: Column::new() }
    }

    /// Adds the report of the next job, which has held since the last cycle.
    pub(crate) fn push_held(&mut self, (report, phase, standing): HeldReport) {
        self.reports.push(report);
        self.standing.push(standing);
        self.phase.push(phase);
    }

    /// Adds the report of the next job.
    pub(crate) fn push(&mut self, report: Arc<JobReport>, standing: Standing) {
        self.standing.push(standing);
        self.phase.push(is_gang(&report).then_some(report.phase));
        self.reports.push(report);
    }

    pub(crate) fn done(self, whole: Whole) -> LastReports {
        let Self { reports, standing, phase } = self;
        LastReports { reports: Arc::new(reports), standing, phase, whole }
    }
}

/// How long the report of a job holds. If nothing about it waits, only a change of its objects, of its share, or of what
/// plugins say of it can change its report.
pub(crate) fn standing(
    cluster: &Cluster,
    job: JobIdx,
    report: &JobReport,
    is_written: bool,
) -> Standing {
    let counts = &cluster.jobs.counts[job];
    let settled =
        [TaskStatus::Bound, TaskStatus::Running, TaskStatus::Succeeded, TaskStatus::Failed];
    let n_settled: u32 = settled.into_iter().map(|status| counts.of(status)).sum();
    let n_binding = counts.of(TaskStatus::Binding);
    let n_tasks = cluster.jobs.tasks[job].len();
    let holds = n_tasks > 0
        && (n_settled + n_binding) as usize == n_tasks
        && has_no_problem(cluster, job)
        && cluster.jobs.composites[job].is_none()
        && report.unschedulable.is_none()
        && report.unplaced.is_empty()
        && report.evicted.is_none()
        && report.waited_since.is_none()
        && report.warnings.iter().all(JobWarning::follows_from_job)
        && !report.tried;
    match holds {
        false => Standing::Once,
        true if n_binding > 0 || !is_written => Standing::Bound,
        true => Standing::Settled,
    }
}
