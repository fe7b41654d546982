//! Kubernetes' scores: where a task would rather go.
//!
//! Each score is 0 to 100 and has a weight of its own; the framework adds them up. Free room and
//! balance of CPU and memory, preferred node affinity, taints that would rather keep pods away,
//! preferences between pods, topology spread, and images that are there already.
//!
//! A score that cannot tell two nodes apart for a class is left out, which changes no decision and
//! keeps the class on the fast path.
//!
//! Source: Kubernetes 1.36 `pkg/scheduler/framework/plugins`; the names of the arguments and the
//! default weights of 1 are kube-batch v0.5.0's `plugins/nodeorder/nodeorder.go`.

mod images;
mod node_preferences;
mod pod_preferences;
mod resources;
mod spread_scores;

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx},
};
use kube_batch_framework::plugin::{
    Change, Dependencies, Dependency, OrderScope, Plugin, Scale, ScoreTerm,
};
use kube_batch_framework::session_cache::SessionCache;

use self::{
    images::Images, node_preferences::NodePreferences, pod_preferences::PodPreferences,
    resources::Resources, spread_scores::SpreadScores,
};
use crate::{
    constraint_classes::ConstraintClasses,
    node_labels::NodeLabels,
    node_tests::Compiler,
    taints::TaintSets,
    topology_counts::{arrivals, deltas},
};

/// The weights of the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeOrderArguments {
    /// `nodeaffinity.weight`: preferred node affinity.
    pub nodeaffinity: i64,
    /// `podaffinity.weight`: preferences between pods.
    pub podaffinity: i64,
    /// `leastrequested.weight`: the emptier node.
    pub leastrequested: i64,
    /// `balancedresource.weight`: the node where CPU and memory are used most evenly.
    pub balancedresource: i64,
    /// `mostrequested.weight`: the fuller node.
    pub mostrequested: i64,
    /// `tainttoleration.weight`: the node with fewer taints that are not tolerated.
    pub tainttoleration: i64,
    /// `podtopologyspread.weight`: the emptier domain of a spread constraint.
    pub podtopologyspread: i64,
    /// `imagelocality.weight`: the node that has the images.
    pub imagelocality: i64,
}

impl Default for NodeOrderArguments {
    /// 1 each, but 0 for the fuller node and for images.
    // Parity: see docs/parity.md#f4.
    fn default() -> Self {
        Self {
            nodeaffinity: 1,
            podaffinity: 1,
            leastrequested: 1,
            balancedresource: 1,
            mostrequested: 0,
            tainttoleration: 1,
            podtopologyspread: 1,
            imagelocality: 0,
        }
    }
}

/// The scores, by the number the framework knows them by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Term {
    NodeAffinity,
    PodAffinity,
    LeastRequested,
    BalancedResource,
    MostRequested,
    TaintToleration,
    PodTopologySpread,
    ImageLocality,
}

impl Term {
    const ALL: [Self; 8] = [
        Self::NodeAffinity,
        Self::PodAffinity,
        Self::LeastRequested,
        Self::BalancedResource,
        Self::MostRequested,
        Self::TaintToleration,
        Self::PodTopologySpread,
        Self::ImageLocality,
    ];

    const fn weight(self, weights: &NodeOrderArguments) -> i64 {
        match self {
            Self::NodeAffinity => weights.nodeaffinity,
            Self::PodAffinity => weights.podaffinity,
            Self::LeastRequested => weights.leastrequested,
            Self::BalancedResource => weights.balancedresource,
            Self::MostRequested => weights.mostrequested,
            Self::TaintToleration => weights.tainttoleration,
            Self::PodTopologySpread => weights.podtopologyspread,
            Self::ImageLocality => weights.imagelocality,
        }
    }

    const fn kind(self) -> (Dependency, Scale) {
        match self {
            Self::NodeAffinity => (Dependency::Class, Scale::UpToLargest),
            Self::TaintToleration => (Dependency::Class, Scale::DownFromLargest),
            Self::ImageLocality => (Dependency::Class, Scale::AsIs),
            Self::LeastRequested | Self::BalancedResource | Self::MostRequested => {
                (Dependency::Node, Scale::AsIs)
            }
            Self::PodAffinity | Self::PodTopologySpread => (Dependency::Cluster, Scale::Joint),
        }
    }

    fn of_id(id: u8) -> Self {
        Self::ALL[usize::from(id)]
    }
}

