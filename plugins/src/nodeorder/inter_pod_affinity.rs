//! Preferred inter-pod affinity and anti-affinity.
//!
//! The raw score of a node is a sum over the domains it is in:
//!
//! - for each own preferred term, its weight for every pod there that matches it;
//! - for each pod there, the weight of every preferred term it carries that matches the new pod, and
//!   1 for every required affinity term that does.
//!
//! Anti-affinity counts negative. The score is `100 * (raw - least) / (most - least)` over the
//! candidates, or 0 for all if all are equal.
//!
//! Source: Kubernetes 1.36, `plugins/interpodaffinity/scoring.go`, with `hardPodAffinityWeight` 1.
//! Floats where Kubernetes has them, in its order.

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, Column, NodeIdx},
    facts::class::{PodTerm, PodTerms},
};
use kube_batch_framework::plugin::{Capacity, Dependency, Scale};

use super::{arguments::NodeOrderArguments, score::Score};
use crate::{
    compiled::Opening,
    constraint_classes::ConstraintClassIdx,
    pod_count::Placed,
    topology_counts::{TopologyCountIdx, TopologyCounts},
};

/// The weight of a required affinity term of another pod.
const HARD_POD_AFFINITY_WEIGHT: i64 = 1;

#[derive(Debug)]
struct InterPodAffinity {
    counts: TopologyCounts,
    /// The weight of each pod of a count in the node's domain.
    weights: Column<ConstraintClassIdx, Vec<(TopologyCountIdx, i64)>>,
}

pub(super) fn build(opening: Opening<'_>, _: &NodeOrderArguments) -> Box<dyn Score> {
    let mut counts = TopologyCounts::new(opening);
    let mut weights = opening.by_class(Vec::new());
    for class in opening.classes().to_place() {
        let terms = preferred(&opening.template(class).pod_terms);
        let own = terms.map(|(weight, term)| (counts.matching_term(opening, term), weight));
        weights[class] = own.collect();
    }
    counts.add_carried_terms(opening, |terms| {
        let required = terms.required.iter().map(|term| (HARD_POD_AFFINITY_WEIGHT, term));
        preferred(terms).chain(required)
    });
    for class in opening.classes().to_place() {
        weights[class].extend(counts.carried_terms(opening, class));
    }
    counts.connect(opening);
    Box::new(InterPodAffinity { counts, weights })
}

/// Preferred terms with their weights; those of anti-affinity are negative.
fn preferred(terms: &PodTerms) -> impl Iterator<Item = (i64, &PodTerm)> {
    let affinity = terms.preferred.iter().map(|(weight, term)| (*weight, term));
    affinity.chain(terms.preferred_anti.iter().map(|(weight, term)| (-weight, term)))
}

impl Score for InterPodAffinity {
    fn dependency(&self) -> Dependency {
        Dependency::Cluster
    }

    fn scale(&self) -> Scale {
        Scale::Joint
    }

    fn applies(&self, cluster: &Cluster, class: ClassIdx) -> bool {
        !self.weights[cluster.classes.constraint_class[class]].is_empty()
    }

    fn score_all(&self, cluster: &Cluster, class: ClassIdx, nodes: &[NodeIdx], scores: &mut [i64]) {
        let weights = &self.weights[cluster.classes.constraint_class[class]];
        let raw = |node: NodeIdx| {
            let parts = weights.iter().filter_map(|(count, weight)| {
                let n_pods = self.counts.get(*count, node, Capacity::Idle)?;
                Some(weight * i64::from(n_pods))
            });
            parts.sum::<i64>()
        };
        for (score, node) in scores.iter_mut().zip(nodes) {
            *score = raw(*node);
        }
        let least = scores.iter().copied().min().unwrap_or(0);
        let most = scores.iter().copied().max().unwrap_or(0);
        for score in scores {
            let part = (*score - least) as f64 / (most - least) as f64;
            *score = if most == least { 0 } else { (100.0 * part) as i64 };
        }
    }

    fn on_placement(&mut self, placed: &Placed) {
        self.counts.on_placement(placed);
    }
}
