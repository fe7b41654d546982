//! What is checked once all types are known.

use std::sync::Arc;

use crate::types::Type;

/// What is checked when all types are known.
pub(super) enum Pending {
    /// These must be of one type.
    Uniform(Vec<(usize, Type)>),
    /// The arguments of a constant format string.
    Format { offset: usize, text: Arc<str>, arguments: Vec<(usize, Type)> },
}
