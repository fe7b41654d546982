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

pub mod arguments;
mod dynamic_resources;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_resources_balanced_allocation;
mod node_resources_fit;
mod pod_topology_spread;
mod score;
mod scored_resources;
mod taint_toleration;

use kube_batch_framework::{
    plugin::{
        Dependencies, Dependency, DomainColumn, OrderScope, PlacementChange, Plugin, Prescription,
        Scale, ScoreTerm, VictimQuestion, VictimScope,
    },
    session_cache::SessionCache,
    spec::PluginSpec,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx, TaskIdx},
};

use self::arguments::NodeOrderArguments;
use self::score::{BuildScore, Score};
use crate::{
    compiled::{CompiledCluster, Opening},
    pod_count::{Placed, placements},
};

/// The weight of a score.
type Weight = fn(&NodeOrderArguments) -> i64;

/// All scores with their weights. The framework adds them up, so the order makes no difference.
const SCORES: &[(Weight, BuildScore)] = &[
    (|weights| weights.nodeaffinity, node_affinity::build),
    (|weights| weights.podaffinity, inter_pod_affinity::build),
    (|weights| weights.leastrequested, node_resources_fit::build_least_requested),
    (|weights| weights.balancedresource, node_resources_balanced_allocation::build),
    (|weights| weights.mostrequested, node_resources_fit::build_most_requested),
    (|weights| weights.tainttoleration, taint_toleration::build),
    (|weights| weights.podtopologyspread, pod_topology_spread::build),
    (|weights| weights.imagelocality, image_locality::build),
    (|weights| weights.dynamicresources, dynamic_resources::build),
];

/// The plugin `nodeorder`.
#[derive(Debug, Default)]
pub struct NodeOrder {
    arguments: NodeOrderArguments,
    /// Scores with a weight other than 0. The framework knows a score by its position.
    scores: Vec<Weighted>,
    /// Whether any of them follows placements.
    follows: bool,
}

#[derive(Debug)]
struct Weighted {
    weight: i64,
    score: Box<dyn Score>,
}

impl NodeOrder {
    /// The plugin with its weights, before any session.
    pub fn new(arguments: NodeOrderArguments) -> Self {
        Self { arguments, ..Self::default() }
    }

    fn open(arguments: NodeOrderArguments, opening: Opening<'_>) -> Self {
        let weighted = SCORES.iter().map(|(weight, build)| (weight(&arguments), build));
        let scores: Vec<Weighted> = weighted
            .filter(|(weight, _)| *weight != 0)
            .map(|(weight, build)| Weighted { weight, score: build(opening, &arguments) })
            .collect();
        let follows = scores.iter().any(|weighted| weighted.score.follows());
        let mut opened = Self { arguments, scores, follows };
        if follows {
            for placed in placements(opening.cluster) {
                opened.follow(&placed);
            }
        }
        opened
    }

    fn follow(&mut self, placed: &Placed) {
        for Weighted { score, .. } in self.scores.iter_mut().filter(|own| own.score.follows()) {
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
    arguments: &arguments::SPECS,
    metadata_prefixes: &[],
    new: |arguments| Box::new(NodeOrder::new(NodeOrderArguments::of(arguments))),
};

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

    fn on_placement(&mut self, cluster: &Cluster, change: &PlacementChange) {
        if self.follows {
            self.follow(&Placed::new(cluster, change));
        }
    }

    fn on_prescription(&mut self, prescription: Prescription) {
        match prescription {
            Prescription::Alternative(alternative) => {
                self.scores.iter_mut().for_each(|own| own.score.try_first(alternative));
            }
            Prescription::Domain(..) => {}
        }
    }

    fn version(&self, cluster: &Cluster, class: ClassIdx) -> u64 {
        self.scores.iter().map(|weighted| weighted.score.version(cluster, class)).sum()
    }

    fn domains(&self, cluster: &Cluster, class: ClassIdx) -> Option<Vec<DomainColumn>> {
        let applicable = self.scores.iter().filter(|own| own.score.applies(cluster, class));
        let mut of_domains = applicable.filter(|own| {
            own.score.dependency() == Dependency::Domain || own.score.scale() == Scale::Joint
        });
        let labels = of_domains.try_fold(Vec::new(), |mut labels, own| {
            labels.extend(own.score.domains(cluster, class)?);
            Some(labels)
        });
        Some(labels?.into_iter().map(|labels| labels.numbers()).collect())
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

    fn scores(
        &self,
        cluster: &Cluster,
        class: ClassIdx,
        nodes: &[NodeIdx],
        term: u8,
        scores: &mut [i64],
    ) {
        self.score_of(term).scores(cluster, class, nodes, scores);
    }

    fn victim_scope(&self, _: &Cluster, _: TaskIdx, _: VictimQuestion) -> VictimScope {
        VictimScope::NONE
    }
}
