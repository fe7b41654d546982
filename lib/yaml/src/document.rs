//! Splits a file into its documents.
//!
//! The file is split before anything is parsed, so that an invalid document does not affect the
//! others. This is correct because neither YAML nor JSON allows `---` or `...` at the start of a line
//! inside a value.

use crate::problem::Problem;

/// One document of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    /// The document with its directives, markers and comments.
    pub bytes: &'a [u8],
    /// The line of the file it starts in, from 1.
    pub line: u32,
}

/// The documents of a file that are not empty. They may be invalid.
pub fn documents(bytes: &[u8]) -> impl Iterator<Item = Document<'_>> {
    Documents { rest: bytes.strip_prefix(BOM).unwrap_or(bytes), line: 1 }
}

const BOM: &[u8] = "\u{feff}".as_bytes();

impl<'a> Document<'a> {
    /// The text of the document.
    ///
    /// # Errors
    ///
    /// [`Problem`] if it is not UTF-8 or contains a zero byte.
    pub fn text(&self) -> Result<&'a str, Problem> {
        let text = std::str::from_utf8(self.bytes).map_err(|error| {
            let at = error.valid_up_to();
            self.problem_at(at, format!("is not UTF-8 text: byte 0x{:02x}", self.bytes[at]))
        })?;
        match text.find('\0') {
            Some(at) => Err(self.problem_at(at, "is not text: byte 0x00".to_owned())),
            None => Ok(text),
        }
    }

    /// Whether the document starts like JSON.
    pub fn is_like_json(&self) -> bool {
        let bytes = self.bytes.strip_prefix(BOM).unwrap_or(self.bytes);
        let bytes = bytes.strip_prefix(b"---").unwrap_or(bytes);
        matches!(bytes.trim_ascii_start().first(), Some(b'{' | b'['))
    }

    fn problem_at(&self, at: usize, message: String) -> Problem {
        let before = &self.bytes[..at];
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let n_lines = before.iter().filter(|byte| **byte == b'\n').count();
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let n_before = String::from_utf8_lossy(&before[line_start..]).chars().count();
        Problem {
            line: self.line.saturating_add(small(n_lines)),
            column: small(n_before + 1),
            path: String::new(),
            message,
        }
    }
}

struct Documents<'a> {
    rest: &'a [u8],
    line: u32,
}

/// The kind of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    /// Blank, or a comment.
    Blank,
    /// A `%` directive, if no content precedes it.
    Directive,
    /// `---` alone.
    Start,
    /// `---` followed by content.
    StartWithContent,
    /// `...`
    End,
    Content,
}

impl Line {
    fn of(line: &[u8]) -> Self {
        let is_blank = |text: &[u8]| {
            let mut left = text.iter().skip_while(|byte| byte.is_ascii_whitespace());
            left.next().is_none_or(|byte| *byte == b'#')
        };
        let marks = |marker: &[u8]| {
            let after = line.strip_prefix(marker)?;
            after.first().is_none_or(u8::is_ascii_whitespace).then_some(after)
        };
        if let Some(after) = marks(b"---") {
            if is_blank(after) { Self::Start } else { Self::StartWithContent }
        } else if marks(b"...").is_some() {
            Self::End
        } else if is_blank(line) {
            Self::Blank
        } else if line.starts_with(b"%") {
            Self::Directive
        } else {
            Self::Content
        }
    }
}

impl<'a> Iterator for Documents<'a> {
    type Item = Document<'a>;

    fn next(&mut self) -> Option<Document<'a>> {
        while !self.rest.is_empty() {
            let (document, has_content) = self.split_first();
            if has_content {
                return Some(document);
            }
        }
        None
    }
}

impl<'a> Documents<'a> {
    /// Removes the text up to the next marker, and returns whether it has content.
    fn split_first(&mut self) -> (Document<'a>, bool) {
        let first_line = self.line;
        let mut length = 0;
        let mut has_content = false;
        let mut has_started = false;
        let mut has_directives = false;
        while length < self.rest.len() {
            let rest = &self.rest[length..];
            let line_length = find_byte(b'\n', rest).map_or(rest.len(), |at| at + 1);
            let line = &rest[..line_length];
            let kind = Line::of(line.strip_prefix(BOM).unwrap_or(line));
            let is_start = matches!(kind, Line::Start | Line::StartWithContent);
            if is_start && (has_content || has_started) {
                break;
            }
            length += line_length;
            self.line = self.line.saturating_add(1);
            match kind {
                Line::Blank => {}
                Line::Directive => {
                    has_directives = true;
                    has_content |= has_started;
                }
                Line::Start => has_started = true,
                Line::StartWithContent => (has_started, has_content) = (true, true),
                Line::Content => has_content = true,
                Line::End => break,
            }
        }
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        // Directives without a document count as content, so that they are reported.
        (Document { bytes, line: first_line }, has_content || (has_directives && !has_started))
    }
}

