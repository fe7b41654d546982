//! The index of the candidate nodes of one class for one capacity.
//!
//! Nodes with the same raw scores of terms that are normalised form a group; inside a group a
//! tournament tree holds what depends on the node alone. Normalising looks at groups only, so a
//! placement costs O(log nodes) for the class in hand. Other classes catch up from the log of touched
//! nodes when they are searched; a node whose raw scores have changed becomes a guest of another group.
//!
//! If tasks on other nodes decide about a class, and are the same for all nodes of a topology domain, the
//! nodes of a group are of one domain, and each search asks about the best node of each group only. If they
//! differ inside domains, or there are too many, the index is outdated and has to be built again whenever a
//! placement may have changed answers or raw scores on other nodes.
//!
//! An index by domain is for the domains of a topology level: the nodes of a group are of one of them, and a
//! search asks about the groups of one domain.
//!
//! Variants of one class may share an index. It knows nothing about topology domains: for each search,
//! the predicates of [`Dependency::Domain`] are evaluated on the best nodes until one passes.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use kube_batch_model::{
    column::{ClassIdx, Column, DomainIdx, NodeIdx, Ordinal},
    node_set::NodeSet,
};

use super::{
    inputs::Inputs,
    rules::{ClassRules, absolute_scores, is_of_domains, write_raw_scores},
};
use crate::{
    plugin::{Capacity, Dependency, Extremes, Scale, ScoreTerm},
    policy::Position,
    topology::Level,
    tournament::Tournament,
};

/// Whom an index is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// One class.
    Class,
    /// All variants of a class, which differ in which selectors match them.
    Variants,
}

/// The best node of one class for one capacity.
#[derive(Debug)]
pub(crate) struct ClassIndex {
    class: ClassIdx,
    capacity: Capacity,
    sharing: Sharing,
    /// The terms that are normalised over the candidates. Nodes of a group have equal raw scores.
    normalised: Vec<(Position, ScoreTerm)>,
    /// Whether the nodes of a group are of one domain.
    has_domains: bool,
    groups: Vec<Group>,
    /// The groups of each topology domain, if the index is one by domain.
    of_domains: Option<Column<DomainIdx, Vec<usize>>>,
    /// Group and position of each node; empty if there is one group of all nodes.
    places: Vec<Option<(u32, u32)>>,
    /// Nodes that are guests: the group, and the score there if the class fits.
    guests: BTreeMap<NodeIdx, (usize, Option<i64>)>,
    /// How much of the log of touched nodes the index reflects.
    seen: usize,
    /// [`ClassRules::version`] when the index was built.
    version: u64,
}

/// The raw scores, the number of the domain, and the topology domain.
type GroupKey = (Vec<i64>, u32, Option<DomainIdx>);

/// Nodes with equal raw scores for every term that is normalised.
#[derive(Debug)]
struct Group {
    /// One raw score for each normalised term; 0 for those of domains.
    raw: Vec<i64>,
    /// 0 if nodes of several domains are in a group.
    domain: u32,
    /// The topology domain, if the index is one by domain.
    place: Option<DomainIdx>,
    /// Nodes that had these raw scores when the index was built, ascending.
    members: Vec<NodeIdx>,
    /// Without those that are guests elsewhere.
    tree: Tournament,
    /// Nodes that have these raw scores now, the best first; without those where the class does not fit.
    guests: BTreeSet<(Reverse<i64>, NodeIdx)>,
}

impl Group {
    fn new(key: GroupKey, members: Vec<NodeIdx>, tree: Tournament) -> Self {
        let (raw, domain, place) = key;
        Self { raw, domain, place, members, tree, guests: BTreeSet::new() }
    }

    /// The best node and its score.
    fn best(&self) -> Option<(NodeIdx, i64)> {
        let own = self.tree.best().map(|(position, score)| (self.members[position], score));
        let guest = self.guests.first().map(|(Reverse(score), node)| (*node, *score));
        better(own, guest)
    }

    /// The best of the nodes that are wanted, and its score.
    fn best_where(&self, is_wanted: impl Fn(NodeIdx) -> bool) -> Option<(NodeIdx, i64)> {
        let own = self.tree.best_where(|position| is_wanted(self.members[position]));
        let own = own.map(|(position, score)| (self.members[position], score));
        let guest = self.guests.iter().find(|(_, node)| is_wanted(*node));
        better(own, guest.map(|(Reverse(score), node)| (*node, *score)))
    }
}

