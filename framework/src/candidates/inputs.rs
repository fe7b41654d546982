//! What every answer about a class depends on.

use kube_batch_model::{cluster::Cluster, column::NodeIdx};

use crate::{
    policy::Policy,
    topology::{InLevel, ScopeRef, nodes_in},
};

/// What every search reads: the cluster, the plugins, and what has changed.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) policy: &'a Policy,
    /// Nodes that have changed since the cycle began, in order.
    pub(crate) touched: &'a [NodeIdx],
    /// The nodes to consider; `None` if that is all of them.
    pub(crate) scope: Option<ScopeRef<'a>>,
}

impl Inputs<'_> {
    /// Whether the scope has the node.
    pub(crate) fn is_in_scope(self, node: NodeIdx) -> bool {
        self.scope.is_none_or(|scope| scope.contains(node))
    }

    /// The number of nodes to look at to answer a question about all nodes of the scope.
    pub(crate) fn n_nodes(self) -> usize {
        match self.scope {
            Some(ScopeRef { level, nodes: InLevel::Domain(domain) }) => level.nodes(domain).len(),
            Some(_) | None => self.cluster.nodes.facts.len(),
        }
    }

    /// The nodes of the scope, ascending.
    pub(crate) fn nodes(self) -> Vec<NodeIdx> {
        nodes_in(self.cluster, self.scope)
    }
}
