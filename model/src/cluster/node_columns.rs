//! The amounts of nodes by resource, for comparing one request with very many nodes.
//!
//! The ledgers of `Nodes` have a row for each node. Who compares a request with all nodes wants two or three
//! amounts of each, which are gathered one by one. Here, the amounts of one resource are adjacent, and as floats where
//! scores divide them: vector instructions read and divide several at once.
//!
//! Nothing is known here that the ledgers do not know. The columns are made when they are worth it, and follow the ledgers
//! from then on.

use std::sync::OnceLock;

use crate::column::{Column, Dim, NodeIdx};

/// Up to this amount, sums of two amounts are exact in floats, and a quotient of 100 or less is rounded down to the same
/// integer as without floats: they differ by less than a part of 2^45.
pub const EXACT_IN_FLOATS: i64 = 1 << 45;

/// An amount as a float; negative if it is not exact, or is negative.
pub fn as_exact(amount: i64) -> f64 {
    if (0..=EXACT_IN_FLOATS).contains(&amount) { amount as f64 } else { -1.0 }
}

/// Amounts of one kind, by resource.
pub(super) type ByResource<T> = Column<Dim, Column<NodeIdx, T>>;

/// The amounts of nodes by resource.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeColumns {
    /// What is available, by capacity.
    pub(super) available: [ByResource<i64>; 2],
    pub(super) allocatable: ByResource<f64>,
    pub(super) used: ByResource<f64>,
    /// CPU and memory as scores count them.
    pub(super) scoring: [Column<NodeIdx, f64>; 2],
}

impl NodeColumns {
    /// What each node has of a resource; negative where that is not exact.
    pub fn allocatable(&self, dim: Dim) -> &Column<NodeIdx, f64> {
        &self.allocatable[dim]
    }

    /// What is used of a resource on each node; negative where that is not exact.
    pub fn used(&self, dim: Dim) -> &Column<NodeIdx, f64> {
        &self.used[dim]
    }

    /// What is used of a resource on each node, CPU and memory as scores count them; negative where that is not
    /// exact.
    pub fn scored(&self, dim: Dim) -> &Column<NodeIdx, f64> {
        match dim {
            Dim::CPU => &self.scoring[0],
            Dim::MEMORY => &self.scoring[1],
            other => &self.used[other],
        }
    }
}

/// The columns of the nodes of a cluster, once they have been asked for.
#[derive(Debug, Default)]
pub struct KeptColumns(pub(super) OnceLock<Box<NodeColumns>>);

/// What is derived says nothing new.
impl PartialEq for KeptColumns {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A copy makes its own when they are worth it.
impl Clone for KeptColumns {
    fn clone(&self) -> Self {
        Self::default()
    }
}
