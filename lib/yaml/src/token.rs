//! Types that both parsers return to the stream: positions, shapes, starts of values.

use crate::value::{Key, Located, Value};

/// Limits on the resources that parsing a text may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum nesting depth. The default, 128, is that of serde_json; a pod needs 20.
    pub depth: usize,
    /// Maximum number of values that one call of [`Stream::value`](crate::Stream::value) returns. The default, a million,
    /// is about 100 MB at most; the API server rejects much smaller objects.
    pub nodes: usize,
    /// Maximum number of values in one document that are copied for anchors and aliases, 100 000 by
    /// default. Guessed; manifests rarely have any.
    pub copies: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 128, nodes: 1_000_000, copies: 100_000 }
    }
}

/// A position in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The byte.
    pub offset: usize,
}

/// The kind of the next value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The end: there is no further value.
    End,
    /// A scalar, or an alias of any value; [`Stream::value`](crate::Stream::value) reads it.
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
    /// The anchor under which the value is stored.
    pub(crate) anchor: Option<usize>,
    pub(crate) what: What<'a>,
}

pub(crate) enum What<'a> {
    Scalar(Value<'a>),
    /// A copy of an earlier value, and its nesting depth.
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
