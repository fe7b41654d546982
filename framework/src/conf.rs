//! The scheduler configuration: which actions run, and which plugins are asked in which tier.
//!
//! The format is upstream's own (`--scheduler-conf`):
//!
//! ```
//! use kube_batch_framework::conf::{Catalog, parse};
//!
//! let catalog = Catalog { actions: &["allocate"], plugins: &[] };
//! let read = parse("actions: allocate\ntiers: []\n", &catalog).expect("a good configuration");
//! assert_eq!(read.conf.actions, ["allocate"]);
//!
//! let problems = parse("actions: alocate, evict\n", &catalog).unwrap_err();
//! assert_eq!(problems[0].message, "unknown action \"alocate\", did you mean allocate");
//! assert_eq!(problems[1].message, "unknown action \"evict\", known are allocate");
//! ```
//!
//! Every error is listed at once, and a configuration with an error is not used. What upstream
//! ignores (unknown keys, unknown arguments, argument values that do not parse) is a warning.
// Parity: differs, see docs/parity.md#x1.

use std::collections::BTreeMap;

use kube_batch_api::yaml::{self, Cursor, Limits, Located, MapReader, Problem, Problems, Value};

use crate::policy::{ExtensionPoint, ExtensionPoints};

/// A scheduler configuration whose names are known.
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
    /// The extension points at which it is called.
    pub extension_points: ExtensionPoints,
    /// Its arguments.
    pub arguments: Arguments,
}

impl PluginConf {
    /// A plugin that is asked everything and has no arguments.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            extension_points: ExtensionPoints::ALL,
            arguments: Arguments::default(),
        }
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

/// Arguments of a plugin; those that are not set have the default of their [`ArgumentSpec`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments(BTreeMap<&'static str, i64>);

impl Arguments {
    /// The value of an argument: a whole number, or 1 and 0 for true and false.
    pub fn get(&self, spec: &ArgumentSpec) -> i64 {
        self.0.get(spec.key).copied().unwrap_or(spec.default)
    }
}

/// What can be configured: the actions and plugins there are.
#[derive(Clone, Copy, Debug)]
pub struct Catalog {
    /// Names of the actions.
    pub actions: &'static [&'static str],
    /// The plugins.
    pub plugins: &'static [PluginSpec],
}

/// A plugin that can be configured.
#[derive(Clone, Copy, Debug)]
pub struct PluginSpec {
    /// Its name.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    /// The arguments it takes.
    pub arguments: &'static [ArgumentSpec],
}

/// An argument of a plugin.
#[derive(Clone, Copy, Debug)]
pub struct ArgumentSpec {
    /// Its key.
    pub key: &'static str,
    /// What its values are.
    pub kind: ArgumentKind,
    /// Its value where it is not set.
    pub default: i64,
    /// What it does, in a line.
    pub about: &'static str,
}

/// What the values of an argument are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// true or false, held as 1 and 0; Go's other spellings are accepted.
    Bool,
    /// A weight: a whole number from -1 000 000 to 1 000 000, so that no sum of scores overflows.
    Weight,
}

/// The largest weight.
const MAX_WEIGHT: i64 = 1_000_000;

impl ArgumentKind {
    fn parse(self, text: &str) -> Option<i64> {
        match self {
            Self::Bool => match text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(1),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(0),
                _ => None,
            },
            Self::Weight => {
                let weight: i64 = text.parse().ok()?;
                (-MAX_WEIGHT..=MAX_WEIGHT).contains(&weight).then_some(weight)
            }
        }
    }

    const fn expected(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Weight => "a whole number from -1000000 to 1000000",
        }
    }
}

/// A configuration that was read, and what is odd about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The configuration.
    pub conf: Conf,
    /// What has no effect.
    pub warnings: Vec<Problem>,
}

/// Reads a configuration file.
///
/// # Errors
///
/// Every problem that keeps it from being used, in the order of the text: show them all, and use
/// nothing of it.
pub fn parse(text: &str, catalog: &Catalog) -> Result<Read, Vec<Problem>> {
    let root = yaml::parse(text, &Limits::default()).map_err(|problem| vec![problem])?;
    read(&root, "", catalog)
}

