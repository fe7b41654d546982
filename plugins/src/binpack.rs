//! Packing: prefer the node whose resources are fullest once the task is placed.
//!
//! The score of a node, for a task that requests `request` of a resource, is the weighted mean of
//! `100 * (used + request) / allocatable` over the resources that have a weight and that the task
//! requests. It is 0 if `used + request` of one of them is more than `allocatable`, as is possible while
//! tasks are being terminated. A resource of which the node has nothing counts as 0; one of which no
//! node has anything is left out, but then the task fits nowhere.
//!
//! `used` is what the tasks on the node request, including those that are being terminated and those
//! that are nominated for it. Requests count as they are, without defaults for containers that
//! request nothing, so a task that requests none of the resources is not scored.
//!
//! Every step is rounded down, as in Kubernetes' scores: the percentage of each resource, and the
//! mean. Volcano's score is a float that is not rounded. A score here is up to 2 points lower, so nodes
//! that differ by less than that in Volcano may be equal here, or in the other order.
//!
//! Source: Volcano 1.15, `pkg/scheduler/plugins/binpack/binpack.go`. There, nominated tasks do not count
//! as used.
// Parity: new, see docs/parity.md#f14.

use kube_batch_framework::{
    arguments::{ArgumentKind, ArgumentSpec, Arguments, ListItems},
    plugin::{
        Dependencies, Dependency, OrderScope, Plugin, Scale, ScoreTerm, VictimQuestion, VictimScope,
    },
    session_cache::SessionCache,
    spec::PluginSpec,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Dim, NodeIdx, TaskIdx},
    resource::Request,
};

use crate::{
    lanes::{BUFFER, Counted, LaneAmounts, N_LANES, Rows, exact, score_in_lanes},
    percent::{MAX_SCORE, floor, percent},
};

/// The plugin `binpack`.
#[derive(Debug, Default)]
pub struct Binpack {
    arguments: BinpackArguments,
    /// The resources with a weight that some node or pod names.
    resources: Vec<PackedResource>,
}

/// The weights of the score and of the resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinpackArguments {
    /// `binpack.weight`: of the score.
    pub weight: i64,
    /// `binpack.cpu`.
    pub cpu: i64,
    /// `binpack.memory`.
    pub memory: i64,
    /// `binpack.resources`: other resources, with weights of 1 or `binpack.resources.NAME`.
    pub resources: Vec<(String, i64)>,
}

#[derive(Clone, Copy, Debug)]
struct PackedResource {
    dim: Dim,
    /// Positive.
    weight: i64,
}

const WEIGHT: ArgumentSpec =
    ArgumentSpec::weight("binpack.weight", 1, "nodes whose resources are fuller with the pod");
const CPU: ArgumentSpec = resource_weight("binpack.cpu", "weight of CPU");
const MEMORY: ArgumentSpec = resource_weight("binpack.memory", "weight of memory");
const RESOURCES: ArgumentSpec = ArgumentSpec {
    key: "binpack.resources",
    kind: ArgumentKind::WeightedNames {
        items: ListItems::OtherResources,
        default_weight: DEFAULT_WEIGHT,
        range: RESOURCE_WEIGHTS,
    },
    about: "other resources that count; binpack.resources.NAME is the weight of one",
};

/// The default of each weight, as in Volcano.
const DEFAULT_WEIGHT: i64 = 1;

/// The least and the largest weight of a resource. Volcano reads a negative one as 1; the largest is
/// that of a score.
const RESOURCE_WEIGHTS: (i64, i64) = (0, 1_000_000);

const fn resource_weight(key: &'static str, about: &'static str) -> ArgumentSpec {
    let kind = ArgumentKind::Integer { default: DEFAULT_WEIGHT, range: RESOURCE_WEIGHTS };
    ArgumentSpec { key, kind, about }
}

/// How a configuration names the plugin.
pub const SPEC: PluginSpec = PluginSpec {
    name: "binpack",
    about: "packs pods on the nodes whose resources are fullest",
    arguments: &[WEIGHT, CPU, MEMORY, RESOURCES],
    metadata_prefixes: &[],
    new: |arguments| Box::new(Binpack::new(BinpackArguments::of(arguments))),
};

impl Default for BinpackArguments {
    fn default() -> Self {
        Self::of(&Arguments::default())
    }
}

impl BinpackArguments {
    fn of(arguments: &Arguments) -> Self {
        Self {
            weight: arguments.integer(&WEIGHT),
            cpu: arguments.integer(&CPU),
            memory: arguments.integer(&MEMORY),
            resources: arguments.weights(&RESOURCES),
        }
    }

