//! Preferred node affinity, and taints that would rather keep pods away.
//!
//! Affinity: the sum of the weights of the preferred terms that a node meets. Taints: the number of
//! a node's PreferNoSchedule taints that are not tolerated. The framework scales both by the largest
//! of the candidates.
//!
//! Source: Kubernetes 1.36, `plugins/nodeaffinity` and `tainttoleration`.

use kube_batch_api::column::{Column, NodeIdx};

use crate::{
    constraint_classes::{ConstraintClassIdx, ConstraintClasses},
    node_labels::NodeLabels,
    node_tests::{AllOf, Compiler},
    taints::{TaintSet, TaintSets},
};

/// What classes prefer of nodes.
#[derive(Debug, Default)]
pub(super) struct NodePreferences {
    taints: TaintSets,
    /// Weights and terms.
    preferred: Column<ConstraintClassIdx, Vec<(i64, AllOf)>>,
    /// Taints not tolerated, by set; empty if all nodes have the same number.
    disliked: Column<ConstraintClassIdx, Column<TaintSet, i64>>,
}

impl NodePreferences {
    pub(super) fn new(
        compiler: &mut Compiler<'_>,
        classes: &ConstraintClasses,
        taints: TaintSets,
    ) -> Self {
        let mut preferred = Column::filled(Vec::new(), classes.len());
        let mut disliked = Column::filled(Column::new(), classes.len());
        for constraint_class in classes.to_place() {
            let template = classes.template(compiler.cluster, constraint_class);
            let terms = template.preferred_nodes.iter();
            preferred[constraint_class] = terms
                .filter_map(|(weight, term)| Some((*weight, compiler.node_term(term)?)))
                .collect();
            let counts = taints.disliked(&template.tolerations);
            let differ = counts.values().min() != counts.values().max();
            if differ {
                disliked[constraint_class] = counts;
            }
        }
        Self { taints, preferred, disliked }
    }

    /// Whether the constraint class prefers some nodes by label.
    pub(super) fn has_affinity(&self, constraint_class: ConstraintClassIdx) -> bool {
        !self.preferred[constraint_class].is_empty()
    }

    /// Whether nodes differ in taints that the constraint class does not tolerate.
    pub(super) fn has_taints(&self, constraint_class: ConstraintClassIdx) -> bool {
        !self.disliked[constraint_class].is_empty()
    }

    /// The weights of the terms the node meets.
    pub(super) fn affinity(
        &self,
        labels: &NodeLabels,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
    ) -> i64 {
        let met =
            self.preferred[constraint_class].iter().filter(|(_, term)| term.passes(labels, node));
        met.map(|(weight, _)| weight).sum()
    }

    /// The number of taints that are not tolerated.
    pub(super) fn taints(&self, constraint_class: ConstraintClassIdx, node: NodeIdx) -> i64 {
        self.disliked[constraint_class].get(self.taints.of(node)).copied().unwrap_or(0)
    }
}
