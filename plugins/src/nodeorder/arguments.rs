//! The arguments of the plugin.

use kube_batch_framework::arguments::{AffinityPart, ArgumentKind, ArgumentSpec, Arguments};
use kube_batch_model::{name::Name, selector::NodeTerm};

/// Resources that a score counts, with their weights.
pub type ResourceWeights = Vec<(Name, i64)>;

/// The weights of the scores, and the resources they count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOrderArguments {
    /// `nodeaffinity.weight`: preferred node affinity.
    pub nodeaffinity: i64,
    /// `addedAffinity`: preferred node affinity of every pod, with weights.
    pub added_affinity: Vec<(i64, NodeTerm)>,
    /// `podaffinity.weight`: preferred inter-pod affinity and anti-affinity.
    pub podaffinity: i64,
    /// `leastrequested.weight`: the emptier node.
    pub leastrequested: i64,
    /// `leastrequested.resources`: the resources of which it should have more left.
    pub leastrequested_resources: ResourceWeights,
    /// `balancedresource.weight`: the node where resources are used most evenly.
    pub balancedresource: i64,
    /// `balancedresource.resources`: the resources it should use evenly; their weights are 1.
    pub balancedresource_resources: ResourceWeights,
    /// `mostrequested.weight`: the fuller node.
    pub mostrequested: i64,
    /// `mostrequested.resources`: the resources of which it should have less left.
    pub mostrequested_resources: ResourceWeights,
    /// `tainttoleration.weight`: the node with fewer taints that are not tolerated.
    pub tainttoleration: i64,
    /// `podtopologyspread.weight`: the emptier domain of a spread constraint.
    pub podtopologyspread: i64,
    /// `imagelocality.weight`: the node that has the images.
    pub imagelocality: i64,
    /// `dynamicresources.weight`: the node whose devices claims name first.
    pub dynamicresources: i64,
}

impl Default for NodeOrderArguments {
    /// 1 each, but 0 for the fuller node and for images; resources are CPU and memory.
    // Parity: see docs/parity.md#f4.
    fn default() -> Self {
        Self::of(&Arguments::default())
    }
}

impl NodeOrderArguments {
    /// No score has a weight.
    pub fn no_weights() -> Self {
        Self {
            nodeaffinity: 0,
            podaffinity: 0,
            leastrequested: 0,
            balancedresource: 0,
            tainttoleration: 0,
            podtopologyspread: 0,
            dynamicresources: 0,
            ..Self::default()
        }
    }
}

/// All arguments.
pub(super) const SPECS: [ArgumentSpec; 13] = [
    NODE_AFFINITY,
    ADDED_AFFINITY,
    POD_AFFINITY,
    LEAST_REQUESTED,
    LEAST_REQUESTED_RESOURCES,
    BALANCED_RESOURCE,
    BALANCED_RESOURCE_RESOURCES,
    MOST_REQUESTED,
    MOST_REQUESTED_RESOURCES,
    TAINT_TOLERATION,
    POD_TOPOLOGY_SPREAD,
    IMAGE_LOCALITY,
    DYNAMIC_RESOURCES,
];

const NODE_AFFINITY: ArgumentSpec =
    ArgumentSpec::weight("nodeaffinity.weight", 1, "preferred node affinity");
const ADDED_AFFINITY: ArgumentSpec = ArgumentSpec {
    key: "addedAffinity",
    kind: ArgumentKind::NodeAffinity { part: AffinityPart::Preferred },
    about: "node affinity that every pod has; its preferred part counts",
};
const POD_AFFINITY: ArgumentSpec = ArgumentSpec::weight(
    "podaffinity.weight",
    1,
    "preferred affinity and anti-affinity to other pods",
);
const LEAST_REQUESTED: ArgumentSpec =
    ArgumentSpec::weight("leastrequested.weight", 1, "nodes with more free resources");
const BALANCED_RESOURCE: ArgumentSpec =
    ArgumentSpec::weight("balancedresource.weight", 1, "nodes whose resources are used evenly");
const MOST_REQUESTED: ArgumentSpec =
    ArgumentSpec::weight("mostrequested.weight", 0, "nodes with fewer free resources (packing)");
const LEAST_REQUESTED_RESOURCES: ArgumentSpec =
    resources("leastrequested.resources", 100, "resources that leastrequested counts");
const BALANCED_RESOURCE_RESOURCES: ArgumentSpec =
    resources("balancedresource.resources", 1, "resources that balancedresource counts");
const MOST_REQUESTED_RESOURCES: ArgumentSpec =
    resources("mostrequested.resources", 100, "resources that mostrequested counts");

/// Resources with their weights. Kubernetes' limits: 1 to 100, for the balance score only 1.
const fn resources(key: &'static str, largest: i64, about: &'static str) -> ArgumentSpec {
    let default = &[("cpu", 1), ("memory", 1)];
    ArgumentSpec { key, kind: ArgumentKind::Weights { default, range: (1, largest) }, about }
}

const TAINT_TOLERATION: ArgumentSpec =
    ArgumentSpec::weight("tainttoleration.weight", 1, "nodes with fewer PreferNoSchedule taints");
const POD_TOPOLOGY_SPREAD: ArgumentSpec = ArgumentSpec::weight(
    "podtopologyspread.weight",
    1,
    "topology spread constraints with whenUnsatisfiable: ScheduleAnyway",
);
const IMAGE_LOCALITY: ArgumentSpec =
    ArgumentSpec::weight("imagelocality.weight", 0, "nodes that already have the images");

const DYNAMIC_RESOURCES: ArgumentSpec = ArgumentSpec::weight(
    "dynamicresources.weight",
    2,
    "devices that come first in firstAvailable of a claim",
);

impl NodeOrderArguments {
    pub(super) fn of(arguments: &Arguments) -> Self {
        let resources = |spec: &ArgumentSpec| {
            let weights = arguments.weights(spec).into_iter();
            weights.map(|(name, weight)| (Name::from(name), weight)).collect()
        };
        let added = arguments.node_affinity(&ADDED_AFFINITY);
        Self {
            nodeaffinity: arguments.integer(&NODE_AFFINITY),
            added_affinity: added.preferred(),
            podaffinity: arguments.integer(&POD_AFFINITY),
            leastrequested: arguments.integer(&LEAST_REQUESTED),
            leastrequested_resources: resources(&LEAST_REQUESTED_RESOURCES),
            balancedresource: arguments.integer(&BALANCED_RESOURCE),
            balancedresource_resources: resources(&BALANCED_RESOURCE_RESOURCES),
            mostrequested: arguments.integer(&MOST_REQUESTED),
            mostrequested_resources: resources(&MOST_REQUESTED_RESOURCES),
            tainttoleration: arguments.integer(&TAINT_TOLERATION),
            podtopologyspread: arguments.integer(&POD_TOPOLOGY_SPREAD),
            imagelocality: arguments.integer(&IMAGE_LOCALITY),
            dynamicresources: arguments.integer(&DYNAMIC_RESOURCES),
        }
    }
}
