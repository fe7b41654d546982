//! The scheduler configuration: the actions, and the plugins in their tiers.
//!
//! The format is that of kube-batch v0.5.0 (`--scheduler-conf`). A file is parsed with the position
//! of every value and resolved against a [`Registry`] in the same pass, so that all errors are
//! listed together; a configuration with an error is not used. Keys and argument values that
//! v0.5.0 ignores are warnings.
// Parity: differs, see docs/parity.md#x1.

mod written;

use std::collections::BTreeMap;

use kube_batch_actions::{allocate, backfill};
use kube_batch_framework::{
    arguments::{ArgumentKind, ArgumentSpec, ArgumentValue, Arguments, ListItems, whole_number},
    plugin::Provision,
    policy::{ConfiguredPlugin, ExtensionPoint, ExtensionPoints, Policy},
    spec::{ActionSpec, PluginSpec},
};
use kube_batch_model::{
    facts::metadata::MetadataPrefixes,
    selector::node_affinity::{NodeAffinity, node_affinity_problems},
};
use kube_batch_plugins::{
    device_totals, drf, gang, nodeorder, physical_requests, predicates, priority, proportion,
    topology,
};
use kube_batch_yaml::{
    self as yaml, Cursor, Key, Limits, Located, MapReader, Problem, Problems, Value,
};

use crate::registry::Registry;

/// A valid scheduler configuration.
#[derive(Clone, Debug)]
pub struct Conf {
    /// The actions, in the order they run.
    pub actions: Vec<ActionSpec>,
    /// The plugins, most important tier first.
    pub tiers: Vec<Vec<PluginConf>>,
}

/// A plugin in a tier.
#[derive(Clone, Debug)]
pub struct PluginConf {
    /// The specification of the plugin.
    pub spec: PluginSpec,
    /// The extension points at which it is enabled.
    pub extension_points: ExtensionPoints,
    /// Its arguments.
    pub arguments: Arguments,
}

impl PluginConf {
    /// A plugin at all its extension points, with no arguments set.
    pub fn new(spec: PluginSpec) -> Self {
        Self { spec, extension_points: ExtensionPoints::ALL, arguments: Arguments::default() }
    }
}

impl Default for Conf {
    /// The built-in configuration, as in v0.5.0: allocate and backfill; priority and gang before
    /// drf, predicates, proportion and nodeorder. In addition `topology`, which has no effect on the
    /// PodGroups of v0.5.0.
    fn default() -> Self {
        let tier = |specs: &[PluginSpec]| specs.iter().copied().map(PluginConf::new).collect();
        Self {
            actions: vec![allocate::SPEC, backfill::SPEC],
            tiers: vec![
                tier(&[priority::SPEC, gang::SPEC]),
                tier(&[
                    drf::SPEC,
                    predicates::SPEC,
                    proportion::SPEC,
                    nodeorder::SPEC,
                    topology::SPEC,
                ]),
            ],
        }
    }
}

impl Conf {
    /// The labels and annotations that the plugins of this configuration read.
    pub fn metadata_prefixes(&self) -> MetadataPrefixes {
        let plugins = self.tiers.iter().flatten();
        plugins.flat_map(|plugin| plugin.spec.metadata_prefixes).copied().collect()
    }

    /// The names of the actions, in the order they run.
    pub fn action_names(&self) -> Vec<&'static str> {
        self.actions.iter().map(|action| action.name).collect()
    }
}

/// A policy of these plugins, the most important tier first, that counts devices as every configuration does.
pub fn policy(tiers: Vec<Vec<ConfiguredPlugin>>) -> Policy {
    Policy::new(tiers).with_devices(device_totals, physical_requests)
}

/// A configuration, and warnings about it.
#[derive(Clone, Debug)]
pub struct Read {
    /// The configuration.
    pub conf: Conf,
    /// Keys and values without effect.
    pub warnings: Vec<Problem>,
}

/// Reads a configuration file.
///
/// # Errors
///
/// Every problem, in the order of the text: report all of them, and do not use the configuration.
pub fn parse(text: &str, registry: &Registry) -> Result<Read, Vec<Problem>> {
    let root = yaml::parse(text, &Limits::default()).map_err(|problem| vec![problem])?;
    read(&root, "", registry)
}

