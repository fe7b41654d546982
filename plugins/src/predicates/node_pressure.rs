//! Nodes under pressure take fewer tasks, as far as the arguments of the plugin say so.
//!
//! Memory pressure refuses pods of QoS class BestEffort, disk pressure and a lack of process ids
//! refuse every pod.
//!
//! Source: kube-batch v0.5.0 `plugins/predicates/predicates.go`, `CheckNodeMemoryPressure`,
//! `CheckNodeDiskPressure` and `CheckNodePIDPressure`.

use kube_batch_framework::plugin::{Dependencies, Dependency};
use kube_batch_model::{
    column::{Column, NodeIdx},
    facts::node::NodeFacts,
    reason::Unfit,
};

use super::{
    arguments::PredicatesArguments,
    filter::{Filter, Query},
};
use crate::{compiled::Opening, constraint_classes::ConstraintClassIdx};

#[derive(Debug)]
struct NodePressure {
    /// Whether any argument is on.
    is_on: bool,
    memory: Column<NodeIdx, bool>,
    disk_or_pid: Column<NodeIdx, Option<Unfit>>,
    is_best_effort: Column<ConstraintClassIdx, bool>,
}

pub(super) fn build(opening: Opening<'_>, arguments: &PredicatesArguments) -> Box<dyn Filter> {
    let PredicatesArguments { memory_pressure, disk_pressure, pid_pressure, .. } = *arguments;
    let nodes = || opening.cluster.nodes.facts.values();
    let disk_or_pid = |facts: &NodeFacts| {
        if disk_pressure && facts.conditions.disk_pressure {
            Some(Unfit::DiskPressure)
        } else if pid_pressure && facts.conditions.pid_pressure {
            Some(Unfit::PidPressure)
        } else {
            None
        }
    };
    Box::new(NodePressure {
        is_on: memory_pressure || disk_pressure || pid_pressure,
        memory: nodes().map(|facts| memory_pressure && facts.conditions.memory_pressure).collect(),
        disk_or_pid: nodes().map(|facts| disk_or_pid(facts)).collect(),
        is_best_effort: opening.to_place(|template| template.qos_best_effort),
    })
}

impl Filter for NodePressure {
    fn dependencies(&self, _: ConstraintClassIdx) -> Dependencies {
        Dependencies::NONE.with_if(Dependency::Class, self.is_on)
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        if self.memory[query.node] && self.is_best_effort[query.class] {
            return Err(Unfit::MemoryPressure);
        }
        self.disk_or_pid[query.node].map_or(Ok(()), Err)
    }
}
