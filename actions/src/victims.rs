//! Whose room a task may take: what preempt and reclaim have in common.
//!
//! On each node victims are taken one by one, least worth keeping first, until the task fits; then
//! each that turned out not to be needed is given back, in the reverse order, so that the set is
//! minimal. Of the nodes the one whose victims are worth least is chosen. Rules are asked as if the
//! victims were gone.
// Parity: differs, see docs/parity.md#p4 to docs/parity.md#p6.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, VecDeque},
};

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, Column, JobIdx, NodeIdx, TaskIdx},
    decision::EvictReason,
    resource::Share,
    status::TaskStatus,
};
use kube_batch_framework::{plugin::View, session::Session, statement::Statement};

/// Who may be asked to leave, and in which order.
pub(crate) trait Hunt {
    /// Why victims are evicted.
    const REASON: EvictReason;

    /// Whether the task is one of those that may be considered at all.
    fn considers(&self, cluster: &Cluster, task: TaskIdx, victim: TaskIdx) -> bool;

    /// Whether every policy lets the victim go, with earlier victims gone.
    fn allows(&self, session: &Session, task: TaskIdx, victim: TaskIdx) -> bool;

    /// Whether victims of the queue with the highest share as it is now go first.
    const BY_QUEUE_SHARE: bool;
}

/// Running tasks of each node, least worth keeping first; sorted when first asked for.
#[derive(Debug)]
pub(crate) struct Residents {
    sorted: Column<NodeIdx, Option<Vec<TaskIdx>>>,
}

impl Residents {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self { sorted: Column::filled(None, cluster.nodes.facts.len()) }
    }

    fn on(&mut self, cluster: &Cluster, node: NodeIdx) -> &[TaskIdx] {
        self.sorted[node].get_or_insert_with(|| {
            let all = cluster.nodes.residents[node].iter().copied();
            let mut running: Vec<TaskIdx> = all
                .filter(|task| cluster.tasks.ours[*task])
                .filter(|task| cluster.status(*task) == TaskStatus::Running)
                .collect();
            running.sort_by(|l, r| least_worth_keeping(cluster, *l, *r));
            running
        })
    }
}

/// Lowest job priority, then lowest task priority, then youngest, then largest namespace and name.
fn least_worth_keeping(cluster: &Cluster, l: TaskIdx, r: TaskIdx) -> Ordering {
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

/// One turn of a job: its tasks in order, until it is pipelined; for a job that has its minimum, the
/// first task that victims can make room for. Nothing is decided unless somebody had to leave and
/// the job gets its place. Says whether the job may have another turn.
pub(crate) fn turn<H: Hunt>(
    hunt: &H,
    session: &mut Session,
    residents: &mut Residents,
    job: JobIdx,
    waiting: &mut BTreeMap<JobIdx, VecDeque<TaskIdx>>,
) -> bool {
    let tasks = waiting.entry(job).or_insert_with(|| session.waiting_tasks(job).into());
    let one_task = session.job_pipelined(job);
    let mut statement = session.statement(job);
    let n_held = statement.n_evicted();
    let mut unfit = Vec::new();
    while let Some(task) = tasks.pop_front() {
        let cluster = statement.session().cluster();
        let kind = kind_of(cluster, task);
        if unfit.contains(&kind) || !cluster.is_waiting(task) {
            continue;
        }
        let start = statement.savepoint();
        if !make_room(hunt, &mut statement, residents, task) {
            unfit.push(kind);
            let missing = statement.session().tasks_missing(job) as usize;
            let cluster = statement.session().cluster();
            let left = tasks.iter().filter(|task| !unfit.contains(&kind_of(cluster, **task)));
            if !one_task && left.count() < missing {
                break;
            }
            continue;
        }
        if !statement.is_pipelined() {
            continue;
        }
        if statement.n_evicted() > n_held {
            statement.commit();
            return !tasks.is_empty();
        }
        // Allocate places what needs no victim.
        if !one_task {
            break;
        }
        statement.rollback_to(start);
    }
    false
}

/// What two waiting tasks of a job must share for one's failure to be the other's.
fn kind_of(cluster: &Cluster, task: TaskIdx) -> (ClassIdx, i32, bool) {
    let never_preempts = cluster.tasks.facts[task].never_preempts;
    (cluster.tasks.class[task], cluster.tasks.priority[task], never_preempts)
}

/// Finds the task a place: without victims if it can, else on the node whose victims are worth
/// least. Says whether it was promised one; the statement holds the moves.
pub(crate) fn make_room<H: Hunt>(
    hunt: &H,
    statement: &mut Statement<'_>,
    residents: &mut Residents,
    task: TaskIdx,
) -> bool {
    if statement.session().within_capability(task).is_err() {
        return false;
    }
    let class = statement.session().cluster().tasks.class[task];
    if let Some(choice) = statement.best_node(class) {
        statement.pipeline(task, choice.node).expect("a task that waits may be pipelined");
        return true;
    }
    if statement.session().cluster().tasks.facts[task].never_preempts {
        return false;
    }
    let Some((node, victims)) = best_hunt(hunt, statement, residents, task, class) else {
        return false;
    };
    for victim in victims {
        statement.evict(victim, H::REASON).expect("a running task may be evicted");
    }
    statement.pipeline(task, node).expect("a task that waits may be pipelined");
    true
}

/// What a set of victims is worth: less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Worth {
    highest_priority: i32,
    n_highest: usize,
    sum_of_priorities: i64,
    n_victims: usize,
}

