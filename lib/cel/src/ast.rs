//! The syntax tree: what the parser makes and the checker reads.

use std::sync::Arc;

/// An expression.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    /// Where errors about it are shown: a byte of the source.
    pub(crate) offset: usize,
    /// Levels of expressions below this one, with itself.
    pub(crate) depth: usize,
    pub(crate) kind: Kind,
}

/// The forms of expressions.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Literal(Literal),
    /// A name, with `.` before it if it must not be a local variable.
    Identifier(Arc<str>),
    Select {
        operand: Box<Expression>,
        field: Arc<str>,
        access: Access,
    },
    Index {
        operand: Box<Expression>,
        index: Box<Expression>,
        access: Access,
    },
    Call {
        receiver: Option<Box<Expression>>,
        function: Arc<str>,
        arguments: Vec<Expression>,
    },
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Conditional(Box<[Expression; 3]>),
    List(Vec<Element>),
    Map(Vec<Entry>),
    Fold(Box<Fold>),
    /// `cel.bind(variable, value, body)`
    Bind(Box<Bind>),
    /// `value.optMap(variable, body)` and `value.optFlatMap(variable, body)`
    OptionalMap {
        bind: Box<Bind>,
        is_flat: bool,
    },
    /// `value.sortBy(variable, body)`
    SortBy(Box<Bind>),
}

/// What happens if a key is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// `a.b`, `a[b]`: an error.
    Required,
    /// `a.?b`, `a[?b]`: the result is an optional.
    Optional,
    /// `has(a.b)`: the result is a boolean.
    Presence,
}

#[derive(Clone, Debug)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// `value`, or `?value` of an optional.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    pub(crate) value: Expression,
    pub(crate) is_optional: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Expression,
    pub(crate) value: Expression,
    pub(crate) is_optional: bool,
}

/// A macro that goes through a list or a map.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub(crate) kind: FoldKind,
    pub(crate) range: Expression,
    /// One name, or two for index or key and value.
    pub(crate) variables: Vec<Arc<str>>,
    pub(crate) filter: Option<Expression>,
    pub(crate) body: Expression,
}

/// What a macro makes of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    /// `map`, `filter`, `transformList`
    List,
    /// `transformMap`
    Map,
    /// `transformMapEntry`
    MapEntry,
}

/// A value, the name that it has in `body`, and `body`.
#[derive(Clone, Debug)]
pub(crate) struct Bind {
    pub(crate) value: Expression,
    pub(crate) variable: Arc<str>,
    pub(crate) body: Expression,
}

impl Expression {
    pub(crate) fn new(offset: usize, kind: Kind) -> Self {
        let depth = 1 + kind.children().map(|child| child.depth).max().unwrap_or(0);
        Self { offset, depth, kind }
    }
}

impl Kind {
    /// Whether the value may have another within it. Operators have names that are no words.
    pub(crate) fn may_wrap(&self) -> bool {
        match self {
            Self::Literal(_)
            | Self::Identifier(_)
            | Self::And(_)
            | Self::Or(_)
            | Self::Conditional(_)
            | Self::Bind(_) => false,
            Self::Select { access, .. } | Self::Index { access, .. } => *access == Access::Optional,
            Self::Call { function, .. } => function.starts_with(|c: char| c.is_alphabetic()),
            Self::List(_)
            | Self::Map(_)
            | Self::Fold(_)
            | Self::OptionalMap { .. }
            | Self::SortBy(_) => true,
        }
    }

    fn children(&self) -> Box<dyn Iterator<Item = &Expression> + '_> {
        match self {
            Self::Literal(_) | Self::Identifier(_) => Box::new(std::iter::empty()),
            Self::Select { operand, .. } => Box::new(std::iter::once(&**operand)),
            Self::Index { operand, index, .. } => Box::new([&**operand, &**index].into_iter()),
            Self::Call { receiver, arguments, .. } => {
                Box::new(receiver.as_deref().into_iter().chain(arguments))
            }
            Self::And(terms) | Self::Or(terms) => Box::new(terms.iter()),
            Self::Conditional(parts) => Box::new(parts.iter()),
            Self::List(elements) => Box::new(elements.iter().map(|element| &element.value)),
            Self::Map(entries) => {
                Box::new(entries.iter().flat_map(|entry| [&entry.key, &entry.value]))
            }
            Self::Fold(fold) => Box::new([&fold.range, &fold.body].into_iter().chain(&fold.filter)),
            Self::Bind(bind) | Self::OptionalMap { bind, .. } | Self::SortBy(bind) => {
                Box::new([&bind.value, &bind.body].into_iter())
            }
        }
    }
}
