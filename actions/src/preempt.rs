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
    plugin::{JobProposal, Proposal},
    session::Session,
    spec::ActionSpec,
    withheld::Withheld,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, QueueIdx, TaskIdx},
    decision::EvictReason,
};

use crate::{
    victims::{VictimPolicy, VictimSearch, foresee, turn},
    waiting::Waiting,
};

/// The action.
#[derive(Debug)]
pub struct Preempt;

/// Victims of other jobs of the queue.
struct BetweenJobs<'a> {
    withheld: Option<&'a Withheld>,
}

/// Victims of the same job.
struct InsideJob<'a> {
    withheld: Option<&'a Withheld>,
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
            let withheld = withheld_from(session, queue, &withheld);
            let between = BetweenJobs { withheld };
            if may_evict_placed(&between, session, job, next) {
                foresee(&between, session, &mut search, job, next);
            }
            let inside = InsideJob { withheld };
            if may_evict_placed(&inside, session, job, next) {
                foresee(&inside, session, &mut search, job, next);
            }
        }
    }
}

/// Whether a placed task may be a victim of the job.
fn may_evict_placed<P: VictimPolicy>(
    policy: &P,
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

/// The resources the queue must leave to others, if it is overused and any are withheld.
fn withheld_from<'a>(
    session: &Session,
    queue: QueueIdx,
    withheld: &'a Withheld,
) -> Option<&'a Withheld> {
    (withheld.is_any() && session.plugins().overused(queue)).then_some(withheld)
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
        let policy = BetweenJobs { withheld: withheld_from(session, queue, withheld) };
        turn(&policy, session, search, job, &mut waiting)
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
        let policy = InsideJob { withheld: withheld_from(session, queue, withheld) };
        give_turn(session, job, &mut |session, job| {
            turn(&policy, session, search, job, &mut Waiting::default())
        });
    }
}

/// Whether the job of a victim has a lower priority than a task that preempts. Whatever the plugins say, this decides
/// about victims of best-effort tasks, which change no share.
fn has_lower_priority(cluster: &Cluster, victim: TaskIdx, task: TaskIdx) -> bool {
    let of_victim = cluster.tasks.job[victim].map_or(0, |job| cluster.jobs.priority[job]);
    of_victim < cluster.priority_as_preemptor(task)
}

impl VictimPolicy for BetweenJobs<'_> {
    const REASON: EvictReason = EvictReason::Preempt;
    const SAME_QUEUE: bool = true;
    const OTHER_JOBS: bool = true;

    fn withheld(&self) -> Option<&Withheld> {
        self.withheld
    }

    fn considers(&self, cluster: &Cluster, task: TaskIdx, victim: TaskIdx) -> bool {
        cluster.queue_of(victim) == cluster.queue_of(task)
            && cluster.tasks.job[victim] != cluster.tasks.job[task]
            && (!cluster.request(task).is_best_effort()
                || has_lower_priority(cluster, victim, task))
    }

    fn allows(&self, session: &Session, proposal: &Proposal<'_>) -> bool {
        let plugins = session.plugins();
        plugins.preemptable(proposal) && !plugins.vetoes(proposal)
    }

    // Parity: see docs/parity.md#p10.
    fn considers_job(
        &self,
        cluster: &Cluster,
        task: TaskIdx,
        job: JobIdx,
        tasks: &[TaskIdx],
    ) -> bool {
        cluster.jobs.priority[job] < cluster.priority_as_preemptor(task)
            && cluster.queue_of_most(tasks) == cluster.queue_of(task)
    }

    fn allows_job(&self, session: &Session, proposal: &JobProposal<'_>) -> bool {
        session.plugins().job_preemptable(proposal)
    }
}

impl VictimPolicy for InsideJob<'_> {
    const REASON: EvictReason = EvictReason::Preempt;
    const SAME_QUEUE: bool = true;
    const OTHER_JOBS: bool = false;

    fn withheld(&self) -> Option<&Withheld> {
        self.withheld
    }

    fn considers(&self, cluster: &Cluster, task: TaskIdx, victim: TaskIdx) -> bool {
        cluster.tasks.job[victim] == cluster.tasks.job[task]
            && cluster.queue_of(victim) == cluster.queue_of(task)
            && cluster.tasks.priority[victim] < cluster.tasks.priority[task]
    }

    fn allows(&self, session: &Session, proposal: &Proposal<'_>) -> bool {
        let plugins = session.plugins();
        plugins.preemptable(proposal) && !plugins.vetoes(proposal)
    }

    /// A job does not evict itself.
    fn considers_job(&self, _: &Cluster, _: TaskIdx, _: JobIdx, _: &[TaskIdx]) -> bool {
        false
    }

    fn allows_job(&self, _: &Session, _: &JobProposal<'_>) -> bool {
        false
    }
}
