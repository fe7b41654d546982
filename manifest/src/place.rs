//! The position of an object in its file, and the search for its fields.

use std::ops::Range;

use kube_batch_model::facts::FactError;
use kube_batch_yaml::{Limits, Located, Position, Problem, Stream, Value};

use crate::{
    context::{Context, Syntax},
    diagnostic::{Diagnostic, Severity},
};

/// The position of an object in its file.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    context: Context<'a>,
    /// The line the object starts in, and the column.
    line: u32,
    column: u32,
    /// A position at or before the object whose byte is known, where a search can start.
    known: Position,
    /// The bytes of the object in the document, if known.
    extent: Option<Range<usize>>,
}

impl<'a> Place<'a> {
    /// The position of an object that was read from `start` to the byte `end`.
    pub(crate) const fn new(context: Context<'a>, start: Position, end: usize) -> Self {
        let Position { line, column, offset } = start;
        Self { context, line, column, known: start, extent: Some(offset..end) }
    }

    /// The position of an object inside this one, or after another one of the same list: then only the text between
    /// the two is searched.
    pub(crate) fn inside(&self, node: &Located<'_>) -> Self {
        let (line, column) = (node.line, node.column);
        let known = self.context.position_after(self.known, line, column).unwrap_or(self.known);
        Self { line, column, known, extent: None, ..self.clone() }
    }

    /// The name of the file.
    pub const fn source(&self) -> &'a str {
        self.context.source
    }

    /// The document in the file, from 1.
    pub const fn document(&self) -> usize {
        self.context.document
    }

    /// The line of the file that the object starts in, from 1.
    pub const fn line(&self) -> u32 {
        self.line
    }

    /// A problem with the object as a whole.
    pub fn diagnostic(
        &self,
        severity: Severity,
        object: Option<String>,
        message: impl Into<String>,
    ) -> Diagnostic {
        let (line, column) = (self.line, self.column);
        let problem = Problem { line, column, path: String::new(), message: message.into() };
        self.of_problem(severity, object, problem)
    }

    /// A diagnostic for an object that cannot be converted to facts, with the line of the field.
    pub fn diagnose(&self, error: &FactError) -> Diagnostic {
        let FactError { object, field, problem: message } = error;
        let found = self.find(field, message);
        let (line, column) = found.unwrap_or((self.line, self.column));
        let problem = Problem { line, column, path: field.clone(), message: message.clone() };
        self.of_problem(Severity::Error, Some(object.clone()), problem)
    }

    pub(crate) fn of_problem(
        &self,
        severity: Severity,
        object: Option<String>,
        problem: Problem,
    ) -> Diagnostic {
        self.context.diagnostic(self.known, severity, object, problem)
    }

    /// The length of the object in bytes.
    pub(crate) fn n_bytes(&self) -> usize {
        self.extent.as_ref().map_or(0, Range::len)
    }

    /// Parses the object again to find a field. This is done only for invalid objects.
    fn find(&self, field: &str, message: &str) -> Option<(u32, u32)> {
        let text = self.context.text.get(self.extent.clone()?)?;
        let limits = Limits::default();
        let padded;
        let (mut stream, column_offset) = match self.context.syntax {
            Syntax::Json => (Stream::json(text, self.line, &limits), self.column.checked_sub(1)?),
            Syntax::Yaml => {
                // Spaces instead of the text before it in its first line keep the indentation.
                let n_before = usize::try_from(self.column.checked_sub(1)?).ok()?;
                padded = format!("{}{text}", " ".repeat(n_before));
                (Stream::yaml(&padded, self.line, &limits), 0)
            }
        };
        let object = stream.value().ok()?;
        let found = quoted_value(object.nearest(field), message);
        let is_first_line = found.line == self.line;
        Some((found.line, found.column + if is_first_line { column_offset } else { 0 }))
    }
}

/// The value in a mapping that a message quotes, or the mapping.
fn quoted_value<'n, 'a>(found: &'n Located<'a>, message: &str) -> &'n Located<'a> {
    let Value::Mapping(entries) = &found.value else { return found };
    let mut quoted = entries.iter().filter(|entry| {
        let text = match &entry.value.value {
            Value::String(text) => format!("{text:?}"),
            Value::Number(number) => format!("{:?}", number.text()),
            Value::Null | Value::Bool(_) | Value::Sequence(_) | Value::Mapping(_) => return false,
        };
        message.contains(&text) && message.contains(&*entry.key.text)
    });
    quoted.next().map_or(found, |entry| &entry.value)
}
