#![doc = include_str!("../README.md")]

mod compiled;
mod constraint_classes;
mod domains;
mod node_labels;
mod node_tests;
mod pod_count;
mod rows;
mod spread_counts;
mod taints;
mod topology_counts;

pub mod conformance;
pub mod drf;
pub mod gang;
pub mod nodeorder;
pub mod predicates;
pub mod priority;
pub mod proportion;

use kube_batch_framework::{
    conf::{ArgumentKind, ArgumentSpec, Arguments, Catalog, Conf, PluginConf, PluginSpec},
    plugin::Plugin,
    policy::{ConfiguredPlugin, Policy},
};

use self::{
    nodeorder::{NodeOrder, NodeOrderArguments},
    predicates::{Predicates, PredicatesArguments},
};

/// Everything that can be configured.
pub const CATALOG: Catalog = Catalog {
    actions: &["reclaim", "allocate", "backfill", "preempt"],
    plugins: &[
        PluginSpec {
            name: "priority",
            about: "the more important goes first; only the less important may be preempted",
            arguments: &[],
        },
        PluginSpec {
            name: "gang",
            about: "a job starts with its minimum or not at all, and is not broken below it",
            arguments: &[],
        },
        PluginSpec {
            name: "conformance",
            about: "what keeps the cluster itself alive is never a victim",
            arguments: &[],
        },
        PluginSpec {
            name: "drf",
            about: "dominant resource fairness between the jobs of a queue",
            arguments: &[],
        },
        PluginSpec {
            name: "proportion",
            about: "the cluster is divided between queues by weight",
            arguments: &[],
        },
        PluginSpec {
            name: "predicates",
            about: "Kubernetes' own rules on where a pod may run",
            arguments: &[MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE],
        },
        PluginSpec {
            name: "nodeorder",
            about: "Kubernetes' own scores of where a pod should run",
            arguments: &[
                NODE_AFFINITY,
                POD_AFFINITY,
                LEAST_REQUESTED,
                BALANCED_RESOURCE,
                MOST_REQUESTED,
                TAINT_TOLERATION,
                POD_TOPOLOGY_SPREAD,
                IMAGE_LOCALITY,
            ],
        },
    ],
};

const MEMORY_PRESSURE: ArgumentSpec =
    switch("predicate.MemoryPressureEnable", "keep pods of QoS class BestEffort off such nodes");
const DISK_PRESSURE: ArgumentSpec =
    switch("predicate.DiskPressureEnable", "keep pods off nodes under disk pressure");
const PID_PRESSURE: ArgumentSpec =
    switch("predicate.PIDPressureEnable", "keep pods off nodes short of process ids");

const NODE_AFFINITY: ArgumentSpec = weight("nodeaffinity.weight", 1, "preferred node affinity");
const POD_AFFINITY: ArgumentSpec =
    weight("podaffinity.weight", 1, "preferred affinity and anti-affinity to other pods");
const LEAST_REQUESTED: ArgumentSpec = weight("leastrequested.weight", 1, "nodes with more room");
const BALANCED_RESOURCE: ArgumentSpec =
    weight("balancedresource.weight", 1, "nodes whose CPU and memory fill evenly");
const MOST_REQUESTED: ArgumentSpec =
    weight("mostrequested.weight", 0, "nodes with less room, to pack");
const TAINT_TOLERATION: ArgumentSpec =
    weight("tainttoleration.weight", 1, "nodes with fewer PreferNoSchedule taints");
const POD_TOPOLOGY_SPREAD: ArgumentSpec =
    weight("podtopologyspread.weight", 1, "spread constraints that may be violated");
const IMAGE_LOCALITY: ArgumentSpec =
    weight("imagelocality.weight", 0, "nodes that have the images");

const fn switch(key: &'static str, about: &'static str) -> ArgumentSpec {
    ArgumentSpec { key, kind: ArgumentKind::Bool, default: 0, about }
}

const fn weight(key: &'static str, default: i64, about: &'static str) -> ArgumentSpec {
    ArgumentSpec { key, kind: ArgumentKind::Weight, default, about }
}

/// The policy of a configuration, for one cycle.
///
/// # Panics
///
/// If it names a plugin that is not in the [`CATALOG`]: a [`Conf`] that was read never does.
pub fn policy(conf: &Conf) -> Policy {
    let configured = |conf: &PluginConf| ConfiguredPlugin {
        plugin: plugin(&conf.name, &conf.arguments).expect("a configuration names known plugins"),
        extension_points: conf.extension_points,
    };
    Policy { tiers: conf.tiers.iter().map(|tier| tier.iter().map(configured).collect()).collect() }
}

/// The plugin of a name, if there is one.
pub fn plugin(name: &str, arguments: &Arguments) -> Option<Box<dyn Plugin>> {
    Some(match name {
        "conformance" => Box::new(conformance::Conformance),
        "drf" => Box::new(drf::Drf::default()),
        "gang" => Box::new(gang::Gang),
        "priority" => Box::new(priority::Priority),
        "proportion" => Box::new(proportion::Proportion::default()),
        "predicates" => Box::new(Predicates::new(PredicatesArguments {
            memory_pressure: arguments.get(&MEMORY_PRESSURE) == 1,
            disk_pressure: arguments.get(&DISK_PRESSURE) == 1,
            pid_pressure: arguments.get(&PID_PRESSURE) == 1,
        })),
        "nodeorder" => Box::new(NodeOrder::new(NodeOrderArguments {
            nodeaffinity: arguments.get(&NODE_AFFINITY),
            podaffinity: arguments.get(&POD_AFFINITY),
            leastrequested: arguments.get(&LEAST_REQUESTED),
            balancedresource: arguments.get(&BALANCED_RESOURCE),
            mostrequested: arguments.get(&MOST_REQUESTED),
            tainttoleration: arguments.get(&TAINT_TOLERATION),
            podtopologyspread: arguments.get(&POD_TOPOLOGY_SPREAD),
            imagelocality: arguments.get(&IMAGE_LOCALITY),
        })),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_batch_framework::plugin::OrderScope;

    #[test]
    fn every_plugin_of_the_catalog_exists_under_its_name() {
        for spec in CATALOG.plugins {
            let plugin = plugin(spec.name, &Arguments::default()).expect(spec.name);
            assert_eq!(plugin.name(), spec.name);
        }
    }

    /// One plugin with a wider scope would make every order a search.
    #[test]
    fn orders_look_at_no_more_than_what_they_compare() {
        for spec in CATALOG.plugins {
            let plugin = plugin(spec.name, &Arguments::default()).expect(spec.name);
            assert_eq!(plugin.order_scope(), OrderScope::Own, "{}", spec.name);
        }
    }
}
