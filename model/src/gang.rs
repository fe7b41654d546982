//! Gangs: what starts together or not at all.

pub mod complete;
pub mod tree;

use crate::{
    cluster::{Cluster, StatusCounts},
    column::{JobIdx, TaskIdx},
    facts::group::RoleFacts,
};

impl Cluster {
    /// Whether a job is a gang: it has a minimum, or its tasks are victims only together.
    pub fn is_gang(&self, job: JobIdx) -> bool {
        self.jobs.min_available[job] > 1 || self.jobs.leaves_whole[job]
    }

    /// The roles of a job that have a minimum, with the number of their tasks by status.
    pub fn roles(&self, job: JobIdx) -> impl Iterator<Item = (&RoleFacts, &StatusCounts)> {
        let counts = &self.jobs.role_counts[job];
        // Most jobs have no roles, and the facts of their PodGroups are not in the processor's cache.
        let group = self.jobs.group[job].iter().filter(|_| !counts.is_empty());
        group.flat_map(|group| &group.roles).zip(counts)
    }

    /// The role of a task, if it has a minimum.
    pub fn role(&self, task: TaskIdx) -> Option<(&RoleFacts, &StatusCounts)> {
        let role = usize::from(self.tasks.role[task]?);
        let job = self.tasks.job[task]?;
        let roles = &self.jobs.group[job].as_ref()?.roles;
        Some((&roles[role], &self.jobs.role_counts[job][role]))
    }
}
