//! Converts a configuration of Volcano's scheduler.
//!
//! Actions and plugins keep their order and their tiers. How each name is mapped is in
//! [`super::table`]. An argument of a plugin is kept if `run` accepts it.

use std::fmt;

use kube_batch_framework::{policy::ExtensionPoint, spec::PluginSpec};
use kube_batch_scheduler::{conf, registry::Registry};
use kube_batch_yaml::{Cursor, Located, MapReader, Problem, Problems, Value, suggest};
use serde_json::Value as Json;

use super::{
    converted::{ConvertedPlugin, ConvertedTier, File},
    table::{self, ConversionRemark, Effect, Mapping, NameKind, Setting},
};

/// A converted configuration, and what is different in it.
pub(super) struct Conversion {
    pub(super) file: File,
    /// In the order of the file that was converted.
    pub(super) notes: Vec<Note>,
}

/// Something that was left out or may decide differently.
pub(super) struct Note {
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) effect: Effect,
    pub(super) message: String,
}

/// The first action or plugin that Volcano has and the registry does not.
pub(super) fn name_of_volcano(root: &Located<'_>, registry: &Registry) -> Option<String> {
    let is_only_there = |kind: NameKind, name: &str| {
        table::row(kind, name).is_some() && !is_here(kind, name, registry)
    };
    let actions = root.get("actions").and_then(Located::as_str).unwrap_or_default();
    let actions = names(actions).map(|name| (NameKind::Action, name));
    let tiers = root.get("tiers").and_then(Located::as_sequence).unwrap_or_default().iter();
    let plugins = tiers.filter_map(|tier| tier.get("plugins")?.as_sequence()).flatten();
    let plugins = plugins
        .filter_map(|plugin| Some((NameKind::ConvertedPlugin, plugin.get("name")?.as_str()?)));
    let mut only_there = actions.chain(plugins).filter(|(kind, name)| is_only_there(*kind, name));
    only_there.next().map(|(kind, name)| format!("{kind} {name}"))
}

/// Whether the registry has an action or a plugin of this name.
fn is_here(kind: NameKind, name: &str, registry: &Registry) -> bool {
    match kind {
        NameKind::Action => registry.action(name).is_some(),
        NameKind::ConvertedPlugin => registry.plugin(name).is_some(),
        NameKind::Key | NameKind::ActionArgument | NameKind::Switch | NameKind::Argument(_) => {
            false
        }
    }
}

/// Converts a configuration.
///
/// # Errors
///
/// Why it cannot be read as a configuration of Volcano's scheduler, or that nothing would be left of it.
pub(super) fn convert(root: &Located<'_>, registry: &Registry) -> Result<Conversion, Vec<Problem>> {
    let problems = Problems::default();
    let mut converter = Converter { registry, settings: Vec::new(), notes: Vec::new() };
    let file = converter.file(Cursor::new(root, &problems));
    match file {
        Some(file) if problems.is_empty() => {
            let mut notes = converter.notes;
            notes.sort_by_key(|note| (note.line, note.column));
            Ok(Conversion { file, notes })
        }
        Some(_) | None => Err(problems.into_sorted()),
    }
}

/// The names in the value of `actions`.
fn names(actions: &str) -> impl Iterator<Item = &str> {
    actions.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// Something in the file, for messages.
struct Subject<'a> {
    kind: NameKind,
    name: &'a str,
    /// The action or plugin that it belongs to.
    owner: Option<&'a str>,
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, owner } = self;
        let owner_is = match kind {
            NameKind::ActionArgument => "action",
            NameKind::Switch | NameKind::Argument(_) => "plugin",
            NameKind::Key | NameKind::Action | NameKind::ConvertedPlugin => "file",
        };
        write!(f, "{kind} {name}")?;
        owner.map_or(Ok(()), |owner| write!(f, " of {owner_is} {owner}"))
    }
}

struct Converter<'c> {
    registry: &'c Registry,
    /// Values of arguments that the file does not set; the first one of an argument counts.
    settings: Vec<(&'static str, &'static str, Json)>,
    notes: Vec<Note>,
}

