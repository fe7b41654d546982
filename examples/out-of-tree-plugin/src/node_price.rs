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
