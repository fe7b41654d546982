//! What a plugin and an action declare about themselves, so that a configuration can name them.

use crate::{
    arguments::{ArgumentSpec, Arguments},
    cycle::Action,
    plugin::Plugin,
};

/// A plugin that can be configured. It is declared in the plugin's own file.
#[derive(Clone, Copy, Debug)]
pub struct PluginSpec {
    /// Its name in the configuration.
    pub name: &'static str,
    /// What it is for, in one line.
    pub about: &'static str,
    /// The arguments it takes.
    pub arguments: &'static [ArgumentSpec],
    /// Prefixes such as `example.com/` of the labels and annotations that it reads.
    ///
    /// Those of pods and PodGroups are kept in the facts and are part of the task class, so that
    /// two pods that differ in one of them are in different classes. Others are dropped when the
    /// object is parsed, except for labels that placement rules can select.
    pub metadata_prefixes: &'static [&'static str],
    /// Creates it for one cycle.
    pub new: fn(&Arguments) -> Box<dyn Plugin>,
}

/// An action that can be configured. It is declared in the action's own file.
#[derive(Clone, Copy, Debug)]
pub struct ActionSpec {
    /// Its name in the configuration.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Creates it.
    pub new: fn() -> Box<dyn Action>,
}
