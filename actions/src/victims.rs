//! Selecting victims: what preempt and reclaim have in common.
//!
//! On each node, candidates are removed one by one in a dry run until the task fits: reclaim starts
//! with the queue of the highest share, and both start with the lowest priority. (kube-scheduler
//! removes all candidates first.) Then each victim that is not needed is reprieved, in the reverse
//! order, so that the set is minimal. The node whose victims have the lowest cost is chosen.
//!
//! A *turn* is one call of [`turn`] for one job; actions give turns to queues and jobs by their order.
// Parity: differs, see docs/parity.md#p4 to docs/parity.md#p6.

mod dry_run;
mod node_tasks;
mod policy;
mod select;

use std::collections::VecDeque;

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, JobIdx, TaskIdx},
    resource::ResourceVector,
};
use kube_batch_framework::{
    failure::Failure, order::NextTurn, plugin::Capacity, session::Session, statement::Statement,
};

use self::select::select_victims;
pub(crate) use self::{node_tasks::NodeTasks, policy::VictimPolicy};
use crate::waiting::{Kind, Unplaceable, WaitingByJob};

/// Tries to place tasks of one job, in one [`Statement`].
///
/// Places the tasks of the job in order until the job is pipelined. For a job that is pipelined
/// already, places one more task: the first that can be placed only by evicting victims. Commits only
/// if at least one task is evicted and the job is pipelined; otherwise every move is rolled back.
pub(crate) fn turn<P: VictimPolicy>(
    policy: &P,
    session: &mut Session,
    node_tasks: &mut NodeTasks,
    job: JobIdx,
    waiting: &mut WaitingByJob,
) -> NextTurn {
    let tasks = waiting.entry(job).or_insert_with(|| session.waiting_tasks(job).into());
    let mut attempt = Attempt::new(policy, session, node_tasks, job);
    if !attempt.place_tasks(tasks) {
        return NextTurn::None;
    }
    attempt.commit();
    if tasks.is_empty() { NextTurn::None } else { NextTurn::Wanted }
}

/// The state of a turn.
struct Attempt<'a, 's, P> {
    policy: &'a P,
    statement: Statement<'s>,
    node_tasks: &'a mut NodeTasks,
    /// Whether the job has its minimum already and wants one more task.
    one_more_task: bool,
    unplaceable: Unplaceable<PreemptorKind>,
    /// Why the first task that does not fit idle resources cannot start now. Recorded on commit.
    failure: Option<Failure>,
    /// The future idle resources of the cluster before the turn; `None` if the policy reserves none.
    future_idle_before: Option<ResourceVector>,
}

/// The result of trying to place one task.
enum Step {
    /// No node was found for the task.
    Unplaceable,
    /// The task is placed, and the job needs more tasks.
    Incomplete,
    /// The job is pipelined, and tasks are evicted for it.
    Complete,
    /// The job is pipelined without evicting any task.
    NeedsNoVictims,
}

impl<'a, 's, P: VictimPolicy> Attempt<'a, 's, P> {
    fn new(
        policy: &'a P,
        session: &'s mut Session,
        node_tasks: &'a mut NodeTasks,
        job: JobIdx,
    ) -> Self {
        let one_more_task = session.plugins().job_pipelined(job);
        let statement = session.statement(job);
        let cluster = statement.session().cluster();
        let future_idle_before = policy.reserved().map(|_| cluster.total_future_idle());
        Self {
            policy,
            statement,
            node_tasks,
            one_more_task,
            unplaceable: Unplaceable::default(),
            failure: None,
            future_idle_before,
        }
    }

    /// Places tasks until the job is pipelined. Returns `true` if it is, and at least one victim is
    /// evicted for it.
    fn place_tasks(&mut self, tasks: &mut VecDeque<TaskIdx>) -> bool {
        while let Some(task) = self.unplaceable.next(&mut self.statement, tasks) {
            let start = self.statement.savepoint();
            match self.place(task) {
                Step::Unplaceable => {
                    self.statement.rollback_to(start);
                    self.unplaceable.add(&mut self.statement, task);
                    if !self.one_more_task && !self.can_reach_minimum(tasks) {
                        return false;
                    }
                }
                Step::Incomplete => self.unplaceable.retry(&mut self.statement, tasks),
                Step::Complete => {
                    self.unplaceable.retry(&mut self.statement, tasks);
                    return true;
                }
                // No eviction is needed: allocate places it, at the latest in the next cycle.
                Step::NeedsNoVictims if self.one_more_task => self.statement.rollback_to(start),
                Step::NeedsNoVictims => return false,
            }
        }
        false
    }

