//! Gangs as one tree, with one rule: a gang is complete if at least its minimum of its members are.
//!
//! | gang | members | minimum |
//! |---|---|---|
//! | composite PodGroup | the composite PodGroups and PodGroups right below it | `min_groups` |
//! | job, with or without a PodGroup | its tasks; besides, each of its roles must be complete | `min_available` |
//! | role of a job | the tasks of the job that have the role | `min` |
//!
//! [`Members`] is the rule, and [`Sense`] says in which sense a task counts: the same tree answers whether a job could
//! ever start, may start now, and will start.
//!
//! Few jobs are below composite PodGroups, so these are rows of a [`GangTree`](tree::GangTree) that is made once a
//! cycle. Jobs and roles are columns of the cluster, counted with every placement: they are asked about millions of
//! times in a cycle, and a job without roles is answered by one comparison.
// Parity: see docs/parity.md#k6 and docs/parity.md#k8.

pub mod complete;
pub mod evicted;
pub mod tree;

use self::evicted::Evicted;
use crate::{
    cluster::{Cluster, StatusCounts},
    column::{JobIdx, TaskIdx},
    facts::group::RoleFacts,
};

/// How many members of a gang are complete, and how many have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Members {
    /// Number of members that are complete.
    pub n: u32,
    /// The minimum of the gang.
    pub min: u32,
}

impl Members {
    /// Whether the gang is complete, as far as these members decide.
    pub const fn are_enough(self) -> bool {
        self.n >= self.min
    }

    /// Whether the gang is complete, as far as these members decide, and has any that is complete.
    pub const fn have_started(self) -> bool {
        self.are_enough() && self.n > 0
    }

    /// The same members, if a number of those that are counted as complete are not.
    #[must_use]
    pub const fn without(self, n: u32) -> Self {
        Self { n: self.n - n, ..self }
    }

    /// Number of members that must still become complete.
    pub const fn n_missing(self) -> u32 {
        self.min.saturating_sub(self.n)
    }

    /// Whether the gang is complete, and would not be with one complete member less.
    pub const fn are_just_enough(self) -> bool {
        self.n == self.min
    }

    /// Number of complete members that the gang could lose and still be complete.
    pub const fn n_spare(self) -> u32 {
        self.n.saturating_sub(self.min)
    }
}

/// In which sense a task counts toward minimums.
#[derive(Clone, Copy, Debug)]
pub enum Sense<'e> {
    /// It could count: it counts, is nominated for a node, or waits.
    Valid,
    /// It counts now.
    Ready,
    /// It counts now, or is nominated for a node: it will count once what it waits for is released.
    Pipelined,
    /// It counts now, and is not among these, which are to be evicted.
    Without(&'e Evicted),
    /// It counts now, or did before it was evicted as one of these.
    Before(&'e Evicted),
}

impl Sense<'_> {
    /// The number of tasks of a job that count: those of a role, or without one all of them.
    fn count(self, job: JobIdx, role: Option<usize>, counts: &StatusCounts) -> u32 {
        match self {
            Self::Valid => counts.valid(),
            Self::Ready => counts.ready(),
            Self::Pipelined => counts.ready() + counts.pipelined(),
            // Only tasks that count can be evicted.
            Self::Without(evicted) => counts.ready().saturating_sub(evicted.of(job, role)),
            Self::Before(evicted) => counts.ready() + evicted.of(job, role),
        }
    }
}

impl Cluster {
    /// Whether a job is a gang: it has a minimum, or its tasks are victims only together.
    pub fn is_gang(&self, job: JobIdx) -> bool {
        self.jobs.min_available[job] > 1 || self.jobs.leaves_whole[job]
    }

    /// Whether a job is part of a larger gang: a composite PodGroup.
    pub fn is_in_larger_gang(&self, job: JobIdx) -> bool {
        self.jobs.composites[job].is_some()
    }

    /// The tasks of a job as its members. Its roles have minimums besides: see [`Cluster::roles`].
    pub fn members(&self, job: JobIdx, sense: Sense<'_>) -> Members {
        let n = sense.count(job, None, &self.jobs.counts[job]);
        Members { n, min: self.jobs.min_available[job] }
    }

    /// Whether a job has roles with minimums.
    pub fn has_roles(&self, job: JobIdx) -> bool {
        !self.jobs.role_counts[job].is_empty()
    }

    /// The roles of a job that have a minimum, with their members.
    pub fn roles(
        &self,
        job: JobIdx,
        sense: Sense<'_>,
    ) -> impl Iterator<Item = (&RoleFacts, Members)> {
        // Most jobs have no roles, and the facts of their PodGroups are not in the processor's cache.
        let group = self.jobs.group[job].iter().filter(move |_| self.has_roles(job));
        let roles = group.flat_map(|group| &group.roles).enumerate();
        roles.map(move |(role, facts)| (facts, self.members_of(job, facts, role, sense)))
    }

    /// The members of the role of a task, if it has one with a minimum.
    pub fn members_of_role(&self, task: TaskIdx, sense: Sense<'_>) -> Option<Members> {
        let (role, job) = (usize::from(self.tasks.role[task]?), self.tasks.job[task]?);
        let facts = &self.jobs.group[job].as_ref()?.roles[role];
        Some(self.members_of(job, facts, role, sense))
    }

    fn members_of(&self, job: JobIdx, facts: &RoleFacts, role: usize, sense: Sense<'_>) -> Members {
        let counts = &self.jobs.role_counts[job][role];
        Members { n: sense.count(job, Some(role), counts), min: facts.min }
    }

    /// How many tasks each role of a job is missing.
    pub fn missing_of_roles(&self, job: JobIdx, sense: Sense<'_>) -> impl Iterator<Item = u32> {
        self.roles(job, sense).map(|(_, members)| members.n_missing())
    }

    /// How many more tasks of a job must count, in a sense, before the job and its roles are complete.
    pub fn n_missing(&self, job: JobIdx, sense: Sense<'_>) -> u32 {
        let of_job = self.members(job, sense).n_missing();
        if !self.has_roles(job) {
            // Most jobs have no roles.
            return of_job;
        }
        // A task of a role is a member of the job too.
        of_job.max(self.missing_of_roles(job, sense).sum())
    }

    /// Moves tasks of a job that the minimum of their role needs to the front; the order is otherwise the same. Tasks
    /// that only count toward the minimum of the job must not take their places.
    // Parity: new, see docs/parity.md#k6.
    pub fn short_roles_first(&self, job: JobIdx, tasks: Vec<TaskIdx>) -> Vec<TaskIdx> {
        let mut missing: Vec<u32> = self.missing_of_roles(job, Sense::Pipelined).collect();
        if missing.is_empty() {
            return tasks;
        }
        let mut is_needed = |task: &TaskIdx| {
            let role = self.tasks.role[*task].map(|role| &mut missing[usize::from(role)]);
            role.is_some_and(|missing| {
                let is_needed = *missing > 0;
                *missing = missing.saturating_sub(1);
                is_needed
            })
        };
        let (mut needed, others): (Vec<TaskIdx>, Vec<TaskIdx>) =
            tasks.into_iter().partition(|task| is_needed(task));
        needed.extend(others);
        needed
    }

    /// Whether a job and its roles are complete, in a sense.
    pub fn is_complete(&self, job: JobIdx, sense: Sense<'_>) -> bool {
        self.n_missing(job, sense) == 0
    }
}

#[cfg(test)]
mod tests;
