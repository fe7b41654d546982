//! Searches, and what is asked about classes of tasks.

use std::collections::BTreeMap;

use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, DomainIdx, NodeIdx, TaskIdx},
    node_set::NodeSet,
    reason::FitReport,
};

use super::{
    domain_fits::DomainFits,
    explain::{Explanation, explain},
    index::{ClassIndex, Sharing},
    inputs::Inputs,
    kept::{ByDomain, Candidates, Choice, CountedPlaces, Search},
    placeable::{Question, Room},
    rules::ClassRules,
};
use crate::{
    plugin::{Capacity, Dependency, Scale},
    topology::{InLevel, Level},
};

/// Number of comparisons of amounts that count as one evaluation of a node. Measured.
const COMPARISONS: usize = 8;

/// A class with this many tasks has an index of its own, even if it has variants. Guessed.
const OWN_INDEX: usize = 10;

/// At most this many indexes by domain are kept, and as many counts by domain. Guessed: gangs of few kinds
/// wait for a domain at the same time.
const MAX_BY_DOMAIN: usize = 64;

/// Of at most this many classes the reasons of each node are kept. Guessed.
const MAX_EXPLANATIONS: usize = 16;

/// Searches nodes and answers questions about classes of tasks, in the session as it is now: see
/// [`Session::search`](crate::session::Session::search).
pub struct NodeSearch<'s> {
    pub(crate) kept: &'s mut Candidates,
    pub(crate) inputs: Inputs<'s>,
    /// How much of the log the answers reflect that are kept together with its length.
    pub(crate) read: &'s mut usize,
}

impl<'s> NodeSearch<'s> {
    /// For a question whose answer is kept together with the length of the log that it reflects. The other answers
    /// follow the log by themselves, or do not depend on it.
    fn mark_read(&mut self) {
        *self.read = self.inputs.touched.len();
    }

