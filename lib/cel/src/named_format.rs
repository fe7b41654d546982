//! Named formats of texts.

use crate::url::Url;

/// A format and what it asks of a text.
#[derive(Debug)]
pub(crate) struct Format {
    pub(crate) name: &'static str,
    /// The length that Kubernetes assumes for the regular expression, when it counts the cost.
    pub(crate) pattern_length: u64,
    pub(crate) is_valid: fn(&str) -> bool,
    /// What a valid text is.
    pub(crate) message: &'static str,
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters \
                     or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                         characters, '-' or '.', and must start and end with an alphanumeric \
                         character";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or \
                          '-', start with an alphabetic character, and end with an alphanumeric \
                          character";
const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must \
                    start and end with an alphanumeric character";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
                           characters, '-', '_' or '.', and must start and end with an \
                           alphanumeric character";

/// All formats.
pub(crate) static FORMATS: [Format; 13] = [
    format("dns1123Label", 30, is_label, LABEL),
    format("dns1123Subdomain", 60, is_subdomain, SUBDOMAIN),
    format("dns1035Label", 30, is_label_1035, LABEL_1035),
    format("qualifiedName", 60, is_qualified_name, NAME),
    format("dns1123LabelPrefix", 30, |text| is_label(&completed(text)), LABEL),
    format("dns1123SubdomainPrefix", 60, |text| is_subdomain(&completed(text)), SUBDOMAIN),
    format("dns1035LabelPrefix", 30, |text| is_label_1035(&completed(text)), LABEL_1035),
    format("labelValue", 40, |text| text.is_empty() || is_name(text), LABEL_VALUE),
    format("uri", 1103, |text| Url::parse(text).is_some(), "invalid URI for request"),
    format("uuid", 72, is_uuid, "does not match the UUID format"),
    format("byte", 84, is_base64, "invalid base64"),
    format("date", 72, is_date, "invalid date"),
    format("datetime", 72, is_date_time, "invalid datetime"),
];

const fn format(
    name: &'static str,
    pattern_length: u64,
    is_valid: fn(&str) -> bool,
    message: &'static str,
) -> Format {
    Format { name, pattern_length, is_valid, message }
}

const fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Whether the ends are of one kind, and what is between them of that kind or one of `inner`.
fn is_made_of(text: &str, is_end: fn(u8) -> bool, inner: &[u8]) -> bool {
    let ends = text.as_bytes().first().zip(text.as_bytes().last());
    ends.is_some_and(|(first, last)| is_end(*first) && is_end(*last))
        && text.bytes().all(|b| is_end(b) || inner.contains(&b))
}

fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_made_of(text, is_lower, b"-")
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| is_made_of(label, is_lower, b"-"))
}

fn is_label_1035(text: &str) -> bool {
    is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
}

fn is_name(text: &str) -> bool {
    text.len() <= 63 && is_made_of(text, |b| b.is_ascii_alphanumeric(), b"-_.")
}

fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// A prefix may end in a dash: something will follow it.
fn completed(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        // Upstream replaces the dash and the character before it.
        Some(start) if !start.is_empty() => {
            let mut start: Vec<char> = start.chars().collect();
            start.pop();
            start.into_iter().chain(['a']).collect()
        }
        _ => prefix.to_owned(),
    }
}

/// 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12, each dash optional.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some(group) = rest.get(..length) else { return false };
        if !group.bytes().all(|b| b.is_ascii_hexdigit()) {
            return false;
        }
        rest = &rest[length..];
    }
    rest.is_empty()
}

fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let n_padding = text.len() - digits.len();
    let is_digit = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    !digits.is_empty()
        && text.len().is_multiple_of(4)
        && n_padding <= 2
        && digits.bytes().all(is_digit)
}

fn two_digits(text: &str, at: usize) -> Option<u8> {
    let digits = text.get(at..at + 2)?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

fn is_date(text: &str) -> bool {
    let date = || {
        let is_formed = text.len() == 10 && &text[4..5] == "-" && &text[7..8] == "-";
        let year = two_digits(text, 0)?;
        let year = i16::from(year) * 100 + i16::from(two_digits(text, 2)?);
        let month = i8::try_from(two_digits(text, 5)?).ok()?;
        let day = i8::try_from(two_digits(text, 8)?).ok()?;
        is_formed.then(|| jiff::civil::Date::new(year, month, day).ok())?
    };
    text.is_ascii() && date().is_some()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    lower.split_once('t').is_some_and(|(date, time)| is_date(date) && is_time(time))
}

/// `15:04:05`, perhaps a fraction, and `z` or an offset.
fn is_time(text: &str) -> bool {
    let is_formed = text.is_ascii() && text.len() > 8 && &text[2..3] == ":" && &text[5..6] == ":";
    let is_below = |at, bound| two_digits(text, at).is_some_and(|value| value < bound);
    if !is_formed || !is_below(0, 24) || !is_below(3, 60) || !is_below(6, 60) {
        return false;
    }
    let rest = &text[8..];
    // Upstream's pattern has an unescaped dot here.
    let digits = rest.get(1..).unwrap_or_default();
    let n_digits = digits.bytes().take_while(u8::is_ascii_digit).count();
    let zone =
        if n_digits > 0 && !rest.starts_with(['+', '-']) { &digits[n_digits..] } else { rest };
    let is_offset = zone.len() == 6
        && zone.starts_with(['+', '-'])
        && two_digits(zone, 1).is_some()
        && &zone[3..4] == ":"
        && two_digits(zone, 4).is_some();
    zone == "z" || is_offset
}
