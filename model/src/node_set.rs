//! Sets of nodes of a snapshot.

use fixedbitset::FixedBitSet;

use crate::column::{NodeIdx, Ordinal};

/// A set of nodes: one bit for each node of the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSet(FixedBitSet);

impl NodeSet {
    /// Every node of a snapshot with this many.
    pub fn all(n_nodes: usize) -> Self {
        let mut bits = FixedBitSet::with_capacity(n_nodes);
        bits.insert_range(..);
        Self(bits)
    }

    /// An empty set for a snapshot with this many nodes.
    pub fn none(n_nodes: usize) -> Self {
        Self(FixedBitSet::with_capacity(n_nodes))
    }

    /// The nodes at whose position the value is `true`; the values are in node order.
    pub fn of(values: impl ExactSizeIterator<Item = bool>) -> Self {
        let mut set = Self::none(values.len());
        for (at, is_member) in values.enumerate() {
            set.0.set(at, is_member);
        }
        set
    }

    /// Whether a node is in the set.
    pub fn contains(&self, node: NodeIdx) -> bool {
        self.0.contains(node.at())
    }

    /// The number of nodes in the set.
    pub fn len(&self) -> usize {
        self.0.count_ones(..)
    }

    /// Whether no node is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_clear()
    }

    /// The nodes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = NodeIdx> {
        self.0.ones().map(NodeIdx::new)
    }

    /// Adds a node of the snapshot.
    pub fn insert(&mut self, node: NodeIdx) {
        self.0.insert(node.at());
    }

    /// Removes the nodes that are not in the other set.
    pub fn retain_in(&mut self, other: &Self) {
        self.0.intersect_with(&other.0);
    }

    /// Removes the nodes of the other set.
    pub fn remove_all(&mut self, other: &Self) {
        self.0.difference_with(&other.0);
    }

    /// Removes the nodes for which the answer is no.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(NodeIdx) -> bool) {
        let unwanted: Vec<NodeIdx> = self.iter().filter(|node| !is_wanted(*node)).collect();
        for node in unwanted {
            self.0.remove(node.at());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(set: &NodeSet) -> Vec<usize> {
        set.iter().map(Ordinal::at).collect()
    }

    #[test]
    fn a_set_loses_what_is_taken_from_it() {
        let even = NodeSet::of((0..100).map(|at| at % 2 == 0));
        let mut set = NodeSet::all(100);
        assert_eq!(set.len(), 100);
        set.remove_all(&even);
        assert_eq!(rows(&set), (0..100).filter(|at| at % 2 == 1).collect::<Vec<_>>());
        set.retain(|node| node.at() < 6);
        assert_eq!(rows(&set), [1, 3, 5]);
        assert!(set.contains(NodeIdx::new(3)) && !set.contains(NodeIdx::new(4)));
        let mut both = set.clone();
        both.retain_in(&NodeSet::of([false, true, true].into_iter()));
        assert_eq!(rows(&both), [1], "a node beyond the other set is not in it");
        set.retain_in(&even);
        assert!(set.is_empty());
        set.insert(NodeIdx::new(7));
        assert_eq!(rows(&set), [7]);
    }
}
