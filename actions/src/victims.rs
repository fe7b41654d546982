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
    column::{ClassIdx, Column, JobIdx, NodeIdx, QueueIdx, TaskIdx},
    decision::EvictReason,
    resource::{Row, Share},
    status::TaskStatus,
};
use kube_batch_framework::{
    plugin::{Capacity, Proposal},
    report::Failure,
    session::Session,
    statement::Statement,
};

/// Who may be asked to leave, and in which order.
pub(crate) trait Hunt {
    /// Why victims are evicted.
    const REASON: EvictReason;

    /// Whether the task is one of those that may be considered at all.
    fn considers(&self, cluster: &Cluster, task: TaskIdx, victim: TaskIdx) -> bool;

    /// Whether every policy lets the victim go.
    fn allows(&self, session: &Session, proposal: &Proposal<'_>) -> bool;

    /// What must be left of room that no victim frees, by dimension, for a queue that holds what it
    /// deserves. `None` for any other: it is entitled to what it finds.
    fn held_back(&self) -> Option<&Row>;

    /// Whether victims are of the task's own queue: what they held no longer counts against its
    /// capability. Otherwise those of the queue with the highest share as it is now go first.
    const SAME_QUEUE: bool;
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
    let room = hunt.held_back().map(|_| statement.session().cluster().total_future_idle());
    let draws_on_others = |statement: &Statement<'_>, task| {
        let limit = room.as_ref().zip(hunt.held_back());
        limit.is_some_and(|(before, held)| draws_on(statement.session(), task, before, held))
    };
    let mut refused = Refused::default();
    let mut short = None;
    while let Some(task) = tasks.pop_front() {
        if !statement.session().cluster().is_waiting(task)
            || refused.passes_over(&mut statement, task)
        {
            continue;
        }
        let start = statement.savepoint();
        if !find_place(hunt, &mut statement, residents, task, &mut short)
            || draws_on_others(&statement, task)
        {
            statement.rollback_to(start);
            refused.add(&mut statement, task);
            if !one_task && !refused.can_reach_minimum(&statement, tasks) {
                break;
            }
            continue;
        }
        let is_paid = statement.n_evicted() > 0;
        if !statement.is_pipelined() || is_paid {
            refused.reopen(&mut statement, tasks);
        }
        if !statement.is_pipelined() {
            continue;
        }
        if is_paid {
            statement.commit();
            session.note_tried(job);
            if let Some(short) = short {
                session.note_failure(job, |_| short);
            }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    class: ClassIdx,
    priority: i32,
    never_preempts: bool,
}

impl Kind {
    fn of(cluster: &Cluster, task: TaskIdx) -> Self {
        Self {
            class: cluster.tasks.class[task],
            priority: cluster.tasks.priority[task],
            never_preempts: cluster.tasks.facts[task].never_preempts,
        }
    }
}

/// Tasks of a job for which no room can be made.
#[derive(Debug, Default)]
struct Refused {
    kinds: Vec<Kind>,
    /// Those that another task of the job may help to a place, in their order.
    open: Vec<TaskIdx>,
}

impl Refused {
    fn add(&mut self, statement: &mut Statement<'_>, task: TaskIdx) {
        let kind = Kind::of(statement.session().cluster(), task);
        self.kinds.push(kind);
        if statement.session_mut().is_open_to_change(kind.class) {
            self.open.push(task);
        }
    }

    /// Whether the task need not be tried, as one of its kind failed.
    fn passes_over(&mut self, statement: &mut Statement<'_>, task: TaskIdx) -> bool {
        let kind = Kind::of(statement.session().cluster(), task);
        let is_refused = self.kinds.contains(&kind);
        if is_refused && statement.session_mut().is_open_to_change(kind.class) {
            self.open.push(task);
        }
        is_refused
    }

    /// Whether the minimum can be reached without those that nothing can help.
    fn can_reach_minimum(&self, statement: &Statement<'_>, tasks: &VecDeque<TaskIdx>) -> bool {
        let cluster = statement.session().cluster();
        let missing = statement.session().tasks_missing(statement.job()) as usize;
        let untried = tasks.iter().filter(|task| !self.kinds.contains(&Kind::of(cluster, **task)));
        untried.count() + self.open.len() >= missing
    }

    /// A task was placed: those that it may have helped go first among the tasks to be tried.
    // Parity: as in allocate, see docs/parity.md#a2.
    fn reopen(&mut self, statement: &mut Statement<'_>, tasks: &mut VecDeque<TaskIdx>) {
        self.kinds.retain(|kind| !statement.session_mut().is_open_to_change(kind.class));
        for task in self.open.drain(..).rev() {
            tasks.push_front(task);
        }
    }
}

/// Whether the task has a place by room that was there before and that others are entitled to.
// Parity: as allocate lends, see docs/parity.md#a9.
fn draws_on(session: &Session, task: TaskIdx, before: &Row, held_back: &Row) -> bool {
    let after = session.cluster().total_future_idle();
    let mut amounts = session.cluster().request(task).shared();
    amounts.any(|(dim, _)| after[dim] < before[dim] && after[dim] < held_back[dim])
}

/// Finds the task a place: without victims if it can, else on the node whose victims are worth
/// least. Says whether it was promised one; the statement holds the moves. `short` says why the
/// first one does not start now.
fn find_place<H: Hunt>(
    hunt: &H,
    statement: &mut Statement<'_>,
    residents: &mut Residents,
    task: TaskIdx,
    short: &mut Option<Failure>,
) -> bool {
    let class = statement.session().cluster().tasks.class[task];
    let within_capability = statement.session().within_capability(task, &[]).is_ok();
    if within_capability && let Some(choice) = statement.best_node(class) {
        if choice.capacity == Capacity::FutureIdle {
            note_short(statement, class, short);
        }
        statement.pipeline(task, choice.node).expect("a task that waits may be pipelined");
        return true;
    }
    if !within_capability && !H::SAME_QUEUE {
        return false;
    }
    let cluster = statement.session().cluster();
    // A task that asks for nothing waits for backfill: allocate has nothing it could not give it.
    // Parity: see docs/parity.md#p1.
    if cluster.tasks.facts[task].never_preempts || cluster.request(task).is_best_effort() {
        return false;
    }
    let Some((node, victims)) = best_hunt(hunt, statement, residents, task, class) else {
        return false;
    };
    note_short(statement, class, short);
    for victim in victims {
        statement.evict(victim, H::REASON).expect("a running task may be evicted");
    }
    statement.pipeline(task, node).expect("a task that waits may be pipelined");
    true
}

/// Notes why a task of the class does not fit now, unless the job has a reason already.
fn note_short(statement: &mut Statement<'_>, class: ClassIdx, short: &mut Option<Failure>) {
    let job = statement.job();
    let session = statement.session_mut();
    if short.is_none() && session.failure(job).is_none() {
        *short = Some(Failure::Unfit(session.explain(class)));
    }
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

/// The node whose victims are worth least, then the one with the best score, then the first; with
/// its victims.
fn best_hunt<H: Hunt>(
    hunt: &H,
    statement: &mut Statement<'_>,
    residents: &mut Residents,
    task: TaskIdx,
    class: ClassIdx,
) -> Option<(NodeIdx, Vec<TaskIdx>)> {
    let mut best: Option<Worth> = None;
    let mut tied: Vec<NodeIdx> = Vec::new();
    for node in statement.session().cluster().nodes.facts.ids() {
        let Some(victims) = hunt_on(hunt, statement, residents, task, class, node) else {
            continue;
        };
        let worth = Worth::of(statement.session().cluster(), &victims);
        match best.map_or(Ordering::Less, |best| worth.cmp(&best)) {
            Ordering::Less => {
                best = Some(worth);
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
    let victims = hunt_on(hunt, statement, residents, task, class, node)?;
    Some((node, victims))
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
    let candidates: Vec<TaskIdx> = residents
        .on(cluster, node)
        .iter()
        .copied()
        .filter(|victim| cluster.status(*victim) == TaskStatus::Running)
        .filter(|victim| hunt.considers(cluster, task, *victim))
        .collect();
    if candidates.is_empty() {
        return None;
    }
    if statement.session_mut().needs_only_resources(class) {
        return choose(hunt, &mut OnPaper::new(statement.session(), task, node), candidates);
    }
    let start = statement.savepoint();
    let mut trial = InSession { statement, reason: H::REASON, task, node, taken: Vec::new() };
    let victims = choose(hunt, &mut trial, candidates);
    statement.rollback_to(start);
    victims
}

/// Takes candidates in their order until the task fits, then gives back, last one first, whoever is
/// not needed.
fn choose<H: Hunt>(
    hunt: &H,
    trial: &mut impl Trial,
    mut candidates: Vec<TaskIdx>,
) -> Option<Vec<TaskIdx>> {
    let task = trial.task();
    loop {
        if candidates.is_empty() {
            return None;
        }
        let at = if H::SAME_QUEUE {
            0
        } else {
            first_by_queue_share(trial.session(), &candidates, trial.gone())
        };
        let victim = candidates.remove(at);
        let proposal = Proposal { taker: task, victim, gone: trial.gone() };
        if hunt.allows(trial.session(), &proposal) {
            trial.take(trial.taken().len(), victim);
            if trial.fits() {
                break;
            }
        }
    }
    // Without the last one it did not fit.
    for at in (0..trial.taken().len() - 1).rev() {
        let victim = trial.taken()[at];
        trial.give_back(at);
        if !trial.fits() {
            trial.take(at, victim);
        }
    }
    Some(trial.taken().to_vec())
}

/// A node with some of its tasks gone.
trait Trial {
    fn session(&self) -> &Session;
    fn task(&self) -> TaskIdx;
    /// Victims so far, in the order they were taken.
    fn taken(&self) -> &[TaskIdx];
    /// Those of them that the session still shows in their place.
    fn gone(&self) -> &[TaskIdx];
    fn fits(&mut self) -> bool;
    fn take(&mut self, at: usize, victim: TaskIdx);
    fn give_back(&mut self, at: usize);
}

/// For classes that need nothing but room: arithmetic, nothing is moved.
struct OnPaper<'a> {
    session: &'a Session,
    task: TaskIdx,
    room: Row,
    taken: Vec<TaskIdx>,
}

impl<'a> OnPaper<'a> {
    fn new(session: &'a Session, task: TaskIdx, node: NodeIdx) -> Self {
        let cluster = session.cluster();
        let mut room = Row::zero(cluster.dimensions.len());
        room.add(&cluster.nodes.idle[node], 1);
        room.add(&cluster.nodes.releasing[node], 1);
        room.add(&cluster.nodes.pipelined[node], -1);
        Self { session, task, room, taken: Vec::new() }
    }

    fn free(&mut self, victim: TaskIdx, sign: i64) {
        for (dim, amount) in self.session.cluster().request(victim).amounts() {
            self.room[*dim] += sign * amount;
        }
    }
}

impl Trial for OnPaper<'_> {
    fn session(&self) -> &Session {
        self.session
    }

    fn task(&self) -> TaskIdx {
        self.task
    }

    fn taken(&self) -> &[TaskIdx] {
        &self.taken
    }

    fn gone(&self) -> &[TaskIdx] {
        &self.taken
    }

    fn fits(&mut self) -> bool {
        self.session.cluster().request(self.task).fits_in(&self.room)
            && self.session.within_capability(self.task, &self.taken).is_ok()
    }

    fn take(&mut self, at: usize, victim: TaskIdx) {
        self.free(victim, 1);
        self.taken.insert(at, victim);
    }

    fn give_back(&mut self, at: usize) {
        let victim = self.taken.remove(at);
        self.free(victim, -1);
    }
}

/// For classes with rules about other tasks: the victims are moved for real, and the rules asked.
struct InSession<'t, 's> {
    statement: &'t mut Statement<'s>,
    reason: EvictReason,
    task: TaskIdx,
    node: NodeIdx,
    taken: Vec<TaskIdx>,
}

impl Trial for InSession<'_, '_> {
    fn session(&self) -> &Session {
        self.statement.session()
    }

    fn task(&self) -> TaskIdx {
        self.task
    }

    fn taken(&self) -> &[TaskIdx] {
        &self.taken
    }

    fn gone(&self) -> &[TaskIdx] {
        &[]
    }

    fn fits(&mut self) -> bool {
        let session = self.statement.session_mut();
        let class = session.cluster().tasks.class[self.task];
        session.within_capability(self.task, &[]).is_ok()
            && session.fits(class, self.node, Capacity::FutureIdle)
    }

    fn take(&mut self, at: usize, victim: TaskIdx) {
        self.statement.evict(victim, self.reason).expect("a candidate runs");
        self.taken.insert(at, victim);
    }

    fn give_back(&mut self, at: usize) {
        let victim = self.taken.remove(at);
        self.statement.retract(victim);
    }
}

/// The first candidate of the queue with the highest share as it is now; of equal queues the one
/// that would be served last.
// Parity: see docs/parity.md#c5.
fn first_by_queue_share(session: &Session, candidates: &[TaskIdx], gone: &[TaskIdx]) -> usize {
    let cluster = session.cluster();
    let mut best: Option<(Share, Option<QueueIdx>)> = None;
    let mut first = 0;
    for (at, task) in candidates.iter().enumerate() {
        let queue = cluster.queue_of(*task);
        if best.is_some_and(|(_, best)| best == queue) {
            continue;
        }
        let share = queue.map_or(Share::ZERO, |queue| session.queue_share(queue, gone));
        if best.is_none_or(|best| (share, queue) > best) {
            best = Some((share, queue));
            first = at;
        }
    }
    first
}
