//! Allocate: places waiting tasks on idle resources, by fair share and whole gangs at a time.
//!
//! In the fair pass, the queue with the lowest share gets the next turn, and in it the first job by
//! job order. An overused queue gets no turn. A turn is one statement: a gang that cannot start
//! leaves no trace. The lending pass then gives turns to the overused queues, on the idle resources
//! that are not reserved: those that the other queues are entitled to and could use stay idle.
//!
//! Upstream: `actions/allocate/allocate.go`, which keeps the resources of a gang that is not ready,
//! and leaves idle what no queue's share covers.
// Parity: differs, see docs/parity.md#a1 to docs/parity.md#a9.

use kube_batch_api::column::JobIdx;
use kube_batch_framework::{
    cycle::Action,
    order::{NextTurn, Turns},
    reservations::Reservations,
    session::Session,
    spec::ActionSpec,
};

use crate::{
    budget::{Budget, Lending},
    domains::place_tasks_in_some_domain,
    gang::{Settled, settle, start_sooner},
    waiting::WaitingByJob,
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

    fn execute(&self, session: &mut Session) {
        let mut waiting = WaitingByJob::new();
        let mut turns = Turns::new(session, |job| {
            session.has_waiting_tasks(job) || session.has_nominations(job)
        });
        let overused = turns.run_unless_overused(session, |session, job| {
            turn(session, job, &mut waiting, &mut Budget::All)
        });
        if overused.is_empty() {
            return;
        }
        for queue in overused {
            turns.put_back_queue(session, queue);
        }
        let mut lending = Lending {
            reservations: Reservations::of(session),
            idle: session.cluster().total_idle(),
        };
        turns.run(session, |session, job| {
            turn(session, job, &mut waiting, &mut Budget::Lent(&mut lending))
        });
    }
}

/// One turn of a job: one statement. Returns whether the job may have another turn.
fn turn(
    session: &mut Session,
    job: JobIdx,
    waiting: &mut WaitingByJob,
    budget: &mut Budget<'_>,
) -> NextTurn {
    session.record_turn(job);
    let tasks = waiting.entry(job).or_insert_with(|| {
        let mut tasks = session.waiting_tasks(job);
        tasks.retain(|task| !session.cluster().request(*task).is_best_effort());
        tasks.into()
    });
    let idle_before = budget.idle();
    let mut statement = session.statement(job);
    start_sooner(&mut statement, budget);
    place_tasks_in_some_domain(tasks, &mut statement, budget);
    let was_ready = statement.job_ready();
    if settle(statement) == Settled::RolledBack {
        budget.restore(idle_before);
    }
    if was_ready && !tasks.is_empty() {
        return NextTurn::Wanted;
    }
    waiting.remove(&job);
    NextTurn::None
}
