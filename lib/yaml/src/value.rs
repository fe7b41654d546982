//! Values with their position in the text.

use std::borrow::Cow;

use crate::{
    path::{self, Step},
    problem::{Problem, shorten},
    scalar::Number,
};

/// A value and the position at which it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<'a> {
    /// The value.
    pub value: Value<'a>,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

/// The content of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Null, written or left out.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(Number<'a>),
    /// Text.
    String(Cow<'a, str>),
    /// A list.
    Sequence(Vec<Located<'a>>),
    /// Keys and values in the order of the source, each key once.
    Mapping(Vec<Entry<'a>>),
}

/// A key of a mapping with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: Key<'a>,
    /// The value.
    pub value: Located<'a>,
}

/// A key and the position at which it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The key; a number or a boolean as it is written.
    pub text: Cow<'a, str>,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

impl<'a> Located<'a> {
    /// The text, if it is a string.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Sequence(_)
            | Value::Mapping(_) => None,
        }
    }

    /// The entries, if it is a mapping.
    pub fn as_mapping(&self) -> Option<&[Entry<'a>]> {
        match &self.value {
            Value::Mapping(entries) => Some(entries),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Sequence(_) => None,
        }
    }

    /// The items, if it is a sequence.
    pub fn as_sequence(&self) -> Option<&[Located<'a>]> {
        match &self.value {
            Value::Sequence(items) => Some(items),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Mapping(_) => None,
        }
    }

    /// Whether it is null.
    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// The value of a key, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let entries = self.as_mapping()?;
        entries.iter().find(|entry| entry.key.text == key).map(|entry| &entry.value)
    }

    /// The value at a path such as `spec.containers[0].name`, or the last existing value on that path.
    ///
    /// Brackets contain an index, a key, or the name of an item of a sequence.
    pub fn nearest(&self, path: &str) -> &Self {
        let mut here = self;
        for step in path::steps(path) {
            match here.step(step) {
                Some(next) => here = next,
                None => break,
            }
        }
        here
    }

    fn step(&self, step: Step<'_>) -> Option<&Self> {
        let (Step::Key(text) | Step::Bracket(text)) = step;
        match &self.value {
            Value::Mapping(_) => self.get(text),
            Value::Sequence(items) => match text.parse::<usize>() {
                Ok(index) => items.get(index),
                Err(_) => items.iter().find(|item| {
                    item.get("name").and_then(Self::as_str).is_some_and(|name| name == text)
                }),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    /// A problem with this value.
    pub fn problem(&self, path: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { line: self.line, column: self.column, path: path.into(), message: message.into() }
    }

    /// The value in a few words: `"three"`, `the number 3`, `a mapping`.
    pub fn describe(&self) -> String {
        match &self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => format!("the boolean {value}"),
            Value::Number(number) => format!("the number {}", shorten(number.text())),
            Value::String(text) => format!("{:?}", shorten(text)),
            Value::Sequence(_) => "a sequence".to_owned(),
            Value::Mapping(_) => "a mapping".to_owned(),
        }
    }

    /// The value as JSON. Numbers that JSON cannot represent become strings.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(number) => {
                let whole = number.as_i64().map(Into::into);
                let whole = whole.or_else(|| number.as_u64().map(Into::into));
                let number_in_json =
                    whole.or_else(|| serde_json::Number::from_f64(number.as_f64()));
                number_in_json.map_or_else(|| Json::String(number.text().to_owned()), Json::Number)
            }
            Value::String(text) => Json::String(text.clone().into_owned()),
            Value::Sequence(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Mapping(entries) => {
                let pairs = entries.iter();
                pairs.map(|e| (e.key.text.clone().into_owned(), e.value.to_json())).collect()
            }
        }
    }
}
