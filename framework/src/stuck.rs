//! Tasks that do not end: their kubelet is gone, or a finalizer keeps them.
//!
//! A task that is being terminated counts as about to leave until some time after its grace period, unless that ends
//! too late. From then on, its resources are not counted on: no task is nominated for them, and others are evicted if
//! that helps.
// Parity: new, see docs/parity.md#p13.

use std::time::Duration;

use kube_batch_model::{
    cluster::{Cluster, Terminating},
    column::{NodeIdx, TaskIdx},
    status::{Placement, TaskStatus},
};

/// Marks the tasks that do not end. `moved` gets the placement of each before.
pub(crate) fn mark(
    cluster: &mut Cluster,
    timeout: Duration,
    mut moved: impl FnMut(TaskIdx, Placement),
) {
    let is_stuck = |at: &Terminating| at.overdue >= timeout || at.left > timeout;
    let terminating = cluster.terminating.iter().filter(|(_, at)| is_stuck(at));
    let stuck: Vec<TaskIdx> = terminating.map(|(task, _)| *task).collect();
    for task in stuck {
        let node = cluster.tasks.placement[task].node;
        moved(task, cluster.set_placement(task, Placement { status: TaskStatus::Stuck, node }));
    }
}

/// After which time the next task will be known not to end.
pub(crate) fn next(cluster: &Cluster, timeout: Duration) -> Option<Duration> {
    let leaving = cluster.terminating.iter();
    let leaving = leaving.filter(|(task, _)| cluster.status(**task) == TaskStatus::Releasing);
    let next = leaving.map(|(_, Terminating { left, overdue })| {
        left.saturating_add(timeout.saturating_sub(*overdue))
    });
    next.filter(|after| *after < Duration::from_secs(u64::from(u32::MAX))).min()
}

/// Whether some task does not end.
pub(crate) fn any(cluster: &Cluster) -> bool {
    cluster.terminating.keys().any(|task| cluster.status(*task) == TaskStatus::Stuck)
}

/// Whether a task on the node does not end.
pub(crate) fn is_on(cluster: &Cluster, node: NodeIdx) -> bool {
    let mut tasks = cluster.nodes.tasks[node].iter();
    !cluster.terminating.is_empty() && tasks.any(|task| cluster.status(*task) == TaskStatus::Stuck)
}
