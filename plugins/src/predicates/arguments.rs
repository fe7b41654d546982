//! The arguments of the plugin.

use kube_batch_framework::{
    arguments::{AffinityPart, ArgumentKind, ArgumentSpec, Arguments, ListItems},
    plugin::IgnoredResources,
};
use kube_batch_model::{name::Name, selector::NodeTerm};

/// The arguments of the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PredicatesArguments {
    /// `predicate.MemoryPressureEnable`: nodes under memory pressure refuse best-effort pods.
    pub memory_pressure: bool,
    /// `predicate.DiskPressureEnable`: nodes under disk pressure refuse every pod.
    pub disk_pressure: bool,
    /// `predicate.PIDPressureEnable`: nodes short of process ids refuse every pod.
    pub pid_pressure: bool,
    /// `addedAffinity`: alternatives of the required node affinity of every pod; `None` without one.
    pub added_affinity: Option<Vec<NodeTerm>>,
    /// `ignoredResources` and `ignoredResourceGroups`: extended resources that do not count.
    pub ignored_resources: IgnoredResources,
}

/// All arguments.
pub(super) const SPECS: [ArgumentSpec; 6] = [
    MEMORY_PRESSURE,
    DISK_PRESSURE,
    PID_PRESSURE,
    ADDED_AFFINITY,
    IGNORED_RESOURCES,
    IGNORED_RESOURCE_GROUPS,
];

const MEMORY_PRESSURE: ArgumentSpec = ArgumentSpec::switch(
    "predicate.MemoryPressureEnable",
    "keep pods of QoS class BestEffort off nodes under memory pressure",
);
const DISK_PRESSURE: ArgumentSpec =
    ArgumentSpec::switch("predicate.DiskPressureEnable", "keep pods off nodes under disk pressure");
const PID_PRESSURE: ArgumentSpec = ArgumentSpec::switch(
    "predicate.PIDPressureEnable",
    "keep pods off nodes that are short of process ids",
);
const ADDED_AFFINITY: ArgumentSpec = ArgumentSpec {
    key: "addedAffinity",
    kind: ArgumentKind::NodeAffinity { part: AffinityPart::Required },
    about: "node affinity that every pod has; its required part counts",
};
const IGNORED_RESOURCES: ArgumentSpec = ArgumentSpec {
    key: "ignoredResources",
    kind: ArgumentKind::List { default: &[], items: ListItems::ExtendedResources },
    about: "extended resources that do not count",
};
const IGNORED_RESOURCE_GROUPS: ArgumentSpec = ArgumentSpec {
    key: "ignoredResourceGroups",
    kind: ArgumentKind::List { default: &[], items: ListItems::ResourceGroups },
    about: "groups, such as example.com, of extended resources that do not count",
};

impl PredicatesArguments {
    pub(super) fn of(arguments: &Arguments) -> Self {
        let names = |spec| arguments.list(spec).into_iter().map(Name::from).collect();
        let added = arguments.node_affinity(&ADDED_AFFINITY);
        Self {
            memory_pressure: arguments.bool(&MEMORY_PRESSURE),
            disk_pressure: arguments.bool(&DISK_PRESSURE),
            pid_pressure: arguments.bool(&PID_PRESSURE),
            added_affinity: added.required(),
            ignored_resources: IgnoredResources {
                names: names(&IGNORED_RESOURCES),
                groups: names(&IGNORED_RESOURCE_GROUPS),
            },
        }
    }
}