/// Reads a configuration at `path` inside another document.
///
/// # Errors
///
/// As [`parse`].
pub fn read(root: &Located<'_>, path: &str, registry: &Registry) -> Result<Read, Vec<Problem>> {
    let (problems, warnings) = (Problems::default(), Problems::default());
    let conf = ConfReader { registry, warnings: &warnings }.conf(Cursor::new(root, &problems));
    let under = |mut found: Vec<Problem>| {
        for problem in found.iter_mut().filter(|_| !path.is_empty()) {
            let separator = if problem.path.is_empty() { "" } else { "." };
            problem.path = format!("{path}{separator}{}", problem.path);
        }
        found
    };
    match conf {
        Some(conf) if problems.is_empty() => {
            Ok(Read { conf, warnings: under(warnings.into_sorted()) })
        }
        Some(_) | None => Err(under(problems.into_sorted())),
    }
}

struct ConfReader<'c> {
    registry: &'c Registry,
    warnings: &'c Problems,
}

impl ConfReader<'_> {
    fn conf(&self, root: Cursor<'_>) -> Option<Conf> {
        let mut root = root.mapping()?;
        let actions = root.require("actions").map(|actions| self.actions(&actions));
        let mut providers = Providers::default();
        let tiers = root
            .get("tiers")
            .map(|tiers| tiers.items().map(|tier| self.tier(tier, &mut providers)).collect());
        if tiers.is_none() {
            self.warnings
                .add(root.cursor().node().problem("tiers", "is missing: no plugin is used"));
        }
        self.warn_of_rest(root, &["actions", "tiers"]);
        Some(Conf { actions: actions?, tiers: tiers.unwrap_or_default() })
    }

    fn actions(&self, cursor: &Cursor<'_>) -> Vec<ActionSpec> {
        let names = cursor.string().into_iter().flat_map(|text| text.split(',')).map(str::trim);
        let found = names.filter_map(|name| {
            let found = self.registry.action(name);
            if found.is_none() {
                let known = self.registry.actions().iter().map(|action| action.name);
                cursor.problem(unknown("action", name, known));
            }
            found.copied()
        });
        found.collect()
    }

    fn tier(&self, cursor: Cursor<'_>, providers: &mut Providers) -> Vec<PluginConf> {
        let Some(mut tier) = cursor.mapping() else { return Vec::new() };
        let mut plugins: Vec<PluginConf> = Vec::new();
        for cursor in tier.require("plugins").into_iter().flat_map(Cursor::items) {
            let here = cursor.clone();
            if let Some(plugin) = self.plugin(cursor) {
                if plugins.iter().any(|other| other.spec.name == plugin.spec.name) {
                    here.problem(format!(
                        "plugin {} is listed twice in this tier",
                        plugin.spec.name
                    ));
                }
                providers.add(&plugin, &here);
                plugins.push(plugin);
            }
        }
        self.warn_of_rest(tier, &["plugins"]);
        plugins
    }

    fn plugin(&self, cursor: Cursor<'_>) -> Option<PluginConf> {
        let mut plugin = cursor.mapping()?;
        let name = plugin.require("name").and_then(|name| {
            let text = name.string()?;
            let found = self.registry.plugin(text);
            if found.is_none() {
                let known = self.registry.plugins().iter().map(|spec| spec.name);
                name.problem(unknown("plugin", text, known));
            }
            found
        });
        let mut extension_points = ExtensionPoints::ALL;
        for point in ExtensionPoint::ALL {
            let enabled = plugin.get(point.key()).and_then(|flag| flag.bool());
            if enabled == Some(false) {
                extension_points = extension_points.without(point);
            }
        }
        let arguments = plugin.get("arguments").and_then(Cursor::mapping);
        let arguments = match (name, arguments) {
            (Some(spec), Some(arguments)) => self.arguments(spec, arguments),
            _ => Arguments::default(),
        };
        let mut known = vec!["name", "arguments"];
        known.extend(ExtensionPoint::ALL.map(ExtensionPoint::key));
        self.warn_of_rest(plugin, &known);
        Some(PluginConf { spec: *name?, extension_points, arguments })
    }

    fn arguments(&self, plugin: &PluginSpec, mut map: MapReader<'_>) -> Arguments {
        let mut arguments = Arguments::default();
        for spec in plugin.arguments {
            let Some(cursor) = map.get(spec.key) else { continue };
            if let Some(value) = self.argument(spec.kind, &cursor) {
                arguments.set(spec, value);
            }
        }
        let known: Vec<&str> = plugin.arguments.iter().map(|spec| spec.key).collect();
        for (key, cursor) in map.rest() {
            match NameWeight::of_key(plugin, &key.text) {
                Some(of) => self.weight_of_name(&of, &cursor, &mut arguments),
                None => self.warn_of_unknown(key, &cursor, &known),
            }
        }
        arguments
    }

    /// The value of an argument. `None` if that is the default, with the problems recorded if the value
    /// cannot be used.
    fn argument(&self, kind: ArgumentKind, cursor: &Cursor<'_>) -> Option<ArgumentValue> {
        if cursor.node().as_str() == Some("") {
            return None;
        }
        match value(kind, cursor)? {
            Ok(value) => {
                self.warn_of_no_effect(kind, &value, cursor);
                return Some(value);
            }
            Err(found) if kind.is_strict() => cursor.problem(found.instead_of(kind)),
            Err(found) => {
                let problem = found.instead_of(kind);
                let message = format!("{problem}; using the default {}", kind.default_value());
                self.warnings.add(cursor.node().problem(cursor.path(), message));
            }
        }
        None
    }

    /// Reads the weight of a name; of one that the list does not have, it has no effect.
    fn weight_of_name(&self, of: &NameWeight<'_>, cursor: &Cursor<'_>, arguments: &mut Arguments) {
        let NameWeight { list, name, kind } = of;
        let mut weights = arguments.weights(list);
        let Some(at) = weights.iter().position(|(listed, _)| listed == name) else {
            let hint = hint(name, weights.iter().map(|(listed, _)| listed.as_str()));
            let message = format!("has no effect: {} does not list {name}{hint}", list.key);
            self.warnings.add(cursor.node().problem(cursor.path(), message));
            return;
        };
        if cursor.node().is_null() {
            return;
        }
        if let Some(ArgumentValue::Integer(weight)) = self.argument(*kind, cursor) {
            weights[at].1 = weight;
            arguments.set(list, ArgumentValue::Weights(weights));
        }
    }

    /// Warns of a node affinity that has only the part that the plugin does not use.
    fn warn_of_no_effect(&self, kind: ArgumentKind, value: &ArgumentValue, cursor: &Cursor<'_>) {
        let (ArgumentKind::NodeAffinity { part }, ArgumentValue::NodeAffinity(affinity)) =
            (kind, value)
        else {
            return;
        };
        if part.is_all_that_lacks(affinity) {
            let message = format!("has no effect: this plugin uses only {}", part.field());
            self.warnings.add(cursor.node().problem(cursor.path(), message));
        }
    }

    fn warn_of_rest(&self, mut map: MapReader<'_>, known: &[&str]) {
        for (key, cursor) in map.rest() {
            self.warn_of_unknown(key, &cursor, known);
        }
    }

    fn warn_of_unknown(&self, key: &Key<'_>, cursor: &Cursor<'_>, known: &[&str]) {
        let hint = hint(&key.text, known.iter().copied());
        self.warnings.add(Problem {
            line: key.line,
            column: key.column,
            path: cursor.path().to_owned(),
            message: format!("unknown key has no effect{hint}"),
        });
    }
}

