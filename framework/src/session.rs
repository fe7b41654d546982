//! The state of one cycle: the snapshot, the plugins, and the decisions so far.
//!
//! A session has no access to the API server. Actions read it freely and change it only through
//! [`Statement`](crate::statement::Statement)s; its results are data.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kube_batch_model::{
    cluster::{Cluster, LeftOut},
    column::{ClassIdx, Column, DomainIdx, JobIdx, NodeIdx, TaskIdx},
    composites::{CompleteGroups, Composites},
    decision::{ClaimChoice, Decision, DeviceChoice, EvictReason, PodRef},
    facts::device::DeviceId,
    name::{Name, ObjectKey},
    physical::NotPhysical,
    reason::FitReport,
    resource::ResourceVector,
    status::{Placement, TaskStatus},
};

use crate::{
    candidates::{Candidates, Choice, Inputs, Room, Search},
    confinement::Confinement,
    failure::{Failure, RefusedGang},
    headroom::Headroom,
    holds::Holds,
    known_action::KnownAction,
    memory::Memory,
    milestone::Milestone,
    moves::Move,
    plugin::{Capacity, OrderScope, PlacementChange, Prescription},
    policy::{Plugins, Policy},
    reservations::Reservations,
    roles, stuck,
    topology::{Level, Scope, ScopeKey, ScopeRef, nodes_in},
    turn_log::TurnLog,
    valid_composites::{mark_incomplete_composites, mark_scattered_composites},
};

/// The state of one cycle.
pub struct Session {
    pub(crate) cluster: Cluster,
    /// The composite PodGroups above its jobs.
    pub(crate) composites: Composites,
    pub(crate) complete_groups: CompleteGroups,
    pub(crate) policy: Policy,
    /// The time of the cycle.
    pub(crate) now: Timestamp,
    /// What is kept of the capability of queues.
    pub(crate) headroom: Headroom,
    candidates: Candidates,
    pub(crate) confinement: Confinement,
    log: Log,
    pub(crate) decisions: Vec<Decision>,
    /// Moves that statements kept without deciding anything, by job.
    pub(crate) kept: BTreeMap<JobIdx, Vec<Move>>,
    /// The tasks that are bound, in order.
    pub(crate) bound: Vec<TaskIdx>,
    /// The tasks that were evicted.
    pub(crate) evicted: Vec<(TaskIdx, EvictReason)>,
    /// The jobs for which tasks were evicted.
    pub(crate) preemptors: BTreeSet<JobIdx>,
    /// The gangs that were evicted as a whole.
    pub(crate) evicted_gangs: BTreeMap<JobIdx, EvictedGang>,
    failures: Column<JobIdx, Option<Arc<Failure>>>,
    /// For each job, the smallest gang that `gang.maxLoss` protects from it.
    refused: BTreeMap<JobIdx, RefusedGang>,
    /// The action in which each job failed.
    failed_in: Column<JobIdx, &'static str>,
    /// The first action in which each job had a turn.
    tried: Column<JobIdx, Option<&'static str>>,
    /// The largest number of tasks of each job that had a place at the same time, by action.
    fitting: Column<JobIdx, Vec<(&'static str, u32)>>,
    /// The actions of the cycle, in order.
    pub(crate) actions: Vec<KnownAction>,
    /// How many of them have been started.
    pub(crate) n_started: usize,
    pub(crate) turn_log: TurnLog,
    before: Before,
    /// The work of earlier runs of this cycle.
    pub(crate) work_before: u64,
    /// The jobs that may not place all of their tasks.
    pub(crate) holds: Holds,
    pub(crate) reservations: Reservations,
}

/// What the cluster was like before the session opened.
#[derive(Debug, Default)]
struct Before {
    left_out: LeftOut,
    not_physical: NotPhysical,
    /// The jobs that the plugins found to be invalid.
    invalid: Vec<JobIdx>,
    /// The tasks that have been moved, and where they were.
    moved: Vec<(TaskIdx, Placement)>,
    is_moved: Column<TaskIdx, bool>,
}

/// Why a gang was evicted as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvictedGang {
    pub(crate) reason: EvictReason,
    /// The job that gets the resources.
    pub(crate) by: JobIdx,
    /// How many of its tasks were evicted.
    pub(crate) n_tasks: usize,
}

