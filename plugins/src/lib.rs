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

use std::collections::BTreeMap;

use kube_batch_framework::{
    conf::{Conf, PluginConf},
    plugin::{Enabled, Plugin, Policy},
};

/// The policy of a configuration. Its plugin names are known.
///
/// # Panics
///
/// If a plugin is unknown: [`Conf`]s are checked when they are read.
pub fn policy(conf: &Conf) -> Policy {
    let enabled = |conf: &PluginConf| Enabled {
        plugin: plugin(&conf.name, &conf.arguments).expect("plugin names were checked"),
        questions: conf.questions,
    };
    Policy { tiers: conf.tiers.iter().map(|tier| tier.iter().map(enabled).collect()).collect() }
}

/// The plugin of a name, if there is one.
pub fn plugin(name: &str, _arguments: &BTreeMap<String, String>) -> Option<Box<dyn Plugin>> {
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