fn find_byte(byte: u8, bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|other| *other == byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, parse};
    use proptest::prelude::*;

    fn split(text: &str) -> Vec<(u32, &str)> {
        documents(text.as_bytes())
            .map(|document| (document.line, document.text().expect("text")))
            .collect()
    }

    #[test]
    fn files_are_split_at_markers() {
        for (text, expected) in [
            ("", vec![]),
            ("\n# nothing\n---\n---\n# nothing\n...\n", vec![]),
            ("a: 1", vec![(1, "a: 1")]),
            ("a: 1\n---\nb: 2\n", vec![(1, "a: 1\n"), (2, "---\nb: 2\n")]),
            (
                "---\r\na: 1\r\n---\r\nb: 2\r\n",
                vec![(1, "---\r\na: 1\r\n"), (3, "---\r\nb: 2\r\n")],
            ),
            ("--- {a: 1}\n--- # x\nb: 2\n", vec![(1, "--- {a: 1}\n"), (2, "--- # x\nb: 2\n")]),
            (
                "a: 1\n...\n%YAML 1.2\n---\nb: 2\n",
                vec![(1, "a: 1\n...\n"), (3, "%YAML 1.2\n---\nb: 2\n")],
            ),
            ("a: 1\n...\nb: 2\n", vec![(1, "a: 1\n...\n"), (3, "b: 2\n")]),
            ("---foo: 1\n--- bar", vec![(1, "---foo: 1\n"), (2, "--- bar")]),
            ("a: |\n  ---\n  b\n---\nc: 1", vec![(1, "a: |\n  ---\n  b\n"), (4, "---\nc: 1")]),
            ("\u{feff}---\na: 1\n", vec![(1, "---\na: 1\n")]),
            ("a: 1\n\u{feff}---\nb: 1\n", vec![(1, "a: 1\n"), (2, "\u{feff}---\nb: 1\n")]),
            ("%YAML 1.2\n", vec![(1, "%YAML 1.2\n")]),
        ] {
            assert_eq!(split(text), expected, "{text:?}");
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_reported() {
        let problem = |bytes: &'static [u8]| {
            let last = documents(bytes).last().expect("a document");
            last.text().map_err(|problem| problem.to_string())
        };
        assert_eq!(
            problem(b"a: 1\n---\nb: \xc3\xa9\xff"),
            Err("line 3, column 5: is not UTF-8 text: byte 0xff".to_owned())
        );
        assert_eq!(
            problem(b"\x7fELF\0"),
            Err("line 1, column 5: is not text: byte 0x00".to_owned())
        );
    }

    #[test]
    fn json_is_recognised_by_its_start() {
        let is_like_json =
            |text: &'static str| documents(text.as_bytes()).next().expect("one").is_like_json();
        for text in ["{}", "\u{feff}[", "--- [\n", "---\n\n {"] {
            assert!(is_like_json(text), "{text:?}");
        }
        for text in ["a: {}", "# {\n{}", "- {}"] {
            assert!(!is_like_json(text), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn documents_know_the_line_they_start_in(text in "(---|\\.\\.\\.|%|#|a: 1| |\n|\r\n){0,30}") {
            let mut end = 0;
            for (line, document) in split(&text) {
                let start = document.as_ptr() as usize - text.as_ptr() as usize;
                prop_assert!(start >= end);
                end = start + document.len();
                let n_lines = text[..start].matches('\n').count();
                prop_assert_eq!(usize::try_from(line).expect("small"), n_lines + 1);
            }
        }

        #[test]
        fn every_document_parses_as_it_would_in_its_file(
            bodies in prop::collection::vec("(a: 1|b: \\[2\\]|c: \\|\n  ---\n|- d)", 1..6)
        ) {
            let text: String = bodies.iter().map(|body| format!("---\n{body}\n")).collect();
            let split = split(&text);
            prop_assert_eq!(split.len(), bodies.len());
            for ((_, document), body) in split.iter().zip(&bodies) {
                let limits = Limits::default();
                let value = |text| parse(text, &limits).map(|value| value.to_json());
                prop_assert_eq!(value(document), value(body));
            }
        }
    }
}
