//! The types of unquoted YAML scalars, by the rules of the Go library that Kubernetes uses, so that
//! `0644` is the same number as in `kubectl`.
//!
//! There are two differences. `yes`, `off`, `n` and similar words are booleans only where a boolean
//! is expected, as in YAML 1.2 and later versions of that library: an object may be named `n`. And
//! `.inf` and `.nan`, which JSON cannot represent, are strings.
//!
//! Source: sigs.k8s.io/yaml, goyaml.v2, `resolve.go`.

use std::{borrow::Cow, fmt};

/// The meaning of an unquoted scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    Null,
    Bool(bool),
    Number,
    Text,
}

impl Plain {
    pub(crate) fn of(text: &str) -> Self {
        let Some(first) = text.bytes().next() else { return Self::Null };
        match first {
            b'0'..=b'9' | b'+' | b'-' | b'.' if is_number(text) => Self::Number,
            b'~' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' => match text {
                "~" | "null" | "Null" | "NULL" => Self::Null,
                "true" | "True" | "TRUE" => Self::Bool(true),
                "false" | "False" | "FALSE" => Self::Bool(false),
                _ => Self::Text,
            },
            _ => Self::Text,
        }
    }
}

/// The boolean value of a word, where a boolean is expected.
pub(crate) fn boolean_word(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

fn is_number(text: &str) -> bool {
    let plain = without_underscores(text);
    is_decimal(&plain) || Integer::parse(&plain).is_some()
}

fn without_underscores(text: &str) -> Cow<'_, str> {
    // After a leading dot an underscore makes it a string, as in `ParseFloat`.
    if text.contains('_') && !text.starts_with('.') {
        Cow::Owned(text.replace('_', ""))
    } else {
        Cow::Borrowed(text)
    }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_decimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (number, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let exponent_is_fine = exponent.is_none_or(|exponent| {
        let size = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !size.is_empty() && digits(size)
    });
    digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent_is_fine
}

/// A whole number in one of the notations of `strconv.ParseInt` with base 0.
struct Integer<'a> {
    negative: bool,
    radix: u32,
    digits: &'a str,
}

impl<'a> Integer<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (radix, digits) = match unsigned.as_bytes() {
            [b'0', b'x' | b'X', ..] => (16, &unsigned[2..]),
            [b'0', b'o' | b'O', ..] => (8, &unsigned[2..]),
            [b'0', b'b' | b'B', ..] => (2, &unsigned[2..]),
            [b'0', _, ..] => (8, &unsigned[1..]),
            _ => (10, unsigned),
        };
        let all_digits = digits.chars().all(|c| c.is_digit(radix));
        (!digits.is_empty() && all_digits).then_some(Self { negative, radix, digits })
    }

    fn value(&self) -> Option<i128> {
        let size = i128::from_str_radix(self.digits, self.radix).ok()?;
        Some(if self.negative { -size } else { size })
    }
}

/// A number as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number<'a>(Cow<'a, str>);

impl<'a> Number<'a> {
    pub(crate) fn new(text: impl Into<Cow<'a, str>>) -> Self {
        Self(text.into())
    }

    /// The text in the source.
    pub fn text(&self) -> &str {
        &self.0
    }

    pub(crate) fn into_text(self) -> Cow<'a, str> {
        self.0
    }

    /// The value, if it is whole and fits: `1.0` and `1e3` are not whole.
    pub fn as_i64(&self) -> Option<i64> {
        self.as_i128()?.try_into().ok()
    }

    /// The value, if it is whole and fits.
    pub fn as_u64(&self) -> Option<u64> {
        self.as_i128()?.try_into().ok()
    }

    /// The nearest value in floating point.
    pub fn as_f64(&self) -> f64 {
        let plain = without_underscores(&self.0);
        match Integer::parse(&plain).and_then(|integer| integer.value()) {
            #[expect(clippy::cast_precision_loss, reason = "the nearest is asked for")]
            Some(value) => value as f64,
            None => plain.parse().unwrap_or(f64::NAN),
        }
    }

    /// The number in JSON notation. A decimal number is not converted to floating point: `0x10` is
    /// `16`, `0.10` stays `0.10`.
    pub fn decimal(&self) -> Cow<'_, str> {
        let plain = without_underscores(&self.0);
        let unsigned = plain.strip_prefix(['-', '+']).unwrap_or(&plain);
        let has_prefix = unsigned.len() > 1 && unsigned.starts_with('0') && !unsigned.contains('.');
        if !has_prefix && is_decimal(&plain) {
            return plain;
        }
        match self.as_i128() {
            Some(value) => Cow::Owned(value.to_string()),
            None => Cow::Owned(self.as_f64().to_string()),
        }
    }

    /// Whether it is written as a whole number, of any size.
    pub(crate) fn is_whole(&self) -> bool {
        Integer::parse(&without_underscores(&self.0)).is_some()
    }

    fn as_i128(&self) -> Option<i128> {
        Integer::parse(&without_underscores(&self.0))?.value()
    }
}

impl fmt::Display for Number<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unquoted_words_have_the_types_that_kubernetes_gives_them() {
        for (text, expected) in [
            ("", Plain::Null),
            ("~", Plain::Null),
            ("null", Plain::Null),
            ("nUll", Plain::Text),
            ("yes", Plain::Text),
            ("n", Plain::Text),
            ("False", Plain::Bool(false)),
            ("TRUE", Plain::Bool(true)),
            ("tRue", Plain::Text),
            ("node", Plain::Text),
            (".inf", Plain::Text),
            (".nan", Plain::Text),
            ("2025-01-01", Plain::Text),
            ("1:30", Plain::Text),
            ("100m", Plain::Text),
            ("1.2.3", Plain::Text),
            ("-", Plain::Text),
            (".", Plain::Text),
            ("0x", Plain::Text),
            ("0xg", Plain::Text),
            ("1e", Plain::Text),
            ("._5", Plain::Text),
            ("_1", Plain::Text),
            ("١", Plain::Text),
        ] {
            assert_eq!(Plain::of(text), expected, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_read_in_every_notation() {
        for (text, value, decimal) in [
            ("7", Some(7), "7"),
            ("-7", Some(-7), "-7"),
            ("+7", Some(7), "+7"),
            ("1_000", Some(1000), "1000"),
            ("0644", Some(420), "420"),
            ("0o17", Some(15), "15"),
            ("0b101", Some(5), "5"),
            ("-0x1F", Some(-31), "-31"),
            ("0", Some(0), "0"),
            ("00", Some(0), "0"),
            ("09", None, "9"),
            ("1.50", None, "1.50"),
            ("0.10", None, "0.10"),
            (".5", None, ".5"),
            ("5.", None, "5."),
            ("1e3", None, "1e3"),
            ("99999999999999999999", None, "99999999999999999999"),
        ] {
            assert_eq!(Plain::of(text), Plain::Number, "{text:?}");
            let number = Number::new(text);
            assert_eq!(number.as_i64(), value, "{text:?}");
            assert_eq!(number.decimal(), decimal, "{text:?}");
        }
        assert_eq!(Number::new("18446744073709551615").as_u64(), Some(u64::MAX));
        assert_eq!(Number::new("09").as_f64(), 9.0);
        assert_eq!(Number::new("1_0.5").as_f64(), 10.5);
    }
}
