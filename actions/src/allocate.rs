//! Allocate: places waiting tasks on idle resources, by fair share and whole gangs at a time.
//!
//! In the fair pass, the queue with the lowest share gets the next turn, and in it the first job by job order. Turns
//! that bring a queue above what it deserves come after those that do not, and an overused queue gets none. A turn is
//! one statement: a gang that cannot start holds no resources. Incomplete gangs get turns before all others. The
//! lending pass then gives turns to the overused queues, on the idle resources that are not withheld: those that the
//! other queues are entitled to and could use stay idle.
//!
//! Upstream: `actions/allocate/allocate.go`, which keeps the resources of a gang that is not ready,
//! and leaves idle what no queue's share covers.
// Parity: differs, see docs/parity.md#a1 to docs/parity.md#a9.

use std::collections::{BTreeMap, VecDeque};

use kube_batch_framework::{
    candidates::Choice,
    cycle::Action,
    failure::Failure,
    order::{NextTurn, Turns, give_turn},
    plugin::Capacity,
    reservations::Finds,
    session::Session,
    spec::ActionSpec,
    withheld::Withheld,
};
use kube_batch_model::{
    column::{ClassIdx, Column, CompositeIdx, JobIdx, NodeIdx, QueueIdx, TaskIdx},
    resource::ResourceVector,
};

use crate::{
    budget::{Budget, Lending},
    composites::{JobTurns, Reached, place_groups},
    gang::{Settled, place_if_free, reaches_minimum, record_fitting, settle},
    nominated_places::{self, Terms},
    topology::{place_tasks_by_topology, start_sooner_by_topology},
    waiting::{Waiting, WaitingByJob},
};

/// The action.
#[derive(Debug)]
pub struct Allocate;

/// How a configuration names the action.
pub const SPEC: ActionSpec = ActionSpec {
    name: "allocate",
    about: "place waiting tasks, whole gangs at a time, queues by share",
    new: || Box::new(Allocate),
};

impl Action for Allocate {
    fn name(&self) -> &'static str {
        "allocate"
    }

    fn evicts(&self) -> bool {
        false
    }

    fn execute(&self, session: &mut Session) {
        let mut waiting = Waiting::default();
        let gets_loans_only = |session: &Session, job| session.plugins().gets_loans_only(job);
        let mut first = first_turns(session, |job| !gets_loans_only(session, job));
        first.run_unless_overused(session, |session, job| {
            first_turn(session, job, &mut waiting, &mut Budget::All)
        });
        let mut turns =
            Turns::new(session, |job| has_work(session, job) && !gets_loans_only(session, job));
        for queue in within_deserved(session, &mut turns, &mut waiting) {
            turns.put_back_queue(session, queue);
        }
        let overused = turns.run_unless_overused(session, |session, job| {
            turn(session, job, &mut waiting, &mut Budget::All)
        });
        let mut borrowers = session.active_jobs().to_vec();
        borrowers.retain(|job| has_work(session, *job) && gets_loans_only(session, *job));
        for queue in overused.iter().copied() {
            turns.put_back_queue(session, queue);
        }
        if !overused.is_empty() || !borrowers.is_empty() {
            lend(session, turns, &borrowers, &mut waiting);
        }
        // Those that might have taken their places had their turns.
        session.commit_ready_nominations();
    }
}

/// The first round of the fair pass: a queue gets turns as long as it holds no more than it deserves with the next one.
/// Returns the queues that are left for the second round, in order.
// Parity: new, see docs/parity.md#a6.
fn within_deserved(
    session: &mut Session,
    turns: &mut Turns,
    waiting: &mut Waiting,
) -> Vec<QueueIdx> {
    let mut later = Vec::new();
    while let Some(queue) = turns.next_queue(session) {
        if session.plugins().overused(queue) {
            later.push(queue);
            continue;
        }
        let Some(job) = turns.next_job(session, queue) else { continue };
        if brings_above_deserved(session, queue, job, waiting) {
            turns.put_back_job(session, queue, job);
            later.push(queue);
            continue;
        }
        let mut turn = |session: &mut Session, job| turn(session, job, waiting, &mut Budget::All);
        if give_turn(session, job, &mut turn) == NextTurn::Wanted {
            turns.put_back_job(session, queue, job);
        }
        turns.put_back_queue(session, queue);
    }
    later
}

/// Whether the next turn of the job would bring the queue above what it deserves.
fn brings_above_deserved(
    session: &Session,
    queue: QueueIdx,
    job: JobIdx,
    waiting: &mut Waiting,
) -> bool {
    let cluster = session.cluster();
    let n_tasks = session.plugins().tasks_missing(job).max(1) as usize;
    let mut gains = ResourceVector::zero(cluster.dimensions.len());
    for task in waiting_tasks(session, job, &mut waiting.tasks).iter().take(n_tasks) {
        for (dim, amount) in cluster.request(*task).shared() {
            gains[dim] = gains[dim].saturating_add(amount);
        }
    }
    cluster.dimensions.shared().any(|dim| {
        let above = session.plugins().excess(queue, dim);
        gains[dim] > 0 && above.is_some_and(|above| above + gains[dim] > 0)
    })
}

