//! Prefer the node whose CPU and memory are then used most evenly.
//!
//! With `b = 100 * (1 - |f1 - f2| / 2)`, where `f = min(1, requested / allocatable)` of CPU and of
//! memory, the score is `50 + (50 + b with the task - b without it) / 2`, rounded down: 75 if the
//! task changes nothing. Real requests count, without defaults, and a task that requests neither
//! resource is not scored.
//!
//! Source: Kubernetes 1.36, `plugins/noderesources/balanced_allocation.go`. Floats where Kubernetes
//! has them, in its order, so that the last digit agrees.

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, Column, Dim, NodeIdx},
};
use kube_batch_framework::plugin::{Dependency, Scale};

use super::{
    cpu_and_memory::{CpuAndMemory, MAX_SCORE, allocatable, sum},
    score::Score,
};
use crate::compiled::Opening;

#[derive(Debug)]
struct NodeResourcesBalancedAllocation {
    requests: Column<ClassIdx, CpuAndMemory>,
}

pub(super) fn build(opening: Opening<'_>) -> Box<dyn Score> {
    let requests = opening.cluster.classes.request.values();
    let requests = requests.map(|request| [request.get(Dim::CPU), request.get(Dim::MEMORY)]);
    Box::new(NodeResourcesBalancedAllocation { requests: requests.collect() })
}

impl Score for NodeResourcesBalancedAllocation {
    fn dependency(&self) -> Dependency {
        Dependency::Node
    }

    fn scale(&self) -> Scale {
        Scale::AsIs
    }

    fn applies(&self, _: &Cluster, class: ClassIdx) -> bool {
        self.requests[class] != [0; 2]
    }

    fn score(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx) -> i64 {
        let allocatable = allocatable(cluster, node);
        let used = &cluster.nodes.used[node];
        let without = [used[Dim::CPU], used[Dim::MEMORY]];
        let with = sum(without, self.requests[class]);
        let half = MAX_SCORE / 2;
        half + (half + balance(with, allocatable) - balance(without, allocatable)) / 2
    }
}

/// 100 if CPU and memory are used to the same fraction, 50 at worst.
fn balance(requested: CpuAndMemory, allocatable: CpuAndMemory) -> i64 {
    let fraction = |at: usize| (requested[at] as f64 / allocatable[at] as f64).min(1.0);
    let deviation = if allocatable[0] == 0 || allocatable[1] == 0 {
        0.0
    } else {
        ((fraction(0) - fraction(1)) / 2.0).abs()
    };
    ((1.0 - deviation) * MAX_SCORE as f64) as i64
}