/// Reads a configuration that stands at `path` inside another document.
///
/// # Errors
///
/// As [`parse`].
pub fn read(root: &Located<'_>, path: &str, catalog: &Catalog) -> Result<Read, Vec<Problem>> {
    let (problems, warnings) = (Problems::default(), Problems::default());
    let conf = Reader { catalog, warnings: &warnings }.conf(Cursor::new(root, &problems));
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

struct Reader<'c> {
    catalog: &'c Catalog,
    warnings: &'c Problems,
}

impl Reader<'_> {
    fn conf(&self, root: Cursor<'_>) -> Option<Conf> {
        let mut root = root.mapping()?;
        let actions = root.require("actions").map(|actions| self.actions(&actions));
        let tiers = root.get("tiers").map(|tiers| tiers.items().map(|t| self.tier(t)).collect());
        if tiers.is_none() {
            self.warnings
                .add(root.cursor().node().problem("tiers", "is missing: no plugin is asked"));
        }
        self.warn_of_rest(root, &["actions", "tiers"]);
        Some(Conf { actions: actions?, tiers: tiers.unwrap_or_default() })
    }

    fn actions(&self, cursor: &Cursor<'_>) -> Vec<String> {
        let names: Vec<&str> =
            cursor.string().unwrap_or_default().split(',').map(str::trim).collect();
        for name in &names {
            if !self.catalog.actions.contains(name) && cursor.node().as_str().is_some() {
                cursor.problem(unknown("action", name, self.catalog.actions.iter().copied()));
            }
        }
        names.into_iter().map(str::to_owned).collect()
    }

    fn tier(&self, cursor: Cursor<'_>) -> Vec<PluginConf> {
        let Some(mut tier) = cursor.mapping() else { return Vec::new() };
        let mut plugins: Vec<PluginConf> = Vec::new();
        for cursor in tier.require("plugins").into_iter().flat_map(Cursor::items) {
            let here = cursor.clone();
            if let Some(plugin) = self.plugin(cursor) {
                if plugins.iter().any(|other| other.name == plugin.name) {
                    here.problem(format!("plugin {} stands twice in this tier", plugin.name));
                }
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
            let found = self.catalog.plugins.iter().find(|spec| spec.name == text);
            if found.is_none() {
                let known = self.catalog.plugins.iter().map(|spec| spec.name);
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
        Some(PluginConf { name: name?.name.to_owned(), extension_points, arguments })
    }

    fn arguments(&self, plugin: &PluginSpec, mut map: MapReader<'_>) -> Arguments {
        let mut arguments = Arguments::default();
        for spec in plugin.arguments {
            let Some(cursor) = map.get(spec.key) else { continue };
            let text = match &cursor.node().value {
                Value::String(text) if text.is_empty() => continue,
                Value::String(text) => text.to_string(),
                Value::Number(number) => number.text().to_owned(),
                Value::Bool(value) => value.to_string(),
                Value::Null | Value::Sequence(_) | Value::Mapping(_) => cursor.node().describe(),
            };
            match spec.kind.parse(&text) {
                Some(value) => {
                    arguments.0.insert(spec.key, value);
                }
                None => {
                    let message = format!(
                        "\"{text}\" is not {}, the default {} stays",
                        spec.kind.expected(),
                        spec.default_text()
                    );
                    self.warnings.add(cursor.node().problem(cursor.path(), message));
                }
            }
        }
        let known: Vec<&str> = plugin.arguments.iter().map(|spec| spec.key).collect();
        self.warn_of_rest(map, &known);
        arguments
    }

    fn warn_of_rest(&self, mut map: MapReader<'_>, known: &[&str]) {
        for (key, cursor) in map.rest() {
            let hint = match yaml::suggest(&key.text, known.iter().copied()) {
                Some(meant) => format!(", did you mean {meant}"),
                None => String::new(),
            };
            let message = format!("unknown key has no effect{hint}");
            self.warnings.add(Problem {
                line: key.line,
                column: key.column,
                path: cursor.path().to_owned(),
                message,
            });
        }
    }
}

impl ArgumentSpec {
    /// The default as it would be written.
    pub fn default_text(&self) -> String {
        match self.kind {
            ArgumentKind::Bool => (self.default == 1).to_string(),
            ArgumentKind::Weight => self.default.to_string(),
        }
    }
}

fn unknown(kind: &str, name: &str, known: impl Iterator<Item = &'static str> + Clone) -> String {
    if name.is_empty() {
        return format!("{kind} without a name");
    }
    match yaml::suggest(name, known.clone()) {
        Some(meant) => format!("unknown {kind} \"{name}\", did you mean {meant}"),
        None => {
            let known: Vec<&str> = known.collect();
            format!("unknown {kind} \"{name}\", known are {}", known.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CATALOG: Catalog = Catalog {
        actions: &["reclaim", "allocate", "backfill", "preempt"],
        plugins: &[
            PluginSpec { name: "gang", about: "", arguments: &[] },
            PluginSpec {
                name: "nodeorder",
                about: "",
                arguments: &[ArgumentSpec {
                    key: "leastrequested.weight",
                    kind: ArgumentKind::Weight,
                    default: 1,
                    about: "",
                }],
            },
            PluginSpec {
                name: "predicates",
                about: "",
                arguments: &[ArgumentSpec {
                    key: "predicate.MemoryPressureEnable",
                    kind: ArgumentKind::Bool,
                    default: 0,
                    about: "",
                }],
            },
        ],
    };

    fn lines(problems: &[Problem]) -> Vec<String> {
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_error_is_listed_at_once() {
        let text = "actions: allocate, evict, \ntiers:\n- plugins:\n  - {name: gnag}\n  - {name: gang, enableJobOrder: maybe}\n  - {name: gang}\n- 7\n";
        let problems = parse(text, &CATALOG).expect_err("five mistakes");
        assert_eq!(
            lines(&problems),
            [
                "line 1, column 10: actions: unknown action \"evict\", known are reclaim, allocate, \
                 backfill, preempt",
                "line 1, column 10: actions: action without a name",
                "line 4, column 12: tiers[0].plugins[0].name: unknown plugin \"gnag\", did you mean \
                 gang",
                "line 5, column 34: tiers[0].plugins[1].enableJobOrder: expected a boolean, found \
                 \"maybe\"",
                "line 6, column 5: tiers[0].plugins[2]: plugin gang stands twice in this tier",
                "line 7, column 3: tiers[1]: expected a mapping, found the number 7",
            ]
        );
    }

    #[test]
    fn what_has_no_effect_is_a_warning() {
        let text = "actions: allocate\nqueues: 1\ntiers:\n- plugins:\n  - name: nodeorder\n    enableJobOder: false\n    arguments: {leastrequested.weight: heavy, mostrequested: 1}\n  - {name: predicates, arguments: {predicate.MemoryPressureEnable: T}}\n";
        let read = parse(text, &CATALOG).expect("good enough");
        assert_eq!(
            lines(&read.warnings),
            [
                "line 2, column 1: queues: unknown key has no effect",
                "line 6, column 5: tiers[0].plugins[0].enableJobOder: unknown key has no effect, did \
                 you mean enableJobOrder",
                "line 7, column 40: tiers[0].plugins[0].arguments[leastrequested.weight]: \"heavy\" is \
                 not a whole number from -1000000 to 1000000, the default 1 stays",
                "line 7, column 47: tiers[0].plugins[0].arguments.mostrequested: unknown key has no \
                 effect",
            ]
        );
        let spec = &CATALOG.plugins[2].arguments[0];
        assert_eq!(read.conf.tiers[0][1].arguments.get(spec), 1);
    }

    #[test]
    fn flags_are_on_unless_switched_off() {
        let text = "actions: ' allocate , backfill'\ntiers: [{plugins: [{name: gang, enableJobReady: false}]}]";
        let conf = parse(text, &CATALOG).expect("a good configuration").conf;
        assert_eq!(conf.actions, ["allocate", "backfill"]);
        let extension_points = conf.tiers[0][0].extension_points;
        assert!(!extension_points.has(ExtensionPoint::JobReady));
        assert!(extension_points.has(ExtensionPoint::JobOrder));
    }

    #[test]
    fn a_file_of_another_shape_is_refused() {
        for text in [
            "",
            "42",
            "[]",
            "actions: [allocate]",
            "actions: allocate\ntiers: {}",
            "a: &a [*a]",
            "\u{0}",
        ] {
            assert!(parse(text, &CATALOG).is_err(), "{text:?}");
        }
    }
}
