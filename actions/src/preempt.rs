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
    resource::Row,
};
use kube_batch_framework::{
    cycle::Action, order::Turns, plugin::Proposal, session::Session, spec::ActionSpec,
};

use crate::victims::{Hunt, Residents, turn};

/// The action.
#[derive(Debug)]
pub struct Preempt;

/// Victims of other jobs of the queue.
struct BetweenJobs<'a> {
    held_back: Option<&'a Row>,
}

/// Victims of the same job.
struct InsideJob<'a> {
    held_back: Option<&'a Row>,
}

/// How a configuration names the action.
pub const SPEC: ActionSpec = ActionSpec {
    name: "preempt",
    about: "evict tasks of lower priority for tasks of higher priority in the same queue",
    new: || Box::new(Preempt),
};

impl Action for Preempt {
    fn name(&self) -> &'static str {
        "preempt"
    }

    fn execute(&self, session: &mut Session) {
        let mut residents = Residents::new(session.cluster());
        let held_back = session.held_back();
        let mut turns = Turns::new(session, |job| session.has_waiting_tasks(job));
        while let Some(queue) = turns.next_queue(session) {
            between_jobs(session, &mut turns, &mut residents, queue, &held_back);
            inside_jobs(session, &mut residents, queue, &held_back);
        }
    }
}

/// What the queue must leave to others, if it holds what it deserves and there is anything.
fn held_from<'a>(session: &Session, queue: QueueIdx, held_back: &'a Row) -> Option<&'a Row> {
    let something = held_back.iter().any(|amount| *amount > 0);
    (something && session.overused(queue)).then_some(held_back)
}

fn between_jobs(
    session: &mut Session,
    turns: &mut Turns,
    residents: &mut Residents,
    queue: QueueIdx,
    held_back: &Row,
) {
    let mut waiting = BTreeMap::new();
    while let Some(job) = turns.next_job(session, queue) {
        let hunt = BetweenJobs { held_back: held_from(session, queue, held_back) };
        if turn(&hunt, session, residents, job, &mut waiting) {
            turns.put_back_job(session, job);
        }
    }
}

// Parity: see docs/parity.md#p7.
fn inside_jobs(session: &mut Session, residents: &mut Residents, queue: QueueIdx, held_back: &Row) {
    let mut jobs = session.cluster().queues.jobs[queue].clone();
    jobs.retain(|job| session.has_waiting_tasks(*job));
    jobs.sort_by(|l, r| session.job_order(*l, *r));
    for job in jobs {
        let hunt = InsideJob { held_back: held_from(session, queue, held_back) };
        turn(&hunt, session, residents, job, &mut BTreeMap::new());
    }
}

impl Hunt for BetweenJobs<'_> {
    const REASON: EvictReason = EvictReason::Preempt;
    const SAME_QUEUE: bool = true;

    fn held_back(&self) -> Option<&Row> {
        self.held_back
    }

    fn considers(&self, cluster: &Cluster, task: TaskIdx, victim: TaskIdx) -> bool {
        cluster.queue_of(victim).is_some()
            && cluster.queue_of(victim) == cluster.queue_of(task)
            && cluster.tasks.job[victim] != cluster.tasks.job[task]
    }

    fn allows(&self, session: &Session, proposal: &Proposal<'_>) -> bool {
        session.preemptable(proposal)
    }
}

impl Hunt for InsideJob<'_> {
    const REASON: EvictReason = EvictReason::Preempt;
    const SAME_QUEUE: bool = true;

    fn held_back(&self) -> Option<&Row> {
        self.held_back
    }

    fn considers(&self, cluster: &Cluster, task: TaskIdx, victim: TaskIdx) -> bool {
        cluster.tasks.job[victim] == cluster.tasks.job[task]
            && cluster.tasks.priority[victim] < cluster.tasks.priority[task]
    }

    fn allows(&self, session: &Session, proposal: &Proposal<'_>) -> bool {
        session.preemptable(proposal)
    }
}
