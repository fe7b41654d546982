//! The composite PodGroups of a snapshot, as trees: their children are jobs and further composite ones.
//!
//! A composite PodGroup is *complete* if as many of its children as its minimum requires are: a job if it is
//! ready, a composite one by its own minimum.
// Parity: new, see docs/parity.md#k8.

use std::{collections::BTreeMap, sync::Arc};

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

    /// The outermost of the composite PodGroups above a job that are not complete.
    pub fn incomplete_above(
        &self,
        job: JobIdx,
        is_ready: &dyn Fn(JobIdx) -> bool,
    ) -> Option<CompositeIdx> {
        self.above(job).filter(|row| !self.is_complete(Child::Composite(*row), is_ready)).last()
    }

    /// The jobs that are victims only together with this one: those below the innermost composite PodGroup
    /// above it that could lose it, or one whose pods leave together, if that is further out. `is_ready` says
    /// which jobs are ready.
    pub fn leaves_with(&self, job: JobIdx, is_ready: &dyn Fn(JobIdx) -> bool) -> Vec<JobIdx> {
        let mut least = Child::Job(job);
        let mut at = Child::Job(job);
        let mut is_spared = false;
        for row in self.above(job) {
            let Composite { facts, .. } = &self.rows[row];
            is_spared |= self.can_lose(row, at, is_ready);
            at = Child::Composite(row);
            if facts.leaves_whole || !is_spared {
                least = at;
            }
        }
        match least {
            Child::Job(job) => vec![job],
            Child::Composite(row) => self.jobs(row),
        }
    }

    /// Whether a composite PodGroup stays as it is without one of its children: complete, or not.
    fn can_lose(&self, row: CompositeIdx, child: Child, is_ready: &dyn Fn(JobIdx) -> bool) -> bool {
        let n_complete = self.n_complete(row, is_ready);
        let min = self.rows[row].facts.min_groups;
        n_complete != min || !self.is_complete(child, is_ready)
    }
}
