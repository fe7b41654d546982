//! The snapshot a cycle works on, as columns, and the only function that changes placements.
//!
//! A [`Cluster`] is built by `kube-batch-cache` and belongs to one cycle, which gives it back as it was, so
//! that the next one is made from it. Facts are shared and never change; ledgers and counts are derived from
//! the placements of tasks, and only [`Cluster::set_placement`] changes them while a cycle runs.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    column::{
        ClassIdx, Column, ConstraintClassIdx, Dim, JobIdx, MatcherIdx, NodeIdx, Ordinal, QueueIdx,
        TaskIdx,
    },
    decision::PodRef,
    devices::{DeviceDemand, DeviceObjects},
    facts::{
        class::{PodMatcher, PodTemplate},
        composite::CompositeFacts,
        device::DeviceId,
        group::GroupFacts,
        metadata::Metadata,
        node::NodeFacts,
        pod::TaskFacts,
        policy::BudgetFacts,
        queue::QueueFacts,
        request::ScoringAmounts,
        storage::{ClaimFacts, CsiDriverFacts, CsiNodeFacts, StorageClassFacts, VolumeFacts},
        topology::TopologyFacts,
    },
    matcher_set::MatcherSet,
    name::{JobKey, Name, ObjectKey},
    problem::{JobProblem, JobWarning},
    reason::{NodeReason, Unfit},
    resource::{Dimensions, Ledger, Request, ResourceVector, UNLIMITED},
    status::{N_STATUSES, Placement, TaskStatus},
};

/// The snapshot of the cluster that a cycle reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Resource dimensions.
    pub dimensions: Dimensions,
    /// Nodes, in name order.
    pub nodes: Nodes,
    /// Queues, in order of creation, then name.
    pub queues: Queues,
    /// Jobs, in order of creation, then namespace and name.
    pub jobs: Jobs,
    /// Tasks; those of a job are adjacent, those without a job come last.
    pub tasks: Tasks,
    /// Classes of tasks that are equal to every predicate and score.
    pub classes: Classes,
    /// Selectors over pods, each once.
    pub matchers: Matchers,
    /// Volumes and claims.
    pub storage: Arc<Storage>,
    /// Devices, and claims for them.
    pub devices: Arc<DeviceObjects>,
    /// How many devices there are for each resource that classes of devices stand for, beside what nodes
    /// advertise. Known while a session is open, and 0 otherwise.
    pub device_totals: ResourceVector,
    /// Disruption budgets that protect pods, by namespace and name.
    pub budgets: Vec<Arc<BudgetFacts>>,
    /// The tasks on nodes that are being terminated, and for how long.
    // Parity: new, see docs/parity.md#p13.
    pub terminating: BTreeMap<TaskIdx, Terminating>,
}

/// How long a task has been terminating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminating {
    /// What is left of its grace period.
    pub left: Duration,
    /// How long ago its grace period ended.
    pub overdue: Duration,
}

/// Columns by node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nodes {
    /// The fields of each API object that the scheduler uses.
    pub facts: Column<NodeIdx, Arc<NodeFacts>>,
    /// Allocatable resources.
    pub allocatable: Ledger<NodeIdx>,
    /// Resources that no task holds. Negative only if others have over-committed the node.
    pub idle: Ledger<NodeIdx>,
    /// Resources held by tasks that are being terminated.
    pub releasing: Ledger<NodeIdx>,
    /// Resources nominated for pipelined tasks, or reserved while a session is open.
    pub pipelined: Ledger<NodeIdx>,
    /// Resources held or nominated.
    pub used: Ledger<NodeIdx>,
    /// What pods of other schedulers use that are in no job, unless they are being terminated or not admitted yet.
    pub foreign: Ledger<NodeIdx>,
    /// CPU (milli) and memory (bytes) that are used, as scores count them.
    pub scoring: Column<NodeIdx, [i64; 2]>,
    /// Tasks that were on each node when the cycle began, ascending.
    pub tasks: Column<NodeIdx, Vec<TaskIdx>>,
}

impl Nodes {
    fn ledgers(&mut self) -> [&mut Ledger<NodeIdx>; 6] {
        let Self { allocatable, idle, releasing, pipelined, used, foreign, .. } = self;
        [allocatable, idle, releasing, pipelined, used, foreign]
    }

    /// The row of a node: they are in order of name.
    pub fn row(&self, name: &Name) -> Option<NodeIdx> {
        let all = self.facts.values().as_slice();
        let at = all.binary_search_by(|facts| facts.name.cmp(name)).ok()?;
        self.facts.ids().nth(at)
    }

    /// What is idle on a node once the tasks that are being released are gone, less what is nominated there.
    pub fn future_idle(&self, node: NodeIdx, dim: Dim) -> i64 {
        self.idle[node][dim] + self.releasing[node][dim] - self.pipelined[node][dim]
    }

