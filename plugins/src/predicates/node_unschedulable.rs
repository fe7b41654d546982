//! Cordoned nodes take only pods that tolerate it.
//!
//! Source: Kubernetes 1.36, `plugins/nodeunschedulable`.

use kube_batch_framework::plugin::{Dependencies, Dependency};
use kube_batch_model::{column::Column, node_set::NodeSet, reason::Unfit};

use super::{
    arguments::PredicatesArguments,
    filter::{Filter, Query},
};
use crate::{compiled::Opening, constraint_classes::ConstraintClassIdx, taints::tolerates_cordon};

#[derive(Debug)]
struct NodeUnschedulable {
    cordoned: NodeSet,
    tolerates: Column<ConstraintClassIdx, bool>,
}

pub(super) fn build(opening: Opening<'_>, _: &PredicatesArguments) -> Box<dyn Filter> {
    let nodes = opening.cluster.nodes.facts.values();
    Box::new(NodeUnschedulable {
        cordoned: NodeSet::of(nodes.map(|facts| facts.unschedulable)),
        tolerates: opening.to_place(|template| tolerates_cordon(&template.tolerations)),
    })
}

impl Filter for NodeUnschedulable {
    fn dependencies(&self, class: ConstraintClassIdx) -> Dependencies {
        Dependencies::NONE.with_if(Dependency::Class, !self.tolerates[class])
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        if self.cordoned.contains(query.node) { Err(Unfit::Unschedulable) } else { Ok(()) }
    }

    fn retain_eligible(&self, _: ConstraintClassIdx, nodes: &mut NodeSet) {
        nodes.remove_all(&self.cordoned);
    }
}
