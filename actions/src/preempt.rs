//! Preempt: within a queue, evicts tasks of lower priority for waiting tasks of higher priority.
//!
//! Jobs with waiting tasks get turns in job order. A turn is one statement: tasks are evicted only if
//! that makes the whole job pipelined or, for a job that has its minimum, places one more task.
//! Afterwards each job may once evict a running task of its own for a waiting task of higher
//! priority.
//!
//! Upstream: `actions/preempt/preempt.go`, which compares no priorities, ignores idle resources, and
//! commits evictions inside a job whether or not the waiting task is placed.
// Parity: differs, see docs/parity.md#p1 to docs/parity.md#p9.

use std::collections::BTreeSet;

use kube_batch_framework::{
    cycle::Action,
    foresight::NextCycle,
    order::{Turns, give_turn},
    plugin::Proposal,
    session::Session,
    spec::ActionSpec,
    withheld::Withheld,
};
use kube_batch_model::column::{JobIdx, QueueIdx};

use crate::{
    victims::{VictimPolicy, VictimSearch, foresee, turn},
    waiting::Waiting,
};

/// The action.
#[derive(Debug)]
pub struct Preempt;

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
        let mut search = VictimSearch::new(session.cluster());
        let withheld = Withheld::of(session);
        let mut turns = Turns::new(session, |job| session.has_waiting_tasks(job));
        while let Some(queue) = turns.next_queue(session) {
            between_jobs(session, &mut turns, &mut search, queue, &withheld);
            inside_jobs(session, &mut search, queue, &withheld);
        }
    }

    fn foresee(&self, session: &mut Session, next: &mut NextCycle) {
        let cluster = session.cluster();
        let placed = next.first_placed().iter();
        let queues: BTreeSet<QueueIdx> =
            placed.filter_map(|task| cluster.queue_of(*task)).collect();
        let mut jobs: Vec<JobIdx> =
            queues.iter().flat_map(|queue| &cluster.queues.jobs[*queue]).copied().collect();
        jobs.retain(|job| session.has_waiting_tasks(*job));
        if jobs.is_empty() {
            return;
        }
        let mut search = VictimSearch::new(session.cluster());
        let withheld = Withheld::of(session);
        for job in jobs {
            let Some(queue) = session.cluster().jobs.queue[job] else { continue };
            let withheld = withheld_from(session, queue, job, &withheld);
            let between = VictimPolicy::same_queue(withheld);
            if may_evict_placed(between, session, job, next) {
                foresee(between, session, &mut search, job, next);
            }
            let inside = VictimPolicy::same_job(withheld);
            if may_evict_placed(inside, session, job, next) {
                foresee(inside, session, &mut search, job, next);
            }
        }
    }
}

/// Whether a placed task may be a victim of the job.
fn may_evict_placed(
    policy: VictimPolicy<'_>,
    session: &Session,
    job: JobIdx,
    next: &NextCycle,
) -> bool {
    let cluster = session.cluster();
    let mut waiting = cluster.jobs.tasks[job].iter().filter(|task| cluster.is_waiting(*task));
    let Some(preemptor) = waiting.next() else { return false };
    next.first_placed().iter().any(|victim| {
        let proposal = Proposal { preemptor, victim: *victim, evicted: &[] };
        let may_leave_alone =
            policy.considers(cluster, preemptor, *victim) && policy.allows(session, &proposal);
        may_leave_alone
            || cluster.tasks.job[*victim].is_some_and(|of_victim| {
                policy.considers_job(cluster, preemptor, of_victim, &[*victim])
            })
    })
}

/// The resources that a job must leave to others, if it gets loans and any are withheld.
fn withheld_from<'a>(
    session: &Session,
    queue: QueueIdx,
    job: JobIdx,
    withheld: &'a Withheld,
) -> Option<&'a Withheld> {
    let plugins = session.plugins();
    let borrows = || plugins.overused(queue) || plugins.gets_loans_only(job);
    (withheld.is_any() && borrows()).then_some(withheld)
}

fn between_jobs(
    session: &mut Session,
    turns: &mut Turns,
    search: &mut VictimSearch,
    queue: QueueIdx,
    withheld: &Withheld,
) {
    let mut waiting = Waiting::default();
    turns.run_queue(session, queue, |session, job| {
        let policy = VictimPolicy::same_queue(withheld_from(session, queue, job, withheld));
        turn(policy, session, search, job, &mut waiting)
    });
}

// Parity: see docs/parity.md#p7.
fn inside_jobs(
    session: &mut Session,
    search: &mut VictimSearch,
    queue: QueueIdx,
    withheld: &Withheld,
) {
    let mut jobs = session.cluster().queues.jobs[queue].clone();
    jobs.retain(|job| session.has_waiting_tasks(*job));
    jobs.sort_by(|l, r| session.plugins().job_order(*l, *r));
    for job in jobs {
        let policy = VictimPolicy::same_job(withheld_from(session, queue, job, withheld));
        give_turn(session, job, &mut |session, job| {
            turn(policy, session, search, job, &mut Waiting::default())
        });
    }
}
