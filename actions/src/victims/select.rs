//! Which node a task gets, and which tasks there it evicts.

use std::cmp::Ordering;

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx, QueueIdx, TaskIdx},
    resource::Share,
    status::TaskStatus,
};
use kube_batch_framework::{plugin::Proposal, session::Session, statement::Statement};

use super::{
    dry_run::{DryRun, ResourceDryRun, SessionDryRun},
    node_tasks::{NodeTasks, job_priority},
    policy::VictimPolicy,
};

/// The cost of evicting a set of victims. The node with the lowest cost is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct VictimCost {
    highest_priority: i32,
    n_highest: usize,
    sum_of_priorities: i64,
    n_victims: usize,
}

impl VictimCost {
    // Parity: see docs/parity.md#p5.
    fn of(cluster: &Cluster, victims: &[TaskIdx]) -> Self {
        let priorities = victims.iter().map(|victim| job_priority(cluster, *victim));
        let highest_priority = priorities.clone().max().unwrap_or(i32::MIN);
        Self {
            highest_priority,
            n_highest: priorities.clone().filter(|p| *p == highest_priority).count(),
            sum_of_priorities: priorities.map(i64::from).sum(),
            n_victims: victims.len(),
        }
    }
}

/// The node with the lowest [`VictimCost`], and its victims. Ties go to the best score, then to the
/// lowest node name.
pub(super) fn select_victims<P: VictimPolicy>(
    policy: &P,
    statement: &mut Statement<'_>,
    node_tasks: &mut NodeTasks,
    task: TaskIdx,
    class: ClassIdx,
) -> Option<(NodeIdx, Vec<TaskIdx>)> {
    let mut lowest: Option<VictimCost> = None;
    let mut tied: Vec<NodeIdx> = Vec::new();
    for node in statement.session().cluster().nodes.facts.ids() {
        let victims = select_victims_on_node(policy, statement, node_tasks, task, class, node);
        let Some(victims) = victims else { continue };
        let cost = VictimCost::of(statement.session().cluster(), &victims);
        match lowest.map_or(Ordering::Less, |lowest| cost.cmp(&lowest)) {
            Ordering::Less => {
                lowest = Some(cost);
                tied.clear();
                tied.push(node);
            }
            Ordering::Equal => tied.push(node),
            Ordering::Greater => {}
        }
    }
    let node = match tied.as_slice() {
        [] => return None,
        [node] => *node,
        several => {
            let scores = statement.session_mut().scores(class, several);
            let best = scores.iter().zip(several).rev().max_by_key(|(score, _)| **score);
            *best.expect("there are several").1
        }
    };
    let victims = select_victims_on_node(policy, statement, node_tasks, task, class, node)?;
    Some((node, victims))
}

/// A minimal set of victims without which the task fits on the node, if there is one. Leaves the
/// statement as it was.
fn select_victims_on_node<P: VictimPolicy>(
    policy: &P,
    statement: &mut Statement<'_>,
    node_tasks: &mut NodeTasks,
    task: TaskIdx,
    class: ClassIdx,
    node: NodeIdx,
) -> Option<Vec<TaskIdx>> {
    if !statement.session_mut().is_eligible(class, node) {
        return None;
    }
    let cluster = statement.session().cluster();
    let candidates: Vec<TaskIdx> = node_tasks
        .on(cluster, node)
        .iter()
        .copied()
        .filter(|victim| cluster.status(*victim) == TaskStatus::Running)
        .filter(|victim| policy.considers(cluster, task, *victim))
        .collect();
    if candidates.is_empty() {
        return None;
    }
    if statement.session_mut().needs_only_resources(class, &candidates) {
        // A rule that refuses the node now refuses it without the victims too.
        if !statement.session_mut().rules_pass(class, node) {
            return None;
        }
        let mut dry_run = ResourceDryRun::new(statement.session(), task, node);
        return select_minimal_set(policy, &mut dry_run, candidates);
    }
    // Evicting tasks in the session costs far more than adding up their requests.
    if !ResourceDryRun::new(statement.session(), task, node).has_room_without(&candidates) {
        return None;
    }
    let start = statement.savepoint();
    let mut dry_run = SessionDryRun::new(statement, P::REASON, task, node);
    let victims = select_minimal_set(policy, &mut dry_run, candidates);
    statement.rollback_to(start);
    victims
}

/// Evicts candidates in their order until the task fits, then restores, in the reverse order, those
/// that turn out not to be needed.
fn select_minimal_set<P: VictimPolicy>(
    policy: &P,
    dry_run: &mut impl DryRun,
    mut candidates: Vec<TaskIdx>,
) -> Option<Vec<TaskIdx>> {
    let preemptor = dry_run.task();
    loop {
        if candidates.is_empty() {
            return None;
        }
        let at = if P::SAME_QUEUE {
            0
        } else {
            first_by_queue_share(dry_run.session(), &candidates, dry_run.not_yet_moved())
        };
        let victim = candidates.remove(at);
        let proposal = Proposal { preemptor, victim, evicted: dry_run.not_yet_moved() };
        if policy.allows(dry_run.session(), &proposal) {
            dry_run.evict(dry_run.victims().len(), victim);
            if dry_run.fits() {
                break;
            }
        }
    }
    // The last victim is needed: the task did not fit without its eviction.
    for at in (0..dry_run.victims().len() - 1).rev() {
        let victim = dry_run.victims()[at];
        dry_run.restore(at);
        if !dry_run.fits() {
            dry_run.evict(at, victim);
        }
    }
    Some(dry_run.victims().to_vec())
}

/// The position of the first candidate of the queue with the highest share, as shares are now. Of
/// queues with equal shares, the one that would be served last.
// Parity: see docs/parity.md#c5.
fn first_by_queue_share(session: &Session, candidates: &[TaskIdx], evicted: &[TaskIdx]) -> usize {
    let cluster = session.cluster();
    let mut highest: Option<(Share, Option<QueueIdx>)> = None;
    let mut first = 0;
    for (at, task) in candidates.iter().enumerate() {
        let queue = cluster.queue_of(*task);
        if highest.is_some_and(|(_, highest)| highest == queue) {
            continue;
        }
        let share =
            queue.map_or(Share::ZERO, |queue| session.plugins().queue_share(queue, evicted));
        if highest.is_none_or(|highest| (share, queue) > highest) {
            highest = Some((share, queue));
            first = at;
        }
    }
    first
}
