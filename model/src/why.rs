//! Why jobs and pods wait, and why gangs were evicted: values, down to the end. They hold names and amounts, and no
//! rows of a snapshot, so they can be kept, compared, and written down. What people read of them is worded in
//! `words.rs`.
//!
//! Amounts are in the smallest unit of their resource, see [`Unit`](crate::resource::Unit).

use std::{fmt, ops::Deref, sync::Arc, sync::OnceLock};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    decision::{EvictionCause, JobInQueue},
    facts::batch_job::BatchJobState,
    name::{Name, ObjectKey},
    others::Others,
    problem::{JobProblem, JobWarning},
    reason::{Cause, FitReport, Reason},
    text::short_reason,
};

/// A value with its words, which are made when they are first asked for, and kept: most reports are those of the last
/// cycle.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Worded<T> {
    value: T,
    #[serde(skip)]
    words: OnceLock<String>,
}

impl<T> Worded<T> {
    /// A value whose words are not made yet.
    pub const fn new(value: T) -> Self {
        Self { value, words: OnceLock::new() }
    }
}

impl<T: fmt::Display> Worded<T> {
    /// What people read: at most [`MAX_REASON`](crate::text::MAX_REASON) bytes.
    pub fn words(&self) -> &str {
        self.words.get_or_init(|| short_reason(self.value.to_string()))
    }
}

impl<T> Deref for Worded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Worded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Worded<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// Why a job, or its pods, wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// It is not scheduled at all.
    Invalid(Box<Invalid>),
    /// Its pods may not be created yet.
    NotAdmitted(NotAdmitted),
    /// It had no turn.
    NotTried(NotTried),
    /// There is no place for it.
    NoPlace(Box<NoPlace>),
}

/// Why a job is not scheduled at all, and what helps to find the mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Invalid {
    /// What is wrong.
    pub problem: JobProblem,
    /// If pods are missing, what may be why.
    pub missing: Option<MissingPods>,
    /// If its queue does not exist, one of a similar name that would serve it.
    pub similar: Option<Name>,
}

/// What may be why pods are missing to the minimum of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MissingPods {
    /// Number of its pods that have scheduling gates.
    pub n_gated: u32,
    /// Number of its pods that have failed.
    pub n_failed: u32,
    /// Mistakes.
    pub mistakes: Vec<JobWarning>,
    /// The first of its Jobs of `batch` that create no pods now.
    pub idle_jobs: Vec<IdleJob>,
    /// How many more there are.
    pub n_more_idle: usize,
    /// Why its pods were evicted together, if they were and have not run since.
    pub evicted: Option<LastEviction>,
}

/// A Job of `batch` that creates no pods now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdleJob {
    /// Its name.
    pub name: Name,
    /// Why. An active one waits after a failure.
    pub state: BatchJobState,
}

/// Why the pods of a gang were evicted together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastEviction {
    /// Why.
    pub cause: EvictionCause,
    /// When, if that is known.
    pub at: Option<Timestamp>,
}

/// Why the pods of a PodGroup may not be created: its `minResources` are too large.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotAdmitted {
    /// The resource.
    pub resource: Name,
    /// What the PodGroup requests of it at least.
    pub requested: i64,
    /// What it is compared with.
    pub limit: AdmissionLimit,
}

/// With what the `minResources` of a PodGroup are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum AdmissionLimit {
    /// What its queue may use at most.
    Capability {
        /// The queue.
        queue: Name,
        /// Its limit.
        limit: i64,
        /// What is in use of it; `None` if the PodGroup alone requests more.
        in_use: Option<LimitUse>,
    },
    /// What all nodes have.
    Cluster {
        /// How much that is.
        total: i64,
    },
    /// What is idle or being released.
    Idle {
        /// How much that is.
        idle: i64,
        /// What is kept of it for other PodGroups.
        kept: i64,
    },
}

/// What is in use of the limit of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitUse {
    /// What the queue uses.
    pub used: i64,
    /// What is kept for the `minResources` of other PodGroups, besides.
    pub kept: i64,
}