/// The tasks that the job has still to try.
fn waiting_tasks<'a>(
    session: &Session,
    job: JobIdx,
    waiting: &'a mut WaitingByJob,
) -> &'a mut VecDeque<TaskIdx> {
    waiting.entry(job).or_insert_with(|| {
        let mut tasks = session.waiting_tasks(job);
        tasks.retain(|task| !session.cluster().request(*task).is_best_effort());
        tasks.into()
    })
}

/// Gives turns to the queues that are left, and to jobs that get loans only, on what may be lent.
fn lend(session: &mut Session, mut turns: Turns, borrowers: &[JobIdx], waiting: &mut Waiting) {
    for job in borrowers.iter().copied() {
        if let Some(queue) = session.cluster().jobs.queue[job] {
            turns.put_back_job(session, queue, job);
            turns.put_back_queue(session, queue);
        }
    }
    let mut lending = Lending {
        withheld: Withheld::of(session),
        idle: session.cluster().total_available(Capacity::Idle),
    };
    first_turns(session, |_| true).run(session, |session, job| {
        first_turn(session, job, waiting, &mut Budget::Lent(&mut lending))
    });
    turns.run(session, |session, job| turn(session, job, waiting, &mut Budget::Lent(&mut lending)));
}

fn has_work(session: &Session, job: JobIdx) -> bool {
    session.has_waiting_tasks(job) || session.has_nominations(job)
}

/// Turns of torn gangs that this action can help, and of the jobs of their queues that go before them: so a gang is
/// completed before a job of any queue gets the room that it needs.
// Parity: new, see docs/parity.md#g1.
fn first_turns(session: &Session, include: impl Fn(JobIdx) -> bool) -> Turns {
    let cluster = session.cluster();
    let is_torn = |job: JobIdx| cluster.jobs.is_torn[job] && !session.plugins().job_ready(job);
    // Best-effort tasks are placed in backfill.
    let has_request = |task: TaskIdx| !cluster.request(task).is_best_effort();
    let has_own_work = |job: JobIdx| {
        let mut tasks = cluster.jobs.tasks[job].iter();
        session.has_nominations(job)
            || tasks.any(|task| cluster.is_waiting(task) && has_request(task))
    };
    let order = |l: &JobIdx, r: &JobIdx| session.plugins().job_order(*l, *r);
    let mut last: Column<QueueIdx, Option<JobIdx>> =
        Column::filled(None, cluster.queues.facts.len());
    let torn = session.active_jobs().iter().copied().filter(|job| is_torn(*job));
    for job in torn.filter(|job| has_own_work(*job)) {
        if let Some(queue) = cluster.jobs.queue[job] {
            last[queue] = last[queue].into_iter().chain([job]).max_by(order);
        }
    }
    Turns::new(session, |job| {
        let last = cluster.jobs.queue[job].and_then(|queue| last[queue]);
        last.is_some_and(|last| order(&job, &last).is_le())
            && has_work(session, job)
            && include(job)
    })
}

/// A turn before others. A torn gang that is complete has no more of them: its other tasks are not what it lacked.
fn first_turn(
    session: &mut Session,
    job: JobIdx,
    waiting: &mut Waiting,
    budget: &mut Budget<'_>,
) -> NextTurn {
    let next = turn(session, job, waiting, budget);
    if session.cluster().jobs.is_torn[job] { NextTurn::None } else { next }
}

/// A turn of a job, or of all jobs of a composite PodGroup. Returns whether the job may have another turn.
fn turn(
    session: &mut Session,
    job: JobIdx,
    waiting: &mut Waiting,
    budget: &mut Budget<'_>,
) -> NextTurn {
    let row = session.incomplete_above(job);
    if row.is_some_and(|row| !waiting.tried.insert(row)) {
        return NextTurn::None;
    }
    session.beside_reservations(job, Finds::Room, |session| match row {
        None => turn_of_job(session, job, &mut waiting.tasks, budget),
        Some(row) => turn_of_groups(session, job, row, waiting, budget),
    })
}

/// A turn of all jobs of a composite PodGroup.
fn turn_of_groups(
    session: &mut Session,
    job: JobIdx,
    row: CompositeIdx,
    waiting: &mut Waiting,
    budget: &mut Budget<'_>,
) -> NextTurn {
    match place_groups(session, row, &mut Allocating { waiting: &mut waiting.tasks, budget }) {
        Reached::Complete if session.has_waiting_tasks(job) => NextTurn::Wanted,
        Reached::Complete | Reached::Waits | Reached::Incomplete => NextTurn::None,
    }
}

/// Places the jobs of composite PodGroups.
struct Allocating<'a, 'b> {
    waiting: &'a mut WaitingByJob,
    budget: &'a mut Budget<'b>,
}

impl JobTurns for Allocating<'_, '_> {
    const EVICTS: bool = false;

    fn may_wait(&self) -> bool {
        matches!(self.budget, Budget::All)
    }

    fn turn(&mut self, session: &mut Session, job: JobIdx) {
        turn_of_job(session, job, self.waiting, self.budget);
    }

