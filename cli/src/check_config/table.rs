//! How the names in a configuration of Volcano's scheduler are mapped to ours.
//!
//! The table holds every decision of the mapping; [`super::volcano`] only looks names up. A name
//! that the table does not have is kept if kube-batch has it, and left out otherwise.
//!
//! Source: Volcano 1.15 and its development branch: `pkg/scheduler/plugins/factory.go`,
//! `pkg/scheduler/actions/factory.go`, `pkg/scheduler/conf/scheduler_conf.go`, the sources of the
//! plugins and `docs/user-guide`. Names that only older versions have are here too.

use std::fmt;

use serde_json::Value;

/// What a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    /// A key of the file.
    Key,
    /// An action.
    Action,
    /// An argument of an action, in `configurations`.
    ActionArgument,
    /// A plugin.
    ConvertedPlugin,
    /// A key of a plugin, beside its name and its arguments.
    Switch,
    /// An argument of this plugin.
    Argument(&'static str),
}

/// A name, and what it is mapped to.
pub(super) struct Row {
    kind: NameKind,
    /// A `*` at the end stands for any text.
    name: &'static str,
    pub(super) mapping: Mapping,
}

/// How a name is mapped.
#[derive(Clone, Copy)]
pub(super) enum Mapping {
    /// It has this name here. The settings make it decide as in Volcano.
    Named { here: &'static str, with: &'static [Setting], remark: Option<ConversionRemark> },
    /// Its value is that of an argument of a plugin.
    Argument { plugin: &'static str, key: &'static str },
    /// It is left out, and these settings do the same.
    Replaced { with: &'static [Setting], why: &'static str },
    /// It is left out, and decisions are the same.
    NotNeeded { why: &'static str },
    /// It is left out, and decisions may differ.
    Lost { why: &'static str, instead: &'static str },
    /// It is always true here, and left out.
    AlwaysTrue { instead: &'static str },
    /// It is always false here, and left out.
    AlwaysFalse { why: &'static str, instead: &'static str },
}

/// The value of an argument of a plugin that the file does not set.
pub(super) struct Setting {
    plugin: &'static str,
    key: &'static str,
    /// JSON, or a text.
    value: &'static str,
}

/// What to know about something that is kept.
#[derive(Clone, Copy)]
pub(super) struct ConversionRemark {
    pub(super) effect: Effect,
    pub(super) text: &'static str,
}

/// What a difference of the configuration changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// No decision.
    Same,
    /// Decisions may be others than in Volcano.
    Differs,
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key | Self::Switch => "key",
            Self::Action => "action",
            Self::ActionArgument | Self::Argument(_) => "argument",
            Self::ConvertedPlugin => "plugin",
        })
    }
}

impl Setting {
    /// Plugin, argument and value.
    pub(super) fn parsed(&self) -> (&'static str, &'static str, Value) {
        let value = serde_json::from_str(self.value).unwrap_or_else(|_| Value::from(self.value));
        (self.plugin, self.key, value)
    }
}

/// The row of a name.
pub(super) fn row(kind: NameKind, name: &str) -> Option<&'static Row> {
    let is_named = |row: &&Row| match row.name.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => row.name == name,
    };
    TABLE.iter().filter(|row| row.kind == kind).find(is_named)
}

const fn named(
    kind: NameKind,
    name: &'static str,
    here: &'static str,
    with: &'static [Setting],
    remark: Option<ConversionRemark>,
) -> Row {
    Row { kind, name, mapping: Mapping::Named { here, with, remark } }
}

const fn argument(
    kind: NameKind,
    name: &'static str,
    plugin: &'static str,
    key: &'static str,
) -> Row {
    Row { kind, name, mapping: Mapping::Argument { plugin, key } }
}

const fn replaced(
    kind: NameKind,
    name: &'static str,
    with: &'static [Setting],
    why: &'static str,
) -> Row {
    Row { kind, name, mapping: Mapping::Replaced { with, why } }
}

const fn not_needed(kind: NameKind, name: &'static str, why: &'static str) -> Row {
    Row { kind, name, mapping: Mapping::NotNeeded { why } }
}