impl Converter<'_> {
    fn file(&mut self, root: Cursor<'_>) -> Option<File> {
        let mut root = root.mapping()?;
        // Arguments of plugins may follow from the actions and their arguments, so plugins come last.
        let listed = root.require("actions");
        let actions = listed.as_ref().map(|actions| self.actions(actions));
        let listed = listed.and_then(|actions| actions.node().as_str()).unwrap_or_default();
        for configuration in root.get("configurations").into_iter().flat_map(Cursor::items) {
            self.configuration(listed, configuration);
        }
        let tiers = root.get("tiers").into_iter().flat_map(Cursor::items);
        let mut tiers: Vec<ConvertedTier> = tiers.map(|tier| self.tier(tier)).collect();
        tiers.retain(|tier| !tier.plugins.is_empty());
        for (name, cursor) in rest(&mut root) {
            self.leave_out(&Subject { kind: NameKind::Key, name, owner: None }, &cursor);
        }
        Some(File { actions: actions?.join(", "), tiers })
    }

    /// The arguments of an action. Those of an action that does not run have no effect.
    fn configuration(&mut self, listed: &str, cursor: Cursor<'_>) {
        let Some(mut configuration) = cursor.mapping() else { return };
        let owner = configuration.require("name").and_then(|name| name.string());
        if owner.is_some_and(|owner| names(listed).all(|name| name != owner)) {
            return;
        }
        let arguments = configuration.get("arguments").and_then(Cursor::mapping);
        for (name, cursor) in arguments.into_iter().flat_map(|mut map| rest(&mut map)) {
            self.leave_out(&Subject { kind: NameKind::ActionArgument, name, owner }, &cursor);
        }
    }

    fn actions(&mut self, cursor: &Cursor<'_>) -> Vec<String> {
        let Some(text) = cursor.string() else { return Vec::new() };
        // With the name in the file: two names of Volcano may be one action here.
        let mut actions: Vec<(&str, String)> = Vec::new();
        for name in names(text) {
            let is_here = is_here(NameKind::Action, name, self.registry);
            if !is_here && table::row(NameKind::Action, name).is_none() {
                let message = self.unknown_action(name);
                self.note(cursor, Effect::Differs, message);
            } else if let Some(here) = self.name_here(NameKind::Action, name, cursor) {
                let is_other = |(other, action): &(&str, String)| *other != name && *action == here;
                if !actions.iter().any(is_other) {
                    actions.push((name, here));
                }
            }
        }
        if actions.is_empty() {
            cursor.problem("no action is left, list at least allocate");
        }
        actions.into_iter().map(|(_, here)| here).collect()
    }

    fn unknown_action(&self, name: &str) -> String {
        let known = self.registry.actions().iter().map(|action| action.name);
        let hint = suggest(name, known).map(|meant| format!("; did you mean {meant}?"));
        format!("action {name} is left out: {UNKNOWN}{}", hint.unwrap_or_default())
    }

    fn tier(&mut self, cursor: Cursor<'_>) -> ConvertedTier {
        let mut plugins: Vec<ConvertedPlugin> = Vec::new();
        let listed = cursor.mapping().and_then(|mut tier| tier.get("plugins"));
        for cursor in listed.into_iter().flat_map(Cursor::items) {
            let Some(plugin) = self.plugin(cursor.clone()) else { continue };
            if plugins.iter().any(|other| other.name == plugin.name) {
                let message = format!("plugin {} is in this tier already", plugin.name);
                self.note(&cursor, Effect::Differs, message);
            } else {
                plugins.push(plugin);
            }
        }
        ConvertedTier { plugins }
    }

    fn plugin(&mut self, cursor: Cursor<'_>) -> Option<ConvertedPlugin> {
        let mut plugin = cursor.mapping()?;
        let name = plugin.require("name")?;
        let owner = name.string()?;
        let here = self.name_here(NameKind::ConvertedPlugin, owner, &name)?;
        let spec = *self.registry.plugin(&here)?;
        let arguments = plugin.get("arguments").and_then(Cursor::mapping);
        let arguments = self.arguments(&spec, owner, arguments);
        let mut switches = Vec::new();
        for (key, cursor) in rest(&mut plugin) {
            if ExtensionPoint::ALL.iter().any(|point| point.key() == key) {
                switches.extend(cursor.bool().map(|value| (key.to_owned(), value)));
            } else {
                let subject = Subject { kind: NameKind::Switch, name: key, owner: Some(owner) };
                self.other_key(&spec, &subject, &cursor);
            }
        }
        Some(ConvertedPlugin { name: here, switches, arguments })
    }

    /// A key of a plugin that is no switch here.
    fn other_key(&mut self, spec: &PluginSpec, subject: &Subject<'_>, cursor: &Cursor<'_>) {
        if spec.arguments.iter().any(|argument| subject.name.starts_with(argument.key)) {
            let message = "is not below arguments: Volcano does not read it either";
            self.note(cursor, Effect::Same, format!("{subject} {message}"));
        } else {
            self.leave_out(subject, cursor);
        }
    }

    /// The arguments of a plugin that `run` accepts, and the settings that the file does not have.
    /// `owner` is its name in the file.
    fn arguments(
        &mut self,
        spec: &PluginSpec,
        owner: &str,
        map: Option<MapReader<'_>>,
    ) -> Vec<(String, Json)> {
        let mut given: Vec<_> = map.into_iter().flat_map(|mut map| rest(&mut map)).collect();
        // A list comes before the weights of its names.
        let position = |key: &str| spec.arguments.iter().position(|argument| argument.key == key);
        given.sort_by_key(|(key, _)| position(key).unwrap_or(usize::MAX));
        let mut kept: Vec<(String, Json)> = Vec::new();
        for (name, cursor) in given {
            let kind = NameKind::Argument(spec.name);
            let subject = Subject { kind, name, owner: Some(owner) };
            if table::row(kind, name).is_some() {
                self.leave_out(&subject, &cursor);
                continue;
            }
            kept.push((name.to_owned(), cursor.node().to_json()));
            if let Some(problem) = self.problem_with(spec, &kept) {
                kept.pop();
                self.note(&cursor, Effect::Differs, format!("{subject} is left out: {problem}"));
            }
        }
        for (plugin, key, value) in &self.settings {
            if *plugin == spec.name && kept.iter().all(|(other, _)| other != key) {
                kept.push(((*key).to_owned(), value.clone()));
            }
        }
        kept
    }

    /// The first problem that `run` would report about these arguments of a plugin.
    fn problem_with(&self, spec: &PluginSpec, arguments: &[(String, Json)]) -> Option<String> {
        let actions = self.registry.actions().first()?.name.to_owned();
        let (name, arguments) = (spec.name.to_owned(), arguments.to_vec());
        let plugins = vec![ConvertedPlugin { name, switches: Vec::new(), arguments }];
        let file = File { actions, tiers: vec![ConvertedTier { plugins }] };
        let problems = match conf::parse(&file.to_yaml(), self.registry) {
            Ok(read) => read.warnings,
            Err(problems) => problems,
        };
        // The value that is used instead may be one that Volcano has by default.
        let reason = |message: &str| message.split("; using the default").next().map(str::to_owned);
        problems.first().and_then(|problem| reason(&problem.message))
    }

    /// The name that an action or a plugin has here, if it is kept.
    fn name_here(&mut self, kind: NameKind, name: &str, cursor: &Cursor<'_>) -> Option<String> {
        let subject = Subject { kind, name, owner: None };
        let (here, with, remark) = match table::row(kind, name).map(|row| row.mapping) {
            Some(Mapping::Named { here, with, remark }) => (here, with, remark),
            None if is_here(kind, name, self.registry) => return Some(name.to_owned()),
            Some(_) | None => {
                self.leave_out(&subject, cursor);
                return None;
            }
        };
        self.settings.extend(with.iter().map(Setting::parsed));
        let becomes = if here == name { String::new() } else { format!(" becomes {here}") };
        if let Some(ConversionRemark { effect, text }) = remark {
            self.note(cursor, effect, format!("{subject}{becomes}: {text}"));
        }
        Some(here.to_owned())
    }

    /// Records that something is left out, unless it says only what is always so here.
    fn leave_out(&mut self, subject: &Subject<'_>, cursor: &Cursor<'_>) {
        let row = table::row(subject.kind, subject.name);
        let (effect, reason) = match row.map(|row| row.mapping) {
            Some(Mapping::Replaced { with, why }) => {
                self.settings.extend(with.iter().map(Setting::parsed));
                (Effect::Same, why.to_owned())
            }
            Some(Mapping::NotNeeded { why }) => (Effect::Same, why.to_owned()),
            Some(Mapping::Lost { why, instead }) => (Effect::Differs, format!("{why}; {instead}")),
            Some(Mapping::AlwaysTrue { instead }) if is_bool(cursor, false) => {
                (Effect::Differs, format!("it cannot be false; {instead}"))
            }
            Some(Mapping::AlwaysFalse { why, instead }) if is_bool(cursor, true) => {
                (Effect::Differs, format!("{why}; {instead}"))
            }
            Some(Mapping::Argument { plugin, key }) => {
                let value = cursor.node().to_json();
                let argument = [(key.to_owned(), value.clone())];
                let spec = self.registry.plugin(plugin);
                match spec.and_then(|spec| self.problem_with(spec, &argument)) {
                    Some(problem) => (Effect::Differs, problem),
                    // What the file says comes before what the table says.
                    None => return self.settings.insert(0, (plugin, key, value)),
                }
            }
            Some(
                Mapping::AlwaysTrue { .. } | Mapping::AlwaysFalse { .. } | Mapping::Named { .. },
            ) => return,
            None if subject.kind == NameKind::ConvertedPlugin => {
                (Effect::Differs, UNKNOWN_PLUGIN.to_owned())
            }
            None => (Effect::Differs, UNKNOWN.to_owned()),
        };
        self.note(cursor, effect, format!("{subject} is left out: {reason}"));
    }

    fn note(&mut self, cursor: &Cursor<'_>, effect: Effect, message: String) {
        let Located { line, column, .. } = *cursor.node();
        self.notes.push(Note { line, column, effect, message });
    }
}

const UNKNOWN: &str = "neither kube-batch nor Volcano 1.15 has it";
const UNKNOWN_PLUGIN: &str = "neither kube-batch nor Volcano 1.15 has it; if it is your own, write it \
                              as a plugin of kube-batch, see docs/plugins.md";

/// The keys that have not been read, with their values; a key without a value counts as absent.
fn rest<'n>(map: &mut MapReader<'n>) -> Vec<(&'n str, Cursor<'n>)> {
    let entries = map.rest().filter(|(_, cursor)| !cursor.node().is_null());
    entries.map(|(key, cursor)| (&*key.text, cursor)).collect()
}

/// Whether the value is this boolean, quoted or not.
fn is_bool(cursor: &Cursor<'_>, expected: bool) -> bool {
    match &cursor.node().value {
        Value::Bool(value) => *value == expected,
        Value::String(text) => **text == *expected.to_string(),
        Value::Null | Value::Number(_) | Value::Sequence(_) | Value::Mapping(_) => false,
    }
}
