//! Preferences between pods.
//!
//! A node gathers, over the domains it is in:
//!
//! - for each own preferred term, its weight for every pod there that matches it;
//! - for each pod there, the weight of every preferred term it carries that matches the new pod, and
//!   1 for every required affinity term that does.
//!
//! Anti-affinity counts negative. Then `100 * (sum - least) / (most - least)` over the candidates;
//! 0 for all if all are equal.
//!
//! Source: Kubernetes 1.36, `plugins/interpodaffinity/scoring.go`, with
//! `hardPodAffinityWeight` 1. Floats where Kubernetes has them, in its order.

use kube_batch_api::{
    column::{Column, NodeIdx},
    facts::class::{PodTerm, PodTerms},
};
use kube_batch_framework::plugin::Capacity;

use crate::{
    constraint_classes::{ConstraintClassIdx, ConstraintClasses},
    node_labels::NodeLabels,
    node_tests::Compiler,
    topology_counts::{PodCountChange, TopologyCountIdx, TopologyCounts},
};

/// What a required affinity term of a pod that is there is worth.
const HARD_WEIGHT: i64 = 1;

/// What classes like to be near to.
#[derive(Debug, Default)]
pub(super) struct PodPreferences {
    topology_counts: TopologyCounts,
    /// What each pod of a topology count in the node's domain is worth.
    worth: Column<ConstraintClassIdx, Vec<(TopologyCountIdx, i64)>>,
}

impl PodPreferences {
    pub(super) fn new(compiler: &mut Compiler<'_>, classes: &ConstraintClasses) -> Self {
        let cluster = compiler.cluster;
        let mut topology_counts = TopologyCounts::new(classes);
        let mut worth = Column::filled(Vec::new(), classes.len());
        for constraint_class in classes.to_place() {
            let terms = preferred(&classes.template(cluster, constraint_class).pod_terms);
            let own =
                terms.map(|(weight, term)| (topology_counts.matching_term(compiler, term), weight));
            worth[constraint_class] = own.collect();
        }
        topology_counts.carry(compiler, classes, |terms| {
            preferred(terms).chain(terms.required.iter().map(|term| (HARD_WEIGHT, term)))
        });
        for constraint_class in classes.to_place() {
            worth[constraint_class].extend(topology_counts.carried(
                cluster,
                classes,
                constraint_class,
            ));
        }
        topology_counts.connect(cluster, classes);
        Self { topology_counts, worth }
    }

    /// Whether anything is worth something to the constraint class.
    pub(super) fn concerns(&self, constraint_class: ConstraintClassIdx) -> bool {
        !self.worth[constraint_class].is_empty()
    }

    pub(super) fn score_all(
        &self,
        labels: &NodeLabels,
        constraint_class: ConstraintClassIdx,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) {
        let gathered = |node: NodeIdx| {
            let terms = self.worth[constraint_class].iter();
            let parts = terms.filter_map(|(topology_count, weight)| {
                let count =
                    self.topology_counts.count(labels, *topology_count, node, Capacity::Idle)?;
                Some(weight * i64::from(count))
            });
            parts.sum::<i64>()
        };
        for (score, node) in scores.iter_mut().zip(nodes) {
            *score = gathered(*node);
        }
        let least = scores.iter().copied().min().unwrap_or(0);
        let most = scores.iter().copied().max().unwrap_or(0);
        for score in scores {
            let part = (*score - least) as f64 / (most - least) as f64;
            *score = if most == least { 0 } else { (100.0 * part) as i64 };
        }
    }

    /// A task of the constraint class came to a node or left it.
    pub(super) fn moved(
        &mut self,
        labels: &NodeLabels,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
        change: PodCountChange,
    ) {
        self.topology_counts.moved(labels, constraint_class, node, change);
    }
}

/// Preferred terms with their weights; those of anti-affinity count negative.
fn preferred(terms: &PodTerms) -> impl Iterator<Item = (i64, &PodTerm)> {
    let likes = terms.preferred.iter().map(|(weight, term)| (*weight, term));
    likes.chain(terms.preferred_anti.iter().map(|(weight, term)| (-weight, term)))
}
