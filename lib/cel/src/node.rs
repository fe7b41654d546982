//! A checked expression, as it is evaluated.

use std::sync::Arc;

use crate::{
    ast::{Access, FoldKind},
    overload::Overload,
    value::Value,
};

/// A checked expression. Names are resolved, macros are kinds of their own.
#[derive(Debug)]
pub(crate) enum Node {
    Constant(Value<'static>),
    /// The variable of a macro: its place among the variables around it, outermost first.
    Local(usize),
    Device,
    Select {
        operand: Box<Node>,
        field: Arc<str>,
        access: Access,
    },
    Index {
        operand: Box<Node>,
        index: Box<Node>,
        access: Access,
    },
    /// `overloads` are those that agree with the static types.
    Call {
        overloads: Vec<&'static Overload>,
        arguments: Vec<Node>,
    },
    /// `value in [constants]`, which cel-go does not charge for.
    Member {
        value: Box<Node>,
        of: Arc<Vec<Value<'static>>>,
    },
    And(Vec<Node>),
    Or(Vec<Node>),
    Conditional(Box<[Node; 3]>),
    /// Elements, and whether each is an optional.
    List(Vec<(Node, bool)>),
    /// Keys, values, and whether each value is an optional.
    Map(Vec<(Node, Node, bool)>),
    Fold(Box<Fold>),
    Bind {
        value: Box<Node>,
        body: Box<Node>,
    },
    OptionalMap {
        value: Box<Node>,
        body: Box<Node>,
        is_flat: bool,
    },
    SortBy {
        value: Box<Node>,
        body: Box<Node>,
    },
    /// `a.or(b)`: the second is evaluated only if the first is empty.
    OptionalOr {
        operand: Box<Node>,
        other: Box<Node>,
    },
    /// `a.orValue(b)`: likewise.
    OptionalOrValue {
        operand: Box<Node>,
        other: Box<Node>,
    },
}

/// A macro that goes through a list or a map.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) kind: FoldKind,
    pub(crate) range: Node,
    /// Whether there is a variable for the index or key, and one for the value.
    pub(crate) has_two_variables: bool,
    pub(crate) filter: Option<Node>,
    pub(crate) body: Node,
}

impl Node {
    /// Whether cel-go calls this an attribute: a variable, or what is selected from a value.
    pub(crate) const fn is_attribute(&self) -> bool {
        match self {
            Self::Select { access, .. } => !matches!(access, Access::Presence),
            Self::Local(_) | Self::Device | Self::Index { .. } => true,
            _ => false,
        }
    }

    pub(crate) const fn constant(&self) -> Option<&Value<'static>> {
        match self {
            Self::Constant(value) => Some(value),
            _ => None,
        }
    }
}
