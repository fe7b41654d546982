//! How much of a node is requested.
//!
//! Over CPU and memory, with `requested` what the tasks there and the new one request together and a
//! resource of which the node has nothing left out, rounded down at every step:
//!
//! - least requested: mean of `100 * (allocatable - requested) / allocatable`, 0 if over;
//! - most requested: mean of `100 * min(requested, allocatable) / allocatable`;
//! - balanced: with `b = 100 * (1 - |f1 - f2| / 2)`, `f = min(1, requested / allocatable)`:
//!   `50 + (50 + b with the task - b without it) / 2`. 75 is no change.
//!
//! The first two count the defaults of containers that request nothing; balance counts real requests
//! and is not scored for a task that requests neither.
//!
//! Source: Kubernetes 1.36, `plugins/noderesources`. Floats where Kubernetes has them,
//! in its order, so that the last digit agrees.

use std::sync::Arc;

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, Column, Dim, NodeIdx},
    facts::class::{PodTemplate, ScoringAmounts},
    resource::Request,
};

use crate::topology_counts::PodCountChange;

/// CPU and memory, in their own units.
type Pair = [i64; 2];

/// The largest score.
const MAX_SCORE: i64 = 100;

/// What is requested on each node, as scores count it.
#[derive(Debug, Default)]
pub(super) struct Resources {
    used: Column<NodeIdx, Pair>,
    amounts: Column<ClassIdx, Amounts>,
}

/// What a task of a class counts.
#[derive(Clone, Copy, Debug)]
struct Amounts {
    /// Where it stands.
    scoring: Pair,
    /// Before it is placed.
    arriving: Pair,
    /// Without defaults.
    requested: Pair,
}

impl Resources {
    pub(super) fn new(cluster: &Cluster) -> Self {
        let requests = cluster.classes.request.values();
        let amounts = |(template, request): (&Arc<PodTemplate>, &Request)| Amounts {
            scoring: pair(template.scoring),
            arriving: pair(template.arriving),
            requested: [request.get(Dim::CPU), request.get(Dim::MEMORY)],
        };
        Self {
            used: Column::filled([0; 2], cluster.nodes.facts.len()),
            amounts: cluster.classes.template.values().zip(requests).map(amounts).collect(),
        }
    }

    /// Whether the class requests CPU or memory.
    pub(super) fn are_requested(&self, class: ClassIdx) -> bool {
        self.amounts[class].requested != [0; 2]
    }

    pub(super) fn least_requested(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx) -> i64 {
        mean(self.requested(class, node), allocatable(cluster, node), |requested, allocatable| {
            if requested > allocatable {
                return 0;
            }
            MAX_SCORE * (allocatable - requested) / allocatable
        })
    }

    pub(super) fn most_requested(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx) -> i64 {
        mean(self.requested(class, node), allocatable(cluster, node), |requested, allocatable| {
            MAX_SCORE * requested.min(allocatable) / allocatable
        })
    }

    pub(super) fn balanced(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx) -> i64 {
        let allocatable = allocatable(cluster, node);
        let used = &cluster.nodes.used[node];
        let without = [used[Dim::CPU], used[Dim::MEMORY]];
        let with = sum(without, self.amounts[class].requested);
        let half = MAX_SCORE / 2;
        half + (half + balance(with, allocatable) - balance(without, allocatable)) / 2
    }

    fn requested(&self, class: ClassIdx, node: NodeIdx) -> Pair {
        sum(self.used[node], self.amounts[class].arriving)
    }

    /// A task of the class came to a node or left it.
    pub(super) fn moved(&mut self, class: ClassIdx, node: NodeIdx, change: PodCountChange) {
        let scoring = self.amounts[class].scoring;
        let moved = scoring.map(|amount| amount.wrapping_mul(change.all.into()));
        self.used[node] = sum(self.used[node], moved);
    }
}

const fn pair(amounts: ScoringAmounts) -> Pair {
    [amounts.cpu_milli, amounts.memory_bytes]
}

/// Sums wrap, as those of the ledgers do: what wrapped is still taken back exactly.
const fn sum(left: Pair, right: Pair) -> Pair {
    [left[0].wrapping_add(right[0]), left[1].wrapping_add(right[1])]
}

fn allocatable(cluster: &Cluster, node: NodeIdx) -> Pair {
    let allocatable = &cluster.nodes.allocatable[node];
    [allocatable[Dim::CPU], allocatable[Dim::MEMORY]]
}

/// The mean of a score over the resources the node has; 0 if it has none.
fn mean(requested: Pair, allocatable: Pair, score: impl Fn(i64, i64) -> i64) -> i64 {
    let mut total = 0;
    let mut n_resources = 0;
    for (requested, allocatable) in requested.into_iter().zip(allocatable) {
        if allocatable != 0 {
            total += score(requested, allocatable);
            n_resources += 1;
        }
    }
    if n_resources == 0 { 0 } else { total / n_resources }
}

/// 100 if CPU and memory are used to the same part, 50 at worst.
fn balance(requested: Pair, allocatable: Pair) -> i64 {
    let fraction = |at: usize| (requested[at] as f64 / allocatable[at] as f64).min(1.0);
    let deviation = if allocatable[0] == 0 || allocatable[1] == 0 {
        0.0
    } else {
        ((fraction(0) - fraction(1)) / 2.0).abs()
    };
    ((1.0 - deviation) * MAX_SCORE as f64) as i64
}
