//! The arguments of a plugin: what it declares, and the values a configuration gives them.

use std::{collections::BTreeMap, fmt, time::Duration};

use kube_batch_model::{
    duration,
    resource::is_extended_resource,
    selector::{node_affinity::NodeAffinity, problem::is_label_key},
};

/// An argument that a plugin takes.
#[derive(Clone, Copy, Debug)]
pub struct ArgumentSpec {
    /// Its key in the configuration.
    pub key: &'static str,
    /// Its type, default and range.
    pub kind: ArgumentKind,
    /// What it does, in one line.
    pub about: &'static str,
}

/// The type of an argument, with the value it has when it is not set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArgumentKind {
    /// `true` or `false`; Go's other spellings are accepted.
    Bool {
        /// The default.
        default: bool,
    },
    /// A whole number.
    Integer {
        /// The default.
        default: i64,
        /// The smallest and the largest value accepted.
        range: (i64, i64),
    },
    /// A finite decimal number.
    ///
    /// A plugin that compares it must not let rounding decide: see the rules of
    /// [`Plugin`](crate::plugin::Plugin).
    Number {
        /// The default.
        default: f64,
        /// The smallest and the largest value accepted.
        range: (f64, f64),
    },
    /// Any text.
    Text {
        /// The default.
        default: &'static str,
    },
    /// One of some texts.
    Choice {
        /// The texts; the first is the default.
        choices: &'static [&'static str],
    },
    /// A duration as Go writes it, such as `1m30s`.
    Duration {
        /// The default.
        default: Duration,
    },
    /// Texts: a YAML sequence, or one text separated by commas.
    List {
        /// The default.
        default: &'static [&'static str],
        /// What the items are.
        items: ListItems,
    },
    /// Weights by name: a YAML mapping, or one text such as `cpu=1,memory=2`.
    Weights {
        /// The default.
        default: &'static [(&'static str, i64)],
        /// The smallest and the largest weight accepted.
        range: (i64, i64),
    },
    /// Names, written like [`Self::List`], with weights: the weight of each is an argument of its own,
    /// whose key is that of the list, a dot and the name. The default is no names.
    WeightedNames {
        /// What the names are.
        items: ListItems,
        /// The weight of a name that has no such argument.
        default_weight: i64,
        /// The smallest and the largest weight accepted.
        range: (i64, i64),
    },
    /// A node affinity, as in `spec.affinity.nodeAffinity` of a pod. The default is none.
    NodeAffinity {
        /// The part that has an effect.
        part: AffinityPart,
    },
}

/// A part of a node affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffinityPart {
    /// What nodes must match.
    Required,
    /// What nodes should match.
    Preferred,
}

impl AffinityPart {
    /// Both parts.
    const ALL: [Self; 2] = [Self::Required, Self::Preferred];

    /// Its field in a node affinity.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Required => "requiredDuringSchedulingIgnoredDuringExecution",
            Self::Preferred => "preferredDuringSchedulingIgnoredDuringExecution",
        }
    }

    /// Whether an affinity has only the other part.
    pub fn is_all_that_lacks(self, affinity: &NodeAffinity) -> bool {
        let has = |part| match part {
            Self::Required => {
                affinity.required_during_scheduling_ignored_during_execution.is_some()
            }
            Self::Preferred => {
                let preferred = &affinity.preferred_during_scheduling_ignored_during_execution;
                preferred.as_ref().is_some_and(|terms| !terms.is_empty())
            }
        };
        !has(self) && Self::ALL.into_iter().any(has)
    }
}

/// What the items of a list are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListItems {
    /// Any texts.
    Texts,
    /// Keys of labels, such as `topology.kubernetes.io/zone`.
    LabelKeys,
    /// Names of extended resources, such as `example.com/gpu`.
    ExtendedResources,
    /// Groups of extended resources, such as `example.com`: the part of a name before the slash.
    ResourceGroups,
    /// Names of resources other than CPU and memory, such as `example.com/gpu` or `ephemeral-storage`.
    OtherResources,
}

