//! Nodes that are not ready, or have no network, take no new task.
//!
//! Kubernetes expresses both as taints; v0.5.0 looks at the conditions, and so does this filter.
//!
//! Source: kube-batch v0.5.0 `plugins/predicates/predicates.go`, `CheckNodeCondition`.

use kube_batch_framework::plugin::{Dependencies, Dependency};
use kube_batch_model::{
    column::{Column, NodeIdx},
    facts::node::NodeFacts,
    node_set::NodeSet,
    reason::Unfit,
};

use super::{
    arguments::PredicatesArguments,
    filter::{Filter, Query},
};
use crate::{compiled::Opening, constraint_classes::ConstraintClassIdx};

#[derive(Debug)]
struct NodeReady {
    refusals: Column<NodeIdx, Option<Unfit>>,
    /// The nodes without refusal.
    ready: NodeSet,
}

pub(super) fn build(opening: Opening<'_>, _: &PredicatesArguments) -> Box<dyn Filter> {
    let nodes = opening.cluster.nodes.facts.values();
    let refusals: Column<NodeIdx, _> = nodes.map(|facts| refusal(facts)).collect();
    let ready = NodeSet::of(refusals.values().map(Option::is_none));
    Box::new(NodeReady { refusals, ready })
}

fn refusal(facts: &NodeFacts) -> Option<Unfit> {
    let conditions = facts.conditions;
    if conditions.not_ready {
        Some(Unfit::NotReady)
    } else if conditions.network_unavailable {
        Some(Unfit::NetworkUnavailable)
    } else {
        None
    }
}

impl Filter for NodeReady {
    /// Applies to every class, so that `predicates` declares [`Dependency::Class`] for each.
    fn dependencies(&self, _: ConstraintClassIdx) -> Dependencies {
        Dependencies::only(Dependency::Class)
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        self.refusals[query.node].map_or(Ok(()), Err)
    }

    fn retain_eligible(&self, _: ConstraintClassIdx, nodes: &mut NodeSet) {
        nodes.retain_in(&self.ready);
    }
}
