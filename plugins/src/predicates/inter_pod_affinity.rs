//! Required inter-pod affinity and anti-affinity.
//!
//! The rules run in this order, and the first that refuses gives the reason:
//!
//! 1. The pod's own affinity: for every term, the node's domain has a pod that matches all terms.
//!    The first pod of a group may go to any node that has all the labels: no domain has a pod that
//!    matches all terms, and the pod matches its own terms.
//! 2. The pod's own anti-affinity: for no term, the node's domain has a pod that matches it.
//! 3. The anti-affinity of the pods on the nodes, in the domains of their nodes.
//!
//! Source: Kubernetes 1.36, `plugins/interpodaffinity/filtering.go`.

use std::sync::Arc;

use kube_batch_framework::plugin::{Capacity, Dependencies, Dependency, NodesByDomain};
use kube_batch_model::{
    column::Column,
    facts::class::{PodTerm, PodTerms},
    name::Name,
    reason::{Cause, Inadmissible, Unfit},
};

use super::{
    arguments::PredicatesArguments,
    filter::{Filter, Query},
};
use crate::{
    compiled::Opening,
    constraint_classes::ConstraintClassIdx,
    node_labels::LabelColumn,
    pod_count::Placed,
    pod_term_counts::{PodTermCountIdx, PodTermCounts, matcher_row},
};

#[derive(Debug)]
struct InterPodAffinity {
    counts: PodTermCounts,
    terms: Column<ConstraintClassIdx, Terms>,
    /// Why the terms of a class cannot be parsed.
    refusals: Column<ConstraintClassIdx, Option<Name>>,
}

/// The counts to look up for a constraint class. Each list has one count for each label.
#[derive(Clone, Debug, Default)]
struct Terms {
    /// Pods that match all own affinity terms.
    affinity: Vec<PodTermCountIdx>,
    /// Whether the pod matches all its own affinity terms.
    matches_itself: bool,
    /// Pods that match an own anti-affinity term.
    anti_affinity: Vec<PodTermCountIdx>,
    /// Pods that carry an anti-affinity term which matches the pod.
    anti_affinity_of_others: Vec<PodTermCountIdx>,
}

fn required_anti(terms: &PodTerms) -> impl Iterator<Item = (i64, &PodTerm)> {
    terms.required_anti.iter().map(|term| (1, term))
}

/// A pod counts once, however many terms with the label there are.
const fn once(_: i64, _: i64) -> i64 {
    1
}

pub(super) fn build(opening: Opening<'_>, _: &PredicatesArguments) -> Box<dyn Filter> {
    let mut counts = PodTermCounts::new(opening);
    let mut terms = opening.by_class(Terms::default());
    let classes = opening.term_classes();
    let mut of_class = classes.column(Terms::default());
    for class in classes.to_place() {
        of_class[class] = own_terms(opening, classes.first(class), &mut counts);
    }
    let mut carried = counts.carried_terms(opening, required_anti, once);
    for class in classes.to_place() {
        of_class[class].anti_affinity_of_others = std::mem::take(&mut carried[class]);
    }
    counts.finish();
    for class in opening.classes().to_place() {
        terms[class].clone_from(&of_class[classes.of(class)]);
    }
    let mut refusals = opening.by_class(None);
    for class in opening.classes().to_place() {
        let Some(broken) = &opening.template(class).pod_terms.broken else { continue };
        let task = &opening.cluster.tasks.facts[opening.classes().first_task(class)];
        refusals[class] = Some(Name::from(format!("parsing pod {}: {broken}", task.key)));
    }
    Box::new(InterPodAffinity { counts, terms, refusals })
}

fn own_terms(opening: Opening<'_>, class: ConstraintClassIdx, counts: &mut PodTermCounts) -> Terms {
    let terms = &opening.template(class).pod_terms;
    let required = &terms.required;
    let own = opening.matched_by(class);
    let matches_itself = |term: &PodTerm| {
        let matcher = matcher_row(opening.cluster, &term.matcher);
        own.contains(matcher)
    };
    Terms {
        matches_itself: required.iter().all(matches_itself),
        affinity: counts.matching_all(opening, required),
        anti_affinity: counts.matching_terms(opening, required_anti(terms), once),
        anti_affinity_of_others: Vec::new(),
    }
}

