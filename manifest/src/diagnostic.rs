//! Errors and warnings about manifests.

use std::fmt;

use kube_batch_yaml::Problem;

/// An error or warning about a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether something was ignored because of it.
    pub severity: Severity,
    /// The name of the file.
    pub source: String,
    /// The document in the file, from 1; 0 for the file as a whole.
    pub document: usize,
    /// The line in the file, from 1; 0 for the file as a whole.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// Kind, namespace and name, as far as they are known.
    pub object: Option<String>,
    /// The path of the field.
    pub field: Option<String>,
    /// The message.
    pub message: String,
    /// The line of the file.
    pub excerpt: Option<Excerpt>,
}

/// Whether something was ignored because of a [`Diagnostic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing was ignored.
    Warning,
    /// An object, a document or a file was ignored.
    Error,
}

/// A line of a source, cut to a readable length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The text.
    pub text: String,
    /// The bytes of the text that the message is about.
    pub marked: std::ops::Range<usize>,
    /// Whether the text is the start of the line.
    pub is_from_start: bool,
}

impl Diagnostic {
    /// A problem with a file as a whole.
    pub fn of_source(
        severity: Severity,
        source: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            source: source.into(),
            document: 0,
            line: 0,
            column: 0,
            object: None,
            field: None,
            message: message.into(),
            excerpt: None,
        }
    }

    pub(crate) fn unplaced(
        severity: Severity,
        source: impl Into<String>,
        problem: Problem,
    ) -> Self {
        let Problem { line, column, path, message } = problem;
        let field = (!path.is_empty()).then_some(path);
        Self { line, column, field, ..Self::of_source(severity, source, message) }
    }

    /// Object, field and message in one line, without the position.
    pub fn title(&self) -> String {
        let parts = [self.object.as_deref(), self.field.as_deref(), Some(&self.message)];
        let title = parts.into_iter().flatten().collect::<Vec<_>>().join(": ");
        if !title.contains(char::is_control) {
            return title;
        }
        // Names and keys can contain any character, including line breaks and terminal escape codes.
        let mut visible = String::with_capacity(title.len());
        for letter in title.chars() {
            if letter.is_control() {
                visible.extend(letter.escape_default());
            } else {
                visible.push(letter);
            }
        }
        visible
    }
}

impl fmt::Display for Diagnostic {
    /// One line: `pods.yaml:7:5: error: Pod ns/a: spec.priority: expected a 32-bit integer, ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}: {}", self.severity, self.title())
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

impl Excerpt {
    /// Maximum number of characters shown before and after the marked column.
    const MAX_BEFORE: usize = 120;
    const MAX_AFTER: usize = 120;

    /// The line around a byte of a text; the token that starts there is marked.
    pub(crate) fn of(text: &str, at: usize) -> Self {
        let (before, after) = text.split_at(at);
        let is_break = |letter: &char| matches!(letter, '\n' | '\r');
        let before: Vec<char> = before
            .chars()
            .rev()
            .take_while(|letter| !is_break(letter))
            .take(Self::MAX_BEFORE + 1)
            .collect();
        let is_from_start = before.len() <= Self::MAX_BEFORE;
        let after = after.chars().take(Self::MAX_AFTER).take_while(|letter| !is_break(letter));
        // Tabs and control characters would move the marker, or the cursor of a terminal.
        let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
        let before: String = before.into_iter().take(Self::MAX_BEFORE).rev().map(clean).collect();
        let after: String = after.map(clean).collect();
        let after = after.trim_end();
        let marked = before.len()..before.len() + token_length(after);
        Self { text: before + after, marked, is_from_start }
    }
}

/// The length of the token that starts here: up to the closing quote, or the next space or
/// bracket.
fn token_length(text: &str) -> usize {
    let mut letters = text.char_indices();
    let Some((_, first)) = letters.next() else { return 0 };
    let rest = &text[first.len_utf8()..];
    let length = match first {
        '"' | '\'' => rest.find(first).map(|at| at + 1),
        _ => rest.find(|letter: char| letter.is_whitespace() || ",]}[{".contains(letter)),
    };
    let length = first.len_utf8() + length.unwrap_or(rest.len());
    text[..length].trim_end().trim_end_matches(':').len().max(first.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(text: &str, at: usize) -> (String, String) {
        let excerpt = Excerpt::of(text, at);
        let marked = excerpt.text[excerpt.marked.clone()].to_owned();
        (excerpt.text, marked)
    }

    #[test]
    fn the_token_is_marked() {
        for (text, at, line, piece) in [
            ("a: b\nc: three # of\n", 8, "c: three # of", "three"),
            ("c: {d: 1, e: 2}", 13, "c: {d: 1, e: 2}", "2"),
            ("c: 'a b', d", 3, "c: 'a b', d", "'a b'"),
            ("key: 1", 0, "key: 1", "key"),
            ("c: \"a b", 3, "c: \"a b", "\"a b"),
            ("\ta: é1\r\n", 4, " a: é1", "é1"),
            ("a:", 2, "a:", ""),
            ("a\n", 1, "a", ""),
        ] {
            assert_eq!(marked(text, at), (line.to_owned(), piece.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn a_long_line_is_cut_around_the_token() {
        let text = format!("{}here{}", "é".repeat(10_000), " x".repeat(10_000));
        let excerpt = Excerpt::of(&text, 20_000);
        assert!(excerpt.text.chars().count() <= Excerpt::MAX_BEFORE + Excerpt::MAX_AFTER);
        assert_eq!(&excerpt.text[excerpt.marked], "here");
        assert!(!excerpt.is_from_start);
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        let mut diagnostic = Diagnostic::of_source(Severity::Error, "f", "is odd");
        diagnostic.object = Some("Pod a\nb\u{1b}[2J".to_owned());
        assert_eq!(diagnostic.to_string(), "f: error: Pod a\\nb\\u{1b}[2J: is odd");
    }
}
