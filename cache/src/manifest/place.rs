//! Where an object stands, and how its fields are found again.

use std::ops::Range;

use kube_batch_api::{
    facts::FactError,
    yaml::{Limits, Located, Position, Problem, Stream, Value},
};

use super::diagnostic::{Diagnostic, Excerpt, Severity};

/// Where an object stands.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    context: Context<'a>,
    /// The line the object starts in, and the column.
    line: u32,
    column: u32,
    /// A place at or before the object whose byte is known, where a search can start.
    known: Position,
    /// The bytes of the document that are the object, where that is known.
    extent: Option<Range<usize>>,
}

/// The document that is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) source: &'a str,
    pub(super) document: usize,
    pub(super) text: &'a str,
    pub(super) first_line: u32,
    pub(super) syntax: Syntax,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    Yaml,
    Json,
}

impl<'a> Context<'a> {
    pub(super) const fn top(&self) -> Position {
        Position { line: self.first_line, column: 1, offset: 0 }
    }

    /// A diagnostic for a problem that does not stand before `known`.
    pub(super) fn diagnostic(
        &self,
        known: Position,
        severity: Severity,
        object: Option<String>,
        problem: Problem,
    ) -> Diagnostic {
        let at = self.offset(known, problem.line, problem.column);
        let excerpt = at.map(|at| Excerpt::of(self.text, at));
        let unplaced = Diagnostic::unplaced(severity, self.source, problem);
        Diagnostic { document: self.document, object, excerpt, ..unplaced }
    }

    /// The byte at a line and column, searched from a place before it.
    fn offset(&self, known: Position, line: u32, column: u32) -> Option<usize> {
        // What an alias stands for may have been written before the object.
        let known = if line < known.line { self.top() } else { known };
        let mut rest = self.text.get(known.offset..)?;
        let mut n_chars = column.checked_sub(1)?;
        if line == known.line {
            n_chars = column.checked_sub(known.column)?;
        }
        for _ in known.line..line {
            let end = rest.find('\n')?;
            rest = &rest[end + 1..];
        }
        let n_chars = usize::try_from(n_chars).ok()?;
        let in_rest = rest.char_indices().nth(n_chars).map_or(rest.len(), |(at, _)| at);
        Some(self.text.len() - rest.len() + in_rest)
    }
}

impl<'a> Place<'a> {
    /// The place of an object that was read from `start` to the byte `end`.
    pub(super) const fn new(context: Context<'a>, start: Position, end: usize) -> Self {
        let Position { line, column, offset } = start;
        Self { context, line, column, known: start, extent: Some(offset..end) }
    }

    /// The place of an object inside of this one.
    pub(super) fn inside(&self, node: &Located<'_>) -> Self {
        Self { line: node.line, column: node.column, extent: None, ..self.clone() }
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

    /// What facts could not be made of, with the line of the field.
    pub fn diagnose(&self, error: &FactError) -> Diagnostic {
        let FactError { object, field, problem: message } = error;
        let found = self.find(field, message);
        let (line, column) = found.unwrap_or((self.line, self.column));
        let problem = Problem { line, column, path: field.clone(), message: message.clone() };
        self.of_problem(Severity::Error, Some(object.clone()), problem)
    }

    pub(super) fn of_problem(
        &self,
        severity: Severity,
        object: Option<String>,
        problem: Problem,
    ) -> Diagnostic {
        self.context.diagnostic(self.known, severity, object, problem)
    }

    /// How much text the object is.
    pub(super) fn n_bytes(&self) -> usize {
        self.extent.as_ref().map_or(0, Range::len)
    }

    /// Parses the object again for the place of a field. Only wrong objects pay for that.
    fn find(&self, field: &str, message: &str) -> Option<(u32, u32)> {
        let text = self.context.text.get(self.extent.clone()?)?;
        let limits = Limits::default();
        let padded;
        let (mut stream, column_offset) = match self.context.syntax {
            Syntax::Json => (Stream::json(text, self.line, &limits), self.column.checked_sub(1)?),
            Syntax::Yaml => {
                // Spaces for what stands before it in its first line keep the indentation right.
                let n_before = usize::try_from(self.column.checked_sub(1)?).ok()?;
                padded = format!("{}{text}", " ".repeat(n_before));
                (Stream::yaml(&padded, self.line, &limits), 0)
            }
        };
        let object = stream.value().ok()?;
        let found = culprit(object.nearest(field), message);
        let is_first_line = found.line == self.line;
        Some((found.line, found.column + if is_first_line { column_offset } else { 0 }))
    }
}

/// The value of a mapping that a message quotes, or the mapping.
fn culprit<'n, 'a>(found: &'n Located<'a>, message: &str) -> &'n Located<'a> {
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
