//! What applies to one class: which plugins refuse, which score, and what never changes.

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx, Ordinal},
    name::Name,
    reason::Unfit,
};

use super::Asked;
use crate::plugin::{Scale, ScoreTerm, Sensitivities, Sensitivity, View};
use crate::policy::{Policy, Position};

/// The rules of one class, collected once in a cycle.
#[derive(Clone, Debug)]
pub(crate) struct ClassRules {
    pub(super) admission: Result<(), Name>,
    /// The plugins that have rules, with the sensitivities of those.
    predicates: Vec<(Position, Sensitivities)>,
    /// The plugins that score, with their terms.
    terms: Vec<(Position, ScoreTerm)>,
}

impl ClassRules {
    pub(super) fn new(cluster: &Cluster, policy: &Policy, class: ClassIdx) -> Self {
        Self {
            admission: policy.class_admitted(cluster, class),
            predicates: policy.sensitivities(cluster, class),
            terms: policy.score_terms(cluster, class),
        }
    }

    /// Whether the class can go anywhere at all.
    pub(super) const fn admitted(&self) -> bool {
        self.admission.is_ok()
    }

    pub(super) fn terms(&self) -> &[(Position, ScoreTerm)] {
        &self.terms
    }

    pub(super) fn sensitivities(&self) -> Sensitivities {
        self.predicates.iter().fold(Sensitivities::NONE, |all, (_, own)| all | *own)
    }

    /// Whether an index can follow every answer: nothing depends on the cluster as a whole.
    pub(super) fn is_indexable(&self) -> bool {
        !self.sensitivities().has(Sensitivity::Cluster)
            && self.terms.iter().all(|(_, term)| match term.scale {
                Scale::AsIs => term.sensitivity != Sensitivity::Cluster,
                Scale::UpToLargest | Scale::DownFromLargest => {
                    term.sensitivity == Sensitivity::Fixed
                }
                Scale::Joint => false,
            })
    }

    /// The rules of one sensitivity; of several refusals the one Kubernetes would meet first.
    pub(super) fn predicate(
        &self,
        policy: &Policy,
        cluster: &Cluster,
        class: ClassIdx,
        node: NodeIdx,
        sensitivity: Sensitivity,
        view: View,
    ) -> Result<(), Unfit> {
        let refusals = self
            .predicates
            .iter()
            .filter(|(_, sensitivities)| sensitivities.has(sensitivity))
            .filter_map(|(at, _)| {
                policy.plugin(*at).predicate(cluster, class, node, sensitivity, view).err()
            });
        refusals.min().map_or(Ok(()), Err)
    }
}

/// The nodes that pass the fixed rules of one set of constraints.
#[derive(Clone, Debug)]
pub(crate) struct Eligibility {
    nodes: Vec<NodeIdx>,
    has: Vec<bool>,
}

impl Eligibility {
    pub(super) fn new(asked: Asked<'_>, class: ClassIdx, rules: &ClassRules) -> Self {
        let all = asked.cluster.nodes.facts.ids();
        let has: Vec<bool> = if rules.sensitivities().has(Sensitivity::Fixed) {
            all.map(|node| {
                let (policy, cluster) = (asked.policy, asked.cluster);
                rules.predicate(policy, cluster, class, node, Sensitivity::Fixed, View::Now).is_ok()
            })
            .collect()
        } else {
            vec![true; all.len()]
        };
        let nodes = has.iter().enumerate().filter(|(_, has)| **has);
        Self { nodes: nodes.map(|(at, _)| NodeIdx::new(at)).collect(), has }
    }

    /// Ascending.
    pub(super) fn nodes(&self) -> &[NodeIdx] {
        &self.nodes
    }

    pub(super) fn has(&self, node: NodeIdx) -> bool {
        self.has[node.at()]
    }
}
