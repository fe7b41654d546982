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
pub mod tree;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// It could count: it counts, is nominated for a node, or waits.
    Valid,
    /// It counts now.
    Ready,
    /// It counts now, or is nominated for a node: it will count once what it waits for is released.
    Pipelined,
}

impl Sense {
    /// The number of tasks that count.
    fn count(self, counts: &StatusCounts) -> u32 {
        match self {
            Self::Valid => counts.valid(),
            Self::Ready => counts.ready(),
            Self::Pipelined => counts.ready() + counts.pipelined(),
        }
    }
}

impl Cluster {
    /// Whether a job is a gang: it has a minimum, or its tasks are victims only together.
    pub fn is_gang(&self, job: JobIdx) -> bool {
        self.jobs.min_available[job] > 1 || self.jobs.leaves_whole[job]
    }

    /// The tasks of a job as its members. Its roles have minimums besides: see [`Cluster::roles`].
    pub fn members(&self, job: JobIdx, sense: Sense) -> Members {
        let n = sense.count(&self.jobs.counts[job]);
        Members { n, min: self.jobs.min_available[job] }
    }

    /// Whether a job has roles with minimums.
    pub fn has_roles(&self, job: JobIdx) -> bool {
        !self.jobs.role_counts[job].is_empty()
    }

    /// The roles of a job that have a minimum, with their members.
    pub fn roles(&self, job: JobIdx, sense: Sense) -> impl Iterator<Item = (&RoleFacts, Members)> {
        let counts = &self.jobs.role_counts[job];
        // Most jobs have no roles, and the facts of their PodGroups are not in the processor's cache.
        let group = self.jobs.group[job].iter().filter(|_| !counts.is_empty());
        let roles = group.flat_map(|group| &group.roles).zip(counts);
        roles.map(move |(role, counts)| (role, members_of(role, counts, sense)))
    }

    /// The members of the role of a task, if it has one with a minimum.
    pub fn members_of_role(&self, task: TaskIdx, sense: Sense) -> Option<Members> {
        let role = usize::from(self.tasks.role[task]?);
        let job = self.tasks.job[task]?;
        let facts = &self.jobs.group[job].as_ref()?.roles[role];
        Some(members_of(facts, &self.jobs.role_counts[job][role], sense))
    }

    /// How many tasks each role of a job is missing.
    pub fn missing_of_roles(&self, job: JobIdx, sense: Sense) -> impl Iterator<Item = u32> {
        self.roles(job, sense).map(|(_, members)| members.n_missing())
    }

    /// How many more tasks of a job must count, in a sense, before the job and its roles are complete.
    pub fn n_missing(&self, job: JobIdx, sense: Sense) -> u32 {
        let of_job = self.members(job, sense).n_missing();
        if !self.has_roles(job) {
            // Most jobs have no roles.
            return of_job;
        }
        // A task of a role is a member of the job too.
        of_job.max(self.missing_of_roles(job, sense).sum())
    }
}

fn members_of(role: &RoleFacts, counts: &StatusCounts, sense: Sense) -> Members {
    Members { n: sense.count(counts), min: role.min }
}