/// Why a job had no turn in a cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum NotTried {
    /// Other jobs of its queue are tried first.
    OthersFirst,
    /// Its pods have very many different templates, so it is not tried in every cycle.
    ManyTemplates,
    /// Either of these, and the status of its PodGroup has the result of an earlier try.
    AsBefore {
        /// The reason in the status.
        reason: Reason,
        /// The message in the status.
        message: Name,
    },
}

/// Why there is no place for a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NoPlace {
    /// How much of the job lacks a place.
    pub lacking: Lacking,
    /// What one of its pods is short of.
    pub obstacle: Arc<Obstacle>,
    /// A gang that could make room, and stays.
    pub protected: Option<Box<ProtectedGang>>,
    /// What is kept for the job.
    pub reservation: Option<Box<OwnReservation>>,
    /// How other jobs and queues keep it waiting; `None` if they do not.
    pub others: Option<Arc<Others>>,
}

/// How much of a job lacks a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Lacking {
    /// The obstacle says all.
    Implied,
    /// Its only pod.
    OnlyPod,
    /// Each of several pods that have one controller, but name no PodGroup.
    NoGang,
    /// Of a gang, all but these.
    OfGang {
        /// Number of pods that have to start together.
        min: u32,
        /// Number of pods that had a place in the best try.
        n_fitting: u32,
    },
    /// This number of pods.
    Pods(u32),
}

/// What keeps a pod from a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Obstacle {
    /// It fits on no node.
    Unfit {
        /// Why not.
        report: FitReport,
        /// A pod that does not end, and without which it would.
        stuck: Option<Box<StuckPod>>,
    },
    /// Pods of different sizes fit in none of the orders that were tried, and the search for another ended at its
    /// bound.
    Undecided {
        /// Why the next one does not fit.
        report: FitReport,
        /// Number of pods that have to start together.
        min: u32,
        /// Number of pods that had a place in the best try.
        n_fitting: u32,
    },
    /// Its job requires one topology domain, and none that it may use holds enough of its pods.
    NoDomain(Box<NoDomain>),
    /// Too few groups of a composite PodGroup have a place.
    NotEnoughGroups(Box<NotEnoughGroups>),
    /// The minimum of its job can never fit, whatever else ends.
    NeverFits {
        /// Number of pods that have to start together, at least 1.
        min: u32,
        /// Why not.
        because: NeverFits,
    },
    /// Its queue would exceed a limit.
    Capability(Box<OverCapability>),
    /// The maximum number of jobs of its queue hold resources.
    // Parity: see docs/parity.md#q11.
    Jobs {
        /// The queue, or one above it.
        queue: Name,
        /// How many may.
        most: u32,
    },
    /// Another job of its queue is before it.
    // Parity: see docs/parity.md#q12.
    Order {
        /// That job, and the queue.
        first: JobInQueue,
    },
    /// Its minimum has places, on which resources are still being released.
    Nominated(Box<OwnPlaces>),
    /// What is idle is guaranteed to others.
    // Parity: see docs/parity.md#q4.
    Guaranteed {
        /// The queue that lacks most of it.
        queue: Name,
        /// The resource.
        resource: Name,
        /// How much that queue lacks.
        amount: i64,
    },
    /// The queue is at its fair share, and what is idle is kept for others.
    Withheld {
        /// The queue.
        queue: QueueAtShare,
        /// For whom, if that is one job.
        holder: Option<JobInQueue>,
    },
    /// The next cycle would reclaim its place for another queue.
    WouldBeReclaimed {
        /// For this job.
        by: JobInQueue,
    },
    /// A job of its queue would preempt it in the next cycle.
    WouldBePreempted {
        /// By this job.
        by: JobInQueue,
    },
    /// A node has room for it, but that is reserved.
    Reserved {
        /// The node.
        node: Name,
        /// For this job.
        holder: JobInQueue,
        /// Since when that job has waited.
        since: Timestamp,
    },
    /// Pods of its job are being terminated.
    Terminating {
        /// How many.
        n_pods: u32,
    },
    /// Its queue is at its fair share.
    QueueShare {
        /// The queue.
        queue: QueueAtShare,
    },
    /// It was not compared with the nodes.
    NotCompared {
        /// Number of nodes.
        n_nodes: usize,
    },
}

