//! The tables of a snapshot, as columns.

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{kept_available::KeptAvailable, node_columns::KeptColumns};
use crate::{
    column::{
        ClassIdx, Column, ConstraintClassIdx, Dim, JobIdx, NodeIdx, Ordinal, QueueIdx, TaskIdx,
    },
    devices::DeviceDemand,
    facts::{
        batch_job::BatchJobFacts,
        class::PodTemplate,
        composite::CompositeFacts,
        device::DeviceId,
        group::GroupFacts,
        metadata::Metadata,
        node::NodeFacts,
        pod::TaskFacts,
        storage::{ClaimFacts, CsiDriverFacts, CsiNodeFacts, StorageClassFacts, VolumeFacts},
        topology::TopologyFacts,
    },
    matcher_set::MatcherSet,
    name::{JobKey, Name, ObjectKey},
    problem::{JobProblem, JobWarning},
    resource::{Ledger, Request},
    status::{N_STATUSES, Placement, TaskStatus},
};

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
    /// The same amounts by resource, if they are kept so.
    pub columns: KeptColumns,
    /// What all of them have available, if it is kept.
    pub kept: KeptAvailable,
}

impl Nodes {
    /// The row of a node: they are in order of name.
    pub fn row(&self, name: &Name) -> Option<NodeIdx> {
        let all = self.facts.values().as_slice();
        let at = all.binary_search_by(|facts| facts.name.cmp(name)).ok()?;
        self.facts.ids().nth(at)
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
    /// The Jobs of `batch` that control its tasks, or whose pods name its PodGroup, by name.
    // Parity: see docs/parity.md#p16.
    pub batch: Column<JobIdx, Vec<Arc<BatchJobFacts>>>,
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
    /// Its row in the last snapshot.
    pub former: Column<JobIdx, FormerRow>,
}

/// The row that a job had in the last snapshot, if nothing about the job has changed since.
///
/// That is how a snapshot was made, and not what it shows: all are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct FormerRow(pub Option<JobIdx>);

impl PartialEq for FormerRow {
    fn eq(&self, _: &Self) -> bool {
        true
    }
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
pub struct StatusCounts(pub(super) [u32; N_STATUSES]);

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

/// What was counted before some resources were left out.
#[derive(Debug, Default)]
pub struct LeftOut {
    pub(super) ledgers: Vec<Ledger<NodeIdx>>,
    /// `None` if nothing was left out.
    pub(super) jobs: Option<[Ledger<JobIdx>; 2]>,
    pub(super) queues: [Ledger<QueueIdx>; 3],
    pub(super) requests: Column<ClassIdx, Request>,
    /// The capability, what is deserved by number, and the guarantee.
    pub(super) amounts: [Column<QueueIdx, Vec<(Dim, i64)>>; 3],
}
