//! Tokens of an expression.

use std::sync::Arc;

/// A token and where it starts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) offset: usize,
    pub(crate) kind: TokenKind,
}

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind {
    Identifier(Arc<str>),
    /// The digits of an integer, still without its sign.
    Int(u64),
    UInt(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    /// An operator, a bracket, or one of the words `in`, `true`, `false`, `null`.
    Symbol(&'static str),
    End,
}