/// The plugins read so far that provide something which only one may: their names and lines.
#[derive(Default)]
struct Providers(BTreeMap<Provision, (&'static str, u32)>);

impl Providers {
    /// Adds a plugin; it is an error if another one provides the same. Of a plugin that several tiers list, the first
    /// provides it.
    fn add(&mut self, plugin: &PluginConf, here: &Cursor<'_>) {
        let name = plugin.spec.name;
        let created = (plugin.spec.new)(&plugin.arguments);
        let provided = created.provides();
        for provision in Provision::ALL.into_iter().filter(|own| own.is_in(&provided)) {
            let (other, line) = *self.0.entry(provision).or_insert((name, here.node().line));
            if other != name {
                here.problem(format!(
                    "plugin {name} provides {provision}, as does plugin {other} in line {line}: \
                     list only one of them"
                ));
            }
        }
    }
}

/// The known word that was meant, if one is close enough, as the end of a message.
fn hint<'k>(text: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    yaml::suggest(text, known).map(|meant| format!(", did you mean {meant}")).unwrap_or_default()
}

/// An argument that gives the weight of one name of a list, such as `binpack.resources.example.com/gpu`.
struct NameWeight<'a> {
    list: &'a ArgumentSpec,
    name: &'a str,
    /// What the weight may be.
    kind: ArgumentKind,
}