/// The node with the higher score; of equal ones the first.
fn better(one: Option<(NodeIdx, i64)>, other: Option<(NodeIdx, i64)>) -> Option<(NodeIdx, i64)> {
    one.into_iter().chain(other).max_by_key(|(node, score)| (*score, Reverse(*node)))
}

/// The best node of a group.
struct Feasible<'a> {
    group: &'a Group,
    node: NodeIdx,
    score: i64,
}

/// Whether a term is not part of what the tree of a group compares.
fn is_normalised(term: &ScoreTerm, has_domains: bool) -> bool {
    term.scale != Scale::AsIs || (has_domains && is_of_domains(term))
}

impl ClassIndex {
    pub(super) fn new(
        inputs: Inputs<'_>,
        class: ClassIdx,
        capacity: Capacity,
        sharing: Sharing,
        rules: &ClassRules,
        eligible: &NodeSet,
    ) -> Self {
        Self::grouped(inputs, (class, sharing), capacity, rules, eligible, None)
    }

    /// An index whose groups are each in one domain of a topology level; nodes that are in none take no part.
    pub(super) fn by_domain(
        inputs: Inputs<'_>,
        class: (ClassIdx, Sharing),
        capacity: Capacity,
        rules: &ClassRules,
        eligible: &NodeSet,
        level: &Level,
    ) -> Self {
        Self::grouped(inputs, class, capacity, rules, eligible, Some(level))
    }

    fn grouped(
        inputs: Inputs<'_>,
        (class, sharing): (ClassIdx, Sharing),
        capacity: Capacity,
        rules: &ClassRules,
        eligible: &NodeSet,
        level: Option<&Level>,
    ) -> Self {
        let domains = rules.domains().filter(|_| sharing == Sharing::Class);
        let terms = rules.terms().iter().filter(|(_, term)| is_normalised(term, domains.is_some()));
        let normalised: Vec<(Position, ScoreTerm)> = terms.copied().collect();
        let version = rules.version(inputs.policy, inputs.cluster, class);
        let mut index = Self {
            class,
            capacity,
            sharing,
            normalised,
            has_domains: domains.is_some(),
            groups: Vec::new(),
            of_domains: None,
            places: Vec::new(),
            guests: BTreeMap::new(),
            seen: inputs.touched.len(),
            version,
        };
        let mut members = BTreeMap::<GroupKey, Vec<NodeIdx>>::new();
        if index.normalised.is_empty() && domains.is_none() && level.is_none() {
            members.insert((Vec::new(), 0, None), eligible.iter().collect());
        } else {
            for node in eligible.iter() {
                let place = level.and_then(|level| level.domain(node));
                if level.is_some() && place.is_none() {
                    continue;
                }
                let domain = domains.map_or(0, |domains| domains[node]);
                let key = (index.kept_scores(inputs, node), domain, place);
                members.entry(key).or_default().push(node);
            }
        }
        let groups = members.into_iter().map(|(key, members)| {
            let scores = index.scores(inputs, rules, &members);
            let tree = Tournament::new(scores.iter().copied());
            Group::new(key, members, tree)
        });
        let groups: Vec<Group> = groups.collect();
        let n_nodes = inputs.cluster.nodes.facts.len();
        if groups.len() != 1 || groups[0].members.len() != n_nodes {
            index.places = vec![None; n_nodes];
            for (group, Group { members, .. }) in groups.iter().enumerate() {
                for (position, node) in members.iter().enumerate() {
                    index.places[node.at()] = Some((group as u32, position as u32));
                }
            }
        }
        index.groups = groups;
        index.of_domains = level.map(|level| {
            let mut of_domains = Column::filled(Vec::new(), level.domains().len());
            for (at, group) in index.groups.iter().enumerate() {
                of_domains[group.place.expect("it is in a domain")].push(at);
            }
            of_domains
        });
        index
    }

    /// Whether answers have changed on nodes that the log of touched nodes does not name.
    pub(super) fn is_outdated(&self, inputs: Inputs<'_>, rules: &ClassRules) -> bool {
        self.sharing == Sharing::Class
            && !self.has_domains
            && self.version != rules.version(inputs.policy, inputs.cluster, self.class)
    }

