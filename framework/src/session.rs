//! The state of one cycle: the snapshot, the plugins, and the decisions so far.
//!
//! A session has no access to the API server. Actions read it freely and change it only through
//! [`Statement`](crate::statement::Statement)s; its results are data.

mod active;
mod held_up;
mod log;
mod places;
mod records;
mod search;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kube_batch_model::{
    cluster::{Cluster, LeftOut},
    column::{Column, JobIdx, NodeIdx, QueueIdx, TaskIdx},
    decision::{Decision, EvictReason},
    gang::{complete::CompleteGroups, tree::GangTree},
    name::Name,
    others::Others,
    physical::NotPhysical,
    resource::ResourceVector,
    status::{Placement, TaskStatus},
};

use crate::{
    active_jobs::ActiveJobs,
    candidates::{Candidates, Search},
    confinement::Confinement,
    gangs::valid::{mark_incomplete, mark_scattered},
    guarantees::Guarantees,
    headroom::Headroom,
    holds::Holds,
    job_counts::JobCounts,
    job_record::JobRecords,
    known_action::KnownAction,
    last_reports::Whole,
    memory::Memory,
    milestone::Milestone,
    move_log::MoveLog,
    moves::Move,
    plugin::{OrderScope, PlacementChange, Prescription},
    policy::{Plugins, Policy},
    reservations::Reservations,
    served::problem_of_queue,
    strict_order::StrictOrder,
    stuck,
    turn_log::TurnLog,
};
pub use crate::{job_record::RecordedFailure, move_log::LogPosition};

/// The state of one cycle.
pub struct Session {
    pub(crate) cluster: Cluster,
    /// The gangs of the snapshot, as trees.
    pub(crate) gangs: GangTree,
    pub(crate) complete_groups: CompleteGroups,
    pub(crate) policy: Policy,
    /// The time of the cycle.
    pub(crate) now: Timestamp,
    /// What is kept of the capability of queues.
    pub(crate) headroom: Headroom,
    /// What is kept free for queues.
    pub(crate) guarantees: Guarantees,
    pub(crate) job_counts: JobCounts,
    pub(crate) strict_order: StrictOrder,
    candidates: Candidates,
    pub(crate) confinement: Confinement,
    log: MoveLog,
    pub(crate) decisions: Vec<Decision>,
    /// The job of each decision.
    pub(crate) decided_jobs: Vec<Option<JobIdx>>,
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
    active: ActiveJobs,
    /// What the reports of all jobs depend on.
    pub(crate) whole: Whole,
    records: JobRecords,
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
    /// How other jobs and queues keep each job waiting; computed at the end of the cycle.
    pub(crate) others: BTreeMap<JobIdx, Arc<Others>>,
    /// The pods that are being terminated, by node; found at the end.
    pub(crate) leaving: BTreeMap<NodeIdx, Leaving>,
    /// The queue that was meant, by the name that a job has and its namespace; found at the end.
    pub(crate) similar_queues: BTreeMap<(Name, Name), Option<Name>>,
}

/// The pods that are being terminated on a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    pub(crate) n_pods: u32,
    /// When the grace period of the last of them ends, if it is known of all.
    pub(crate) end: Option<Timestamp>,
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