const fn lost(kind: NameKind, name: &'static str, why: &'static str, instead: &'static str) -> Row {
    Row { kind, name, mapping: Mapping::Lost { why, instead } }
}

const fn always_true(kind: NameKind, name: &'static str, instead: &'static str) -> Row {
    Row { kind, name, mapping: Mapping::AlwaysTrue { instead } }
}

const fn always_false(
    kind: NameKind,
    name: &'static str,
    why: &'static str,
    instead: &'static str,
) -> Row {
    Row { kind, name, mapping: Mapping::AlwaysFalse { why, instead } }
}

const fn same(text: &'static str) -> ConversionRemark {
    ConversionRemark { effect: Effect::Same, text }
}

const fn differs(text: &'static str) -> ConversionRemark {
    ConversionRemark { effect: Effect::Differs, text }
}

const fn of(plugin: &'static str, key: &'static str, value: &'static str) -> Setting {
    Setting { plugin, key, value }
}

const WHOLE_GANGS: &[Setting] = &[of("gang", "gang.evictWholeGangs", "true")];

/// Volcano's defaults that differ from those here.
const NODEORDER: &[Setting] = &[
    of("nodeorder", "nodeaffinity.weight", "2"),
    of("nodeorder", "podaffinity.weight", "2"),
    of(
        "nodeorder",
        "balancedresource.resources",
        r#"{"cpu": 1, "memory": 1, "nvidia.com/gpu": 1}"#,
    ),
    of("nodeorder", "tainttoleration.weight", "3"),
    of("nodeorder", "podtopologyspread.weight", "2"),
    of("nodeorder", "imagelocality.weight", "1"),
];

const FILTER: &str = "change the pods that the filter should not restrict";
const EXTENSION_POINT: &str = "the plugin decides this as well; removing it would end all else that it does, such \
                               as gangs or shares";
const NO_PARTS_OF_DEVICES: &str = "kube-batch does not assign parts of devices";
const WHOLE_DEVICES: &str =
    "request whole devices, or keep Volcano for the pods that share devices";
const NO_ALLOCATION: &str = "kube-batch does not allocate devices, and a pod waits until its resource \
                             claims are allocated";
const NO_SCORES: &str = "domains have no scores";
const TIGHTEST: &str = "kube-batch takes the narrowest level with a domain that holds the gang, and of \
                        its domains the one with the least room left";
const OTHER_SCHEDULER: &str = "keep kube-scheduler or Volcano for the pods with resource claims";

use NameKind::{Action, ActionArgument, Argument, ConvertedPlugin, Key, Switch};

