//! The resources that a resource score counts.
//!
//! A resource of which a node has nothing is left out for that node. An extended resource, and every
//! other resource that Kubernetes counts as a scalar, is left out for a pod that does not request
//! it. A resource that no node names is left out altogether, and so is `pods`.
//!
//! Source: Kubernetes 1.37, `plugins/noderesources/resource_allocation.go`.

use kube_batch_model::{
    cluster::Cluster,
    column::{Dim, NodeIdx},
};

use super::arguments::ResourceWeights;

const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// A resource that counts, with its weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScoredResource {
    pub(super) dim: Dim,
    pub(super) weight: i64,
    /// Whether it counts only for pods that request it.
    is_scalar: bool,
}

/// The resources of a score that some node or pod names, in their order.
pub(super) fn scored_resources(
    cluster: &Cluster,
    weights: &ResourceWeights,
) -> Vec<ScoredResource> {
    let scored = weights.iter().filter_map(|(name, weight)| {
        let dim = cluster.dimensions.get(name).filter(|dim| *dim != Dim::PODS)?;
        let is_scalar = !matches!(dim, Dim::CPU | Dim::MEMORY) && **name != *EPHEMERAL_STORAGE;
        Some(ScoredResource { dim, weight: *weight, is_scalar })
    });
    scored.collect()
}

impl ScoredResource {
    /// Whether it counts for a pod that requests so much of it.
    pub(super) const fn counts_for(self, requested: i64) -> bool {
        !self.is_scalar || requested != 0
    }

    /// What a node has of it, if it counts there for a pod that requests so much of it.
    pub(super) fn allocatable(
        self,
        cluster: &Cluster,
        node: NodeIdx,
        requested: i64,
    ) -> Option<i64> {
        let allocatable = cluster.nodes.allocatable[node][self.dim];
        Some(allocatable).filter(|amount| *amount != 0 && self.counts_for(requested))
    }
}
