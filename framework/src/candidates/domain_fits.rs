//! How many tasks of a class fit into each domain of a topology level.
//!
//! The sums are kept from one question to the next: only nodes that have changed are counted again.

use std::collections::BTreeSet;

use kube_batch_model::{
    column::{ClassIdx, Column, DomainIdx, NodeIdx},
    node_set::NodeSet,
};

use super::{inputs::Inputs, rules::ClassRules};
use crate::{
    plugin::{Capacity, Dependency},
    topology::Level,
};

/// More tasks than this are not counted on a node.
const MAX_ON_NODE: u64 = 1 << 32;

/// How many tasks of a class fit into each domain of a level.
#[derive(Debug)]
pub(super) struct DomainFits {
    capacity: Capacity,
    of_nodes: Column<NodeIdx, u64>,
    of_domains: Column<DomainIdx, u64>,
    /// How much of the log of touched nodes they reflect.
    seen: usize,
}

impl DomainFits {
    pub(super) fn new(
        inputs: Inputs<'_>,
        class: ClassIdx,
        rules: &ClassRules,
        eligible: &NodeSet,
        level: &Level,
        capacity: Capacity,
    ) -> Self {
        let n_nodes = inputs.cluster.nodes.facts.len();
        let mut new = Self {
            capacity,
            of_nodes: Column::filled(0, n_nodes),
            of_domains: Column::filled(0, level.domains().len()),
            seen: inputs.touched.len(),
        };
        for node in eligible.iter() {
            new.count(inputs, class, rules, level, node);
        }
        new
    }

    /// Counts the nodes again that have changed, and returns how many there are.
    pub(super) fn catch_up(
        &mut self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        rules: &ClassRules,
        eligible: &NodeSet,
        level: &Level,
    ) -> usize {
        let touched = inputs.touched[self.seen..].iter().filter(|node| eligible.contains(**node));
        // Moves that are taken back touch their nodes again.
        let touched: BTreeSet<NodeIdx> = touched.copied().collect();
        for node in &touched {
            self.count(inputs, class, rules, level, *node);
        }
        self.seen = inputs.touched.len();
        touched.len()
    }

    /// The sums.
    pub(super) const fn of_domains(&self) -> &Column<DomainIdx, u64> {
        &self.of_domains
    }

    /// Counts an eligible node.
    fn count(
        &mut self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        rules: &ClassRules,
        level: &Level,
        node: NodeIdx,
    ) {
        let Some(domain) = level.domain(node) else { return };
        let request = &inputs.cluster.classes.request[class];
        let n_tasks = inputs.cluster.nodes.times(node, request, self.capacity);
        let mut n_tasks = n_tasks.min(MAX_ON_NODE);
        if n_tasks > 0 {
            n_tasks = match rules.pass(inputs, class, node, self.capacity, &[Dependency::Node]) {
                true => n_tasks.min(rules.max_on_node(inputs, class, node, self.capacity)),
                false => 0,
            };
        }
        let before = std::mem::replace(&mut self.of_nodes[node], n_tasks);
        self.of_domains[domain] = self.of_domains[domain] - before + n_tasks;
    }
}
