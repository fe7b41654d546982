//! Which tasks of one node a task evicts to get their place.

use std::cmp::Reverse;

use jiff::Timestamp;
use kube_batch_framework::{plugin::Proposal, session::Session, statement::Statement};
use kube_batch_model::column::{ClassIdx, Dim, NodeIdx, TaskIdx};

use super::{
    dry_run::{ResourceDryRun, SessionDryRun},
    limit::Limit,
    loss::NeedOf,
    minimal_set::{Candidates, Considered, Victims, select_by_restoring, select_minimal_set},
    node_tasks::{NodeTasks, job_priority},
    policy::VictimPolicy,
};

/// Number of tasks checked as candidates that count as one evaluation of a node. Guessed.
pub(super) const TASKS_LOOKED_AT: usize = 4;

/// A task that gets the place of victims.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preemptor {
    pub(super) task: TaskIdx,
    pub(super) class: ClassIdx,
    /// The resource in which the loss is measured, if whole jobs may be evicted.
    pub(super) scarce: Option<Dim>,
    /// `None` if every victim is admitted.
    pub(super) limit: Option<Limit>,
    /// What its queue can use of the scarce resource; `None` if the loss is not limited.
    pub(super) need: Option<NeedOf>,
}

/// The cost of evicting a set of victims. The node with the lowest cost is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VictimCost {
    /// Whether a task on the node does not end: then others there may not end either.
    is_stuck: bool,
    n_violating: usize,
    highest_priority: i32,
    /// How many Jobs of `batch` fail by it.
    n_failing_jobs: usize,
    loss: Loss,
    /// When the first of those with the highest priority started; the later the better.
    start: Reverse<Option<Timestamp>>,
}

/// What is lost with a set of victims. Losses of one kind are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    /// As in kube-scheduler, with the priorities of jobs instead of those of pods.
    Victims {
        /// Each with 2^31 added, so that more victims never cost less.
        sum_of_priorities: i64,
        n_victims: usize,
    },
    /// The sum of what they request of the resource that the preemptor is short of.
    Amount(i64),
}

impl VictimCost {
    // Parity: see docs/parity.md#p5, docs/parity.md#p10 and docs/parity.md#p16.
    pub(super) fn of(session: &Session, preemptor: Preemptor, victims: &Victims) -> Self {
        let cluster = session.cluster();
        let Victims { tasks, n_violating } = victims;
        let priority = |victim: &TaskIdx| job_priority(cluster, *victim);
        let highest_priority = tasks.iter().map(priority).max().unwrap_or(i32::MIN);
        let highest = tasks.iter().filter(|victim| priority(victim) == highest_priority);
        let loss = match preemptor.scarce {
            Some(dim) => {
                Loss::Amount(tasks.iter().map(|victim| cluster.request(*victim).get(dim)).sum())
            }
            None => Loss::Victims {
                sum_of_priorities: tasks.iter().map(priority).map(positive).sum(),
                n_victims: tasks.len(),
            },
        };
        let start = Reverse(highest.map(|victim| cluster.tasks.start[*victim]).min());
        let mut nodes = tasks.iter().filter_map(|task| cluster.tasks.placement[*task].node);
        let is_stuck = nodes.any(|node| session.has_stuck_task(node));
        let n_failing_jobs = cluster.n_failing_jobs(tasks);
        Self { is_stuck, n_violating: *n_violating, highest_priority, n_failing_jobs, loss, start }
    }
}

impl VictimCost {
    /// The highest priority of a victim's job.
    pub(super) const fn highest_priority(&self) -> i32 {
        self.highest_priority
    }

    /// How many Jobs of `batch` fail.
    pub(super) const fn n_failing_jobs(&self) -> usize {
        self.n_failing_jobs
    }
}

/// A cost that no victims on the node can be below, without asking plugins; `None` if there are no candidates.
pub(super) fn lower_bound(
    policy: VictimPolicy<'_>,
    session: &mut Session,
    preemptor: Preemptor,
    node: NodeIdx,
) -> Option<VictimCost> {
    if !session.search().is_eligible(preemptor.class, node) {
        return None;
    }
    let n_tasks = session.cluster().nodes.tasks[node].len();
    session.count_work(n_tasks.div_ceil(TASKS_LOOKED_AT) as u64);
    let cluster = session.cluster();
    let tasks = cluster.nodes.tasks[node].iter().copied();
    let is_candidate = |task: &TaskIdx| {
        cluster.tasks.ours[*task] && is_candidate(policy, session, preemptor, *task)
    };
    let mut bound: Option<(i32, i64, Timestamp)> = None;
    for task in tasks.filter(is_candidate) {
        let amount = preemptor.scarce.map_or(0, |dim| cluster.request(task).get(dim));
        let (priority, start) = (job_priority(cluster, task), cluster.tasks.start[task]);
        bound = Some(match bound {
            None => (priority, amount, start),
            Some(least) => (least.0.min(priority), least.1.min(amount), least.2.max(start)),
        });
    }
    let (highest_priority, amount, start) = bound?;
    let loss = match preemptor.scarce {
        Some(_) => Loss::Amount(amount),
        None => Loss::Victims { sum_of_priorities: positive(highest_priority), n_victims: 1 },
    };
    let is_stuck = session.has_stuck_task(node);
    Some(VictimCost {
        is_stuck,
        n_violating: 0,
        highest_priority,
        n_failing_jobs: 0,
        loss,
        start: Reverse(Some(start)),
    })
}