    fn commit(mut self) {
        let job = self.statement.job();
        let session = self.statement.session_mut();
        session.record_turn(job);
        if let Some(failure) = self.failure.take() {
            session.record_failure(job, |_| failure);
        }
        self.statement.commit();
    }

    fn place(&mut self, task: TaskIdx) -> Step {
        if !self.find_place(task) || self.uses_reserved(task) {
            Step::Unplaceable
        } else if !self.statement.job_pipelined() {
            Step::Incomplete
        } else if self.statement.n_evicted() > 0 {
            Step::Complete
        } else {
            Step::NeedsNoVictims
        }
    }

    /// Whether the job can reach its minimum with the tasks that may still find a place.
    fn can_reach_minimum(&mut self, tasks: &VecDeque<TaskIdx>) -> bool {
        let job = self.statement.job();
        let missing = self.statement.session().plugins().tasks_missing(job) as usize;
        self.unplaceable.n_hopeful(&mut self.statement, tasks) >= missing
    }

    /// Whether the task, which has just been placed, uses future idle resources that are reserved for
    /// other queues. What victims release is not reserved.
    // Parity: the rule by which allocate lends resources, see docs/parity.md#a9.
    fn uses_reserved(&self, task: TaskIdx) -> bool {
        let Some((before, reserved)) = self.future_idle_before.as_ref().zip(self.policy.reserved())
        else {
            return false;
        };
        let cluster = self.statement.session().cluster();
        let idle = cluster.total_future_idle();
        let mut amounts = cluster.request(task).shared();
        amounts.any(|(dim, _)| {
            idle[dim] < before[dim]
                && idle[dim] < reserved.amounts()[dim]
                && !reserved.can_be_reclaimed(self.statement.session(), task, dim)
        })
    }

    /// Pipelines the task: without victims if it fits somewhere, else on the node whose victims have
    /// the lowest cost. Returns whether a place was found.
    fn find_place(&mut self, task: TaskIdx) -> bool {
        let class = self.statement.session().cluster().tasks.class[task];
        let within_capability =
            self.statement.session().plugins().within_capability(task, &[]).is_ok();
        if within_capability && let Some(choice) = self.statement.best_node(class) {
            if choice.capacity == Capacity::FutureIdle {
                self.explain(class);
            }
            let placed = self.statement.pipeline(task, choice.node);
            placed.expect("a task that waits may be pipelined");
            return true;
        }
        if !within_capability && !P::SAME_QUEUE {
            return false;
        }
        let cluster = self.statement.session().cluster();
        // Do not evict for a task with `preemptionPolicy: Never`, nor for a best-effort task, even if
        // it lacks only a pod slot.
        // Parity: see docs/parity.md#p1.
        if cluster.tasks.facts[task].never_preempts || cluster.request(task).is_best_effort() {
            return false;
        }
        let Self { policy, statement, node_tasks, .. } = self;
        let selected = select_victims(*policy, statement, node_tasks, task, class);
        let Some((node, victims)) = selected else { return false };
        self.explain(class);
        for victim in victims {
            self.statement.evict(victim, P::REASON).expect("a running task may be evicted");
        }
        self.statement.pipeline(task, node).expect("a task that waits may be pipelined");
        true
    }

    /// Stores why a task of the class does not fit now, unless the job has a reason already.
    fn explain(&mut self, class: ClassIdx) {
        let job = self.statement.job();
        let session = self.statement.session_mut();
        if self.failure.is_none() && session.failure(job).is_none() {
            self.failure = Some(Failure::Unfit(session.explain(class)));
        }
    }
}

/// If one task cannot be placed, no other task of the same kind can be placed either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PreemptorKind {
    class: ClassIdx,
    priority: i32,
    never_preempts: bool,
}

impl Kind for PreemptorKind {
    fn of(cluster: &Cluster, task: TaskIdx) -> Self {
        Self {
            class: cluster.tasks.class[task],
            priority: cluster.tasks.priority[task],
            never_preempts: cluster.tasks.facts[task].never_preempts,
        }
    }

    fn class(&self) -> ClassIdx {
        self.class
    }
}
