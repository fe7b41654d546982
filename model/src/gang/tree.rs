//! The upper part of the tree of gangs: composite PodGroups, whose children are jobs and further composite ones.
//!
//! It says what is above and below, and what follows from it for the rule of the [parent module](super) once it is
//! known of the jobs. What is below a job is in the columns of the cluster.
// Parity: new, see docs/parity.md#k8.

use std::{collections::BTreeMap, sync::Arc};

use super::Members;
use crate::{
    cluster::Cluster,
    column::{Column, CompositeIdx, JobIdx},
    facts::composite::CompositeFacts,
    name::ObjectKey,
};

/// The composite PodGroups above the jobs of a snapshot, a tree for each that is part of no other.
#[derive(Clone, Debug, Default)]
pub struct GangTree {
    rows: Column<CompositeIdx, Composite>,
    parents: BTreeMap<JobIdx, CompositeIdx>,
}

/// A composite PodGroup.
#[derive(Clone, Debug)]
pub struct Composite {
    /// Its facts.
    pub facts: Arc<CompositeFacts>,
    /// The composite PodGroup that it is a part of.
    pub parent: Option<CompositeIdx>,
    /// Its children, in the order of their first jobs.
    pub children: Vec<Gang>,
}

/// A gang that can be a child: its members are tasks, or further gangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gang {
    /// A job.
    Job(JobIdx),
    /// A composite PodGroup.
    Composite(CompositeIdx),
}

impl From<CompositeIdx> for Gang {
    fn from(row: CompositeIdx) -> Self {
        Self::Composite(row)
    }
}

impl Composite {
    /// Its children as its members, of which this number is complete.
    pub fn members(&self, n: u32) -> Members {
        Members { n, min: self.facts.min_groups }
    }
}

impl GangTree {
    /// The trees of a snapshot.
    pub fn of(cluster: &Cluster) -> Self {
        let mut gangs = Self::default();
        let mut rows: BTreeMap<ObjectKey, CompositeIdx> = BTreeMap::new();
        for (job, above) in cluster.jobs.composites.iter() {
            let mut child = Gang::Job(job);
            for facts in above.iter().flat_map(|above| above.iter()) {
                let known = rows.get(&facts.key).copied();
                let row = known.unwrap_or_else(|| gangs.add(facts));
                gangs.rows[row].children.push(child);
                gangs.set_parent(child, row);
                if known.is_some() {
                    break;
                }
                rows.insert(facts.key.clone(), row);
                child = Gang::Composite(row);
            }
        }
        gangs
    }

    fn add(&mut self, facts: &Arc<CompositeFacts>) -> CompositeIdx {
        let facts = Arc::clone(facts);
        self.rows.push(Composite { facts, parent: None, children: Vec::new() })
    }

    fn set_parent(&mut self, child: Gang, parent: CompositeIdx) {
        match child {
            Gang::Job(job) => {
                self.parents.insert(job, parent);
            }
            Gang::Composite(row) => self.rows[row].parent = Some(parent),
        }
    }

