//! How the tasks of one job are placed in one turn: what allocate and backfill have in common.
//!
//! The tasks of a job that is not ready are placed one after another until it is. A task that fits
//! nowhere is skipped as long as the minimum can be reached without it. A job that is ready gets one
//! more task a turn.

use std::collections::VecDeque;

use kube_batch_framework::{
    candidates::Choice,
    failure::Failure,
    plugin::Capacity,
    session::Session,
    statement::{Savepoint, Statement},
};
use kube_batch_model::{
    column::{ClassIdx, JobIdx, TaskIdx},
    gang::Sense,
    resource::ResourceVector,
    status::TaskStatus,
};

use crate::{budget::Budget, waiting::Unplaceable};

/// What the rest of a turn is for.
enum Goal {
    /// The job is ready: one more task.
    OneMoreTask,
    /// The job is not ready: tasks, until it is.
    Minimum,
    /// The job is pipelined: tasks that fit into what is idle. They stay only if they make it ready,
    /// because until then its places are enough.
    StartNow(Enough),
}

/// The point at which the job was pipelined.
struct Enough {
    places: Savepoint,
    /// What was left to lend.
    idle: Option<ResourceVector>,
}

impl Goal {
    fn of(statement: &Statement<'_>, budget: &Budget<'_>) -> Self {
        if statement.job_ready() {
            Self::OneMoreTask
        } else {
            Self::Minimum.unless_pipelined(statement, budget)
        }
    }

    /// The goal of a job that is not ready, once it may have become pipelined.
    fn unless_pipelined(self, statement: &Statement<'_>, budget: &Budget<'_>) -> Self {
        match self {
            Self::Minimum if statement.job_pipelined() => {
                Self::StartNow(Enough { places: statement.savepoint(), idle: budget.idle() })
            }
            Self::OneMoreTask | Self::Minimum | Self::StartNow(_) => self,
        }
    }

    /// Whether the turn ends after a task was placed on capacity of this kind.
    fn is_reached(&self, statement: &Statement<'_>, capacity: Capacity) -> bool {
        match self {
            Self::OneMoreTask => true,
            Self::Minimum | Self::StartNow(_) => {
                capacity == Capacity::Idle && statement.job_ready()
            }
        }
    }

    /// Whether capacity that is being released helps.
    const fn accepts_future_idle(&self) -> bool {
        match self {
            Self::OneMoreTask | Self::Minimum => true,
            // Only allocated tasks make a job ready.
            Self::StartNow(_) => false,
        }
    }
}

/// Places tasks until the job is ready, or one task if it is ready already. The tasks that were
/// tried are removed from `tasks`.
pub(crate) fn place_tasks(
    tasks: &mut VecDeque<TaskIdx>,
    statement: &mut Statement<'_>,
    budget: &mut Budget<'_>,
) {
    let mut goal = Goal::of(statement, budget);
    let mut unplaceable = Unplaceable::<ClassIdx>::default();
    while let Some(task) = unplaceable.next(statement, tasks) {
        match place_task(statement, task, budget, &goal) {
            Ok(capacity) => {
                unplaceable.retry(statement, tasks);
                if goal.is_reached(statement, capacity) {
                    return;
                }
                goal = goal.unless_pipelined(statement, budget);
            }
            Err(failure) => {
                let job = statement.job();
                statement.session_mut().record_failure(job, |_| failure);
                unplaceable.add(statement, task);
                if matches!(goal, Goal::Minimum) {
                    let n_hopeful = unplaceable.n_hopeful(statement, tasks);
                    if !can_reach_minimum(statement, n_hopeful) {
                        return;
                    }
                }
            }
        }
    }
    if let Goal::StartNow(Enough { places, idle }) = goal {
        statement.rollback_to(places);
        budget.restore(idle);
    }
}

/// Whether the job can reach its minimum with this number of its tasks, and those that a later action,
/// such as backfill, may place.
// Parity: see docs/parity.md#a2.
fn can_reach_minimum(statement: &mut Statement<'_>, n_hopeful: usize) -> bool {
    let missing = statement.session().plugins().tasks_missing(statement.job()) as usize;
    n_hopeful >= missing || n_hopeful + tasks_for_later(statement) >= missing
}

/// Places one task on the best node that the budget and the goal admit. Returns what it fits into.
fn place_task(
    statement: &mut Statement<'_>,
    task: TaskIdx,
    budget: &mut Budget<'_>,
    goal: &Goal,
) -> Result<Capacity, Failure> {
    let session = statement.session_mut();
    let class = session.cluster().tasks.class[task];
    let may_wait = matches!(budget, Budget::All) && goal.accepts_future_idle();
    session.within_limits(task, &[], Capacity::FutureIdle).map_err(Failure::QueueLimit)?;
    let limit = session.within_limits(task, &[], Capacity::Idle).map_err(Failure::QueueLimit);
    let choice = match &limit {
        Ok(()) if may_wait => session.search().best_node(class),
        Ok(()) => session.search().best_node_in(class, Capacity::Idle),
        Err(_) if may_wait => session.search().best_node_in(class, Capacity::FutureIdle),
        Err(refused) => return Err(refused.clone()),
    };
    let Some(choice) = choice else {
        return Err(Failure::Unfit(session.search().explain(class)));
    };
    if choice.capacity == Capacity::FutureIdle {
        let job = statement.job();
        statement.session_mut().record_failure(job, |session| match limit {
            Ok(()) => Failure::Unfit(session.search().explain(class)),
            Err(refused) => refused,
        });
    }
    place_within(statement, task, choice, budget)?;
    Ok(choice.capacity)
}

