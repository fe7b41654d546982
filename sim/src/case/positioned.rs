//! Values of a case, with their positions in the file.

use kube_batch_yaml::{Cursor, Problem};

/// A value and its position in the file.
#[derive(Clone, Debug)]
pub struct Positioned<T> {
    /// The value.
    pub value: T,
    /// Its path in the case.
    pub path: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl<T> Positioned<T> {
    pub(super) fn at(cursor: &Cursor<'_>, value: T) -> Self {
        let node = cursor.node();
        Self { value, path: cursor.path().to_owned(), line: node.line, column: node.column }
    }

    /// A problem with it.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        Problem {
            line: self.line,
            column: self.column,
            path: self.path.clone(),
            message: message.into(),
        }
    }
}