impl<'a> NameWeight<'a> {
    fn of_key(plugin: &PluginSpec, key: &'a str) -> Option<Self> {
        plugin.arguments.iter().find_map(|list| {
            let ArgumentKind::WeightedNames { default_weight: default, range, .. } = list.kind
            else {
                return None;
            };
            let name = key.strip_prefix(list.key)?.strip_prefix('.')?;
            Some(Self { list, name, kind: ArgumentKind::Integer { default, range } })
        })
    }
}

/// A value that an argument cannot have.
enum Invalid {
    /// This text.
    Text(String),
    /// Something that is not a text, described.
    Other(String),
}

impl Invalid {
    fn of(node: &Located<'_>) -> Self {
        Self::Other(node.describe())
    }

    /// What is wrong with it as the value of an argument of this kind.
    fn instead_of(&self, kind: ArgumentKind) -> String {
        let expected = kind.expected();
        match self {
            Self::Text(text) => format!("\"{text}\" is not {expected}"),
            Self::Other(found) => format!("expected {expected}, found {found}"),
        }
    }
}

/// The value of an argument, or why it has none; `None` if problems with its parts are recorded.
fn value(kind: ArgumentKind, cursor: &Cursor<'_>) -> Option<Result<ArgumentValue, Invalid>> {
    let node = cursor.node();
    Some(match (kind, &node.value) {
        (ArgumentKind::List { items, .. }, Value::Sequence(_)) if kind.is_strict() => {
            return list(items, cursor.clone()).map(ArgumentValue::List).map(Ok);
        }
        (ArgumentKind::WeightedNames { items, default_weight, .. }, Value::Sequence(_)) => {
            let names = list(items, cursor.clone())?.into_iter();
            let weights = names.map(|name| (name, default_weight)).collect();
            Ok(ArgumentValue::Weights(weights))
        }
        (
            ArgumentKind::List { items, .. } | ArgumentKind::WeightedNames { items, .. },
            Value::String(text),
        ) if kind.is_strict() => {
            for item in ListItems::split(text).filter(|item| !items.accept(item)) {
                cursor.problem(format!("\"{item}\" is not {}", items.expected()));
            }
            return kind.parse(text).map(Ok);
        }
        (ArgumentKind::List { .. }, Value::Sequence(items)) => {
            let texts: Option<Vec<String>> =
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            texts.map(ArgumentValue::List).ok_or_else(|| Invalid::of(node))
        }
        (ArgumentKind::Weights { .. }, Value::Sequence(items)) if items.is_empty() => {
            Ok(kind.default_value())
        }
        (ArgumentKind::Weights { .. }, Value::Mapping(entries)) if entries.is_empty() => {
            Ok(kind.default_value())
        }
        (ArgumentKind::Weights { range, .. }, Value::Mapping(_)) => {
            return weights(range, cursor.clone()).map(Ok);
        }
        (ArgumentKind::NodeAffinity { .. }, Value::Mapping(_)) => {
            return node_affinity(cursor).map(Ok);
        }
        _ => {
            let text = scalar(node).ok_or_else(|| Invalid::of(node));
            text.and_then(|text| kind.parse(&text).ok_or(Invalid::Text(text)))
        }
    })
}

/// The text of a scalar, quoted or not.
fn scalar(node: &Located<'_>) -> Option<String> {
    match &node.value {
        Value::String(text) => Some(text.to_string()),
        Value::Number(number) => Some(number.text().to_owned()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Null | Value::Sequence(_) | Value::Mapping(_) => None,
    }
}

/// A list; `None`, with a problem recorded for each item that cannot be used.
fn list(items: ListItems, cursor: Cursor<'_>) -> Option<Vec<String>> {
    let item = |cursor: Cursor<'_>| {
        let text = cursor.string()?;
        if !items.accept(text) {
            cursor.problem(format!("\"{text}\" is not {}", items.expected()));
            return None;
        }
        Some(text.to_owned())
    };
    // All of them are read, so that every problem is recorded.
    let read: Vec<Option<String>> = cursor.items().map(item).collect();
    read.into_iter().collect()
}

