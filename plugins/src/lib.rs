#![doc = include_str!("../README.md")]

mod node_labels;
mod node_tests;
mod profiles;
mod rows;
mod spread;
mod taints;
mod tally;

pub mod conformance;
pub mod drf;
pub mod gang;
pub mod nodeorder;
pub mod predicates;
pub mod priority;
pub mod proportion;

use kube_batch_framework::{
    conf::{ArgumentKind, ArgumentSpec, Arguments, Catalog, Conf, PluginConf, PluginSpec},
    plugin::{Enabled, Plugin, Policy},
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
            arguments: &PREDICATE_ARGUMENTS,
        },
        PluginSpec {
            name: "nodeorder",
            about: "Kubernetes' own scores of where a pod should run",
            arguments: &NODEORDER_ARGUMENTS,
        },
    ],
};

const PREDICATE_ARGUMENTS: [ArgumentSpec; 3] = [
    switch("predicate.MemoryPressureEnable", "keep pods of QoS class BestEffort off such nodes"),
    switch("predicate.DiskPressureEnable", "keep pods off nodes under disk pressure"),
    switch("predicate.PIDPressureEnable", "keep pods off nodes short of process ids"),
];

const NODEORDER_ARGUMENTS: [ArgumentSpec; 8] = [
    weight("nodeaffinity.weight", 1, "preferred node affinity"),
    weight("podaffinity.weight", 1, "preferred affinity and anti-affinity to other pods"),
    weight("leastrequested.weight", 1, "nodes with more room"),
    weight("balancedresource.weight", 1, "nodes whose CPU and memory fill evenly"),
    weight("mostrequested.weight", 0, "nodes with less room, to pack"),
    weight("tainttoleration.weight", 1, "nodes with fewer PreferNoSchedule taints"),
    weight("podtopologyspread.weight", 1, "spread constraints that may be violated"),
    weight("imagelocality.weight", 0, "nodes that have the images"),
];

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
    let enabled = |conf: &PluginConf| Enabled {
        plugin: plugin(&conf.name, &conf.arguments).expect("a configuration names known plugins"),
        questions: conf.questions,
    };
    Policy { tiers: conf.tiers.iter().map(|tier| tier.iter().map(enabled).collect()).collect() }
}

/// The plugin of a name, if there is one.
pub fn plugin(name: &str, arguments: &Arguments) -> Option<Box<dyn Plugin>> {
    Some(match name {
        "conformance" => Box::new(conformance::Conformance),
        "drf" => Box::new(drf::Drf::default()),
        "gang" => Box::new(gang::Gang),
        "priority" => Box::new(priority::Priority),
        "proportion" => Box::new(proportion::Proportion::default()),
        "predicates" | "nodeorder" => Box::new(conformance::Conformance),
        _ => return None,
    })
}