impl InterPodAffinity {
    fn affinity_is_met(&self, query: Query) -> bool {
        let terms = &self.terms[query.class];
        let mut is_everywhere = true;
        for count in &terms.affinity {
            match self.counts.get(*count, query.node, query.capacity) {
                None => return false,
                Some(n_pods) => is_everywhere &= n_pods > 0,
            }
        }
        let is_nowhere = |count: &PodTermCountIdx| self.counts.total(*count, query.capacity) == 0;
        is_everywhere || (terms.matches_itself && terms.affinity.iter().all(is_nowhere))
    }
}

impl InterPodAffinity {
    fn anti_affinity(&self, query: Query) -> Result<(), Unfit> {
        let terms = &self.terms[query.class];
        let has_pods = |count: &PodTermCountIdx| {
            let n_pods = self.counts.get(*count, query.node, query.capacity);
            n_pods.is_some_and(|n_pods| n_pods > 0)
        };
        if terms.anti_affinity.iter().any(has_pods) {
            return Err(Unfit::PodAntiAffinity);
        }
        if terms.anti_affinity_of_others.iter().any(has_pods) {
            return Err(Unfit::ExistingAntiAffinity);
        }
        Ok(())
    }
}

impl Filter for InterPodAffinity {
    fn dependencies(&self, class: ConstraintClassIdx) -> Dependencies {
        let Terms { affinity, anti_affinity, anti_affinity_of_others, matches_itself: _ } =
            &self.terms[class];
        let has_terms = [affinity, anti_affinity, anti_affinity_of_others]
            .into_iter()
            .any(|list| !list.is_empty());
        Dependencies::NONE.with_if(Dependency::Domain, has_terms)
    }

    /// More pods in a domain that has some already change no answer. Affinity also depends on whether there
    /// is a matching pod anywhere.
    fn version(&self, class: ConstraintClassIdx) -> u64 {
        let Terms { affinity, anti_affinity, anti_affinity_of_others, .. } = &self.terms[class];
        let lists = [affinity, anti_affinity, anti_affinity_of_others];
        lists.into_iter().map(|list| self.counts.n_crossings(list)).sum::<u64>()
            + self.counts.n_total_crossings(affinity)
    }

    fn domains(&self, class: ConstraintClassIdx) -> Option<Vec<Arc<LabelColumn>>> {
        let Terms { affinity, anti_affinity, anti_affinity_of_others, .. } = &self.terms[class];
        let lists = [affinity, anti_affinity, anti_affinity_of_others];
        Some(lists.into_iter().flat_map(|list| self.counts.labels(list)).collect())
    }

    fn depends_on(&self, class: ConstraintClassIdx, other: ConstraintClassIdx) -> bool {
        let Terms { affinity, anti_affinity, anti_affinity_of_others, matches_itself: _ } =
            &self.terms[class];
        let lists = [affinity, anti_affinity, anti_affinity_of_others];
        lists.into_iter().any(|list| self.counts.contain(list, other))
    }

    fn admit(&self, class: ConstraintClassIdx) -> Result<(), Inadmissible> {
        let refusal = self.refusals[class].clone();
        refusal.map_or(Ok(()), |message| Err(Inadmissible { cause: Cause::Rules, message }))
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        match query.dependency {
            Dependency::Domain if self.affinity_is_met(query) => self.anti_affinity(query),
            Dependency::Domain => Err(Unfit::PodAffinity),
            Dependency::Class | Dependency::Node | Dependency::Cluster => Ok(()),
        }
    }

    fn domains_to_choose(&self, class: ConstraintClassIdx) -> NodesByDomain {
        let terms = &self.terms[class];
        let is_nowhere =
            |count: &PodTermCountIdx| self.counts.total(*count, Capacity::FutureIdle) == 0;
        if !terms.affinity.iter().all(is_nowhere) {
            return NodesByDomain::default();
        }
        self.counts.domains(&terms.affinity).into()
    }

    fn on_placement(&mut self, placed: &Placed) {
        self.counts.on_placement(placed);
    }
}