    fn turn_at(&mut self, session: &mut Session, job: JobIdx, places: &[(TaskIdx, NodeIdx)]) {
        let tasks = waiting_tasks(session, job, self.waiting);
        let idle = self.budget.idle();
        let mut statement = session.statement(job);
        let are_placed = places.iter().all(|(task, node)| {
            let choice = Choice { node: *node, capacity: Capacity::Idle };
            place_if_free(&mut statement, *task, choice, self.budget)
        });
        if are_placed && settle(statement) == Settled::Stand {
            tasks.retain(|task| session.cluster().is_waiting(*task));
        } else {
            self.budget.restore(idle);
        }
    }

    fn idle(&self) -> Option<ResourceVector> {
        self.budget.idle()
    }

    fn restore(&mut self, idle: Option<ResourceVector>) {
        self.budget.restore(idle);
    }
}

/// One turn of a job: one statement. Returns whether the job may have another turn.
fn turn_of_job(
    session: &mut Session,
    job: JobIdx,
    waiting: &mut WaitingByJob,
    budget: &mut Budget<'_>,
) -> NextTurn {
    session.record_turn(job);
    let tasks = waiting_tasks(session, job, waiting);
    let idle_before = budget.idle();
    let untried = nominated_places::has_some(session, job).then(|| tasks.clone());
    let mut statement = session.statement(job);
    let is_placed_again = start_sooner_by_topology(tasks, &mut statement, budget);
    let start = statement.savepoint();
    place_tasks_by_topology(tasks, &mut statement, budget);
    let was_ready = statement.job_ready();
    let is_idle = !is_placed_again && statement.n_moves_since(start) == 0;
    let is_rolled_back = settle(statement) == Settled::RolledBack;
    if is_rolled_back {
        budget.restore(idle_before);
        if matches!(session.failure(job), Some(Failure::Withheld(_))) {
            correct_refusal(session, job);
        }
    }
    if let Some(untried) = untried.filter(|_| is_rolled_back || is_idle) {
        let mut place = |session: &mut Session, terms: &Terms| {
            let mut left = untried.clone();
            let is_placed = place_at_once(session, job, &mut left, terms);
            if is_placed {
                *tasks = left;
            }
            is_placed
        };
        let is_lent = matches!(budget, Budget::Lent(_));
        if nominated_places::take(session, job, is_lent, &mut place)
            && let Budget::Lent(lending) = budget
        {
            lending.idle = session.cluster().total_available(Capacity::Idle);
        }
    }
    if was_ready && !tasks.is_empty() {
        return NextTurn::Wanted;
    }
    waiting.remove(&job);
    NextTurn::None
}

/// Places tasks of a job on some terms. Returns whether some have a place.
fn place_at_once(
    session: &mut Session,
    job: JobIdx,
    tasks: &mut VecDeque<TaskIdx>,
    terms: &Terms,
) -> bool {
    let mut statement = session.statement(job);
    let start = statement.savepoint();
    place_tasks_by_topology(tasks, &mut statement, &mut Budget::All);
    let placed = statement.moves_since(start);
    if placed.is_empty()
        || !terms.are_met(statement.session(), job, &placed)
        || !reaches_minimum(&mut statement)
    {
        return false;
    }
    settle(statement);
    true
}

/// Corrects why a gang waits that was refused resources which are withheld, if it would not start with them
/// either: it waits for resources then, and not for the share of its queue.
// Parity: see docs/parity.md#e2.
fn correct_refusal(session: &mut Session, job: JobIdx) {
    if may_start_on_idle(session, job) {
        return;
    }
    let refused = session.failure(job).cloned();
    session.replace_failure(job, None);
    let nothing = Withheld::none(session);
    let idle = session.cluster().total_available(Capacity::Idle);
    let mut tasks = session.waiting_tasks(job).into();
    let mut statement = session.statement(job);
    let mut budget = Budget::Lent(&mut Lending { withheld: nothing, idle });
    place_tasks_by_topology(&mut tasks, &mut statement, &mut budget);
    record_fitting(&mut statement);
    statement.release();
    if session.failure(job).is_none() {
        session.replace_failure(job, refused);
    }
}

/// Whether enough waiting tasks for the minimum fit into what is free, withheld or not. An upper bound:
/// each class is counted by itself.
fn may_start_on_idle(session: &mut Session, job: JobIdx) -> bool {
    let n_missing = u64::from(session.plugins().tasks_missing(job));
    let nodes: Vec<NodeIdx> = session.cluster().nodes.facts.ids().collect();
    let mut n_waiting: BTreeMap<ClassIdx, u64> = BTreeMap::new();
    for task in session.waiting_tasks(job) {
        *n_waiting.entry(session.cluster().tasks.class[task]).or_default() += 1;
    }
    let mut n_fitting = 0_u64;
    for (class, n_tasks) in n_waiting {
        n_fitting =
            n_fitting.saturating_add(session.search().count_fitting(class, &nodes).min(n_tasks));
        if n_fitting >= n_missing.max(1) {
            return true;
        }
    }
    false
}