impl ListItems {
    /// What an item is, for messages: `the name of an extended resource`.
    pub const fn expected(self) -> &'static str {
        match self {
            Self::Texts => "a text",
            Self::LabelKeys => "the key of a label, such as topology.kubernetes.io/zone",
            Self::ExtendedResources => "the name of an extended resource, such as example.com/gpu",
            Self::ResourceGroups => "a group of extended resources, such as example.com",
            Self::OtherResources => {
                "the name of a resource other than cpu and memory, such as example.com/gpu"
            }
        }
    }

    /// The items of a text that separates them by commas.
    pub fn split(text: &str) -> impl Iterator<Item = &str> {
        text.split(',').map(str::trim).filter(|item| !item.is_empty())
    }

    /// Whether a text can be an item. kube-scheduler checks the arguments of `NodeResourcesFit` in the
    /// same way, but accepts names of other resources too, which have no effect.
    pub fn accept(self, item: &str) -> bool {
        match self {
            Self::Texts => true,
            Self::LabelKeys => is_label_key(item),
            Self::ExtendedResources => is_label_key(item) && is_extended_resource(item),
            Self::ResourceGroups => !item.contains('/') && is_label_key(item),
            Self::OtherResources => is_label_key(item) && !matches!(item, "cpu" | "memory"),
        }
    }
}

/// The value of an argument.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgumentValue {
    /// Of [`ArgumentKind::Bool`].
    Bool(bool),
    /// Of [`ArgumentKind::Integer`].
    Integer(i64),
    /// Of [`ArgumentKind::Number`].
    Number(f64),
    /// Of [`ArgumentKind::Text`] and [`ArgumentKind::Choice`].
    Text(String),
    /// Of [`ArgumentKind::Duration`].
    Duration(Duration),
    /// Of [`ArgumentKind::List`].
    List(Vec<String>),
    /// Of [`ArgumentKind::Weights`] and [`ArgumentKind::WeightedNames`], in the order in which they are
    /// written.
    Weights(Vec<(String, i64)>),
    /// Of [`ArgumentKind::NodeAffinity`].
    NodeAffinity(Box<NodeAffinity>),
}

impl ArgumentSpec {
    /// A boolean argument that is off by default.
    pub const fn switch(key: &'static str, about: &'static str) -> Self {
        Self { key, kind: ArgumentKind::Bool { default: false }, about }
    }

    /// A weight of scores: a whole number from -1 000 000 to 1 000 000, so that no sum overflows.
    pub const fn weight(key: &'static str, default: i64, about: &'static str) -> Self {
        Self { key, kind: ArgumentKind::Integer { default, range: (-1_000_000, 1_000_000) }, about }
    }
}

impl ArgumentKind {
    /// Whether a value that cannot be used is an error, and not a warning with the default instead.
    ///
    /// v0.5.0 ignores the arguments it cannot read, so those of its types stay warnings.
    pub const fn is_strict(self) -> bool {
        match self {
            Self::Bool { .. }
            | Self::Integer { .. }
            | Self::Number { .. }
            | Self::Text { .. }
            | Self::Duration { .. }
            | Self::List { items: ListItems::Texts, .. } => false,
            Self::List {
                items:
                    ListItems::LabelKeys
                    | ListItems::ExtendedResources
                    | ListItems::ResourceGroups
                    | ListItems::OtherResources,
                ..
            }
            | Self::Choice { .. }
            | Self::Weights { .. }
            | Self::WeightedNames { .. }
            | Self::NodeAffinity { .. } => true,
        }
    }

