//! Counting tasks by where they stand: what a move changes, and topology counts by topology domain.
//!
//! A topology count counts the tasks that some selectors all match, or that carry some term
//! themselves, by domain of one node label. Which topology counts a task feeds is worked out once
//! for its constraint class; a move then adds and subtracts, and a question is one look-up for each
//! term.

use std::collections::BTreeMap;

use kube_batch_api::{
    cluster::Cluster,
    column::{Column, MatcherIdx, NodeIdx, Ordinal},
    facts::class::{PodMatcher, PodTerm, PodTerms},
    status::{Placement, TaskStatus},
};
use kube_batch_framework::plugin::{Capacity, Change};

use crate::{
    constraint_classes::{ConstraintClassIdx, ConstraintClasses},
    domains::ByDomain,
    node_labels::{Key, NodeLabels},
    node_tests::Compiler,
    rows::row_type,
};

row_type! {
    /// Row of a topology count.
    TopologyCountIdx,
}

/// What a move does to the number of tasks on a node: -1, 0 or +1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodCountChange {
    /// Of all tasks.
    pub(crate) all: i32,
    /// Of those that are not on their way out.
    pub(crate) staying: i32,
}

impl PodCountChange {
    const NONE: Self = Self { all: 0, staying: 0 };

    fn of(at: Placement, sign: i32) -> Self {
        let on_node = i32::from(at.status.is_on_node());
        let leaving = i32::from(at.status == TaskStatus::Releasing);
        Self { all: sign * on_node, staying: sign * (on_node - leaving) }
    }
}

/// The nodes that a move changes, and how.
pub(crate) fn deltas(change: &Change) -> impl Iterator<Item = (NodeIdx, PodCountChange)> {
    let (from, to) = (PodCountChange::of(change.from, -1), PodCountChange::of(change.to, 1));
    let changes = if change.from.node == change.to.node {
        let both = PodCountChange { all: from.all + to.all, staying: from.staying + to.staying };
        [(change.to.node, both), (None, PodCountChange::NONE)]
    } else {
        [(change.from.node, from), (change.to.node, to)]
    };
    changes
        .into_iter()
        .filter(|(_, delta)| *delta != PodCountChange::NONE)
        .filter_map(|(node, change)| Some((node?, change)))
}

/// Every task on a node, as if it had just come there.
pub(crate) fn arrivals(cluster: &Cluster) -> impl Iterator<Item = Change> {
    cluster.tasks.placement.iter().filter(|(_, at)| at.node.is_some()).map(|(task, at)| Change {
        task,
        from: Placement { status: at.status, node: None },
        to: *at,
    })
}

/// A number of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodCount {
    all: u32,
    staying: u32,
}

impl PodCount {
    pub(crate) fn apply(&mut self, change: PodCountChange) {
        self.all = self.all.wrapping_add_signed(change.all);
        self.staying = self.staying.wrapping_add_signed(change.staying);
    }

    /// The number of tasks that count.
    pub(crate) const fn of(self, capacity: Capacity) -> u32 {
        match capacity {
            Capacity::Idle => self.all,
            Capacity::FutureIdle => self.staying,
        }
    }

    pub(crate) fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// Pod counts by topology domain.
#[derive(Debug, Default)]
pub(crate) struct TopologyCounts {
    rows: Column<TopologyCountIdx, TopologyCount>,
    /// Counts of the tasks that all these selectors match.
    matching: BTreeMap<(Vec<MatcherIdx>, Key), TopologyCountIdx>,
    /// Counts of the tasks that carry a term of this selector, key and weight.
    carrying: BTreeMap<(MatcherIdx, Key, i64), TopologyCountIdx>,
    fed_by: Column<ConstraintClassIdx, Vec<TopologyCountIdx>>,
}

#[derive(Debug)]
struct TopologyCount {
    counts: ByDomain<PodCount>,
    /// Over all domains.
    total: PodCount,
}

impl TopologyCounts {
    pub(crate) fn new(classes: &ConstraintClasses) -> Self {
        Self { fed_by: Column::filled(Vec::new(), classes.len()), ..Self::default() }
    }

    fn push(rows: &mut Column<TopologyCountIdx, TopologyCount>, key: Key) -> TopologyCountIdx {
        rows.push(TopologyCount { counts: ByDomain::new(key), total: PodCount::default() })
    }

    /// The topology count of the tasks that all `matchers` match. They are ascending.
    pub(crate) fn matching(&mut self, matchers: Vec<MatcherIdx>, key: Key) -> TopologyCountIdx {
        let rows = &mut self.rows;
        *self.matching.entry((matchers, key)).or_insert_with(|| Self::push(rows, key))
    }