/// A queue that is at its fair share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueAtShare {
    /// The queue.
    pub queue: Name,
    /// The queue of the job, if that is another one below it.
    pub above: Option<Name>,
    /// What it uses of what it deserves.
    pub held: Option<ShareInUse>,
}

/// What a queue uses of a resource of which it uses all that it deserves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareInUse {
    /// The resource.
    pub resource: Name,
    /// What it uses.
    pub used: i64,
    /// What it deserves.
    pub deserved: i64,
}

/// A pod that does not end although its grace period is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StuckPod {
    /// The pod; `None` if its name is not for those who read this.
    pub pod: Option<ObjectKey>,
    /// Its node.
    pub node: Name,
    /// When its grace period ends, if that is known.
    pub grace_period_end: Option<Timestamp>,
    /// Whether that has passed.
    pub has_passed: bool,
}

/// Why no topology domain holds enough pods of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NoDomain {
    /// The node label of the level.
    pub key: Name,
    /// What a domain is called.
    pub noun: Name,
    /// How many tasks have to find a place together.
    pub n_tasks: u32,
    /// The domain with most room for them; `None` if no node is in a domain.
    pub best: Option<BestDomain>,
}

/// The domain that holds most pods of a job, which are too few.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BestDomain {
    /// Its name.
    pub name: Name,
    /// How many tasks of the job are there already; if any, it is the only domain that the job may use.
    pub n_there: u32,
    /// How many of those that have to find a place do.
    pub n_fitting: u32,
    /// Why the next one finds none.
    pub report: FitReport,
}

/// The groups of a composite PodGroup that have a place at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotEnoughGroups {
    /// The composite PodGroup.
    pub composite: ObjectKey,
    /// How many groups have a place.
    pub n_fitting: u32,
    /// How many start together.
    pub min: u32,
    /// What a domain is called, if they must be in one.
    pub domain: Option<Name>,
}

/// Why the minimum of a job can never fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum NeverFits {
    /// It requests more of a resource than the limit of its queue.
    Capability {
        /// The queue.
        queue: Name,
        /// By how much.
        excess: Excess,
    },
    /// It requests more of a resource than all nodes have.
    Total(Excess),
    /// Its pods request a resource that no node has.
    UnknownResource(Name),
    /// Fewer of its pods than that fit on the empty cluster.
    Nodes {
        /// How many fit at most.
        n_fitting: u64,
        /// What a domain is called, if they must be in one.
        domain: Option<Name>,
        /// Why they do not fit now.
        now: FitReport,
    },
}

/// How much the smallest pods that make up a minimum request, and a limit that they exceed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Excess {
    /// The resource.
    pub resource: Name,
    /// What they request, saturated.
    pub requested: i64,
    /// The limit.
    pub limit: i64,
}

/// The limit of a queue that a job would exceed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OverCapability {
    /// The queue.
    pub queue: Name,
    /// The resource.
    pub resource: Name,
    /// What the queue may use at most.
    pub limit: i64,
    /// What is in use of that.
    pub in_use: LimitUse,
    /// What the job needs.
    pub needed: i64,
    /// Whether that is in its `minResources`, and more than its pods request.
    pub is_min_resources: bool,
}

/// A gang that `gang.maxLoss` protects from a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProtectedGang {
    /// The gang that stays.
    pub gang: JobInQueue,
    /// The value of `gang.maxLoss`.
    pub max_loss: u32,
    /// The scarce resource.
    pub resource: Name,
    /// What evicting the gang would free of it.
    pub freed: i64,
    /// What the waiting jobs of the queue can use of that.
    pub usable: i64,
}

/// The places of a job that starts once other pods have terminated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnPlaces {
    /// Number of its pods that have a place.
    pub n_pods: u32,
    /// The first of the nodes.
    pub nodes: Vec<Name>,
    /// How many more there are.
    pub n_more: usize,
    /// How many pods are being terminated on them.
    pub n_leaving: u32,
    /// When the grace period of the last of these ends, if it is known of all.
    pub end: Option<Timestamp>,
}