    /// Updates the nodes that have changed since the last search, and returns how many.
    pub(super) fn catch_up(&mut self, inputs: Inputs<'_>, rules: &ClassRules) -> usize {
        let mut touched = Cow::Borrowed(&inputs.touched[self.seen..]);
        // Moves that are taken back touch their nodes again: each node is evaluated once. After one move, sorting
        // would take longer than it saves.
        if touched.len() > 2 {
            touched.to_mut().sort_unstable();
            touched.to_mut().dedup();
        }
        self.seen = inputs.touched.len();
        let can_move = self.nodes_can_move();
        let n_members: usize = self.groups.iter().map(|group| group.members.len()).sum();
        if touched.len() >= n_members && !can_move {
            for group in 0..self.groups.len() {
                let scores = self.scores(inputs, rules, &self.groups[group].members);
                self.groups[group].tree = Tournament::new(scores.iter().copied());
            }
            return n_members;
        }
        for node in touched.iter() {
            let place = match self.places.as_slice() {
                [] => Some((0, node.at() as u32)),
                places => places[node.at()],
            };
            let Some((group, position)) = place else { continue };
            let (group, position) = (group as usize, position as usize);
            let score = self.score(inputs, rules, *node);
            if can_move {
                self.update(inputs, *node, (group, position), score);
            } else {
                self.groups[group].tree.set(position, score);
            }
        }
        touched.len()
    }

    /// Whether a placement on a node can change its raw scores. Those of domains are not kept.
    fn nodes_can_move(&self) -> bool {
        let mut kept = self.normalised.iter().filter(|(_, term)| {
            !(self.has_domains && is_of_domains(term)) && term.dependency != Dependency::Class
        });
        kept.next().is_some()
    }

    /// Updates a node whose raw scores may have changed.
    fn update(
        &mut self,
        inputs: Inputs<'_>,
        node: NodeIdx,
        (home, position): (usize, usize),
        score: Option<i64>,
    ) {
        if let Some((group, score)) = self.guests.remove(&node)
            && let Some(score) = score
        {
            self.groups[group].guests.remove(&(Reverse(score), node));
        }
        let raw = self.kept_scores(inputs, node);
        if self.groups[home].raw == raw {
            self.groups[home].tree.set(position, score);
            return;
        }
        self.groups[home].tree.set(position, None);
        let (domain, place) = (self.groups[home].domain, self.groups[home].place);
        let is_right =
            |group: &Group| group.domain == domain && group.place == place && group.raw == raw;
        let group = self.groups.iter().position(is_right).unwrap_or_else(|| {
            let no_members = Tournament::new([].into_iter());
            let at = self.groups.len();
            self.groups.push(Group::new((raw, domain, place), Vec::new(), no_members));
            if let Some((of_domains, place)) = self.of_domains.as_mut().zip(place) {
                of_domains[place].push(at);
            }
            at
        });
        self.guests.insert(node, (group, score));
        self.groups[group].guests.extend(score.map(|score| (Reverse(score), node)));
    }

    /// The raw scores by which nodes are grouped; 0 for those of domains.
    fn kept_scores(&self, inputs: Inputs<'_>, node: NodeIdx) -> Vec<i64> {
        let raw = self.normalised.iter().map(|(at, term)| {
            if self.has_domains && is_of_domains(term) {
                return 0;
            }
            inputs.policy.plugin(*at).score(inputs.cluster, self.class, node, term.id)
        });
        raw.collect()
    }

    /// The node with the highest score, of all or of a topology domain; of equal ones the first. For a shared
    /// index, `class` is the variant.
    pub(super) fn best(
        &self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        rules: &ClassRules,
        domain: Option<DomainIdx>,
    ) -> Option<NodeIdx> {
        let best = match domain {
            None => self.feasible(inputs, class, rules, self.groups.iter()),
            Some(domain) => self.feasible(inputs, class, rules, self.groups_in(domain)),
        };
        let best = best.into_iter().max_by_key(|best| (best.score, Reverse(best.node)));
        best.map(|best| best.node)
    }

    /// The highest score in each of some topology domains.
    pub(super) fn best_scores(
        &self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        rules: &ClassRules,
        domains: &[DomainIdx],
    ) -> Vec<Option<i64>> {
        let groups = domains.iter().flat_map(|domain| self.groups_in(*domain));
        let mut highest: BTreeMap<Option<DomainIdx>, i64> = BTreeMap::new();
        for best in self.feasible(inputs, class, rules, groups) {
            let known = highest.entry(best.group.place).or_insert(best.score);
            *known = best.score.max(*known);
        }
        domains.iter().map(|domain| highest.get(&Some(*domain)).copied()).collect()
    }

