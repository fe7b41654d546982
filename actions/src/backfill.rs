//! Backfill: places tasks that request nothing.
//!
//! Queues, jobs and tasks go in their order, and predicates and scores apply as in allocate; it makes
//! no difference whether a queue is overused. A job is one statement, so a gang with such tasks
//! starts whole or not at all, too: the moves that allocate kept for it are rolled back here if it
//! still cannot start.
//!
//! Upstream: `actions/backfill/backfill.go`, which has neither order nor gangs.
// Parity: differs, see docs/parity.md#b1 and docs/parity.md#b2.

use std::collections::VecDeque;

use kube_batch_framework::{
    cycle::Action,
    order::{NextTurn, Turns},
    reservations::Finds,
    session::Session,
    spec::ActionSpec,
};
use kube_batch_model::column::JobIdx;

use crate::{
    budget::Budget, composites::release_incomplete, gang::settle, topology::place_tasks_by_topology,
};

/// The action.
#[derive(Debug)]
pub struct Backfill;

/// How a configuration names the action.
pub const SPEC: ActionSpec = ActionSpec {
    name: "backfill",
    about: "place tasks that request nothing",
    new: || Box::new(Backfill),
};

impl Action for Backfill {
    fn name(&self) -> &'static str {
        "backfill"
    }

    fn places_best_effort(&self) -> bool {
        true
    }

    fn evicts(&self) -> bool {
        false
    }

    fn execute(&self, session: &mut Session) {
        let mut turns = Turns::new(session, |job| {
            session.has_waiting_tasks(job) && has_best_effort_tasks(session, job)
        });
        turns.run(session, |session, job| {
            session.beside_reservations(job, Finds::Room, |session| turn(session, job));
            NextTurn::None
        });
        for job in session.jobs_with_kept_moves() {
            settle(session.statement(job));
        }
        release_incomplete(session);
    }
}

fn has_best_effort_tasks(session: &Session, job: JobIdx) -> bool {
    let cluster = session.cluster();
    let mut tasks = cluster.jobs.tasks[job].iter();
    tasks.any(|task| cluster.is_waiting(task) && cluster.request(task).is_best_effort())
}

fn turn(session: &mut Session, job: JobIdx) {
    let mut tasks = session.waiting_tasks(job);
    tasks.retain(|task| session.cluster().request(*task).is_best_effort());
    if tasks.is_empty() {
        // The job is held, and others of its tasks come first.
        return;
    }
    session.record_turn(job);
    let mut tasks = tasks.into();
    while !VecDeque::is_empty(&tasks) {
        let mut statement = session.statement(job);
        place_tasks_by_topology(&mut tasks, &mut statement, &mut Budget::All);
        settle(statement);
    }
}
