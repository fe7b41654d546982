//! The hard limits of queues, in every configuration.
//!
//! What counts against the capability of a queue is what its pods request that have a node, from the binding until
//! they end. So a pod that is being terminated still counts, and a task that fits only once it is gone waits for
//! that on its node, as it would for the resources of a node.
//!
//! What is reserved for a job of the queue counts for the others, so that its room in the queue is kept as well.
//!
//! What is kept for PodGroups whose pods do not all exist counts too, but a group may use what is kept for itself: see
//! [`crate::headroom`].
// Parity: new, see docs/parity.md#a7.

use kube_batch_model::{
    cluster::Cluster,
    column::{Dim, QueueIdx, TaskIdx},
};

use crate::{headroom::Counted, plugin::Capacity, session::Session};

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
        let limits = &cluster.queues.capability[queue];
        if limits.is_empty() {
            return Ok(());
        }
        let request = cluster.request(task);
        let is_counted = cluster.status(task).is_held();
        let of_groups = self.headroom.evicted(cluster, evicted);
        let exceeded = limits.iter().find(|(dim, limit)| {
            let amount = request.get(*dim);
            let used = match capacity {
                Capacity::Idle => cluster.queues.used(queue, *dim),
                Capacity::FutureIdle => held_without(cluster, queue, *dim, evicted),
            };
            let used = used.saturating_add(self.reserved_in_queue(queue, *dim));
            let added = if is_counted { 0 } else { amount };
            if amount > 0 && used + added > *limit {
                return true;
            }
            if self.headroom.is_empty() {
                return false;
            }
            let own = (task, is_counted);
            let Counted { before, after } =
                self.headroom.around(cluster, queue, own, &of_groups, *dim);
            // A group that is counted already may take what is kept for it, whatever the limit is now.
            let is_more = added + after > before;
            is_more && used.saturating_add(added).saturating_add(after) > *limit
        });
        exceeded.map_or(Ok(()), |(dim, _)| Err(*dim))
    }
}

/// What a queue holds, stuck pods included, without the tasks in `evicted`, which the cluster still shows as running.
fn held_without(cluster: &Cluster, queue: QueueIdx, dim: Dim, evicted: &[TaskIdx]) -> i64 {
    let of_queue = evicted.iter().filter(|task| cluster.queue_of(**task) == Some(queue));
    let lost: i64 = of_queue.map(|task| cluster.request(*task).get(dim)).sum();
    cluster.queues.held[queue][dim] + cluster.queues.stuck[queue][dim] - lost
}