/// The plugin `nodeorder`.
#[derive(Debug, Default)]
pub struct NodeOrder {
    weights: NodeOrderArguments,
    classes: ConstraintClasses,
    labels: NodeLabels,
    resources: Resources,
    nodes: NodePreferences,
    pods: PodPreferences,
    spread: SpreadScores,
    images: Images,
}

impl NodeOrder {
    /// The plugin with its weights, before any session.
    pub fn new(arguments: NodeOrderArguments) -> Self {
        Self { weights: arguments, ..Self::default() }
    }

    fn open(weights: NodeOrderArguments, cluster: &Cluster) -> Self {
        let classes = ConstraintClasses::new(cluster);
        let mut labels = NodeLabels::default();
        let mut compiler = Compiler { cluster, labels: &mut labels };
        let taints = TaintSets::new(cluster);
        let images_matter = weights.imagelocality != 0;
        let mut opened = Self {
            weights,
            resources: Resources::new(cluster),
            pods: PodPreferences::new(&mut compiler, &classes),
            spread: SpreadScores::new(&mut compiler, &classes, &taints),
            nodes: NodePreferences::new(&mut compiler, &classes, taints),
            images: if images_matter { Images::new(cluster, &classes) } else { Images::default() },
            classes,
            labels,
        };
        for change in arrivals(cluster) {
            opened.on_placement(cluster, &change);
        }
        opened
    }

    /// Whether a term can tell nodes apart for a class.
    fn tells_apart(&self, class: ClassIdx, term: Term) -> bool {
        let constraint_class = self.classes.of(class);
        match term {
            Term::NodeAffinity => self.nodes.has_affinity(constraint_class),
            Term::PodAffinity => self.pods.concerns(constraint_class),
            Term::LeastRequested | Term::MostRequested => true,
            Term::BalancedResource => self.resources.are_requested(class),
            Term::TaintToleration => self.nodes.has_taints(constraint_class),
            Term::PodTopologySpread => self.spread.concerns(constraint_class),
            Term::ImageLocality => self.images.concern(constraint_class),
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

    fn on_session_open(&mut self, cluster: &Cluster, _: &mut SessionCache<'_>) {
        *self = Self::open(self.weights, cluster);
    }

    fn on_placement(&mut self, cluster: &Cluster, change: &Change) {
        let class = cluster.tasks.class[change.task];
        let constraint_class = self.classes.of(class);
        for (node, change) in deltas(change) {
            self.resources.moved(class, node, change);
            self.pods.moved(&self.labels, constraint_class, node, change);
            self.spread.moved(&self.labels, constraint_class, node, change);
        }
    }

    fn score_terms(&self, _cluster: &Cluster, class: ClassIdx) -> Vec<ScoreTerm> {
        let terms = Term::ALL.into_iter().zip(0..);
        let terms = terms.map(|(term, id)| (term, id, term.weight(&self.weights)));
        terms
            .filter(|(term, _, weight)| *weight != 0 && self.tells_apart(class, *term))
            .map(|(term, id, weight)| {
                let (dependency, scale) = term.kind();
                ScoreTerm { id, weight, dependency, scale }
            })
            .collect()
    }

    fn score(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx, term: u8) -> i64 {
        match Term::of_id(term) {
            Term::NodeAffinity => self.nodes.affinity(&self.labels, self.classes.of(class), node),
            Term::LeastRequested => self.resources.least_requested(cluster, class, node),
            Term::BalancedResource => self.resources.balanced(cluster, class, node),
            Term::MostRequested => self.resources.most_requested(cluster, class, node),
            Term::TaintToleration => self.nodes.taints(self.classes.of(class), node),
            Term::ImageLocality => self.images.score(self.classes.of(class), node),
            Term::PodAffinity | Term::PodTopologySpread => 0,
        }
    }

    fn score_all(
        &self,
        _cluster: &Cluster,
        class: ClassIdx,
        nodes: &[NodeIdx],
        term: u8,
        scores: &mut [i64],
    ) {
        let constraint_class = self.classes.of(class);
        match Term::of_id(term) {
            Term::PodAffinity => self.pods.score_all(&self.labels, constraint_class, nodes, scores),
            Term::PodTopologySpread => {
                self.spread.score_all(&self.labels, constraint_class, nodes, scores);
            }
            Term::NodeAffinity
            | Term::LeastRequested
            | Term::BalancedResource
            | Term::MostRequested
            | Term::TaintToleration
            | Term::ImageLocality => {}
        }
    }
}
