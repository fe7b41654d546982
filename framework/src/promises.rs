//! Promises: places that outlive the cycle that gave them.
//!
//! Whoever waits for room, or for the rest of its job, is promised its node when the cycle ends, and
//! has that place again before anything else happens in the next: so nobody takes the room that
//! victims left, and nobody is evicted for it twice. A promise that a cycle neither turns into a
//! binding nor renews is withdrawn.
//!
//! Upstream: none; a promise there ends with its cycle.
// Parity: differs, see docs/parity.md#p1-promises.

use kube_batch_api::{
    column::{JobIdx, TaskIdx},
    decision::Decision,
};

use crate::{
    order::Turns,
    plugin::Capacity,
    report::Failure,
    session::Session,
    statement::{Move, Statement},
};

/// Gives tasks that were promised a place that place again, job by job in their order. A job that is
/// ready with them starts; one that will be keeps them; any other is treated as if nothing had been
/// promised.
pub(crate) fn renew(session: &mut Session) {
    let promised = jobs_with_promises(session);
    if promised.is_empty() {
        return;
    }
    let mut turns = Turns::new(session, |job| promised.binary_search(&job).is_ok());
    while let Some(queue) = turns.next_queue(session) {
        if let Some(job) = turns.next_job(session, queue) {
            renew_job(session, job);
            turns.put_back_queue(session, queue);
        }
    }
}

/// Jobs that are scheduled in this cycle and have tasks with a promise, ascending.
fn jobs_with_promises(session: &Session) -> Vec<JobIdx> {
    let cluster = session.cluster();
    let promised = cluster.tasks.nominated.iter().filter(|(_, node)| node.is_some());
    let mut jobs: Vec<JobIdx> = promised
        .filter(|(task, _)| cluster.is_waiting(*task))
        .filter_map(|(task, _)| cluster.tasks.job[task])
        .filter(|job| cluster.is_schedulable(*job))
        .collect();
    // The tasks of a job are adjacent, and stand in the order of the jobs.
    jobs.dedup();
    jobs
}

fn renew_job(session: &mut Session, job: JobIdx) {
    let mut tasks = session.waiting_tasks(job);
    tasks.retain(|task| session.cluster().tasks.nominated[*task].is_some());
    let mut statement = session.statement(job);
    let mut short = None;
    // A rule may want another task of the job in its place first.
    loop {
        let n_tasks = tasks.len();
        tasks.retain(|task| !renew_task(&mut statement, *task, &mut short));
        if tasks.is_empty() || tasks.len() == n_tasks {
            break;
        }
    }
    let (is_ready, is_pipelined) = (statement.is_ready(), statement.is_pipelined());
    if is_ready {
        statement.commit();
    } else if is_pipelined {
        statement.keep();
    } else {
        return;
    }
    if let Some(short) = short {
        session.note_tried(job);
        session.note_failure(job, |_| short);
    }
}

/// Gives a task its place again if it fits there, now or later; says whether it does. `short` says
/// what the first one that must wait waits for.
fn renew_task(statement: &mut Statement<'_>, task: TaskIdx, short: &mut Option<Failure>) -> bool {
    let session = statement.session_mut();
    let class = session.cluster().tasks.class[task];
    let node = session.cluster().tasks.nominated[task].expect("only promises are renewed");
    if session.within_capability(task, &[]).is_err() {
        return false;
    }
    let placed = if session.fits(class, node, Capacity::Idle) {
        statement.allocate(task, node)
    } else if session.fits(class, node, Capacity::FutureIdle) {
        short.get_or_insert_with(|| Failure::Unfit(session.explain(class)));
        statement.pipeline(task, node)
    } else {
        return false;
    };
    placed.expect("a task that waits may be placed");
    true
}

/// Ends a cycle: whoever holds a place that is not decided is promised it, and what was promised
/// earlier to others is withdrawn.
// Parity: see docs/parity.md#a4.
pub(crate) fn settle(session: &mut Session) {
    for job in session.jobs_with_held_places() {
        if !session.job_pipelined(job) {
            session.statement(job).release();
        }
    }
    let held: Vec<TaskIdx> = session.held.values().flatten().map(Move::task).collect();
    for task in held {
        let (pod, node) = session.place_of(task);
        session.decisions.push(Decision::Nominate { pod, node });
    }
    let cluster = session.cluster();
    let is_promised = |task: &TaskIdx| {
        cluster.tasks.nominated[*task].is_some()
            || cluster.tasks.facts[*task].nominated_node.is_some()
    };
    let waiting = cluster.tasks.placement.ids().filter(|task| cluster.is_waiting(*task));
    let withdrawn: Vec<Decision> = waiting
        .filter(is_promised)
        .map(|task| Decision::Withdraw { pod: cluster.pod(task) })
        .collect();
    session.decisions.extend(withdrawn);
}
