//! Selecting victims: what preempt and reclaim have in common.
//!
//! On each node, candidates are evicted one by one in a dry run, the one with the lowest priority
//! first, until the task fits. Then each victim that turns out not to be needed is restored, in the
//! reverse order, so that the set is minimal. The node whose victims have the lowest cost is chosen.
//! Plugins decide as if the victims were already evicted.
// Parity: differs, see docs/parity.md#p4 to docs/parity.md#p6.

mod dry_run;
mod select;
mod unplaceable;

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, VecDeque},
};

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, Column, JobIdx, NodeIdx, TaskIdx},
    decision::EvictReason,
    resource::ResourceVector,
    status::TaskStatus,
};
use kube_batch_framework::{
    plugin::{Capacity, Proposal},
    report::Failure,
    session::Session,
    statement::Statement,
};

use self::{select::select_victims, unplaceable::Unplaceable};

/// Which tasks an action may evict, and in which order.
pub(crate) trait VictimPolicy {
    /// The reason that is given for an eviction.
    const REASON: EvictReason;

    /// Whether the victims are of the task's own queue.
    ///
    /// If so, evicting them makes up for the task in the capability of the queue. If not, the
    /// victims of the queue with the highest share, as shares are now, are evicted first.
    const SAME_QUEUE: bool;

    /// Whether a task is a candidate at all, before plugins are called.
    fn considers(&self, cluster: &Cluster, task: TaskIdx, victim: TaskIdx) -> bool;

    /// Whether the plugins permit the eviction.
    fn allows(&self, session: &Session, proposal: &Proposal<'_>) -> bool;

    /// The resources that must stay idle for other queues, by dimension, if the queue is overused.
    /// `None` otherwise: the queue may use what it finds.
    fn reserved(&self) -> Option<&ResourceVector>;
}

/// The running tasks on each node, the first victim first. Sorted when first used.
#[derive(Debug)]
pub(crate) struct NodeTasks {
    sorted: Column<NodeIdx, Option<Vec<TaskIdx>>>,
}

impl NodeTasks {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self { sorted: Column::filled(None, cluster.nodes.facts.len()) }
    }

    fn on(&mut self, cluster: &Cluster, node: NodeIdx) -> &[TaskIdx] {
        self.sorted[node].get_or_insert_with(|| {
            let all = cluster.nodes.tasks[node].iter().copied();
            let mut running: Vec<TaskIdx> = all
                .filter(|task| cluster.tasks.ours[*task])
                .filter(|task| cluster.status(*task) == TaskStatus::Running)
                .collect();
            running.sort_by(|l, r| by_victim_cost(cluster, *l, *r));
            running
        })
    }
}

/// Lowest job priority, then lowest task priority, then youngest, then largest namespace and name.
fn by_victim_cost(cluster: &Cluster, l: TaskIdx, r: TaskIdx) -> Ordering {
    let rank = |task: TaskIdx| {
        let facts = &cluster.tasks.facts[task];
        let job_priority = job_priority(cluster, task);
        (job_priority, cluster.tasks.priority[task], Reverse((facts.created, &facts.key)))
    };
    rank(l).cmp(&rank(r))
}

fn job_priority(cluster: &Cluster, task: TaskIdx) -> i32 {
    cluster.tasks.job[task].map_or(0, |job| cluster.jobs.priority[job])
}

