//! What the two syntaxes hand to the stream: positions, shapes, starts of values.

use crate::value::{Key, Located, Value};

/// What a hostile text may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How deep values may be nested. The default, 128, is that of serde_json; a pod needs 20.
    pub depth: usize,
    /// How many values one call of [`Stream::value`] may give. The default, a million, is some
    /// 100 MB at most; the API server refuses objects long before.
    pub nodes: usize,
    /// How many values of one document may be copied for anchors and aliases, 100 000 by default.
    /// Guessed; manifests rarely have any.
    pub copies: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 128, nodes: 1_000_000, copies: 100_000 }
    }
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The byte.
    pub offset: usize,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nothing: the text has no value, or no further one.
    End,
    /// Something that [`Stream::value`] reads: a scalar, or the alias of any value.
    Scalar,
    /// A sequence that can be entered.
    Sequence,
    /// A mapping that can be entered.
    Mapping,
}

/// The start of a value.
pub(crate) struct Opened<'a> {
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// The anchor, if the value is to be kept under one.
    pub(crate) anchor: Option<usize>,
    pub(crate) what: What<'a>,
}

pub(crate) enum What<'a> {
    Scalar(Value<'a>),
    /// A copy of an earlier value, and how deep that one is.
    Alias(Located<'a>, usize),
    Sequence,
    Mapping,
}

/// The key of a mapping, or the YAML merge key `<<`.
pub(crate) enum NextKey<'a> {
    Key(Key<'a>),
    Merge(Key<'a>),
}

pub(crate) fn too_deep(limit: usize) -> String {
    format!("is nested more than {limit} levels deep")
}