    /// Whether a request fits into what is idle and not nominated.
    // Parity: see docs/parity.md#a3.
    pub fn fits_idle(&self, node: NodeIdx, request: &Request) -> bool {
        let (idle, releasing, pipelined) =
            (&self.idle[node], &self.releasing[node], &self.pipelined[node]);
        request.unknown().is_empty()
            && request.amounts().iter().all(|(dim, amount)| {
                let future_idle = idle[*dim] + releasing[*dim] - pipelined[*dim];
                *amount <= idle[*dim] && *amount <= future_idle
            })
    }

    /// Keeps the nodes where a request fits into what is idle and not nominated.
    pub fn retain_fits_idle(&self, nodes: &mut Vec<NodeIdx>, request: &Request) {
        self.retain(nodes, request, |amount, idle, future_idle| amount <= idle.min(future_idle));
    }

    /// Keeps the nodes where a request fits into what is idle once the tasks that are being released are
    /// gone.
    pub fn retain_fits_future_idle(&self, nodes: &mut Vec<NodeIdx>, request: &Request) {
        self.retain(nodes, request, |amount, _, future_idle| amount <= future_idle);
    }

    /// Keeps the nodes where `fits` says yes of each amount, given what is idle now and in future.
    fn retain(
        &self,
        nodes: &mut Vec<NodeIdx>,
        request: &Request,
        fits: impl Fn(i64, i64, i64) -> bool,
    ) {
        if !request.unknown().is_empty() {
            nodes.clear();
        }
        for (dim, amount) in request.amounts() {
            nodes.retain(|node| {
                let idle = self.idle[*node][*dim];
                let future_idle = idle + self.releasing[*node][*dim] - self.pipelined[*node][*dim];
                fits(*amount, idle, future_idle)
            });
        }
    }

    /// Whether a request fits into what is idle once the tasks that are being released are gone.
    pub fn fits_future_idle(&self, node: NodeIdx, request: &Request) -> bool {
        let (idle, releasing, pipelined) =
            (&self.idle[node], &self.releasing[node], &self.pipelined[node]);
        let fits =
            |(dim, amount): &(Dim, i64)| *amount <= idle[*dim] + releasing[*dim] - pipelined[*dim];
        request.unknown().is_empty() && request.amounts().iter().all(fits)
    }

    /// The most of each resource that a task can be given: what is idle now, or will be once the tasks
    /// that are being released are gone.
    pub fn most_available(&self, node: NodeIdx) -> ResourceVector {
        let (idle, releasing, pipelined) =
            (&self.idle[node], &self.releasing[node], &self.pipelined[node]);
        let gained = releasing.iter().zip(pipelined).map(|(more, less)| (more - less).max(0));
        idle.iter().zip(gained).map(|(idle, gained)| idle + gained).collect()
    }

    /// How often a request fits into what is idle and not nominated.
    pub fn times_idle(&self, node: NodeIdx, request: &Request) -> u64 {
        self.times(node, request, Ord::min)
    }

    /// How often a request fits into what is idle once the tasks that are being released are gone.
    pub fn times_future_idle(&self, node: NodeIdx, request: &Request) -> u64 {
        self.times(node, request, |_, future_idle| future_idle)
    }

    /// How often a request fits into amounts, each given by what is idle now and in future.
    fn times(&self, node: NodeIdx, request: &Request, available: impl Fn(i64, i64) -> i64) -> u64 {
        if !request.unknown().is_empty() {
            return 0;
        }
        let (idle, releasing, pipelined) =
            (&self.idle[node], &self.releasing[node], &self.pipelined[node]);
        let times = request.amounts().iter().map(|(dim, amount)| {
            let available = available(idle[*dim], idle[*dim] + releasing[*dim] - pipelined[*dim]);
            match *amount {
                amount if amount > available => 0,
                amount if amount > 0 => (available / amount).unsigned_abs(),
                _ => u64::MAX,
            }
        });
        times.min().unwrap_or(u64::MAX)
    }

    /// The dimensions in which a request does not fit into what is idle and not nominated.
    pub fn lacking(&self, node: NodeIdx, request: &Request) -> impl Iterator<Item = Dim> {
        let (idle, releasing, pipelined) =
            (&self.idle[node], &self.releasing[node], &self.pipelined[node]);
        request.amounts().iter().filter_map(move |(dim, amount)| {
            let future_idle = idle[*dim] + releasing[*dim] - pipelined[*dim];
            let available = idle[*dim].min(future_idle);
            (*amount > available).then_some(*dim)
        })
    }
}

/// What was counted before some resources were left out.
#[derive(Debug, Default)]
pub struct LeftOut {
    ledgers: Vec<Ledger<NodeIdx>>,
    /// `None` if nothing was left out.
    jobs: Option<[Ledger<JobIdx>; 2]>,
    queues: [Ledger<QueueIdx>; 3],
    requests: Column<ClassIdx, Request>,
    capability: Column<QueueIdx, Vec<(Dim, i64)>>,
}

