//! Amounts of CPU and memory, the resources that Kubernetes scores by default.

use kube_batch_api::{
    cluster::Cluster,
    column::{Dim, NodeIdx},
};

/// Milli-CPU and bytes of memory.
pub(super) type CpuAndMemory = [i64; 2];

/// The largest score.
pub(super) const MAX_SCORE: i64 = 100;

/// Sums wrap, as those of the ledgers do: a wrapped sum is still rolled back exactly.
pub(super) const fn sum(left: CpuAndMemory, right: CpuAndMemory) -> CpuAndMemory {
    [left[0].wrapping_add(right[0]), left[1].wrapping_add(right[1])]
}

/// What a node has.
pub(super) fn allocatable(cluster: &Cluster, node: NodeIdx) -> CpuAndMemory {
    let allocatable = &cluster.nodes.allocatable[node];
    [allocatable[Dim::CPU], allocatable[Dim::MEMORY]]
}