/// Moving a task takes as long as this number of evaluations of a node, because plugins follow it. Guessed.
const WORK_OF_MOVE: usize = 4;

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
        reached: &mut dyn FnMut(Milestone<'_>),
    ) -> Self {
        let not_physical = cluster.begin_physical((policy.physical_requests)(&cluster));
        cluster.device_totals = (policy.device_totals)(&cluster);
        let left_out =
            cluster.leave_out(|resource| policy.settings().ignored_resources.has(resource));
        let whole = Whole::of(&cluster);
        let active = if memory.recalls && policy.share_scope() == OrderScope::Own {
            memory.reports.unsettled(&cluster, &whole)
        } else {
            cluster.jobs.key.ids().collect()
        };
        let mut invalid = Vec::new();
        // Parity: validity is checked, see docs/parity.md#j6.
        for job in active.iter().copied() {
            if cluster.jobs.problem[job].is_some() {
                continue;
            }
            let problem = problem_of_queue(&cluster, job)
                .or_else(|| policy.about(&cluster).job_valid(job).err());
            if problem.is_some() {
                cluster.jobs.problem[job] = problem;
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
        let gangs = GangTree::of(&cluster);
        invalid.extend(mark_incomplete(&mut cluster, &gangs));
        reached(Milestone::Validated);
        policy.open(&cluster, now, |plugin| reached(Milestone::PluginOpened(plugin)));
        invalid.extend(mark_scattered(&mut cluster, &gangs, &policy));
        let n_jobs = cluster.jobs.key.len();
        let everywhere = policy.settings().enqueues_strictly;
        let headroom = Headroom::of(&cluster, &memory.headroom, now, everywhere);
        let guarantees = Guarantees::of(&cluster, policy.about(&cluster).guaranteed());
        if !guarantees.is_empty() {
            cluster.keep_available();
        }
        let is_ready = |job: JobIdx| policy.about(&cluster).job_ready(job);
        Self {
            complete_groups: CompleteGroups::new(&gangs, is_ready),
            gangs,
            now,
            headroom,
            guarantees,
            job_counts: JobCounts::of(&cluster),
            strict_order: StrictOrder::default(),
            candidates: Candidates::new(search, &cluster),
            confinement: Confinement::default(),
            cluster,
            policy,
            log: MoveLog::default(),
            decisions: Vec::new(),
            decided_jobs: Vec::new(),
            kept: BTreeMap::new(),
            bound: Vec::new(),
            evicted: Vec::new(),
            preemptors: BTreeSet::new(),
            evicted_gangs: BTreeMap::new(),
            active: ActiveJobs::new(active, n_jobs),
            whole,
            records: JobRecords::new(n_jobs),
            actions: Vec::new(),
            n_started: 0,
            turn_log: TurnLog::new(memory, n_jobs),
            before: Before { left_out, not_physical, invalid, ..before },
            work_before: 0,
            holds: Holds::new(),
            reservations: Reservations::default(),
            others: BTreeMap::new(),
            leaving: BTreeMap::new(),
            similar_queues: BTreeMap::new(),
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
        cluster.nodes.forget_columns();
        cluster.nodes.forget_available();
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

    /// Whether tasks of each job were moved, also if that was taken back.
    pub(crate) fn are_moved(&self) -> Column<JobIdx, bool> {
        let mut are_moved = Column::filled(false, self.cluster.jobs.key.len());
        for (task, _) in &self.before.moved {
            if let Some(job) = self.cluster.tasks.job[*task] {
                are_moved[job] = true;
            }
        }
        are_moved
    }

    pub(crate) fn order_scope(&self) -> OrderScope {
        self.policy.order_scope()
    }

    /// The waiting tasks of a job, in task order; ties go by creation time, then name.
    pub fn waiting_tasks(&self, job: JobIdx) -> Vec<TaskIdx> {
        let all = self.cluster.jobs.tasks[job].iter();
        let mut waiting: Vec<TaskIdx> = all.filter(|task| self.cluster.is_waiting(*task)).collect();
        waiting.sort_by(|l, r| self.plugins().task_order(*l, *r));
        let mut waiting = self.cluster.short_roles_first(job, waiting);
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

    /// Prescribes which alternative placements try first where there is a choice: see [`Prescription::Alternative`].
    pub fn try_first(&mut self, alternative: Option<usize>) {
        self.policy.prescribe(Prescription::Alternative(alternative));
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

    /// Whether an action that runs later in the cycle places tasks that request nothing.
    pub fn places_best_effort_later(&self) -> bool {
        self.actions[self.n_started..].iter().any(|action| action.places_best_effort)
    }

    /// Whether an action of the cycle may evict tasks.
    pub(crate) fn evicts(&self) -> bool {
        self.actions.iter().any(|action| action.evicts)
    }

    /// Whether an action of the cycle evicts tasks of one queue for waiting tasks of another.
    pub fn reclaims(&self) -> bool {
        self.actions.iter().any(|action| action.reclaims)
    }

    /// Whether tasks may be evicted for others of the same queue, or other queues may reclaim from this one.
    pub(crate) fn takes_from(&self, queue: QueueIdx) -> bool {
        let preempts = self.actions.iter().any(|action| action.evicts && !action.reclaims);
        preempts || self.reclaims() && self.whole.is_reclaimable(queue)
    }

    /// Whether tasks were evicted for the job in this cycle.
    pub fn is_preemptor(&self, job: JobIdx) -> bool {
        self.preemptors.contains(&job)
    }

    /// Whether some plugin has postponed some of its work to the next cycle.
    pub(crate) fn has_postponed(&self) -> bool {
        self.policy.has_postponed()
    }

    /// Decides something about a task.
    pub(crate) fn decide(&mut self, task: TaskIdx, decision: Decision) {
        self.decisions.push(decision);
        self.decided_jobs.push(self.cluster.tasks.job[task]);
    }

    /// Moves a task, logs the move and informs the plugins. Returns its previous placement.
    pub(crate) fn place(&mut self, task: TaskIdx, to: Placement) -> Placement {
        self.candidates.count_work(WORK_OF_MOVE);
        self.activate(task);
        let from = self.cluster.set_placement(task, to);
        if let Some(job) = self.cluster.tasks.job[task] {
            self.headroom.follow(&self.cluster, job);
        }
        self.job_counts.follow(&self.cluster, task, from.status, to.status);
        if let Some(queue) = self.cluster.queue_of(task) {
            let request = self.cluster.request(task);
            self.guarantees.follow(&self.cluster, queue, request);
        }
        if !std::mem::replace(&mut self.before.is_moved[task], true) {
            self.before.moved.push((task, from));
        }
        for node in [from.node, to.node.filter(|_| from.node != to.node)].into_iter().flatten() {
            self.log.nodes.push(node);
        }
        self.log.jobs.extend(self.cluster.tasks.job[task]);
        self.policy.placed(&self.cluster, &PlacementChange { task, from, to });
        if !self.gangs.is_empty()
            && let Some(job) = self.cluster.tasks.job[task]
        {
            self.count_group(job);
        }
        from
    }
}
