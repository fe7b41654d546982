//! Regular expressions with the syntax of Go's `regexp`.
//!
//! The crate `regex` has the same ancestor and the same guarantees, but differs in details: `\d`,
//! `\w`, `\s` and `\b` are ASCII in Go, a `[` in a class is literal, `\Q...\E` quotes, and `a**` is
//! an error. [`translate`] writes a pattern as the crate needs it.

use regex::{Regex, RegexBuilder};

/// Sizes of compiled patterns, and the work for each 16 characters that such a pattern reads. The
/// crate may go through the whole pattern for each character.
const SIZES: [(usize, usize); 3] = [(1 << 15, 1), (1 << 17, 16), (1 << 18, 64)];
/// The most repetitions that Go allows.
const MAX_REPEAT: u32 = 1000;

/// A compiled regular expression.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) regex: Regex,
    /// Work for each 16 characters of text.
    weight: usize,
}

impl Pattern {
    /// Compiles a pattern in Go's syntax.
    ///
    /// # Errors
    ///
    /// What is wrong with the pattern, or that it is too large.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let translated = translate(text)?;
        let mut last = String::new();
        for (size, weight) in SIZES {
            let mut builder = RegexBuilder::new(&translated);
            match builder.size_limit(size).dfa_size_limit(1 << 20).nest_limit(250).build() {
                Ok(regex) => return Ok(Self { regex, weight }),
                Err(regex::Error::CompiledTooBig(_)) => last = "it is too large".to_owned(),
                Err(error) => {
                    let text = error.to_string();
                    return Err(text.lines().last().unwrap_or_default().to_owned());
                }
            }
        }
        Err(last)
    }

    /// The work of searching a text, from its length in bytes.
    pub(crate) const fn work(&self, bytes: usize) -> usize {
        (bytes / 16 + 1).saturating_mul(self.weight)
    }
}

/// Rewrites a pattern of Go for the crate `regex`.
///
/// # Errors
///
/// If the pattern has something that only the crate knows.
fn translate(text: &str) -> Result<String, String> {
    let mut writer = Writer { rest: text, out: String::with_capacity(text.len() + 16) };
    writer.sequence()?;
    Ok(writer.out)
}

struct Writer<'t> {
    rest: &'t str,
    out: String,
}

impl<'t> Writer<'t> {
    fn next(&mut self) -> Option<char> {
        let character = self.rest.chars().next()?;
        self.rest = &self.rest[character.len_utf8()..];
        Some(character)
    }

    fn sequence(&mut self) -> Result<(), String> {
        let mut follows_repeat = false;
        while let Some(character) = self.next() {
            let mut is_repeat = false;
            match character {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.group()?,
                '*' | '+' | '?' => {
                    is_repeat = true;
                    self.out.push(character);
                }
                '{' => match counted(self.rest)? {
                    Some(end) => {
                        is_repeat = true;
                        self.out.push('{');
                        self.copy(end);
                    }
                    None => self.out.push_str("\\{"),
                },
                '}' => self.out.push_str("\\}"),
                other => self.out.push(other),
            }
            if is_repeat && follows_repeat {
                return Err("invalid nested repetition operator".to_owned());
            }
            if is_repeat && self.rest.starts_with('?') {
                self.copy(1);
            }
            follows_repeat = is_repeat;
        }
        Ok(())
    }

    fn copy(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at(bytes);
        self.out.push_str(taken);
        self.rest = rest;
    }

