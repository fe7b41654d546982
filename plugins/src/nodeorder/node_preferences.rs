//! Preferred node affinity, and taints that would rather keep pods away.
//!
//! Affinity: the sum of the weights of the preferred terms that a node meets. Taints: the number of
//! a node's PreferNoSchedule taints that are not tolerated. The framework scales both by the largest
//! of the candidates.
//!
//! Source: Kubernetes 1.36, `plugins/nodeaffinity` and `tainttoleration`.

use kube_batch_api::column::{Column, NodeIdx};

use crate::{
    node_labels::NodeLabels,
    node_tests::{AllOf, Compiler},
    profiles::{Profile, Profiles},
    taints::{TaintSet, TaintSets},
};

/// What profiles prefer of nodes.
#[derive(Debug, Default)]
pub(super) struct NodePreferences {
    taints: TaintSets,
    /// Weights and terms.
    preferred: Column<Profile, Vec<(i64, AllOf)>>,
    /// Taints not tolerated, by set; empty if all nodes have the same number.
    disliked: Column<Profile, Column<TaintSet, i64>>,
}

impl NodePreferences {
    pub(super) fn new(compiler: &mut Compiler<'_>, profiles: &Profiles, taints: TaintSets) -> Self {
        let mut preferred = Column::filled(Vec::new(), profiles.len());
        let mut disliked = Column::filled(Column::new(), profiles.len());
        for profile in profiles.asked() {
            let template = profiles.template(compiler.cluster, profile);
            let terms = template.preferred_nodes.iter();
            preferred[profile] = terms
                .filter_map(|(weight, term)| Some((*weight, compiler.node_term(term)?)))
                .collect();
            let counts = taints.disliked(&template.tolerations);
            let differ = counts.values().min() != counts.values().max();
            if differ {
                disliked[profile] = counts;
            }
        }
        Self { taints, preferred, disliked }
    }

    /// Whether the profile prefers some nodes by label.
    pub(super) fn has_affinity(&self, profile: Profile) -> bool {
        !self.preferred[profile].is_empty()
    }

    /// Whether nodes differ in taints that the profile does not tolerate.
    pub(super) fn has_taints(&self, profile: Profile) -> bool {
        !self.disliked[profile].is_empty()
    }

    /// The weights of the terms the node meets.
    pub(super) fn affinity(&self, labels: &NodeLabels, profile: Profile, node: NodeIdx) -> i64 {
        let met = self.preferred[profile].iter().filter(|(_, term)| term.passes(labels, node));
        met.map(|(weight, _)| weight).sum()
    }

    /// The number of taints that are not tolerated.
    pub(super) fn taints(&self, profile: Profile, node: NodeIdx) -> i64 {
        self.disliked[profile].get(self.taints.of(node)).copied().unwrap_or(0)
    }
}
