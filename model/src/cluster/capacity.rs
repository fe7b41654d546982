//! What nodes can still take.

use super::Nodes;
use crate::{
    column::{Dim, NodeIdx},
    resource::{Request, ResourceVector},
};

impl Nodes {
    /// What is idle on a node once the tasks that are being released are gone, less what is nominated there.
    pub fn future_idle(&self, node: NodeIdx, dim: Dim) -> i64 {
        self.idle[node][dim] + self.releasing[node][dim] - self.pipelined[node][dim]
    }

    /// Whether a request fits into what is idle and not nominated.
    // Parity: see docs/parity.md#a3.
    pub fn fits_idle(&self, node: NodeIdx, request: &Request) -> bool {
        let (idle, releasing, pipelined) =
            (&self.idle[node], &self.releasing[node], &self.pipelined[node]);
        request.unknown().is_empty()
            && request.amounts().iter().all(|(dim, amount)| {
                let future_idle = idle[*dim] + releasing[*dim] - pipelined[*dim];
                *amount <= idle[*dim] && *amount <= future_idle
            })
    }

    /// Keeps the nodes where a request fits into what is idle and not nominated.
    pub fn retain_fits_idle(&self, nodes: &mut Vec<NodeIdx>, request: &Request) {
        self.retain(nodes, request, |amount, idle, future_idle| amount <= idle.min(future_idle));
    }

    /// Keeps the nodes where a request fits into what is idle once the tasks that are being released are
    /// gone.
    pub fn retain_fits_future_idle(&self, nodes: &mut Vec<NodeIdx>, request: &Request) {
        self.retain(nodes, request, |amount, _, future_idle| amount <= future_idle);
    }

    /// Keeps the nodes where `fits` says yes of each amount, given what is idle now and in future.
    fn retain(
        &self,
        nodes: &mut Vec<NodeIdx>,
        request: &Request,
        fits: impl Fn(i64, i64, i64) -> bool,
    ) {
        if !request.unknown().is_empty() {
            nodes.clear();
        }
        for (dim, amount) in request.amounts() {
            nodes.retain(|node| {
                let idle = self.idle[*node][*dim];
                let future_idle = idle + self.releasing[*node][*dim] - self.pipelined[*node][*dim];
                fits(*amount, idle, future_idle)
            });
        }
    }

    /// Whether a request fits into what is idle once the tasks that are being released are gone.
    pub fn fits_future_idle(&self, node: NodeIdx, request: &Request) -> bool {
        let (idle, releasing, pipelined) =
            (&self.idle[node], &self.releasing[node], &self.pipelined[node]);
        let fits =
            |(dim, amount): &(Dim, i64)| *amount <= idle[*dim] + releasing[*dim] - pipelined[*dim];
        request.unknown().is_empty() && request.amounts().iter().all(fits)
    }

    /// The most of each resource that a task can be given: what is idle now, or will be once the tasks
    /// that are being released are gone.
    pub fn most_available(&self, node: NodeIdx) -> ResourceVector {
        let (idle, releasing, pipelined) =
            (&self.idle[node], &self.releasing[node], &self.pipelined[node]);
        let gained = releasing.iter().zip(pipelined).map(|(more, less)| (more - less).max(0));
        idle.iter().zip(gained).map(|(idle, gained)| idle + gained).collect()
    }

    /// How often a request fits into what is idle and not nominated.
    pub fn times_idle(&self, node: NodeIdx, request: &Request) -> u64 {
        self.times(node, request, Ord::min)
    }

    /// How often a request fits into what is idle once the tasks that are being released are gone.
    pub fn times_future_idle(&self, node: NodeIdx, request: &Request) -> u64 {
        self.times(node, request, |_, future_idle| future_idle)
    }

    /// How often a request fits into amounts, each given by what is idle now and in future.
    fn times(&self, node: NodeIdx, request: &Request, available: impl Fn(i64, i64) -> i64) -> u64 {
        if !request.unknown().is_empty() {
            return 0;
        }
        let (idle, releasing, pipelined) =
            (&self.idle[node], &self.releasing[node], &self.pipelined[node]);
        let times = request.amounts().iter().map(|(dim, amount)| {
            let available = available(idle[*dim], idle[*dim] + releasing[*dim] - pipelined[*dim]);
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
        let (idle, releasing, pipelined) =
            (&self.idle[node], &self.releasing[node], &self.pipelined[node]);
        request.amounts().iter().filter_map(move |(dim, amount)| {
            let future_idle = idle[*dim] + releasing[*dim] - pipelined[*dim];
            let available = idle[*dim].min(future_idle);
            (*amount > available).then_some(*dim)
        })
    }
}
