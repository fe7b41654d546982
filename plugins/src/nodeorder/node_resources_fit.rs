//! How much of a node's resources is requested: prefer the emptier node, or the fuller one.
//!
//! `requested` is what the tasks on the node and the new task request together. Each resource has a
//! weight; [`super::scored_resources`] says which of them count. Every step is rounded down:
//!
//! - least requested: weighted mean of `100 * (allocatable - requested) / allocatable`, 0 if over;
//! - most requested: weighted mean of `100 * min(requested, allocatable) / allocatable`.
//!
//! Containers that request no CPU or memory count with Kubernetes' defaults.
//!
//! Source: Kubernetes 1.36, `plugins/noderesources`.

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, Column, Dim, NodeIdx},
    facts::request::ScoringAmounts,
    resource::Request,
};
use kube_batch_framework::plugin::{Dependency, Scale};

use super::{
    arguments::{NodeOrderArguments, ResourceWeights},
    score::Score,
    scored_resources::{MAX_SCORE, ScoredResource, scored_resources},
};
use crate::compiled::Opening;

#[derive(Debug)]
struct NodeResourcesFit {
    strategy: Strategy,
    resources: Vec<ScoredResource>,
    /// What a task of a class requests before it is placed, by position in `resources`.
    arriving: Column<ClassIdx, Vec<i64>>,
}

#[derive(Clone, Copy, Debug)]
enum Strategy {
    LeastRequested,
    MostRequested,
}

pub(super) fn build_least_requested(
    opening: Opening<'_>,
    arguments: &NodeOrderArguments,
) -> Box<dyn Score> {
    build(opening, Strategy::LeastRequested, &arguments.leastrequested_resources)
}

pub(super) fn build_most_requested(
    opening: Opening<'_>,
    arguments: &NodeOrderArguments,
) -> Box<dyn Score> {
    build(opening, Strategy::MostRequested, &arguments.mostrequested_resources)
}

fn build(opening: Opening<'_>, strategy: Strategy, weights: &ResourceWeights) -> Box<dyn Score> {
    let cluster = opening.cluster;
    let resources = scored_resources(cluster, weights);
    let arriving = cluster.classes.template.iter().map(|(class, template)| {
        let request = &cluster.classes.request[class];
        resources.iter().map(|r| arriving(template.arriving, request, r.dim)).collect()
    });
    Box::new(NodeResourcesFit { strategy, arriving: arriving.collect(), resources })
}

/// What a task requests before it is placed.
fn arriving(amounts: ScoringAmounts, request: &Request, dim: Dim) -> i64 {
    match dim {
        Dim::CPU => amounts.cpu_milli,
        Dim::MEMORY => amounts.memory_bytes,
        other => request.get(other),
    }
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

impl NodeResourcesFit {
    /// What the tasks on a node request, CPU and memory with defaults.
    fn on_node(cluster: &Cluster, node: NodeIdx, dim: Dim) -> i64 {
        match dim {
            Dim::CPU => cluster.nodes.scoring[node][0],
            Dim::MEMORY => cluster.nodes.scoring[node][1],
            other => cluster.nodes.used[node][other],
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

    fn applies(&self, _: &Cluster, class: ClassIdx) -> bool {
        let mut resources = self.resources.iter().zip(&self.arriving[class]);
        resources.any(|(resource, arriving)| resource.counts_for(*arriving))
    }

    fn score(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx) -> i64 {
        let (mut total, mut weights) = (0, 0);
        for (resource, arriving) in self.resources.iter().zip(&self.arriving[class]) {
            let Some(allocatable) = resource.allocatable(cluster, node, *arriving) else {
                continue;
            };
            // Sums wrap, as those of the ledgers do: a wrapped sum is still rolled back exactly.
            let requested = Self::on_node(cluster, node, resource.dim).wrapping_add(*arriving);
            total += resource.weight * self.strategy.score(requested, allocatable);
            weights += resource.weight;
        }
        if weights == 0 { 0 } else { total / weights }
    }
}
