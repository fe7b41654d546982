//! Stale gangs: gangs that have been incomplete for too long, whose running tasks are evicted.
//!
//! A gang below its minimum does no work, and two such gangs can hold each other's room. A cycle evicts
//! the running tasks of at most one, so that the others may be completed with what it releases. It is
//! chosen so that least is lost.
//!
//! Upstream: none. KAI-Scheduler has an action for it, which evicts all of them at once.
// Parity: new, see docs/parity.md#g3.

use std::{cmp::Reverse, time::Duration};

use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, TaskIdx},
    decision::EvictReason,
    problem::JobProblem,
    resource::Share,
    status::TaskStatus,
};

use crate::session::Session;

/// What is lost with a gang, and its running tasks. Compared by priority, then share, then number of
/// tasks; of equal ones the youngest is least.
type Loss = (i32, Share, usize, Reverse<JobIdx>);

/// Evicts the running tasks of the stale gang with which least is lost, if there is one.
pub(crate) fn evict_one(session: &mut Session) {
    let stale = session.active_jobs().iter().copied().filter(|job| is_stale(session, *job));
    let least = stale.filter_map(|job| Some((loss(session, job)?, job))).min();
    let Some((_, job)) = least else { return };
    let tasks = running(session.cluster(), job);
    session.statement(job).release();
    let mut statement = session.statement(job);
    for task in tasks {
        statement.evict(task, EvictReason::StaleGang).expect("a running task may be evicted");
    }
    statement.commit();
}

/// When the next gang becomes stale. Those that are stale already wait for something to change.
pub(crate) fn next_due(session: &Session) -> Option<Duration> {
    let jobs = session.active_jobs().iter().copied().filter(|job| is_incomplete(session, *job));
    let times = jobs.filter_map(|job| session.plugins().stale_after(job));
    times.filter(|time| !time.is_zero()).min()
}

fn is_incomplete(session: &Session, job: JobIdx) -> bool {
    let cluster = session.cluster();
    cluster.jobs.incomplete_for[job].is_some()
        && matches!(cluster.jobs.problem[job], None | Some(JobProblem::Scattered(_)))
}

/// Whether the running tasks of a gang are to be evicted: not if this cycle has found places for the rest of it.
fn is_stale(session: &Session, job: JobIdx) -> bool {
    is_incomplete(session, job)
        && session.plugins().stale_after(job) == Some(Duration::ZERO)
        && !(has_new_places(session.cluster(), job) && session.plugins().job_pipelined(job))
}

fn has_new_places(cluster: &Cluster, job: JobIdx) -> bool {
    let counts = &cluster.jobs.counts[job];
    counts.pipelined() + counts.of(TaskStatus::Allocated) > 0
}

/// What is lost if the gang is evicted; `None` if it may not be evicted as a whole.
fn loss(session: &Session, job: JobIdx) -> Option<Loss> {
    let cluster = session.cluster();
    let tasks = running(cluster, job);
    if tasks.is_empty() || tasks.iter().any(|task| session.plugins().is_protected(*task)) {
        return None;
    }
    let share = session.plugins().job_share(job).unwrap_or(Share::ZERO);
    Some((cluster.jobs.priority[job], share, tasks.len(), Reverse(job)))
}

/// The tasks of a job that may be evicted: pods of other schedulers stay. The node of a task may be gone.
fn running(cluster: &Cluster, job: JobIdx) -> Vec<TaskIdx> {
    let runs = |task: &TaskIdx| {
        cluster.tasks.ours[*task]
            && cluster.node_of(*task).is_some()
            && cluster.status(*task).may_be_evicted()
    };
    cluster.jobs.tasks[job].iter().filter(runs).collect()
}