/// Every name that stands for something else here, or for nothing.
static TABLE: &[Row] = &[
    // Keys of the file.
    not_needed(Key, "metrics", "it is for the plugins usage and rescheduling"),
    // Actions and their arguments.
    replaced(
        Action,
        "enqueue",
        &[of("gang", "gang.strictEnqueue", "true")],
        "kube-batch sets PodGroups to Inqueue itself, and with gang.strictEnqueue: true only while their \
         minResources fit into what is idle or being released, as the action does; without it the capability \
         of the queue decides alone, so that their pods can preempt, reclaim and make autoscalers add nodes; \
         large jobs are protected by the plugin reservation, which keeps room for those that have waited long",
    ),
    not_needed(
        Action,
        "elect",
        "the plugin reservation keeps room for jobs that have waited long, in every action",
    ),
    not_needed(
        Action,
        "reserve",
        "the plugin reservation keeps room for jobs that have waited long, in every action",
    ),
    named(
        Action,
        "preempt",
        "preempt",
        &[],
        Some(differs(
            "pods with volcano.sh/preemptable: \"false\" may be evicted too; protect them \
             with a PodDisruptionBudget and the plugin pdb",
        )),
    ),
    named(
        Action,
        "reclaim",
        "reclaim",
        &[],
        Some(differs(
            "pods with volcano.sh/preemptable: \"false\" may be evicted too; protect them \
             with a PodDisruptionBudget and the plugin pdb",
        )),
    ),
    named(
        Action,
        "gangpreempt",
        "preempt",
        WHOLE_GANGS,
        Some(differs(
            "HyperNodes are not read: the plugin topology keeps the victims for a gang in one domain; \
             pods with volcano.sh/preemptable: \"false\" may be evicted too",
        )),
    ),
    named(
        Action,
        "gangreclaim",
        "reclaim",
        WHOLE_GANGS,
        Some(differs(
            "HyperNodes are not read: the plugin topology keeps the victims for a gang in one domain; \
             pods with volcano.sh/preemptable: \"false\" may be evicted too",
        )),
    ),
    lost(
        Action,
        "shuffle",
        "kube-batch evicts no pods to balance nodes",
        "run the descheduler of kubernetes-sigs",
    ),
    argument(ActionArgument, "allowWholeBundle", "gang", "gang.evictWholeGangs"),
    not_needed(
        ActionArgument,
        "predicateErrorCacheEnable",
        "answers about nodes are always cached until they change",
    ),
    not_needed(
        ActionArgument,
        "enablePredicateErrorCache",
        "answers about nodes are always cached until they change",
    ),
    not_needed(ActionArgument, "maxDomains", "the number of domains that are compared is fixed"),
    not_needed(
        ActionArgument,
        "enableTopologyAwarePreemption",
        "all nodes are compared when victims are chosen",
    ),
    not_needed(
        ActionArgument,
        "topologyAwarePreemptWorkerNum",
        "all nodes are compared when victims are chosen",
    ),
    not_needed(
        ActionArgument,
        "minCandidateNodes*",
        "all nodes are compared when victims are chosen",
    ),
    not_needed(
        ActionArgument,
        "maxCandidateNodes*",
        "all nodes are compared when victims are chosen",
    ),
    not_needed(ActionArgument, "overcommit-factor", "gang.strictEnqueue has no factor"),
    not_needed(ActionArgument, "enqueue-action-idleres-mul", "gang.strictEnqueue has no factor"),
    // Plugins.
    named(
        ConvertedPlugin,
        "gang",
        "gang",
        &[
            of("gang", "gang.stalenessGracePeriod", "0s"),
            of("gang", "gang.waitForPodGroup", "volcano"),
        ],
        Some(same(
            "gang.stalenessGracePeriod: 0s keeps the other pods of a gang that has lost \
             some, as in Volcano; without it they are evicted after 5 minutes, because they \
             hold resources that the gang cannot use; gang.waitForPodGroup: volcano lets pods with \
             schedulerName volcano wait until Volcano's controllers have put them in a PodGroup, and \
             needs these controllers",
        )),
    ),
    named(
        ConvertedPlugin,
        "pdb",
        "pdb",
        &[of("pdb", "pdb.mode", "require")],
        Some(same(
            "pdb.mode: require never evicts a pod that a budget protects, as in Volcano; \
             prefer evicts it as a last resort, as kube-scheduler does",
        )),
    ),
    named(
        ConvertedPlugin,
        "capacity",
        "proportion",
        &[],
        Some(same(
            "the fields parent, deserved, guarantee, capability, priority and reclaimable of queues count as \
             there; weight, which capacity ignores, divides what deserved amounts leave",
        )),
    ),
    named(
        ConvertedPlugin,
        "nodeorder",
        "nodeorder",
        NODEORDER,
        Some(same(
            "the weights that Volcano sets by default are written out, because other \
             weights are the default here",
        )),
    ),
    lost(
        ConvertedPlugin,
        "overcommit",
        "gang.strictEnqueue counts what is idle or being released, without a factor",
        "limit a queue with its capability, and the pods of a namespace with a ResourceQuota",
    ),
    lost(
        ConvertedPlugin,
        "numa-aware",
        "kube-batch does not see the NUMA nodes of a machine",
        "set topologyManagerPolicy of the kubelets, which then reject pods that do not fit",
    ),
    lost(
        ConvertedPlugin,
        "sla",
        "a job has no maximum waiting time",
        "set a priority class; among jobs of equal priority and share, the oldest goes first",
    ),
    lost(
        ConvertedPlugin,
        "tdm",
        "no decision depends on the time of the day",
        "add and remove a NoExecute taint on these nodes with a CronJob, and tolerate it in \
         the pods that may run there",
    ),
    lost(
        ConvertedPlugin,
        "usage",
        "kube-batch does not read how much load is measured on nodes",
        "set the requests of pods to what they use",
    ),
    lost(
        ConvertedPlugin,
        "rescheduling",
        "kube-batch evicts no pods to balance nodes",
        "run the descheduler of kubernetes-sigs",
    ),
    lost(
        ConvertedPlugin,
        "task-topology",
        "the annotations volcano.sh/task-topology-* have no effect",
        "set pod affinity and anti-affinity in the pod templates",
    ),
    named(
        ConvertedPlugin,
        "network-topology-aware",
        "topology",
        &[],
        Some(differs(
            "HyperNodes are not read; set the argument levels to the node labels of the tiers, the broadest \
             first",
        )),
    ),
    lost(
        ConvertedPlugin,
        "group-topology-affinity",
        "rules about other PodGroups are not read",
        "set pod affinity and anti-affinity in the pod templates",
    ),
    lost(
        ConvertedPlugin,
        "xpu-topology-aware",
        "kube-batch does not see how the devices of a node are connected",
        "leave the choice of devices to the device plugin",
    ),
    lost(ConvertedPlugin, "deviceshare", NO_PARTS_OF_DEVICES, WHOLE_DEVICES),
    lost(ConvertedPlugin, "dynamicresources", NO_ALLOCATION, OTHER_SCHEDULER),
    lost(
        ConvertedPlugin,
        "nodegroup",
        "the affinity of queues to groups of nodes is not read",
        "set node affinity in the pod templates, or taint the nodes of a group",
    ),
    lost(
        ConvertedPlugin,
        "resourcequota",
        "kube-batch does not read ResourceQuotas, and the API server rejects pods beyond them",
        "limit a queue with its capability",
    ),
    lost(
        ConvertedPlugin,
        "crossquota",
        "kube-batch does not limit what pods without GPUs use of a node with GPUs",
        "taint the nodes with GPUs",
    ),
    lost(
        ConvertedPlugin,
        "extender",
        "kube-batch does not call other servers",
        "write a plugin in Rust, see docs/plugins.md",
    ),
    lost(
        ConvertedPlugin,
        "cdp",
        "volcano.sh/cooldown-time has no effect",
        "set minRuntime in a Queue of scheduling.sigs.dev/v1alpha2",
    ),
    lost(
        ConvertedPlugin,
        "fairshare",
        "kube-batch remembers no past usage",
        "give each namespace a queue of its own",
    ),
    lost(
        ConvertedPlugin,
        "resource-strategy-fit",
        "kube-batch has no such plugin",
        "use leastrequested.resources and mostrequested.resources of nodeorder, or binpack",
    ),
    named(
        ConvertedPlugin,
        "reservation",
        "reservation",
        &[],
        Some(differs(
            "nodes are kept for the job of each queue that has waited longest, without the actions elect and reserve; \
             only as much as it needs, and after reservation.after",
        )),
    ),
    // Keys of plugins.
    always_true(Switch, "enableHierarchy", "remove parent from the queues"),
    always_false(
        Switch,
        "enabledClusterOrder",
        "kube-batch schedules one cluster",
        "run it in each cluster",
    ),
    always_true(Switch, "enable*", EXTENSION_POINT),
    // Arguments of plugins.
    lost(Argument("topology"), "weight", NO_SCORES, TIGHTEST),
    lost(Argument("topology"), "hypernode.*", NO_SCORES, TIGHTEST),
    always_true(Argument("predicates"), "predicate.NodeAffinityEnable", FILTER),
    always_true(Argument("predicates"), "predicate.NodePortsEnable", FILTER),
    always_true(Argument("predicates"), "predicate.TaintTolerationEnable", FILTER),
    always_true(Argument("predicates"), "predicate.PodAffinityEnable", FILTER),
    always_true(Argument("predicates"), "predicate.NodeVolumeLimitsEnable", FILTER),
    always_true(Argument("predicates"), "predicate.VolumeZoneEnable", FILTER),
    always_true(Argument("predicates"), "predicate.PodTopologySpreadEnable", FILTER),
    always_true(Argument("predicates"), "predicate.VolumeBindingEnable", FILTER),
    always_false(
        Argument("predicates"),
        "predicate.DynamicResourceAllocationEnable",
        NO_ALLOCATION,
        OTHER_SCHEDULER,
    ),
    always_false(
        Argument("predicates"),
        "predicate.GPUSharingEnable",
        NO_PARTS_OF_DEVICES,
        WHOLE_DEVICES,
    ),
    always_false(
        Argument("predicates"),
        "predicate.GPUNumberEnable",
        NO_PARTS_OF_DEVICES,
        WHOLE_DEVICES,
    ),
    not_needed(
        Argument("predicates"),
        "predicate.CacheEnable",
        "answers about nodes are always cached until they change",
    ),
    always_false(
        Argument("predicates"),
        "predicate.ProportionalEnable",
        "kube-batch keeps no CPU and memory of a node free for its GPUs",
        "taint the nodes with GPUs",
    ),
    not_needed(
        Argument("predicates"),
        "predicate.resources*",
        "it belongs to predicate.ProportionalEnable",
    ),
    lost(
        Argument("nodeorder"),
        "selectorspread.weight",
        "Kubernetes removed this score",
        "set topology spread constraints in the pod templates",
    ),
    lost(
        Argument("nodeorder"),
        "volumebinding.weight",
        "kube-batch does not know the free capacity of storage",
        "set node affinity to the nodes with the storage",
    ),
];

