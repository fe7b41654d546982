//! Amounts of many nodes at once, as vector instructions divide them.

use kube_batch_model::{
    cluster::{Nodes, as_exact},
    column::{Column, Dim, NodeIdx, Ordinal as _},
};

/// Nodes that are scored together, so that the compiler uses vector instructions.
pub(crate) const N_LANES: usize = 32;

/// Fewer nodes are scored faster one by one.
const MIN_LANES: usize = N_LANES / 4;

/// A number for each node that is scored.
pub(crate) type Lanes = [f64; N_LANES];

/// Writes the score of each of these nodes: with `many` for up to [`N_LANES`] at once, and with `one` where that returns
/// `None`.
pub(crate) fn score_in_lanes(
    nodes: &[NodeIdx],
    scores: &mut [i64],
    many: impl Fn(&[NodeIdx], &mut [i64]) -> Option<()>,
    one: impl Fn(NodeIdx) -> i64,
) {
    for (nodes, scores) in nodes.chunks(N_LANES).zip(scores.chunks_mut(N_LANES)) {
        if nodes.len() >= MIN_LANES && many(nodes, scores).is_some() {
            continue;
        }
        for (score, node) in scores.iter_mut().zip(nodes) {
            *score = one(*node);
        }
    }
}

/// How what is used of a node is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// As pods request it.
    Requested,
    /// As scores count CPU and memory: with Kubernetes' defaults for containers that request none.
    Scored,
}

/// Where amounts are put that are not adjacent.
pub(crate) type Buffer = [Lanes; 2];

/// A buffer with any amounts.
pub(crate) const BUFFER: Buffer = [[0.0; N_LANES]; 2];

/// What is used of a resource on nodes, and what they have of it.
#[derive(Clone, Copy)]
pub(crate) struct LaneAmounts<'a> {
    pub(crate) used: &'a [f64],
    pub(crate) allocatable: &'a [f64],
}

impl<'a> LaneAmounts<'a> {
    /// Those of up to [`N_LANES`] nodes. `None` if some node has nothing of the resource, or amounts are too large to be
    /// divided as floats.
    pub(crate) fn of(
        all: &'a Nodes,
        rows: &Rows<'_>,
        dim: Dim,
        counted: Counted,
        [used, allocatable]: &'a mut Buffer,
    ) -> Option<Self> {
        let own = match all.columns() {
            Some(columns) => {
                let of_used = match counted {
                    Counted::Requested => columns.used(dim),
                    Counted::Scored => columns.scored(dim),
                };
                let allocatable = rows.read(columns.allocatable(dim), allocatable);
                Self { used: rows.read(of_used, used), allocatable }
            }
            None => {
                for (lane, node) in rows.nodes.iter().enumerate() {
                    let uses = match counted {
                        Counted::Requested => all.used[*node][dim],
                        Counted::Scored => all.scored(*node, dim),
                    };
                    used[lane] = as_exact(uses);
                    allocatable[lane] = as_exact(all.allocatable[*node][dim]);
                }
                let n_lanes = rows.nodes.len();
                Self { used: &used[..n_lanes], allocatable: &allocatable[..n_lanes] }
            }
        };
        // Without a branch for each lane.
        let is_exact = own.used.iter().fold(true, |all, used| all & (*used >= 0.0))
            & own.allocatable.iter().fold(true, |all, has| all & (*has >= 1.0));
        is_exact.then_some(own)
    }
}

/// An amount that a task requests, as a float; `None` if it is too large.
pub(crate) fn exact(amount: i64) -> Option<f64> {
    Some(as_exact(amount)).filter(|amount| *amount >= 0.0)
}

/// Up to [`N_LANES`] nodes.
pub(crate) struct Rows<'n> {
    nodes: &'n [NodeIdx],
    are_adjacent: bool,
}

impl<'n> Rows<'n> {
    pub(crate) fn of(nodes: &'n [NodeIdx]) -> Self {
        let first = nodes.first().map_or(0, |node| node.at());
        let in_order = nodes.iter().zip(first..);
        let are_adjacent = in_order.fold(true, |all, (node, at)| all & (node.at() == at));
        Self { nodes, are_adjacent }
    }

    fn read<'a>(&self, column: &'a Column<NodeIdx, f64>, buffer: &'a mut Lanes) -> &'a [f64] {
        if self.are_adjacent {
            let first = self.nodes.first().map_or(0, |node| node.at());
            return &column.values().as_slice()[first..first + self.nodes.len()];
        }
        for (lane, node) in buffer.iter_mut().zip(self.nodes) {
            *lane = column[*node];
        }
        &buffer[..self.nodes.len()]
    }
}
