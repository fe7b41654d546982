//! How many jobs of queues hold resources, in every configuration.
//!
//! A job counts for the queues for which its tasks count, whatever becomes of its PodGroup. As with capability, tasks that
//! are being terminated count for what starts now, and not for what waits until they are gone.
// Parity: new, see docs/parity.md#q11.

use std::collections::{BTreeMap, BTreeSet};

use kube_batch_model::{
    cluster::Cluster,
    column::{Column, JobIdx, QueueIdx, TaskIdx},
    status::TaskStatus,
};

use crate::{failure::QueueLimit, plugin::Capacity};

/// How many jobs of each queue and those below it hold resources; empty if no queue limits that.
#[derive(Debug, Default)]
pub(crate) struct JobCounts {
    /// Jobs that hold something, and those of which something is being terminated too.
    n_jobs: Column<QueueIdx, [u32; 2]>,
    /// The tasks of each job that count for a queue in the same way.
    n_tasks: BTreeMap<(JobIdx, QueueIdx), [u32; 2]>,
}

/// Whether a task holds resources, and whether it does or is being terminated.
fn counts(status: TaskStatus) -> [bool; 2] {
    let is_held = status.is_held();
    [is_held, is_held || matches!(status, TaskStatus::Releasing | TaskStatus::Stuck)]
}

impl JobCounts {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        if cluster.queues.facts.values().all(|facts| facts.max_running_jobs.is_none()) {
            return Self::default();
        }
        let mut all = Self {
            n_jobs: Column::filled([0, 0], cluster.queues.facts.len()),
            n_tasks: BTreeMap::new(),
        };
        for task in cluster.tasks.facts.ids() {
            all.follow(cluster, task, TaskStatus::Pending, cluster.status(task));
        }
        all
    }

    /// Follows a task that has moved.
    pub(crate) fn follow(
        &mut self,
        cluster: &Cluster,
        task: TaskIdx,
        from: TaskStatus,
        to: TaskStatus,
    ) {
        if self.n_jobs.is_empty() {
            return;
        }
        let (before, after) = (counts(from), counts(to));
        if before == after {
            return;
        }
        let Some(own) = cluster.tasks.job[task].zip(cluster.queue_of(task)) else { return };
        let n_tasks = self.n_tasks.entry(own).or_default();
        for at in [0, 1] {
            let had_some = n_tasks[at] > 0;
            n_tasks[at] = n_tasks[at] + u32::from(after[at]) - u32::from(before[at]);
            let has_some = n_tasks[at] > 0;
            if had_some == has_some {
                continue;
            }
            for queue in cluster.queues.tree.path(own.1) {
                let n_jobs = &mut self.n_jobs[queue][at];
                *n_jobs = if has_some { *n_jobs + 1 } else { *n_jobs - 1 };
            }
        }
    }

    /// Whether a task may be placed, with the tasks in `evicted` gone: its job holds something already, or fewer other jobs
    /// than a queue of its path may run do.
    ///
    /// # Errors
    ///
    /// The limit that would be exceeded.
    pub(crate) fn admit(
        &self,
        cluster: &Cluster,
        task: TaskIdx,
        evicted: &[TaskIdx],
        capacity: Capacity,
    ) -> Result<(), QueueLimit> {
        let own = cluster.tasks.job[task].zip(cluster.queue_of(task));
        let Some(own) = own.filter(|_| !self.n_jobs.is_empty()) else { return Ok(()) };
        let [n_held, n_with_leaving] = self.n_tasks.get(&own).copied().unwrap_or_default();
        if n_held > 0 {
            return Ok(());
        }
        for queue in cluster.queues.tree.path(own.1) {
            let Some(most) = cluster.queues.facts[queue].max_running_jobs else { continue };
            let [n_holding, n_not_gone] = self.n_jobs[queue];
            let n_others = match capacity {
                Capacity::Idle => n_not_gone - u32::from(n_with_leaving > 0),
                Capacity::FutureIdle => n_holding - self.n_ended(cluster, queue, evicted),
            };
            if n_others >= most {
                return Err(QueueLimit::Jobs { queue, most });
            }
        }
        Ok(())
    }

    /// How many jobs of a queue hold nothing without these tasks.
    fn n_ended(&self, cluster: &Cluster, queue: QueueIdx, evicted: &[TaskIdx]) -> u32 {
        let held = evicted.iter().filter(|task| cluster.status(**task).is_held());
        let mut n_gone: BTreeMap<(JobIdx, QueueIdx), u32> = BTreeMap::new();
        for task in held.collect::<BTreeSet<_>>() {
            if let Some(of) = cluster.tasks.job[*task].zip(cluster.queue_of(*task)) {
                *n_gone.entry(of).or_default() += 1;
            }
        }
        let ends = |(of, n_gone): &(&(JobIdx, QueueIdx), &u32)| {
            cluster.queues.tree.is_on_path(queue, of.1)
                && self.n_tasks.get(*of).is_some_and(|[n_held, _]| n_held == *n_gone)
        };
        n_gone.iter().filter(ends).count() as u32
    }
}
