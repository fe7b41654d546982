//! Pod counts by topology domain, as inter-pod affinity needs them.
//!
//! A count is the number of pods that a set of selectors matches, or that carry a term themselves,
//! in each domain of one node label. Which counts a pod belongs to is computed once for its
//! constraint class. A placement then adds or subtracts 1, and a check is one look-up for each term.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_api::{
    cluster::Cluster,
    column::{Column, MatcherIdx, NodeIdx, Ordinal},
    facts::class::{PodMatcher, PodTerm, PodTerms},
};
use kube_batch_framework::plugin::Capacity;

use crate::{
    compiled::Opening,
    constraint_classes::ConstraintClassIdx,
    domains::ByDomain,
    node_labels::{Key, LabelColumn, Value},
    pod_count::{Placed, PodCount},
    rows::row_type,
};

row_type! {
    /// Row of a topology count.
    TopologyCountIdx,
}

/// Pod counts by topology domain.
#[derive(Debug, Default)]
pub(crate) struct TopologyCounts {
    rows: Column<TopologyCountIdx, TopologyCount>,
    /// Counts of the pods that all these selectors match.
    matching: BTreeMap<(Vec<MatcherIdx>, Key), TopologyCountIdx>,
    /// Counts of the pods that carry a term of this selector, key and weight.
    carrying: BTreeMap<(MatcherIdx, Key, i64), TopologyCountIdx>,
    /// The counts that the pods of each constraint class belong to.
    counted_in: Column<ConstraintClassIdx, Vec<TopologyCountIdx>>,
}

#[derive(Debug)]
struct TopologyCount {
    by_domain: ByDomain<PodCount>,
    /// Over all domains.
    total: PodCount,
}

impl TopologyCount {
    fn new(labels: Arc<LabelColumn>) -> Self {
        Self { by_domain: ByDomain::new(labels), total: PodCount::default() }
    }
}

impl TopologyCounts {
    pub(crate) fn new(opening: Opening<'_>) -> Self {
        Self { counted_in: opening.by_class(Vec::new()), ..Self::default() }
    }

    /// The count of the pods that all `matchers` match. They are ascending.
    pub(crate) fn matching(
        &mut self,
        matchers: Vec<MatcherIdx>,
        labels: Arc<LabelColumn>,
    ) -> TopologyCountIdx {
        let entry = self.matching.entry((matchers, labels.key()));
        *entry.or_insert_with(|| self.rows.push(TopologyCount::new(labels)))
    }

    /// The count of the pods that a term matches.
    pub(crate) fn matching_term(
        &mut self,
        opening: Opening<'_>,
        term: &PodTerm,
    ) -> TopologyCountIdx {
        let matcher = matcher_row(opening.cluster, &term.matcher);
        self.matching(vec![matcher], opening.compiler().column(&term.topology_key))
    }

    /// Adds counts of the pods that carry terms of a kind, each with a weight, for terms that match
    /// pods to be placed.
    pub(crate) fn add_carried_terms<'c, W>(
        &mut self,
        opening: Opening<'c>,
        kind: impl Fn(&'c PodTerms) -> W,
    ) where
        W: Iterator<Item = (i64, &'c PodTerm)>,
    {
        let cluster = opening.cluster;
        let mut matches_some = Column::filled(false, cluster.matchers.len());
        for matcher in opening.classes().to_place().flat_map(|row| opening.matched_by(row)) {
            matches_some[*matcher] = true;
        }
        for row in opening.classes().present() {
            for (weight, term) in kind(&opening.template(row).pod_terms) {
                let matcher = matcher_row(cluster, &term.matcher);
                if matches_some[matcher] {
                    let labels = opening.compiler().column(&term.topology_key);
                    let entry = self.carrying.entry((matcher, labels.key(), weight));
                    let count =
                        *entry.or_insert_with(|| self.rows.push(TopologyCount::new(labels)));
                    self.counted_in[row].push(count);
                }
            }
        }
    }

    /// The counts of carried terms that match the constraint class, with the term's weight.
    pub(crate) fn carried_terms<'a>(
        &'a self,
        opening: Opening<'a>,
        row: ConstraintClassIdx,
    ) -> impl Iterator<Item = (TopologyCountIdx, i64)> + use<'a> {
        let (first, last) = (Key::new(0), Key::new(u32::MAX as usize));
        opening.matched_by(row).iter().flat_map(move |matcher| {
            let terms =
                self.carrying.range((*matcher, first, i64::MIN)..=(*matcher, last, i64::MAX));
            terms.map(|((_, _, weight), count)| (*count, *weight))
        })
    }

    /// Computes which pods the counts of selectors count. Called once, after all counts are added.
    pub(crate) fn connect(&mut self, opening: Opening<'_>) {
        let mut by_first = Column::<MatcherIdx, Vec<(&[MatcherIdx], TopologyCountIdx)>>::filled(
            Vec::new(),
            opening.cluster.matchers.len(),
        );
        for ((matchers, _), count) in &self.matching {
            if let [first, rest @ ..] = matchers.as_slice() {
                by_first[*first].push((rest, *count));
            }
        }
        for row in opening.classes().present() {
            let matched_by = opening.matched_by(row);
            for (rest, count) in matched_by.iter().flat_map(|matcher| &by_first[*matcher]) {
                if rest.iter().all(|matcher| matched_by.binary_search(matcher).is_ok()) {
                    self.counted_in[row].push(*count);
                }
            }
        }
    }

    pub(crate) fn on_placement(&mut self, placed: &Placed) {
        let counted_in = &self.counted_in[placed.constraint_class];
        if counted_in.is_empty() {
            return;
        }
        for (node, change) in placed.counts() {
            for count in counted_in {
                let count = &mut self.rows[*count];
                if let Some(in_domain) = count.by_domain.get_mut(node) {
                    in_domain.apply(change);
                    count.total.apply(change);
                }
            }
        }
    }

    /// The number of pods in the node's domain; `None` if the node has no domain.
    pub(crate) fn get(
        &self,
        count: TopologyCountIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> Option<u32> {
        self.rows[count].by_domain.get(node).map(|count| count.of(capacity))
    }

    /// The nodes that have all labels of these counts, by the values of all; each list ascending.
    pub(crate) fn domains(&self, counts: &[TopologyCountIdx]) -> Vec<Vec<NodeIdx>> {
        let Some(first) = counts.first() else { return Vec::new() };
        let labels = |count: &TopologyCountIdx| self.rows[*count].by_domain.labels();
        let mut domains = BTreeMap::<Vec<Value>, Vec<NodeIdx>>::new();
        for node in labels(first).nodes() {
            let values: Vec<Value> = counts.iter().map(|count| labels(count).value(node)).collect();
            if !values.iter().any(|value| value.is_absent()) {
                domains.entry(values).or_default().push(node);
            }
        }
        domains.into_values().collect()
    }

    /// The number of pods in all domains.
    pub(crate) fn total(&self, count: TopologyCountIdx, capacity: Capacity) -> u32 {
        self.rows[count].total.of(capacity)
    }
}

/// The row of a selector that some pod of the snapshot carries.
pub(crate) fn matcher_row(cluster: &Cluster, matcher: &PodMatcher) -> MatcherIdx {
    cluster.matchers.get(matcher).expect("the snapshot has every selector that its pods carry")
}
