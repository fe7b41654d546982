//! The amounts of nodes by resource, for comparing one request with very many nodes.
//!
//! The ledgers of [`Nodes`](super::Nodes) have a row for each node. Who compares a request with all nodes wants two or three
//! amounts of each, which are gathered one by one. Here, the amounts of one resource are adjacent, and as floats where
//! scores divide them: vector instructions read and divide several at once.
//!
//! Nothing is known here that the ledgers do not know. The columns are made when they are worth it, and follow the ledgers
//! from then on.

use std::sync::OnceLock;

use super::{capacity::Capacity, tables::Nodes};
use crate::column::{Column, Dim, NodeIdx};

/// Up to this amount, sums of two amounts are exact in floats, and a quotient of 100 or less is rounded down to the same
/// integer as without floats: they differ by less than a part of 2^45.
pub const EXACT_IN_FLOATS: i64 = 1 << 45;

/// What stands for an amount that is negative, or not exact in floats.
const INEXACT: f64 = -1.0;

/// Amounts of one kind, by resource.
type ByResource<T> = Column<Dim, Column<NodeIdx, T>>;

/// The amounts of nodes by resource.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeColumns {
    /// What is available, by capacity.
    available: [ByResource<i64>; 2],
    allocatable: ByResource<f64>,
    used: ByResource<f64>,
    /// CPU and memory as scores count them.
    scoring: [Column<NodeIdx, f64>; 2],
}

impl NodeColumns {
    fn new(nodes: &Nodes) -> Self {
        let n_nodes = nodes.facts.len();
        let width = nodes.allocatable.width();
        let amounts = || Column::filled(Column::filled(INEXACT, n_nodes), width);
        let available = || Column::filled(Column::filled(0, n_nodes), width);
        let mut columns = Self {
            available: [available(), available()],
            allocatable: amounts(),
            used: amounts(),
            scoring: [(); 2].map(|()| Column::filled(INEXACT, n_nodes)),
        };
        for node in nodes.facts.ids() {
            columns.set(nodes, node);
        }
        columns
    }

    /// Reads the amounts of a node again.
    fn set(&mut self, nodes: &Nodes, node: NodeIdx) {
        for dim in self.used.ids() {
            for capacity in [Capacity::Idle, Capacity::FutureIdle] {
                self.available[capacity as usize][dim][node] = nodes.available(node, dim, capacity);
            }
            self.allocatable[dim][node] = as_exact(nodes.allocatable[node][dim]);
            self.used[dim][node] = as_exact(nodes.used[node][dim]);
        }
        for (column, amount) in self.scoring.iter_mut().zip(nodes.scoring[node]) {
            column[node] = as_exact(amount);
        }
    }

    /// What is available of a resource on each node.
    pub(super) fn available(&self, dim: Dim, capacity: Capacity) -> &Column<NodeIdx, i64> {
        &self.available[capacity as usize][dim]
    }

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

fn as_exact(amount: i64) -> f64 {
    if (0..=EXACT_IN_FLOATS).contains(&amount) { amount as f64 } else { INEXACT }
}

/// The columns of the nodes of a cluster, once they have been asked for.
#[derive(Debug, Default)]
pub struct KeptColumns(OnceLock<Box<NodeColumns>>);

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

impl Nodes {
    /// The amounts by resource, if somebody has asked to [keep](Self::keep_columns) them.
    pub fn columns(&self) -> Option<&NodeColumns> {
        self.columns.0.get().map(|columns| &**columns)
    }

    /// Keeps the amounts also by resource, until [`forget_columns`](Self::forget_columns) is called. That takes about as long as
    /// comparing one request with all nodes.
    pub fn keep_columns(&self) {
        self.columns.0.get_or_init(|| Box::new(NodeColumns::new(self)));
    }

    /// Ends what [`keep_columns`](Self::keep_columns) began.
    pub fn forget_columns(&mut self) {
        self.columns.0.take();
    }

    /// Has the columns follow: the amounts of a node have changed.
    pub fn amounts_changed(&mut self, node: NodeIdx) {
        if let Some(mut columns) = self.columns.0.take() {
            columns.set(self, node);
            self.columns = KeptColumns(OnceLock::from(columns));
        }
    }

    /// A node of which the columns do not say what the ledgers say.
    pub(crate) fn unlike_in_columns(&self) -> Option<NodeIdx> {
        let columns = self.columns().filter(|columns| **columns != NodeColumns::new(self))?;
        let mut again = columns.clone();
        self.facts.ids().find(|node| {
            again.set(self, *node);
            again != *columns
        })
    }
}