    /// The topology count of the tasks that a term matches.
    pub(crate) fn matching_term(
        &mut self,
        compiler: &mut Compiler<'_>,
        term: &PodTerm,
    ) -> TopologyCountIdx {
        let matcher = matcher_row(compiler.cluster, &term.matcher);
        self.matching(vec![matcher], compiler.key(&term.topology_key))
    }

    /// Counts the tasks that carry terms of a kind, each with a weight, as far as the term matches
    /// tasks that are asked about.
    pub(crate) fn carry<'c, W>(
        &mut self,
        compiler: &mut Compiler<'c>,
        classes: &ConstraintClasses,
        kind: impl Fn(&'c PodTerms) -> W,
    ) where
        W: Iterator<Item = (i64, &'c PodTerm)>,
    {
        let cluster = compiler.cluster;
        let mut matches_asked = Column::filled(false, cluster.matchers.len());
        for matcher in classes
            .to_place()
            .flat_map(|constraint_class| classes.matched_by(cluster, constraint_class))
        {
            matches_asked[*matcher] = true;
        }
        for constraint_class in classes.present() {
            for (weight, term) in kind(&classes.template(cluster, constraint_class).pod_terms) {
                let matcher = matcher_row(cluster, &term.matcher);
                if matches_asked[matcher] {
                    let key = compiler.key(&term.topology_key);
                    let rows = &mut self.rows;
                    let topology_count = self.carrying.entry((matcher, key, weight));
                    let topology_count = *topology_count.or_insert_with(|| Self::push(rows, key));
                    self.fed_by[constraint_class].push(topology_count);
                }
            }
        }
    }

    /// The topology counts of carried terms that match the constraint class, with the term's weight.
    pub(crate) fn carried<'a>(
        &'a self,
        cluster: &'a Cluster,
        classes: &ConstraintClasses,
        constraint_class: ConstraintClassIdx,
    ) -> impl Iterator<Item = (TopologyCountIdx, i64)> + use<'a> {
        let (first, last) = (Key::new(0), Key::new(u32::MAX as usize));
        classes.matched_by(cluster, constraint_class).iter().flat_map(move |matcher| {
            let terms =
                self.carrying.range((*matcher, first, i64::MIN)..=(*matcher, last, i64::MAX));
            terms.map(|((_, _, weight), topology_count)| (*topology_count, *weight))
        })
    }

    /// Works out who feeds the topology counts of selectors. To be called once, when all are there.
    pub(crate) fn connect(&mut self, cluster: &Cluster, classes: &ConstraintClasses) {
        let mut by_first = Column::<MatcherIdx, Vec<(&[MatcherIdx], TopologyCountIdx)>>::filled(
            Vec::new(),
            cluster.matchers.len(),
        );
        for ((matchers, _), topology_count) in &self.matching {
            if let [first, rest @ ..] = matchers.as_slice() {
                by_first[*first].push((rest, *topology_count));
            }
        }
        for constraint_class in classes.present() {
            let matched_by = classes.matched_by(cluster, constraint_class);
            for (rest, topology_count) in matched_by.iter().flat_map(|matcher| &by_first[*matcher])
            {
                if rest.iter().all(|matcher| matched_by.binary_search(matcher).is_ok()) {
                    self.fed_by[constraint_class].push(*topology_count);
                }
            }
        }
    }

    /// A task of the constraint class came to a node or left it.
    pub(crate) fn moved(
        &mut self,
        labels: &NodeLabels,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
        change: PodCountChange,
    ) {
        for topology_count in &self.fed_by[constraint_class] {
            let topology_count = &mut self.rows[*topology_count];
            if let Some(count) = topology_count.counts.get_mut(labels, node) {
                count.apply(change);
                topology_count.total.apply(change);
            }
        }
    }

    /// How many tasks of the topology count stand in the node's domain; `None` if the node has no
    /// domain.
    pub(crate) fn count(
        &self,
        labels: &NodeLabels,
        topology_count: TopologyCountIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> Option<u32> {
        self.rows[topology_count].counts.get(labels, node).map(|count| count.of(capacity))
    }

    /// How many tasks of the topology count stand in any domain.
    pub(crate) fn total(&self, topology_count: TopologyCountIdx, capacity: Capacity) -> u32 {
        self.rows[topology_count].total.of(capacity)
    }
}

/// The row of a selector that some pod of the snapshot carries.
pub(crate) fn matcher_row(cluster: &Cluster, matcher: &PodMatcher) -> MatcherIdx {
    cluster.matchers.get(matcher).expect("the snapshot knows every selector its pods carry")
}
