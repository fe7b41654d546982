//! Reasons why nodes do not admit tasks. They are data, not errors.

use serde::{Deserialize, Serialize};

use crate::{column::Dim, name::Name};

/// Why a class of tasks cannot go to a node.
///
/// Variants are in the order in which Kubernetes runs its filters. If several filters refuse a node,
/// the first one gives the reason. A filter names resources and drivers by their rows in the snapshot, which costs
/// nothing; in a [`NodeReason`] they have their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Unfit<Resource = Dim, Row = u32, Text = &'static str> {
    /// Excluded by name before any filter runs.
    CutByAffinity,
    /// The node's Ready condition is not True.
    NotReady,
    /// The node has no network.
    NetworkUnavailable,
    /// The node is cordoned and the pod does not tolerate it.
    Unschedulable,
    /// Memory pressure, and the pod is of QoS class BestEffort.
    MemoryPressure,
    /// Disk pressure.
    DiskPressure,
    /// Process id pressure.
    PidPressure,
    /// A taint that is not tolerated.
    Taint,
    /// The node affinity that the configuration adds.
    EnforcedNodeAffinity,
    /// Node selector or required node affinity.
    NodeAffinity,
    /// A host port is taken.
    HostPorts,
    /// No pod slot is left.
    TooManyPods,
    /// Not enough of a resource.
    Insufficient(Resource),
    /// A resource that no node has, given by its position in `Request::unknown`.
    UnknownResource(Row),
    /// Another pod on the node uses the same disk.
    DiskConflict,
    /// A ReadWriteOncePod claim is in use.
    ClaimInUse,
    /// The node lacks a CSI driver, given by its position among the CSIDrivers of the cluster.
    CsiDriverMissing(Row),
    /// The node can attach no more volumes of a driver.
    MaxVolumeCount,
    /// The node affinity of a bound volume.
    VolumeAffinity,
    /// A claim is bound to a volume that does not exist.
    VolumeMissing,
    /// No volume is free for an unbound claim, and none can be made.
    NoVolume,
    /// The zone or region of a bound volume.
    VolumeZone,
    /// A topology spread constraint.
    Spread,
    /// A topology spread constraint whose key the node lacks.
    SpreadMissingLabel,
    /// Required affinity to other pods.
    PodAffinity,
    /// Required anti-affinity to other pods.
    PodAntiAffinity,
    /// Required anti-affinity of other pods to this one.
    ExistingAntiAffinity,
    /// The devices of an allocated ResourceClaim cannot be used on the node.
    ResourceClaim,
    /// The node has no devices for a ResourceClaim.
    Devices,
    /// The node has no devices for a ResourceClaim, and a pool of devices is invalid.
    InvalidPools,
    /// The search for devices takes too long.
    DevicesTooComplex,
    /// A selector of devices fails, or a ResourceClaim cannot be allocated for another reason.
    DeviceError,
    /// A reason without a variant, given by its text: of a plugin outside this project, or one that is rare.
    Other(Text),
}

/// Why nodes do not admit a class of tasks, with the names that only the cluster knows.
pub type NodeReason = Unfit<Name, Name, Name>;

macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident,)*) => {
        /// Why a job or a pod waits, in one word for programs: the reason of its condition.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(from = "Name", into = "Name")]
        pub enum Reason {
            $( $(#[$doc])* $reason, )*
            /// One of a plugin outside this project.
            Other(Name),
        }

        impl Reason {
            const KNOWN: &[Self] = &[$( Self::$reason, )*];

            /// The word.
            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$reason => stringify!($reason), )*
                    Self::Other(word) => word,
                }
            }
        }
    };
}

reasons! {
    /// A composite PodGroup that its PodGroup is a part of does not exist.
    CompositePodGroupNotFound,
    /// Too many composite PodGroups are above its PodGroup.
    CompositePodGroupTooDeep,
    /// The cluster or the queue can never hold it, whatever else ends.
    NeverFits,
    /// Too few groups of a composite PodGroup can start.
    NotEnoughGroups,
    /// Resources are in use.
    NotEnoughResources,
    /// It has fewer pods than its minimum.
    NotEnoughTasks,
    /// Other jobs are tried first.
    NotTried,
    /// Its PodGroup does not exist.
    PodGroupNotFound,
    /// The API of its PodGroup cannot be read.
    PodGroupUnreadable,
    /// Its queue would exceed a limit.
    QueueCapability,
    /// Its queue, or one above that, is closed.
    QueueClosed,
    /// It names another queue than the composite PodGroup that it is a part of.
    QueueDiffers,
    /// What is idle is guaranteed to other queues.
    QueueGuarantee,
    /// The maximum number of jobs of its queue hold resources.
    QueueJobs,
    /// Another job of its queue is before it.
    QueueOrder,
    /// Its queue, or one above that, is not for its namespace.
    QueueNotAllowed,
    /// Its queue does not exist.
    QueueNotFound,
    /// Other queues are below its queue.
    QueueNotLeaf,
    /// The queues above its queue do not end at the top.
    QueueParent,
    /// Its queue is at its fair share.
    QueueShare,
    /// The room that it would need is reserved for another job.
    ResourcesReserved,
    /// Its pods and its PodGroup contradict one another; the word is that of kube-scheduler.
    SchedulerError,
    /// It requires a topology level that is not declared.
    TopologyLevelNotFound,
    /// It requires a topology domain, and the plugin for that is not configured.
    TopologyNotSupported,
    /// No node admits its pods. Autoscalers add nodes for waiting pods with this reason.
    Unschedulable,
    /// A volume of its pods is not available.
    VolumeNotReady,
}

