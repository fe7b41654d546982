//! Searches for nodes, and questions about classes of tasks: what the candidates answer about the session as it is.

use kube_batch_model::{
    column::{ClassIdx, Column, DomainIdx, NodeIdx, TaskIdx},
    reason::FitReport,
};

use super::Session;
use crate::{
    candidates::{Candidates, Choice, Inputs, Room},
    confinement::Confinement,
    plugin::Capacity,
    topology::{Level, Scope, ScopeKey, ScopeRef, nodes_in},
};

impl Session {
    /// Whether evicting these tasks changes for the class only what is free: it changes no answer of a
    /// rule.
    pub fn needs_only_resources(&mut self, class: ClassIdx, victims: &[TaskIdx]) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.needs_only_resources(inputs, class, victims)
    }

    /// Whether every rule admits the class to the node once tasks that are being terminated are gone,
    /// free resources aside.
    pub fn rules_pass(&mut self, class: ClassIdx, node: NodeIdx) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.rules_pass(inputs, class, node)
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
        let (candidates, inputs) = self.query();
        let node = candidates.best(inputs, class, capacity)?;
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
        let (candidates, inputs) = self.query_unread();
        candidates.prepare(inputs, class);
        let eligible = |node: &NodeIdx| candidates.is_eligible(inputs, class, *node);
        let nodes: Vec<NodeIdx> = nodes.iter().copied().filter(eligible).collect();
        let node = candidates.best_of(inputs, class, &nodes, capacity)?;
        Some(Choice { node, capacity })
    }

    /// How many tasks of the class these nodes hold by their free amounts, those that are being
    /// released included, as far as the rules that no placement can change admit the class. An upper
    /// bound.
    pub fn count_fitting(&mut self, class: ClassIdx, nodes: &[NodeIdx]) -> u64 {
        let (candidates, inputs) = self.query_unread();
        candidates.count_fitting(inputs, class, nodes)
    }

    /// How many tasks of the class fit into this capacity of each domain of a level, by what is free and the
    /// rules about single nodes. An upper bound.
    pub fn domain_fits(
        &mut self,
        class: ClassIdx,
        level: &Level,
        capacity: Capacity,
    ) -> Column<DomainIdx, u64> {
        let (candidates, inputs) = self.query();
        candidates.domain_fits(inputs, class, level, capacity)
    }

    /// The score of the best node of each of these domains for a task of the class that fits into this
    /// capacity, normalised over the nodes of all these domains; `None` if it fits on none.
    pub fn domain_scores(
        &mut self,
        class: ClassIdx,
        level: &Level,
        domains: &[DomainIdx],
        capacity: Capacity,
    ) -> Vec<Option<i64>> {
        let (candidates, inputs) = self.query();
        candidates.domain_scores(inputs, class, level, domains, capacity)
    }

    /// The nodes that searches consider, ascending.
    pub fn nodes_in_scope(&self) -> Vec<NodeIdx> {
        nodes_in(&self.cluster, self.confinement.scope(&self.cluster, &self.policy))
    }

    /// Identifies the set of nodes that searches consider; `None` stands for all nodes.
    pub fn scope_key(&self) -> Option<ScopeKey> {
        self.confinement.scope(&self.cluster, &self.policy).map(ScopeRef::key)
    }

    /// Calls a function while searches are confined to a domain.
    pub(crate) fn within<T>(&mut self, scope: Scope, call: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.confinement, Confinement::to(scope));
        let answer = call(self);
        self.confinement = outer;
        answer
    }

    /// Whether a task of the class fits on the node.
    pub fn fits(&mut self, class: ClassIdx, node: NodeIdx, capacity: Capacity) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.prepare(inputs, class);
        candidates.fits(inputs, class, node, capacity)
    }

    /// Whether the predicates that no placement can change admit the class to the node.
    pub fn is_eligible(&mut self, class: ClassIdx, node: NodeIdx) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.prepare(inputs, class);
        candidates.is_eligible(inputs, class, node)
    }

    /// The scores of these nodes for the class without the tasks that are being terminated, normalised over the nodes.
    pub fn scores_once_released(&mut self, class: ClassIdx, nodes: &[NodeIdx]) -> Vec<i64> {
        let (candidates, inputs) = self.query_unread();
        candidates.prepare(inputs, class);
        let Self { cluster, policy, confinement, log, candidates, .. } = self;
        cluster.with_released(nodes, |cluster| {
            let scope = confinement.scope(cluster, policy);
            let inputs = Inputs { cluster, policy, touched: &log.nodes, scope };
            candidates.scores(inputs, class, nodes)
        })
    }

    /// Whether some node of the cluster would have room for a task of the class without kube-batch's own pods. If not,
    /// no search and no eviction finds a place in this cycle.
    pub fn could_hold(&mut self, class: ClassIdx) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.could_hold(inputs, class)
    }

    /// Whether there could be room for a task of the class: see [`Room::WithoutOwnPods`].
    pub fn is_placeable(&mut self, class: ClassIdx) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.is_placeable(inputs, class)
    }

    /// How many tasks of the class there could be room for, counted up to `limit`. Tasks that must all
    /// be in one topology domain are counted in the domain that holds most. An upper bound: other
    /// rules that look at other pods are not considered.
    pub fn count_placeable(&mut self, class: ClassIdx, limit: u64, room: Room) -> u64 {
        let (candidates, inputs) = self.query_unread();
        candidates.count_placeable(inputs, class, limit, room)
    }

    /// Whether a placement on one node can change whether the class may be placed on another.
    pub fn is_open_to_change(&mut self, class: ClassIdx) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.is_open_to_change(inputs, class)
    }

    /// Whether the best node for the class is found through an index.
    pub fn is_indexable(&mut self, class: ClassIdx) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.is_indexable(inputs, class)
    }

    /// Why a task of the class fits on no node that is searched now.
    pub fn explain(&mut self, class: ClassIdx) -> FitReport {
        let (candidates, inputs) = self.query();
        candidates.explain(inputs, class)
    }

    /// Whether answers may be kept from one search to the next; otherwise every plugin is called every time.
    pub fn uses_index(&self) -> bool {
        self.candidates.uses_index()
    }

    /// Whether the scores of a node for the class depend on that node alone, not on the others they are
    /// compared with.
    pub fn scores_are_absolute(&mut self, class: ClassIdx) -> bool {
        let (candidates, inputs) = self.query_unread();
        candidates.scores_are_absolute(inputs, class)
    }

    /// For a query whose answer is stored together with the length of the log it reflects.
    fn query(&mut self) -> (&mut Candidates, Inputs<'_>) {
        self.log.read.nodes = self.log.nodes.len();
        self.query_unread()
    }

    /// For a query whose answer follows the log by itself, or does not depend on it.
    pub(crate) fn query_unread(&mut self) -> (&mut Candidates, Inputs<'_>) {
        let Self { cluster, policy, confinement, log, candidates, .. } = self;
        let scope = confinement.scope(cluster, policy);
        let inputs = Inputs { cluster, policy, touched: &log.nodes, scope };
        (candidates, inputs)
    }
}
