//! Reasons why nodes do not admit tasks. They are data, not errors.

use std::fmt;

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

/// The reason of a waiting pod that more nodes would help. Autoscalers add nodes for it.
pub const MORE_NODES_WOULD_HELP: &str = "Unschedulable";

/// The reasons of waiting pods that change into one another as the cluster and the queues fill up and become empty.
// Parity: see docs/parity.md#e9.
pub const REASONS_OF_LOAD: [&str; 4] =
    [MORE_NODES_WOULD_HELP, "QueueCapability", "QueueShare", "ResourcesReserved"];

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

impl fmt::Display for NodeReason {
    /// The message that Kubernetes uses, to be preceded by a number of nodes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CutByAffinity => "node(s) didn't satisfy plugin(s) [NodeAffinity]",
            Self::NotReady => "node(s) were not ready",
            Self::NetworkUnavailable => "node(s) had unavailable network",
            Self::Unschedulable => "node(s) were unschedulable",
            Self::MemoryPressure => "node(s) had memory pressure",
            Self::DiskPressure => "node(s) had disk pressure",
            Self::PidPressure => "node(s) had pid pressure",
            Self::Taint => "node(s) had untolerated taint(s)",
            Self::EnforcedNodeAffinity => "node(s) didn't match scheduler-enforced node affinity",
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Self::HostPorts => "node(s) didn't have free ports for the requested pod ports",
            Self::TooManyPods => "Too many pods",
            Self::Insufficient(resource) | Self::UnknownResource(resource) => {
                return write!(f, "Insufficient {resource}");
            }
            Self::DiskConflict => "node(s) had no available disk",
            Self::ClaimInUse => {
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode \
                 already in-use by another pod"
            }
            Self::CsiDriverMissing(driver) => {
                return write!(f, "{driver} CSI driver is not installed on the node");
            }
            Self::MaxVolumeCount => "node(s) exceed max volume count",
            Self::VolumeAffinity => "node(s) didn't match PersistentVolume's node affinity",
            Self::VolumeMissing => {
                "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
            }
            Self::NoVolume => "node(s) didn't find available persistent volumes to bind",
            Self::VolumeZone => "node(s) had no available volume zone",
            Self::Spread => "node(s) didn't match pod topology spread constraints",
            Self::SpreadMissingLabel => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
            Self::PodAffinity => "node(s) didn't match pod affinity rules",
            Self::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingAntiAffinity => {
                "node(s) didn't satisfy existing pods anti-affinity rules"
            }
            Self::ResourceClaim => "resourceclaim not available on the node",
            Self::Devices => "cannot allocate all claims",
            Self::InvalidPools => "invalid resource pools were encountered",
            Self::DevicesTooComplex => {
                "node(s) where the search for devices of the resource claims takes too long"
            }
            Self::DeviceError => "node(s) with an error in the resource claims",
            Self::Other(text) => text,
        })
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

impl fmt::Display for FitReport {
    /// As Kubernetes words it: `0/3 nodes are available: 1 Insufficient cpu, 2 Too many pods.`,
    /// the parts sorted as plain texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.n_nodes == 0 {
            return f.write_str("no nodes available to schedule pods");
        }
        write!(f, "0/{} nodes are available", self.n_nodes)?;
        let part = |nodes: &RefusingNodes| format!("{} {}", nodes.n_nodes, nodes.reason);
        let mut parts: Vec<String> = self.refused.iter().map(part).collect();
        parts.sort_unstable();
        parts.extend(self.everywhere.iter().map(|reason| reason.message.to_string()));
        if parts.is_empty() {
            return f.write_str(".");
        }
        write!(f, ": {}.", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_read_as_kubernetes_writes_them() {
        let mut report = FitReport::new(12);
        report.add(NodeReason::Insufficient("cpu".into()), 7);
        report.add(NodeReason::Taint, 2);
        report.add(NodeReason::Insufficient("memory".into()), 2);
        report.add(NodeReason::Insufficient("cpu".into()), 3);
        assert_eq!(
            report.to_string(),
            "0/12 nodes are available: 10 Insufficient cpu, 2 Insufficient memory, \
             2 node(s) had untolerated taint(s)."
        );
        let message = "persistentvolumeclaim \"c\" not found".into();
        let missing = Inadmissible { cause: Cause::Volumes, message };
        assert_eq!(FitReport::new(0).to_string(), "no nodes available to schedule pods");
        assert_eq!(
            FitReport::everywhere(2, missing).to_string(),
            "0/2 nodes are available: persistentvolumeclaim \"c\" not found."
        );
    }
}