impl Reason {
    /// Whether it changes into others of its kind as the cluster and the queues fill up and become empty.
    // Parity: see docs/parity.md#e9.
    pub const fn is_of_load(&self) -> bool {
        matches!(self.topic(), Topic::Load)
    }

    /// Whether a job may have it that is scheduled and finds no place.
    pub const fn is_of_tried(&self) -> bool {
        matches!(self.topic(), Topic::Load | Topic::Place)
    }

    const fn topic(&self) -> Topic {
        match self {
            Self::QueueCapability
            | Self::QueueGuarantee
            | Self::QueueJobs
            | Self::QueueOrder
            | Self::QueueShare
            | Self::ResourcesReserved
            | Self::Unschedulable => Topic::Load,
            Self::NeverFits
            | Self::NotEnoughGroups
            | Self::NotEnoughResources
            | Self::NotTried
            | Self::VolumeNotReady => Topic::Place,
            Self::CompositePodGroupNotFound
            | Self::CompositePodGroupTooDeep
            | Self::NotEnoughTasks
            | Self::PodGroupNotFound
            | Self::PodGroupUnreadable
            | Self::QueueClosed
            | Self::QueueDiffers
            | Self::QueueNotAllowed
            | Self::QueueNotFound
            | Self::QueueNotLeaf
            | Self::QueueParent
            | Self::SchedulerError
            | Self::TopologyLevelNotFound
            | Self::TopologyNotSupported
            | Self::Other(_) => Topic::Objects,
        }
    }
}

/// What a [`Reason`] is about.
enum Topic {
    /// A place for a job that is scheduled: it has none because of what others use now.
    Load,
    /// A place for a job that is scheduled, in another way.
    Place,
    /// The objects of the job: it is not scheduled.
    Objects,
}

impl From<Name> for Reason {
    fn from(word: Name) -> Self {
        let known = Self::KNOWN.iter().find(|reason| *reason.as_str() == *word);
        known.cloned().unwrap_or(Self::Other(word))
    }
}

impl From<Reason> for Name {
    fn from(reason: Reason) -> Self {
        if let Reason::Other(word) = reason { word } else { Self::from(reason.as_str()) }
    }
}

/// What kind of thing keeps a pod from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// Not enough of a resource, or of pod slots.
    Resources,
    /// Its volumes.
    Volumes,
    /// Other rules: taints, affinity, spread, node conditions, claims for devices.
    Rules,
}

/// Why no node admits a class of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inadmissible {
    /// What kind of thing.
    pub cause: Cause,
    /// The message that Kubernetes uses, for all nodes at once.
    pub message: Name,
}

/// What a reason is about.
#[derive(Clone, Copy)]
enum About {
    /// A cordon, a taint, or a condition of the node.
    NodeState,
    /// What the pod asks for, and what the node has or runs.
    Pod,
}

impl<Resource, Row, Text> Unfit<Resource, Row, Text> {
    /// What kind of thing it is.
    pub const fn cause(&self) -> Cause {
        self.kind().0
    }

    /// Whether the reason may go although neither the pod nor what the node is made of changes: a
    /// cordon, a taint, or a condition of the node.
    pub const fn may_go(&self) -> bool {
        matches!(self.kind().1, About::NodeState)
    }

    const fn kind(&self) -> (Cause, About) {
        match self {
            Self::TooManyPods | Self::Insufficient(_) | Self::UnknownResource(_) => {
                (Cause::Resources, About::Pod)
            }
            Self::DiskConflict
            | Self::ClaimInUse
            | Self::CsiDriverMissing(_)
            | Self::MaxVolumeCount
            | Self::VolumeAffinity
            | Self::VolumeMissing
            | Self::NoVolume
            | Self::VolumeZone => (Cause::Volumes, About::Pod),
            Self::NotReady
            | Self::NetworkUnavailable
            | Self::Unschedulable
            | Self::MemoryPressure
            | Self::DiskPressure
            | Self::PidPressure
            | Self::Taint => (Cause::Rules, About::NodeState),
            Self::CutByAffinity
            | Self::EnforcedNodeAffinity
            | Self::NodeAffinity
            | Self::HostPorts
            | Self::Spread
            | Self::SpreadMissingLabel
            | Self::PodAffinity
            | Self::PodAntiAffinity
            | Self::ExistingAntiAffinity
            | Self::ResourceClaim
            | Self::Devices
            | Self::InvalidPools
            | Self::DevicesTooComplex
            | Self::DeviceError
            | Self::Other(_) => (Cause::Rules, About::Pod),
        }
    }
}