/// Columns by queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queues {
    /// The fields of each API object that the scheduler uses.
    pub facts: Column<QueueIdx, Arc<QueueFacts>>,
    /// Hard limits, by dimension.
    pub capability: Column<QueueIdx, Vec<(Dim, i64)>>,
    /// Jobs of each, ascending.
    pub jobs: Column<QueueIdx, Vec<JobIdx>>,
    /// What the tasks that count for each hold, as shares count it.
    pub held: Ledger<QueueIdx>,
    /// What the tasks that count for each and are being terminated still use.
    pub leaving: Ledger<QueueIdx>,
    /// What other tasks that count for each use: those that do not end, those that their node does not report, and those
    /// whose node is gone.
    pub stuck: Ledger<QueueIdx>,
}

impl Queues {
    /// What the tasks that count for a queue use on nodes, those that are being terminated included, or are nominated
    /// for.
    pub fn used(&self, queue: QueueIdx, dim: Dim) -> i64 {
        self.held[queue][dim] + self.leaving[queue][dim] + self.stuck[queue][dim]
    }
}

/// Columns by job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Jobs {
    /// Its key.
    pub key: Column<JobIdx, JobKey>,
    /// Its PodGroup, if it has one.
    pub group: Column<JobIdx, Option<Arc<GroupFacts>>>,
    /// Its creation time.
    pub created: Column<JobIdx, Timestamp>,
    /// Its queue; `None` if that does not exist.
    pub queue: Column<JobIdx, Option<QueueIdx>>,
    /// Number of tasks that must be placed before any of them starts.
    pub min_available: Column<JobIdx, u32>,
    /// Its priority among the jobs of its queue: higher first.
    pub priority: Column<JobIdx, i32>,
    /// Whether that is the highest priority of its pods, because nothing names another one.
    // Parity: see docs/parity.md#j4.
    pub priority_of_pods: Column<JobIdx, bool>,
    /// Whether its tasks are victims only together.
    // Parity: see docs/parity.md#k1.
    pub leaves_whole: Column<JobIdx, bool>,
    /// Whether its PodGroup says what its pods request at least.
    // Parity: see docs/parity.md#k2.
    pub has_min_resources: Column<JobIdx, bool>,
    /// The topology it asks for.
    // Parity: see docs/parity.md#t1.
    pub topology: Column<JobIdx, Option<Arc<TopologyFacts>>>,
    /// The composite PodGroups that its PodGroup is a part of, its parent first; `None` if there are none.
    // Parity: see docs/parity.md#k8.
    pub composites: Column<JobIdx, Option<Arc<[Arc<CompositeFacts>]>>>,
    /// Its tasks.
    pub tasks: Column<JobIdx, TaskRange>,
    /// Why it is not scheduled in this cycle, if so.
    pub problem: Column<JobIdx, Option<JobProblem>>,
    /// Mistakes in its objects, in the order of [`JobWarning`].
    pub warnings: Column<JobIdx, Vec<JobWarning>>,
    /// Number of its tasks by status, in the order of [`TaskStatus::ALL`]; gated tasks aside.
    pub counts: Column<JobIdx, StatusCounts>,
    /// Number of the tasks of each role by status, in the order of the roles of its PodGroup.
    pub role_counts: Column<JobIdx, Vec<StatusCounts>>,
    /// What its tasks hold.
    pub held: Ledger<JobIdx>,
    /// What its waiting tasks request; those of other schedulers and gated ones aside.
    pub waiting: Ledger<JobIdx>,
    /// For how long it has been incomplete: some of its tasks run, and fewer than its minimum do.
    /// `None` if it is not.
    // Parity: new, see docs/parity.md#g1.
    pub incomplete_for: Column<JobIdx, Option<Duration>>,
    /// Whether it is incomplete, and its minimum is at most the number of its tasks that started together, which was its
    /// minimum when they were bound: it has lost some of them.
    // Parity: see docs/parity.md#g1.
    pub is_torn: Column<JobIdx, bool>,
}

/// Tasks with adjacent rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRange {
    start: u32,
    end: u32,
}

impl TaskRange {
    /// The rows from `start` up to `end`.
    ///
    /// # Panics
    ///
    /// If there are 2^32 rows or more.
    pub fn new(range: Range<usize>) -> Self {
        let row = |at| u32::try_from(at).expect("a table has fewer than 2^32 rows");
        Self { start: row(range.start), end: row(range.end) }
    }

    /// The rows, ascending.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = TaskIdx> + ExactSizeIterator {
        (self.start as usize..self.end as usize).map(TaskIdx::new)
    }

    /// Number of rows.
    pub const fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// The number of tasks of a job in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusCounts([u32; N_STATUSES]);

