//! The order in which the tasks on a node are evicted.

use std::cmp::{Ordering, Reverse};

use kube_batch_model::{
    cluster::Cluster,
    column::{Column, NodeIdx, TaskIdx},
};

/// The tasks of kube-batch on each node, the first victim first. Sorted when first used, and kept while tasks are evicted
/// and put back: the reader checks whether one may be evicted now.
#[derive(Debug)]
pub(crate) struct NodeTasks {
    sorted: Column<NodeIdx, Option<Vec<TaskIdx>>>,
}

impl NodeTasks {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self { sorted: Column::filled(None, cluster.nodes.facts.len()) }
    }

    pub(super) fn on(&mut self, cluster: &Cluster, node: NodeIdx) -> &[TaskIdx] {
        self.sorted[node].get_or_insert_with(|| {
            let all = cluster.nodes.tasks[node].iter().copied();
            let mut victims: Vec<TaskIdx> = all.filter(|task| cluster.tasks.ours[*task]).collect();
            victims.sort_by(|l, r| by_victim_cost(cluster, *l, *r));
            victims
        })
    }
}

/// Lowest job priority, then lowest task priority, then latest start, then largest namespace and name.
pub(super) fn by_victim_cost(cluster: &Cluster, l: TaskIdx, r: TaskIdx) -> Ordering {
    let rank = |task: TaskIdx| {
        let facts = &cluster.tasks.facts[task];
        let job_priority = job_priority(cluster, task);
        let start = cluster.tasks.start[task];
        (job_priority, cluster.tasks.priority[task], Reverse((start, &facts.key)))
    };
    rank(l).cmp(&rank(r))
}

pub(super) fn job_priority(cluster: &Cluster, task: TaskIdx) -> i32 {
    cluster.tasks.job[task].map_or(0, |job| cluster.jobs.priority[job])
}