    /// Flags of a group: Go has only `i`, `m`, `s` and `U`.
    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        let Some(flags) = self.rest.strip_prefix('?') else { return Ok(()) };
        let end = flags.find(|c: char| !c.is_ascii_alphabetic() && c != '-').unwrap_or(flags.len());
        let is_name = matches!(flags.chars().nth(end), Some('<' | '=' | '!'));
        if !is_name && flags[..end].chars().any(|flag| !"imsU-".contains(flag)) {
            return Err("invalid or unsupported Perl syntax".to_owned());
        }
        self.copy(1 + end);
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        let kind = self.next().ok_or("trailing backslash at end of expression")?;
        match kind {
            'd' => self.out.push_str("[0-9]"),
            'D' => self.out.push_str("[^0-9]"),
            'w' => self.out.push_str("[0-9A-Za-z_]"),
            'W' => self.out.push_str("[^0-9A-Za-z_]"),
            's' => self.out.push_str("[\\t\\n\\f\\r ]"),
            'S' => self.out.push_str("[^\\t\\n\\f\\r ]"),
            'b' if self.rest.starts_with('{') => return Err("invalid escape".to_owned()),
            'b' => self.out.push_str("(?-u:\\b)"),
            // Only the one of Unicode is allowed in text; between ASCII characters it is the same.
            'B' => self.push_escaped(kind),
            'A' | 'z' => self.push_escaped(kind),
            'Q' => self.quoted(),
            other => self.common_escape(other)?,
        }
        Ok(())
    }

    /// Escapes that are the same within and outside of a class.
    fn common_escape(&mut self, kind: char) -> Result<(), String> {
        match kind {
            'a' | 'f' | 't' | 'n' | 'r' | 'v' => self.push_escaped(kind),
            'x' | 'p' | 'P' => {
                self.push_escaped(kind);
                if self.rest.starts_with('{') {
                    let end = self.rest.find('}').ok_or("invalid escape sequence")?;
                    self.copy(end + 1);
                }
            }
            '0'..='7' => self.octal(kind)?,
            other if other.is_ascii_punctuation() => self.push_escaped(other),
            other => return Err(format!("invalid escape sequence: `\\{other}`")),
        }
        Ok(())
    }

    fn push_escaped(&mut self, kind: char) {
        self.out.push('\\');
        self.out.push(kind);
    }

    /// `\123`; a single digit other than 0 would be a back reference, which Go has not.
    fn octal(&mut self, first: char) -> Result<(), String> {
        let is_octal = |c: char| ('0'..='7').contains(&c);
        let length = self.rest.chars().take(2).take_while(|c| is_octal(*c)).count();
        if first != '0' && length == 0 {
            return Err("invalid escape sequence".to_owned());
        }
        let digits = format!("{first}{}", &self.rest[..length]);
        let code = u32::from_str_radix(&digits, 8).map_err(|error| error.to_string())?;
        self.out.push_str(&format!("\\x{{{code:x}}}"));
        self.rest = &self.rest[length..];
        Ok(())
    }

    /// `\Qtext\E`
    fn quoted(&mut self) {
        let (text, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
        self.out.push_str(&regex::escape(text));
        self.rest = rest;
    }

    /// A class, whose opening bracket was read.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.rest.starts_with('^') {
            self.copy(1);
        }
        let mut is_first = true;
        while let Some(character) = self.next() {
            match character {
                ']' if !is_first => {
                    self.out.push(']');
                    return Ok(());
                }
                '[' if self.rest.starts_with(':') => {
                    let end = self.rest.find(":]").ok_or("missing closing ]")?;
                    self.out.push('[');
                    self.copy(end + 2);
                }
                '[' | ']' | '&' | '~' | '^' => self.push_escaped(character),
                '\\' => self.class_escape()?,
                other => self.out.push(other),
            }
            is_first = false;
        }
        Err("missing closing ]".to_owned())
    }

    fn class_escape(&mut self) -> Result<(), String> {
        let kind = self.next().ok_or("trailing backslash at end of expression")?;
        match kind {
            'd' => self.out.push_str("0-9"),
            'D' => self.out.push_str("[^0-9]"),
            'w' => self.out.push_str("0-9A-Za-z_"),
            'W' => self.out.push_str("[^0-9A-Za-z_]"),
            's' => self.out.push_str("\\t\\n\\f\\r "),
            'S' => self.out.push_str("[^\\t\\n\\f\\r ]"),
            other => self.common_escape(other)?,
        }
        Ok(())
    }
}

/// The length of `n}`, `n,}` or `n,m}` at the beginning of `text`, if that is what there is.
fn counted(text: &str) -> Result<Option<usize>, String> {
    let Some((inner, _)) = text.split_once('}') else { return Ok(None) };
    let (low, high) = inner.split_once(',').unwrap_or((inner, inner));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(low) || !(high.is_empty() || is_number(high)) {
        return Ok(None);
    }
    let is_too_large =
        |text: &str| !text.is_empty() && text.parse().unwrap_or(u32::MAX) > MAX_REPEAT;
    if is_too_large(low) || is_too_large(high) {
        return Err("invalid repeat count".to_owned());
    }
    Ok(Some(inner.len() + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_of_go_is_translated() {
        for (pattern, text, matches) in [
            (r"^\d$", "٣", false),
            (r"^\w$", "é", false),
            ("[[]", "[", true),
            ("^[a&&b]+$", "a&b", true),
            (r"\Qa.b\E", "axb", false),
            ("a{2", "a{2", true),
            (r"\p{Latin}", "é", true),
            (r"\101", "A", true),
            (r"[\W]", "é", true),
        ] {
            assert_eq!(Pattern::new(pattern).unwrap().regex.is_match(text), matches, "{pattern}");
        }
    }

    #[test]
    fn what_go_does_not_know_is_an_error() {
        for pattern in
            ["(?x)a", "a++", "a**", r"\u0061", r"\Z", "x{1001}", "(?!a)", "(", "*", r"\1"]
        {
            assert!(Pattern::new(pattern).is_err(), "{pattern}");
        }
    }
}
