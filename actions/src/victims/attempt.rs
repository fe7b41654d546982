//! An attempt to place the tasks of one job by evicting others.

use std::collections::{BTreeMap, VecDeque};

use kube_batch_framework::{
    failure::{Failure, QueueLimit, RefusedGang},
    plugin::Capacity,
    session::Session,
    statement::{Savepoint, Statement},
    topology::Scope,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Dim, JobIdx, NodeIdx, TaskIdx},
    resource::ResourceVector,
    status::Placement,
};

use super::{
    evictable::{Evictable, WantingTasks, evict, pipelined},
    in_queue::select_victims_below,
    limit::Limit,
    loss::{Bound, Need},
    on_node::Preemptor,
    plan::{Plan, plan},
    policy::VictimPolicy,
    reprieve,
    select::{VictimSearch, select_victims},
    whole_jobs::{broken, candidates, evict_jobs, evict_units},
};
use crate::waiting::{TaskKind, Unplaceable};

/// How an attempt finds victims.
#[derive(Clone, Copy)]
pub(super) enum Means {
    /// No job is evicted as a whole.
    SingleTasks,
    /// Whole jobs are chosen first.
    Plan(Bound),
    /// Task by task, with whole jobs where single tasks do not suffice.
    Within(Limit),
}

/// The state of an attempt.
pub(super) struct Attempt<'a, 's> {
    policy: VictimPolicy<'a>,
    statement: Statement<'s>,
    search: &'a mut VictimSearch,
    limit: Option<Limit>,
    /// What its queue needs, if the loss is limited.
    need: Option<Need>,
    /// Whether the gangs that leave were chosen before: then no victim could stay.
    is_planned: bool,
    start: Savepoint,
    /// Whether the job has its minimum already and wants one more task.
    one_more_task: bool,
    unplaceable: Unplaceable<PreemptorKind>,
    /// By class, see [`scarce_resource`].
    scarce: BTreeMap<ClassIdx, Dim>,
    /// Why the first task that does not fit idle resources cannot start now. Recorded on commit.
    failure: Option<Failure>,
    /// The future idle resources of the cluster before the turn; `None` if the policy withholds none.
    future_idle_before: Option<ResourceVector>,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempted {
    /// The job is pipelined, and tasks are evicted for it.
    Placed,
    /// Some of its tasks found no place.
    Unplaceable,
    /// No eviction is needed: allocate places it, at the latest in the next cycle.
    NeedsNoVictims,
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

impl<'a, 's> Attempt<'a, 's> {
    /// An attempt for a job, confined to a domain if it is given one.
    pub(super) fn new(
        policy: VictimPolicy<'a>,
        session: &'s mut Session,
        search: &'a mut VictimSearch,
        job: JobIdx,
        scope: Option<Scope>,
    ) -> Self {
        let one_more_task = session.plugins().job_pipelined(job);
        let need = Need::of(policy, session, job);
        let mut statement = session.statement(job);
        statement.confine(scope);
        let start = statement.savepoint();
        let cluster = statement.session().cluster();
        let future_idle_before =
            policy.withheld().map(|_| cluster.total_available(Capacity::FutureIdle));
        Self {
            policy,
            statement,
            search,
            limit: None,
            need,
            is_planned: false,
            start,
            scarce: BTreeMap::new(),
            one_more_task,
            unplaceable: Unplaceable::default(),
            failure: None,
            future_idle_before,
        }
    }

    /// Places tasks until the job is pipelined, by these means.
    pub(super) fn run(&mut self, means: Means, tasks: &mut VecDeque<TaskIdx>) -> Attempted {
        match means {
            Means::SingleTasks => {}
            Means::Plan(bound) if self.evict_by_plan(tasks, bound) => {}
            Means::Plan(_) => return Attempted::Unplaceable,
            Means::Within(limit) => self.limit = Some(limit),
        }
        self.place_tasks(tasks)
    }

    fn place_tasks(&mut self, tasks: &mut VecDeque<TaskIdx>) -> Attempted {
        while let Some(task) = self.unplaceable.next(&mut self.statement, tasks) {
            let start = self.statement.savepoint();
            match self.place(task, tasks) {
                Step::Unplaceable => {
                    self.statement.rollback_to(start);
                    self.unplaceable.add(&mut self.statement, task);
                    if !self.one_more_task && !self.can_reach_minimum(tasks) {
                        return Attempted::Unplaceable;
                    }
                }
                Step::Incomplete => self.unplaceable.retry(&mut self.statement, tasks),
                Step::Complete => {
                    self.unplaceable.retry(&mut self.statement, tasks);
                    return Attempted::Placed;
                }
                Step::NeedsNoVictims if self.one_more_task => self.statement.rollback_to(start),
                Step::NeedsNoVictims => return Attempted::NeedsNoVictims,
            }
        }
        Attempted::Unplaceable
    }

    /// Reprieves the victims that are not needed. Returns `false` if the job may not have its place, or would not
    /// have it once the victims are gone.
    pub(super) fn reprieve(&mut self) -> bool {
        if self.limit.is_some() && !self.is_planned {
            let Self { policy, statement, start, future_idle_before, .. } = &mut *self;
            reprieve::unneeded(statement, *start, policy.reason(), |session, task| {
                !uses_withheld(*policy, session, future_idle_before.as_ref(), task)
            });
        }
        if !self.keeps_places() {
            return false;
        }
        let (session, job) = (self.statement.session(), self.statement.job());
        let broken = broken(&self.statement);
        if !broken.is_empty() && !self.is_in_proportion() {
            return false;
        }
        // Parity: see docs/parity.md#c7.
        let Some(queue) = session.cluster().jobs.queue[job] else { return false };
        let is_over = |broken: &JobIdx| {
            let tasks: Vec<TaskIdx> = session.cluster().jobs.tasks[*broken].iter().collect();
            let other = session.cluster().queue_of_most(&tasks);
            session.plugins().exceeds_deserved(queue, job, other)
        };
        self.policy.is_in_queue() || !broken.iter().any(is_over)
    }

    /// Whether the tasks fit on their nodes once all victims are gone: one of these may be the pod that another task
    /// of the job has to be with.
    // Parity: see docs/parity.md#p1.
    fn keeps_places(&mut self) -> bool {
        let moves = self.statement.moves_since(self.start);
        let fit = moves.iter().all(|(task, at)| {
            let class = self.statement.session().cluster().tasks.class[*task];
            let Some(node) = pipelined(*at) else { return true };
            if !self.statement.search().is_open_to_change(class) {
                return true;
            }
            self.statement.retract(*task);
            pipeline_if_fits(&mut self.statement, *task, node)
        });
        // Those that spread, for instance, may fit one after another only.
        fit || self.fit_in_turn(&moves)
    }

    /// Places the tasks again, in their order, after all evictions: on their nodes, or else on others. Returns whether
    /// each fits.
    fn fit_in_turn(&mut self, moves: &[(TaskIdx, Placement)]) -> bool {
        self.statement.rollback_to(self.start);
        let victims = moves.iter().filter(|(_, at)| pipelined(*at).is_none());
        evict(&mut self.statement, victims.map(|(victim, _)| victim), self.policy.reason());
        moves.iter().all(|(task, at)| {
            let Some(node) = pipelined(*at) else { return true };
            pipeline_if_fits(&mut self.statement, *task, node) || self.fits_elsewhere(*task)
        })
    }

    /// Pipelines a task on the node that is best once all victims are gone, if it may have that place.
    fn fits_elsewhere(&mut self, task: TaskIdx) -> bool {
        let class = self.statement.session().cluster().tasks.class[task];
        let session = self.statement.session_mut();
        let Some(choice) = session.search().best_node_in(class, Capacity::FutureIdle) else {
            return false;
        };
        self.statement.pipeline(task, choice.node).expect("a task that waits may be pipelined");
        !self.uses_withheld(task)
    }

    /// Whether what is lost with all victims is within the bound.
    fn is_in_proportion(&self) -> bool {
        let (Some(need), Some(limit)) = (&self.need, self.limit) else { return true };
        let victims: Vec<TaskIdx> = self.statement.evicted().collect();
        let session = self.statement.session();
        let admits =
            |dim: &Dim| need.of_resource(*dim).admits(self.policy, session, limit.bound, &victims);
        self.scarce.values().all(admits)
    }

    /// The victims, and the number of gangs that are broken.
    pub(super) fn victims(&self) -> (Vec<TaskIdx>, usize) {
        (self.statement.evicted().collect(), broken(&self.statement).len())
    }

    /// The first of these tasks that waits, as what the victims make room for.
    pub(super) fn first_preemptor(&mut self, tasks: &VecDeque<TaskIdx>) -> Option<Preemptor> {
        let first = tasks.front().copied()?;
        Some(self.preemptor(first))
    }

    /// Keeps the moves without deciding anything.
    pub(super) fn keep(self) {
        self.statement.keep();
    }

    pub(super) fn commit(mut self) {
        let broken = broken(&self.statement);
        let job = self.statement.job();
        let session = self.statement.session_mut();
        session.record_turn(job);
        if let Some(failure) = self.failure.take() {
            session.record_failure(job, |_| failure);
        }
        self.statement.commit_breaking(&broken, self.policy.reason());
    }

    fn place(&mut self, task: TaskIdx, others: &VecDeque<TaskIdx>) -> Step {
        if !self.find_place(task, others) || self.uses_withheld(task) {
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

    fn uses_withheld(&self, task: TaskIdx) -> bool {
        let before = self.future_idle_before.as_ref();
        uses_withheld(self.policy, self.statement.session(), before, task)
    }

    /// Pipelines the task: without victims if it fits somewhere, else on the node whose victims have
    /// the lowest cost. Returns whether a place was found.
    fn find_place(&mut self, task: TaskIdx, others: &VecDeque<TaskIdx>) -> bool {
        let class = self.statement.session().cluster().tasks.class[task];
        if !self.statement.search().could_hold(class) {
            return false;
        }
        let exceeded =
            self.statement.session().within_limits(task, &[], Capacity::FutureIdle).err();
        if exceeded.is_none()
            && let Some(choice) = self.statement.search().best_node(class)
        {
            if choice.capacity == Capacity::FutureIdle {
                self.explain(class);
            }
            let placed = self.statement.pipeline(task, choice.node);
            placed.expect("a task that waits may be pipelined");
            return true;
        }
        let cluster = self.statement.session().cluster();
        // Victims of other queues make no room below a limit of its own.
        let limited = exceeded.and_then(QueueLimit::queue);
        if limited.is_some_and(|limited| Some(limited) == cluster.queue_of(task))
            && !self.policy.is_in_queue()
        {
            return false;
        }
        // Do not evict for a task with `preemptionPolicy: Never`, nor reclaim for a best-effort task, which has no
        // part in any share.
        // Parity: see docs/parity.md#p1.
        if cluster.never_preempts(task)
            || !self.policy.is_in_queue() && cluster.request(task).is_best_effort()
        {
            return false;
        }
        let preemptor = self.preemptor(task);
        let Self { policy, statement, search, .. } = self;
        let mut found = select_victims(*policy, statement, search, preemptor);
        if let Some(limited) = limited.filter(|_| found.is_none()) {
            found = select_victims_below(limited, *policy, statement, preemptor);
        }
        let Some((node, victims)) = found else { return self.evict_jobs(task, others) };
        self.explain(class);
        evict(&mut self.statement, &victims, self.policy.reason());
        self.statement.pipeline(task, node).expect("a task that waits may be pipelined");
        true
    }

    /// Evicts the gangs of a plan for the tasks, and limits the other victims to the plan. Returns `false`
    /// if there is no plan.
    fn evict_by_plan(&mut self, tasks: &VecDeque<TaskIdx>, bound: Bound) -> bool {
        let cluster = self.statement.session().cluster();
        let waiting = |task: &&TaskIdx| cluster.is_waiting(**task);
        let Some(first) = tasks.iter().copied().find(|task| waiting(&task)) else { return false };
        let kind = PreemptorKind::of(cluster, first);
        let is_alike = |task: &TaskIdx| PreemptorKind::of(cluster, *task) == kind;
        if kind.never_preempts || !tasks.iter().filter(waiting).all(is_alike) {
            return false;
        }
        if !self.statement.search().could_hold(kind.class) {
            return false;
        }
        let limit = Limit { bound, ..Limit::WIDEST };
        self.limit = Some(limit);
        let wanted = self.wanted(limit, first, tasks);
        let Some(plan) = plan(self.policy, &mut self.statement, wanted) else { return false };
        if bound == Bound::Preferred && self.is_better_without_bound(&plan, wanted) {
            return false;
        }
        self.explain(kind.class);
        self.limit = Some(plan.limit);
        self.is_planned = true;
        let wanted = WantingTasks { limit: plan.limit, ..wanted };
        evict_units(self.policy, &mut self.statement, wanted, plan.gangs);
        true
    }

    /// Whether a plan without the bound violates fewer budgets or evicts victims of lower priority. Both come before
    /// the loss.
    fn is_better_without_bound(&mut self, bounded: &Plan, wanted: WantingTasks) -> bool {
        let preemptor = Preemptor { limit: Some(Limit::WIDEST), ..wanted.preemptor };
        let wanted = WantingTasks { limit: Limit::WIDEST, preemptor, ..wanted };
        let rank = |plan: &Plan| (plan.limit.may_violate, plan.limit.priority);
        let unbounded = plan(self.policy, &mut self.statement, wanted);
        unbounded.is_some_and(|unbounded| rank(&unbounded) < rank(bounded))
    }

    /// The bounds to try, in order, and the smallest gang that `gang.maxLoss` protects.
    pub(super) fn bounds(
        &mut self,
        tasks: &VecDeque<TaskIdx>,
    ) -> (Vec<Bound>, Option<RefusedGang>) {
        let widest = vec![Bound::Widest];
        let cluster = self.statement.session().cluster();
        let first = tasks.iter().copied().find(|task| cluster.is_waiting(*task));
        let Some(first) = first.filter(|_| self.need.is_some()) else { return (widest, None) };
        let class = cluster.tasks.class[first];
        if !self.statement.search().could_hold(class) {
            return (widest, None);
        }
        self.limit = Some(Limit::WIDEST);
        let wanted = self.wanted(Limit::WIDEST, first, tasks);
        self.limit = None;
        let Some(need) = wanted.preemptor.need else { return (widest, None) };
        let unbounded =
            WantingTasks { preemptor: Preemptor { need: None, ..wanted.preemptor }, ..wanted };
        let gangs = candidates(self.policy, &self.statement, unbounded);
        let session = self.statement.session();
        let admits =
            |bound: Bound, gang: &Evictable| need.admits(self.policy, session, bound, &gang.tasks);
        let refused = |gang: &Evictable| RefusedGang {
            gang: gang.job,
            dim: need.dim,
            amount: need.amount(session.cluster(), &gang.tasks),
            usable: need.usable,
        };
        let too_large = gangs.iter().filter(|gang| !admits(Bound::Widest, gang)).map(refused);
        let smallest = too_large.min_by_key(|refused| (refused.amount, refused.gang));
        if gangs.iter().all(|gang| admits(Bound::Preferred, gang)) {
            return (widest, smallest);
        }
        (vec![Bound::Preferred, Bound::Widest], smallest)
    }

    /// Evicts whole jobs, so that the task and others like it find a place, and pipelines the task.
    /// Returns whether it has a place.
    fn evict_jobs(&mut self, task: TaskIdx, others: &VecDeque<TaskIdx>) -> bool {
        let Some(limit) = self.limit.filter(|_| !self.is_planned) else { return false };
        let class = self.statement.session().cluster().tasks.class[task];
        self.explain(class);
        let wanted = self.wanted(limit, task, others);
        evict_jobs(self.policy, &mut self.statement, &mut self.search.node_tasks, wanted);
        if self.statement.session().within_limits(task, &[], Capacity::FutureIdle).is_err() {
            return false;
        }
        let Some(choice) = self.statement.search().best_node(class) else { return false };
        self.statement.pipeline(task, choice.node).expect("a task that waits may be pipelined");
        true
    }

    /// A task and those of others that are like it, as many as the job needs.
    fn wanted(&mut self, limit: Limit, task: TaskIdx, others: &VecDeque<TaskIdx>) -> WantingTasks {
        let preemptor = self.preemptor(task);
        let session = self.statement.session();
        let cluster = session.cluster();
        let kind = PreemptorKind::of(cluster, task);
        let is_alike = |other: &&TaskIdx| {
            **other != task
                && cluster.is_waiting(**other)
                && PreemptorKind::of(cluster, **other) == kind
        };
        let n_alike = 1 + others.iter().filter(is_alike).count();
        let n_missing = session.plugins().tasks_missing(self.statement.job()).max(1) as usize;
        WantingTasks { preemptor, limit, n_tasks: n_alike.min(n_missing) }
    }

    fn preemptor(&mut self, task: TaskIdx) -> Preemptor {
        let cluster = self.statement.session().cluster();
        let class = cluster.tasks.class[task];
        let limit = self.limit;
        let scarce = limit
            .map(|_| *self.scarce.entry(class).or_insert_with(|| scarce_resource(cluster, class)));
        let of_scarce = self.need.as_ref().zip(scarce);
        let need = of_scarce.map(|(need, dim)| need.of_resource(dim));
        Preemptor { task, class, scarce, limit, need }
    }

    /// Stores why a task of the class does not fit now, unless the job has a reason already.
    fn explain(&mut self, class: ClassIdx) {
        let job = self.statement.job();
        let session = self.statement.session_mut();
        if self.failure.is_none() && session.failure(job).is_none() {
            self.failure = Some(Failure::Unfit(session.search().explain(class)));
        }
    }
}

fn pipeline_if_fits(statement: &mut Statement<'_>, task: TaskIdx, node: NodeIdx) -> bool {
    let class = statement.session().cluster().tasks.class[task];
    let fits = statement.search().fits(class, node, Capacity::FutureIdle);
    if fits {
        statement.pipeline(task, node).expect("a task that waits may be pipelined");
    }
    fits
}

/// Whether the task, which has just been placed, uses future idle resources that are withheld for other
/// queues. What victims release is not withheld. `before` are the future idle resources of the cluster
/// before the turn.
// Parity: the rule by which allocate lends resources, see docs/parity.md#a9.
fn uses_withheld(
    policy: VictimPolicy<'_>,
    session: &Session,
    before: Option<&ResourceVector>,
    task: TaskIdx,
) -> bool {
    let Some((before, withheld)) = before.zip(policy.withheld()) else { return false };
    let cluster = session.cluster();
    let idle = cluster.total_available(Capacity::FutureIdle);
    let mut amounts = cluster.request(task).shared();
    amounts.any(|(dim, _)| {
        idle[dim] < before[dim]
            && idle[dim] < withheld.amount(session, dim, None)
            && !withheld.can_be_reclaimed(session, task, dim)
    })
}

/// The resource of which the cluster has room for the fewest tasks of the class, apart from pod slots:
/// what is lost with victims is measured in it.
fn scarce_resource(cluster: &Cluster, class: ClassIdx) -> Dim {
    let idle = cluster.total_available(Capacity::FutureIdle);
    let amounts = cluster.classes.request[class].shared();
    let room = amounts.map(|(dim, amount)| (idle[dim].max(0) / amount.max(1), dim));
    room.min().map_or(Dim::PODS, |(_, dim)| dim)
}

/// If one task cannot be placed, no other task of the same kind can be placed either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PreemptorKind {
    class: ClassIdx,
    priority: i32,
    never_preempts: bool,
}

impl TaskKind for PreemptorKind {
    fn of(cluster: &Cluster, task: TaskIdx) -> Self {
        Self {
            class: cluster.tasks.class[task],
            priority: cluster.tasks.priority[task],
            never_preempts: cluster.never_preempts(task),
        }
    }

    fn class(&self) -> ClassIdx {
        self.class
    }
}
