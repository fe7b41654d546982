//! What nodes can still take.

use super::tables::Nodes;
use crate::{
    column::{Dim, NodeIdx},
    resource::{Request, ResourceVector},
};

/// Which resources of a node count as available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capacity {
    /// The resources that are idle now and not needed by pipelined tasks. Terminating tasks count as
    /// being on the node.
    // Parity: see docs/parity.md#a3.
    Idle,
    /// The resources that are idle once terminating tasks are gone, minus those that pipelined tasks
    /// need. Terminating tasks do not count as being on the node; pipelined tasks do.
    FutureIdle,
}

impl Capacity {
    /// What is available, given what is idle now and in future.
    pub(super) fn of(self, idle: i64, future_idle: i64) -> i64 {
        match self {
            Self::Idle => idle.min(future_idle),
            Self::FutureIdle => future_idle,
        }
    }
}

impl Nodes {
    /// What is idle on a node once the tasks that are being released are gone, less what is nominated there.
    pub fn future_idle(&self, node: NodeIdx, dim: Dim) -> i64 {
        self.idle[node][dim] + self.releasing[node][dim] - self.pipelined[node][dim]
    }

    /// What is available on a node. Negative if others have over-committed it.
    pub fn available(&self, node: NodeIdx, dim: Dim, capacity: Capacity) -> i64 {
        capacity.of(self.idle[node][dim], self.future_idle(node, dim))
    }

    /// Whether a request fits into what is available on a node.
    pub fn fits(&self, node: NodeIdx, request: &Request, capacity: Capacity) -> bool {
        let available = self.available_on(node, capacity);
        request.unknown().is_empty()
            && request.amounts().iter().all(|(dim, amount)| *amount <= available(*dim))
    }

    /// Keeps the nodes where a request fits into what is available.
    pub fn retain_fitting(&self, nodes: &mut Vec<NodeIdx>, request: &Request, capacity: Capacity) {
        if !request.unknown().is_empty() {
            nodes.clear();
        }
        for (dim, amount) in request.amounts() {
            match self.columns() {
                Some(columns) => {
                    let available = &columns.available[capacity as usize][*dim];
                    nodes.retain(|node| *amount <= available[*node]);
                }
                None => nodes.retain(|node| *amount <= self.available(*node, *dim, capacity)),
            }
        }
    }

    /// How often a request fits into what is available on a node.
    pub fn times(&self, node: NodeIdx, request: &Request, capacity: Capacity) -> u64 {
        if !request.unknown().is_empty() {
            return 0;
        }
        let available = self.available_on(node, capacity);
        let times = request.amounts().iter().map(|(dim, amount)| {
            let available = available(*dim);
            match *amount {
                amount if amount > available => 0,
                amount if amount > 0 => (available / amount).unsigned_abs(),
                _ => u64::MAX,
            }
        });
        times.min().unwrap_or(u64::MAX)
    }

    /// The dimensions in which a request does not fit into what is idle and not nominated.
    pub fn lacking(&self, node: NodeIdx, request: &Request) -> impl Iterator<Item = Dim> {
        let available = self.available_on(node, Capacity::Idle);
        let lacks = move |(dim, amount): &(Dim, i64)| (*amount > available(*dim)).then_some(*dim);
        request.amounts().iter().filter_map(lacks)
    }

    /// The most of each resource that a task can be given: what is idle now, or will be once the tasks
    /// that are being released are gone.
    pub fn most_available(&self, node: NodeIdx) -> ResourceVector {
        let (idle, releasing, pipelined) =
            (&self.idle[node], &self.releasing[node], &self.pipelined[node]);
        let gained = releasing.iter().zip(pipelined).map(|(more, less)| (more - less).max(0));
        idle.iter().zip(gained).map(|(idle, gained)| idle + gained).collect()
    }

    /// What is available on one node, with its rows looked up once.
    fn available_on(&self, node: NodeIdx, capacity: Capacity) -> impl Fn(Dim) -> i64 {
        let (idle, releasing, pipelined) =
            (&self.idle[node], &self.releasing[node], &self.pipelined[node]);
        move |dim| capacity.of(idle[dim], idle[dim] + releasing[dim] - pipelined[dim])
    }
}
