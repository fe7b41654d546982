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

use kube_batch_framework::plugin::{Dependency, Scale};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, Dim, NodeIdx},
    facts::request::ScoringAmounts,
    resource::Request,
};

use super::{
    arguments::{NodeOrderArguments, ResourceWeights},
    score::Score,
    scored_resources::{ScoredResource, scored_resources},
};
use crate::{
    compiled::Opening,
    lanes::{BUFFER, Counted, LaneAmounts, N_LANES, Rows, exact, score_in_lanes},
    percent::{MAX_SCORE, floor, percent},
};

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
            Self::LeastRequested => percent(allocatable - requested, allocatable),
            Self::MostRequested => percent(requested.min(allocatable), allocatable),
        }
    }
}

impl NodeResourcesFit {
    /// Writes the scores of up to [`N_LANES`] nodes. `None` if amounts are too large to be divided as floats, or
    /// some node has nothing of a resource.
    fn score_lanes(
        &self,
        cluster: &Cluster,
        class: ClassIdx,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Option<()> {
        let (rows, mut buffer) = (Rows::of(nodes), BUFFER);
        let (mut total, mut weights) = ([0.0; N_LANES], 0.0);
        for (resource, arriving) in self.resources.iter().zip(&self.arriving[class]) {
            if !resource.counts_for(*arriving) {
                continue;
            }
            let LaneAmounts { used, allocatable } =
                LaneAmounts::of(&cluster.nodes, &rows, resource.dim, Counted::Scored, &mut buffer)?;
            let (arriving, weight) = (exact(*arriving)?, resource.weight as f64);
            for ((total, used), allocatable) in total.iter_mut().zip(used).zip(allocatable) {
                let requested = used + arriving;
                let part = match self.strategy {
                    Strategy::LeastRequested => (allocatable - requested).max(0.0),
                    Strategy::MostRequested => requested.min(*allocatable),
                };
                *total += weight * floor(MAX_SCORE as f64 * part / allocatable);
            }
            weights += weight;
        }
        let weights = if weights > 0.0 { weights } else { 1.0 };
        for (score, total) in scores.iter_mut().zip(total) {
            *score = floor(total / weights) as i64;
        }
        Some(())
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
            let requested = cluster.nodes.scored(node, resource.dim).wrapping_add(*arriving);
            total += resource.weight * self.strategy.score(requested, allocatable);
            weights += resource.weight;
        }
        if weights == 0 { 0 } else { total / weights }
    }

    fn scores(&self, cluster: &Cluster, class: ClassIdx, nodes: &[NodeIdx], scores: &mut [i64]) {
        let many =
            |nodes: &[NodeIdx], scores: &mut [i64]| self.score_lanes(cluster, class, nodes, scores);
        score_in_lanes(nodes, scores, many, |node| self.score(cluster, class, node));
    }
}
