//! The composite PodGroups of a snapshot, as trees: their children are jobs and further composite ones.
//!
//! A composite PodGroup is *complete* if as many of its children as its minimum requires are: a job if it is
//! ready, a composite one by its own minimum.
// Parity: new, see docs/parity.md#k8.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    cluster::Cluster,
    column::{Column, CompositeIdx, JobIdx},
    facts::composite::CompositeFacts,
    name::ObjectKey,
};

/// The composite PodGroups above the jobs of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Composites {
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
    pub children: Vec<Child>,
}

/// A child of a composite PodGroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// A PodGroup.
    Job(JobIdx),
    /// A composite PodGroup.
    Composite(CompositeIdx),
}

impl Composites {
    /// Those of a snapshot.
    pub fn of(cluster: &Cluster) -> Self {
        let mut composites = Self::default();
        let mut rows: BTreeMap<ObjectKey, CompositeIdx> = BTreeMap::new();
        for (job, above) in cluster.jobs.composites.iter() {
            let mut child = Child::Job(job);
            for facts in above.iter().flat_map(|above| above.iter()) {
                let known = rows.get(&facts.key).copied();
                let row = known.unwrap_or_else(|| composites.add(facts));
                composites.rows[row].children.push(child);
                composites.set_parent(child, row);
                if known.is_some() {
                    break;
                }
                rows.insert(facts.key.clone(), row);
                child = Child::Composite(row);
            }
        }
        composites
    }

    fn add(&mut self, facts: &Arc<CompositeFacts>) -> CompositeIdx {
        let facts = Arc::clone(facts);
        self.rows.push(Composite { facts, parent: None, children: Vec::new() })
    }

    fn set_parent(&mut self, child: Child, parent: CompositeIdx) {
        match child {
            Child::Job(job) => {
                self.parents.insert(job, parent);
            }
            Child::Composite(row) => self.rows[row].parent = Some(parent),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All of them.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = CompositeIdx> + use<> {
        self.rows.ids()
    }

    /// A composite PodGroup.
    pub fn get(&self, row: CompositeIdx) -> &Composite {
        &self.rows[row]
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

    /// The jobs below a composite PodGroup, each group of siblings in order.
    pub fn jobs(&self, row: CompositeIdx) -> Vec<JobIdx> {
        let mut jobs = Vec::new();
        self.collect_jobs(row, &mut jobs);
        jobs
    }

    fn collect_jobs(&self, row: CompositeIdx, jobs: &mut Vec<JobIdx>) {
        for child in &self.rows[row].children {
            match child {
                Child::Job(job) => jobs.push(*job),
                Child::Composite(row) => self.collect_jobs(*row, jobs),
            }
        }
    }

    /// How many children of a composite PodGroup are complete, if these jobs are ready.
    pub fn n_complete(&self, row: CompositeIdx, is_ready: &dyn Fn(JobIdx) -> bool) -> u32 {
        let children = self.rows[row].children.iter();
        children.filter(|child| self.is_complete(**child, is_ready)).count() as u32
    }

    /// Whether a child is complete, if these jobs are ready.
    pub fn is_complete(&self, child: Child, is_ready: &dyn Fn(JobIdx) -> bool) -> bool {
        match child {
            Child::Job(job) => is_ready(job),
            Child::Composite(row) => {
                self.n_complete(row, is_ready) >= self.rows[row].facts.min_groups
            }
        }
    }

    /// The jobs below a child.
    pub fn jobs_of(&self, child: Child) -> Vec<JobIdx> {
        match child {
            Child::Job(job) => vec![job],
            Child::Composite(row) => self.jobs(row),
        }
    }

    /// The first of them.
    pub fn first_job_of(&self, child: Child) -> Option<JobIdx> {
        match child {
            Child::Job(job) => Some(job),
            // Children are in the order of their first jobs.
            Child::Composite(row) => self.first_job_of(*self.rows[row].children.first()?),
        }
    }

    /// What is a victim only as a whole, and this job with it: the innermost composite PodGroup above it that could
    /// lose it, or one whose pods leave together, if that is further out.
    pub fn leaves_with(&self, job: JobIdx, groups: &dyn Completeness) -> Child {
        let mut least = Child::Job(job);
        let mut at = Child::Job(job);
        let mut is_spared = false;
        for row in self.above(job) {
            let Composite { facts, .. } = &self.rows[row];
            // Whether it stays as it is without the child: complete, or not.
            is_spared |=
                groups.n_complete(self, row) != facts.min_groups || !groups.is_complete(self, at);
            at = Child::Composite(row);
            if facts.leaves_whole || !is_spared {
                least = at;
            }
        }
        least
    }
}

/// Which groups are complete.
pub trait Completeness {
    /// Whether a job is ready.
    fn is_ready(&self, job: JobIdx) -> bool;

    /// How many children of a composite PodGroup are complete.
    fn n_complete(&self, composites: &Composites, row: CompositeIdx) -> u32;

    /// Whether a child is complete.
    fn is_complete(&self, composites: &Composites, child: Child) -> bool {
        match child {
            Child::Job(job) => self.is_ready(job),
            Child::Composite(row) => {
                self.n_complete(composites, row) >= composites.rows[row].facts.min_groups
            }
        }
    }
}

/// As these jobs are ready: counted when it is asked for.
impl<F: Fn(JobIdx) -> bool> Completeness for F {
    fn is_ready(&self, job: JobIdx) -> bool {
        self(job)
    }

    fn n_complete(&self, composites: &Composites, row: CompositeIdx) -> u32 {
        composites.n_complete(row, self)
    }
}

/// The numbers of complete children, kept while jobs become ready: a composite PodGroup may have thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompleteGroups {
    ready: BTreeSet<JobIdx>,
    n_complete: Column<CompositeIdx, u32>,
}

impl CompleteGroups {
    /// As these jobs are ready.
    pub fn new(composites: &Composites, is_ready: impl Fn(JobIdx) -> bool) -> Self {
        let n_complete = Column::filled(0, composites.ids().len());
        let mut groups = Self { ready: BTreeSet::new(), n_complete };
        for job in composites.parents.keys().filter(|job| is_ready(**job)) {
            groups.set_ready(composites, *job, true);
        }
        groups
    }

    /// Sets whether a job is ready.
    pub fn set_ready(&mut self, composites: &Composites, job: JobIdx, is_ready: bool) {
        let has_changed = if is_ready { self.ready.insert(job) } else { self.ready.remove(&job) };
        if !has_changed {
            return;
        }
        for row in composites.above(job) {
            let min = composites.rows[row].facts.min_groups;
            let n_complete = &mut self.n_complete[row];
            let was_complete = *n_complete >= min;
            *n_complete = if is_ready { *n_complete + 1 } else { *n_complete - 1 };
            if was_complete == (*n_complete >= min) {
                return;
            }
        }
    }

    /// The outermost of the composite PodGroups above a job that are not complete.
    pub fn incomplete_above(&self, composites: &Composites, job: JobIdx) -> Option<CompositeIdx> {
        let is_incomplete =
            |row: &CompositeIdx| !self.is_complete(composites, Child::Composite(*row));
        composites.above(job).filter(is_incomplete).last()
    }
}

impl Completeness for CompleteGroups {
    fn is_ready(&self, job: JobIdx) -> bool {
        self.ready.contains(&job)
    }

    fn n_complete(&self, _: &Composites, row: CompositeIdx) -> u32 {
        self.n_complete[row]
    }
}
