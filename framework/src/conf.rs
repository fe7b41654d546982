//! The scheduler configuration: which actions run, and which plugins are asked in which tier.
//!
//! The format is upstream's own (`--scheduler-conf`).

use std::collections::BTreeMap;

use crate::plugin::Questions;

/// A scheduler configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conf {
    /// Names of the actions, in the order they run.
    pub actions: Vec<String>,
    /// The plugins, most important tier first.
    pub tiers: Vec<Vec<PluginConf>>,
}

/// A plugin in a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginConf {
    /// Its name.
    pub name: String,
    /// The questions it is asked.
    pub questions: Questions,
    /// Its arguments, as text.
    pub arguments: BTreeMap<String, String>,
}

impl PluginConf {
    /// A plugin that is asked everything and has no arguments.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), questions: Questions::ALL, arguments: BTreeMap::new() }
    }
}

impl Default for Conf {
    /// The built-in configuration, as upstream's: allocate and backfill; priority and gang before
    /// drf, predicates, proportion and nodeorder.
    fn default() -> Self {
        let tier = |names: &[&str]| names.iter().map(|name| PluginConf::named(name)).collect();
        Self {
            actions: vec!["allocate".to_owned(), "backfill".to_owned()],
            tiers: vec![
                tier(&["priority", "gang"]),
                tier(&["drf", "predicates", "proportion", "nodeorder"]),
            ],
        }
    }
}
