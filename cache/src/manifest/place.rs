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
    pub(super) context: Context<'a>,
    /// Where the object starts; the byte is right only with an extent.
    start: Position,
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
    pub(super) fn diagnostic(
        &self,
        severity: Severity,
        object: Option<String>,
        problem: Problem,
    ) -> Diagnostic {
        let top = Position { line: self.first_line, column: 1, offset: 0 };
        self.diagnostic_below(&top, severity, object, problem)
    }

    /// The same, for a problem that does not stand before `known`, where the search can start.
    fn diagnostic_below(
        &self,
        known: &Position,
        severity: Severity,
        object: Option<String>,
        problem: Problem,
    ) -> Diagnostic {
        let excerpt = self.line(known, problem.line).map(|line| Excerpt::of(line, problem.column));
        let unplaced = Diagnostic::unplaced(severity, self.source, problem);
        Diagnostic { document: self.document, object, excerpt, ..unplaced }
    }

    fn line(&self, known: &Position, line: u32) -> Option<&'a str> {
        let known = if line < known.line {
            Position { line: self.first_line, column: 1, offset: 0 }
        } else {
            *known
        };
        let line_start = self.text.get(..known.offset)?.rfind('\n').map_or(0, |at| at + 1);
        let n_below = usize::try_from(line.checked_sub(known.line)?).ok()?;
        self.text[line_start..].lines().nth(n_below)
    }
}

impl<'a> Place<'a> {
    pub(super) const fn new(
        context: Context<'a>,
        start: Position,
        extent: Option<Range<usize>>,
    ) -> Self {
        Self { context, start, extent }
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
        self.start.line
    }

    /// A problem with the object as a whole.
    pub fn diagnostic(
        &self,
        severity: Severity,
        object: Option<String>,
        message: impl Into<String>,
    ) -> Diagnostic {
        let Position { line, column, .. } = self.start;
        let problem = Problem { line, column, path: String::new(), message: message.into() };
        self.of_problem(severity, object, problem)
    }

    /// What facts could not be made of, with the line of the field.
    pub fn diagnose(&self, error: &FactError) -> Diagnostic {
        let FactError { object, field, problem: message } = error;
        let found = self.find(field, message);
        let (line, column) = found.unwrap_or((self.start.line, self.start.column));
        let problem = Problem { line, column, path: field.clone(), message: message.clone() };
        self.of_problem(Severity::Error, Some(object.clone()), problem)
    }

    pub(super) fn of_problem(
        &self,
        severity: Severity,
        object: Option<String>,
        problem: Problem,
    ) -> Diagnostic {
        if self.extent.is_some() {
            self.context.diagnostic_below(&self.start, severity, object, problem)
        } else {
            self.context.diagnostic(severity, object, problem)
        }
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
            Syntax::Json => {
                (Stream::json(text, self.start.line, &limits), self.start.column.checked_sub(1)?)
            }
            Syntax::Yaml => {
                // Spaces for what stands before it in its first line keep the indentation right.
                let n_before = usize::try_from(self.start.column.checked_sub(1)?).ok()?;
                padded = format!("{}{text}", " ".repeat(n_before));
                (Stream::yaml(&padded, self.start.line, &limits), 0)
            }
        };
        let object = stream.value().ok()?;
        let found = culprit(object.nearest(field), message);
        let is_first_line = found.line == self.start.line;
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