impl Unfit {
    /// Whether Kubernetes reports this reason together with `first`, the first reason of a node: the
    /// filters report one reason each, except for the one that binds volumes.
    // Parity: see docs/parity.md#f10.
    pub fn is_reported_with(self, first: Self) -> bool {
        let is_binding =
            |reason| matches!(reason, Self::VolumeAffinity | Self::VolumeMissing | Self::NoVolume);
        self == first || (is_binding(self) && is_binding(first))
    }

    /// The reason with its names: `resource` knows those of rows, `unknown` those of the resources that no node has,
    /// and `driver` those of CSI drivers.
    pub fn named(
        self,
        resource: impl FnOnce(Dim) -> Name,
        unknown: impl FnOnce(u32) -> Name,
        driver: impl FnOnce(u32) -> Name,
    ) -> NodeReason {
        match self {
            Self::Insufficient(dim) => NodeReason::Insufficient(resource(dim)),
            Self::UnknownResource(at) => NodeReason::UnknownResource(unknown(at)),
            Self::CsiDriverMissing(at) => NodeReason::CsiDriverMissing(driver(at)),
            Self::Other(text) => NodeReason::Other(Name::from(text)),
            Self::CutByAffinity => NodeReason::CutByAffinity,
            Self::NotReady => NodeReason::NotReady,
            Self::NetworkUnavailable => NodeReason::NetworkUnavailable,
            Self::Unschedulable => NodeReason::Unschedulable,
            Self::MemoryPressure => NodeReason::MemoryPressure,
            Self::DiskPressure => NodeReason::DiskPressure,
            Self::PidPressure => NodeReason::PidPressure,
            Self::Taint => NodeReason::Taint,
            Self::EnforcedNodeAffinity => NodeReason::EnforcedNodeAffinity,
            Self::NodeAffinity => NodeReason::NodeAffinity,
            Self::HostPorts => NodeReason::HostPorts,
            Self::TooManyPods => NodeReason::TooManyPods,
            Self::DiskConflict => NodeReason::DiskConflict,
            Self::ClaimInUse => NodeReason::ClaimInUse,
            Self::MaxVolumeCount => NodeReason::MaxVolumeCount,
            Self::VolumeAffinity => NodeReason::VolumeAffinity,
            Self::VolumeMissing => NodeReason::VolumeMissing,
            Self::NoVolume => NodeReason::NoVolume,
            Self::VolumeZone => NodeReason::VolumeZone,
            Self::Spread => NodeReason::Spread,
            Self::SpreadMissingLabel => NodeReason::SpreadMissingLabel,
            Self::PodAffinity => NodeReason::PodAffinity,
            Self::PodAntiAffinity => NodeReason::PodAntiAffinity,
            Self::ExistingAntiAffinity => NodeReason::ExistingAntiAffinity,
            Self::ResourceClaim => NodeReason::ResourceClaim,
            Self::Devices => NodeReason::Devices,
            Self::InvalidPools => NodeReason::InvalidPools,
            Self::DevicesTooComplex => NodeReason::DevicesTooComplex,
            Self::DeviceError => NodeReason::DeviceError,
        }
    }
}

/// Why a class of tasks fits on no node: the number of nodes for each reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FitReport {
    n_nodes: usize,
    /// In the order of their reasons, each of which is there once.
    refused: Vec<RefusingNodes>,
    /// A reason that holds for all nodes at once.
    everywhere: Option<Inadmissible>,
}

/// The nodes that refuse a class of tasks for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusingNodes {
    /// The reason.
    pub reason: NodeReason,
    /// How many nodes give it.
    pub n_nodes: usize,
}

impl FitReport {
    /// A report over `n_nodes` nodes, without reasons yet.
    pub fn new(n_nodes: usize) -> Self {
        Self { n_nodes, ..Self::default() }
    }

    /// A report with one reason for all nodes.
    pub fn everywhere(n_nodes: usize, reason: Inadmissible) -> Self {
        Self { n_nodes, everywhere: Some(reason), ..Self::default() }
    }

    /// Number of nodes that were asked.
    pub const fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    /// A reason that holds for all nodes at once.
    pub const fn for_all(&self) -> Option<&Inadmissible> {
        self.everywhere.as_ref()
    }

    /// Adds `n_nodes` nodes with a reason.
    pub fn add(&mut self, reason: NodeReason, n_nodes: usize) {
        match self.refused.binary_search_by(|own| own.reason.cmp(&reason)) {
            Ok(at) => self.refused[at].n_nodes += n_nodes,
            Err(at) => self.refused.insert(at, RefusingNodes { reason, n_nodes }),
        }
    }

    /// Reasons with the number of nodes that gave them.
    pub fn refused(&self) -> &[RefusingNodes] {
        &self.refused
    }

    /// Whether a reason is of this kind.
    pub fn has_cause(&self, cause: Cause) -> bool {
        self.everywhere.as_ref().is_some_and(|reason| reason.cause == cause)
            || self.refused.iter().any(|nodes| nodes.reason.cause() == cause)
    }
}
