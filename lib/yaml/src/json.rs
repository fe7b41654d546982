//! A JSON parser, because serde_json does not report the position of a value.
//!
//! Strings with escapes are decoded by serde_json.

use std::borrow::Cow;

use crate::{
    problem::{Problem, shorten},
    scalar::Number,
    token::{Opened, Position, Shape, What},
    value::{Key, Value},
};

pub(crate) struct Json<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    /// The byte at which the line starts.
    line_start: usize,
    /// Number of bytes in the line so far that are not the first of their character.
    n_continued: usize,
    /// For each open mapping or sequence: whether nothing has been read from it yet.
    untouched: Vec<bool>,
}

impl<'a> Json<'a> {
    pub(crate) fn new(text: &'a str, first_line: u32) -> Self {
        let line = first_line;
        let before = text.strip_prefix('\u{feff}').unwrap_or(text);
        let before = before.strip_prefix("---").unwrap_or(before);
        let at = text.len() - before.len();
        let mut json = Self { text, at, line, line_start: 0, n_continued: 0, untouched: vec![] };
        json.skip_space();
        json
    }

    pub(crate) fn shape(&mut self) -> Result<Shape, Problem> {
        Ok(match self.byte() {
            None => Shape::End,
            Some(b'[') => Shape::Sequence,
            Some(b'{') => Shape::Mapping,
            Some(_) => Shape::Scalar,
        })
    }

    pub(crate) fn position(&self) -> Position {
        let column = self.at - self.line_start - self.n_continued + 1;
        let column = u32::try_from(column).unwrap_or(u32::MAX);
        Position { line: self.line, column, offset: self.at }
    }

    pub(crate) fn end_offset(&self) -> usize {
        let read = &self.text[..self.at];
        read.trim_end_matches([' ', '\t', '\n', '\r']).len()
    }

    pub(crate) fn open(&mut self) -> Result<Opened<'a>, Problem> {
        let Position { line, column, .. } = self.position();
        let what = match self.byte() {
            Some(open @ (b'[' | b'{')) => {
                self.at += 1;
                self.untouched.push(true);
                if open == b'[' { What::Sequence } else { What::Mapping }
            }
            Some(b'"') => What::Scalar(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => What::Scalar(Value::Number(self.number()?)),
            Some(b't') => What::Scalar(self.word("true", Value::Bool(true))?),
            Some(b'f') => What::Scalar(self.word("false", Value::Bool(false))?),
            Some(b'n') => What::Scalar(self.word("null", Value::Null)?),
            _ => return Err(self.unexpected("a value")),
        };
        self.skip_space();
        Ok(Opened { line, column, anchor: None, what })
    }