impl StatusCounts {
    /// Number of tasks in a state.
    pub const fn of(&self, status: TaskStatus) -> u32 {
        self.0[status as usize]
    }

    /// Number of tasks in the states that `include` picks.
    pub fn sum(&self, include: impl Fn(TaskStatus) -> bool) -> u32 {
        TaskStatus::ALL.into_iter().filter(|s| include(*s)).map(|s| self.of(s)).sum()
    }

    /// Tasks that count toward the minimum.
    pub fn ready(&self) -> u32 {
        self.sum(TaskStatus::is_ready)
    }

    /// Tasks that could count toward the minimum.
    pub fn valid(&self) -> u32 {
        self.sum(TaskStatus::is_valid)
    }

    /// Tasks that are nominated for a node.
    pub fn pipelined(&self) -> u32 {
        self.of(TaskStatus::Pipelined)
    }
}

/// The queue for which a task counts.
// Parity: see docs/parity.md#d6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountsFor {
    /// That of its job: it waits, or the queue from which it was bound is not known.
    #[default]
    QueueOfJob,
    /// The queue from which it was bound.
    Queue(QueueIdx),
    /// None: the queue from which it was bound does not exist.
    NoQueue,
}

/// Columns by task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tasks {
    /// The fields of each API object that the scheduler uses.
    pub facts: Column<TaskIdx, Arc<TaskFacts>>,
    /// Its job; `None` for pods that only occupy their node.
    pub job: Column<TaskIdx, Option<JobIdx>>,
    /// The queue for which it counts.
    pub counts_for: Column<TaskIdx, CountsFor>,
    /// Its class.
    pub class: Column<TaskIdx, ClassIdx>,
    /// Its priority among the tasks of its job: higher first.
    pub priority: Column<TaskIdx, i32>,
    /// Its role, by position among the roles of its PodGroup.
    pub role: Column<TaskIdx, Option<u16>>,
    /// When it started, if its pod runs and says so; otherwise when it was bound, or else created.
    pub start: Column<TaskIdx, Timestamp>,
    /// Whether it is scheduled by kube-batch: only such tasks are placed or evicted.
    pub ours: Column<TaskIdx, bool>,
    /// Whether it waits for its scheduling gates.
    pub gated: Column<TaskIdx, bool>,
    /// Its status and node.
    pub placement: Column<TaskIdx, Placement>,
    /// The node for which it was nominated in an earlier cycle, if it waits and the node exists.
    pub nominated: Column<TaskIdx, Option<NodeIdx>>,
    /// The devices that were chosen for it then; `None` for none.
    pub nominated_devices: Column<TaskIdx, Option<Arc<[DeviceId]>>>,
}

/// Columns by class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Classes {
    /// What predicates and scores read.
    pub template: Column<ClassIdx, Arc<PodTemplate>>,
    /// The labels and annotations of the PodGroup of its tasks that plugins read.
    pub group_metadata: Column<ClassIdx, Arc<Metadata>>,
    /// What each of its tasks needs of devices.
    pub devices: Column<ClassIdx, Arc<DeviceDemand>>,
    /// What each of its tasks requests.
    pub request: Column<ClassIdx, Request>,
    /// The selectors that match its tasks.
    pub matched_by: Column<ClassIdx, Arc<MatcherSet>>,
    /// The constraint class of each. Classes of one constraint class differ only in what they
    /// request: the same nodes are eligible for them.
    pub constraint_class: Column<ClassIdx, ConstraintClassIdx>,
    /// The first class with the same template and the same metadata of its PodGroup. The class differs
    /// from it at most in which selectors match its tasks.
    pub variant_of: Column<ClassIdx, ClassIdx>,
    /// Number of its tasks.
    pub counts: Column<ClassIdx, ClassCounts>,
}

/// The number of tasks of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Tasks that kube-batch is to place.
    pub waiting: u32,
    /// Tasks on nodes, or nominated for one in this cycle.
    pub on_nodes: u32,
    /// Of these, those whose placement the API server has not confirmed yet.
    pub being_placed: u32,
}

/// The selectors over pods that any pod of the snapshot carries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matchers {
    rows: Column<MatcherIdx, Arc<PodMatcher>>,
    /// Only for look-ups: the rows have an order, this has none.
    by_value: HashMap<Arc<PodMatcher>, MatcherIdx>,
}

impl Matchers {
    /// The row of a selector; new selectors get new rows.
    pub fn intern(&mut self, matcher: &PodMatcher) -> MatcherIdx {
        if let Some(row) = self.by_value.get(matcher) {
            return *row;
        }
        let matcher = Arc::new(matcher.clone());
        let row = self.rows.push(Arc::clone(&matcher));
        self.by_value.insert(matcher, row);
        row
    }

    /// The row of a selector that some pod of the snapshot carries.
    pub fn get(&self, matcher: &PodMatcher) -> Option<MatcherIdx> {
        self.by_value.get(matcher).copied()
    }

