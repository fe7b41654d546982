//! The document that is being read, and how a problem in it becomes a diagnostic.

use kube_batch_yaml::{Position, Problem};

use crate::diagnostic::{Diagnostic, Excerpt, Severity};

/// The document that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) source: &'a str,
    pub(crate) document: usize,
    pub(crate) text: &'a str,
    pub(crate) first_line: u32,
    pub(crate) syntax: Syntax,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    Yaml,
    Json,
}

impl<'a> Context<'a> {
    pub(crate) const fn top(&self) -> Position {
        Position { line: self.first_line, column: 1, offset: 0 }
    }

    /// A diagnostic for a problem at or after `known`.
    pub(crate) fn diagnostic(
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

    /// The position of a line and column, unless it is before another one: then it is that of an alias.
    pub(crate) fn position_after(
        &self,
        known: Position,
        line: u32,
        column: u32,
    ) -> Option<Position> {
        let is_after = (line, column) >= (known.line, known.column);
        let offset = is_after.then(|| self.offset(known, line, column))??;
        Some(Position { line, column, offset })
    }

    /// The byte at a line and column, searched from a position before it.
    fn offset(&self, known: Position, line: u32, column: u32) -> Option<usize> {
        // The value of an alias may be before the object.
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

impl Diagnostic {
    /// A problem in `text`, the content of a whole file such as a configuration.
    pub fn from_problem(source: impl Into<String>, text: &str, problem: Problem) -> Self {
        let source = source.into();
        let context =
            Context { source: &source, document: 0, text, first_line: 1, syntax: Syntax::Yaml };
        context.diagnostic(context.top(), Severity::Error, None, problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_of_any_text_becomes_a_diagnostic() {
        let problem = Problem {
            line: 2,
            column: 9,
            path: "tiers[0].name".to_owned(),
            message: "is odd".to_owned(),
        };
        let diagnostic = Diagnostic::from_problem("conf", "tiers:\n- name: drf\n", problem);
        assert_eq!(diagnostic.to_string(), "conf:2:9: error: tiers[0].name: is odd");
        let excerpt = diagnostic.excerpt.expect("an excerpt");
        assert_eq!(&excerpt.text[excerpt.marked], "drf");
    }

    #[test]
    fn a_position_is_searched_from_the_one_before() {
        let (source, text) = ("f", "é: 1\n[é, b,\n c]");
        let context = Context { source, document: 0, text, first_line: 1, syntax: Syntax::Yaml };
        let known = context.position_after(context.top(), 2, 5).expect("a position");
        assert_eq!(&text[known.offset..], "b,\n c]");
        assert_eq!(context.position_after(known, 3, 2).map(|at| at.offset), text.find("c]"));
        // The value of an alias is before.
        assert_eq!(context.position_after(known, 2, 2), None);
    }
}
