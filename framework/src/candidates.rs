//! Which node is best for a class of tasks.
//!
//! There are two searches behind one interface. [`Search::Naive`] calls every plugin for every node,
//! every time: it is the definition. [`Search::Index`] caches answers by what they depend on, and
//! evaluates them again only where something has changed. Both find the same node, which a property
//! test over random clusters asserts.
//!
//! A node where the task fits now is preferred to one where it must wait for resources that are
//! being released. Among nodes of one kind the highest score wins, and of equal scores the lowest
//! node name.

mod domain_fits;
mod explain;
mod index;
mod inputs;
mod node_search;
mod placeable;
mod rules;

use std::{cell::Cell, collections::BTreeMap};

use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, ConstraintClassIdx, NodeIdx, Ordinal},
    node_set::NodeSet,
    reason::FitReport,
};
use serde::{Deserialize, Serialize};

pub(crate) use self::inputs::Inputs;
use self::{
    domain_fits::DomainFits, explain::Explanation, index::ClassIndex, placeable::Placeable,
    rules::ClassRules,
};
pub use self::{node_search::NodeSearch, placeable::Room};
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
type ByDomain = (ClassIdx, Capacity, usize);

/// How many tasks of a class there could be room for.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// Counting ended there.
    limit: u64,
    n: u64,
    /// [`ClassRules::version`] then, if the answer depends on other nodes.
    version: u64,
}

/// Number of evaluations of a node for a class.
#[derive(Debug, Default)]
struct Work(Cell<u64>);

impl Work {
    fn add(&self, n_nodes: usize) {
        self.0.set(self.0.get() + n_nodes as u64);
    }
}

/// The answers cached in this cycle, and the state they were computed from.
#[derive(Debug)]
pub(crate) struct Candidates {
    search: Search,
    rules: Column<ClassIdx, Option<ClassRules>>,
    /// Nodes that pass the rules of [`Dependency::Class`], by constraint class.
    eligible: Column<ConstraintClassIdx, Option<NodeSet>>,
    indexes: [Column<ClassIdx, Option<Box<ClassIndex>>>; 2],
    /// Classes with one waiting task that were searched without an index: most are not searched again.
    searched: Column<ClassIdx, bool>,
    /// Indexes that the variants of a class share, by the first of them.
    shared: [BTreeMap<ClassIdx, ClassIndex>; 2],
    /// Indexes for the domains of topology levels.
    by_domain: BTreeMap<ByDomain, ClassIndex>,
    /// How many tasks fit into the domains of topology levels.
    domain_fits: BTreeMap<ByDomain, DomainFits>,
    /// The number of tasks of each class; empty if no class has another variant.
    n_tasks: Column<ClassIdx, usize>,
    reports: Column<ClassIdx, Option<(usize, FitReport)>>,
    /// What reports were made of, for classes that are explained repeatedly.
    explanations: BTreeMap<ClassIdx, Explanation>,
    placeable: Placeable,
    /// See [`Self::could_hold`].
    could_hold: Column<ClassIdx, Option<bool>>,
    /// What was counted last of [`Room::WithoutOwnPods`] on all nodes.
    counted: Column<ClassIdx, Option<Counted>>,
    work: Work,
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
            work: Work::default(),
        }
    }

    /// Number of evaluations of a node for a class so far.
    pub(crate) const fn work(&self) -> u64 {
        self.work.0.get()
    }

    pub(crate) fn count_work(&self, n_nodes: usize) {
        self.work.add(n_nodes);
    }

    /// Whether answers may be kept from one search to the next; otherwise every plugin is called every time.
    pub(crate) fn uses_index(&self) -> bool {
        self.search == Search::Index
    }
}