    /// The resources with a positive weight that some node or pod names; the first weight of a name
    /// counts.
    fn packed(&self, cluster: &Cluster) -> Vec<PackedResource> {
        let others = self.resources.iter().filter_map(|(name, weight)| {
            cluster.dimensions.get(name).map(|dim| PackedResource { dim, weight: *weight })
        });
        let cpu = PackedResource { dim: Dim::CPU, weight: self.cpu };
        let memory = PackedResource { dim: Dim::MEMORY, weight: self.memory };
        let mut packed: Vec<PackedResource> = Vec::new();
        for resource in [cpu, memory].into_iter().chain(others) {
            if packed.iter().all(|other| other.dim != resource.dim) {
                packed.push(resource);
            }
        }
        packed.retain(|resource| resource.weight > 0);
        packed
    }
}

impl Binpack {
    /// The plugin with its weights, before any session.
    pub fn new(arguments: BinpackArguments) -> Self {
        Self { arguments, ..Self::default() }
    }

    /// The resources that count for a class, with what it requests of each.
    fn requested<'a>(
        &'a self,
        request: &'a Request,
    ) -> impl Iterator<Item = (PackedResource, i64)> + 'a {
        let resources =
            self.resources.iter().map(|resource| (*resource, request.get(resource.dim)));
        resources.filter(|(_, amount)| *amount > 0)
    }

    fn score_node(&self, cluster: &Cluster, request: &Request, node: NodeIdx) -> i64 {
        let (mut total, mut weights) = (0, 0);
        for (resource, amount) in self.requested(request) {
            // Sums wrap, as those of the ledgers do.
            let wanted = cluster.nodes.used[node][resource.dim].wrapping_add(amount);
            let Some(percent) = fullness(wanted, cluster.nodes.allocatable[node][resource.dim])
            else {
                return 0;
            };
            total += resource.weight * percent;
            weights += resource.weight;
        }
        if weights == 0 { 0 } else { total / weights }
    }

    /// Writes the scores of up to [`N_LANES`] nodes. `None` if some node has nothing of a resource, or amounts
    /// are too large to be divided as floats.
    fn score_lanes(
        &self,
        cluster: &Cluster,
        request: &Request,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Option<()> {
        let (rows, mut buffer) = (Rows::of(nodes), BUFFER);
        let (mut total, mut weights, mut has_enough) = ([0.0; N_LANES], 0.0, [1.0; N_LANES]);
        for (resource, amount) in self.requested(request) {
            let LaneAmounts { used, allocatable } = LaneAmounts::of(
                &cluster.nodes,
                &rows,
                resource.dim,
                Counted::Requested,
                &mut buffer,
            )?;
            let (amount, weight) = (exact(amount)?, resource.weight as f64);
            let lanes = total.iter_mut().zip(&mut has_enough).zip(used).zip(allocatable);
            for (((total, has_enough), used), allocatable) in lanes {
                let wanted = used + amount;
                let part = wanted.min(*allocatable);
                *total += weight * floor(MAX_SCORE as f64 * part / allocatable);
                *has_enough = if wanted > *allocatable { 0.0 } else { *has_enough };
            }
            weights += weight;
        }
        for ((score, total), has_enough) in scores.iter_mut().zip(total).zip(has_enough) {
            *score = floor(has_enough * total / weights) as i64;
        }
        Some(())
    }
}

/// The percentage of a resource that is used once the task is placed. `None` if that is more than all.
fn fullness(wanted: i64, allocatable: i64) -> Option<i64> {
    match allocatable {
        0 => Some(0),
        _ if (0..=allocatable).contains(&wanted) => Some(percent(wanted, allocatable)),
        _ => None,
    }
}

impl Plugin for Binpack {
    fn name(&self) -> &'static str {
        "binpack"
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
        Dependencies::NONE
    }

    fn on_session_open(&mut self, cluster: &Cluster, _: &mut SessionCache<'_>) {
        self.resources = self.arguments.packed(cluster);
    }

    fn score_terms(&self, cluster: &Cluster, class: ClassIdx) -> Vec<ScoreTerm> {
        let weight = self.arguments.weight;
        if weight == 0 || self.requested(&cluster.classes.request[class]).next().is_none() {
            return Vec::new();
        }
        let (dependency, scale) = (Dependency::Node, Scale::AsIs);
        vec![ScoreTerm { id: 0, weight, dependency, scale }]
    }

    fn score(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx, _: u8) -> i64 {
        self.score_node(cluster, &cluster.classes.request[class], node)
    }

    fn scores(
        &self,
        cluster: &Cluster,
        class: ClassIdx,
        nodes: &[NodeIdx],
        _: u8,
        scores: &mut [i64],
    ) {
        let request = &cluster.classes.request[class];
        let many = |nodes: &[NodeIdx], scores: &mut [i64]| {
            self.score_lanes(cluster, request, nodes, scores)
        };
        score_in_lanes(nodes, scores, many, |node| self.score_node(cluster, request, node));
    }

    fn victim_scope(&self, _: &Cluster, _: TaskIdx, _: VictimQuestion) -> VictimScope {
        VictimScope::NONE
    }
}
