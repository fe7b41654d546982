//! The interface of one score.

use std::{fmt, sync::Arc};

use kube_batch_framework::plugin::{Dependency, Scale};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx},
};

use super::arguments::NodeOrderArguments;
use crate::{compiled::Opening, node_labels::LabelColumn, pod_count::Placed};

/// One score. Built once for each session, unless its weight is 0.
pub(super) trait Score: fmt::Debug + Send {
    /// What the raw score depends on.
    fn dependency(&self) -> Dependency;

    /// How raw scores are normalised.
    fn scale(&self) -> Scale;

    /// See [`Plugin::version`](kube_batch_framework::plugin::Plugin::version).
    fn version(&self, _cluster: &Cluster, _class: ClassIdx) -> u64 {
        0
    }

    /// The labels of nodes that decide the score of a class, as far as pods on other nodes do; see
    /// [`Plugin::domains`](kube_batch_framework::plugin::Plugin::domains).
    fn domains(&self, _cluster: &Cluster, _class: ClassIdx) -> Option<Vec<Arc<LabelColumn>>> {
        None
    }

    /// Whether the score can prefer one node to another for a class. If not, it is left out, which
    /// changes no decision and keeps the class on the fast path.
    fn applies(&self, cluster: &Cluster, class: ClassIdx) -> bool;

    /// The raw score of one node, for every scale but [`Scale::Joint`].
    fn score(&self, _cluster: &Cluster, _class: ClassIdx, _node: NodeIdx) -> i64 {
        0
    }

    /// The raw score of each of these nodes; with [`Scale::Joint`], their scores, which are all 0 before. Compiled for each
    /// score: the calls are not virtual.
    fn scores(&self, cluster: &Cluster, class: ClassIdx, nodes: &[NodeIdx], scores: &mut [i64]) {
        for (score, node) in scores.iter_mut().zip(nodes) {
            *score = self.score(cluster, class, *node);
        }
    }

    /// See [`Prescription::Alternative`](kube_batch_framework::plugin::Prescription::Alternative).
    fn try_first(&mut self, _alternative: Option<usize>) {}

    /// Whether placements change the score, other than by what the cluster adds up.
    fn follows(&self) -> bool {
        false
    }

    /// Follows a placement, if [`Score::follows`].
    fn on_placement(&mut self, _placed: &Placed) {}
}

/// Builds a score when a session opens.
pub(super) type BuildScore = fn(Opening<'_>, &NodeOrderArguments) -> Box<dyn Score>;