/// A priority with 2^31 added.
fn positive(priority: i32) -> i64 {
    i64::from(priority) - i64::from(i32::MIN)
}

/// A minimal set of victims without which the task fits on the node, if there is one, and what decided about
/// it. Leaves the statement as it was.
pub(super) fn select_victims_on_node(
    policy: VictimPolicy<'_>,
    statement: &mut Statement<'_>,
    node_tasks: &mut NodeTasks,
    preemptor: Preemptor,
    node: NodeIdx,
) -> (Option<Victims>, Considered) {
    let Preemptor { task, class, .. } = preemptor;
    let mut considered = Considered::default();
    if !statement.search().is_eligible(class, node) {
        return (None, considered);
    }
    let candidates = candidates_on_node(policy, statement.session(), node_tasks, preemptor, node);
    let Some(candidates) = candidates else { return (None, considered) };
    statement.session_mut().count_work(candidates.all.len() as u64);
    considered.is_volatile = candidates.are_volatile(policy, statement.session());
    if statement.search().needs_only_resources(class, &candidates.all) {
        // A rule that refuses the node now refuses it without the victims too.
        if !statement.search().rules_pass(class, node) {
            return (None, considered);
        }
        let mut dry_run = ResourceDryRun::new(statement.session(), task, node);
        let victims = select_minimal_set(policy, &mut dry_run, &candidates, &mut considered);
        return (victims, considered);
    }
    considered.is_volatile = true;
    // Evicting tasks in the session costs far more than adding up their requests.
    if !ResourceDryRun::new(statement.session(), task, node).has_room_without(&candidates.all) {
        return (None, considered);
    }
    let start = statement.savepoint();
    let mut dry_run = SessionDryRun::new(statement, policy.reason(), task, node);
    let victims = select_minimal_set(policy, &mut dry_run, &candidates, &mut considered)
        .or_else(|| select_by_restoring(policy, &mut dry_run, &candidates));
    statement.rollback_to(start);
    (victims, considered)
}

/// The tasks on a node that may be evicted as far as this does not depend on other evictions; `None` if
/// there are none.
fn candidates_on_node(
    policy: VictimPolicy<'_>,
    session: &Session,
    node_tasks: &mut NodeTasks,
    preemptor: Preemptor,
    node: NodeIdx,
) -> Option<Candidates> {
    let Preemptor { limit, .. } = preemptor;
    let tasks = node_tasks.on(session.cluster(), node).iter().copied();
    let all: Vec<TaskIdx> =
        tasks.filter(|victim| is_candidate(policy, session, preemptor, *victim)).collect();
    if all.is_empty() {
        return None;
    }
    let mut candidates = Candidates::new(session, all);
    if limit.is_some_and(|limit| !limit.may_violate) {
        candidates.protected.clear();
    }
    Some(candidates)
}

/// Whether the task may be evicted, before plugins are called.
pub(super) fn is_candidate(
    policy: VictimPolicy<'_>,
    session: &Session,
    preemptor: Preemptor,
    victim: TaskIdx,
) -> bool {
    let Preemptor { task, limit, .. } = preemptor;
    let cluster = session.cluster();
    cluster.status(victim).may_be_evicted()
        && policy.considers(cluster, task, victim)
        && limit.is_none_or(|limit| limit.admits_priority(job_priority(cluster, victim)))
        && session.have_run_enough(task, &[victim])
}

/// The tasks on a node that may be evicted together, the first victim first.
pub(super) fn permitted_on_node(
    policy: VictimPolicy<'_>,
    statement: &Statement<'_>,
    node_tasks: &mut NodeTasks,
    preemptor: Preemptor,
    node: NodeIdx,
) -> Vec<TaskIdx> {
    let session = statement.session();
    let mut permitted: Vec<TaskIdx> = Vec::new();
    let candidates = candidates_on_node(policy, session, node_tasks, preemptor, node);
    for victim in
        candidates.into_iter().flat_map(|of_node| [of_node.free, of_node.protected].concat())
    {
        let proposal = Proposal { preemptor: preemptor.task, victim, evicted: &permitted };
        if policy.allows(session, &proposal) {
            permitted.push(victim);
        }
    }
    permitted
}
