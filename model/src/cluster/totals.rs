//! What all nodes have together.

use super::{
    Capacity, Cluster,
    keep_available::counted,
    kept_available::{Counting, KeptAvailable},
};
use crate::{
    column::{Dim, NodeIdx, TaskIdx},
    resource::{Ledger, ResourceVector, UNLIMITED},
};

impl Cluster {
    /// What nodes advertise, and the devices that are published.
    pub fn total(&self) -> ResourceVector {
        let mut total = self.nodes.allocatable.total();
        total.add(&self.device_totals, 1);
        total
    }

    /// What kube-batch can give to jobs: on each node what pods without a job leave, and of the devices those that such
    /// pods do not have.
    // Parity: see docs/parity.md#d2.
    pub fn total_for_jobs(&self) -> ResourceVector {
        self.sum_for_jobs(|_, _| {})
    }

    /// The sum over all nodes of what `of_node` makes of what pods without a job leave there; and the devices.
    pub fn sum_for_jobs(&self, of_node: impl Fn(NodeIdx, &mut [i64])) -> ResourceVector {
        let mut total = self.device_totals.clone();
        let mut left = ResourceVector::zero(self.dimensions.len());
        for node in self.nodes.facts.ids() {
            for dim in self.dimensions.ids() {
                let (allocatable, foreign) =
                    (self.nodes.allocatable[node][dim], self.nodes.foreign[node][dim]);
                if self.counts(node, dim) {
                    left[dim] = (allocatable - foreign).max(0);
                } else {
                    left[dim] = 0;
                    total[dim] = (total[dim] - foreign).max(0);
                }
            }
            of_node(node, &mut left);
            total.add(&left, 1);
        }
        total
    }

    /// What queues share: what kube-batch can give to jobs on the nodes that take new pods, what pods use on the others,
    /// and devices.
    // Parity: see docs/parity.md#d2.
    pub fn total_to_share(&self) -> ResourceVector {
        self.sum_for_jobs(|node, left| self.subtract_unused(node, left))
    }

    /// The same, with what pods of other schedulers use.
    pub fn total_to_share_with_foreign(&self) -> ResourceVector {
        let mut total = self.device_totals.clone();
        for node in self.nodes.facts.ids() {
            let mut all = self.nodes.allocatable[node].to_vec();
            self.subtract_unused(node, &mut all);
            total.add(&all, 1);
        }
        total
    }

    /// Subtracts what is idle on a node that takes no pods.
    fn subtract_unused(&self, node: NodeIdx, left: &mut [i64]) {
        if !self.nodes.facts[node].is_usable() {
            for (all, idle) in left.iter_mut().zip(self.idle_without_not_admitted(node)) {
                *all -= idle.clamp(0, (*all).max(0));
            }
        }
    }

    /// What is idle on a node if pods that are not admitted use nothing.
    // Parity: see docs/parity.md#d7.
    fn idle_without_not_admitted(&self, node: NodeIdx) -> Vec<i64> {
        let mut idle = self.nodes.idle[node].to_vec();
        let not_admitted = |task: &&TaskIdx| self.tasks.facts[**task].not_admitted;
        for task in self.nodes.tasks[node].iter().filter(not_admitted) {
            self.request(*task).charge(&mut idle, 1);
        }
        idle
    }

    /// What is idle, or will be once the tasks that are being released are gone, summed over all nodes. What a
    /// node is over-committed by counts against the others.
    pub fn total_unused(&self) -> ResourceVector {
        let nodes = &self.nodes;
        let mut total = nodes.idle.total();
        total.add(&nodes.releasing.total(), 1);
        for dim in self.dimensions.of_devices() {
            let n_uncounted = nodes.facts.ids().filter(|node| !self.counts(*node, dim)).count();
            let uncounted = UNLIMITED.wrapping_mul(n_uncounted as i64);
            total[dim] = total[dim].wrapping_sub(uncounted);
            total[dim] += self.device_totals[dim];
        }
        total
    }

    /// What is idle on each node without any pod.
    pub fn idle_if_empty(&self) -> Ledger<NodeIdx> {
        let mut idle = self.nodes.allocatable.clone();
        if self.dimensions.of_devices().next().is_some() {
            for node in self.nodes.facts.ids() {
                idle[node].copy_from_slice(&self.dimensions.idle(&self.nodes.allocatable[node]));
            }
        }
        idle
    }

    /// Whether a node counts a resource: otherwise devices decide.
    fn counts(&self, node: NodeIdx, dim: Dim) -> bool {
        self.dimensions.is_counted(dim, self.nodes.allocatable[node][dim])
    }

    /// What is available, summed over the nodes that take new tasks. An over-committed node counts as 0, not as a
    /// negative amount.
    pub fn total_available(&self, capacity: Capacity) -> ResourceVector {
        let mut total = ResourceVector::zero(self.dimensions.len());
        for (node, facts) in self.nodes.facts.iter() {
            for dim in self.dimensions.ids() {
                let available = self.nodes.available(node, dim, capacity);
                total[dim] += counted(available, self.nothing(node, dim), facts.is_usable());
            }
        }
        self.dimensions.ids().map(|dim| self.with_devices(dim, total[dim])).collect()
    }

    /// What is available of one resource: at once if it is [kept](Self::keep_available).
    pub fn available(&self, dim: Dim, capacity: Capacity) -> i64 {
        match self.nodes.kept.of_nodes(dim, capacity) {
            Some(of_nodes) => self.with_devices(dim, of_nodes),
            None => self.total_available(capacity)[dim],
        }
    }

    /// Keeps what is available up to date, until [`forget_available`](super::Nodes::forget_available) is called.
    pub fn keep_available(&mut self) {
        let counting = self.nodes.facts.ids().map(|node| self.counting(node)).collect();
        self.nodes.kept = KeptAvailable::new(&self.nodes, counting);
    }

    fn with_devices(&self, dim: Dim, of_nodes: i64) -> i64 {
        let total = self.device_totals[dim] + of_nodes;
        if self.dimensions.is_of_devices(dim) { total.max(0) } else { total }
    }

    fn counting(&self, node: NodeIdx) -> Counting {
        Counting {
            is_usable: self.nodes.facts[node].is_usable(),
            nothing: self.dimensions.ids().map(|dim| self.nothing(node, dim)).collect(),
        }
    }

    /// The amount that stands for nothing on a node, if devices decide about a resource.
    fn nothing(&self, node: NodeIdx, dim: Dim) -> Option<i64> {
        (!self.counts(node, dim)).then_some(UNLIMITED)
    }
}