#[cfg(test)]
mod tests {
    use kube_batch_scheduler::registry::Registry;

    use super::*;

    /// The settings that a row can make.
    fn settings(mapping: Mapping) -> Vec<(&'static str, &'static str)> {
        match mapping {
            Mapping::Named { with, .. } | Mapping::Replaced { with, .. } => {
                with.iter().map(|set| (set.plugin, set.key)).collect()
            }
            Mapping::Argument { plugin, key } => vec![(plugin, key)],
            Mapping::NotNeeded { .. }
            | Mapping::Lost { .. }
            | Mapping::AlwaysTrue { .. }
            | Mapping::AlwaysFalse { .. } => Vec::new(),
        }
    }

    #[test]
    fn what_the_table_refers_to_exists_here() {
        let registry = Registry::builtin();
        for row in TABLE {
            if let Mapping::Named { here, .. } = row.mapping {
                let exists = registry.action(here).is_some() || registry.plugin(here).is_some();
                assert!(exists, "{} becomes {here}", row.name);
            }
            for (plugin, key) in settings(row.mapping) {
                let spec = registry.plugin(plugin).expect(plugin);
                let exists = spec.arguments.iter().any(|argument| argument.key == key);
                assert!(exists, "{} sets {key}", row.name);
            }
        }
    }

    #[test]
    fn a_name_has_one_row() {
        for row in TABLE {
            let found = super::row(row.kind, row.name).expect("it is in the table");
            assert!(std::ptr::eq(found, row), "{} has two rows", row.name);
        }
    }

    #[test]
    fn what_is_left_out_is_not_here() {
        let registry = Registry::builtin();
        for row in TABLE.iter().filter(|row| !matches!(row.mapping, Mapping::Named { .. })) {
            let is_here = match row.kind {
                NameKind::Action => registry.action(row.name).is_some(),
                NameKind::ConvertedPlugin => registry.plugin(row.name).is_some(),
                NameKind::Argument(plugin) => {
                    let spec = registry.plugin(plugin).expect(plugin);
                    spec.arguments.iter().any(|argument| argument.key == row.name)
                }
                NameKind::Key | NameKind::ActionArgument | NameKind::Switch => false,
            };
            assert!(!is_here, "{} exists here", row.name);
        }
    }
}
