//! What searches of a session keep from one to the next.

use std::{cell::Cell, collections::BTreeMap};

use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, ConstraintClassIdx, NodeIdx, Ordinal},
    node_set::NodeSet,
    reason::FitReport,
};
use serde::{Deserialize, Serialize};

use super::{
    domain_fits::DomainFits, explain::Explanation, index::ClassIndex, placeable::Placeable,
    rules::ClassRules,
};
use crate::plugin::Capacity;

/// How nodes are searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Search {
    /// Through an index that is updated after each placement.
    #[default]
    Index,
    /// By calling every plugin for every node.
    Naive,
}

/// A node for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The node.
    pub node: NodeIdx,
    /// Whether the task fits into what is idle, or has to wait for what is being released.
    pub capacity: Capacity,
}

/// The number of tasks of each class, if some class has several variants.
fn n_tasks_of_variants(cluster: &Cluster) -> Column<ClassIdx, usize> {
    let classes = &cluster.classes;
    if classes.variant_of.iter().all(|(class, first)| class == *first) {
        return Column::new();
    }
    let counts = classes.counts.values();
    counts.map(|counts| (counts.waiting + counts.on_nodes) as usize).collect()
}

/// A class, or the first of variants that share an index; a capacity; and the number of a level.
pub(super) type ByDomain = (ClassIdx, Capacity, usize);

/// How many tasks of a class there could be room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedPlaces {
    /// Counting ended there.
    pub(super) limit: u64,
    pub(super) n: u64,
    /// [`ClassRules::version`] then, if the answer depends on other nodes.
    pub(super) version: u64,
}

/// Once this many times the nodes of the cluster were compared with classes, amounts are kept by resource. That takes about
/// as long as one such comparison, so it costs an eighth at most; a class is compared once or twice.
const WITHOUT_COLUMNS: usize = 8;

/// Number of evaluations of a node for a class.
#[derive(Debug)]
pub(super) struct Work {
    n: Cell<u64>,
    /// How many of them were comparisons of a class with many nodes.
    compared: Cell<usize>,
    may_keep_columns: bool,
}

impl Work {
    fn new(search: Search) -> Self {
        let may_keep_columns = search == Search::Index;
        Self { n: Cell::new(0), compared: Cell::new(0), may_keep_columns }
    }

    pub(super) fn add(&self, n_nodes: usize) {
        self.n.set(self.n.get() + n_nodes as u64);
    }

    /// Adds nodes that are about to be compared with a class, and keeps amounts so that it is fast, if there have been many.
    pub(super) fn compare(&self, cluster: &Cluster, n_nodes: usize) {
        self.add(n_nodes);
        self.compared.set(self.compared.get() + n_nodes);
        let few = WITHOUT_COLUMNS * cluster.nodes.facts.len();
        if self.may_keep_columns && self.compared.get() > few {
            cluster.nodes.keep_columns();
        }
    }
}

/// The answers cached in this cycle, and the state they were computed from.
#[derive(Debug)]
pub(crate) struct Candidates {
    pub(super) search: Search,
    pub(super) rules: Column<ClassIdx, Option<ClassRules>>,
    /// Nodes that pass the rules of [`Dependency::Class`], by constraint class.
    pub(super) eligible: Column<ConstraintClassIdx, Option<NodeSet>>,
    pub(super) indexes: [Column<ClassIdx, Option<Box<ClassIndex>>>; 2],
    /// Classes with one waiting task that were searched without an index: most are not searched again.
    pub(super) searched: Column<ClassIdx, bool>,
    /// Indexes that the variants of a class share, by the first of them.
    pub(super) shared: [BTreeMap<ClassIdx, ClassIndex>; 2],
    /// Indexes for the domains of topology levels.
    pub(super) by_domain: BTreeMap<ByDomain, ClassIndex>,
    /// How many tasks fit into the domains of topology levels.
    pub(super) domain_fits: BTreeMap<ByDomain, DomainFits>,
    /// The number of tasks of each class; empty if no class has another variant.
    pub(super) n_tasks: Column<ClassIdx, usize>,
    pub(super) reports: Column<ClassIdx, Option<(usize, FitReport)>>,
    /// What reports were made of, for classes that are explained repeatedly.
    pub(super) explanations: BTreeMap<ClassIdx, Explanation>,
    pub(super) placeable: Placeable,
    /// See [`could_hold`](super::NodeSearch::could_hold).
    pub(super) could_hold: Column<ClassIdx, Option<bool>>,
    /// What was counted last of [`Room::WithoutOwnPods`] on all nodes.
    pub(super) counted: Column<ClassIdx, Option<CountedPlaces>>,
    pub(super) work: Work,
}

impl Candidates {
    pub(crate) fn new(search: Search, cluster: &Cluster) -> Self {
        let n_classes = cluster.classes.template.len();
        let constraint_classes = cluster.classes.constraint_class.values();
        let n_constraint_classes = constraint_classes.max().map_or(0, |last| last.at() + 1);
        Self {
            search,
            rules: Column::filled(None, n_classes),
            eligible: Column::filled(None, n_constraint_classes),
            indexes: [(); 2].map(|()| (0..n_classes).map(|_| None).collect()),
            searched: Column::filled(false, n_classes),
            shared: Default::default(),
            by_domain: BTreeMap::new(),
            domain_fits: BTreeMap::new(),
            n_tasks: n_tasks_of_variants(cluster),
            reports: Column::filled(None, n_classes),
            explanations: BTreeMap::new(),
            placeable: Placeable::new(n_constraint_classes),
            could_hold: Column::filled(None, n_classes),
            counted: Column::filled(None, n_classes),
            work: Work::new(search),
        }
    }

    /// Number of evaluations of a node for a class so far.
    pub(crate) const fn work(&self) -> u64 {
        self.work.n.get()
    }

    pub(crate) fn count_work(&self, n_nodes: usize) {
        self.work.add(n_nodes);
    }

    /// Whether answers may be kept from one search to the next; otherwise every plugin is called every time.
    pub(crate) fn uses_index(&self) -> bool {
        self.search == Search::Index
    }
}