    /// Whether there are no composite PodGroups.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All composite PodGroups.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = CompositeIdx> + use<> {
        self.rows.ids()
    }

    /// A composite PodGroup.
    pub fn get(&self, row: CompositeIdx) -> &Composite {
        &self.rows[row]
    }

    /// The jobs below composite PodGroups, ascending.
    pub(super) fn jobs_with_parents(&self) -> impl Iterator<Item = JobIdx> {
        self.parents.keys().copied()
    }

    /// The composite PodGroups above a job, its parent first.
    pub fn above(&self, job: JobIdx) -> impl Iterator<Item = CompositeIdx> + '_ {
        let parent = self.parents.get(&job).copied();
        std::iter::successors(parent, |row| self.rows[*row].parent)
    }

    /// The outermost composite PodGroup above a job.
    pub fn root(&self, job: JobIdx) -> Option<CompositeIdx> {
        self.above(job).last()
    }

    /// The jobs of a gang, each group of siblings in order.
    pub fn jobs(&self, gang: impl Into<Gang>) -> Vec<JobIdx> {
        let mut jobs = Vec::new();
        self.collect_jobs(gang.into(), &mut jobs);
        jobs
    }

    fn collect_jobs(&self, gang: Gang, jobs: &mut Vec<JobIdx>) {
        match gang {
            Gang::Job(job) => jobs.push(job),
            Gang::Composite(row) => {
                let children = self.rows[row].children.iter();
                children.for_each(|child| self.collect_jobs(*child, jobs));
            }
        }
    }

    /// How many tasks a gang is missing. Of a composite PodGroup only as many children count as have to be complete: those
    /// that are missing fewest.
    pub fn n_missing(&self, gang: Gang, of_job: &dyn Fn(JobIdx) -> u64) -> u64 {
        match gang {
            Gang::Job(job) => of_job(job),
            Gang::Composite(row) => {
                let Composite { facts, children, .. } = &self.rows[row];
                let children = children.iter();
                let mut missing: Vec<u64> =
                    children.map(|child| self.n_missing(*child, of_job)).collect();
                missing.sort_unstable();
                missing.iter().take(facts.min_groups as usize).sum()
            }
        }
    }

    /// The first job of a gang.
    pub fn first_job(&self, gang: Gang) -> Option<JobIdx> {
        match gang {
            Gang::Job(job) => Some(job),
            // Children are in the order of their first jobs.
            Gang::Composite(row) => self.first_job(*self.rows[row].children.first()?),
        }
    }

    /// Whether each composite PodGroup above a job that is complete before evictions is complete after them, or none of
    /// its jobs is ready.
    pub fn stay_complete(
        &self,
        job: JobIdx,
        before: &dyn Completeness,
        after: &dyn Completeness,
    ) -> bool {
        self.above(job).all(|row| {
            let is_complete = |groups: &dyn Completeness| groups.is_complete(self, row.into());
            let is_gone = || !self.jobs(row).into_iter().any(|job| after.is_ready(job));
            !is_complete(before) || is_complete(after) || is_gone()
        })
    }

    /// What is a victim only as a whole, and this job with it: the innermost composite PodGroup above it that could
    /// lose it, or one whose pods leave together, if that is further out.
    pub fn leaves_with(&self, job: JobIdx, groups: &dyn Completeness) -> Gang {
        let mut least = Gang::Job(job);
        let mut at = Gang::Job(job);
        let mut is_spared = false;
        for row in self.above(job) {
            // Whether it stays as it is without the child: complete, or not.
            is_spared |=
                !groups.members(self, row).are_just_enough() || !groups.is_complete(self, at);
            at = Gang::Composite(row);
            if self.rows[row].facts.leaves_whole || !is_spared {
                least = at;
            }
        }
        least
    }
}

/// Which gangs are complete.
pub trait Completeness {
    /// Whether a job is ready.
    fn is_ready(&self, job: JobIdx) -> bool;

    /// The children of a composite PodGroup as its members.
    fn members(&self, gangs: &GangTree, row: CompositeIdx) -> Members {
        let composite = gangs.get(row);
        let children = composite.children.iter();
        let complete = children.filter(|child| self.is_complete(gangs, **child));
        composite.members(complete.count() as u32)
    }

    /// Whether a gang is complete.
    fn is_complete(&self, gangs: &GangTree, gang: Gang) -> bool {
        match gang {
            Gang::Job(job) => self.is_ready(job),
            Gang::Composite(row) => self.members(gangs, row).are_enough(),
        }
    }
}

/// As these jobs are ready: counted when it is asked for.
impl<F: Fn(JobIdx) -> bool> Completeness for F {
    fn is_ready(&self, job: JobIdx) -> bool {
        self(job)
    }
}
