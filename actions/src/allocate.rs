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

use std::collections::BTreeMap;

use kube_batch_api::column::{JobIdx, QueueIdx};
use kube_batch_framework::{cycle::Action, order::Turns, session::Session};

use crate::gang::{Budget, Lending, Waiting, settle, start_sooner};

/// The action.
#[derive(Debug)]
pub struct Allocate;

impl Action for Allocate {
    fn name(&self) -> &'static str {
        "allocate"
    }

    fn execute(&self, session: &mut Session) {
        let mut waiting = BTreeMap::new();
        let mut turns = Turns::new(session, |job| {
            session.has_waiting_tasks(job) || session.has_nominations(job)
        });
        let overused = fair_pass(session, &mut turns, &mut waiting);
        if !overused.is_empty() {
            for queue in overused {
                turns.put_back_queue(session, queue);
            }
            lending_pass(session, &mut turns, &mut waiting);
        }
    }
}

/// The tasks left to place, for jobs that had a turn.
type WaitingByJob = BTreeMap<JobIdx, Waiting>;

/// Returns the queues that were overused when their turn came.
fn fair_pass(
    session: &mut Session,
    turns: &mut Turns,
    waiting: &mut WaitingByJob,
) -> Vec<QueueIdx> {
    let mut overused = Vec::new();
    while let Some(queue) = turns.next_queue(session) {
        if session.overused(queue) {
            overused.push(queue);
            continue;
        }
        if let Some(job) = turns.next_job(session, queue) {
            if turn(session, job, waiting, &mut Budget::All) {
                turns.put_back_job(session, job);
            }
            turns.put_back_queue(session, queue);
        }
    }
    overused
}

fn lending_pass(session: &mut Session, turns: &mut Turns, waiting: &mut WaitingByJob) {
    let reserved = session.reserved();
    let mut lending = Lending { idle: session.cluster().total_idle(), reserved };
    while let Some(queue) = turns.next_queue(session) {
        if let Some(job) = turns.next_job(session, queue) {
            if turn(session, job, waiting, &mut Budget::Lent(&mut lending)) {
                turns.put_back_job(session, job);
            }
            turns.put_back_queue(session, queue);
        }
    }
}

/// One turn of a job. Returns whether it may have another.
fn turn(
    session: &mut Session,
    job: JobIdx,
    waiting: &mut WaitingByJob,
    budget: &mut Budget<'_>,
) -> bool {
    session.record_turn(job);
    let tasks = waiting.entry(job).or_insert_with(|| {
        let mut tasks = session.waiting_tasks(job);
        tasks.retain(|task| !session.cluster().request(*task).is_best_effort());
        Waiting::new(tasks)
    });
    let idle_before = budget.idle();
    let mut statement = session.statement(job);
    start_sooner(&mut statement, budget);
    tasks.place(&mut statement, budget);
    let was_ready = statement.is_ready();
    if !settle(statement) {
        budget.restore(idle_before);
    }
    let again = was_ready && !tasks.is_empty();
    if !again {
        waiting.remove(&job);
    }
    again
}