    /// Rows and selectors.
    pub fn iter(&self) -> impl Iterator<Item = (MatcherIdx, &PodMatcher)> {
        self.rows.iter().map(|(row, matcher)| (row, &**matcher))
    }

    /// Number of selectors.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl std::ops::Index<MatcherIdx> for Matchers {
    type Output = PodMatcher;

    fn index(&self, row: MatcherIdx) -> &PodMatcher {
        &self.rows[row]
    }
}

/// Volumes, claims, storage classes and attach limits, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Storage {
    /// PersistentVolumes.
    pub volumes: BTreeMap<Name, Arc<VolumeFacts>>,
    /// PersistentVolumeClaims.
    pub claims: BTreeMap<ObjectKey, Arc<ClaimFacts>>,
    /// StorageClasses.
    pub classes: BTreeMap<Name, Arc<StorageClassFacts>>,
    /// CSINodes, by node name.
    pub csi_nodes: BTreeMap<Name, Arc<CsiNodeFacts>>,
    /// CSIDrivers.
    pub csi_drivers: BTreeMap<Name, Arc<CsiDriverFacts>>,
}

impl Cluster {
    /// The priority with which a task evicts others: that of its job, but not more than its own where the job only has
    /// the highest of its pods.
    // Parity: see docs/parity.md#p2.
    pub fn priority_as_preemptor(&self, task: TaskIdx) -> i32 {
        let own = self.tasks.priority[task];
        let Some(job) = self.tasks.job[task] else { return own };
        let of_job = self.jobs.priority[job];
        if self.jobs.priority_of_pods[job] { of_job.min(own) } else { of_job }
    }

    /// Whether no task may be evicted for this one.
    pub fn never_preempts(&self, task: TaskIdx) -> bool {
        let of_group = self.tasks.job[task].and_then(|job| {
            let root = self.jobs.composites[job].as_ref().and_then(|above| above.last());
            let of_root = root.map(|root| root.never_preempts);
            of_root.unwrap_or_else(|| self.jobs.group[job].as_ref()?.never_preempts)
        });
        of_group.unwrap_or(self.tasks.facts[task].never_preempts)
    }

    /// Whether all tasks of a job are required to be in one topology domain, by itself or with those of other jobs.
    pub fn requires_domain(&self, job: JobIdx) -> bool {
        let topology = self.jobs.topology[job].as_ref();
        topology.is_some_and(|topology| topology.required.is_some())
            || self.requires_domain_of_composite(job)
    }

    /// Whether a composite PodGroup above a job requires all pods below it to be in one topology domain.
    pub fn requires_domain_of_composite(&self, job: JobIdx) -> bool {
        let mut above = self.jobs.composites[job].iter().flat_map(|above| above.iter());
        above.any(|composite| composite.topology.is_some())
    }

    /// Changes the placement of a task, and the ledgers and counts with it. Returns the previous
    /// placement.
    ///
    /// This is the only writer of placements, node ledgers and job counts.
    pub fn set_placement(&mut self, task: TaskIdx, to: Placement) -> Placement {
        let from = std::mem::replace(&mut self.tasks.placement[task], to);
        self.charge(task, from, -1);
        self.charge(task, to, 1);
        from
    }

    /// Adds a task to the ledgers and counts. Called once for each task when the snapshot is built.
    pub fn book(&mut self, task: TaskIdx) {
        self.charge(task, self.tasks.placement[task], 1);
    }

    /// Removes a task from the ledgers and counts, before its row is written again or removed.
    pub fn unbook(&mut self, task: TaskIdx) {
        self.charge(task, self.tasks.placement[task], -1);
    }

