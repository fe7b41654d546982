//! Which plugins and actions a configuration can name.

use kube_batch_actions::{allocate, backfill, preempt, reclaim};
use kube_batch_framework::{
    arguments::Arguments,
    spec::{ActionSpec, PluginSpec},
};
use kube_batch_model::facts::metadata::MetadataPrefixes;
use kube_batch_plugins::{
    binpack, conformance, drf, gang, nodeorder, pdb, predicates, priority, proportion, reservation,
    topology,
};

/// The plugins and actions that a configuration can name.
///
/// A scheduler with additional plugins uses a different registry.
///
/// # Examples
///
/// ```
/// use kube_batch_framework::{plugin::Plugin, spec::PluginSpec};
/// use kube_batch_scheduler::{conf, registry::Registry};
///
/// struct Idle;
///
/// impl Plugin for Idle {
///     fn name(&self) -> &'static str {
///         "idle"
///     }
/// }
///
/// const SPEC: PluginSpec = PluginSpec {
///     name: "idle",
///     about: "has no opinion",
///     arguments: &[],
///     metadata_prefixes: &[],
///     new: |_| Box::new(Idle),
/// };
///
/// let registry = Registry::builtin().with_plugin(SPEC);
/// let text = "actions: allocate\ntiers: [{plugins: [{name: gang}, {name: idle}]}]";
/// assert!(conf::parse(text, &registry).is_ok());
/// assert!(conf::parse(text, &Registry::builtin()).is_err());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Registry {
    plugins: Vec<PluginSpec>,
    actions: Vec<ActionSpec>,
}

impl Registry {
    /// An empty registry.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The plugins and actions of this project.
    pub fn builtin() -> Self {
        let plugins = [
            priority::SPEC,
            gang::SPEC,
            conformance::SPEC,
            pdb::SPEC,
            drf::SPEC,
            proportion::SPEC,
            predicates::SPEC,
            nodeorder::SPEC,
            binpack::SPEC,
            topology::SPEC,
            reservation::SPEC,
        ];
        let actions = [reclaim::SPEC, allocate::SPEC, backfill::SPEC, preempt::SPEC];
        let registry = plugins.into_iter().fold(Self::empty(), Self::with_plugin);
        actions.into_iter().fold(registry, Self::with_action)
    }

    /// Adds a plugin.
    ///
    /// # Panics
    ///
    /// If the name is already registered, or differs between the plugin and its spec.
    #[must_use]
    pub fn with_plugin(mut self, spec: PluginSpec) -> Self {
        assert!(self.plugin(spec.name).is_none(), "plugin {} is registered twice", spec.name);
        let name = (spec.new)(&Arguments::default()).name();
        assert_eq!(name, spec.name, "a plugin and its spec have the same name");
        self.plugins.push(spec);
        self
    }

    /// Adds an action.
    ///
    /// # Panics
    ///
    /// If the name is already registered, or differs between the action and its spec.
    #[must_use]
    pub fn with_action(mut self, spec: ActionSpec) -> Self {
        assert!(self.action(spec.name).is_none(), "action {} is registered twice", spec.name);
        assert_eq!((spec.new)().name(), spec.name, "an action and its spec have the same name");
        self.actions.push(spec);
        self
    }

    /// All plugins, in the order they were registered.
    pub fn plugins(&self) -> &[PluginSpec] {
        &self.plugins
    }

    /// All actions, in the order they were registered.
    pub fn actions(&self) -> &[ActionSpec] {
        &self.actions
    }

    /// The labels and annotations that the plugins read, including plugins that are not configured.
    pub fn metadata_prefixes(&self) -> MetadataPrefixes {
        self.plugins.iter().flat_map(|spec| spec.metadata_prefixes).copied().collect()
    }

    /// The plugin with this name.
    pub fn plugin(&self, name: &str) -> Option<&PluginSpec> {
        self.plugins.iter().find(|spec| spec.name == name)
    }

    /// The action with this name.
    pub fn action(&self, name: &str) -> Option<&ActionSpec> {
        self.actions.iter().find(|spec| spec.name == name)
    }
}

#[cfg(test)]
mod tests {
    use kube_batch_framework::plugin::OrderScope;

    use super::*;

    /// One plugin with a wider scope would make every order a search.
    #[test]
    fn orders_of_builtin_plugins_depend_only_on_what_they_compare() {
        for spec in Registry::builtin().plugins() {
            let plugin = (spec.new)(&Arguments::default());
            assert_eq!(plugin.order_scope(), OrderScope::Own, "{}", spec.name);
        }
    }

    #[test]
    #[should_panic(expected = "plugin gang is registered twice")]
    fn a_name_is_registered_once() {
        let _ = Registry::builtin().with_plugin(gang::SPEC);
    }
}
