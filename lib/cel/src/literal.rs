//! Literals of numbers, strings and bytes.

use crate::token::TokenKind;

/// Reads the number at the beginning of `text`, and returns where it ends.
///
/// # Errors
///
/// If the number does not fit its type.
pub(crate) fn number(text: &str) -> Result<(TokenKind, usize), String> {
    if let Some(digits) = text.strip_prefix("0x") {
        let end = span(digits, |b| b.is_ascii_hexdigit());
        if end > 0 {
            let value = u64::from_str_radix(&digits[..end], 16);
            return integer(value.ok(), &digits[end..], end + 2);
        }
    }
    let whole = span(text, |b| b.is_ascii_digit());
    let mut end = whole;
    if text[end..].starts_with('.') {
        let fraction = span(&text[end + 1..], |b| b.is_ascii_digit());
        if fraction > 0 {
            end += 1 + fraction;
        }
    }
    end += exponent(&text[end..]);
    if end == whole {
        return integer(text[..whole].parse().ok(), &text[whole..], whole);
    }
    let value: f64 = text[..end].parse().unwrap_or(f64::INFINITY);
    if value.is_infinite() {
        return Err("invalid double literal".to_owned());
    }
    Ok((TokenKind::Double(value), end))
}

fn span(text: &str, accepts: impl Fn(u8) -> bool) -> usize {
    text.bytes().position(|b| !accepts(b)).unwrap_or(text.len())
}

/// The length of the exponent at the beginning of `text`, or 0.
fn exponent(text: &str) -> usize {
    let Some(rest) = text.strip_prefix(['e', 'E']) else { return 0 };
    let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    match span(digits, |b| b.is_ascii_digit()) {
        0 => 0,
        n => text.len() - digits.len() + n,
    }
}

fn integer(value: Option<u64>, rest: &str, end: usize) -> Result<(TokenKind, usize), String> {
    if rest.starts_with(['u', 'U']) {
        let value = value.ok_or("invalid uint literal")?;
        return Ok((TokenKind::UInt(value), end + 1));
    }
    Ok((TokenKind::Int(value.ok_or("invalid int literal")?), end))
}

/// A string or bytes literal whose escapes are not yet resolved.
pub(crate) struct Quoted<'t> {
    is_bytes: bool,
    is_raw: bool,
    body: &'t str,
}

impl<'t> Quoted<'t> {
    /// The literal at the beginning of `text`, if there is one, and where it ends.
    ///
    /// # Errors
    ///
    /// If the literal has no end.
    pub(crate) fn find(text: &'t str) -> Result<Option<(Self, usize)>, String> {
        let after_bytes = text.strip_prefix(['b', 'B']);
        let rest = after_bytes.unwrap_or(text);
        let after_raw = rest.strip_prefix(['r', 'R']);
        let rest = after_raw.unwrap_or(rest);
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| rest.starts_with(quote));
        let Some(quote) = quote else { return Ok(None) };
        let is_raw = after_raw.is_some();
        let rest = &rest[quote.len()..];
        let length = Self::length(rest, quote, is_raw)
            .ok_or("Syntax error: token recognition error: the string has no end")?;
        let end = text.len() - rest.len() + length + quote.len();
        let body = &rest[..length];
        Ok(Some((Self { is_bytes: after_bytes.is_some(), is_raw, body }, end)))
    }

    /// How many bytes there are before the closing quote.
    fn length(text: &str, quote: &str, is_raw: bool) -> Option<usize> {
        let may_have_lines = quote.len() == 3;
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            if rest.starts_with(quote) {
                return Some(at);
            }
            let character = rest.chars().next()?;
            if !may_have_lines && matches!(character, '\n' | '\r') {
                return None;
            }
            at += character.len_utf8();
            if character == '\\' && !is_raw {
                at += text[at..].chars().next()?.len_utf8();
            }
        }
        None
    }

    /// The token with its escapes resolved.
    ///
    /// # Errors
    ///
    /// If there is an unknown escape, or one that names no character.
    pub(crate) fn value(&self) -> Result<TokenKind, String> {
        let body = self.body.replace("\r\n", "\n").replace('\r', "\n");
        if self.is_bytes {
            let mut bytes = Vec::with_capacity(body.len());
            self.unescape(&body, |escaped| match escaped {
                Unit::Character(character) => {
                    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Unit::Code(code) => bytes.push(code),
            })?;
            return Ok(TokenKind::Bytes(bytes.into()));
        }
        let mut text = String::with_capacity(body.len());
        self.unescape(&body, |escaped| match escaped {
            Unit::Character(character) => text.push(character),
            Unit::Code(code) => text.push(char::from(code)),
        })?;
        Ok(TokenKind::String(text.into()))
    }

    fn unescape(&self, body: &str, mut push: impl FnMut(Unit)) -> Result<(), String> {
        let mut rest = body;
        while let Some(character) = rest.chars().next() {
            rest = &rest[character.len_utf8()..];
            if character != '\\' || self.is_raw {
                push(Unit::Character(character));
                continue;
            }
            let (unit, after) = self.escape(rest)?;
            push(unit);
            rest = after;
        }
        Ok(())
    }

    /// The unit that the escape stands for whose backslash was before `text`.
    fn escape<'b>(&self, text: &'b str) -> Result<(Unit, &'b str), String> {
        let unknown = || "Syntax error: token recognition error: unknown escape".to_owned();
        let kind = text.chars().next().ok_or_else(unknown)?;
        let rest = &text[kind.len_utf8()..];
        let simple = match kind {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '\\' | '?' | '"' | '\'' | '`' => kind,
            'x' | 'X' => return code(rest, 2, 16).ok_or_else(unknown),
            '0'..='3' => return code(text, 3, 8).ok_or_else(unknown),
            'u' | 'U' if !self.is_bytes => {
                return character(rest, if kind == 'u' { 4 } else { 8 });
            }
            _ => return Err(unknown()),
        };
        Ok((Unit::Character(simple), rest))
    }
}

/// One resolved part of a literal.
enum Unit {
    Character(char),
    /// A code point of a string, or a byte of bytes.
    Code(u8),
}

fn digits(text: &str, n: usize, radix: u32) -> Option<(u32, &str)> {
    let digits = text.get(..n)?;
    let are_digits = digits.chars().all(|character| character.is_digit(radix));
    are_digits.then(|| u32::from_str_radix(digits, radix).ok()).flatten().map(|v| (v, &text[n..]))
}

fn code(text: &str, n: usize, radix: u32) -> Option<(Unit, &str)> {
    let (value, rest) = digits(text, n, radix)?;
    Some((Unit::Code(u8::try_from(value).ok()?), rest))
}

fn character(text: &str, n: usize) -> Result<(Unit, &str), String> {
    let (value, rest) = digits(text, n, 16)
        .ok_or_else(|| "Syntax error: token recognition error: unknown escape".to_owned())?;
    let character = char::from_u32(value).ok_or("invalid unicode code point")?;
    Ok((Unit::Character(character), rest))
}
