//! Errors of compilation and of evaluation.

use std::sync::Arc;

/// The longest message of a [`CompileError`]: it is kept and shown, and may quote what a user wrote.
const MAX_MESSAGE: usize = 512;

/// Why an expression does not compile. Its text has cel-go's form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ERROR: <input>:{line}:{column}: {message}")]
pub struct CompileError {
    /// The line in the expression, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// What is wrong there.
    pub message: String,
}

impl CompileError {
    /// An error at the byte `offset` of `source`.
    pub(crate) fn at(source: &str, offset: usize, mut message: String) -> Self {
        if message.len() > MAX_MESSAGE {
            message = format!("{}…", &message[..message.floor_char_boundary(MAX_MESSAGE)]);
        }
        let before = source.get(..offset).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message,
        }
    }
}

/// Why an expression has no answer for a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// A map has no such key. Kubernetes appends advice to this text.
    #[error("no such key: {0}")]
    NoSuchKey(Arc<str>),
    /// An operator or function does not accept values of these types.
    #[error("no such overload")]
    NoSuchOverload,
    /// The evaluation costs more than its limit.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimitExceeded,
    /// An integer is divided by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// The remainder of a division by zero.
    #[error("modulus by zero")]
    ModulusByZero,
    /// The result does not fit the type, which is the first word: `integer overflow`.
    #[error("{0} overflow")]
    Overflow(&'static str),
    /// The answer is not a boolean. Holds the name of its type.
    #[error("CEL result of type {0} could not be converted to bool")]
    NotBool(Arc<str>),
    /// A function rejects the value of an argument.
    #[error("{0}")]
    Invalid(Arc<str>),
}

impl EvaluationError {
    pub(crate) fn invalid(message: impl Into<Arc<str>>) -> Self {
        Self::Invalid(message.into())
    }
}