    fn groups_in(&self, domain: DomainIdx) -> impl Iterator<Item = &Group> {
        let of_domains = self.of_domains.as_ref().expect("the index is one by domain");
        of_domains[domain].iter().map(|at| &self.groups[*at])
    }

    /// The best node of each of some groups, and its score.
    fn feasible<'a>(
        &'a self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        rules: &ClassRules,
        groups: impl Iterator<Item = &'a Group>,
    ) -> Vec<Feasible<'a>> {
        let Inputs { cluster, policy, .. } = inputs;
        let in_domain = |node: NodeIdx| {
            rules.predicate(policy, cluster, class, node, Dependency::Domain, self.capacity).is_ok()
        };
        let best_of = |group: &Group| match self.sharing {
            Sharing::Class if self.has_domains => group.best().filter(|(node, _)| in_domain(*node)),
            Sharing::Class => group.best(),
            Sharing::Variants => group.best_where(in_domain),
        };
        // First without what is normalised.
        let mut feasible: Vec<Feasible<'_>> = groups
            .filter_map(|group| {
                let (node, score) = best_of(group)?;
                Some(Feasible { group, node, score })
            })
            .collect();
        for (number, (at, term)) in self.normalised.iter().enumerate() {
            let raw = self.raw_scores(inputs, class, &feasible, number, (*at, *term));
            let among = Extremes::of(raw.iter().copied());
            for (best, raw) in feasible.iter_mut().zip(raw) {
                best.score += term.weight * term.scale.apply(raw, among);
            }
        }
        feasible
    }

    /// The raw scores of the best nodes of some groups for one normalised term.
    fn raw_scores(
        &self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        feasible: &[Feasible<'_>],
        number: usize,
        (at, term): (Position, ScoreTerm),
    ) -> Vec<i64> {
        if !self.has_domains || !is_of_domains(&term) {
            return feasible.iter().map(|best| best.group.raw[number]).collect();
        }
        let nodes: Vec<NodeIdx> = feasible.iter().map(|best| best.node).collect();
        let mut raw = vec![0; nodes.len()];
        write_raw_scores(inputs, class, (at, term), &nodes, &mut raw);
        raw
    }

    /// The part of each node's score that is not normalised; `None` if the class does not fit there.
    fn scores(
        &self,
        inputs: Inputs<'_>,
        rules: &ClassRules,
        nodes: &[NodeIdx],
    ) -> Vec<Option<i64>> {
        let mut fitting = nodes.to_vec();
        let dependencies = self.dependencies();
        rules.retain_fitting(inputs, self.class, &mut fitting, self.capacity, dependencies);
        let own = rules.terms().iter().filter(|(_, term)| !is_normalised(term, self.has_domains));
        let totals = absolute_scores(inputs, self.class, own, &fitting);
        if fitting.len() == nodes.len() {
            return totals.into_iter().map(Some).collect();
        }
        let mut fitting = fitting.into_iter().zip(totals).peekable();
        let score = |node| Some(fitting.next_if(|(fitting, _)| fitting == node)?.1);
        nodes.iter().map(score).collect()
    }

    /// The score of one node, if the class fits there, without the terms that are normalised.
    fn score(&self, inputs: Inputs<'_>, rules: &ClassRules, node: NodeIdx) -> Option<i64> {
        if !rules.fits(inputs, self.class, node, self.capacity, self.dependencies()) {
            return None;
        }
        let own = rules.terms().iter().filter(|(_, term)| !is_normalised(term, self.has_domains));
        let scores = own.map(|(at, term)| {
            term.weight * inputs.policy.plugin(*at).score(inputs.cluster, self.class, node, term.id)
        });
        Some(scores.sum())
    }

    /// The dependencies of the predicates that decide which nodes take part; those of the class are
    /// decided.
    const fn dependencies(&self) -> &'static [Dependency] {
        match self.sharing {
            Sharing::Class if !self.has_domains => &[Dependency::Node, Dependency::Domain],
            Sharing::Class | Sharing::Variants => &[Dependency::Node],
        }
    }
}