    /// The value of a text; `None` if it has none.
    pub fn parse(self, text: &str) -> Option<ArgumentValue> {
        Some(match self {
            Self::Bool { .. } => ArgumentValue::Bool(match text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
                "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
                _ => return None,
            }),
            Self::Integer { range: (least, most), .. } => {
                let value = text.parse().ok().filter(|value| (least..=most).contains(value));
                ArgumentValue::Integer(value?)
            }
            Self::Number { range: (least, most), .. } => {
                let value = text.parse().ok().filter(|value| (least..=most).contains(value));
                ArgumentValue::Number(value?)
            }
            Self::Text { .. } => ArgumentValue::Text(text.to_owned()),
            Self::Choice { choices } => {
                let is_choice = choices.contains(&text);
                ArgumentValue::Text(is_choice.then(|| text.to_owned())?)
            }
            Self::Duration { .. } => ArgumentValue::Duration(duration::parse(text).ok()?),
            Self::List { items: kind, .. } => {
                let item = |item: &str| kind.accept(item).then(|| item.to_owned());
                ArgumentValue::List(ListItems::split(text).map(item).collect::<Option<_>>()?)
            }
            Self::Weights { range: (least, most), .. } => {
                let weight = |item: &str| {
                    let (name, weight) = item.split_once('=')?;
                    let weight = weight.trim().parse().ok()?;
                    let is_valid = !name.trim().is_empty() && (least..=most).contains(&weight);
                    is_valid.then(|| (name.trim().to_owned(), weight))
                };
                let weights: Option<Vec<_>> = text.split(',').map(weight).collect();
                ArgumentValue::Weights(weights.filter(|weights| are_distinct(weights))?)
            }
            Self::WeightedNames { items: kind, default_weight, .. } => {
                let weight =
                    |item: &str| kind.accept(item).then(|| (item.to_owned(), default_weight));
                ArgumentValue::Weights(ListItems::split(text).map(weight).collect::<Option<_>>()?)
            }
            // It is a mapping.
            Self::NodeAffinity { .. } => return None,
        })
    }

    /// What its values are, for messages: `true or false`.
    pub fn expected(self) -> String {
        match self {
            Self::Bool { .. } => "true or false".to_owned(),
            Self::Integer { range, .. } => whole_number(range),
            Self::Number { range: (least, most), .. } => format!("a number from {least} to {most}"),
            Self::Text { .. } => "text".to_owned(),
            Self::Choice { choices } => choices.join(" or "),
            Self::Duration { .. } => "a duration such as 100ms or 1m30s".to_owned(),
            Self::List { items, .. } | Self::WeightedNames { items, .. } => match items {
                ListItems::Texts => "a list of texts".to_owned(),
                ListItems::LabelKeys => "a list of label keys".to_owned(),
                ListItems::ExtendedResources => "a list of names of extended resources".to_owned(),
                ListItems::ResourceGroups => "a list of groups of extended resources".to_owned(),
                ListItems::OtherResources => "a list of names of resources".to_owned(),
            },
            Self::Weights { range: (least, most), .. } if least == most => {
                format!("a mapping of names to the weight {least}")
            }
            Self::Weights { range: (least, most), .. } => {
                format!("a mapping of names to whole numbers from {least} to {most}")
            }
            Self::NodeAffinity { .. } => "a node affinity".to_owned(),
        }
    }

    /// The value it has when it is not set.
    pub fn default_value(self) -> ArgumentValue {
        match self {
            Self::Bool { default } => ArgumentValue::Bool(default),
            Self::Integer { default, .. } => ArgumentValue::Integer(default),
            Self::Number { default, .. } => ArgumentValue::Number(default),
            Self::Text { default } => ArgumentValue::Text(default.to_owned()),
            Self::Choice { choices } => ArgumentValue::Text(choices[0].to_owned()),
            Self::Duration { default } => ArgumentValue::Duration(default),
            Self::List { default, .. } => {
                ArgumentValue::List(default.iter().map(|item| (*item).to_owned()).collect())
            }
            Self::Weights { default, .. } => ArgumentValue::Weights(
                default.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect(),
            ),
            Self::WeightedNames { .. } => ArgumentValue::Weights(Vec::new()),
            Self::NodeAffinity { .. } => ArgumentValue::NodeAffinity(Box::default()),
        }
    }
}

/// What the whole numbers of a range are, for messages.
pub fn whole_number((least, most): (i64, i64)) -> String {
    if least == most {
        return format!("the number {least}");
    }
    format!("a whole number from {least} to {most}")
}

/// Whether no name occurs twice.
fn are_distinct(weights: &[(String, i64)]) -> bool {
    let mut names: Vec<&str> = weights.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.windows(2).all(|pair| pair[0] != pair[1])
}

impl fmt::Display for ArgumentValue {
    /// As it would be written in a configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(value) => f.write_str(value),
            Self::Duration(value) => fmt::Debug::fmt(value, f),
            Self::List(items) => f.write_str(&items.join(",")),
            Self::Weights(weights) => {
                let items = weights.iter().map(|(name, weight)| format!("{name}={weight}"));
                f.write_str(&items.collect::<Vec<_>>().join(","))
            }
            Self::NodeAffinity(affinity) => fmt::Debug::fmt(affinity, f),
        }
    }
}

/// The arguments a configuration gives to a plugin; those it does not set have their default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments(BTreeMap<&'static str, ArgumentValue>);

/// Defines how the value of one type is read.
macro_rules! getter {
    ($(#[doc = $about:literal] $name:ident: $variant:ident -> $type:ty;)*) => { $(
        #[doc = $about]
        ///
        /// # Panics
        ///
        /// If the argument is declared with another type: a mistake in the plugin's own file.
        pub fn $name(&self, spec: &ArgumentSpec) -> $type {
            match self.get(spec) {
                ArgumentValue::$variant(value) => value,
                other => panic!("argument {} is {other:?}", spec.key),
            }
        }
    )* };
}

impl Arguments {
    /// Sets the value of an argument.
    pub fn set(&mut self, spec: &ArgumentSpec, value: ArgumentValue) {
        self.0.insert(spec.key, value);
    }

    /// Whether the value of an argument is set.
    pub fn has(&self, spec: &ArgumentSpec) -> bool {
        self.0.contains_key(spec.key)
    }