/// Weights by name; `None`, with a problem recorded for each weight that cannot be used.
fn weights(range: (i64, i64), cursor: Cursor<'_>) -> Option<ArgumentValue> {
    let weight = |(key, cursor): (&Key<'_>, Cursor<'_>)| {
        let weight = scalar(cursor.node()).and_then(|text| text.parse().ok());
        let weight = weight.filter(|weight| (range.0..=range.1).contains(weight));
        if weight.is_none() {
            let found = cursor.node().describe();
            cursor.problem(format!("expected {}, found {found}", whole_number(range)));
        }
        Some((key.text.to_string(), weight?))
    };
    // All of them are read, so that every problem is recorded.
    let read: Vec<Option<(String, i64)>> = cursor.mapping()?.rest().map(weight).collect();
    read.into_iter().collect::<Option<_>>().map(ArgumentValue::Weights)
}

/// A node affinity; `None`, with the problems recorded, if a part of it cannot be used.
fn node_affinity(cursor: &Cursor<'_>) -> Option<ArgumentValue> {
    let affinity: NodeAffinity = cursor.typed_strict()?;
    let problems = node_affinity_problems(&affinity);
    for problem in &problems {
        cursor.problem_at(&problem.path, problem.message.as_str());
    }
    problems.is_empty().then(|| ArgumentValue::NodeAffinity(Box::new(affinity)))
}

