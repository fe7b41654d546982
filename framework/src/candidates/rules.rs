//! What applies to one class: which plugins refuse, which score, and what never changes.

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx, Ordinal},
    name::Name,
    reason::Unfit,
};

use super::Inputs;
use crate::plugin::{Capacity, Dependencies, Dependency, Scale, ScoreTerm};
use crate::policy::{Policy, Position};

/// The rules of one class, collected once in a cycle.
#[derive(Clone, Debug)]
pub(crate) struct ClassRules {
    pub(super) admission: Result<(), Name>,
    /// The plugins that have rules, with the dependencies of those.
    predicates: Vec<(Position, Dependencies)>,
    /// The plugins that score, with their terms.
    terms: Vec<(Position, ScoreTerm)>,
}

impl ClassRules {
    pub(super) fn new(cluster: &Cluster, policy: &Policy, class: ClassIdx) -> Self {
        Self {
            admission: policy.about(cluster).class_admitted(class),
            predicates: policy.about(cluster).dependencies(class),
            terms: policy.about(cluster).score_terms(class),
        }
    }

    /// Whether the class can go anywhere at all.
    pub(super) const fn admitted(&self) -> bool {
        self.admission.is_ok()
    }

    pub(super) fn terms(&self) -> &[(Position, ScoreTerm)] {
        &self.terms
    }

    pub(super) fn dependencies(&self) -> Dependencies {
        self.predicates.iter().fold(Dependencies::NONE, |all, (_, own)| all | *own)
    }

    /// Whether an index can follow every answer: nothing depends on the cluster as a whole.
    pub(super) fn is_indexable(&self) -> bool {
        !self.dependencies().has(Dependency::Cluster)
            && self.terms.iter().all(|(_, term)| match term.scale {
                Scale::AsIs => term.dependency != Dependency::Cluster,
                Scale::UpToLargest | Scale::DownFromLargest => term.dependency == Dependency::Class,
                Scale::Joint => false,
            })
    }

    /// The rules of one dependency; of several refusals the one Kubernetes would meet first.
    pub(super) fn predicate(
        &self,
        policy: &Policy,
        cluster: &Cluster,
        class: ClassIdx,
        node: NodeIdx,
        dependency: Dependency,
        capacity: Capacity,
    ) -> Result<(), Unfit> {
        let refusals = self
            .predicates
            .iter()
            .filter(|(_, dependencies)| dependencies.has(dependency))
            .filter_map(|(at, _)| {
                policy.plugin(*at).predicate(cluster, class, node, dependency, capacity).err()
            });
        refusals.min().map_or(Ok(()), Err)
    }
}

/// The nodes that pass the rules that depend on the class alone, for one set of constraints.
#[derive(Clone, Debug)]
pub(crate) struct Eligibility {
    nodes: Vec<NodeIdx>,
    has: Vec<bool>,
}

impl Eligibility {
    pub(super) fn new(inputs: Inputs<'_>, class: ClassIdx, rules: &ClassRules) -> Self {
        let all = inputs.cluster.nodes.facts.ids();
        let has: Vec<bool> = if rules.dependencies().has(Dependency::Class) {
            all.map(|node| {
                let (policy, cluster) = (inputs.policy, inputs.cluster);
                rules
                    .predicate(policy, cluster, class, node, Dependency::Class, Capacity::Idle)
                    .is_ok()
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
