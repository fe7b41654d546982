//! How the columns of [`NodeColumns`] are made, and follow the ledgers.

use std::sync::OnceLock;

use super::{
    capacity::Capacity,
    node_columns::{KeptColumns, NodeColumns, as_exact},
    tables::Nodes,
};
use crate::column::{Column, Dim, NodeIdx};

impl NodeColumns {
    fn new(nodes: &Nodes) -> Self {
        let n_nodes = nodes.facts.len();
        let width = nodes.allocatable.width();
        let amounts = || Column::filled(Column::filled(0.0, n_nodes), width);
        let available = || Column::filled(Column::filled(0, n_nodes), width);
        let mut columns = Self {
            available: [available(), available()],
            allocatable: amounts(),
            used: amounts(),
            scoring: [(); 2].map(|()| Column::filled(0.0, n_nodes)),
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
}

impl Nodes {
    /// What is used of a resource on a node, CPU and memory as scores count them.
    pub fn scored(&self, node: NodeIdx, dim: Dim) -> i64 {
        match dim {
            Dim::CPU => self.scoring[node][0],
            Dim::MEMORY => self.scoring[node][1],
            other => self.used[node][other],
        }
    }

    /// The amounts by resource, if they are [kept](Self::keep_columns) so.
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

    /// Has the columns and what is kept available follow: the amounts of a node have changed.
    pub fn amounts_changed(&mut self, node: NodeIdx) {
        self.available_changed(node);
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