    /// The value of an argument, or its default.
    pub fn get(&self, spec: &ArgumentSpec) -> ArgumentValue {
        self.0.get(spec.key).cloned().unwrap_or_else(|| spec.kind.default_value())
    }

    getter! {
        /// The value of a boolean argument.
        bool: Bool -> bool;
        /// The value of an integer argument.
        integer: Integer -> i64;
        /// The value of a number argument.
        number: Number -> f64;
        /// The value of a text argument, or of one with choices.
        text: Text -> String;
        /// The value of a duration argument.
        duration: Duration -> Duration;
        /// The value of a list argument.
        list: List -> Vec<String>;
        /// The value of an argument of weights by name, or of weighted names.
        weights: Weights -> Vec<(String, i64)>;
        /// The value of a node affinity argument.
        node_affinity: NodeAffinity -> Box<NodeAffinity>;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn list(items: ListItems) -> ArgumentKind {
        ArgumentKind::List { default: &[], items }
    }

    const WEIGHTED_NAMES: ArgumentKind = ArgumentKind::WeightedNames {
        items: ListItems::OtherResources,
        default_weight: 1,
        range: (0, 5),
    };

    const WEIGHTS: ArgumentKind = ArgumentKind::Weights { default: &[], range: (1, 5) };

    #[test]
    fn values_are_parsed_by_kind_and_written_back() {
        let kinds = [
            (ArgumentKind::Bool { default: false }, "true", Some("true")),
            (ArgumentKind::Bool { default: false }, "T", Some("true")),
            (ArgumentKind::Bool { default: false }, "yes", None),
            (ArgumentKind::Integer { default: 1, range: (-5, 5) }, "-5", Some("-5")),
            (ArgumentKind::Integer { default: 1, range: (-5, 5) }, "6", None),
            (ArgumentKind::Integer { default: 1, range: (-5, 5) }, "1.5", None),
            (ArgumentKind::Number { default: 1.0, range: (0.0, 1.0) }, "0.25", Some("0.25")),
            (ArgumentKind::Number { default: 1.0, range: (0.0, 1.0) }, "NaN", None),
            (ArgumentKind::Number { default: 1.0, range: (0.0, 1.0) }, "inf", None),
            (ArgumentKind::Text { default: "" }, "a b", Some("a b")),
            (ArgumentKind::Choice { choices: &["a", "b"] }, "b", Some("b")),
            (ArgumentKind::Choice { choices: &["a", "b"] }, "B", None),
            (ArgumentKind::Duration { default: Duration::ZERO }, "1m30s", Some("90s")),
            (ArgumentKind::Duration { default: Duration::ZERO }, "soon", None),
            (list(ListItems::Texts), "a, b,,c", Some("a,b,c")),
            (list(ListItems::Texts), "a/b/c", Some("a/b/c")),
            (
                list(ListItems::ExtendedResources),
                "a.com/gpu, b.com/gpu",
                Some("a.com/gpu,b.com/gpu"),
            ),
            (list(ListItems::ExtendedResources), "example.com/", None),
            (list(ListItems::ExtendedResources), "cpu", None),
            (list(ListItems::ExtendedResources), "example.com/gpu, kubernetes.io/batteries", None),
            (list(ListItems::ExtendedResources), "a.com/gpu, a b", None),
            (list(ListItems::ResourceGroups), "example.com", Some("example.com")),
            (list(ListItems::ResourceGroups), "example.com/gpu", None),
            (
                WEIGHTED_NAMES,
                "a.com/gpu, ephemeral-storage,",
                Some("a.com/gpu=1,ephemeral-storage=1"),
            ),
            (WEIGHTED_NAMES, "", Some("")),
            (WEIGHTED_NAMES, "a.com/gpu, cpu", None),
            (WEIGHTED_NAMES, "memory", None),
            (WEIGHTED_NAMES, "a.com/gpu=2", None),
            (WEIGHTS, "b=1, a = 5", Some("b=1,a=5")),
            (WEIGHTS, "a=6", None),
            (WEIGHTS, "a=0", None),
            (WEIGHTS, "a", None),
            (WEIGHTS, "=1", None),
            (WEIGHTS, "a=1,a=2", None),
        ];
        for (kind, text, expected) in kinds {
            let value = kind.parse(text).map(|value| value.to_string());
            assert_eq!(value.as_deref(), expected, "{kind:?} of {text:?}");
        }
    }

    #[test]
    fn an_argument_that_is_not_set_has_its_default() {
        let spec = ArgumentSpec::weight("w", 7, "");
        let mut arguments = Arguments::default();
        assert_eq!(arguments.integer(&spec), 7);
        arguments.set(&spec, ArgumentValue::Integer(0));
        assert_eq!(arguments.integer(&spec), 0);
    }
}