/// One turn of a job. Returns whether the job may have another turn.
///
/// Places the tasks of the job in order until the job is pipelined. For a job that is pipelined
/// already, places the first task that needs victims and finds them. Commits only if at least one
/// task is evicted and the job is pipelined; otherwise every move is rolled back.
pub(crate) fn turn<P: VictimPolicy>(
    policy: &P,
    session: &mut Session,
    node_tasks: &mut NodeTasks,
    job: JobIdx,
    waiting: &mut BTreeMap<JobIdx, VecDeque<TaskIdx>>,
) -> bool {
    let tasks = waiting.entry(job).or_insert_with(|| session.waiting_tasks(job).into());
    let one_task = session.job_pipelined(job);
    let mut statement = session.statement(job);
    let idle_before = policy.reserved().map(|_| statement.session().cluster().total_future_idle());
    let takes_reserved = |statement: &Statement<'_>, task| {
        let limit = idle_before.as_ref().zip(policy.reserved());
        limit.is_some_and(|(before, reserved)| {
            uses_reserved(statement.session(), task, before, reserved)
        })
    };
    let mut unplaceable = Unplaceable::default();
    let mut failure = None;
    while let Some(task) = tasks.pop_front() {
        if !statement.session().cluster().is_waiting(task)
            || unplaceable.skips(&mut statement, task)
        {
            continue;
        }
        let start = statement.savepoint();
        if !find_place(policy, &mut statement, node_tasks, task, &mut failure)
            || takes_reserved(&statement, task)
        {
            statement.rollback_to(start);
            unplaceable.add(&mut statement, task);
            if !one_task && !unplaceable.can_reach_minimum(&statement, tasks) {
                break;
            }
            continue;
        }
        let has_victims = statement.n_evicted() > 0;
        if !statement.is_pipelined() || has_victims {
            unplaceable.retry(&mut statement, tasks);
        }
        if !statement.is_pipelined() {
            continue;
        }
        if has_victims {
            statement.commit();
            session.record_turn(job);
            if let Some(failure) = failure {
                session.record_failure(job, |_| failure);
            }
            return !tasks.is_empty();
        }
        // A job that needs no victims is placed by allocate.
        if !one_task {
            break;
        }
        statement.rollback_to(start);
    }
    false
}

/// Whether the task, which has just been placed, uses idle resources that are reserved for other
/// queues. What victims release is not reserved.
// Parity: as allocate lends, see docs/parity.md#a9.
fn uses_reserved(
    session: &Session,
    task: TaskIdx,
    idle_before: &ResourceVector,
    reserved: &ResourceVector,
) -> bool {
    let idle = session.cluster().total_future_idle();
    let mut amounts = session.cluster().request(task).shared();
    amounts.any(|(dim, _)| idle[dim] < idle_before[dim] && idle[dim] < reserved[dim])
}

/// Pipelines the task: without victims if it fits somewhere, else on the node whose victims have the
/// lowest cost. Returns whether a place was found. Stores in `failure` why the first task of the job
/// cannot start now.
fn find_place<P: VictimPolicy>(
    policy: &P,
    statement: &mut Statement<'_>,
    node_tasks: &mut NodeTasks,
    task: TaskIdx,
    failure: &mut Option<Failure>,
) -> bool {
    let class = statement.session().cluster().tasks.class[task];
    let within_capability = statement.session().within_capability(task, &[]).is_ok();
    if within_capability && let Some(choice) = statement.best_node(class) {
        if choice.capacity == Capacity::FutureIdle {
            explain(statement, class, failure);
        }
        statement.pipeline(task, choice.node).expect("a task that waits may be pipelined");
        return true;
    }
    if !within_capability && !P::SAME_QUEUE {
        return false;
    }
    let cluster = statement.session().cluster();
    // A task without requests needs no victims' resources; backfill places it.
    // Parity: see docs/parity.md#p1.
    if cluster.tasks.facts[task].never_preempts || cluster.request(task).is_best_effort() {
        return false;
    }
    let selected = select_victims(policy, statement, node_tasks, task, class);
    let Some((node, victims)) = selected else { return false };
    explain(statement, class, failure);
    for victim in victims {
        statement.evict(victim, P::REASON).expect("a running task may be evicted");
    }
    statement.pipeline(task, node).expect("a task that waits may be pipelined");
    true
}

/// Stores why a task of the class does not fit now, unless the job has a reason already.
fn explain(statement: &mut Statement<'_>, class: ClassIdx, failure: &mut Option<Failure>) {
    let job = statement.job();
    let session = statement.session_mut();
    if failure.is_none() && session.failure(job).is_none() {
        *failure = Some(Failure::Unfit(session.explain(class)));
    }
}
