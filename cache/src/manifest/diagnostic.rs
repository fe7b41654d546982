//! What is wrong with a manifest, for people.

use std::fmt;

use kube_batch_api::yaml::Problem;

/// Something wrong with a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether something was left out because of it.
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
    /// What is wrong.
    pub message: String,
    /// The line in question.
    pub excerpt: Option<Excerpt>,
}

/// Whether something was left out because of a [`Diagnostic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing was.
    Warning,
    /// An object, a document or a file was.
    Error,
}

/// A line of a source, cut to a readable length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The text.
    pub text: String,
    /// The bytes of the text that are meant.
    pub marked: std::ops::Range<usize>,
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

    /// A problem that was found in `text`, the whole of a source: a configuration, say.
    pub fn from_problem(source: impl Into<String>, text: &str, problem: Problem) -> Self {
        let line = usize::try_from(problem.line).unwrap_or(usize::MAX);
        let excerpt = text.lines().nth(line.saturating_sub(1));
        let excerpt = excerpt.map(|line| Excerpt::of(line, problem.column));
        Self { excerpt, ..Self::unplaced(Severity::Error, source, problem) }
    }

    pub(super) fn unplaced(
        severity: Severity,
        source: impl Into<String>,
        problem: Problem,
    ) -> Self {
        let Problem { line, column, path, message } = problem;
        let field = (!path.is_empty()).then_some(path);
        Self { line, column, field, ..Self::of_source(severity, source, message) }
    }

    /// Object, field and message, without the place.
    pub fn title(&self) -> String {
        let parts = [self.object.as_deref(), self.field.as_deref(), Some(&self.message)];
        parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
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
    /// Characters of a line that are shown before and after the column that is meant.
    const MAX_BEFORE: usize = 60;
    const MAX_AFTER: usize = 80;

    /// The part of a line around a column, from 1; what starts there is marked.
    pub fn of(line: &str, column: u32) -> Self {
        let before = usize::try_from(column).unwrap_or(usize::MAX).saturating_sub(1);
        let offset = |n_chars: usize| line.char_indices().nth(n_chars).map_or(line.len(), |c| c.0);
        let at = offset(before);
        let start = offset(before.saturating_sub(Self::MAX_BEFORE)).min(at);
        let end = offset(before.saturating_add(Self::MAX_AFTER));
        let shown = &line[start..end];
        let marked = at - start;
        let length = token_length(&shown[marked..]);
        // Tabs and control characters would move the mark or the cursor of a terminal.
        let text = shown.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
        let mut excerpt = Self { text: String::new(), marked: marked..marked + length };
        for letter in text {
            excerpt.text.push(letter);
        }
        excerpt
    }
}

/// The length of the piece of text that starts here: up to the closing quote, or the next space or
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
