//! Pod counts by topology domain, as inter-pod affinity needs them.
//!
//! A count adds up the pods of some term classes, each with a weight, in each domain of one node
//! label. All terms with one label that are about a class are one count, whichever pod carries them: a class
//! looks up one number for each label, however many terms there are. Which counts a pod belongs to is
//! computed once for its term class.
//!
//! Source: kube-scheduler does the same in `plugins/interpodaffinity`, for one pod at a time: a map from
//! label and value to a number.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_framework::plugin::Capacity;
use kube_batch_model::{
    cluster::Cluster,
    column::{Column, MatcherIdx, NodeIdx},
    facts::class::{PodMatcher, PodTerm, PodTerms},
};

use crate::{
    compiled::Opening,
    constraint_classes::ConstraintClassIdx,
    domains::ByDomain,
    node_labels::{Key, LabelColumn, Value},
    pod_count::Placed,
    term_classes::TermClassIdx,
};

kube_batch_model::row_type! {
    /// Row of a topology count.
    pub(crate) PodTermCountIdx,
}

/// Term classes, ascending, and the weight of each of their pods.
type Members = Vec<(TermClassIdx, i64)>;

/// Pod counts by topology domain.
#[derive(Debug, Default)]
pub(crate) struct PodTermCounts {
    rows: Column<PodTermCountIdx, TopologyCount>,
    by_content: BTreeMap<(Key, Members), PodTermCountIdx>,
    term_class_of: Column<ConstraintClassIdx, TermClassIdx>,
    /// The counts that the pods of each term class belong to, with the weight of a pod.
    counted_in: Column<TermClassIdx, Vec<(PodTermCountIdx, i64)>>,
}

#[derive(Debug)]
struct TopologyCount {
    by_domain: ByDomain<Sum>,
    /// Over all domains.
    total: Sum,
    /// How often a sum has changed, in a domain of several nodes.
    n_changes: u64,
    /// How often a sum has become 0 or has no longer been 0, in a domain of several nodes.
    n_crossings: u64,
    /// How often the total has.
    n_total_crossings: u64,
}

/// The sum of the weights of some pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    all: i64,
    /// Without pods that are being terminated.
    staying: i64,
}

impl Sum {
    const fn of(self, capacity: Capacity) -> i64 {
        match capacity {
            Capacity::Idle => self.all,
            Capacity::FutureIdle => self.staying,
        }
    }

    const fn plus(self, change: Self) -> Self {
        Self { all: self.all + change.all, staying: self.staying + change.staying }
    }

    const fn is_zero_as(self, other: Self) -> bool {
        (self.all == 0) == (other.all == 0) && (self.staying == 0) == (other.staying == 0)
    }
}

impl TopologyCount {
    fn add(&mut self, node: NodeIdx, change: Sum) {
        let Some(sum) = self.by_domain.get_mut(node) else { return };
        let before = *sum;
        let after = before.plus(change);
        *sum = after;
        let total_before = self.total;
        self.total = total_before.plus(change);
        self.n_total_crossings += u64::from(!total_before.is_zero_as(self.total));
        if !self.by_domain.labels().is_alone(node) {
            self.n_changes += 1;
            self.n_crossings += u64::from(!before.is_zero_as(after));
        }
    }
}

impl PodTermCounts {
    pub(crate) fn new(opening: Opening<'_>) -> Self {
        let classes = opening.term_classes();
        Self {
            term_class_of: classes.of_constraint_class().clone(),
            counted_in: classes.column(Vec::new()),
            ..Self::default()
        }
    }

    /// The count of the pods of these term classes.
    fn count(&mut self, labels: Arc<LabelColumn>, members: Members) -> PodTermCountIdx {
        let (rows, counted_in) = (&mut self.rows, &mut self.counted_in);
        *self.by_content.entry((labels.key(), members)).or_insert_with_key(|(_, members)| {
            let count = rows.push(TopologyCount {
                by_domain: ByDomain::new(labels),
                total: Sum::default(),
                n_changes: 0,
                n_crossings: 0,
                n_total_crossings: 0,
            });
            for (class, weight) in members {
                counted_in[*class].push((count, *weight));
            }
            count
        })
    }

