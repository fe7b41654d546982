//! Nominations: how a waiting task keeps its node from one cycle to the next.
//!
//! A task that has a node at the end of a cycle but cannot be bound yet, because resources are still
//! being released or because the rest of its job waits, is nominated for that node, as in
//! `status.nominatedNodeName`. The next cycle begins by placing it there again, so that no other
//! task takes the resources that its victims released, and no second task is evicted for it. A
//! nomination that a cycle neither turns into a binding nor renews is withdrawn.
//!
//! Upstream: none; a pipelined task is forgotten when the cycle ends.
// Parity: differs, see docs/parity.md#p1-nominations.

use kube_batch_model::{
    column::{JobIdx, TaskIdx},
    decision::Decision,
    reason::{FitReport, NodeReason},
};

use crate::{
    failure::Failure,
    moves::Move,
    order::{NextTurn, Turns},
    plugin::Capacity,
    session::Session,
    statement::Statement,
};

/// Places nominated tasks on their nodes again, job by job in job order. A job that is ready with
/// them is bound, or keeps its places for now if others wait that might take them, and a job that will be ready
/// keeps its places. The moves of any other job are rolled back, as if it had not been nominated.
pub(crate) fn renew(session: &mut Session) {
    let nominated = jobs_with_nominations(session);
    if nominated.is_empty() {
        return;
    }
    let is_other = |job: &JobIdx| nominated.binary_search(job).is_err();
    let others_wait = session.waiting_jobs().any(|job| is_other(&job));
    let mut turns = Turns::new(session, |job| nominated.binary_search(&job).is_ok());
    turns.run(session, |session, job| {
        renew_job(session, job, others_wait || nominated.len() > 1);
        NextTurn::None
    });
}

impl Session {
    /// Binds the tasks of jobs that are ready with places that they had before this action.
    pub fn commit_ready_nominations(&mut self) {
        for job in self.jobs_with_kept_moves() {
            if !self.cluster.is_in_larger_gang(job) && self.plugins().job_ready(job) {
                self.statement(job).commit();
            }
        }
    }
}

/// Jobs that are scheduled in this cycle and have nominated tasks, ascending.
fn jobs_with_nominations(session: &Session) -> Vec<JobIdx> {
    let cluster = session.cluster();
    let is_nominated =
        |task: TaskIdx| cluster.is_waiting(task) && cluster.tasks.nominated[task].is_some();
    let jobs = session.active_jobs().iter().copied().filter(|job| {
        cluster.is_schedulable(*job) && cluster.jobs.tasks[*job].iter().any(is_nominated)
    });
    jobs.collect()
}

fn renew_job(session: &mut Session, job: JobIdx, may_be_taken: bool) {
    let may_be_taken = may_be_taken && !session.cluster().is_in_larger_gang(job);
    let mut tasks = session.waiting_tasks(job);
    tasks.retain(|task| session.cluster().tasks.nominated[*task].is_some());
    let mut statement = session.statement(job);
    let mut failure = None;
    // A task may fit only after another task of the job is placed, such as one it has affinity to.
    loop {
        let n_tasks = tasks.len();
        tasks.retain(|task| !renew_task(&mut statement, *task, &mut failure));
        if tasks.is_empty() || tasks.len() == n_tasks {
            break;
        }
    }
    let (is_ready, is_pipelined) = (statement.job_ready(), statement.job_pipelined());
    if is_ready && !may_be_taken {
        statement.commit();
    } else if is_ready || is_pipelined {
        statement.keep();
    } else {
        return;
    }
    if let Some(failure) = failure {
        session.record_turn(job);
        session.record_failure(job, |_| failure);
    }
}

/// Places a task on its node again if it fits there, now or later. Returns whether it does. Stores in
/// `failure` why the first task of the job has to wait.
fn renew_task(statement: &mut Statement<'_>, task: TaskIdx, failure: &mut Option<Failure>) -> bool {
    let session = statement.session_mut();
    let class = session.cluster().tasks.class[task];
    let node = session.cluster().tasks.nominated[task].expect("the task is nominated");
    if session.within_own_limits(task, &[], Capacity::FutureIdle).is_err() {
        return false;
    }
    let limit = session.within_own_limits(task, &[], Capacity::Idle);
    let placed = if limit.is_ok()
        && !session.plugins().must_wait(task)
        && session.search().fits(class, node, Capacity::Idle)
    {
        statement.allocate(task, node)
    } else if session.search().fits(class, node, Capacity::FutureIdle) {
        failure.get_or_insert_with(|| match limit {
            Ok(()) => Failure::Unfit(session.search().explain(class)),
            Err(at) => Failure::QueueLimit(at),
        });
        statement.pipeline(task, node)
    } else {
        return false;
    };
    placed.expect("a task that waits may be placed");
    true
}

/// Ends a cycle: nominates each task that has a place without being bound, and withdraws the earlier
/// nominations of all other waiting tasks.
// Parity: see docs/parity.md#a4.
pub(crate) fn settle(session: &mut Session) {
    session.commit_ready_nominations();
    for job in session.jobs_with_kept_moves() {
        if !session.plugins().job_pipelined(job) {
            session.statement(job).release();
        }
    }
    let kept: Vec<TaskIdx> = session.kept.values().flatten().map(Move::task).collect();
    for task in kept {
        let (pod, node) = session.place_of(task);
        let devices = session.chosen_devices(task);
        session.decide(task, Decision::Nominate { pod, node, devices });
    }
    let cluster = session.cluster();
    let is_nominated = |task: &TaskIdx| {
        cluster.tasks.nominated[*task].is_some()
            || cluster.tasks.facts[*task].nominated_node.is_some()
    };
    let tasks = session.active_jobs().iter().flat_map(|job| cluster.jobs.tasks[*job].iter());
    let waiting = tasks.filter(|task| cluster.is_waiting(*task));
    let withdrawn: Vec<TaskIdx> = waiting.filter(is_nominated).collect();
    for task in withdrawn {
        let pod = session.cluster().pod(task);
        session.decide(task, Decision::Withdraw { pod });
    }
    deallocate(session);
}

/// Decides which claims for devices are deallocated.
// Parity: see docs/parity.md#v9.
fn deallocate(session: &mut Session) {
    let refused = |job: JobIdx| {
        let report = session.failure(job).and_then(Failure::fit_report);
        let mut reasons = report.into_iter().flat_map(FitReport::refused);
        reasons.any(|nodes| nodes.reason == NodeReason::ResourceClaim)
    };
    let claims = session.claims_to_deallocate(&refused);
    for (task, claim) in claims {
        let pod = session.cluster().pod(task);
        session.decide(task, Decision::Deallocate { pod, claim });
    }
}
