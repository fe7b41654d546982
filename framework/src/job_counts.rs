//! How many jobs of queues hold resources, in every configuration.
// Parity: new, see docs/parity.md#q11.

use std::collections::BTreeSet;

use kube_batch_model::{
    cluster::Cluster,
    column::{Column, JobIdx, QueueIdx, TaskIdx},
    status::TaskStatus,
};

use crate::failure::QueueLimit;

/// How many jobs of each queue and those below it hold resources; empty if no queue limits that.
#[derive(Debug, Default)]
pub(crate) struct JobCounts {
    n_jobs: Column<QueueIdx, u32>,
    holds: Column<JobIdx, bool>,
}

impl JobCounts {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        if cluster.queues.facts.values().all(|facts| facts.max_running_jobs.is_none()) {
            return Self::default();
        }
        let mut counts = Self {
            n_jobs: Column::filled(0, cluster.queues.facts.len()),
            holds: Column::filled(false, cluster.jobs.key.len()),
        };
        cluster.jobs.key.ids().for_each(|job| counts.follow(cluster, job));
        counts
    }

    /// Counts a job again after one of its tasks has moved.
    pub(crate) fn follow(&mut self, cluster: &Cluster, job: JobIdx) {
        if self.n_jobs.is_empty() {
            return;
        }
        let holds = cluster.jobs.counts[job].sum(TaskStatus::is_held) > 0;
        let held = std::mem::replace(&mut self.holds[job], holds);
        let Some(queue) = cluster.jobs.queue[job].filter(|_| holds != held) else { return };
        for queue in cluster.queues.tree.path(queue) {
            let n_jobs = self.n_jobs[queue];
            self.n_jobs[queue] = if holds { n_jobs + 1 } else { n_jobs - 1 };
        }
    }

    /// Whether a task may be placed, with the tasks in `evicted` gone: its job holds something already, or fewer jobs than
    /// a queue of its path may run do.
    ///
    /// # Errors
    ///
    /// The limit that would be exceeded.
    pub(crate) fn admit(
        &self,
        cluster: &Cluster,
        task: TaskIdx,
        evicted: &[TaskIdx],
    ) -> Result<(), QueueLimit> {
        let own = cluster.tasks.job[task];
        let Some(job) = own.filter(|_| !self.n_jobs.is_empty()) else { return Ok(()) };
        let Some(queue) = cluster.jobs.queue[job].filter(|_| !self.holds[job]) else {
            return Ok(());
        };
        for queue in cluster.queues.tree.path(queue) {
            let Some(most) = cluster.queues.facts[queue].max_running_jobs else { continue };
            if self.n_jobs[queue] - self.n_ended(cluster, queue, evicted) >= most {
                return Err(QueueLimit::Jobs { queue, most });
            }
        }
        Ok(())
    }

    /// How many jobs of a queue hold nothing without these tasks.
    fn n_ended(&self, cluster: &Cluster, queue: QueueIdx, evicted: &[TaskIdx]) -> u32 {
        let jobs: BTreeSet<JobIdx> =
            evicted.iter().filter_map(|task| cluster.tasks.job[*task]).collect();
        let is_below = |job: &&JobIdx| {
            let of = cluster.jobs.queue[**job];
            of.is_some_and(|of| cluster.queues.tree.is_on_path(queue, of))
        };
        let ends = |job: &&JobIdx| {
            let is_gone = |task: &&TaskIdx| {
                cluster.tasks.job[**task] == Some(**job) && cluster.status(**task).is_held()
            };
            let n_gone = evicted.iter().filter(is_gone).count();
            self.holds[**job]
                && n_gone as u32 == cluster.jobs.counts[**job].sum(TaskStatus::is_held)
        };
        jobs.iter().filter(is_below).filter(ends).count() as u32
    }
}
