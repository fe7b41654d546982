//! How much of a node's CPU and memory is requested: prefer the emptier node, or the fuller one.
//!
//! `requested` is what the tasks on the node and the new task request together. A resource of which
//! the node has nothing is left out. Every step is rounded down:
//!
//! - least requested: mean of `100 * (allocatable - requested) / allocatable`, 0 if over;
//! - most requested: mean of `100 * min(requested, allocatable) / allocatable`.
//!
//! Containers that request nothing count with Kubernetes' defaults.
//!
//! Source: Kubernetes 1.36, `plugins/noderesources`.

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, Column, NodeIdx},
    facts::request::ScoringAmounts,
};
use kube_batch_framework::plugin::{Dependency, Scale};

use super::{
    cpu_and_memory::{CpuAndMemory, MAX_SCORE, allocatable, sum},
    score::Score,
};
use crate::{compiled::Opening, pod_count::Placed};

#[derive(Debug)]
struct NodeResourcesFit {
    strategy: Strategy,
    /// What the tasks on each node request.
    requested: Column<NodeIdx, CpuAndMemory>,
    amounts: Column<ClassIdx, Amounts>,
}

#[derive(Clone, Copy, Debug)]
enum Strategy {
    LeastRequested,
    MostRequested,
}

/// What a task of a class requests.
#[derive(Clone, Copy, Debug)]
struct Amounts {
    /// Once it is on a node.
    placed: CpuAndMemory,
    /// Before it is placed.
    arriving: CpuAndMemory,
}

pub(super) fn build_least_requested(opening: Opening<'_>) -> Box<dyn Score> {
    build(opening, Strategy::LeastRequested)
}

pub(super) fn build_most_requested(opening: Opening<'_>) -> Box<dyn Score> {
    build(opening, Strategy::MostRequested)
}

fn build(opening: Opening<'_>, strategy: Strategy) -> Box<dyn Score> {
    let cluster = opening.cluster;
    let amounts = cluster.classes.template.values().map(|template| Amounts {
        placed: cpu_and_memory(template.scoring),
        arriving: cpu_and_memory(template.arriving),
    });
    Box::new(NodeResourcesFit {
        strategy,
        requested: Column::filled([0; 2], cluster.nodes.facts.len()),
        amounts: amounts.collect(),
    })
}

const fn cpu_and_memory(amounts: ScoringAmounts) -> CpuAndMemory {
    [amounts.cpu_milli, amounts.memory_bytes]
}

impl Strategy {
    fn score(self, requested: i64, allocatable: i64) -> i64 {
        match self {
            Self::LeastRequested if requested > allocatable => 0,
            Self::LeastRequested => MAX_SCORE * (allocatable - requested) / allocatable,
            Self::MostRequested => MAX_SCORE * requested.min(allocatable) / allocatable,
        }
    }
}

impl Score for NodeResourcesFit {
    fn dependency(&self) -> Dependency {
        Dependency::Node
    }

    fn scale(&self) -> Scale {
        Scale::AsIs
    }

    fn applies(&self, _: &Cluster, _: ClassIdx) -> bool {
        true
    }

    fn score(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx) -> i64 {
        let requested = sum(self.requested[node], self.amounts[class].arriving);
        let mut total = 0;
        let mut n_resources = 0;
        for (requested, allocatable) in requested.into_iter().zip(allocatable(cluster, node)) {
            if allocatable != 0 {
                total += self.strategy.score(requested, allocatable);
                n_resources += 1;
            }
        }
        if n_resources == 0 { 0 } else { total / n_resources }
    }

    fn on_placement(&mut self, placed: &Placed) {
        let amounts = self.amounts[placed.class].placed;
        for (node, change) in placed.counts() {
            let change = amounts.map(|amount| amount.wrapping_mul(change.all.into()));
            self.requested[node] = sum(self.requested[node], change);
        }
    }
}
