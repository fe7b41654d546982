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
mod placeable;
mod rules;
mod scores;

use std::{cell::Cell, collections::BTreeMap};

use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, ConstraintClassIdx, DomainIdx, NodeIdx, Ordinal, TaskIdx},
    node_set::NodeSet,
    reason::FitReport,
};
use serde::{Deserialize, Serialize};

pub(crate) use self::inputs::Inputs;
pub use self::placeable::Room;
use self::{
    domain_fits::DomainFits,
    explain::{Explanation, explain},
    index::{ClassIndex, Sharing},
    placeable::{Placeable, Question},
    rules::ClassRules,
};
use crate::{
    plugin::{Capacity, Dependency, Scale},
    topology::{InLevel, Level},
};

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

/// Number of comparisons of amounts that count as one evaluation of a node. Measured.
const COMPARISONS: usize = 8;

/// A class with this many tasks has an index of its own, even if it has variants. Guessed.
const OWN_INDEX: usize = 10;

/// At most this many indexes by domain are kept, and as many counts by domain. Guessed: gangs of few kinds
/// wait for a domain at the same time.
const MAX_BY_DOMAIN: usize = 64;

/// Of at most this many classes the reasons of each node are kept. Guessed.
const MAX_EXPLANATIONS: usize = 16;

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

    /// Counts nodes of which only amounts were compared, which takes far less than evaluating predicates.
    fn count_comparisons(&self, n_nodes: usize) {
        self.count_work(n_nodes.div_ceil(COMPARISONS));
    }

    /// The best node for a task of the class where it fits into this capacity.
    pub(crate) fn best(
        &mut self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        capacity: Capacity,
    ) -> Option<NodeIdx> {
        self.prepare(inputs, class);
        self.count_work(1);
        let rules = self.rules[class].as_ref().expect("prepared above");
        if !rules.admitted() || self.uses_index() && !self.could_hold(inputs, class) {
            return None;
        }
        let rules = self.rules[class].as_ref().expect("prepared above");
        if let Some(scope) = inputs.scope {
            let index = match scope.nodes {
                InLevel::Domain(domain) => {
                    self.index_by_domain(inputs, class, scope.level, capacity).zip(Some(domain))
                }
                InLevel::AnyDomain | InLevel::NoNode => None,
            };
            return match index {
                Some(((index, rules), domain)) => index.best(inputs, class, rules, Some(domain)),
                None => self.best_by_full_search(inputs, class, capacity),
            };
        }
        if self.search == Search::Naive || !rules.is_indexable() {
            let best = self.best_by_full_search(inputs, class, capacity);
            debug_assert!(best.is_none() || self.could_hold(inputs, class), "it holds one now");
            return best;
        }
        let constraint_class = inputs.cluster.classes.constraint_class[class];
        let eligible = self.eligible[constraint_class].as_ref().expect("prepared above");
        if self.n_tasks.get(class).is_some_and(|n_tasks| *n_tasks < OWN_INDEX)
            && rules.scores_are_of_nodes()
        {
            let first = inputs.cluster.classes.variant_of[class];
            let index = self.shared[capacity as usize].entry(first).or_insert_with(|| {
                self.work.add(eligible.len());
                ClassIndex::new(inputs, class, capacity, Sharing::Variants, rules, eligible)
            });
            let n_nodes = index.catch_up(inputs, rules);
            self.work.add(n_nodes);
            return index.best(inputs, class, rules, None);
        }
        let slot = &mut self.indexes[capacity as usize][class];
        match slot {
            Some(index) if index.is_outdated(inputs, rules) => {
                // If every placement changes answers everywhere, building the index each time would
                // cost more than searching without it. It is built again by the next search.
                *slot = None;
                self.best_by_full_search(inputs, class, capacity)
            }
            Some(index) => {
                let n_nodes = index.catch_up(inputs, rules);
                self.work.add(n_nodes);
                index.best(inputs, class, rules, None)
            }
            None if inputs.cluster.classes.counts[class].waiting == 1 && !self.searched[class] => {
                self.searched[class] = true;
                let nodes: Vec<NodeIdx> = eligible.iter().collect();
                self.best_of(inputs, class, &nodes, capacity)
            }
            none => {
                self.work.add(eligible.len());
                let index =
                    ClassIndex::new(inputs, class, capacity, Sharing::Class, rules, eligible);
                none.insert(Box::new(index)).best(inputs, class, rules, None)
            }
        }
    }

    fn best_by_full_search(
        &self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        capacity: Capacity,
    ) -> Option<NodeIdx> {
        self.best_of(inputs, class, &self.searched(inputs, class), capacity)
    }

    /// The index of a class for the domains of a level, if there is one.
    fn index_by_domain(
        &mut self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        level: &Level,
        capacity: Capacity,
    ) -> Option<(&ClassIndex, &ClassRules)> {
        let rules = self.rules[class].as_ref().expect("the class is prepared");
        if self.search == Search::Naive || !rules.is_indexable() {
            return None;
        }
        let constraint_class = inputs.cluster.classes.constraint_class[class];
        let eligible = self.eligible[constraint_class].as_ref().expect("the class is prepared");
        let is_shared = self.n_tasks.get(class).is_some_and(|n_tasks| *n_tasks < OWN_INDEX)
            && rules.scores_are_of_nodes();
        let (first, sharing) = match is_shared {
            true => (inputs.cluster.classes.variant_of[class], Sharing::Variants),
            false => (class, Sharing::Class),
        };
        let key = (first, capacity, level.number());
        if self.by_domain.get(&key).is_some_and(|index| index.is_outdated(inputs, rules)) {
            // As in `best`.
            self.by_domain.remove(&key);
            return None;
        }
        make_room(&mut self.by_domain, &key);
        let index = self.by_domain.entry(key).or_insert_with(|| {
            self.work.add(eligible.len());
            ClassIndex::by_domain(inputs, (class, sharing), capacity, rules, eligible, level)
        });
        let n_nodes = index.catch_up(inputs, rules);
        self.work.add(n_nodes);
        Some((index, rules))
    }

    /// The score of the best node of each of some domains where a task of the class fits into this capacity.
    /// They are normalised over the nodes of all these domains.
    pub(crate) fn domain_scores(
        &mut self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        level: &Level,
        domains: &[DomainIdx],
        capacity: Capacity,
    ) -> Vec<Option<i64>> {
        self.prepare(inputs, class);
        self.count_work(domains.len());
        if let Some((index, rules)) = self.index_by_domain(inputs, class, level, capacity) {
            return index.best_scores(inputs, class, rules, domains);
        }
        let mut nodes: Vec<NodeIdx> =
            domains.iter().flat_map(|domain| level.nodes(*domain)).copied().collect();
        nodes.sort_unstable();
        self.count_work(nodes.len());
        let rules = self.rules[class].as_ref().expect("prepared above");
        rules.retain_fitting(inputs, class, &mut nodes, capacity, &Dependency::ALL);
        let scores = scores::normalised(inputs, class, rules, &nodes);
        let best = |domain: &DomainIdx| {
            let own = nodes.iter().zip(&scores);
            let own = own.filter(|(node, _)| level.domain(**node) == Some(*domain));
            own.map(|(_, score)| *score).max()
        };
        domains.iter().map(best).collect()
    }

    /// How many tasks of the class fit into this capacity of each domain, by amounts and the rules about single
    /// nodes. An upper bound.
    pub(crate) fn domain_fits(
        &mut self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        level: &Level,
        capacity: Capacity,
    ) -> Column<DomainIdx, u64> {
        self.prepare(inputs, class);
        let n_domains = level.domains().len();
        self.count_work(n_domains);
        let rules = self.rules[class].as_ref().expect("prepared above");
        if !rules.admitted() {
            return Column::filled(0, n_domains);
        }
        let first = inputs.cluster.classes.variant_of[class];
        let key = (first, capacity, level.number());
        if self.search == Search::Naive {
            self.domain_fits.remove(&key);
        }
        make_room(&mut self.domain_fits, &key);
        let constraint_class = inputs.cluster.classes.constraint_class[class];
        let eligible = self.eligible[constraint_class].as_ref().expect("prepared above");
        let fits = self.domain_fits.entry(key).or_insert_with(|| {
            self.work.add(eligible.len());
            DomainFits::new(inputs, class, rules, eligible, level, capacity)
        });
        let n_nodes = fits.catch_up(inputs, class, rules, eligible, level);
        self.work.add(n_nodes);
        fits.of_domains().clone()
    }

    /// The best of these nodes, which are ascending and, for [`Search::Index`], eligible. The class is
    /// prepared.
    pub(crate) fn best_of(
        &self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        nodes: &[NodeIdx],
        capacity: Capacity,
    ) -> Option<NodeIdx> {
        self.count_work(nodes.len());
        let dependencies = match self.search {
            Search::Naive => Dependency::ALL.as_slice(),
            // The nodes are eligible.
            Search::Index => &Dependency::ALL[1..],
        };
        let rules = self.rules[class].as_ref().expect("the class is prepared");
        let mut nodes = nodes.to_vec();
        rules.retain_fitting(inputs, class, &mut nodes, capacity, dependencies);
        let scores = scores::normalised(inputs, class, rules, &nodes);
        let best = scores.iter().zip(&nodes).rev().max_by_key(|(score, _)| **score);
        best.map(|(_, node)| *node)
    }

    /// The nodes of the scope to evaluate: all, or those that pass the rules of [`Dependency::Class`].
    fn searched(&self, inputs: Inputs<'_>, class: ClassIdx) -> Vec<NodeIdx> {
        let eligible = self.eligible(inputs.cluster, class);
        match (self.search, inputs.scope) {
            (Search::Naive, _) => inputs.nodes(),
            (Search::Index, None) => eligible.iter().collect(),
            (Search::Index, Some(_)) => {
                let mut nodes = inputs.nodes();
                nodes.retain(|node| eligible.contains(*node));
                nodes
            }
        }
    }

    fn eligible(&self, cluster: &Cluster, class: ClassIdx) -> &NodeSet {
        let constraint_class = cluster.classes.constraint_class[class];
        self.eligible[constraint_class].as_ref().expect("prepared with the rules of the class")
    }

    /// Collects what applies to a class, once in a cycle.
    pub(crate) fn prepare(&mut self, inputs: Inputs<'_>, class: ClassIdx) {
        if self.rules[class].is_none() {
            self.rules[class] = Some(ClassRules::new(inputs.cluster, inputs.policy, class));
        }
        let rules = self.rules[class].as_ref().expect("collected above");
        let constraint_class = inputs.cluster.classes.constraint_class[class];
        self.eligible[constraint_class].get_or_insert_with(|| {
            self.work.add(inputs.cluster.nodes.facts.len());
            rules.eligible(inputs, class)
        });
    }

    /// Whether a task of the class fits on a node: its request fits, and every rule passes.
    pub(crate) fn fits(
        &self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> bool {
        let rules = self.rules[class].as_ref().expect("the class is prepared");
        inputs.is_in_scope(node) && rules.fits(inputs, class, node, capacity, &Dependency::ALL)
    }

    /// Whether a node is in the scope, and the predicates that no placement can change admit the class.
    pub(crate) fn is_eligible(&self, inputs: Inputs<'_>, class: ClassIdx, node: NodeIdx) -> bool {
        self.count_work(1);
        inputs.is_in_scope(node) && self.eligible(inputs.cluster, class).contains(node)
    }

    /// The scores of these nodes, normalised over them.
    pub(crate) fn scores(
        &self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        nodes: &[NodeIdx],
    ) -> Vec<i64> {
        let rules = self.rules[class].as_ref().expect("the class is prepared");
        scores::normalised(inputs, class, rules, nodes)
    }

    /// Whether some node of the cluster would have room for a task of the class without kube-batch's own pods. If not,
    /// no search and no eviction finds a place in this cycle.
    pub(crate) fn could_hold(&mut self, inputs: Inputs<'_>, class: ClassIdx) -> bool {
        if let Some(known) = self.could_hold[class] {
            return known;
        }
        self.prepare(inputs, class);
        let request = &inputs.cluster.classes.request[class];
        let left = self.placeable.left_by_others(inputs.cluster);
        let mut n_nodes = 0;
        let could_hold = self.eligible(inputs.cluster, class).iter().any(|node| {
            n_nodes += 1;
            request.times_in(&left[node]) > 0
        });
        self.count_comparisons(n_nodes);
        self.could_hold[class] = Some(could_hold);
        could_hold
    }

    /// Whether there could be room for a task of the class: see [`Room::WithoutOwnPods`].
    pub(crate) fn is_placeable(&mut self, inputs: Inputs<'_>, class: ClassIdx) -> bool {
        self.count_placeable(inputs, class, 1, Room::WithoutOwnPods) > 0
    }

    /// How many tasks of the class there could be room for, counted up to `limit`.
    pub(crate) fn count_placeable(
        &mut self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        limit: u64,
        room: Room,
    ) -> u64 {
        self.prepare(inputs, class);
        let may_recall =
            self.uses_index() && room == Room::WithoutOwnPods && inputs.scope.is_none();
        if may_recall && !self.could_hold(inputs, class) {
            return 0;
        }
        let rules = self.rules[class].as_ref().expect("prepared above");
        let version = match rules.depend_on_other_nodes() {
            true => rules.version(inputs.policy, inputs.cluster, class),
            false => 0,
        };
        if may_recall
            && let Some(known) = self.counted[class]
            && known.version == version
            && (known.n < known.limit || limit <= known.limit)
        {
            return known.n.min(limit);
        }
        self.count_comparisons(inputs.n_nodes());
        let eligible = self.eligible(inputs.cluster, class);
        let n = self.placeable.count(inputs, Question { class, rules, eligible, room, limit });
        if may_recall {
            self.counted[class] = Some(Counted { limit, n, version });
        }
        n
    }

    /// How many tasks of the class the eligible ones of these nodes hold by their free amounts, those
    /// that are being released included. An upper bound.
    pub(crate) fn count_fitting(
        &mut self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        nodes: &[NodeIdx],
    ) -> u64 {
        self.prepare(inputs, class);
        self.count_comparisons(nodes.len());
        let request = &inputs.cluster.classes.request[class];
        let eligible = self.eligible(inputs.cluster, class);
        let nodes =
            nodes.iter().filter(|node| inputs.is_in_scope(**node) && eligible.contains(**node));
        nodes.fold(0, |n, node| {
            let most = inputs.cluster.nodes.most_available(*node);
            n.saturating_add(request.times_in(&most))
        })
    }

    /// Why a task of the class fits on no node of the scope now: for each node, the first reason.
    pub(crate) fn explain(&mut self, inputs: Inputs<'_>, class: ClassIdx) -> FitReport {
        self.prepare(inputs, class);
        if inputs.scope.is_some() {
            let rules = self.rules[class].as_ref().expect("the class is prepared");
            self.count_work(inputs.n_nodes());
            return explain(inputs, class, rules);
        }
        if let Some((seen, report)) = &self.reports[class]
            && *seen == inputs.touched.len()
        {
            return report.clone();
        }
        let rules = self.rules[class].as_ref().expect("the class is prepared");
        let is_repeated = self.reports[class].is_some();
        let report = if is_repeated && self.uses_index() && !rules.depend_on_other_nodes() {
            self.explain_again(inputs, class)
        } else {
            self.count_work(inputs.cluster.nodes.facts.len());
            explain(inputs, class, rules)
        };
        self.reports[class] = Some((inputs.touched.len(), report.clone()));
        report
    }

    /// Why no node fits, from what was found out before and what has changed since.
    fn explain_again(&mut self, inputs: Inputs<'_>, class: ClassIdx) -> FitReport {
        let rules = self.rules[class].as_ref().expect("the class is prepared");
        if self.explanations.len() >= MAX_EXPLANATIONS && !self.explanations.contains_key(&class) {
            self.explanations.clear();
        }
        let mut n_nodes = 0;
        let explanation = self.explanations.entry(class).or_insert_with(|| {
            n_nodes = inputs.cluster.nodes.facts.len();
            Explanation::new(inputs, class, rules)
        });
        n_nodes += explanation.catch_up(inputs, class, rules);
        let report = explanation.report(inputs, class, rules);
        self.count_work(n_nodes);
        report
    }

    /// Whether the index supports every predicate and score of the class.
    pub(crate) fn is_indexable(&mut self, inputs: Inputs<'_>, class: ClassIdx) -> bool {
        self.prepare(inputs, class);
        self.rules[class].as_ref().is_some_and(ClassRules::is_indexable)
    }

    /// Whether evicting these tasks changes for the class only what is free: it changes no answer of a
    /// rule.
    pub(crate) fn needs_only_resources(
        &mut self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        victims: &[TaskIdx],
    ) -> bool {
        self.prepare(inputs, class);
        let rules = self.rules[class].as_ref().expect("prepared above");
        if !rules.admitted() || !rules.may_depend_on_tasks() {
            return rules.admitted();
        }
        self.count_comparisons(victims.len());
        let mut affecting = victims.iter();
        !affecting.any(|victim| rules.depend_on(inputs.policy, inputs.cluster, class, *victim))
    }

    /// Whether every rule passes once tasks that are being terminated are gone, free resources aside.
    pub(crate) fn rules_pass(
        &mut self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        node: NodeIdx,
    ) -> bool {
        self.prepare(inputs, class);
        let rules = self.rules[class].as_ref().expect("prepared above");
        self.is_eligible(inputs, class, node)
            && rules.pass(inputs, class, node, Capacity::FutureIdle, &Dependency::ALL[1..])
    }

    pub(crate) fn uses_index(&self) -> bool {
        self.search == Search::Index
    }

    /// Whether no score of the class depends on which nodes are compared.
    pub(crate) fn scores_are_absolute(&mut self, inputs: Inputs<'_>, class: ClassIdx) -> bool {
        self.prepare(inputs, class);
        let rules = self.rules[class].as_ref().expect("prepared above");
        rules.scores_are_of_nodes()
            && rules.terms().iter().all(|(_, term)| term.scale == Scale::AsIs)
    }

    /// Whether a placement on one node can change whether the class may be placed on another.
    pub(crate) fn is_open_to_change(&mut self, inputs: Inputs<'_>, class: ClassIdx) -> bool {
        self.prepare(inputs, class);
        self.rules[class].as_ref().expect("prepared above").depend_on_other_nodes()
    }
}

/// Removes what is kept if there is no room for another.
fn make_room<T>(kept: &mut BTreeMap<ByDomain, T>, next: &ByDomain) {
    if kept.len() >= MAX_BY_DOMAIN && !kept.contains_key(next) {
        kept.clear();
    }
}
