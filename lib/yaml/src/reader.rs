//! Reads a value key by key. Problems are recorded instead of returned, so that all of them can be
//! reported at once.
//!
//! ```
//! use kube_batch_yaml::{Cursor, Limits, Problems, parse};
//!
//! let text = "name: drf\nenabled: yes\nwieght: 1\n";
//! let value = parse(text, &Limits::default())?;
//! let problems = Problems::default();
//! if let Some(mut plugin) = Cursor::new(&value, &problems).mapping() {
//!     let name = plugin.require("name").and_then(|name| name.string());
//!     let weight = plugin.get("weight").and_then(|weight| weight.u32()).unwrap_or(1);
//!     let enabled = plugin.get("enabled").and_then(|enabled| enabled.bool());
//!     plugin.finish();
//!     assert_eq!((name, weight, enabled), (Some("drf"), 1, Some(true)));
//! }
//! assert_eq!(
//!     problems.into_sorted()[0].to_string(),
//!     "line 3, column 1: wieght: unknown key, did you mean weight",
//! );
//! # Ok::<(), kube_batch_yaml::Problem>(())
//! ```

use serde::de::DeserializeOwned;

use crate::{
    path::{push_index, push_key},
    problem::{Problem, Problems, suggest},
    scalar::boolean_word,
    value::{Entry, Key, Located, Value},
};

/// A value that is being read, with its path and the problems found so far.
#[derive(Clone, Debug)]
pub struct Cursor<'n> {
    node: &'n Located<'n>,
    path: String,
    problems: &'n Problems,
}

impl<'n> Cursor<'n> {
    /// Starts at the root of a document.
    pub const fn new(node: &'n Located<'n>, problems: &'n Problems) -> Self {
        Self { node, path: String::new(), problems }
    }

    /// The value.
    pub const fn node(&self) -> &'n Located<'n> {
        self.node
    }

    /// The path from the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Records a problem with this value.
    pub fn problem(&self, message: impl Into<String>) {
        self.problems.add(self.node.problem(&*self.path, message));
    }

    /// The value as a mapping.
    pub fn mapping(self) -> Option<MapReader<'n>> {
        match self.node.as_mapping() {
            Some(entries) => {
                let is_taken = vec![false; entries.len()];
                Some(MapReader { cursor: self, entries, is_taken, asked: vec![] })
            }
            None => self.expected("a mapping"),
        }
    }

    /// The items of the value as a sequence; empty, with a problem recorded, if it is not one.
    pub fn items(self) -> impl Iterator<Item = Self> {
        let items = match self.node.as_sequence() {
            Some(items) => items,
            None => self.expected("a sequence").unwrap_or_default(),
        };
        items.iter().enumerate().map(move |(index, node)| {
            let mut path = self.path.clone();
            push_index(&mut path, index);
            Self { node, path, problems: self.problems }
        })
    }

    /// The value as text.
    pub fn string(&self) -> Option<&'n str> {
        match &self.node.value {
            Value::String(text) => Some(text),
            Value::Bool(_) | Value::Number(_) => {
                let found = self.node.describe();
                self.problem(format!("expected a string, found {found}: put it in quotes"));
                None
            }
            Value::Null | Value::Sequence(_) | Value::Mapping(_) => self.expected("a string"),
        }
    }

    /// The value as one of a few words.
    pub fn one_of<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.string()?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
            return Some(*value);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let hint = suggest(text, names.iter().copied());
        let hint = hint.map(|meant| format!(", did you mean {meant}")).unwrap_or_default();
        self.problem(format!("{} is not one of {}{hint}", self.node.describe(), names.join(", ")));
        None
    }

    /// The value as a boolean.
    pub fn bool(&self) -> Option<bool> {
        let value = match &self.node.value {
            Value::Bool(value) => Some(*value),
            Value::String(word) => boolean_word(word),
            Value::Null | Value::Number(_) | Value::Sequence(_) | Value::Mapping(_) => None,
        };
        value.or_else(|| self.expected("a boolean"))
    }

    /// The value as an integer.
    pub fn i64(&self) -> Option<i64> {
        match &self.node.value {
            Value::Number(number) if number.as_i64().is_some() => number.as_i64(),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Sequence(_)
            | Value::Mapping(_) => self.expected("a 64-bit integer"),
        }
    }

    /// The value as an integer that is not negative.
    pub fn u32(&self) -> Option<u32> {
        match &self.node.value {
            Value::Number(number) => {
                let value = number.as_u64().and_then(|value| value.try_into().ok());
                value.or_else(|| self.expected("an integer from 0 to 4294967295"))
            }
            Value::Null
            | Value::Bool(_)
            | Value::String(_)
            | Value::Sequence(_)
            | Value::Mapping(_) => self.expected("an integer from 0 to 4294967295"),
        }
    }

    /// The value as a number; always a finite one.
    pub fn f64(&self) -> Option<f64> {
        match &self.node.value {
            Value::Number(number) if number.as_f64().is_finite() => Some(number.as_f64()),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Sequence(_)
            | Value::Mapping(_) => self.expected("a number"),
        }
    }

    /// The value as a type that serde can read.
    pub fn typed<T: DeserializeOwned>(&self) -> Option<T> {
        self.node.typed(&self.path).map_err(|problem| self.problems.add(problem)).ok()
    }

    /// The value as a type that serde can read; a field that the type does not have is a problem.
    pub fn typed_strict<T: DeserializeOwned>(&self) -> Option<T> {
        let read = self.node.typed_strict(&self.path, self.problems);
        read.map_err(|problem| self.problems.add(problem)).ok()
    }

    /// Records a problem with a part of this value, whose path starts here.
    pub fn problem_at(&self, path: &str, message: impl Into<String>) {
        let part = self.node.nearest(path);
        self.problems.add(part.problem(format!("{}.{path}", self.path), message));
    }

    fn expected<T>(&self, expected: &str) -> Option<T> {
        self.problem(format!("expected {expected}, found {}", self.node.describe()));
        None
    }
}