    fn charge(&mut self, task: TaskIdx, at: Placement, sign: i64) {
        let by = i32::try_from(sign).expect("a sign is -1 or 1");
        let class = self.tasks.class[task];
        let request = &self.classes.request[class];
        let is_waiting = self.waits_as(task, at.status);
        if let Some(job) = self.tasks.job[task] {
            if !self.tasks.gated[task] {
                let count = &mut self.jobs.counts[job].0[at.status as usize];
                *count = count.wrapping_add_signed(by);
                if let Some(role) = self.tasks.role[task] {
                    let counts = &mut self.jobs.role_counts[job][usize::from(role)];
                    let count = &mut counts.0[at.status as usize];
                    *count = count.wrapping_add_signed(by);
                }
            }
            if at.status.is_held() && at.node.is_some() {
                request.charge(&mut self.jobs.held[job], sign);
            } else if is_waiting {
                request.charge(&mut self.jobs.waiting[job], sign);
            }
        }
        let charge = at.status.charge();
        if (at.status.is_held() || charge.used != 0)
            && let Some(queue) = self.queue_of(task)
        {
            let Queues { held, leaving, stuck, .. } = &mut self.queues;
            // On a node that is gone it holds nothing that queues could share.
            let ledger = if at.status.is_held() && at.node.is_some() {
                held
            } else if at.status == TaskStatus::Releasing {
                leaving
            } else {
                stuck
            };
            self.classes.request[class].charge(&mut ledger[queue], sign);
        }
        let request = &self.classes.request[class];
        let counts = &mut self.classes.counts[class];
        for (count, is_counted) in [
            (&mut counts.waiting, is_waiting),
            (&mut counts.on_nodes, charge.used != 0),
            (&mut counts.being_placed, at.status.is_being_placed()),
        ] {
            *count = count.wrapping_add_signed(if is_counted { by } else { 0 });
        }
        let Some(node) = at.node else { return };
        let is_foreign = self.tasks.job[task].is_none() && !self.tasks.facts[task].not_admitted;
        for (ledger, times) in [
            (&mut self.nodes.idle, charge.idle),
            (&mut self.nodes.releasing, charge.releasing),
            (&mut self.nodes.pipelined, charge.pipelined),
            (&mut self.nodes.used, charge.used),
            (&mut self.nodes.foreign, if is_foreign { charge.used - charge.releasing } else { 0 }),
        ] {
            if times != 0 {
                request.charge(&mut ledger[node], sign * times);
            }
        }
        let ScoringAmounts { cpu_milli, memory_bytes } = self.classes.template[class].scoring;
        let scoring = self.nodes.scoring[node].iter_mut().zip([cpu_milli, memory_bytes]);
        for (sum, amount) in scoring {
            // Sums wrap, as those of the ledgers do: a wrapped sum is still rolled back exactly.
            *sum = sum.wrapping_add(amount.wrapping_mul(sign * charge.used));
        }
    }

    /// Calls a function while the tasks that are being terminated on these nodes count for nothing in scores. What is
    /// idle stays as it is.
    pub fn with_released<T>(&mut self, nodes: &[NodeIdx], call: impl FnOnce(&Self) -> T) -> T {
        let mut before = Vec::new();
        // Every task takes a pod slot.
        let leave_some = |node: &NodeIdx| self.nodes.releasing[*node][Dim::PODS] != 0;
        let nodes: Vec<NodeIdx> = nodes.iter().copied().filter(leave_some).collect();
        for node in nodes {
            let leaving = self.nodes.tasks[node].iter().copied();
            let leaving: Vec<TaskIdx> =
                leaving.filter(|task| self.status(*task) == TaskStatus::Releasing).collect();
            before.push((node, self.nodes.used[node].to_vec(), self.nodes.scoring[node]));
            for task in leaving {
                let class = self.tasks.class[task];
                self.classes.request[class].charge(&mut self.nodes.used[node], -1);
                let ScoringAmounts { cpu_milli, memory_bytes } =
                    self.classes.template[class].scoring;
                let scoring = self.nodes.scoring[node].iter_mut().zip([cpu_milli, memory_bytes]);
                scoring.for_each(|(sum, amount)| *sum = sum.wrapping_sub(amount));
            }
        }
        let answer = call(self);
        for (node, used, scoring) in before {
            self.nodes.used[node].copy_from_slice(&used);
            self.nodes.scoring[node] = scoring;
        }
        answer
    }

    /// Whether a task would wait to be placed by kube-batch with this status.
    fn waits_as(&self, task: TaskIdx, status: TaskStatus) -> bool {
        status == TaskStatus::Pending && self.tasks.ours[task] && !self.tasks.gated[task]
    }

    /// What a task requests.
    pub fn request(&self, task: TaskIdx) -> &Request {
        &self.classes.request[self.tasks.class[task]]
    }

    /// The queue for which a task counts: that from which it was bound, or else that of its job. `None` if that does
    /// not exist.
    pub fn queue_of(&self, task: TaskIdx) -> Option<QueueIdx> {
        match self.tasks.counts_for[task] {
            CountsFor::QueueOfJob => self.jobs.queue[self.tasks.job[task]?],
            CountsFor::Queue(queue) => Some(queue),
            CountsFor::NoQueue => None,
        }
    }

    /// The queue for which most of these tasks count; of several, the first. `None` if most count for none.
    pub fn queue_of_most(&self, tasks: &[TaskIdx]) -> Option<QueueIdx> {
        let first = self.queue_of(*tasks.first()?);
        if tasks.iter().all(|task| self.queue_of(*task) == first) {
            return first;
        }
        let mut counts: BTreeMap<Option<QueueIdx>, usize> = BTreeMap::new();
        for task in tasks {
            *counts.entry(self.queue_of(*task)).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(queue, n)| (*n, std::cmp::Reverse(*queue)));
        most.and_then(|(queue, _)| queue)
    }

    /// The status of a task.
    pub fn status(&self, task: TaskIdx) -> TaskStatus {
        self.tasks.placement[task].status
    }