/// Why a task of a job could not be placed, and in which action.
#[derive(Debug)]
pub struct RecordedFailure {
    failure: Arc<Failure>,
    action: &'static str,
}

/// Moving a task takes as long as this number of evaluations of a node, because plugins follow it. Guessed.
const WORK_OF_MOVE: usize = 4;

/// The nodes and jobs of all moves, in order, for indexes and orders to catch up.
#[derive(Debug, Default)]
struct Log {
    nodes: Vec<NodeIdx>,
    jobs: Vec<JobIdx>,
    /// Entries up to here have been read and must not be removed.
    read: LogPosition,
}

/// A position in the log of moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    nodes: usize,
    jobs: usize,
}

impl Log {
    fn end(&self) -> LogPosition {
        LogPosition { nodes: self.nodes.len(), jobs: self.jobs.len() }
    }

    /// Removes the entries of moves that have been rolled back, unless they have been read.
    fn roll_back_to(&mut self, position: LogPosition) {
        if self.read.nodes <= position.nodes && self.read.jobs <= position.jobs {
            self.nodes.truncate(position.nodes);
            self.jobs.truncate(position.jobs);
        }
    }
}

impl Session {
    /// Opens a session: marks the jobs that cannot be scheduled, then opens it for each plugin.
    pub fn open(cluster: Cluster, now: Timestamp, policy: Policy, search: Search) -> Self {
        Self::open_measured(cluster, now, policy, search, Memory::none(), &mut |_| {})
    }

    /// Opens a session that uses results of earlier cycles, and calls `reached` at each milestone.
    pub(crate) fn open_measured(
        mut cluster: Cluster,
        now: Timestamp,
        mut policy: Policy,
        search: Search,
        memory: Memory,
        reached: &mut dyn FnMut(Milestone),
    ) -> Self {
        let not_physical = cluster.begin_physical((policy.physical_requests)(&cluster));
        cluster.device_totals = (policy.device_totals)(&cluster);
        let left_out =
            cluster.leave_out(|resource| policy.settings().ignored_resources.has(resource));
        let mut invalid = Vec::new();
        // Parity: validity is checked, see docs/parity.md#j6.
        for job in cluster.jobs.key.ids() {
            if cluster.jobs.problem[job].is_none()
                && let Err(problem) = policy.about(&cluster).job_valid(job)
            {
                cluster.jobs.problem[job] = Some(problem);
                invalid.push(job);
            }
        }
        let is_moved = Column::filled(false, cluster.tasks.facts.len());
        let mut before = Before { is_moved, ..Before::default() };
        let timeout = policy.termination_timeout();
        stuck::mark(&mut cluster, timeout, |task, placement| {
            before.moved.push((task, placement));
            before.is_moved[task] = true;
        });
        let composites = Composites::of(&cluster);
        invalid.extend(mark_incomplete_composites(&mut cluster, &composites));
        reached(Milestone::Validated);
        policy.open(&cluster, now, |plugin| reached(Milestone::PluginOpened(plugin)));
        invalid.extend(mark_scattered_composites(&mut cluster, &composites, &policy));
        let n_jobs = cluster.jobs.key.len();
        let everywhere = policy.settings().enqueues_strictly;
        let headroom = Headroom::of(&cluster, &memory.headroom, now, everywhere);
        let is_ready = |job: JobIdx| policy.about(&cluster).job_ready(job);
        Self {
            complete_groups: CompleteGroups::new(&composites, is_ready),
            composites,
            now,
            headroom,
            candidates: Candidates::new(search, &cluster),
            confinement: Confinement::default(),
            cluster,
            policy,
            log: Log::default(),
            decisions: Vec::new(),
            kept: BTreeMap::new(),
            bound: Vec::new(),
            evicted: Vec::new(),
            preemptors: BTreeSet::new(),
            evicted_gangs: BTreeMap::new(),
            failures: Column::filled(None, n_jobs),
            refused: BTreeMap::new(),
            failed_in: Column::filled("", n_jobs),
            tried: Column::filled(None, n_jobs),
            fitting: Column::filled(Vec::new(), n_jobs),
            actions: Vec::new(),
            n_started: 0,
            turn_log: TurnLog::new(memory, n_jobs),
            before: Before { left_out, not_physical, invalid, ..before },
            work_before: 0,
            holds: Holds::new(),
            reservations: Reservations::default(),
        }
    }

