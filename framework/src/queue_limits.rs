//! The hard limits of queues, in every configuration.
//!
//! What counts against the capability of a queue is what its pods and those of the queues below it request that have a
//! node, from the binding until they end. So a pod that is being terminated still counts, and a task that fits only once it is gone waits for
//! that on its node, as it would for the resources of a node.
//!
//! What is reserved for a job of the queue counts for the others, so that its room in the queue is kept as well.
//!
//! What is kept for PodGroups whose pods do not all exist counts too, but a group may use what is kept for itself: see
//! [`crate::headroom`].
// Parity: new, see docs/parity.md#a7 and docs/parity.md#q5.

use kube_batch_model::{
    cluster::Cluster,
    column::{Dim, QueueIdx, TaskIdx},
};

use crate::{failure::QueueLimit, headroom::Counted, plugin::Capacity, session::Session};

impl Session {
    /// Whether a task may be placed as far as queues decide: now, or once the tasks that are being terminated and those in
    /// `evicted` are gone.
    ///
    /// # Errors
    ///
    /// The limit that would be exceeded; of several queues, that of the one that is nearest to the task.
    pub fn within_limits(
        &self,
        task: TaskIdx,
        evicted: &[TaskIdx],
        capacity: Capacity,
    ) -> Result<(), QueueLimit> {
        self.within_own_limits(task, evicted, capacity)?;
        let admitted = self.guarantees.admit(&self.cluster, task, evicted, capacity);
        admitted.map_err(QueueLimit::Guarantee)
    }

    /// The same, without what is kept free for others.
    ///
    /// # Errors
    ///
    /// The limit that would be exceeded.
    pub fn within_own_limits(
        &self,
        task: TaskIdx,
        evicted: &[TaskIdx],
        capacity: Capacity,
    ) -> Result<(), QueueLimit> {
        let Some(queue) = self.cluster.queue_of(task) else { return Ok(()) };
        for queue in self.cluster.queues.tree.path(queue) {
            if let Some(dim) = self.exceeded_limit(queue, task, evicted, capacity) {
                return Err(QueueLimit::Capability { queue, dim });
            }
        }
        self.job_counts.admit(&self.cluster, task, evicted, capacity)
    }

    /// The dimension in which a queue on the path of a task would exceed its own capability.
    fn exceeded_limit(
        &self,
        queue: QueueIdx,
        task: TaskIdx,
        evicted: &[TaskIdx],
        capacity: Capacity,
    ) -> Option<Dim> {
        let cluster = &self.cluster;
        let limits = &cluster.queues.capability[queue];
        if limits.is_empty() {
            return None;
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
        exceeded.map(|(dim, _)| *dim)
    }
}

/// What a queue holds, stuck pods included, without the tasks in `evicted`, which the cluster still shows as running.
fn held_without(cluster: &Cluster, queue: QueueIdx, dim: Dim, evicted: &[TaskIdx]) -> i64 {
    let of_queue = evicted.iter().filter(|task| cluster.counts_below(**task, queue));
    let lost: i64 = of_queue.map(|task| cluster.request(*task).get(dim)).sum();
    cluster.queues.held[queue][dim] + cluster.queues.stuck[queue][dim] - lost
}