    /// Whether a task waits to be placed by kube-batch.
    pub fn is_waiting(&self, task: TaskIdx) -> bool {
        self.waits_as(task, self.status(task))
    }

    /// The tasks that wait to be placed by kube-batch, ascending.
    pub fn waiting_tasks(&self) -> impl Iterator<Item = TaskIdx> {
        let jobs = self.jobs.counts.iter().filter(|(_, counts)| counts.of(TaskStatus::Pending) > 0);
        let tasks = jobs.flat_map(|(job, _)| self.jobs.tasks[job].iter());
        tasks.filter(|task| self.is_waiting(*task))
    }

    /// The tasks with one of the states that `include` picks, ascending.
    pub fn tasks_in(&self, include: impl Fn(TaskStatus) -> bool) -> impl Iterator<Item = TaskIdx> {
        let n_of_jobs: usize = self.jobs.tasks.values().map(|tasks| tasks.len()).sum();
        let jobless = (n_of_jobs..self.tasks.facts.len()).map(TaskIdx::new);
        let has_some = |job: JobIdx| {
            let others = self.jobs.counts[job].sum(|status| !include(status));
            self.jobs.tasks[job].len() > others as usize
        };
        let jobs: Vec<JobIdx> = self.jobs.key.ids().filter(|job| has_some(*job)).collect();
        let of_jobs = jobs.into_iter().flat_map(|job| self.jobs.tasks[job].iter());
        of_jobs.chain(jobless).filter(move |task| include(self.status(*task)))
    }

    /// Whether a job is scheduled in this cycle.
    pub fn is_schedulable(&self, job: JobIdx) -> bool {
        self.jobs.problem[job].is_none()
    }

    /// The pod of a task, as decisions name it.
    pub fn pod(&self, task: TaskIdx) -> PodRef {
        let facts = &self.tasks.facts[task];
        PodRef { uid: facts.uid.clone(), key: facts.key.clone() }
    }

    /// The name of a node.
    pub fn node_name(&self, node: NodeIdx) -> &Name {
        &self.nodes.facts[node].name
    }

    /// The name of the node of a task, also if that node does not exist any more; `None` if it has none.
    pub fn node_of(&self, task: TaskIdx) -> Option<&Name> {
        let placed = self.tasks.placement[task].node.map(|node| self.node_name(node));
        placed.or(self.tasks.facts[task].node.as_ref())
    }

    /// A reason why a class does not fit, with its names.
    pub fn named_reason(&self, class: ClassIdx, reason: Unfit) -> NodeReason {
        let unknown = self.classes.request[class].unknown();
        let unknown = |at| unknown.get(at as usize).cloned();
        let driver = |at| self.storage.csi_drivers.keys().nth(at as usize).cloned();
        reason.named(
            |dim| self.dimensions.name(dim).clone(),
            |at| unknown(at).unwrap_or_else(|| Name::from("resources")),
            |at| driver(at).unwrap_or_else(|| Name::from("a")),
        )
    }

    /// Stops counting the resources that `ignores` picks: no node has them, no task requests them, and
    /// no queue is limited in them. To be called before any task is moved. Returns what is to be put back when
    /// none is any more.
    pub fn leave_out(&mut self, ignores: impl Fn(&str) -> bool) -> LeftOut {
        let dims = self.dimensions.ids();
        let dims: Vec<Dim> = dims.filter(|dim| ignores(self.dimensions.name(*dim))).collect();
        let mut unknown = self.classes.request.values().flat_map(Request::unknown);
        if dims.is_empty() && !unknown.any(|resource| ignores(resource)) {
            return LeftOut::default();
        }
        let mut left_out = LeftOut { requests: self.classes.request.clone(), ..LeftOut::default() };
        left_out.capability = self.queues.capability.clone();
        for ledger in self.nodes.ledgers() {
            left_out.ledgers.push(ledger.clone());
            for node in ledger.ids().collect::<Vec<_>>() {
                dims.iter().for_each(|dim| ledger[node][*dim] = 0);
            }
        }
        dims.iter().for_each(|dim| self.device_totals[*dim] = 0);
        left_out.jobs = Some([self.jobs.held.clone(), self.jobs.waiting.clone()]);
        for ledger in [&mut self.jobs.held, &mut self.jobs.waiting] {
            for job in ledger.ids().collect::<Vec<_>>() {
                dims.iter().for_each(|dim| ledger[job][*dim] = 0);
            }
        }
        let Queues { held, leaving, stuck, .. } = &mut self.queues;
        left_out.queues = [held.clone(), leaving.clone(), stuck.clone()];
        for ledger in [held, leaving, stuck] {
            for queue in ledger.ids().collect::<Vec<_>>() {
                dims.iter().for_each(|dim| ledger[queue][*dim] = 0);
            }
        }
        for request in self.classes.request.values_mut() {
            *request = request.without(&dims, &ignores);
        }
        for limits in self.queues.capability.values_mut() {
            limits.retain(|(dim, _)| !dims.contains(dim));
        }
        left_out
    }

