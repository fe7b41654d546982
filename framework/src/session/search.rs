//! Searches for nodes.

use kube_batch_model::column::{ClassIdx, NodeIdx};

use super::Session;
use crate::{
    candidates::{Inputs, NodeSearch},
    confinement::Confinement,
    topology::{Scope, ScopeKey, ScopeRef, nodes_in},
};

impl Session {
    /// To search nodes, and to ask about classes of tasks.
    pub fn search(&mut self) -> NodeSearch<'_> {
        let Self { cluster, policy, confinement, log, candidates, .. } = self;
        let scope = confinement.scope(cluster, policy);
        let inputs = Inputs { cluster, policy, touched: &log.nodes, scope };
        NodeSearch { kept: candidates, inputs, read: &mut log.read.nodes }
    }

    /// The scores of these nodes for the class without the tasks that are being terminated, normalised over the nodes.
    pub fn scores_once_released(&mut self, class: ClassIdx, nodes: &[NodeIdx]) -> Vec<i64> {
        self.search().prepare(class);
        let Self { cluster, policy, confinement, log, candidates, .. } = self;
        cluster.with_released(nodes, |cluster| {
            let scope = confinement.scope(cluster, policy);
            let inputs = Inputs { cluster, policy, touched: &log.nodes, scope };
            NodeSearch { kept: candidates, inputs, read: &mut log.read.nodes }.scores(class, nodes)
        })
    }

    /// Whether answers may be kept from one search to the next; otherwise every plugin is called every time.
    pub fn uses_index(&self) -> bool {
        self.candidates.uses_index()
    }

    /// The nodes that searches consider, ascending.
    pub fn nodes_in_scope(&self) -> Vec<NodeIdx> {
        nodes_in(&self.cluster, self.confinement.scope(&self.cluster, &self.policy))
    }

    /// Identifies the set of nodes that searches consider; `None` stands for all nodes.
    pub fn scope_key(&self) -> Option<ScopeKey> {
        self.confinement.scope(&self.cluster, &self.policy).map(ScopeRef::key)
    }

    /// Calls a function while searches are confined to a domain.
    pub(crate) fn within<T>(&mut self, scope: Scope, call: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.confinement, Confinement::to(scope));
        let answer = call(self);
        self.confinement = outer;
        answer
    }
}
