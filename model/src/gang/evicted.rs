//! What gangs lose with evicted tasks.

use std::collections::BTreeMap;

use crate::{
    cluster::Cluster,
    column::{JobIdx, TaskIdx},
};

/// Evicted tasks, counted by job and by role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Under `None` those of the job, whatever their role.
    counts: BTreeMap<(JobIdx, Option<usize>), u32>,
}

impl Evicted {
    /// Adds tasks.
    pub fn add(&mut self, cluster: &Cluster, tasks: impl IntoIterator<Item = TaskIdx>) {
        for task in tasks {
            let Some(job) = cluster.tasks.job[task] else { continue };
            *self.counts.entry((job, None)).or_default() += 1;
            if let Some(role) = cluster.tasks.role[task] {
                *self.counts.entry((job, Some(usize::from(role)))).or_default() += 1;
            }
        }
    }

    /// Number of tasks of a job.
    pub fn of_job(&self, job: JobIdx) -> u32 {
        self.of(job, None)
    }

    /// Number of tasks of a job that have a role; without one, of all of the job.
    pub(super) fn of(&self, job: JobIdx, role: Option<usize>) -> u32 {
        self.counts.get(&(job, role)).copied().unwrap_or(0)
    }
}