    /// Counts resources again that were left out.
    pub fn put_back(&mut self, left_out: LeftOut) {
        let LeftOut { ledgers, jobs, queues, requests, capability } = left_out;
        let Some([held, waiting]) = jobs else { return };
        (self.jobs.held, self.jobs.waiting) = (held, waiting);
        [self.queues.held, self.queues.leaving, self.queues.stuck] = queues;
        for (ledger, before) in self.nodes.ledgers().into_iter().zip(ledgers) {
            *ledger = before;
        }
        self.classes.request = requests;
        self.queues.capability = capability;
    }

    /// What nodes advertise, and the devices that are published.
    pub fn total(&self) -> ResourceVector {
        let mut total = self.nodes.allocatable.total();
        total.add(&self.device_totals, 1);
        total
    }

    /// What kube-batch can give to jobs: on each node what pods without a job leave, and of the devices those that such
    /// pods do not have.
    // Parity: see docs/parity.md#d2.
    pub fn total_for_jobs(&self) -> ResourceVector {
        self.sum_for_jobs(|_, left| left)
    }

    /// The sum over all nodes of what `of_node` makes of what pods without a job leave there; and the devices.
    pub fn sum_for_jobs(
        &self,
        of_node: impl Fn(NodeIdx, ResourceVector) -> ResourceVector,
    ) -> ResourceVector {
        let mut total = self.device_totals.clone();
        for node in self.nodes.facts.ids() {
            let mut left = ResourceVector::zero(self.dimensions.len());
            for dim in self.dimensions.ids() {
                let (allocatable, foreign) =
                    (self.nodes.allocatable[node][dim], self.nodes.foreign[node][dim]);
                if self.counts(node, dim) {
                    left[dim] = (allocatable - foreign).max(0);
                } else {
                    total[dim] = (total[dim] - foreign).max(0);
                }
            }
            total.add(&of_node(node, left), 1);
        }
        total
    }

    /// What is idle, or will be once the tasks that are being released are gone, summed over all nodes. What a
    /// node is over-committed by counts against the others.
    pub fn total_unused(&self) -> ResourceVector {
        let nodes = &self.nodes;
        let mut total = nodes.idle.total();
        total.add(&nodes.releasing.total(), 1);
        for dim in self.dimensions.of_devices() {
            let n_uncounted = nodes.facts.ids().filter(|node| !self.counts(*node, dim)).count();
            let uncounted = UNLIMITED.wrapping_mul(n_uncounted as i64);
            total[dim] = total[dim].wrapping_sub(uncounted);
            total[dim] += self.device_totals[dim];
        }
        total
    }

    /// What is idle on each node without any pod.
    pub fn idle_if_empty(&self) -> Ledger<NodeIdx> {
        let mut idle = self.nodes.allocatable.clone();
        if self.dimensions.of_devices().next().is_some() {
            for node in self.nodes.facts.ids() {
                idle[node].copy_from_slice(&self.dimensions.idle(&self.nodes.allocatable[node]));
            }
        }
        idle
    }

    /// Whether a node counts a resource: otherwise devices decide.
    fn counts(&self, node: NodeIdx, dim: Dim) -> bool {
        self.dimensions.is_counted(dim, self.nodes.allocatable[node][dim])
    }

    /// What is idle and not nominated, summed over the nodes that take new tasks.
    ///
    /// An over-committed node counts as 0, not as a negative amount.
    pub fn total_idle(&self) -> ResourceVector {
        self.sum_over_nodes(Ord::min)
    }

    /// What is idle once the tasks that are being released are gone, and not nominated, summed over
    /// the nodes that take new tasks.
    pub fn total_future_idle(&self) -> ResourceVector {
        self.sum_over_nodes(|_, future_idle| future_idle)
    }

    /// The sum of `of_node(idle, future idle)`, at least 0 for each node, over the nodes that take new
    /// tasks.
    fn sum_over_nodes(&self, of_node: impl Fn(i64, i64) -> i64) -> ResourceVector {
        let mut total = self.device_totals.clone();
        let nodes = &self.nodes;
        for (node, facts) in nodes.facts.iter() {
            for dim in self.dimensions.ids() {
                let idle = nodes.idle[node][dim];
                let future_idle = nodes.future_idle(node, dim);
                if !self.counts(node, dim) {
                    total[dim] += of_node(idle, future_idle) - UNLIMITED;
                } else if facts.is_usable() {
                    total[dim] += of_node(idle, future_idle).max(0);
                }
            }
        }
        for dim in self.dimensions.of_devices() {
            total[dim] = total[dim].max(0);
        }
        total
    }
}
