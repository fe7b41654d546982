//! Kubernetes' scores: on which node a task is placed, of those it fits on.
//!
//! Each file implements one of Kubernetes' score plugins, under its name. A score is 0 to 100 and
//! has a weight of its own; the framework adds the weighted scores up. A score with weight 0 is not
//! built. A score that cannot prefer one node to another for a class is left out for that class.
//!
//! To add a score, write its file, list it in `SCORES`, and give it a weight in
//! [`NodeOrderArguments`].
//!
//! Source: Kubernetes 1.36 `pkg/scheduler/framework/plugins`; the names of the arguments and the
//! default weights of 1 are those of kube-batch v0.5.0, `plugins/nodeorder/nodeorder.go`.

mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_resources_balanced_allocation;
mod node_resources_fit;
mod pod_topology_spread;
mod score;
mod scored_resources;
mod taint_toleration;

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx},
    facts::class::preferred_nodes,
    name::Name,
    selector::NodeTerm,
};
use kube_batch_framework::{
    arguments::{ArgumentKind, ArgumentSpec, Arguments},
    plugin::{Change, Dependencies, OrderScope, Plugin, ScoreTerm},
    session_cache::SessionCache,
    spec::PluginSpec,
};

use self::score::{Build, Score};
use crate::{
    compiled::{CompiledCluster, Opening},
    pod_count::{Placed, placements},
};

/// The weight of a score.
type Weight = fn(&NodeOrderArguments) -> i64;

/// All scores with their weights. The framework adds them up, so the order makes no difference.
const SCORES: &[(Weight, Build)] = &[
    (|weights| weights.nodeaffinity, node_affinity::build),
    (|weights| weights.podaffinity, inter_pod_affinity::build),
    (|weights| weights.leastrequested, node_resources_fit::build_least_requested),
    (|weights| weights.balancedresource, node_resources_balanced_allocation::build),
    (|weights| weights.mostrequested, node_resources_fit::build_most_requested),
    (|weights| weights.tainttoleration, taint_toleration::build),
    (|weights| weights.podtopologyspread, pod_topology_spread::build),
    (|weights| weights.imagelocality, image_locality::build),
];

/// Resources that a score counts, with their weights.
pub type ResourceWeights = Vec<(Name, i64)>;

/// CPU and memory count the same.
pub fn cpu_and_memory() -> ResourceWeights {
    vec![(Name::from("cpu"), 1), (Name::from("memory"), 1)]
}

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
}

impl Default for NodeOrderArguments {
    /// 1 each, but 0 for the fuller node and for images; resources are CPU and memory.
    // Parity: see docs/parity.md#f4.
    fn default() -> Self {
        Self {
            nodeaffinity: 1,
            added_affinity: Vec::new(),
            podaffinity: 1,
            leastrequested: 1,
            leastrequested_resources: cpu_and_memory(),
            balancedresource: 1,
            balancedresource_resources: cpu_and_memory(),
            mostrequested: 0,
            mostrequested_resources: cpu_and_memory(),
            tainttoleration: 1,
            podtopologyspread: 1,
            imagelocality: 0,
        }
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
            ..Self::default()
        }
    }
}

/// The plugin `nodeorder`.
#[derive(Debug, Default)]
pub struct NodeOrder {
    arguments: NodeOrderArguments,
    /// Scores with a weight other than 0. The framework knows a score by its position.
    scores: Vec<Weighted>,
}

#[derive(Debug)]
struct Weighted {
    weight: i64,
    score: Box<dyn Score>,
}

impl NodeOrder {
    /// The plugin with its weights, before any session.
    pub fn new(arguments: NodeOrderArguments) -> Self {
        Self { arguments, scores: Vec::new() }
    }

    fn open(arguments: NodeOrderArguments, opening: Opening<'_>) -> Self {
        let weighted = SCORES.iter().map(|(weight, build)| (weight(&arguments), build));
        let scores = weighted
            .filter(|(weight, _)| *weight != 0)
            .map(|(weight, build)| Weighted { weight, score: build(opening, &arguments) })
            .collect();
        let mut opened = Self { arguments, scores };
        for placed in placements(opening.cluster) {
            opened.follow(&placed);
        }
        opened
    }

    fn follow(&mut self, placed: &Placed) {
        for Weighted { score, .. } in &mut self.scores {
            score.on_placement(placed);
        }
    }

    fn score_of(&self, term: u8) -> &dyn Score {
        &*self.scores[usize::from(term)].score
    }
}

/// How a configuration names the plugin.
pub const SPEC: PluginSpec = PluginSpec {
    name: "nodeorder",
    about: "Kubernetes' scores: where a pod should run",
    arguments: &[
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
    ],
    metadata_prefixes: &[],
    new: |arguments| Box::new(NodeOrder::new(NodeOrderArguments::of(arguments))),
};

const NODE_AFFINITY: ArgumentSpec =
    ArgumentSpec::weight("nodeaffinity.weight", 1, "preferred node affinity");
const ADDED_AFFINITY: ArgumentSpec = ArgumentSpec {
    key: "addedAffinity",
    kind: ArgumentKind::NodeAffinity,
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

impl NodeOrderArguments {
    fn of(arguments: &Arguments) -> Self {
        let resources = |spec: &ArgumentSpec| {
            let weights = arguments.weights(spec).into_iter();
            weights.map(|(name, weight)| (Name::from(name), weight)).collect()
        };
        let added = arguments.node_affinity(&ADDED_AFFINITY);
        let preferred = added.preferred_during_scheduling_ignored_during_execution;
        Self {
            nodeaffinity: arguments.integer(&NODE_AFFINITY),
            added_affinity: preferred_nodes(preferred.as_deref().unwrap_or_default()),
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
        }
    }
}

impl Plugin for NodeOrder {
    fn name(&self) -> &'static str {
        "nodeorder"
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
        Dependencies::NONE
    }

    fn on_session_open(&mut self, cluster: &Cluster, cache: &mut SessionCache<'_>) {
        let compiled = cache.get::<CompiledCluster>();
        *self = Self::open(self.arguments.clone(), Opening { cluster, compiled: &compiled });
    }

    fn on_placement(&mut self, cluster: &Cluster, change: &Change) {
        self.follow(&Placed::new(cluster, change));
    }

    fn score_terms(&self, cluster: &Cluster, class: ClassIdx) -> Vec<ScoreTerm> {
        let scores = self.scores.iter().zip(0..);
        let applicable = scores.filter(|(weighted, _)| weighted.score.applies(cluster, class));
        let term = |(Weighted { weight, score }, id): (&Weighted, u8)| ScoreTerm {
            id,
            weight: *weight,
            dependency: score.dependency(),
            scale: score.scale(),
        };
        applicable.map(term).collect()
    }

    fn score(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx, term: u8) -> i64 {
        self.score_of(term).score(cluster, class, node)
    }

    fn score_all(
        &self,
        cluster: &Cluster,
        class: ClassIdx,
        nodes: &[NodeIdx],
        term: u8,
        scores: &mut [i64],
    ) {
        self.score_of(term).score_all(cluster, class, nodes, scores);
    }
}