fn unknown(kind: &str, name: &str, known: impl Iterator<Item = &'static str> + Clone) -> String {
    if name.is_empty() {
        return format!("{kind} without a name");
    }
    match yaml::suggest(name, known.clone()) {
        Some(meant) => format!("unknown {kind} \"{name}\", did you mean {meant}"),
        None => {
            let known: Vec<&str> = known.collect();
            format!("unknown {kind} \"{name}\", expected one of {}", known.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use kube_batch_framework::plugin::{JobShares, Plugin, Provided};
    use kube_batch_model::{column::JobIdx, resource::Share};

    use super::*;

    fn lines(problems: &[Problem]) -> Vec<String> {
        problems.iter().map(ToString::to_string).collect()
    }

    /// A configuration of one plugin, or the problems with it.
    fn with_arguments(plugin: &str, arguments: &str) -> Result<Read, Vec<String>> {
        let text = format!(
            "actions: allocate\ntiers: [{{plugins: [{{name: {plugin}, arguments: \
             {{{arguments}}}}}]}}]\n"
        );
        parse(&text, &Registry::builtin()).map_err(|problems| lines(&problems))
    }

    #[test]
    fn every_error_is_listed_at_once() {
        let text = "actions: allocate, evict, \ntiers:\n- plugins:\n  - {name: gnag}\n  - {name: gang, enableJobOrder: maybe}\n  - {name: gang}\n- 7\n";
        let problems = parse(text, &Registry::builtin()).expect_err("six errors");
        assert_eq!(
            lines(&problems),
            [
                "line 1, column 10: actions: unknown action \"evict\", expected one of reclaim, allocate, \
                 backfill, preempt",
                "line 1, column 10: actions: action without a name",
                "line 4, column 12: tiers[0].plugins[0].name: unknown plugin \"gnag\", did you mean \
                 gang",
                "line 5, column 34: tiers[0].plugins[1].enableJobOrder: expected a boolean, found \
                 \"maybe\"",
                "line 6, column 5: tiers[0].plugins[2]: plugin gang is listed twice in this tier",
                "line 7, column 3: tiers[1]: expected a mapping, found the number 7",
            ]
        );
    }

    #[test]
    fn keys_and_values_without_effect_are_warnings() {
        let text = "actions: allocate\nqueues: 1\ntiers:\n- plugins:\n  - name: nodeorder\n    enableJobOder: false\n    arguments: {leastrequested.weight: heavy, mostrequested: 1}\n  - {name: predicates, arguments: {predicate.MemoryPressureEnable: T}}\n";
        let read = parse(text, &Registry::builtin()).expect("only warnings");
        assert_eq!(
            lines(&read.warnings),
            [
                "line 2, column 1: queues: unknown key has no effect",
                "line 6, column 5: tiers[0].plugins[0].enableJobOder: unknown key has no effect, did \
                 you mean enableJobOrder",
                "line 7, column 40: tiers[0].plugins[0].arguments[leastrequested.weight]: \"heavy\" is \
                 not a whole number from -1000000 to 1000000; using the default 1",
                "line 7, column 47: tiers[0].plugins[0].arguments.mostrequested: unknown key has no \
                 effect",
            ]
        );
        let predicates = &read.conf.tiers[0][1];
        let memory_pressure = &predicates.spec.arguments[0];
        assert!(predicates.arguments.bool(memory_pressure));
    }

    #[test]
    fn weights_by_resource_are_read_or_rejected() {
        let conf = |resources: &str| {
            with_arguments("nodeorder", &format!("leastrequested.resources: {resources}"))
        };
        let read = |resources: &str| {
            let conf = conf(resources).expect("the weights can be read").conf;
            let plugin = &conf.tiers[0][0];
            let spec = plugin.spec.arguments.iter().find(|s| s.key == "leastrequested.resources");
            plugin.arguments.weights(spec.expect("nodeorder has the argument"))
        };
        let expected = [("cpu".to_owned(), 1), ("nvidia.com/gpu".to_owned(), 5)];
        assert_eq!(read("{cpu: 1, nvidia.com/gpu: '5'}"), expected);
        assert_eq!(read("'cpu=1,nvidia.com/gpu=5'"), expected);
        assert_eq!(read("''"), [("cpu".to_owned(), 1), ("memory".to_owned(), 1)]);
        let at = "tiers[0].plugins[0].arguments[leastrequested.resources]";
        assert_eq!(
            conf("{cpu: 0, memory: many, nvidia.com/gpu: 101}").expect_err("three errors"),
            [
                format!(
                    "line 2, column 82: {at}.cpu: expected a whole number from 1 to 100, found \
                     the number 0"
                ),
                format!(
                    "line 2, column 93: {at}.memory: expected a whole number from 1 to 100, found \
                     \"many\""
                ),
                format!(
                    "line 2, column 115: {at}[nvidia.com/gpu]: expected a whole number from 1 to \
                     100, found the number 101"
                ),
            ]
        );
        let kind = "a mapping of names to whole numbers from 1 to 100";
        assert_eq!(
            conf("[cpu]").expect_err("a list"),
            [format!("line 2, column 76: {at}: expected {kind}, found a sequence")]
        );
        assert_eq!(
            conf("cpu:1").expect_err("a text of another form"),
            [format!("line 2, column 76: {at}: \"cpu:1\" is not {kind}")]
        );
        for empty in ["{}", "[]"] {
            assert_eq!(read(empty), [("cpu".to_owned(), 1), ("memory".to_owned(), 1)], "{empty}");
        }
        let balanced = with_arguments("nodeorder", "balancedresource.resources: {cpu: 2}");
        let problems = balanced.expect_err("the only weight is 1");
        assert!(problems[0].ends_with("cpu: expected the number 1, found the number 2"));
    }

    /// The weights of the resources that `binpack` packs, and the warnings.
    fn packed(arguments: &str) -> (String, Vec<String>) {
        let read = with_arguments("binpack", arguments).expect("it can be read");
        let plugin = &read.conf.tiers[0][0];
        let spec = plugin.spec.arguments.iter().find(|spec| spec.key == "binpack.resources");
        let value = plugin.arguments.get(spec.expect("binpack has the argument"));
        (value.to_string(), lines(&read.warnings))
    }

    #[test]
    fn names_of_a_list_have_weights_of_their_own() {
        for (arguments, expected) in [
            ("binpack.resources: 'nvidia.com/gpu, a.com/b'", "nvidia.com/gpu=1,a.com/b=1"),
            ("binpack.resources: [a.com/b, hugepages-2Mi]", "a.com/b=1,hugepages-2Mi=1"),
            ("binpack.resources: ''", ""),
            ("binpack.resources: a.com/b, binpack.resources.a.com/b: 5", "a.com/b=5"),
            ("binpack.resources.a.com/b: '0', binpack.resources: [a.com/b]", "a.com/b=0"),
            ("binpack.resources: a.com/b, binpack.resources.a.com/b: ", "a.com/b=1"),
        ] {
            assert_eq!(packed(arguments), (expected.to_owned(), vec![]), "{arguments}");
        }
    }

    #[test]
    fn a_weight_of_a_name_that_is_not_listed_is_a_warning() {
        for (arguments, expected) in [
            (
                "binpack.resources: a.com/gpu, binpack.resources.a.com/gpus: 2",
                "[binpack.resources.a.com/gpus]: has no effect: binpack.resources does not list \
                 a.com/gpus, did you mean a.com/gpu",
            ),
            (
                "binpack.resources.a.com/gpu: 2",
                "has no effect: binpack.resources does not list a.com/gpu",
            ),
            (
                "binpack.resources: a.com/gpu, binpack.resources.a.com/gpu: -1",
                "\"-1\" is not a whole number from 0 to 1000000; using the default 1",
            ),
        ] {
            let (_, warnings) = packed(arguments);
            let [warning] = &warnings[..] else { panic!("{arguments}: {warnings:?}") };
            assert!(warning.ends_with(expected), "{arguments}: {warning}");
        }
    }

    #[test]
    fn a_list_with_a_name_that_cannot_have_a_weight_is_rejected() {
        let other = "is not the name of a resource other than cpu and memory";
        for (list, expected) in [
            ("[cpu]", format!("\"cpu\" {other}")),
            ("'a.com/b,memory'", format!("\"memory\" {other}")),
            ("{a.com/b: 1}", "expected a list of names of resources, found a mapping".to_owned()),
        ] {
            let problems = with_arguments("binpack", &format!("binpack.resources: {list}"));
            let problems = problems.expect_err(list);
            assert!(problems[0].contains(&expected), "{problems:?}");
        }
    }

    #[test]
    fn ignored_resources_are_read_or_rejected() {
        let conf = |arguments: &str| with_arguments("predicates", arguments);
        let read = conf("ignoredResources: [example.com/a], ignoredResourceGroups: 'b.com,c.com'");
        assert!(read.expect("they can be read").warnings.is_empty());
        let at = "tiers[0].plugins[0].arguments";
        assert_eq!(
            conf("ignoredResources: [a b, 7], ignoredResourceGroups: [example.com/a]")
                .expect_err("three errors"),
            [
                format!(
                    "line 2, column 70: {at}.ignoredResources[0]: \"a b\" is not the name of an \
                     extended resource, such as example.com/gpu"
                ),
                format!(
                    "line 2, column 75: {at}.ignoredResources[1]: expected a string, found the \
                     number 7: put it in quotes"
                ),
                format!(
                    "line 2, column 103: {at}.ignoredResourceGroups[0]: \"example.com/a\" is not \
                     a group of extended resources, such as example.com"
                ),
            ]
        );
        assert_eq!(
            conf("ignoredResourceGroups: example.com/a").expect_err("a text"),
            [format!(
                "line 2, column 74: {at}.ignoredResourceGroups: \"example.com/a\" is not a group of \
                 extended resources, such as example.com"
            )]
        );
        for name in ["cpu", "[cpu]", "'a.com/gpu,cpu'", "[kubernetes.io/batteries]"] {
            let problems = conf(&format!("ignoredResources: {name}"));
            let problem = problems.expect_err("not an extended resource").remove(0);
            assert!(problem.contains("is not the name of an extended resource"), "{problem}");
        }
    }

    #[test]
    fn an_added_affinity_is_read_or_rejected() {
        let conf =
            |affinity: &str| with_arguments("predicates", &format!("addedAffinity: {affinity}"));
        let terms = |expression: &str| {
            format!(
                "{{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: \
                 [{{matchExpressions: [{expression}]}}]}}}}"
            )
        };
        let read = conf(&terms("{key: zone, operator: In, values: [a]}"));
        assert!(read.expect("it can be read").warnings.is_empty());
        let at = "tiers[0].plugins[0].arguments.addedAffinity";
        let required = format!("{at}.requiredDuringSchedulingIgnoredDuringExecution");
        let expression = format!("{required}.nodeSelectorTerms[0].matchExpressions[0]");
        assert_eq!(
            conf(&terms("{key: zone, operator: In}")).expect_err("no values"),
            [format!(
                "line 2, column 156: {expression}.values: must not be empty with operator In"
            )]
        );
        let preferred = |weight: i32| {
            format!(
                "{{preferredDuringSchedulingIgnoredDuringExecution: [{{weight: {weight}, \
                 preference: {{}}}}]}}"
            )
        };
        for (affinity, expected) in [
            (
                "{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}",
                "nodeSelectorTerms: must have at least one term",
            ),
            (
                "{requiredDuringSchedulingIgnoredDuringExecution: {}}",
                "nodeSelectorTerms: must have at least one term",
            ),
            (&preferred(1000), "Execution[0].weight: must be from 1 to 100, not 1000"),
            (&preferred(0), "Execution[0].weight: must be from 1 to 100, not 0"),
        ] {
            let problems = conf(affinity).expect_err("the API server would reject it");
            assert!(problems[0].ends_with(expected), "{problems:?}");
        }
        let unused = conf(&preferred(1)).expect("a warning").warnings;
        assert_eq!(
            lines(&unused),
            [format!(
                "line 2, column 66: {at}: has no effect: this plugin uses only \
                 requiredDuringSchedulingIgnoredDuringExecution"
            )]
        );
        let read = with_arguments("nodeorder", &format!("addedAffinity: {}", preferred(1)));
        assert!(read.expect("nodeorder uses it").warnings.is_empty());
        assert_eq!(
            conf("{required: {}}").expect_err("an unknown field"),
            [format!("line 2, column 67: {at}.required: unknown field")]
        );
        assert_eq!(
            conf("zone-a").expect_err("a text"),
            [format!("line 2, column 66: {at}: \"zone-a\" is not a node affinity")]
        );
    }

    #[test]
    fn flags_are_on_unless_switched_off() {
        let text = "actions: ' allocate , backfill'\ntiers: [{plugins: [{name: gang, enableJobReady: false}]}]";
        let conf = parse(text, &Registry::builtin()).expect("a good configuration").conf;
        assert_eq!(conf.action_names(), ["allocate", "backfill"]);
        let extension_points = conf.tiers[0][0].extension_points;
        assert!(!extension_points.has(ExtensionPoint::JobReady));
        assert!(extension_points.has(ExtensionPoint::JobOrder));
    }

    /// Provides the shares of jobs, as `drf` does.
    struct Equal;

    impl Plugin for Equal {
        fn name(&self) -> &'static str {
            "equal"
        }

        fn provides(&self) -> Provided<'_> {
            Provided { job_shares: Some(self), ..Provided::default() }
        }
    }

    impl JobShares for Equal {
        fn job_share(&self, _: JobIdx) -> Share {
            Share::ZERO
        }
    }

    #[test]
    fn two_plugins_that_provide_one_thing_are_rejected() {
        let registry = Registry::builtin().with_plugin(PluginSpec {
            name: "equal",
            about: "all jobs have one share",
            arguments: &[],
            metadata_prefixes: &[],
            new: |_| Box::new(Equal),
        });
        let conf = |first: &str, second: &str| {
            let tier = |plugin: &str| format!("- plugins:\n  - name: {plugin}\n");
            let text = format!("actions: allocate\ntiers:\n{}{}", tier(first), tier(second));
            parse(&text, &registry).map(|_| ()).map_err(|problems| lines(&problems))
        };
        assert_eq!(
            conf("drf", "equal").expect_err("both provide it"),
            [
                "line 6, column 5: tiers[1].plugins[0]: plugin equal provides the shares of jobs, as \
              does plugin drf in line 4: list only one of them"
            ]
        );
        assert!(conf("equal", "proportion").is_ok());
        // v0.5.0 accepts that.
        assert!(conf("drf", "drf").is_ok());
    }

    #[test]
    fn a_file_of_another_structure_is_rejected() {
        for text in [
            "",
            "42",
            "[]",
            "actions: [allocate]",
            "actions: allocate\ntiers: {}",
            "a: &a [*a]",
            "\u{0}",
        ] {
            assert!(parse(text, &Registry::builtin()).is_err(), "{text:?}");
        }
    }
}