impl Worth {
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

/// The node whose victims are worth least, then the one with the best score, then the first.
fn best_hunt<H: Hunt>(
    hunt: &H,
    statement: &mut Statement<'_>,
    residents: &mut Residents,
    task: TaskIdx,
    class: ClassIdx,
) -> Option<(NodeIdx, Vec<TaskIdx>)> {
    let mut best: Option<Worth> = None;
    let mut tied: Vec<(NodeIdx, Vec<TaskIdx>)> = Vec::new();
    for node in statement.session().cluster().nodes.facts.ids() {
        let Some(victims) = hunt_on(hunt, statement, residents, task, class, node) else {
            continue;
        };
        let worth = Worth::of(statement.session().cluster(), &victims);
        match best.map_or(Ordering::Less, |best| worth.cmp(&best)) {
            Ordering::Less => {
                best = Some(worth);
                tied = vec![(node, victims)];
            }
            Ordering::Equal => tied.push((node, victims)),
            Ordering::Greater => {}
        }
    }
    if tied.len() > 1 {
        let nodes: Vec<NodeIdx> = tied.iter().map(|(node, _)| *node).collect();
        let scores = statement.session_mut().scores(class, &nodes);
        let first_best = (0..scores.len()).rev().max_by_key(|at| scores[*at]);
        return first_best.map(|at| tied.swap_remove(at));
    }
    tied.pop()
}

/// A minimal set of victims that makes room on one node, if there is one. Leaves no trace.
fn hunt_on<H: Hunt>(
    hunt: &H,
    statement: &mut Statement<'_>,
    residents: &mut Residents,
    task: TaskIdx,
    class: ClassIdx,
    node: NodeIdx,
) -> Option<Vec<TaskIdx>> {
    if !statement.session_mut().is_eligible(class, node) {
        return None;
    }
    let cluster = statement.session().cluster();
    let mut candidates: Vec<TaskIdx> = residents
        .on(cluster, node)
        .iter()
        .copied()
        .filter(|victim| cluster.status(*victim) == TaskStatus::Running)
        .filter(|victim| hunt.considers(cluster, task, *victim))
        .collect();
    if !could_suffice(cluster, &candidates, task, node) {
        return None;
    }
    let start = statement.savepoint();
    let mut victims = Vec::new();
    let mut fits = false;
    while !fits && !candidates.is_empty() {
        let at = if H::BY_QUEUE_SHARE {
            first_by_queue_share(statement.session(), &candidates)
        } else {
            0
        };
        let victim = candidates.remove(at);
        if hunt.allows(statement.session(), task, victim) {
            statement.evict(victim, H::REASON).expect("a running task may be evicted");
            victims.push(victim);
            fits = statement.session_mut().fits(class, node, View::Later);
        }
    }
    if fits {
        for at in (0..victims.len()).rev() {
            statement.retract(victims[at]);
            if statement.session_mut().fits(class, node, View::Later) {
                victims.remove(at);
            } else {
                statement.evict(victims[at], H::REASON).expect("it was running a moment ago");
            }
        }
    }
    statement.rollback_to(start);
    fits.then_some(victims)
}

/// Whether the room would do if every candidate left.
fn could_suffice(cluster: &Cluster, candidates: &[TaskIdx], task: TaskIdx, node: NodeIdx) -> bool {
    use kube_batch_api::column::Ordinal;
    let nodes = &cluster.nodes;
    !candidates.is_empty()
        && cluster.request(task).amounts().iter().all(|(dim, amount)| {
            let at = dim.at();
            let freed: i64 =
                candidates.iter().map(|victim| cluster.request(*victim).get(*dim)).sum();
            let room = nodes.idle[node][at] + nodes.releasing[node][at] - nodes.pipelined[node][at];
            *amount <= room + freed
        })
}

/// The first candidate of the queue with the highest share as it is now; of equal queues the one
/// that would be served last.
// Parity: see docs/parity.md#c5.
fn first_by_queue_share(session: &Session, candidates: &[TaskIdx]) -> usize {
    let cluster = session.cluster();
    let share = |task: &TaskIdx| {
        let queue = cluster.queue_of(*task);
        queue.map_or((Share::ZERO, None), |queue| (session.queue_share(queue), Some(queue)))
    };
    let ranked = candidates.iter().enumerate().map(|(at, task)| (share(task), Reverse(at)));
    ranked.max().map_or(0, |(_, at)| at.0)
}
