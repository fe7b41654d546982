//! What leaves together, and for how many tasks.

use std::cmp::Reverse;

use jiff::Timestamp;
use kube_batch_framework::{session::Session, statement::Statement};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Dim, JobIdx, NodeIdx, TaskIdx},
    decision::EvictReason,
    status::{Placement, TaskStatus},
};

use super::{cover::Item, limit::Limit, on_node::Preemptor};

/// Some tasks of one class that want a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantingTasks {
    /// The first of them.
    pub(super) preemptor: Preemptor,
    pub(super) limit: Limit,
    /// How many of them.
    pub(super) n_tasks: usize,
}

impl WantingTasks {
    /// What is lost with some tasks.
    pub(super) fn amount(self, cluster: &Cluster, tasks: &[TaskIdx]) -> i64 {
        let dim = self.preemptor.scarce.unwrap_or(Dim::PODS);
        tasks.iter().map(|task| cluster.request(*task).get(dim)).sum()
    }
}

/// What may be evicted together.
#[derive(Clone, Debug)]
pub(super) struct Evictable {
    pub(super) job: JobIdx,
    /// All tasks of the job that are on nodes, or one that it can spare.
    pub(super) tasks: Vec<TaskIdx>,
    pub(super) is_whole: bool,
}

/// See [`cost`].
pub(super) type EvictableCost = (usize, i32, usize, i64, Reverse<Option<Timestamp>>, JobIdx);

/// Evicts those of some tasks that have not left yet: a task may leave by itself before its job does.
pub(super) fn evict<'a>(
    statement: &mut Statement<'_>,
    tasks: impl IntoIterator<Item = &'a TaskIdx>,
    reason: EvictReason,
) {
    for task in tasks {
        if statement.session().cluster().status(*task) != TaskStatus::Releasing {
            statement.evict(*task, reason).expect("a task that is bound or runs may be evicted");
        }
    }
}

/// The node for which a task is nominated that a statement has moved; `None` if it is evicted.
pub(super) fn pipelined(at: Placement) -> Option<NodeIdx> {
    at.node.filter(|_| at.status == TaskStatus::Pipelined)
}

pub(super) fn item(
    session: &Session,
    candidate: &Evictable,
    gain: usize,
    wanted: WantingTasks,
) -> Item {
    let cluster = session.cluster();
    let Evictable { job, tasks, .. } = candidate;
    let violates = session.plugins().violates_budget(tasks);
    let has_highest = cluster.jobs.priority[*job] == wanted.limit.priority;
    Item {
        gain,
        n_violating: violates.into_iter().filter(|violates| *violates).count(),
        n_failing_jobs: cluster.n_failing_jobs(tasks),
        amount: wanted.amount(cluster, tasks),
        start: tasks.iter().map(|task| cluster.tasks.start[*task]).min().filter(|_| has_highest),
    }
}

/// What decides which unit leaves first: violations of budgets, the priority of its job, Jobs that fail, what is lost, and
/// then the start of the first of those with the highest priority, the later the better.
pub(super) fn cost(session: &Session, unit: &Evictable, item: &Item) -> EvictableCost {
    let Item { n_violating, n_failing_jobs, amount, start, .. } = *item;
    let priority = session.cluster().jobs.priority[unit.job];
    (n_violating, priority, n_failing_jobs, amount, Reverse(start), unit.job)
}

/// What is idle on a node once the tasks that are being released are gone.
pub(super) fn future_idle(cluster: &Cluster, node: NodeIdx) -> Vec<i64> {
    let (idle, releasing, pipelined) =
        (&cluster.nodes.idle[node], &cluster.nodes.releasing[node], &cluster.nodes.pipelined[node]);
    let amounts = idle.iter().zip(releasing).zip(pipelined);
    amounts.map(|((idle, releasing), pipelined)| idle + releasing - pipelined).collect()
}

/// How many tasks of the class fit into some amounts.
pub(super) fn slots(cluster: &Cluster, class: ClassIdx, free: &[i64]) -> usize {
    usize::try_from(cluster.classes.request[class].times_in(free)).unwrap_or(usize::MAX)
}
