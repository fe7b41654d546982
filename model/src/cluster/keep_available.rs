//! Keeps what all nodes have available together up to date while placements change.

use super::{
    capacity::Capacity,
    kept_available::{AvailableOnNodes, Counting, KeptAvailable},
    tables::Nodes,
};
use crate::{
    column::{Column, Dim, NodeIdx},
    resource::{Ledger, ResourceVector},
};

/// What a node adds that has this available.
pub(super) fn counted(available: i64, nothing: Option<i64>, is_usable: bool) -> i64 {
    match nothing {
        Some(nothing) => available - nothing,
        None if is_usable => available.max(0),
        None => 0,
    }
}

impl KeptAvailable {
    pub(super) fn new(nodes: &Nodes, counting: Column<NodeIdx, Counting>) -> Self {
        let width = nodes.allocatable.width();
        let nothing = || Ledger::zero(width, nodes.facts.len());
        let totals = [(); 2].map(|()| ResourceVector::zero(width));
        let mut available = AvailableOnNodes { by_node: [nothing(), nothing()], totals, counting };
        nodes.facts.ids().for_each(|node| available.set(nodes, node));
        Self(Some(Box::new(available)))
    }

    /// What the nodes have together.
    pub(super) fn of_nodes(&self, dim: Dim, capacity: Capacity) -> Option<i64> {
        self.0.as_ref().map(|available| available.totals[capacity as usize][dim])
    }
}

impl AvailableOnNodes {
    fn set(&mut self, nodes: &Nodes, node: NodeIdx) {
        for capacity in [Capacity::Idle, Capacity::FutureIdle] {
            let (by_node, totals) =
                (&mut self.by_node[capacity as usize], &mut self.totals[capacity as usize]);
            let Counting { is_usable, nothing } = &self.counting[node];
            for (dim, nothing) in nothing.iter() {
                let next = counted(nodes.available(node, dim, capacity), *nothing, *is_usable);
                totals[dim] += next - std::mem::replace(&mut by_node[node][dim], next);
            }
        }
    }
}

impl Nodes {
    /// Ends what [`Cluster::keep_available`](super::Cluster::keep_available) began.
    pub fn forget_available(&mut self) {
        self.kept = KeptAvailable::default();
    }

    /// Has what is kept follow: the amounts of a node have changed.
    pub(super) fn available_changed(&mut self, node: NodeIdx) {
        if let Some(mut available) = self.kept.0.take() {
            available.set(self, node);
            self.kept = KeptAvailable(Some(available));
        }
    }
}