    /// For the label of each term, the count of the pods that all these terms match.
    pub(crate) fn matching_all(
        &mut self,
        opening: Opening<'_>,
        terms: &[PodTerm],
    ) -> Vec<PodTermCountIdx> {
        if terms.is_empty() {
            return Vec::new();
        }
        let matched = opening.matched_classes();
        let mut matchers: Vec<MatcherIdx> =
            terms.iter().map(|term| matcher_row(opening.cluster, &term.matcher)).collect();
        matchers.sort_unstable();
        matchers.dedup();
        let members: Members = matched.by_all(&matchers).map(|class| (class, 1)).collect();
        let mut counts: Vec<PodTermCountIdx> = Vec::new();
        for term in terms {
            let labels = opening.compiler().column(&term.topology_key);
            let count = self.count(labels, members.clone());
            if !counts.contains(&count) {
                counts.push(count);
            }
        }
        counts
    }

    /// For each label of these terms, the sum of the weights of the terms that match a pod.
    pub(crate) fn matching_terms<'t>(
        &mut self,
        opening: Opening<'_>,
        terms: impl Iterator<Item = (i64, &'t PodTerm)>,
        combine: fn(i64, i64) -> i64,
    ) -> Vec<PodTermCountIdx> {
        let mut by_label = ByLabel::default();
        for (weight, term) in terms {
            let matcher = matcher_row(opening.cluster, &term.matcher);
            let classes = opening.matched_classes().by(matcher);
            by_label.add(opening, term, classes.map(|class| (class, weight)), combine);
        }
        let labels = by_label.0.into_values();
        labels.map(|(labels, weights)| self.count(labels, members(weights))).collect()
    }

    /// For each term class with tasks to place and each label, the sum of the weights of the
    /// terms that a pod carries and that match the class.
    pub(crate) fn carried_terms<'c, W>(
        &mut self,
        opening: Opening<'c>,
        kind: impl Fn(&'c PodTerms) -> W,
        combine: fn(i64, i64) -> i64,
    ) -> Column<TermClassIdx, Vec<PodTermCountIdx>>
    where
        W: Iterator<Item = (i64, &'c PodTerm)>,
    {
        let classes = opening.term_classes();
        let mut by_class = classes.column(BTreeMap::<Key, (Arc<LabelColumn>, Members)>::new());
        for carrier in classes.present() {
            let mut by_label = ByLabel::default();
            for (weight, term) in kind(&opening.template(classes.first(carrier)).pod_terms) {
                let matcher = matcher_row(opening.cluster, &term.matcher);
                let matched = opening.matched_classes().by(matcher);
                let waiting = matched.filter(|class| classes.is_to_place(*class));
                by_label.add(opening, term, waiting.map(|class| (class, weight)), combine);
            }
            for (key, (labels, weights)) in by_label.0 {
                for (class, weight) in members(weights) {
                    let entry = by_class[class].entry(key);
                    let (_, members) = entry.or_insert_with(|| (Arc::clone(&labels), Vec::new()));
                    members.push((carrier, weight));
                }
            }
        }
        let mut counts = classes.column(Vec::new());
        for class in classes.to_place() {
            let labels = std::mem::take(&mut by_class[class]).into_values();
            let of_labels = labels.map(|(labels, members)| self.count(labels, members));
            counts[class] = of_labels.collect();
        }
        counts
    }

    /// Whether there are no counts.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Frees what only adding counts needs: of many classes it is large.
    pub(crate) fn finish(&mut self) {
        self.by_content = BTreeMap::new();
    }

    pub(crate) fn on_placement(&mut self, placed: &Placed) {
        let counted_in = &self.counted_in[self.term_class_of[placed.constraint_class]];
        if counted_in.is_empty() {
            return;
        }
        for (node, change) in placed.counts() {
            let (all, staying) = (i64::from(change.all), i64::from(change.staying));
            for (count, weight) in counted_in {
                let change = Sum { all: weight * all, staying: weight * staying };
                self.rows[*count].add(node, change);
            }
        }
    }

    /// The sum in the node's domain; `None` if the node has no domain.
    pub(crate) fn get(
        &self,
        count: PodTermCountIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> Option<i64> {
        self.rows[count].by_domain.get(node).map(|sum| sum.of(capacity))
    }

    /// The nodes that have all labels of these counts, by the values of all; each list ascending.
    pub(crate) fn domains(&self, counts: &[PodTermCountIdx]) -> Vec<Vec<NodeIdx>> {
        let Some(first) = counts.first() else { return Vec::new() };
        let labels = |count: &PodTermCountIdx| self.rows[*count].by_domain.labels();
        let mut domains = BTreeMap::<Vec<Value>, Vec<NodeIdx>>::new();
        for node in labels(first).nodes() {
            let values: Vec<Value> = counts.iter().map(|count| labels(count).value(node)).collect();
            if !values.iter().any(|value| value.is_absent()) {
                domains.entry(values).or_default().push(node);
            }
        }
        domains.into_values().collect()
    }

    /// The labels whose values are the domains of these counts.
    pub(crate) fn labels<'a>(
        &'a self,
        counts: &'a [PodTermCountIdx],
    ) -> impl Iterator<Item = Arc<LabelColumn>> + 'a {
        counts.iter().map(|count| Arc::clone(self.rows[*count].by_domain.labels()))
    }