/// What is reserved for a job that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnReservation {
    /// Since when the job has waited.
    pub since: Timestamp,
    /// The first of the reserved nodes.
    pub nodes: Vec<Name>,
    /// How many more there are.
    pub n_more: usize,
}

/// Why a gang was evicted as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GangEviction {
    /// Why.
    pub cause: EvictionCause,
    /// How many pods it had.
    pub n_pods: usize,
}

impl Why {
    /// The reason code of the job.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Invalid(invalid) => invalid.problem.reason(),
            Self::NotAdmitted(NotAdmitted { limit, .. }) => match limit {
                AdmissionLimit::Capability { .. } => Reason::QueueCapability,
                AdmissionLimit::Cluster { .. } => Reason::NeverFits,
                AdmissionLimit::Idle { .. } => Reason::NotEnoughResources,
            },
            Self::NotTried(NotTried::AsBefore { reason, .. }) => reason.clone(),
            Self::NotTried(NotTried::OthersFirst | NotTried::ManyTemplates) => Reason::NotTried,
            Self::NoPlace(why) => why.obstacle.reason(),
        }
    }

    /// The reason code of its waiting pods: autoscalers add nodes for [`Reason::Unschedulable`].
    // Parity: see docs/parity.md#e9.
    pub fn reason_of_pods(&self) -> Reason {
        match (self, self.reason()) {
            (Self::Invalid(_), reason) => reason,
            (_, reason) if reason.is_of_load() => reason,
            _ => Reason::Unschedulable,
        }
    }
}

impl Obstacle {
    /// Why the pod fits on no node, if that is known for each node.
    pub fn fit_report(&self) -> Option<&FitReport> {
        match self {
            Self::Unfit { report, .. } | Self::Undecided { report, .. } => Some(report),
            Self::NoDomain(failure) => failure.best.as_ref().map(|best| &best.report),
            Self::NotEnoughGroups(_)
            | Self::NeverFits { .. }
            | Self::Capability(_)
            | Self::Jobs { .. }
            | Self::Order { .. }
            | Self::Nominated(_)
            | Self::Guaranteed { .. }
            | Self::Withheld { .. }
            | Self::WouldBeReclaimed { .. }
            | Self::WouldBePreempted { .. }
            | Self::Reserved { .. }
            | Self::Terminating { .. }
            | Self::QueueShare { .. }
            | Self::NotCompared { .. } => None,
        }
    }

    /// The reason code of a job that waits for this.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unfit { report, .. } | Self::Undecided { report, .. } => of_report(report),
            Self::NoDomain(failure) => {
                failure.best.as_ref().map_or(Reason::Unschedulable, |best| of_report(&best.report))
            }
            Self::NotEnoughGroups(_) => Reason::NotEnoughGroups,
            Self::NeverFits { because: NeverFits::Capability { .. }, .. } | Self::Capability(_) => {
                Reason::QueueCapability
            }
            Self::NeverFits { .. } => Reason::NeverFits,
            Self::Jobs { .. } => Reason::QueueJobs,
            Self::Order { .. } => Reason::QueueOrder,
            Self::Guaranteed { .. } => Reason::QueueGuarantee,
            Self::Withheld { .. } | Self::WouldBeReclaimed { .. } | Self::QueueShare { .. } => {
                Reason::QueueShare
            }
            Self::Reserved { .. } => Reason::ResourcesReserved,
            Self::Nominated(_)
            | Self::WouldBePreempted { .. }
            | Self::Terminating { .. }
            | Self::NotCompared { .. } => Reason::NotEnoughResources,
        }
    }
}

fn of_report(report: &FitReport) -> Reason {
    let first = [Cause::Resources, Cause::Volumes, Cause::Rules];
    match first.into_iter().find(|cause| report.has_cause(*cause)) {
        Some(Cause::Resources) | None => Reason::NotEnoughResources,
        Some(Cause::Volumes) => Reason::VolumeNotReady,
        Some(Cause::Rules) => Reason::Unschedulable,
    }
}
