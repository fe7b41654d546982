//! Inter-pod affinity and anti-affinity.
//!
//! Asked in this order, the first failure speaks:
//!
//! 1. Own affinity: for every term the node's domain holds a pod that matches all terms at once.
//!    The first pod of a group may go wherever all keys are: no pod that matches all terms stands
//!    in any domain, and the pod matches its own terms.
//! 2. Own anti-affinity: no term's domain holds a pod that matches that term.
//! 3. Anti-affinity of the pods that are there, in the domains of their nodes.
//!
//! Source: Kubernetes 1.36, `plugins/interpodaffinity/filtering.go`.

use kube_batch_api::{
    column::{Column, MatcherIdx, NodeIdx},
    facts::class::PodTemplate,
    name::Name,
    reason::Unfit,
};
use kube_batch_framework::plugin::Capacity;

use crate::{
    constraint_classes::{ConstraintClassIdx, ConstraintClasses},
    node_labels::NodeLabels,
    node_tests::Compiler,
    topology_counts::{PodCountChange, TopologyCountIdx, TopologyCounts, matcher_row},
};

/// The rules about other pods.
#[derive(Debug, Default)]
pub(super) struct PodAffinity {
    topology_counts: TopologyCounts,
    rules: Column<ConstraintClassIdx, Rules>,
}

/// The topology counts to look at for a constraint class.
#[derive(Clone, Debug, Default)]
struct Rules {
    /// Pods that match all own affinity terms, by the key of each term.
    affinity: Vec<TopologyCountIdx>,
    /// Whether the pod matches all its own affinity terms.
    matches_itself: bool,
    /// Pods that match an own anti-affinity term.
    anti: Vec<TopologyCountIdx>,
    /// Pods that carry an anti-affinity term that matches the pod.
    anti_of_others: Vec<TopologyCountIdx>,
}

impl PodAffinity {
    pub(super) fn new(compiler: &mut Compiler<'_>, classes: &ConstraintClasses) -> Self {
        let cluster = compiler.cluster;
        let mut topology_counts = TopologyCounts::new(classes);
        let mut rules = Column::filled(Rules::default(), classes.len());
        for constraint_class in classes.to_place() {
            rules[constraint_class] =
                own_rules(compiler, classes, constraint_class, &mut topology_counts);
        }
        topology_counts
            .carry(compiler, classes, |terms| terms.required_anti.iter().map(|term| (1, term)));
        for constraint_class in classes.to_place() {
            let carried = topology_counts.carried(cluster, classes, constraint_class);
            rules[constraint_class].anti_of_others =
                carried.map(|(topology_count, _)| topology_count).collect();
        }
        topology_counts.connect(cluster, classes);
        Self { topology_counts, rules }
    }

    /// Whether there are rules for the constraint class.
    pub(super) fn concerns(&self, constraint_class: ConstraintClassIdx) -> bool {
        let Rules { affinity, anti, anti_of_others, matches_itself: _ } =
            &self.rules[constraint_class];
        !affinity.is_empty() || !anti.is_empty() || !anti_of_others.is_empty()
    }

    pub(super) fn check(
        &self,
        labels: &NodeLabels,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> Result<(), Unfit> {
        let rules = &self.rules[constraint_class];
        if !self.has_company(rules, labels, node, capacity) {
            return Err(Unfit::PodAffinity);
        }
        let is_there = |topology_count: &TopologyCountIdx| {
            self.topology_counts
                .count(labels, *topology_count, node, capacity)
                .is_some_and(|n| n > 0)
        };
        if rules.anti.iter().any(is_there) {
            return Err(Unfit::PodAntiAffinity);
        }
        if rules.anti_of_others.iter().any(is_there) {
            return Err(Unfit::ExistingAntiAffinity);
        }
        Ok(())
    }

    fn has_company(
        &self,
        rules: &Rules,
        labels: &NodeLabels,
        node: NodeIdx,
        capacity: Capacity,
    ) -> bool {
        let mut everywhere = true;
        for topology_count in &rules.affinity {
            match self.topology_counts.count(labels, *topology_count, node, capacity) {
                None => return false,
                Some(count) => everywhere &= count > 0,
            }
        }
        let is_nowhere = |topology_count: &TopologyCountIdx| {
            self.topology_counts.total(*topology_count, capacity) == 0
        };
        everywhere || (rules.matches_itself && rules.affinity.iter().all(is_nowhere))
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

/// Why the inter-pod terms of a pod cannot be understood.
pub(super) fn refusal(template: &PodTemplate) -> Option<Name> {
    let broken = template.pod_terms.broken.as_ref()?;
    Some(Name::from(format!("parsing pod: {broken}")))
}

fn own_rules(
    compiler: &mut Compiler<'_>,
    classes: &ConstraintClasses,
    constraint_class: ConstraintClassIdx,
    topology_counts: &mut TopologyCounts,
) -> Rules {
    let cluster = compiler.cluster;
    let terms = &classes.template(cluster, constraint_class).pod_terms;
    let required = terms.required.iter();
    let mut all: Vec<MatcherIdx> =
        required.clone().map(|term| matcher_row(cluster, &term.matcher)).collect();
    all.sort_unstable();
    all.dedup();
    let own = classes.matched_by(cluster, constraint_class);
    Rules {
        matches_itself: all.iter().all(|matcher| own.binary_search(matcher).is_ok()),
        affinity: required
            .map(|term| topology_counts.matching(all.clone(), compiler.key(&term.topology_key)))
            .collect(),
        anti: terms
            .required_anti
            .iter()
            .map(|term| topology_counts.matching_term(compiler, term))
            .collect(),
        anti_of_others: Vec::new(),
    }
}