    /// The sum over all domains.
    pub(crate) fn total(&self, count: PodTermCountIdx, capacity: Capacity) -> i64 {
        self.rows[count].total.of(capacity)
    }

    /// Whether pods of the class belong to one of these counts.
    pub(crate) fn contain(&self, counts: &[PodTermCountIdx], class: ConstraintClassIdx) -> bool {
        self.counted_in[self.term_class_of[class]].iter().any(|(count, _)| counts.contains(count))
    }

    /// A number that is a new one when a sum of these counts has changed for more than one node.
    pub(crate) fn n_changes(&self, counts: &[PodTermCountIdx]) -> u64 {
        counts.iter().map(|count| self.rows[*count].n_changes).sum()
    }

    /// A number that is a new one when a sum of these counts has become 0, or has no longer been 0, for
    /// more than one node.
    pub(crate) fn n_crossings(&self, counts: &[PodTermCountIdx]) -> u64 {
        counts.iter().map(|count| self.rows[*count].n_crossings).sum()
    }

    /// A number that is a new one when a sum of these counts over all domains has become 0, or has no longer been 0.
    pub(crate) fn n_total_crossings(&self, counts: &[PodTermCountIdx]) -> u64 {
        counts.iter().map(|count| self.rows[*count].n_total_crossings).sum()
    }
}

/// The weights of term classes, by label.
#[derive(Default)]
struct ByLabel(BTreeMap<Key, (Arc<LabelColumn>, Column<TermClassIdx, i64>)>);

impl ByLabel {
    /// Adds the classes that a term concerns. A label that no node has makes no domain.
    fn add(
        &mut self,
        opening: Opening<'_>,
        term: &PodTerm,
        classes: impl Iterator<Item = (TermClassIdx, i64)>,
        combine: fn(i64, i64) -> i64,
    ) {
        let labels = opening.compiler().column(&term.topology_key);
        if !labels.has_values() {
            return;
        }
        let entry = self.0.entry(labels.key());
        let (_, weights) = entry.or_insert_with(|| (labels, opening.term_classes().column(0)));
        for (class, weight) in classes {
            weights[class] = combine(weights[class], weight);
        }
    }
}

fn members(weights: Column<TermClassIdx, i64>) -> Members {
    let members = weights.iter().filter(|(_, weight)| **weight != 0);
    members.map(|(class, weight)| (class, *weight)).collect()
}

/// The row of a selector that some pod of the snapshot carries.
pub(crate) fn matcher_row(cluster: &Cluster, matcher: &PodMatcher) -> MatcherIdx {
    cluster.matchers.get(matcher).expect("the snapshot has every selector that its pods carry")
}