/// A mapping that is being read, key by key.
#[derive(Debug)]
pub struct MapReader<'n> {
    cursor: Cursor<'n>,
    entries: &'n [Entry<'n>],
    /// Whether an entry has been read, by position.
    is_taken: Vec<bool>,
    /// The keys that have been read or looked for.
    asked: Vec<&'static str>,
}

impl<'n> MapReader<'n> {
    /// The value of a key. A key without a value, or with null, counts as absent.
    pub fn get(&mut self, key: &'static str) -> Option<Cursor<'n>> {
        self.take(key).filter(|cursor| !cursor.node.is_null())
    }

    /// The value of a key that may be null.
    pub fn get_nullable(&mut self, key: &'static str) -> Option<Cursor<'n>> {
        self.take(key)
    }

    /// The value of a required key.
    pub fn require(&mut self, key: &'static str) -> Option<Cursor<'n>> {
        let found = self.get(key);
        if found.is_none() {
            let mut path = self.cursor.path.clone();
            push_key(&mut path, key);
            self.cursor.problems.add(self.cursor.node.problem(path, "is missing"));
        }
        found
    }

    /// Every key that has not been read yet, with its value. Afterwards all keys count as read.
    pub fn rest(&mut self) -> impl Iterator<Item = (&'n Key<'n>, Cursor<'n>)> {
        let positions: Vec<usize> = self.unread().collect();
        self.is_taken.fill(true);
        positions.into_iter().map(|at| (&self.entries[at].key, self.cursor_at(at)))
    }

    /// The mapping as a value.
    pub const fn cursor(&self) -> &Cursor<'n> {
        &self.cursor
    }

    /// Records a problem for every key that has not been read.
    pub fn finish(self) {
        for at in self.unread() {
            let key = &self.entries[at].key;
            let message = match suggest(&key.text, self.asked.iter().copied()) {
                Some(meant) => format!("unknown key, did you mean {meant}"),
                None => "unknown key".to_owned(),
            };
            let path = self.cursor_at(at).path;
            self.cursor.problems.add(Problem { line: key.line, column: key.column, path, message });
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Cursor<'n>> {
        self.asked.push(key);
        let at = self.entries.iter().position(|entry| entry.key.text == key)?;
        self.is_taken[at] = true;
        Some(self.cursor_at(at))
    }

    fn unread(&self) -> impl Iterator<Item = usize> {
        self.is_taken.iter().enumerate().filter_map(|(at, taken)| (!taken).then_some(at))
    }

    fn cursor_at(&self, at: usize) -> Cursor<'n> {
        let entry = &self.entries[at];
        let mut path = self.cursor.path.clone();
        push_key(&mut path, &entry.key.text);
        Cursor { node: &entry.value, path, problems: self.cursor.problems }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, parse};

    fn problems_of(text: &str, read: impl FnOnce(Cursor<'_>)) -> Vec<String> {
        let value = parse(text, &Limits::default()).expect("YAML");
        let problems = Problems::default();
        read(Cursor::new(&value, &problems));
        problems.into_sorted().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_problem_is_recorded() {
        let text = "tiers:\n- plugins: [{name: 1}, {nam: drf, weight: -1}]\n- 7\nactoins: x\n";
        let problems = problems_of(text, |cursor| {
            let mut root = cursor.mapping().expect("a mapping");
            root.require("actions");
            for tier in root.require("tiers").into_iter().flat_map(Cursor::items) {
                let Some(mut tier) = tier.mapping() else { continue };
                for plugin in tier.require("plugins").into_iter().flat_map(Cursor::items) {
                    let Some(mut plugin) = plugin.mapping() else { continue };
                    let _ = plugin.require("name").and_then(|name| name.string());
                    let _ = plugin.get("weight").and_then(|weight| weight.u32());
                    plugin.finish();
                }
                tier.finish();
            }
            root.finish();
        });
        assert_eq!(
            problems,
            [
                "line 1, column 1: actions: is missing",
                "line 2, column 20: tiers[0].plugins[0].name: expected a string, found the number \
                 1: put it in quotes",
                "line 2, column 24: tiers[0].plugins[1].name: is missing",
                "line 2, column 25: tiers[0].plugins[1].nam: unknown key, did you mean name",
                "line 2, column 43: tiers[0].plugins[1].weight: expected an integer from 0 to \
                 4294967295, found the number -1",
                "line 3, column 3: tiers[1]: expected a mapping, found the number 7",
                "line 4, column 1: actoins: unknown key, did you mean actions",
            ]
        );
    }

    #[test]
    fn values_are_read_by_type() {
        let text = "s: a\nb: on\ni: -3\nf: 0.5\nw: fast\nn: null\nm: {x/y: 1}\nt: [1, 2]\n";
        let problems = problems_of(text, |cursor| {
            let mut root = cursor.mapping().expect("a mapping");
            assert_eq!(root.require("s").and_then(|c| c.string()), Some("a"));
            assert_eq!(root.require("b").and_then(|c| c.bool()), Some(true));
            assert_eq!(root.require("i").and_then(|c| c.i64()), Some(-3));
            assert_eq!(root.require("f").and_then(|c| c.f64()), Some(0.5));
            let word = root.require("w").and_then(|c| c.one_of(&[("slow", 1), ("fast", 2)]));
            assert_eq!(word, Some(2));
            assert!(root.get("n").is_none());
            assert!(root.get_nullable("n").is_some());
            assert_eq!(root.require("t").and_then(|c| c.typed()), Some(vec![1, 2]));
            let mut map = root.require("m").and_then(Cursor::mapping).expect("a mapping");
            let all: Vec<_> =
                map.rest().map(|(key, value)| (&*key.text, value.path().to_owned())).collect();
            assert_eq!(all, [("x/y", "m[x/y]".to_owned())]);
            map.finish();
            root.finish();
        });
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn values_of_the_wrong_type_are_described() {
        let text = "s: {}\nb: yess\ni: 1.5\nf: x\nw: fsat\nt: {a: 1}\nitems: 3\n";
        let problems = problems_of(text, |cursor| {
            let mut root = cursor.mapping().expect("a mapping");
            let _ = root.require("s").and_then(|c| c.string());
            let _ = root.require("b").and_then(|c| c.bool());
            let _ = root.require("i").and_then(|c| c.i64());
            let _ = root.require("f").and_then(|c| c.f64());
            let _ = root.require("w").and_then(|c| c.one_of(&[("slow", 1), ("fast", 2)]));
            let _ = root.require("t").and_then(|c| c.typed::<Vec<u32>>());
            assert_eq!(root.require("items").into_iter().flat_map(Cursor::items).count(), 0);
            root.finish();
        });
        assert_eq!(
            problems,
            [
                "line 1, column 4: s: expected a string, found a mapping",
                "line 2, column 4: b: expected a boolean, found \"yess\"",
                "line 3, column 4: i: expected a 64-bit integer, found the number 1.5",
                "line 4, column 4: f: expected a number, found \"x\"",
                "line 5, column 4: w: \"fsat\" is not one of slow, fast, did you mean fast",
                "line 6, column 4: t: expected a sequence, found a mapping",
                "line 7, column 8: items: expected a sequence, found the number 3",
            ]
        );
    }
}