/// Places one task, unless that would take what the budget does not contain.
pub(crate) fn place_within(
    statement: &mut Statement<'_>,
    task: TaskIdx,
    choice: Choice,
    budget: &mut Budget<'_>,
) -> Result<(), Failure> {
    let before = statement.savepoint();
    statement.place(task, choice).expect("a task that waits may be placed");
    if let Some(refusal) = budget.refusal(statement.session(), task) {
        statement.rollback_to(before);
        return Err(refusal);
    }
    budget.take(statement.session().cluster().request(task));
    Ok(())
}

/// Places one task on a node that may not have room, and returns whether it did.
pub(crate) fn place_if_free(
    statement: &mut Statement<'_>,
    task: TaskIdx,
    choice: Choice,
    budget: &mut Budget<'_>,
) -> bool {
    let session = statement.session_mut();
    let class = session.cluster().tasks.class[task];
    session.within_limits(task, &[], choice.capacity).is_ok()
        && session.search().fits(class, choice.node, choice.capacity)
        && place_within(statement, task, choice, budget).is_ok()
}

/// Allocates tasks that were nominated in an earlier cycle, if they fit into what is idle now.
// Parity: where a task fits now is preferred to where it must wait, see docs/parity.md#a3.
pub(crate) fn start_sooner(statement: &mut Statement<'_>, budget: &mut Budget<'_>) {
    let mut unfit: Vec<ClassIdx> = Vec::new();
    for task in statement.nominated() {
        let class = statement.session().cluster().tasks.class[task];
        if unfit.contains(&class) {
            continue;
        }
        if statement.allocate_nominated(task, |session| budget.refusal(session, task).is_none()) {
            budget.take(statement.session().cluster().request(task));
        } else {
            unfit.push(class);
        }
    }
}

/// Whether enough tasks of the job would each fit on some node if all of kube-batch's own pods left. If not, no other
/// order of the tasks and no eviction helps the job.
pub(crate) fn could_be_held(session: &mut Session, job: JobIdx) -> bool {
    let n_missing = session.plugins().tasks_missing(job) as usize;
    let cluster = session.cluster();
    let waiting = cluster.jobs.tasks[job].iter().filter(|task| cluster.is_waiting(*task));
    let classes: Vec<ClassIdx> = waiting.map(|task| cluster.tasks.class[task]).collect();
    let Some(n_to_spare) = classes.len().checked_sub(n_missing) else { return false };
    // A job that has its minimum wants one more task.
    let n_to_spare = n_to_spare.min(classes.len().saturating_sub(1));
    let too_large = classes.iter().filter(|class| !session.search().could_hold(**class));
    too_large.take(n_to_spare + 1).count() <= n_to_spare
}

/// Number of tasks that request nothing and that a later action, such as backfill, may place: those that fit on some
/// node now, or may once another task has its place.
// Parity: see docs/parity.md#b2.
pub(crate) fn tasks_for_later(statement: &mut Statement<'_>) -> usize {
    let job = statement.job();
    let session = statement.session_mut();
    if !session.places_best_effort_later() {
        return 0;
    }
    let cluster = session.cluster();
    let tasks = cluster.jobs.tasks[job].iter();
    let best_effort =
        tasks.filter(|task| cluster.is_waiting(*task) && cluster.request(*task).is_best_effort());
    let classes: Vec<ClassIdx> = best_effort.map(|task| cluster.tasks.class[task]).collect();
    let fits = |class: &&ClassIdx| {
        session.search().best_node(**class).is_some()
            || (session.search().is_open_to_change(**class)
                && session.search().is_placeable(**class))
    };
    classes.iter().filter(fits).count()
}

/// What became of the moves of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// They are committed, or kept for the rest of the cycle.
    Stand,
    /// They are rolled back.
    RolledBack,
}

/// Ends a turn: commits if the job is ready, keeps the places of a job that is pipelined or that
/// backfill can complete, and rolls back anything else.
pub(crate) fn settle(mut statement: Statement<'_>) -> Settled {
    if statement.job_ready() {
        statement.commit();
        return Settled::Stand;
    }
    if reaches_minimum(&mut statement) {
        statement.keep();
        Settled::Stand
    } else {
        record_fitting(&mut statement);
        statement.release();
        Settled::RolledBack
    }
}

/// Whether the job has the places that it needs, with those that backfill can add.
pub(crate) fn reaches_minimum(statement: &mut Statement<'_>) -> bool {
    let missing = statement.session().plugins().tasks_missing(statement.job()) as usize;
    statement.job_ready() || statement.job_pipelined() || missing <= tasks_for_later(statement)
}

/// The capacity of the places with which the job reaches its minimum; `None` if it does not. `start` is where it began
/// to be placed.
pub(crate) fn minimum_reached(statement: &mut Statement<'_>, start: Savepoint) -> Option<Capacity> {
    if statement.job_ready() {
        return Some(Capacity::Idle);
    }
    let waits = |statement: &Statement<'_>| {
        let moves = statement.moves_since(start);
        moves.iter().any(|(_, at)| at.status == TaskStatus::Pipelined)
    };
    let reaches = reaches_minimum(statement);
    reaches.then(|| if waits(statement) { Capacity::FutureIdle } else { Capacity::Idle })
}

/// Records how many tasks of the job have a place, for its message.
pub(crate) fn record_fitting(statement: &mut Statement<'_>) {
    let job = statement.job();
    let placed = statement.session().cluster().members(job, Sense::Pipelined);
    statement.session_mut().record_fitting(job, placed.n);
}
