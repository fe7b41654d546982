//! The interface of one score, and the list of all scores.

use std::fmt;

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx},
};
use kube_batch_framework::plugin::{Dependency, Scale};

use super::{
    NodeOrderArguments, image_locality, inter_pod_affinity, node_affinity,
    node_resources_balanced_allocation, node_resources_fit, pod_topology_spread, taint_toleration,
};
use crate::{compiled::Opening, pod_count::Placed};

/// One score. Built anew for each session, unless its weight is 0.
pub(super) trait Score: fmt::Debug + Send {
    /// What the raw score depends on.
    fn dependency(&self) -> Dependency;

    /// How raw scores are normalised.
    fn scale(&self) -> Scale;

    /// Whether the score can prefer one node to another for a class. If not, it is left out, which
    /// changes no decision and keeps the class on the fast path.
    fn applies(&self, cluster: &Cluster, class: ClassIdx) -> bool;

    /// The raw score of one node, for every scale but [`Scale::Joint`].
    fn score(&self, _cluster: &Cluster, _class: ClassIdx, _node: NodeIdx) -> i64 {
        0
    }

    /// The scores of all candidate nodes, for [`Scale::Joint`]. `scores` is all 0.
    fn score_all(
        &self,
        _cluster: &Cluster,
        _class: ClassIdx,
        _nodes: &[NodeIdx],
        _scores: &mut [i64],
    ) {
    }

    /// Follows a placement.
    fn on_placement(&mut self, _placed: &Placed) {}
}

/// Builds a score when a session opens.
type Build = fn(Opening<'_>) -> Box<dyn Score>;
/// The weight of a score.
type Weight = fn(&NodeOrderArguments) -> i64;

/// All scores with their weights. The framework adds them up, so the order makes no difference.
pub(super) const SCORES: [(Weight, Build); 8] = [
    (|weights| weights.nodeaffinity, node_affinity::build),
    (|weights| weights.podaffinity, inter_pod_affinity::build),
    (|weights| weights.leastrequested, node_resources_fit::build_least_requested),
    (|weights| weights.balancedresource, node_resources_balanced_allocation::build),
    (|weights| weights.mostrequested, node_resources_fit::build_most_requested),
    (|weights| weights.tainttoleration, taint_toleration::build),
    (|weights| weights.podtopologyspread, pod_topology_spread::build),
    (|weights| weights.imagelocality, image_locality::build),
];
