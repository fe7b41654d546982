//! Adjacent rows of tasks, and what has changed in them.

use std::{cmp::Ordering, ops::Range, sync::Arc};

use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, Ordinal, TaskIdx},
    facts::pod::TaskFacts,
    name::JobKey,
};

use crate::snapshot::jobs::{in_order, task_order};

/// Adjacent tasks: those of a job; `None` for the pods that only occupy their nodes.
pub(super) type Block = Option<JobKey>;

/// What has changed in a block.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    /// The former facts of pods that are gone.
    pub(super) removed: Vec<Arc<TaskFacts>>,
    pub(super) added: Vec<Arc<TaskFacts>>,
    /// Pods with other facts, or with another decision in flight.
    pub(super) changed: Vec<Arc<TaskFacts>>,
    /// Whether the classes of all tasks are others.
    pub(super) is_reclassified: bool,
}

impl Dirty {
    /// Whether rows are new, or gone, or are all to be written again.
    pub(super) fn moves_rows(&self) -> bool {
        !self.removed.is_empty() || !self.added.is_empty() || self.is_reclassified
    }

    /// The pods of the block, in order, that has had these rows.
    pub(super) fn pods(&self, cluster: &Cluster, rows: &BlockRows) -> Vec<Arc<TaskFacts>> {
        let mut is_removed = vec![false; rows.range.len()];
        for facts in &self.removed {
            is_removed[rows.place_of(cluster, facts) - rows.range.start] = true;
        }
        let before = cluster.tasks.facts.values().as_slice()[rows.range.clone()].iter();
        let kept = before.zip(is_removed).filter(|(_, is_removed)| !is_removed);
        let mut pods: Vec<Arc<TaskFacts>> = kept.map(|(facts, _)| Arc::clone(facts)).collect();
        if self.added.is_empty() {
            return pods;
        }
        pods.extend(self.added.iter().cloned());
        if rows.is_job {
            in_order(pods.iter().collect()).into_iter().cloned().collect()
        } else {
            pods.sort_by(|l, r| l.key.cmp(&r.key));
            pods
        }
    }
}

/// The rows of a block.
#[derive(Clone, Debug)]
pub(super) struct BlockRows {
    pub(super) range: Range<usize>,
    is_job: bool,
}

impl BlockRows {
    /// The tasks of a job, if it has rows.
    pub(super) fn of_job(cluster: &Cluster, job: Option<JobIdx>) -> Self {
        let tasks = job.map(|job| cluster.jobs.tasks[job]).unwrap_or_default();
        let start = tasks.iter().next().map_or(0, Ordinal::at);
        Self { range: start..start + tasks.len(), is_job: true }
    }

    /// The last rows, of tasks without a job.
    pub(super) fn jobless(cluster: &Cluster) -> Self {
        let n_tasks: usize = cluster.jobs.tasks.values().map(|tasks| tasks.len()).sum();
        Self { range: n_tasks..cluster.tasks.facts.len(), is_job: false }
    }

    /// The row of a pod that is in the block.
    pub(super) fn row_of(&self, cluster: &Cluster, facts: &TaskFacts) -> TaskIdx {
        TaskIdx::new(self.place_of(cluster, facts))
    }

    fn place_of(&self, cluster: &Cluster, facts: &TaskFacts) -> usize {
        let rows = &cluster.tasks.facts.values().as_slice()[self.range.clone()];
        self.range.start + rows.partition_point(|other| self.order(other, facts).is_lt())
    }

    fn order(&self, l: &TaskFacts, r: &TaskFacts) -> Ordering {
        if self.is_job {
            task_order((l.created, l.key.name.as_str()), (r.created, r.key.name.as_str()))
        } else {
            l.key.cmp(&r.key)
        }
    }
}
