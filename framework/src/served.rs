//! Which jobs their queues serve, in every configuration.
//!
//! A queue serves a job if it is a leaf of the tree, and neither it nor a queue above it is closed or for other namespaces.
//! What runs stays: a job all of whose pods have a node or have ended has nothing to be served with.
// Parity: new, see docs/parity.md#q1, docs/parity.md#q10 and docs/parity.md#q13.

use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, QueueIdx},
    name::Name,
    problem::{JobProblem, PathProblem},
    queue_tree::NotServed,
    status::TaskStatus,
};

/// How many children a message names.
const MAX_NAMED: usize = 2;

/// Whether a queue starts jobs of a namespace.
pub(crate) fn serves(cluster: &Cluster, queue: QueueIdx, namespace: &Name) -> bool {
    problem_of_path(cluster, queue).is_none() && not_allowed(cluster, queue, namespace).is_none()
}

/// Why the queue of a job does not serve it, if it has something to be served with.
pub(crate) fn problem_of_queue(cluster: &Cluster, job: JobIdx) -> Option<JobProblem> {
    let queue = cluster.jobs.queue[job]?;
    let problem = problem_of_path(cluster, queue)
        .or_else(|| not_allowed(cluster, queue, &cluster.jobs.key[job].object().namespace));
    problem.filter(|_| lacks_something(cluster, job))
}

fn problem_of_path(cluster: &Cluster, queue: QueueIdx) -> Option<JobProblem> {
    let queues = &cluster.queues;
    let name_of = |queue: QueueIdx| queues.facts[queue].name.clone();
    let queue_name = || name_of(queue);
    let not_served = queues.tree.not_served(queue);
    if let Some(why) = not_served.and_then(|why| path_problem(cluster, queue, why)) {
        return Some(JobProblem::QueueParent { queue: queue_name(), why });
    }
    let is_top = not_served == Some(&NotServed::Top);
    let children = if is_top { queues.tree.roots() } else { queues.tree.children(queue) };
    if is_top || !children.is_empty() {
        let first = children.iter().take(MAX_NAMED).copied().map(name_of).collect();
        return Some(JobProblem::QueueNotLeaf { queue: queue_name(), first, n: children.len() });
    }
    queues.closed_by(queue).map(|closed| JobProblem::QueueClosed(name_of(closed)))
}

/// Why a queue serves nothing, with names.
pub(crate) fn path_problem(
    cluster: &Cluster,
    queue: QueueIdx,
    not_served: &NotServed,
) -> Option<PathProblem> {
    PathProblem::new(queue, not_served, |queue| cluster.queues.facts[queue].name.clone())
}

fn not_allowed(cluster: &Cluster, queue: QueueIdx, namespace: &Name) -> Option<JobProblem> {
    let queues = &cluster.queues;
    let is_closed_to = |queue: &QueueIdx| {
        queues.namespaces[*queue].as_ref().is_some_and(|selected| !selected.has(namespace))
    };
    let queue = queues.tree.path(queue).find(is_closed_to)?;
    let queue = queues.facts[queue].name.clone();
    Some(JobProblem::QueueNotAllowed { queue, namespace: namespace.clone() })
}

/// Whether a job has no pods, or pods that wait, or fewer than its minimum.
fn lacks_something(cluster: &Cluster, job: JobIdx) -> bool {
    let (counts, n_tasks) = (&cluster.jobs.counts[job], cluster.jobs.tasks[job].len());
    // Gated tasks are not counted.
    let n_not_waiting = counts.sum(|status| status != TaskStatus::Pending) as usize;
    n_tasks == 0 || n_not_waiting < n_tasks || counts.valid() < cluster.jobs.min_available[job]
}
