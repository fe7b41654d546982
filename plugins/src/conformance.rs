//! Conformance: pods that the cluster itself needs are never evicted.
//!
//! Upstream: `plugins/conformance/conformance.go`.

use kube_batch_framework::{
    plugin::{Dependencies, OrderScope, Plugin, Proposal, VictimQuestion, VictimScope, Vote},
    spec::PluginSpec,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, TaskIdx},
};

/// Priority classes whose pods are never evicted.
const PROTECTED_CLASSES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];
/// The namespace whose pods are never evicted.
const PROTECTED_NAMESPACE: &str = "kube-system";

/// The plugin `conformance`.
#[derive(Debug, Default)]
pub struct Conformance;

/// How a configuration names the plugin.
pub const SPEC: PluginSpec = PluginSpec {
    name: "conformance",
    about: "pods that the cluster itself needs are never victims",
    arguments: &[],
    metadata_prefixes: &[],
    new: |_| Box::new(Conformance),
};

impl Plugin for Conformance {
    fn name(&self) -> &'static str {
        "conformance"
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
        Dependencies::NONE
    }

    fn is_protected(&self, cluster: &Cluster, task: TaskIdx) -> bool {
        is_protected(cluster, task)
    }

    fn vote(&self, cluster: &Cluster, proposal: &Proposal<'_>, _: VictimQuestion) -> Vote {
        if is_protected(cluster, proposal.victim) { Vote::Reject } else { Vote::Permit }
    }

    fn victim_scope(&self, _: &Cluster, _: TaskIdx, _: VictimQuestion) -> VictimScope {
        VictimScope::FACTS
    }
}

fn is_protected(cluster: &Cluster, task: TaskIdx) -> bool {
    let facts = &cluster.tasks.facts[task];
    let class = facts.priority_class.as_deref();
    class.is_some_and(|class| PROTECTED_CLASSES.contains(&class))
        || &*facts.key.namespace == PROTECTED_NAMESPACE
}