    /// Closes the session, and returns the cluster as it was before.
    pub(crate) fn into_cluster(mut self) -> Cluster {
        self.end_reservations();
        let Self { mut cluster, before, .. } = self;
        for (task, placement) in before.moved {
            cluster.set_placement(task, placement);
        }
        for job in before.invalid {
            cluster.jobs.problem[job] = None;
        }
        cluster.put_back(before.left_out);
        cluster.end_physical(before.not_physical);
        cluster.device_totals = ResourceVector::zero(cluster.dimensions.len());
        cluster
    }

    /// The snapshot with the moves so far.
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The plugins, to be called about the cluster as it is now.
    pub const fn plugins(&self) -> Plugins<'_> {
        self.policy.about(&self.cluster)
    }

    pub(crate) fn order_scope(&self) -> OrderScope {
        self.policy.order_scope()
    }

    /// The waiting tasks of a job, in task order; ties go by creation time, then name.
    pub fn waiting_tasks(&self, job: JobIdx) -> Vec<TaskIdx> {
        let all = self.cluster.jobs.tasks[job].iter();
        let mut waiting: Vec<TaskIdx> = all.filter(|task| self.cluster.is_waiting(*task)).collect();
        waiting.sort_by(|l, r| self.plugins().task_order(*l, *r));
        let mut waiting = roles::short_first(&self.cluster, job, waiting);
        if let Some(most) = self.n_placeable(job) {
            waiting.truncate(most as usize);
        }
        waiting
    }

    /// Whether the job is scheduled in this cycle and has waiting tasks.
    pub fn has_waiting_tasks(&self, job: JobIdx) -> bool {
        self.cluster.is_schedulable(job)
            && self.cluster.jobs.counts[job].of(TaskStatus::Pending) > 0
            && self.n_placeable(job) != Some(0)
    }

    /// Whether a task on the node does not end.
    pub fn has_stuck_task(&self, node: NodeIdx) -> bool {
        stuck::is_on(&self.cluster, node)
    }

    /// Whether evicting these tasks changes for the class only what is free: it changes no answer of a
    /// rule.
    pub fn needs_only_resources(&mut self, class: ClassIdx, victims: &[TaskIdx]) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.needs_only_resources(inputs, class, victims)
    }

    /// Whether every rule admits the class to the node once tasks that are being terminated are gone,
    /// free resources aside.
    pub fn rules_pass(&mut self, class: ClassIdx, node: NodeIdx) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.rules_pass(inputs, class, node)
    }

    /// The best node for a task of the class, a node where it fits now before one where it must wait.
    // Parity: see docs/parity.md#a3.
    pub fn best_node(&mut self, class: ClassIdx) -> Option<Choice> {
        [Capacity::Idle, Capacity::FutureIdle]
            .into_iter()
            .find_map(|capacity| self.best_node_in(class, capacity))
    }

    /// The best node for a task of the class where it fits into this capacity.
    pub fn best_node_in(&mut self, class: ClassIdx, capacity: Capacity) -> Option<Choice> {
        let (candidates, inputs) = self.query();
        let node = candidates.best(inputs, class, capacity)?;
        Some(Choice { node, capacity })
    }

    /// The best of these nodes for a task of the class where it fits into this capacity. The nodes are
    /// ascending.
    pub fn best_node_of(
        &mut self,
        class: ClassIdx,
        nodes: &[NodeIdx],
        capacity: Capacity,
    ) -> Option<Choice> {
        let (candidates, inputs) = self.query_unread();
        candidates.prepare(inputs, class);
        let eligible = |node: &NodeIdx| candidates.is_eligible(inputs, class, *node);
        let nodes: Vec<NodeIdx> = nodes.iter().copied().filter(eligible).collect();
        let node = candidates.best_of(inputs, class, &nodes, capacity)?;
        Some(Choice { node, capacity })
    }

    /// How many tasks of the class these nodes hold by their free amounts, those that are being
    /// released included, as far as the rules that no placement can change admit the class. An upper
    /// bound.
    pub fn count_fitting(&mut self, class: ClassIdx, nodes: &[NodeIdx]) -> u64 {
        let (candidates, inputs) = self.query_unread();
        candidates.count_fitting(inputs, class, nodes)
    }

    /// How many tasks of the class fit into this capacity of each domain of a level, by what is free and the
    /// rules about single nodes. An upper bound.
    pub fn domain_fits(
        &mut self,
        class: ClassIdx,
        level: &Level,
        capacity: Capacity,
    ) -> Column<DomainIdx, u64> {
        let (candidates, inputs) = self.query();
        candidates.domain_fits(inputs, class, level, capacity)
    }

    /// The score of the best node of each of these domains for a task of the class that fits into this
    /// capacity, normalised over the nodes of all these domains; `None` if it fits on none.
    pub fn domain_scores(
        &mut self,
        class: ClassIdx,
        level: &Level,
        domains: &[DomainIdx],
        capacity: Capacity,
    ) -> Vec<Option<i64>> {
        let (candidates, inputs) = self.query();
        candidates.domain_scores(inputs, class, level, domains, capacity)
    }

    /// Prescribes which alternative placements try first where there is a choice: see [`Prescription::Alternative`].
    pub fn try_first(&mut self, alternative: Option<usize>) {
        self.policy.prescribe(Prescription::Alternative(alternative));
    }

    /// The nodes that searches consider, ascending.
    pub fn nodes_in_scope(&self) -> Vec<NodeIdx> {
        nodes_in(&self.cluster, self.confinement.scope(&self.cluster, &self.policy))
    }

    /// Identifies the set of nodes that searches consider; `None` stands for all nodes.
    pub fn scope_key(&self) -> Option<ScopeKey> {
        self.confinement.scope(&self.cluster, &self.policy).map(ScopeRef::key)
    }

    /// Calls a function while searches are confined to a domain.
    pub(crate) fn within<T>(&mut self, scope: Scope, call: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.confinement, Confinement::to(scope));
        let answer = call(self);
        self.confinement = outer;
        answer
    }

    /// Whether a task of the class fits on the node.
    pub fn fits(&mut self, class: ClassIdx, node: NodeIdx, capacity: Capacity) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.prepare(inputs, class);
        candidates.fits(inputs, class, node, capacity)
    }

    /// Whether the predicates that no placement can change admit the class to the node.
    pub fn is_eligible(&mut self, class: ClassIdx, node: NodeIdx) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.prepare(inputs, class);
        candidates.is_eligible(inputs, class, node)
    }

    /// The scores of these nodes for the class without the tasks that are being terminated, normalised over the nodes.
    pub fn scores_once_released(&mut self, class: ClassIdx, nodes: &[NodeIdx]) -> Vec<i64> {
        let (candidates, inputs) = self.query_unread();
        candidates.prepare(inputs, class);
        let Self { cluster, policy, confinement, log, candidates, .. } = self;
        cluster.with_released(nodes, |cluster| {
            let scope = confinement.scope(cluster, policy);
            let inputs = Inputs { cluster, policy, touched: &log.nodes, scope };
            candidates.scores(inputs, class, nodes)
        })
    }

    /// Whether some node of the cluster would have room for a task of the class without kube-batch's own pods. If not,
    /// no search and no eviction finds a place in this cycle.
    pub fn could_hold(&mut self, class: ClassIdx) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.could_hold(inputs, class)
    }

    /// Whether there could be room for a task of the class: see [`Room::WithoutOwnPods`].
    pub fn is_placeable(&mut self, class: ClassIdx) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.is_placeable(inputs, class)
    }

    /// How many tasks of the class there could be room for, counted up to `limit`. Tasks that must all
    /// be in one topology domain are counted in the domain that holds most. An upper bound: other
    /// rules that look at other pods are not considered.
    pub fn count_placeable(&mut self, class: ClassIdx, limit: u64, room: Room) -> u64 {
        let (candidates, inputs) = self.query_unread();
        candidates.count_placeable(inputs, class, limit, room)
    }

    /// Whether a placement on one node can change whether the class may be placed on another.
    pub fn is_open_to_change(&mut self, class: ClassIdx) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.is_open_to_change(inputs, class)
    }

    /// Whether the best node for the class is found through an index.
    pub fn is_indexable(&mut self, class: ClassIdx) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.is_indexable(inputs, class)
    }

    /// Why a task of the class fits on no node that is searched now.
    pub fn explain(&mut self, class: ClassIdx) -> FitReport {
        let (candidates, inputs) = self.query();
        candidates.explain(inputs, class)
    }

    /// Whether answers may be kept from one search to the next; otherwise every plugin is called every time.
    pub fn uses_index(&self) -> bool {
        self.candidates.uses_index()
    }

    /// Whether the scores of a node for the class depend on that node alone, not on the others they are
    /// compared with.
    pub fn scores_are_absolute(&mut self, class: ClassIdx) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.scores_are_absolute(inputs, class)
    }

    /// The nodes and jobs whose tasks have moved since a position in the log of moves; and the position now.
    pub fn moved_since(&mut self, seen: LogPosition) -> (&[NodeIdx], &[JobIdx], LogPosition) {
        self.log.read = self.log.end();
        let Log { nodes, jobs, .. } = &self.log;
        (&nodes[seen.nodes..], &jobs[seen.jobs..], self.log.end())
    }

    /// For a query whose answer is stored together with the length of the log it reflects.
    fn query(&mut self) -> (&mut Candidates, Inputs<'_>) {
        self.log.read.nodes = self.log.nodes.len();
        self.query_unread()
    }

    fn query_unread(&mut self) -> (&mut Candidates, Inputs<'_>) {
        let Self { cluster, policy, confinement, log, candidates, .. } = self;
        let scope = confinement.scope(cluster, policy);
        let inputs = Inputs { cluster, policy, touched: &log.nodes, scope };
        (candidates, inputs)
    }

    /// Records that a job had a turn.
    pub fn record_turn(&mut self, job: JobIdx) {
        let action = self.action();
        self.tried[job].get_or_insert(action);
    }

    /// Records why a task of the job could not be placed. Only the first reason in a cycle is kept.
    pub fn record_failure(&mut self, job: JobIdx, failure: impl FnOnce(&mut Self) -> Failure) {
        if self.failures[job].is_none() {
            let failure = failure(self);
            self.failures[job] = Some(Arc::new(failure));
            self.failed_in[job] = self.action();
        }
    }

    /// Removes what is recorded of a job, to be put back.
    pub fn take_failure(&mut self, job: JobIdx) -> Option<RecordedFailure> {
        let failure = self.failures[job].take()?;
        Some(RecordedFailure { failure, action: self.failed_in[job] })
    }

    /// Records again what was taken; it is the first reason.
    pub fn put_back_failure(&mut self, job: JobIdx, recorded: RecordedFailure) {
        let RecordedFailure { failure, action } = recorded;
        self.failures[job] = Some(failure);
        self.failed_in[job] = action;
    }

    /// Replaces the reason by a more exact one, or forgets it.
    pub fn replace_failure(&mut self, job: JobIdx, failure: Option<Failure>) {
        self.failures[job] = failure.map(Arc::new);
    }

    /// Why the first task of the job that could not be placed was not placed.
    pub fn failure(&self, job: JobIdx) -> Option<&Failure> {
        self.failures[job].as_deref()
    }

    /// Why the first task of the job that could not be placed was not placed, to be shared with the memory.
    pub(crate) fn shared_failure(&self, job: JobIdx) -> Option<&Arc<Failure>> {
        self.failures[job].as_ref()
    }

    /// Records the failure of an earlier cycle again.
    pub(crate) fn recall_failure(&mut self, job: JobIdx, failure: &Arc<Failure>) {
        if self.failures[job].is_none() {
            self.failures[job] = Some(Arc::clone(failure));
            self.failed_in[job] = self.action();
        }
    }

    /// Records a gang that is not reclaimed for the job.
    pub fn record_refused_gang(&mut self, job: JobIdx, refused: RefusedGang) {
        self.refused.insert(job, refused);
    }

    pub(crate) fn refused_gang(&self, job: JobIdx) -> Option<&RefusedGang> {
        self.refused.get(&job)
    }

    /// The first action in which the job had a turn.
    pub(crate) fn tried_in(&self, job: JobIdx) -> Option<&'static str> {
        self.tried[job]
    }

    /// The action in which the first task of the job could not be placed.
    pub(crate) fn failed_in(&self, job: JobIdx) -> &'static str {
        self.failed_in[job]
    }

    /// Records that this many tasks of the job had a place at the same time.
    pub fn record_fitting(&mut self, job: JobIdx, n_tasks: u32) {
        let action = self.action();
        let fitting = &mut self.fitting[job];
        match fitting.iter_mut().find(|(own, _)| *own == action) {
            Some((_, most)) => *most = n_tasks.max(*most),
            None => fitting.push((action, n_tasks)),
        }
    }

    /// The largest number of tasks of the job that had a place at the same time in this cycle.
    pub fn n_fitting(&self, job: JobIdx) -> u32 {
        let counts = &self.cluster.jobs.counts[job];
        let recorded = self.fitting[job].iter().map(|(_, n_tasks)| *n_tasks);
        recorded.fold(counts.ready() + counts.pipelined(), u32::max)
    }

    /// What [`Self::record_fitting`] has recorded in each action.
    pub(crate) fn fitting(&self, job: JobIdx) -> &[(&'static str, u32)] {
        &self.fitting[job]
    }

    /// The action that runs; empty before the first.
    pub(crate) fn action(&self) -> &'static str {
        self.n_started.checked_sub(1).map_or("", |at| self.actions[at].name)
    }

    /// Counts work of an action that takes as long as this number of evaluations of a node for a class.
    pub fn count_work(&self, n_evaluations: u64) {
        self.candidates.count_work(usize::try_from(n_evaluations).unwrap_or(usize::MAX));
    }

    /// How many evaluations of a node for a class there were so far, or would have taken as long.
    pub fn work(&self) -> u64 {
        self.work_before + self.candidates.work() + self.policy.work()
    }

    /// Whether the job had a turn.
    pub fn was_tried(&self, job: JobIdx) -> bool {
        self.tried[job].is_some()
    }

    /// Whether an action that runs later in the cycle places tasks that request nothing.
    pub fn places_best_effort_later(&self) -> bool {
        self.actions[self.n_started..].iter().any(|action| action.places_best_effort)
    }

    /// Whether an action of the cycle evicts tasks of one queue for waiting tasks of another.
    pub fn reclaims(&self) -> bool {
        self.actions.iter().any(|action| action.reclaims)
    }

    /// Whether the task was nominated in an earlier cycle and is still pipelined.
    pub fn is_nominated(&self, task: TaskIdx) -> bool {
        self.cluster.tasks.nominated[task].is_some()
            && self.cluster.status(task) == TaskStatus::Pipelined
    }

    /// Whether tasks of the job were nominated in an earlier cycle and are still pipelined.
    pub fn has_nominations(&self, job: JobIdx) -> bool {
        let kept = self.kept.get(&job).into_iter().flatten();
        kept.map(Move::task).any(|task| self.is_nominated(task))
    }

    /// Whether tasks were evicted for the job in this cycle.
    pub fn is_preemptor(&self, job: JobIdx) -> bool {
        self.preemptors.contains(&job)
    }

    /// The tasks of a job that have places by kept moves.
    pub fn kept_tasks(&self, job: JobIdx) -> impl Iterator<Item = TaskIdx> {
        self.kept.get(&job).into_iter().flatten().map(Move::task)
    }

    /// Jobs with kept moves.
    pub fn jobs_with_kept_moves(&self) -> Vec<JobIdx> {
        self.kept.keys().copied().collect()
    }

    /// Whether moves of the job are kept.
    pub fn keeps_moves(&self, job: JobIdx) -> bool {
        self.kept.contains_key(&job)
    }

    /// The pod and the node of a task that has a place, as decisions name them.
    pub(crate) fn place_of(&self, task: TaskIdx) -> (PodRef, Name) {
        let node = self.cluster.node_of(task).expect("the task has a place");
        (self.cluster.pod(task), node.clone())
    }

    /// The volumes chosen for the unbound claims of a task that has been placed.
    pub(crate) fn claim_choices(&self, task: TaskIdx) -> Vec<ClaimChoice> {
        let class = self.cluster.tasks.class[task];
        if self.cluster.classes.template[class].claims.is_empty() {
            return Vec::new();
        }
        self.plugins().claim_choices(task)
    }

    /// Whether some plugin has postponed some of its work to the next cycle.
    pub(crate) fn has_postponed(&self) -> bool {
        self.policy.has_postponed()
    }

    /// The claims for devices to deallocate.
    pub(crate) fn claims_to_deallocate(
        &self,
        is_refused: &dyn Fn(JobIdx) -> bool,
    ) -> Vec<(TaskIdx, ObjectKey)> {
        self.policy.claims_to_deallocate(&self.cluster, is_refused)
    }

    /// What is to be written to the claims for devices of a task that has been placed.
    pub(crate) fn device_choices(&self, task: TaskIdx) -> Vec<DeviceChoice> {
        let class = self.cluster.tasks.class[task];
        if self.cluster.classes.devices[class].is_empty() {
            return Vec::new();
        }
        self.plugins().device_choices(task)
    }

    /// The devices that were chosen for the claims of a task that has been placed.
    pub(crate) fn chosen_devices(&self, task: TaskIdx) -> Arc<[DeviceId]> {
        let choices = self.device_choices(task);
        let allocations = choices.into_iter().filter_map(|choice| choice.allocation);
        allocations.flat_map(|allocation| allocation.results).map(|result| result.id).collect()
    }

    /// Number of moves of jobs so far.
    pub(crate) fn moves_logged(&self) -> usize {
        self.log.jobs.len()
    }

    /// Jobs whose tasks have moved since a position of the log.
    pub(crate) fn jobs_moved_since(&mut self, seen: usize) -> &[JobIdx] {
        self.log.read.jobs = self.log.jobs.len();
        &self.log.jobs[seen..]
    }

    pub(crate) fn log_end(&self) -> LogPosition {
        self.log.end()
    }

    pub(crate) fn roll_back_log(&mut self, position: LogPosition) {
        self.log.roll_back_to(position);
    }

    /// Logs that something about these nodes has changed.
    pub(crate) fn log_nodes(&mut self, nodes: impl IntoIterator<Item = NodeIdx>) {
        self.log.nodes.extend(nodes);
    }

    /// Moves a task, logs the move and informs the plugins. Returns its previous placement.
    pub(crate) fn place(&mut self, task: TaskIdx, to: Placement) -> Placement {
        self.candidates.count_work(WORK_OF_MOVE);
        let from = self.cluster.set_placement(task, to);
        if let Some(job) = self.cluster.tasks.job[task] {
            self.headroom.follow(&self.cluster, job);
        }
        if !std::mem::replace(&mut self.before.is_moved[task], true) {
            self.before.moved.push((task, from));
        }
        for node in [from.node, to.node.filter(|_| from.node != to.node)].into_iter().flatten() {
            self.log.nodes.push(node);
        }
        self.log.jobs.extend(self.cluster.tasks.job[task]);
        self.policy.placed(&self.cluster, &PlacementChange { task, from, to });
        if !self.composites.is_empty()
            && let Some(job) = self.cluster.tasks.job[task]
        {
            self.count_group(job);
        }
        from
    }
}
