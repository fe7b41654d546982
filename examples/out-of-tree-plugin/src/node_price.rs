//! Node price: cheap nodes first, no node above a limit, and urgent jobs before others.
//!
//! The price of a node is its label `example.com/price`, a whole number; a node without the label
//! is free. A pod with the annotation `example.com/any-price: "true"` may use a node above the
//! limit. PodGroups with the annotation `example.com/urgent: "true"` come first in their queue.

use std::cmp::Ordering;

use kube_batch::{
    framework::{
        arguments::{ArgumentKind, ArgumentSpec},
        plugin::{
            Dependencies, Dependency, NodeQuery, OrderScope, Plugin, Scale, ScoreTerm,
            VictimQuestion, VictimScope,
        },
        spec::PluginSpec,
    },
    model::{
        cluster::Cluster,
        column::{ClassIdx, JobIdx, NodeIdx, TaskIdx},
        facts::metadata::Metadata,
        reason::Unfit,
    },
};

/// How a configuration names the plugin.
pub const SPEC: PluginSpec = PluginSpec {
    name: "nodeprice",
    about: "cheap nodes first, and no node above a price limit",
    arguments: &[LIMIT, WEIGHT],
    metadata_prefixes: &["example.com/"],
    new: |arguments| {
        Box::new(NodePrice { limit: arguments.integer(&LIMIT), weight: arguments.integer(&WEIGHT) })
    },
};

const LIMIT: ArgumentSpec = ArgumentSpec {
    key: "nodeprice.limit",
    kind: ArgumentKind::Integer { default: 100, range: (0, 1_000_000) },
    about: "highest price of a node that a pod may use",
};
const WEIGHT: ArgumentSpec =
    ArgumentSpec::weight("nodeprice.weight", 1, "preference for cheap nodes");

struct NodePrice {
    limit: i64,
    weight: i64,
}

fn price(cluster: &Cluster, node: NodeIdx) -> i64 {
    let label = cluster.nodes.facts[node].labels.get("example.com/price");
    label.and_then(|price| price.parse().ok()).unwrap_or(0)
}

fn is_set(metadata: &Metadata, annotation: &str) -> bool {
    metadata.annotations.get(annotation).is_some_and(|value| &**value == "true")
}

fn is_urgent(cluster: &Cluster, job: JobIdx) -> bool {
    let group = cluster.jobs.group[job].as_ref();
    group.is_some_and(|group| is_set(&group.metadata, "example.com/urgent"))
}

impl Plugin for NodePrice {
    fn name(&self) -> &'static str {
        "nodeprice"
    }

    fn job_order(&self, cluster: &Cluster, l: JobIdx, r: JobIdx) -> Ordering {
        is_urgent(cluster, r).cmp(&is_urgent(cluster, l))
    }

    // The order of two jobs depends on these two jobs alone.
    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn victim_scope(&self, _: &Cluster, _: TaskIdx, _: VictimQuestion) -> VictimScope {
        VictimScope::NONE
    }

    // Prices are labels and exceptions are annotations: no placement changes either.
    fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
        Dependencies::only(Dependency::Class)
    }

    fn predicate(&self, cluster: &Cluster, query: NodeQuery) -> Result<(), Unfit> {
        let template = &cluster.classes.template[query.class];
        let has_exception = is_set(&template.metadata, "example.com/any-price");
        if has_exception || price(cluster, query.node) <= self.limit {
            Ok(())
        } else {
            Err(Unfit::Other("node(s) were above the price limit"))
        }
    }

    fn score_terms(&self, _: &Cluster, _: ClassIdx) -> Vec<ScoreTerm> {
        vec![ScoreTerm {
            id: 0,
            weight: self.weight,
            dependency: Dependency::Class,
            scale: Scale::DownFromLargest,
        }]
    }

    fn score(&self, cluster: &Cluster, _: ClassIdx, node: NodeIdx, _: u8) -> i64 {
        price(cluster, node)
    }
}

#[cfg(test)]
mod tests {
    use kube_batch::testing;

    use super::*;

    const MANIFESTS: &str = "
- {apiVersion: v1, kind: Node, metadata: {name: dear, labels: {example.com/price: '9'}}, status: {allocatable: {pods: '9'}}}
- {apiVersion: v1, kind: Node, metadata: {name: fair, labels: {example.com/price: '4'}}, status: {allocatable: {pods: '9'}}}
- {apiVersion: v1, kind: Node, metadata: {name: cheap, labels: {example.com/price: '2'}}, status: {allocatable: {pods: '9'}}}
- {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {schedulerName: kube-batch, containers: [{name: main, image: app}]}}
";

    /// The best node for the pod, or why there is none.
    fn best_node(limit: i64, weight: i64) -> Result<String, String> {
        let cluster = testing::cluster(MANIFESTS);
        let class = cluster.tasks.class[testing::task(&cluster, "default/p")];
        let mut session = testing::session(cluster, vec![Box::new(NodePrice { limit, weight })]);
        assert!(
            session.search().is_indexable(class),
            "the declared dependencies are narrow enough"
        );
        match session.search().best_node(class) {
            Some(best) => Ok(session.cluster().nodes.facts[best.node].name.to_string()),
            None => Err(session.search().explain(class).to_string()),
        }
    }

    #[test]
    fn the_cheapest_node_is_best() {
        assert_eq!(best_node(5, 1).as_deref(), Ok("cheap"));
        // A negative weight reverses the preference, and the limit still holds.
        assert_eq!(best_node(5, -1).as_deref(), Ok("fair"));
    }

    #[test]
    fn a_limit_below_every_price_is_the_reason() {
        let reason = "0/3 nodes are available: 3 node(s) were above the price limit.";
        assert_eq!(best_node(1, 1), Err(reason.to_owned()));
    }
}
