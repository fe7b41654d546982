//! Which Jobs of `batch` fail when some of their pods are evicted.
// Parity: new, see docs/parity.md#p16.

use std::{collections::BTreeMap, sync::Arc};

use super::Cluster;
use crate::{
    column::{JobIdx, TaskIdx},
    facts::{
        ControllerRef,
        batch_job::{BatchJobFacts, OnEviction},
        pod::TaskFacts,
    },
    name::Name,
    status::TaskStatus,
};

impl Cluster {
    /// The Job that controls a task, if it may fail because of evictions.
    fn fragile_job(&self, task: TaskIdx) -> Option<(JobIdx, &Arc<BatchJobFacts>)> {
        let job = self.tasks.job[task]?;
        let batch = &self.jobs.batch[job];
        if batch.is_empty() {
            return None;
        }
        let uid = &self.tasks.facts[task].controller.as_ref()?.uid;
        let own = batch.iter().find(|own| own.uid == *uid)?;
        (own.on_eviction != OnEviction::Survives).then_some((job, own))
    }

    /// Whether a Job that controls a task may fail because of evictions.
    pub fn may_fail_job(&self, task: TaskIdx) -> bool {
        self.fragile_job(task).is_some()
    }

    /// The number of Jobs that fail if these tasks are evicted, and do not otherwise.
    pub fn n_failing_jobs(&self, tasks: &[TaskIdx]) -> usize {
        let mut of_jobs: BTreeMap<(JobIdx, &Name), Leaving<'_>> = BTreeMap::new();
        for task in tasks {
            let Some((job, own)) = self.fragile_job(*task) else { continue };
            let leaving = of_jobs.entry((job, &own.uid));
            leaving.or_insert_with(|| Leaving::of(own)).add(&self.tasks.facts[*task]);
        }
        let fails = |((job, _), leaving): (&(JobIdx, &Name), &Leaving<'_>)| {
            let before = self.terminating_of(*job, leaving.own);
            !before.fail_job() && before.and(leaving).fail_job()
        };
        of_jobs.iter().filter(|own| fails(*own)).count()
    }

    /// Whether the Job of a task fails if the task is evicted after these, and does not otherwise.
    pub fn fails_job(&self, task: TaskIdx, evicted: &[TaskIdx]) -> bool {
        let Some((job, own)) = self.fragile_job(task) else { return false };
        let mut leaving = self.terminating_of(job, own);
        let is_beside =
            |other: &&TaskIdx| self.fragile_job(**other).is_some_and(|(_, of)| of.uid == own.uid);
        let beside = evicted.iter().filter(is_beside);
        beside.for_each(|other| leaving.add(&self.tasks.facts[*other]));
        let fails_already = leaving.fail_job();
        leaving.add(&self.tasks.facts[task]);
        !fails_already && leaving.fail_job()
    }

    /// Whether the Job of a task fails by the tasks that are being terminated.
    pub fn is_job_failing(&self, task: TaskIdx) -> bool {
        let own = self.fragile_job(task);
        own.is_some_and(|(job, own)| self.terminating_of(job, own).fail_job())
    }

    /// The tasks of a Job that are being terminated, and that it has not counted.
    fn terminating_of<'a>(&'a self, job: JobIdx, own: &'a BatchJobFacts) -> Leaving<'a> {
        let is_terminating =
            |status: TaskStatus| matches!(status, TaskStatus::Releasing | TaskStatus::Stuck);
        let mut leaving = Leaving::of(own);
        if self.jobs.counts[job].sum(is_terminating) == 0 {
            return leaving;
        }
        for task in self.jobs.tasks[job].iter() {
            let facts = &self.tasks.facts[task];
            let is_own = |controller: &ControllerRef| controller.uid == own.uid;
            if is_terminating(self.status(task))
                && facts.controller.as_ref().is_some_and(is_own)
                && (own.counts_ended_pods || facts.terminates_at.is_none())
            {
                leaving.add(facts);
            }
        }
        leaving
    }
}

/// Tasks of a Job that leave, and that it has not counted.
struct Leaving<'a> {
    own: &'a BatchJobFacts,
    n: u32,
    /// Whether an index fails by one of them.
    fail_index: bool,
}

impl<'a> Leaving<'a> {
    const fn of(own: &'a BatchJobFacts) -> Self {
        Self { own, n: 0, fail_index: false }
    }

    const fn add(&mut self, facts: &TaskFacts) {
        self.n = self.n.saturating_add(1);
        if let OnEviction::CountsForIndex { limit } = self.own.on_eviction {
            self.fail_index |= facts.index_failures >= limit;
        }
    }

    const fn and(&self, others: &Self) -> Self {
        let n = self.n.saturating_add(others.n);
        Self { own: self.own, n, fail_index: self.fail_index || others.fail_index }
    }

    const fn fail_job(&self) -> bool {
        match self.own.on_eviction {
            OnEviction::Survives => false,
            OnEviction::Counts { left } => self.n > left,
            OnEviction::CountsForIndex { .. } => self.fail_index,
        }
    }
}