    pub(crate) fn next_key(&mut self) -> Result<Option<Key<'a>>, Problem> {
        if !self.step(b'}', "\",\" or \"}\"")? {
            return Ok(None);
        }
        if self.byte() != Some(b'"') {
            return Err(self.unexpected("a key in double quotes"));
        }
        let Position { line, column, .. } = self.position();
        let text = self.string()?;
        self.skip_space();
        if self.byte() != Some(b':') {
            return Err(self.unexpected("\":\""));
        }
        self.at += 1;
        self.skip_space();
        Ok(Some(Key { text, line, column }))
    }

    pub(crate) fn next_item(&mut self) -> Result<bool, Problem> {
        self.step(b']', "\",\" or \"]\"")
    }

    pub(crate) fn finish(&self) -> Result<(), Problem> {
        if self.byte().is_some() { Err(self.unexpected("the end of the text")) } else { Ok(()) }
    }

    /// Moves to the next element; `false` leaves the mapping or sequence.
    fn step(&mut self, close: u8, expected: &str) -> Result<bool, Problem> {
        let first = self.untouched.last_mut().map(std::mem::take).unwrap_or_default();
        match self.byte() {
            Some(byte) if byte == close => {
                self.at += 1;
                self.untouched.pop();
                self.skip_space();
                Ok(false)
            }
            Some(_) if first => Ok(true),
            Some(b',') => {
                self.at += 1;
                self.skip_space();
                Ok(true)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// The string that starts here.
    fn string(&mut self) -> Result<Cow<'a, str>, Problem> {
        let start = self.at;
        let mut has_escapes = false;
        let mut n_continued = 0;
        loop {
            self.at += 1;
            match self.byte() {
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    self.at += 1;
                }
                Some(0..0x20) => return Err(self.unexpected("the end of the string")),
                Some(byte) => n_continued += usize::from(byte & 0xc0 == 0x80),
                None => {
                    self.at = start;
                    return Err(self.problem("the string is not closed"));
                }
            }
        }
        self.at += 1;
        self.n_continued += n_continued;
        if !has_escapes {
            return Ok(Cow::Borrowed(&self.text[start + 1..self.at - 1]));
        }
        let quoted = &self.text[start..self.at];
        serde_json::from_str(quoted)
            .map(Cow::Owned)
            .map_err(|_| self.problem(format!("{} has an invalid escape", shorten(quoted))))
    }

    fn number(&mut self) -> Result<Number<'a>, Problem> {
        let start = self.at;
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        while self.byte().is_some_and(is_part) {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        if is_number(text) {
            return Ok(Number::new(text));
        }
        self.at = start;
        Err(self.problem(format!("{:?} is not a number", shorten(text))))
    }

    fn word(&mut self, word: &str, value: Value<'a>) -> Result<Value<'a>, Problem> {
        let rest = &self.text.as_bytes()[self.at..];
        let ends = rest.get(word.len()).is_none_or(|byte| !byte.is_ascii_alphanumeric());
        if !(rest.starts_with(word.as_bytes()) && ends) {
            return Err(self.unexpected("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn skip_space(&mut self) {
        while let Some(byte @ (b' ' | b'\t' | b'\n' | b'\r')) = self.byte() {
            self.at += 1;
            if byte == b'\n' {
                self.line = self.line.saturating_add(1);
                self.line_start = self.at;
                self.n_continued = 0;
            }
        }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn unexpected(&self, expected: &str) -> Problem {
        match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(found) => self.problem(format!("expected {expected}, found {found:?}")),
            None => self.problem(format!("expected {expected}, found the end of the text")),
        }
    }

    fn problem(&self, message: impl Into<String>) -> Problem {
        let Position { line, column, .. } = self.position();
        let message = format!("malformed JSON: {}", message.into());
        Problem { line, column, path: String::new(), message }
    }
}

/// `-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?`
fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (number, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (number, None),
    };
    let size = exponent.map(|exponent| exponent.strip_prefix(['-', '+']).unwrap_or(exponent));
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && size.is_none_or(digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Located, Stream};
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Located<'_>, Problem> {
        let mut stream = Stream::json(text, 1, &Limits::default());
        let value = stream.value()?;
        stream.finish()?;
        Ok(value)
    }

    #[test]
    fn values_have_positions() {
        let value =
            read("{\n  \"ä\": [1, \"é\\u0041\", 2],\n  \"b\": {\"c\": null}\n}").expect("JSON");
        let place = |path: &str| {
            let found = value.nearest(path);
            (found.line, found.column)
        };
        assert_eq!(place(""), (1, 1));
        assert_eq!(place("ä[0]"), (2, 9));
        assert_eq!(place("ä[2]"), (2, 23));
        assert_eq!(place("b.c"), (3, 14));
        assert_eq!(value.nearest("ä[1]").as_str(), Some("éA"));
    }

    #[test]
    fn malformed_text_is_reported() {
        for (text, expected) in [
            ("", "line 1, column 1: malformed JSON: expected a value, found the end of the text"),
            (
                "{\"a\": 1",
                "line 1, column 8: malformed JSON: expected \",\" or \"}\", found the end of the text",
            ),
            (
                "{\"a\": 1,}",
                "line 1, column 9: malformed JSON: expected a key in double quotes, found '}'",
            ),
            (
                "{a: 1}",
                "line 1, column 2: malformed JSON: expected a key in double quotes, found 'a'",
            ),
            ("{\"a\" 1}", "line 1, column 6: malformed JSON: expected \":\", found '1'"),
            ("[1 2]", "line 1, column 4: malformed JSON: expected \",\" or \"]\", found '2'"),
            ("[1,]", "line 1, column 4: malformed JSON: expected a value, found ']'"),
            ("[\n\"a]", "line 2, column 1: malformed JSON: the string is not closed"),
            (
                "\"a\nb\"",
                "line 1, column 3: malformed JSON: expected the end of the string, found '\\n'",
            ),
            ("\"\\x\"", "line 1, column 5: malformed JSON: \"\\x\" has an invalid escape"),
            ("[01]", "line 1, column 2: malformed JSON: \"01\" is not a number"),
            ("[1.]", "line 1, column 2: malformed JSON: \"1.\" is not a number"),
            ("[nul]", "line 1, column 2: malformed JSON: expected a value, found 'n'"),
            ("[nullx]", "line 1, column 2: malformed JSON: expected a value, found 'n'"),
            ("1 2", "line 1, column 3: malformed JSON: expected the end of the text, found '2'"),
            ("{\"a\": 1, \"a\": 2}", "line 1, column 10: duplicate key \"a\""),
        ] {
            assert_eq!(read(text).map_err(|p| p.to_string()), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn nesting_has_a_limit() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let nested = |n| format!("{}1{}", open.repeat(n), close.repeat(n));
            assert!(read(&nested(128)).is_ok());
            let too_deep = nested(129);
            let problem = read(&too_deep).map_err(|p| p.message);
            assert_eq!(problem, Err("is nested more than 128 levels deep".to_owned()));
            assert!(read(&open.repeat(1_000_000)).is_err());
        }
    }

    proptest! {
        #[test]
        fn serde_json_reads_the_same_values(
            // No exponents and no negative zero: there serde_json rounds, and keeps the sign.
            text in r#"([\[\]{},: \n]|"a"|"\\u00e9"|"\\n"|true|false|null|é|[1-9.]|-7|01){0,12}"#
        ) {
            let ours = read(&text);
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            match (&ours, &theirs) {
                (Ok(ours), Ok(theirs)) => prop_assert_eq!(&ours.to_json(), theirs),
                // serde_json accepts duplicate keys.
                (Err(problem), Ok(_)) => prop_assert!(problem.message.starts_with("duplicate key")),
                // serde_json rejects numbers beyond the range of floating point.
                (Ok(_), Err(error)) => {
                    prop_assert!(error.to_string().contains("out of range"), "{}", error);
                }
                (Err(_), Err(_)) => {}
            }
        }
    }
}
