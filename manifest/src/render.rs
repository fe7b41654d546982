//! A diagnostic with its line of the source, for a terminal.

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::diagnostic::{Diagnostic, Severity};

/// Whether to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// No.
    Plain,
    /// Yes: as ANSI escape codes.
    Styled,
}

/// Renders a diagnostic on several lines: message, position, and the line of the file.
pub fn render(diagnostic: &Diagnostic, paint: Paint) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = annotate_snippets::normalize_untrusted_str(&diagnostic.title());
    let group = Group::with_title(level.primary_title(title));
    let line = usize::try_from(diagnostic.line).unwrap_or(usize::MAX);
    let column = usize::try_from(diagnostic.column).unwrap_or(usize::MAX);
    let origin = || Origin::path(&diagnostic.source);
    let snippet = diagnostic.excerpt.as_ref().map(|excerpt| {
        let mark = AnnotationKind::Primary.span(excerpt.marked.clone());
        let snippet = Snippet::source(&excerpt.text).line_start(line).annotation(mark);
        (snippet, excerpt.is_from_start)
    });
    let group = match snippet {
        Some((snippet, true)) => group.element(snippet.path(&diagnostic.source)),
        // The renderer would count columns from the start of the excerpt.
        Some((snippet, false)) => {
            group.element(origin().line(line).char_column(column)).element(snippet)
        }
        None if diagnostic.line == 0 => group.element(origin()),
        None => group.element(origin().line(line).char_column(column)),
    };
    let renderer = match paint {
        Paint::Plain => Renderer::plain(),
        Paint::Styled => Renderer::styled(),
    };
    renderer.render(&[group])
}
