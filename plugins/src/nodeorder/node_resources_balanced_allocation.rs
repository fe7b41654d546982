//! Prefer the node whose resources are then used most evenly.
//!
//! With `b = 100 * (1 - d)`, where `d` is the standard deviation of `f = min(1, requested /
//! allocatable)` over the resources that count, the score is `50 + (50 + b with the task - b without
//! it) / 2`, rounded down: 75 if the task changes nothing. Real requests count, without defaults,
//! and a task that requests none of the resources is not scored. [`super::scored_resources`] says
//! which resources count; a single one has no deviation.
//!
//! Source: Kubernetes 1.36, `plugins/noderesources/balanced_allocation.go`. Floats where Kubernetes
//! has them, in its order, so that the last digit agrees.

use kube_batch_framework::plugin::{Dependency, Scale};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, Dim, NodeIdx},
};

use super::{
    arguments::NodeOrderArguments,
    score::Score,
    scored_resources::{ScoredResource, scored_resources},
};
use crate::{
    compiled::Opening,
    lanes::{BUFFER, Counted, LaneAmounts, Rows, exact, score_in_lanes},
    percent::{MAX_SCORE, floor},
};

#[derive(Debug)]
struct NodeResourcesBalancedAllocation {
    resources: Vec<ScoredResource>,
    /// By position in `resources`.
    requests: Column<ClassIdx, Vec<i64>>,
}

pub(super) fn build(opening: Opening<'_>, arguments: &NodeOrderArguments) -> Box<dyn Score> {
    let resources = scored_resources(opening.cluster, &arguments.balancedresource_resources);
    let requests = opening.cluster.classes.request.values();
    let requests = requests
        .map(|request| resources.iter().map(|resource| request.get(resource.dim)).collect());
    Box::new(NodeResourcesBalancedAllocation { requests: requests.collect(), resources })
}

impl NodeResourcesBalancedAllocation {
    /// The two resources that count for the class, with what it requests of them, if there are two.
    fn two_resources(&self, class: ClassIdx) -> Option<[(Dim, i64); 2]> {
        let resources = self.resources.iter().zip(&self.requests[class]);
        let counted = resources.filter(|(resource, request)| resource.counts_for(**request));
        let mut counted = counted.map(|(resource, request)| (resource.dim, *request));
        let two = [counted.next()?, counted.next()?];
        counted.next().is_none().then_some(two)
    }
}

/// Writes the scores of some nodes, if two resources count and a task requests so much of them. `None` if some
/// node has nothing of one, or amounts are too large to be divided as floats.
fn score_lanes(
    cluster: &Cluster,
    nodes: &[NodeIdx],
    resources: [(Dim, i64); 2],
    scores: &mut [i64],
) -> Option<()> {
    let (rows, mut buffers) = (Rows::of(nodes), [BUFFER; 2]);
    let [of_left, of_right] = &mut buffers;
    let [(left, left_request), (right, right_request)] = resources;
    let left = LaneAmounts::of(&cluster.nodes, &rows, left, Counted::Requested, of_left)?;
    let right = LaneAmounts::of(&cluster.nodes, &rows, right, Counted::Requested, of_right)?;
    let (more_left, more_right) = (exact(left_request)?, exact(right_request)?);
    let fraction = |used: f64, allocatable: f64| (used / allocatable).min(1.0);
    let balance =
        |left: f64, right: f64| floor((1.0 - ((left - right) / 2.0).abs()) * MAX_SCORE as f64);
    let half = MAX_SCORE / 2;
    let left = left.used.iter().zip(left.allocatable);
    let right = right.used.iter().zip(right.allocatable);
    for ((score, (left, left_all)), (right, right_all)) in scores.iter_mut().zip(left).zip(right) {
        let without = balance(fraction(*left, *left_all), fraction(*right, *right_all));
        let (left, right) = (left + more_left, right + more_right);
        let with = balance(fraction(left, *left_all), fraction(right, *right_all));
        *score = half + (half + (with - without) as i64) / 2;
    }
    Some(())
}

impl Score for NodeResourcesBalancedAllocation {
    fn dependency(&self) -> Dependency {
        Dependency::Node
    }

    fn scale(&self) -> Scale {
        Scale::AsIs
    }

    fn applies(&self, _: &Cluster, class: ClassIdx) -> bool {
        self.requests[class].iter().any(|request| *request != 0)
    }

    fn score(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx) -> i64 {
        let used = &cluster.nodes.used[node];
        let resources = self.resources.iter().zip(&self.requests[class]);
        let counted = resources.filter_map(|(resource, request)| {
            let allocatable = resource.allocatable(cluster, node, *request)?;
            Some((used[resource.dim], *request, allocatable))
        });
        let fraction =
            |requested: i64, allocatable: i64| (requested as f64 / allocatable as f64).min(1.0);
        let without = counted.clone().map(|(used, _, allocatable)| fraction(used, allocatable));
        let with = counted
            .map(|(used, request, allocatable)| fraction(used.wrapping_add(request), allocatable));
        let half = MAX_SCORE / 2;
        half + (half + balance(with) - balance(without)) / 2
    }

    fn scores(&self, cluster: &Cluster, class: ClassIdx, nodes: &[NodeIdx], scores: &mut [i64]) {
        let resources = self.two_resources(class);
        let many =
            |nodes: &[NodeIdx], scores: &mut [i64]| score_lanes(cluster, nodes, resources?, scores);
        score_in_lanes(nodes, scores, many, |node| self.score(cluster, class, node));
    }
}

/// 100 if all fractions are equal, 50 at worst.
fn balance(fractions: impl Iterator<Item = f64> + Clone) -> i64 {
    ((1.0 - deviation(fractions)) * MAX_SCORE as f64) as i64
}

/// The standard deviation.
fn deviation(fractions: impl Iterator<Item = f64> + Clone) -> f64 {
    let mut first = fractions.clone();
    let (Some(left), Some(right)) = (first.next(), first.next()) else { return 0.0 };
    if first.next().is_none() {
        return ((left - right) / 2.0).abs();
    }
    let n = fractions.clone().count() as f64;
    let mean = fractions.clone().sum::<f64>() / n;
    let squares = fractions.map(|fraction| (fraction - mean) * (fraction - mean)).sum::<f64>();
    (squares / n).sqrt()
}
