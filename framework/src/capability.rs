//! The hard limits of queues, in every configuration.
//!
//! What counts against the capability of a queue is what its pods request that have a node, from the binding until
//! they end. So a pod that is being terminated still counts, and a task that fits only once it is gone waits for
//! that on its node, as it would for the resources of a node.
// Parity: new, see docs/parity.md#a7.

use kube_batch_api::{
    cluster::Cluster,
    column::{Dim, TaskIdx},
};

use crate::{plugin::Capacity, session::Session};

impl Session {
    /// Whether the task's queue stays within its capability if the task is placed: now, or once the tasks that are
    /// being terminated and those in `evicted` are gone.
    ///
    /// # Errors
    ///
    /// The dimension whose limit would be exceeded.
    pub fn within_capability(
        &self,
        task: TaskIdx,
        evicted: &[TaskIdx],
        capacity: Capacity,
    ) -> Result<(), Dim> {
        let cluster = &self.cluster;
        let Some(queue) = cluster.queue_of(task) else { return Ok(()) };
        let request = cluster.request(task);
        let is_counted = cluster.status(task).is_held();
        let exceeded = cluster.queues.capability[queue].iter().find(|(dim, limit)| {
            let amount = request.get(*dim);
            let used = match capacity {
                Capacity::Idle => cluster.queues.used(queue, *dim),
                Capacity::FutureIdle => held_without(cluster, task, *dim, evicted),
            };
            amount > 0 && used + if is_counted { 0 } else { amount } > *limit
        });
        exceeded.map_or(Ok(()), |(dim, _)| Err(*dim))
    }
}

/// What the queue of a task holds without some tasks, which the cluster still shows as running.
fn held_without(cluster: &Cluster, task: TaskIdx, dim: Dim, evicted: &[TaskIdx]) -> i64 {
    let Some(queue) = cluster.queue_of(task) else { return 0 };
    let of_queue = evicted.iter().filter(|other| cluster.queue_of(**other) == Some(queue));
    let lost: i64 = of_queue.map(|other| cluster.request(*other).get(dim)).sum();
    cluster.queues.held[queue][dim] + cluster.queues.stuck[queue][dim] - lost
}