    /// The snapshot with the moves so far.
    pub(crate) fn cluster(&self) -> &'s Cluster {
        self.inputs.cluster
    }

    fn count_work(&self, n_nodes: usize) {
        self.kept.count_work(n_nodes);
    }

    /// Counts nodes of which only amounts were compared, which takes far less than evaluating predicates.
    fn count_comparisons(&self, n_nodes: usize) {
        self.count_work(n_nodes.div_ceil(COMPARISONS));
    }

    /// The best node for a task of the class, a node where it fits now before one where it must wait.
    // Parity: see docs/parity.md#a3.
    pub fn best_node(&mut self, class: ClassIdx) -> Option<Choice> {
        [Capacity::Idle, Capacity::FutureIdle]
            .into_iter()
            .find_map(|capacity| self.best_node_in(class, capacity))
    }

    /// The best node for a task of the class where it fits into this capacity.
    pub fn best_node_in(&mut self, class: ClassIdx, capacity: Capacity) -> Option<Choice> {
        self.mark_read();
        let node = self.best(class, capacity)?;
        Some(Choice { node, capacity })
    }

    /// The best of these nodes for a task of the class where it fits into this capacity. The nodes are
    /// ascending.
    pub fn best_node_of(
        &mut self,
        class: ClassIdx,
        nodes: &[NodeIdx],
        capacity: Capacity,
    ) -> Option<Choice> {
        self.prepare(class);
        let eligible = |node: &NodeIdx| self.admits(class, *node);
        let nodes: Vec<NodeIdx> = nodes.iter().copied().filter(eligible).collect();
        let node = self.best_of(class, &nodes, capacity)?;
        Some(Choice { node, capacity })
    }

    fn best(&mut self, class: ClassIdx, capacity: Capacity) -> Option<NodeIdx> {
        let inputs = self.inputs;
        self.prepare(class);
        self.count_work(1);
        let rules = self.kept.rules[class].as_ref().expect("prepared above");
        if !rules.admitted() || self.uses_index() && !self.could_hold(class) {
            return None;
        }
        let rules = self.kept.rules[class].as_ref().expect("prepared above");
        if let Some(scope) = inputs.scope {
            let index = match scope.nodes {
                InLevel::Domain(domain) => {
                    self.index_by_domain(class, scope.level, capacity).zip(Some(domain))
                }
                InLevel::AnyDomain | InLevel::NoNode => None,
            };
            return match index {
                Some(((index, rules), domain)) => index.best(inputs, class, rules, Some(domain)),
                None => self.best_by_full_search(class, capacity),
            };
        }
        if self.kept.search == Search::Naive || !rules.is_indexable() {
            let best = self.best_by_full_search(class, capacity);
            debug_assert!(best.is_none() || self.could_hold(class), "it holds one now");
            return best;
        }
        let constraint_class = inputs.cluster.classes.constraint_class[class];
        let eligible = self.kept.eligible[constraint_class].as_ref().expect("prepared above");
        if self.kept.n_tasks.get(class).is_some_and(|n_tasks| *n_tasks < OWN_INDEX)
            && rules.scores_are_of_nodes()
        {
            let first = inputs.cluster.classes.variant_of[class];
            let index = self.kept.shared[capacity as usize].entry(first).or_insert_with(|| {
                self.kept.work.compare(inputs.cluster, eligible.len());
                ClassIndex::new(inputs, class, capacity, Sharing::Variants, rules, eligible)
            });
            let n_nodes = index.catch_up(inputs, rules);
            self.kept.work.add(n_nodes);
            return index.best(inputs, class, rules, None);
        }
        let slot = &mut self.kept.indexes[capacity as usize][class];
        match slot {
            Some(index) if index.is_outdated(inputs, rules) => {
                // If every placement changes answers everywhere, building the index each time would
                // cost more than searching without it. It is built again by the next search.
                *slot = None;
                self.best_by_full_search(class, capacity)
            }
            Some(index) => {
                let n_nodes = index.catch_up(inputs, rules);
                self.kept.work.add(n_nodes);
                index.best(inputs, class, rules, None)
            }
            None if inputs.cluster.classes.counts[class].waiting == 1
                && !self.kept.searched[class] =>
            {
                self.kept.searched[class] = true;
                let nodes: Vec<NodeIdx> = eligible.iter().collect();
                self.best_of(class, &nodes, capacity)
            }
            none => {
                self.kept.work.compare(inputs.cluster, eligible.len());
                let index =
                    ClassIndex::new(inputs, class, capacity, Sharing::Class, rules, eligible);
                none.insert(Box::new(index)).best(inputs, class, rules, None)
            }
        }
    }

    fn best_by_full_search(&self, class: ClassIdx, capacity: Capacity) -> Option<NodeIdx> {
        self.best_of(class, &self.searched(class), capacity)
    }

    /// The index of a class for the domains of a level, if there is one.
    fn index_by_domain(
        &mut self,
        class: ClassIdx,
        level: &Level,
        capacity: Capacity,
    ) -> Option<(&ClassIndex, &ClassRules)> {
        let inputs = self.inputs;
        let rules = self.kept.rules[class].as_ref().expect("the class is prepared");
        if self.kept.search == Search::Naive || !rules.is_indexable() {
            return None;
        }
        let constraint_class = inputs.cluster.classes.constraint_class[class];
        let eligible =
            self.kept.eligible[constraint_class].as_ref().expect("the class is prepared");
        let is_shared = self.kept.n_tasks.get(class).is_some_and(|n_tasks| *n_tasks < OWN_INDEX)
            && rules.scores_are_of_nodes();
        let (first, sharing) = match is_shared {
            true => (inputs.cluster.classes.variant_of[class], Sharing::Variants),
            false => (class, Sharing::Class),
        };
        let key = (first, capacity, level.number());
        if self.kept.by_domain.get(&key).is_some_and(|index| index.is_outdated(inputs, rules)) {
            // As in `best`.
            self.kept.by_domain.remove(&key);
            return None;
        }
        make_room(&mut self.kept.by_domain, &key);
        let index = self.kept.by_domain.entry(key).or_insert_with(|| {
            self.kept.work.compare(inputs.cluster, eligible.len());
            ClassIndex::by_domain(inputs, (class, sharing), capacity, rules, eligible, level)
        });
        let n_nodes = index.catch_up(inputs, rules);
        self.kept.work.add(n_nodes);
        Some((index, rules))
    }

    /// The score of the best node of each of some domains where a task of the class fits into this capacity.
    /// They are normalised over the nodes of all these domains; `None` if it fits on none of a domain.
    pub fn domain_scores(
        &mut self,
        class: ClassIdx,
        level: &Level,
        domains: &[DomainIdx],
        capacity: Capacity,
    ) -> Vec<Option<i64>> {
        self.mark_read();
        let inputs = self.inputs;
        self.prepare(class);
        self.count_work(domains.len());
        if let Some((index, rules)) = self.index_by_domain(class, level, capacity) {
            return index.best_scores(inputs, class, rules, domains);
        }
        let mut nodes: Vec<NodeIdx> =
            domains.iter().flat_map(|domain| level.nodes(*domain)).copied().collect();
        nodes.sort_unstable();
        self.count_work(nodes.len());
        let rules = self.kept.rules[class].as_ref().expect("prepared above");
        rules.retain_fitting(inputs, class, &mut nodes, capacity, &Dependency::ALL);
        let scores = rules.scores(inputs, class, &nodes);
        let best = |domain: &DomainIdx| {
            let own = nodes.iter().zip(&scores);
            let own = own.filter(|(node, _)| level.domain(**node) == Some(*domain));
            own.map(|(_, score)| *score).max()
        };
        domains.iter().map(best).collect()
    }

    /// How many tasks of the class fit into this capacity of each domain of a level, by what is free and the
    /// rules about single nodes. An upper bound.
    pub fn domain_fits(
        &mut self,
        class: ClassIdx,
        level: &Level,
        capacity: Capacity,
    ) -> Column<DomainIdx, u64> {
        self.mark_read();
        let inputs = self.inputs;
        self.prepare(class);
        let n_domains = level.domains().len();
        self.count_work(n_domains);
        let rules = self.kept.rules[class].as_ref().expect("prepared above");
        if !rules.admitted() {
            return Column::filled(0, n_domains);
        }
        let first = inputs.cluster.classes.variant_of[class];
        let key = (first, capacity, level.number());
        if self.kept.search == Search::Naive {
            self.kept.domain_fits.remove(&key);
        }
        make_room(&mut self.kept.domain_fits, &key);
        let constraint_class = inputs.cluster.classes.constraint_class[class];
        let eligible = self.kept.eligible[constraint_class].as_ref().expect("prepared above");
        let fits = self.kept.domain_fits.entry(key).or_insert_with(|| {
            self.kept.work.add(eligible.len());
            DomainFits::new(inputs, class, rules, eligible, level, capacity)
        });
        let n_nodes = fits.catch_up(inputs, class, rules, eligible, level);
        self.kept.work.add(n_nodes);
        fits.of_domains().clone()
    }

    /// The best of these nodes, which are ascending and, for [`Search::Index`], eligible. The class is
    /// prepared.
    fn best_of(&self, class: ClassIdx, nodes: &[NodeIdx], capacity: Capacity) -> Option<NodeIdx> {
        let inputs = self.inputs;
        self.kept.work.compare(inputs.cluster, nodes.len());
        let dependencies = match self.kept.search {
            Search::Naive => Dependency::ALL.as_slice(),
            // The nodes are eligible.
            Search::Index => &Dependency::ALL[1..],
        };
        let rules = self.kept.rules[class].as_ref().expect("the class is prepared");
        let mut nodes = nodes.to_vec();
        rules.retain_fitting(inputs, class, &mut nodes, capacity, dependencies);
        let scores = rules.scores(inputs, class, &nodes);
        let best = scores.iter().zip(&nodes).rev().max_by_key(|(score, _)| **score);
        best.map(|(_, node)| *node)
    }

    /// The nodes of the scope to evaluate: all, or those that pass the rules of [`Dependency::Class`].
    fn searched(&self, class: ClassIdx) -> Vec<NodeIdx> {
        let inputs = self.inputs;
        let eligible = self.eligible(class);
        match (self.kept.search, inputs.scope) {
            (Search::Naive, _) => inputs.nodes(),
            (Search::Index, None) => eligible.iter().collect(),
            (Search::Index, Some(_)) => {
                let mut nodes = inputs.nodes();
                nodes.retain(|node| eligible.contains(*node));
                nodes
            }
        }
    }

    fn eligible(&self, class: ClassIdx) -> &NodeSet {
        let constraint_class = self.inputs.cluster.classes.constraint_class[class];
        self.kept.eligible[constraint_class].as_ref().expect("prepared with the rules of the class")
    }

    /// Collects what applies to a class, once in a cycle.
    pub(crate) fn prepare(&mut self, class: ClassIdx) {
        let inputs = self.inputs;
        if self.kept.rules[class].is_none() {
            self.kept.rules[class] = Some(ClassRules::new(inputs.cluster, inputs.policy, class));
        }
        let rules = self.kept.rules[class].as_ref().expect("collected above");
        let constraint_class = inputs.cluster.classes.constraint_class[class];
        self.kept.eligible[constraint_class].get_or_insert_with(|| {
            self.kept.work.add(inputs.cluster.nodes.facts.len());
            rules.eligible(inputs, class)
        });
    }

    /// Whether a task of the class fits on a node: its request fits, and every rule passes.
    pub fn fits(&mut self, class: ClassIdx, node: NodeIdx, capacity: Capacity) -> bool {
        let inputs = self.inputs;
        self.prepare(class);
        let rules = self.kept.rules[class].as_ref().expect("the class is prepared");
        inputs.is_in_scope(node) && rules.fits(inputs, class, node, capacity, &Dependency::ALL)
    }

    /// Whether a node is in the scope, and the predicates that no placement can change admit the class.
    pub fn is_eligible(&mut self, class: ClassIdx, node: NodeIdx) -> bool {
        self.prepare(class);
        self.admits(class, node)
    }

    /// Whether only amounts may keep a task of the class from a node. Looks at no other node.
    pub(crate) fn lacks_only_amounts(&mut self, class: ClassIdx, node: NodeIdx) -> bool {
        let inputs = self.inputs;
        self.count_work(1);
        let rules = self.kept.rules[class]
            .get_or_insert_with(|| ClassRules::new(inputs.cluster, inputs.policy, class));
        inputs.is_in_scope(node)
            && rules.admitted()
            && rules.refusals_before_resources(inputs, class, node).is_empty()
    }

    /// See [`Self::is_eligible`]. The class is prepared.
    fn admits(&self, class: ClassIdx, node: NodeIdx) -> bool {
        self.count_work(1);
        self.inputs.is_in_scope(node) && self.eligible(class).contains(node)
    }

    /// The scores of these nodes, normalised over them. The class is prepared.
    pub(crate) fn scores(&self, class: ClassIdx, nodes: &[NodeIdx]) -> Vec<i64> {
        let inputs = self.inputs;
        let rules = self.kept.rules[class].as_ref().expect("the class is prepared");
        rules.scores(inputs, class, nodes)
    }

    /// Whether some node of the cluster would have room for a task of the class without kube-batch's own pods. If not,
    /// no search and no eviction finds a place in this cycle.
    pub fn could_hold(&mut self, class: ClassIdx) -> bool {
        let inputs = self.inputs;
        if let Some(known) = self.kept.could_hold[class] {
            return known;
        }
        self.prepare(class);
        let request = &inputs.cluster.classes.request[class];
        let left = self.kept.placeable.left_by_others(inputs.cluster);
        let mut n_nodes = 0;
        let could_hold = self.eligible(class).iter().any(|node| {
            n_nodes += 1;
            request.times_in(&left[node]) > 0
        });
        self.count_comparisons(n_nodes);
        self.kept.could_hold[class] = Some(could_hold);
        could_hold
    }

    /// Whether there could be room for a task of the class: see [`Room::WithoutOwnPods`].
    pub fn is_placeable(&mut self, class: ClassIdx) -> bool {
        self.count_placeable(class, 1, Room::WithoutOwnPods) > 0
    }

    /// How many tasks of the class there could be room for, counted up to `limit`. Tasks that must all
    /// be in one topology domain are counted in the domain that holds most. An upper bound: other
    /// rules that look at other pods are not considered.
    pub fn count_placeable(&mut self, class: ClassIdx, limit: u64, room: Room) -> u64 {
        let inputs = self.inputs;
        self.prepare(class);
        let may_recall =
            self.uses_index() && room == Room::WithoutOwnPods && inputs.scope.is_none();
        if may_recall && !self.could_hold(class) {
            return 0;
        }
        let rules = self.kept.rules[class].as_ref().expect("prepared above");
        let version = match rules.depend_on_other_nodes() {
            true => rules.version(inputs.policy, inputs.cluster, class),
            false => 0,
        };
        if may_recall
            && let Some(known) = self.kept.counted[class]
            && known.version == version
            && (known.n < known.limit || limit <= known.limit)
        {
            return known.n.min(limit);
        }
        self.count_comparisons(inputs.n_nodes());
        let eligible = self.eligible(class);
        let n = self.kept.placeable.count(inputs, Question { class, rules, eligible, room, limit });
        if may_recall {
            self.kept.counted[class] = Some(CountedPlaces { limit, n, version });
        }
        n
    }

    /// How many tasks of the class the eligible ones of these nodes hold by their free amounts, those
    /// that are being released included. An upper bound.
    pub fn count_fitting(&mut self, class: ClassIdx, nodes: &[NodeIdx]) -> u64 {
        let inputs = self.inputs;
        self.prepare(class);
        self.count_comparisons(nodes.len());
        let request = &inputs.cluster.classes.request[class];
        let eligible = self.eligible(class);
        let nodes =
            nodes.iter().filter(|node| inputs.is_in_scope(**node) && eligible.contains(**node));
        nodes.fold(0, |n, node| {
            let most = inputs.cluster.nodes.most_available(*node);
            n.saturating_add(request.times_in(&most))
        })
    }

    /// Why a task of the class fits on no node of the scope now: for each node, the first reason.
    pub fn explain(&mut self, class: ClassIdx) -> FitReport {
        self.mark_read();
        let inputs = self.inputs;
        self.prepare(class);
        if inputs.scope.is_some() {
            let rules = self.kept.rules[class].as_ref().expect("the class is prepared");
            self.count_work(inputs.n_nodes());
            return explain(inputs, class, rules);
        }
        if let Some((seen, report)) = &self.kept.reports[class]
            && *seen == inputs.touched.len()
        {
            return report.clone();
        }
        let rules = self.kept.rules[class].as_ref().expect("the class is prepared");
        let is_repeated = self.kept.reports[class].is_some();
        let report = if is_repeated && self.uses_index() && !rules.depend_on_other_nodes() {
            self.explain_again(class)
        } else {
            self.count_work(inputs.cluster.nodes.facts.len());
            explain(inputs, class, rules)
        };
        self.kept.reports[class] = Some((inputs.touched.len(), report.clone()));
        report
    }

    /// Whether a task of the class fits nowhere now, for these reasons, and a placement elsewhere could not change that of
    /// a node.
    pub(crate) fn is_unfit(&mut self, class: ClassIdx, because: &FitReport) -> bool {
        !self.is_open_to_change(class)
            && self.best_node(class).is_none()
            && self.explain(class) == *because
    }

    /// Why no node fits, from what was found out before and what has changed since.
    fn explain_again(&mut self, class: ClassIdx) -> FitReport {
        let inputs = self.inputs;
        let rules = self.kept.rules[class].as_ref().expect("the class is prepared");
        if self.kept.explanations.len() >= MAX_EXPLANATIONS
            && !self.kept.explanations.contains_key(&class)
        {
            self.kept.explanations.clear();
        }
        let mut n_nodes = 0;
        let explanation = self.kept.explanations.entry(class).or_insert_with(|| {
            n_nodes = inputs.cluster.nodes.facts.len();
            Explanation::new(inputs, class, rules)
        });
        n_nodes += explanation.catch_up(inputs, class, rules);
        let report = explanation.report(inputs, class, rules);
        self.count_work(n_nodes);
        report
    }

    /// Whether the best node for the class is found through an index.
    pub fn is_indexable(&mut self, class: ClassIdx) -> bool {
        self.prepare(class);
        self.kept.rules[class].as_ref().is_some_and(ClassRules::is_indexable)
    }

    /// Whether evicting these tasks changes for the class only what is free: it changes no answer of a
    /// rule.
    pub fn needs_only_resources(&mut self, class: ClassIdx, victims: &[TaskIdx]) -> bool {
        let inputs = self.inputs;
        self.prepare(class);
        let rules = self.kept.rules[class].as_ref().expect("prepared above");
        if !rules.admitted() || !rules.may_depend_on_tasks() {
            return rules.admitted();
        }
        self.count_comparisons(victims.len());
        let mut affecting = victims.iter();
        !affecting.any(|victim| rules.depend_on(inputs.policy, inputs.cluster, class, *victim))
    }

    /// Whether every rule admits the class to the node once tasks that are being terminated are gone,
    /// free resources aside.
    pub fn rules_pass(&mut self, class: ClassIdx, node: NodeIdx) -> bool {
        let inputs = self.inputs;
        self.prepare(class);
        let rules = self.kept.rules[class].as_ref().expect("prepared above");
        self.admits(class, node)
            && rules.pass(inputs, class, node, Capacity::FutureIdle, &Dependency::ALL[1..])
    }

    fn uses_index(&self) -> bool {
        self.kept.uses_index()
    }

    /// Whether the scores of a node for the class depend on that node alone, not on the others they are
    /// compared with.
    pub fn scores_are_absolute(&mut self, class: ClassIdx) -> bool {
        self.prepare(class);
        let rules = self.kept.rules[class].as_ref().expect("prepared above");
        rules.scores_are_of_nodes()
            && rules.terms().iter().all(|(_, term)| term.scale == Scale::AsIs)
    }

    /// Whether a placement on one node can change whether the class may be placed on another.
    pub fn is_open_to_change(&mut self, class: ClassIdx) -> bool {
        self.prepare(class);
        self.kept.rules[class].as_ref().expect("prepared above").depend_on_other_nodes()
    }
}

/// Removes what is kept if there is no room for another.
fn make_room<T>(kept: &mut BTreeMap<ByDomain, T>, next: &ByDomain) {
    if kept.len() >= MAX_BY_DOMAIN && !kept.contains_key(next) {
        kept.clear();
    }
}
