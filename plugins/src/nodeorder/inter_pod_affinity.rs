//! Preferred inter-pod affinity and anti-affinity.
//!
//! The raw score of a node is a sum over the domains it is in:
//!
//! - for each own preferred term, its weight for every pod there that matches it;
//! - for each pod there, the weight of every preferred term it carries that matches the new pod, and
//!   1 for every required affinity term that does.
//!
//! Anti-affinity counts negative. The framework normalises the raw scores ([`Scale::FromLeast`]).
//!
//! Source: Kubernetes 1.36, `plugins/interpodaffinity/scoring.go`, with `hardPodAffinityWeight` 1.
//! Floats where Kubernetes has them, in its order.

use std::sync::Arc;

use kube_batch_framework::plugin::{Capacity, Dependency, Scale};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, NodeIdx},
    facts::class::{PodTerm, PodTerms},
};

use super::{arguments::NodeOrderArguments, score::Score};
use crate::{
    compiled::Opening,
    constraint_classes::ConstraintClassIdx,
    node_labels::LabelColumn,
    pod_count::Placed,
    pod_term_counts::{PodTermCountIdx, PodTermCounts},
};

/// The weight of a required affinity term of another pod.
const HARD_POD_AFFINITY_WEIGHT: i64 = 1;

#[derive(Debug)]
struct InterPodAffinity {
    counts: PodTermCounts,
    /// What is added up for a class: the sum of weights in the node's domain, for each label.
    weights: Column<ConstraintClassIdx, Vec<PodTermCountIdx>>,
}

pub(super) fn build(opening: Opening<'_>, _: &NodeOrderArguments) -> Box<dyn Score> {
    let mut counts = PodTermCounts::new(opening);
    let mut weights = opening.by_class(Vec::new());
    let classes = opening.term_classes();
    let mut of_class = classes.column(Vec::new());
    for class in classes.to_place() {
        let terms = preferred(&opening.template(classes.first(class)).pod_terms);
        of_class[class] = counts.matching_terms(opening, terms, i64::wrapping_add);
    }
    let of_pod = |terms| preferred(terms).chain(required(terms));
    let mut carried = counts.carried_terms(opening, of_pod, i64::wrapping_add);
    for class in classes.to_place() {
        of_class[class].append(&mut carried[class]);
    }
    counts.finish();
    for class in opening.classes().to_place() {
        weights[class].clone_from(&of_class[classes.of(class)]);
    }
    Box::new(InterPodAffinity { counts, weights })
}

/// Preferred terms with their weights; those of anti-affinity are negative.
fn preferred(terms: &PodTerms) -> impl Iterator<Item = (i64, &PodTerm)> {
    let affinity = terms.preferred.iter().map(|(weight, term)| (*weight, term));
    affinity.chain(terms.preferred_anti.iter().map(|(weight, term)| (-weight, term)))
}

/// Required affinity terms with their weights.
fn required(terms: &PodTerms) -> impl Iterator<Item = (i64, &PodTerm)> {
    terms.required.iter().map(|term| (HARD_POD_AFFINITY_WEIGHT, term))
}

impl Score for InterPodAffinity {
    fn dependency(&self) -> Dependency {
        Dependency::Domain
    }

    fn scale(&self) -> Scale {
        Scale::FromLeast
    }

    fn version(&self, cluster: &Cluster, class: ClassIdx) -> u64 {
        self.counts.n_changes(&self.weights[cluster.classes.constraint_class[class]])
    }

    fn domains(&self, cluster: &Cluster, class: ClassIdx) -> Option<Vec<Arc<LabelColumn>>> {
        let weights = &self.weights[cluster.classes.constraint_class[class]];
        Some(self.counts.labels(weights).collect())
    }

    fn applies(&self, cluster: &Cluster, class: ClassIdx) -> bool {
        !self.weights[cluster.classes.constraint_class[class]].is_empty()
    }

    fn score(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx) -> i64 {
        let weights = &self.weights[cluster.classes.constraint_class[class]];
        weights.iter().filter_map(|count| self.counts.get(*count, node, Capacity::Idle)).sum()
    }

    fn follows(&self) -> bool {
        !self.counts.is_empty()
    }

    fn on_placement(&mut self, placed: &Placed) {
        self.counts.on_placement(placed);
    }
}
