//! Preempt: inside one queue, the more important takes room from the less important.
//!
//! Jobs with waiting tasks get turns in their order. A turn is one statement: victims are evicted
//! only if the whole job becomes pipelined, or, for a job that has its minimum, that one task has a
//! place. Afterwards each job may once exchange a running task of its own for a waiting one of
//! higher priority.
//!
//! Upstream: `actions/preempt/preempt.go`, which compares no priorities, ignores idle room and
//! commits exchanges inside a job whether or not they lead anywhere.
// Parity: differs, see docs/parity.md#p1 to docs/parity.md#p9.

use std::collections::BTreeMap;

use kube_batch_api::{
    cluster::Cluster,
    column::{QueueIdx, TaskIdx},
    decision::EvictReason,
};
use kube_batch_framework::{cycle::Action, order::Turns, plugin::Proposal, session::Session};

use crate::victims::{Hunt, Residents, turn};

/// The action.
#[derive(Debug)]
pub struct Preempt;

/// Victims of other jobs of the queue.
struct BetweenJobs;

/// Victims of the same job.
struct InsideJob;

impl Action for Preempt {
    fn name(&self) -> &'static str {
        "preempt"
    }

    fn execute(&self, session: &mut Session) {
        let mut residents = Residents::new(session.cluster());
        let mut turns = Turns::new(session, |job| session.has_waiting_tasks(job));
        while let Some(queue) = turns.next_queue(session) {
            between_jobs(session, &mut turns, &mut residents, queue);
            inside_jobs(session, &mut residents, queue);
        }
    }
}

fn between_jobs(
    session: &mut Session,
    turns: &mut Turns,
    residents: &mut Residents,
    queue: QueueIdx,
) {
    let mut waiting = BTreeMap::new();
    while let Some(job) = turns.next_job(session, queue) {
        if turn(&BetweenJobs, session, residents, job, &mut waiting) {
            turns.put_back_job(session, job);
        }
    }
}

// Parity: see docs/parity.md#p7.
fn inside_jobs(session: &mut Session, residents: &mut Residents, queue: QueueIdx) {
    let mut jobs = session.cluster().queues.jobs[queue].clone();
    jobs.retain(|job| session.has_waiting_tasks(*job));
    jobs.sort_by(|l, r| session.job_order(*l, *r));
    for job in jobs {
        turn(&InsideJob, session, residents, job, &mut BTreeMap::new());
    }
}

impl Hunt for BetweenJobs {
    const REASON: EvictReason = EvictReason::Preempt;
    const SAME_QUEUE: bool = true;

    fn considers(&self, cluster: &Cluster, task: TaskIdx, victim: TaskIdx) -> bool {
        cluster.queue_of(victim).is_some()
            && cluster.queue_of(victim) == cluster.queue_of(task)
            && cluster.tasks.job[victim] != cluster.tasks.job[task]
    }

    fn allows(&self, session: &Session, proposal: &Proposal<'_>) -> bool {
        session.preemptable(proposal)
    }
}

impl Hunt for InsideJob {
    const REASON: EvictReason = EvictReason::Preempt;
    const SAME_QUEUE: bool = true;

    fn considers(&self, cluster: &Cluster, task: TaskIdx, victim: TaskIdx) -> bool {
        cluster.tasks.job[victim] == cluster.tasks.job[task]
            && cluster.tasks.priority[victim] < cluster.tasks.priority[task]
    }

    fn allows(&self, session: &Session, proposal: &Proposal<'_>) -> bool {
        session.preemptable(proposal)
    }
}
