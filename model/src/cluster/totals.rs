//! What all nodes have together.

use super::{Capacity, Cluster};
use crate::{
    column::{Dim, NodeIdx},
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
        let mut total = self.device_totals.clone();
        let nodes = &self.nodes;
        for (node, facts) in nodes.facts.iter() {
            for dim in self.dimensions.ids() {
                let available = nodes.available(node, dim, capacity);
                if !self.counts(node, dim) {
                    total[dim] += available - UNLIMITED;
                } else if facts.is_usable() {
                    total[dim] += available.max(0);
                }
            }
        }
        for dim in self.dimensions.of_devices() {
            total[dim] = total[dim].max(0);
        }
        total
    }
}
