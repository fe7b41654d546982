//! Strings: CEL's own functions and cel-go's `ext.Strings`, version 2. Places are counted in
//! characters.

use std::fmt::Write;

use crate::{
    error::EvaluationError,
    functions::operators::count,
    meter::{Meter, size, tenths},
    overload::{Row, mistyped, one, read_first, read_first_twice},
    value::{Outcome, Value},
};

pub(crate) const ROWS: &[Row] = &[
    ("contains(self string, string) -> bool", contains_cost, contains),
    ("startsWith(self string, string) -> bool", second_cost, starts_with),
    ("endsWith(self string, string) -> bool", second_cost, ends_with),
    ("charAt(self string, int) -> string", one, char_at),
    ("substring(self string, int) -> string", read_first, substring),
    ("substring(self string, int, int) -> string", read_first, substring),
    ("lowerAscii(self string) -> string", read_first, lower_ascii),
    ("upperAscii(self string) -> string", read_first, upper_ascii),
    ("trim(self string) -> string", read_first, trim),
    ("replace(self string, string, string) -> string", read_first_twice, replace),
    ("replace(self string, string, string, int) -> string", read_first_twice, replace),
    ("split(self string, string) -> list<string>", read_first_twice, split),
    ("split(self string, string, int) -> list<string>", read_first_twice, split),
    ("join(self list<string>) -> string", join_cost, join),
    ("join(self list<string>, string) -> string", join_cost, join),
    ("strings.quote(string) -> string", read_first, quote),
];

fn contains_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    arguments
        .iter()
        .try_fold(1, |cost: u64, text| Ok(cost.saturating_mul(tenths(size(text, meter)?))))
}

fn second_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    arguments.get(1).map_or(Ok(1), |text| Ok(tenths(size(text, meter)?)))
}

fn join_cost(
    meter: &mut Meter,
    _: &[Value<'_>],
    result: &Value<'_>,
) -> Result<u64, EvaluationError> {
    Ok(tenths(size(result, meter)?.saturating_mul(2)))
}

fn contains<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.contains(&**part))),
        _ => mistyped(),
    }
}

fn starts_with<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.starts_with(&**part))),
        _ => mistyped(),
    }
}

fn ends_with<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.ends_with(&**part))),
        _ => mistyped(),
    }
}

fn out_of_range<'a>(index: i64) -> Outcome<'a> {
    Err(EvaluationError::invalid(format!("index out of range: {index}")))
}

/// The byte where the character of this number begins; the end counts as one more character.
fn byte_of(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    let starts = text.char_indices().map(|(at, _)| at);
    starts.chain(std::iter::once(text.len())).nth(index)
}

fn char_at<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::Int(index)] = arguments else { return mistyped() };
    match byte_of(text, *index) {
        Some(at) => {
            let character = text[at..].chars().next();
            Ok(Value::string(character.map_or("", |c| &text[at..at + c.len_utf8()])))
        }
        None => out_of_range(*index),
    }
}

/// The place of the first occurrence at or after an offset, or -1.
pub(crate) fn index_of<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, part, offset) = match arguments {
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(offset)] => (text, part, *offset),
        _ => return mistyped(),
    };
    if offset < 0 {
        return out_of_range(offset);
    }
    let Some(from) = byte_of(text, offset) else {
        // Nothing is at the end of the text, wherever it is looked for.
        return Ok(if part.is_empty() { count(text.chars().count()) } else { Value::Int(-1) });
    };
    let found = text[from..].find(&**part);
    Ok(found.map_or(Value::Int(-1), |at| count(text[..from + at].chars().count())))
}

/// The place of the last occurrence that begins at or before an offset, or -1.
pub(crate) fn last_index_of<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, part, offset) = match arguments {
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(offset)] => {
            (text, part, Some(*offset))
        }
        _ => return mistyped(),
    };
    if let Some(offset) = offset.filter(|offset| *offset < 0) {
        return out_of_range(offset);
    }
    let n = text.chars().count();
    let last = offset.and_then(|offset| usize::try_from(offset).ok()).unwrap_or(n);
    if part.is_empty() {
        return Ok(count(last.min(n)));
    }
    if offset.is_some() && last >= n {
        return Ok(Value::Int(-1));
    }
    let start = byte_of(text, i64::try_from(last).unwrap_or(i64::MAX)).unwrap_or(text.len());
    // An occurrence that begins at `start` ends here. The end may be within another character.
    let mut end = text.len().min(start + part.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    let found = text[..end].rfind(&**part);
    Ok(found.map_or(Value::Int(-1), |at| count(text[..at].chars().count())))
}

fn substring<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, start, end) = match arguments {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return mistyped(),
    };
    if let Some(end) = end.filter(|end| start > *end) {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Err(EvaluationError::invalid(message));
    }
    let Some(from) = byte_of(text, start) else { return out_of_range(start) };
    let to = match end {
        Some(end) => match byte_of(text, end) {
            Some(to) => to,
            None => return out_of_range(end),
        },
        None => text.len(),
    };
    Ok(Value::string(&text[from..to]))
}

fn lower_ascii<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => Ok(Value::String(text.to_ascii_lowercase().into())),
        _ => mistyped(),
    }
}

fn upper_ascii<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => Ok(Value::String(text.to_ascii_uppercase().into())),
        _ => mistyped(),
    }
}

fn trim<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => Ok(Value::string(text.trim())),
        _ => mistyped(),
    }
}

fn replace<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, old, new, limit) = match arguments {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(limit)] => {
            (text, old, new, *limit)
        }
        _ => return mistyped(),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let n = text.matches(&**old).take(limit).count();
    meter.work(n)?;
    meter.work_on_bytes(text.len().saturating_add(n.saturating_mul(new.len())))?;
    Ok(Value::String(text.replacen(&**old, new, limit).into()))
}

fn split<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, separator, limit) = match arguments {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => {
            (text, separator, *limit)
        }
        _ => return mistyped(),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let n = text.matches(&**separator).take(limit).count();
    meter.work_on_texts(n, text.len())?;
    if !separator.is_empty() {
        return Ok(Value::strings(text.splitn(limit, &**separator)));
    }
    Ok(Value::strings(characters(text, limit)))
}

/// Each character by itself, and the rest in the last of `limit` parts.
fn characters(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if parts.len() + 1 >= limit {
            break;
        }
        let (part, after) = rest.split_at(character.len_utf8());
        parts.push(part);
        rest = after;
    }
    if !rest.is_empty() && limit > 0 {
        parts.push(rest);
    }
    parts
}

fn join<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (elements, separator) = match arguments {
        [Value::List(elements)] => (elements, ""),
        [Value::List(elements), Value::String(separator)] => (elements, &**separator),
        _ => return mistyped(),
    };
    let mut joined = String::new();
    for (index, element) in elements.iter().enumerate() {
        let Value::String(part) = element else { return mistyped() };
        meter.work_on_bytes(part.len() + separator.len() + 8)?;
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(part);
    }
    Ok(Value::String(joined.into()))
}

fn quote<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = arguments else { return mistyped() };
    // Each character is looked at by itself.
    meter.work(text.len() / 2)?;
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    Ok(Value::String(quoted.into()))
}

/// A text as Go's `%q` writes it.
pub(crate) fn go_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_control() => {
                // Writing to a string does not fail.
                let _ = write!(quoted, "\\x{:02x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
