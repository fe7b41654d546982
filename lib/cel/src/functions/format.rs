//! `string.format(list)`: cel-go's `ext/formatting.go`, with its locale `en_US`.

use std::fmt::Write;

use crate::{
    error::EvaluationError,
    functions::{conversions::text_of, strings::go_quoted, times},
    meter::Meter,
    overload::{Row, mistyped, read_first},
    types::Type,
    value::{Key, Outcome, Value},
};

pub(crate) const ROWS: &[Row] = &[("format(self string, list<dyn>) -> string", read_first, format)];

/// Digits after the point, unless the clause says how many.
const PRECISION: usize = 6;
/// More digits than this are refused, so that a short text cannot ask for a long one.
const MAX_PRECISION: usize = 1000;

/// What a `%` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clause {
    /// Text between clauses.
    Literal,
    /// `%s`
    Text,
    /// `%d`
    Decimal,
    /// `%f`
    Fixed,
    /// `%e`
    Scientific,
    /// `%b`
    Binary,
    /// `%x`, `%X`
    Hexadecimal,
    /// `%o`
    Octal,
}

impl Clause {
    /// The types of values that the clause formats.
    pub(crate) fn accepted_types(self) -> Vec<Type> {
        match self {
            Self::Literal => Vec::new(),
            Self::Text => vec![
                Type::list(Type::Dyn),
                Type::map(Type::Dyn, Type::Dyn),
                Type::Int,
                Type::UInt,
                Type::Double,
                Type::Bool,
                Type::String,
                Type::Timestamp,
                Type::Bytes,
                Type::Duration,
                Type::type_of(Type::Dyn),
                Type::Null,
            ],
            Self::Decimal | Self::Octal => vec![Type::Int, Type::UInt],
            Self::Fixed | Self::Scientific => vec![Type::Double, Type::String],
            Self::Binary => vec![Type::Int, Type::UInt, Type::Bool],
            Self::Hexadecimal => vec![Type::Int, Type::UInt, Type::String, Type::Bytes],
        }
    }

    /// The error for a value of another type.
    pub(crate) fn rejects(self, name: &str) -> String {
        let what = match self {
            Self::Literal | Self::Text => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, \
                 lists, types, durations, and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed => "fixed-point clause can only be used on doubles",
            Self::Scientific => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hexadecimal => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        };
        format!("{what}, was given {name}")
    }
}

/// A part of a format string.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'t> {
    pub(crate) clause: Clause,
    /// The text of a literal, or the letter of a clause.
    text: &'t str,
    precision: usize,
}

/// The parts of a format string.
///
/// # Errors
///
/// An item is an error, and the last one, if a clause is not known or has no end.
pub(crate) fn clauses(text: &str) -> impl Iterator<Item = Result<Part<'_>, String>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let part = next_part(&mut rest);
        if part.is_err() {
            rest = "";
        }
        Some(part)
    })
}

fn next_part<'t>(rest: &mut &'t str) -> Result<Part<'t>, String> {
    let literal = |text| Part { clause: Clause::Literal, text, precision: 0 };
    let all = *rest;
    let Some(clause) = all.strip_prefix('%') else {
        let (text, after) = all.split_at(all.find('%').unwrap_or(all.len()));
        *rest = after;
        return Ok(literal(text));
    };
    if let Some(after) = clause.strip_prefix('%') {
        *rest = after;
        return Ok(literal("%"));
    }
    let (precision, clause) = precision(clause)?;
    let letter = clause.chars().next().ok_or("unexpected end of string")?;
    let (text, after) = clause.split_at(letter.len_utf8());
    *rest = after;
    let clause = match letter {
        's' => Clause::Text,
        'd' => Clause::Decimal,
        'f' => Clause::Fixed,
        'e' => Clause::Scientific,
        'b' => Clause::Binary,
        'x' | 'X' => Clause::Hexadecimal,
        'o' => Clause::Octal,
        other => {
            return Err(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{other}\""
            ));
        }
    };
    Ok(Part { clause, text, precision })
}

fn precision(clause: &str) -> Result<(usize, &str), String> {
    let Some(digits) = clause.strip_prefix('.') else { return Ok((PRECISION, clause)) };
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .ok_or("could not find end of precision specifier")?;
    let precision = digits[..end].parse().ok().filter(|n| *n <= MAX_PRECISION);
    let precision = precision.ok_or("error while converting precision to integer")?;
    Ok((precision, &digits[end..]))
}

fn format<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::List(values)] = arguments else { return mistyped() };
    let mut values = values.iter().enumerate();
    let mut out = String::new();
    for part in clauses(text) {
        let part = part.map_err(EvaluationError::invalid)?;
        if part.clause == Clause::Literal {
            out.push_str(part.text);
            continue;
        }
        let (_, value) = values.next().ok_or_else(|| {
            EvaluationError::invalid("index out of range: too few arguments of format")
        })?;
        format_one(&part, value, &mut out, meter)?;
    }
    Ok(Value::String(out.into()))
}

fn format_one(
    part: &Part<'_>,
    value: &Value<'_>,
    out: &mut String,
    meter: &mut Meter,
) -> Result<(), EvaluationError> {
    let is_upper = part.text == "X";
    let formatted = match (part.clause, value) {
        (Clause::Literal, _) => return Ok(()),
        (Clause::Text, value) => return write_text(value, false, out, meter),
        (Clause::Decimal, Value::Int(number)) => number.to_string(),
        (Clause::Decimal, Value::UInt(number)) => number.to_string(),
        (Clause::Fixed, value) => fixed(number(part, value)?, part.precision),
        (Clause::Scientific, value) => scientific(number(part, value)?, part.precision),
        (Clause::Binary, Value::Bool(value)) => u8::from(*value).to_string(),
        (Clause::Binary, Value::Int(number)) => {
            signed(*number, format!("{:b}", number.unsigned_abs()))
        }
        (Clause::Binary, Value::UInt(number)) => format!("{number:b}"),
        (Clause::Octal, Value::Int(number)) => {
            signed(*number, format!("{:o}", number.unsigned_abs()))
        }
        (Clause::Octal, Value::UInt(number)) => format!("{number:o}"),
        (Clause::Hexadecimal, value) => hexadecimal(part, value, is_upper, meter)?,
        (clause, value) => return Err(rejected(clause, value)),
    };
    meter.work_on_bytes(formatted.len())?;
    out.push_str(&formatted);
    Ok(())
}

fn rejected(clause: Clause, value: &Value<'_>) -> EvaluationError {
    let message = clause.rejects(value.type_name());
    EvaluationError::invalid(format!("error during formatting: {message}"))
}

fn signed(number: i64, digits: String) -> String {
    if number < 0 { format!("-{digits}") } else { digits }
}

/// The number of `%f` and `%e`: doubles, and the names of those that are no literals.
fn number(part: &Part<'_>, value: &Value<'_>) -> Result<f64, EvaluationError> {
    match value {
        Value::Double(number) => Ok(*number),
        Value::String(name) => match &**name {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => Err(rejected(part.clause, value)),
        },
        _ => Err(rejected(part.clause, value)),
    }
}

fn special(number: f64) -> Option<String> {
    if number.is_nan() {
        return Some("NaN".to_owned());
    }
    number.is_infinite().then(|| if number > 0.0 { "∞" } else { "-∞" }.to_owned())
}

/// With a comma between groups of three digits.
fn fixed(number: f64, precision: usize) -> String {
    if let Some(text) = special(number) {
        return text;
    }
    let plain = format!("{number:.precision$}");
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", &*plain),
    };
    let whole = digits.find('.').unwrap_or(digits.len());
    let mut out = sign.to_owned();
    for (index, digit) in digits[..whole].chars().enumerate() {
        if index > 0 && (whole - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out.push_str(&digits[whole..]);
    out
}

/// `1.25 × 10³`, with at least two digits in the exponent as in Go.
fn scientific(number: f64, precision: usize) -> String {
    if let Some(text) = special(number) {
        return text;
    }
    let plain = format!("{number:.precision$e}");
    let (mantissa, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ("⁻", digits),
        None => ("", exponent),
    };
    let superscript = |digit: char| {
        let digits = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
        digit.to_digit(10).map_or(digit, |value| digits[value as usize])
    };
    let digits: String = format!("{digits:0>2}").chars().map(superscript).collect();
    format!("{mantissa}\u{a0}×\u{a0}10{sign}{digits}")
}

fn hexadecimal(
    part: &Part<'_>,
    value: &Value<'_>,
    is_upper: bool,
    meter: &mut Meter,
) -> Result<String, EvaluationError> {
    let lower = match value {
        Value::Int(number) => signed(*number, format!("{:x}", number.unsigned_abs())),
        Value::UInt(number) => format!("{number:x}"),
        Value::String(text) => bytes_hexadecimal(text.as_bytes(), meter)?,
        Value::Bytes(bytes) => bytes_hexadecimal(bytes, meter)?,
        _ => return Err(rejected(part.clause, value)),
    };
    Ok(if is_upper { lower.to_ascii_uppercase() } else { lower })
}

fn bytes_hexadecimal(bytes: &[u8], meter: &mut Meter) -> Result<String, EvaluationError> {
    meter.work_on_bytes(bytes.len() * 2)?;
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(out, "{byte:02x}");
    }
    Ok(out)
}

/// What `%s` makes of a value. Within lists and maps it is a literal of CEL.
fn write_text(
    value: &Value<'_>,
    is_nested: bool,
    out: &mut String,
    meter: &mut Meter,
) -> Result<(), EvaluationError> {
    let bytes = value.len().unwrap_or(8) + 8;
    // Each character of what is quoted is looked at by itself.
    meter.work(bytes / if is_nested { 2 } else { 16 })?;
    match value {
        Value::List(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                write_text(element, true, out, meter)?;
            }
            out.push(']');
        }
        map if map.is_map() => write_map(map, out, meter)?,
        Value::Null => out.push_str("null"),
        Value::Double(number) if is_nested => match special(*number) {
            Some(_) => out.push_str(&go_quoted(&text_of(value)?)),
            None => out.push_str(&format!("{number:.PRECISION$}")),
        },
        Value::String(text) if is_nested => out.push_str(&go_quoted(text)),
        Value::Bytes(_) if is_nested => {
            out.push('b');
            out.push_str(&go_quoted(&text_of(value)?));
        }
        Value::Duration(nanoseconds) if is_nested => {
            out.push_str(&format!("duration(\"{}\")", times::duration_text(*nanoseconds)));
        }
        Value::Timestamp(moment) if is_nested => {
            out.push_str(&format!("timestamp(\"{}\")", times::timestamp_text(moment)));
        }
        Value::Bool(_)
        | Value::Int(_)
        | Value::UInt(_)
        | Value::Double(_)
        | Value::String(_)
        | Value::Bytes(_)
        | Value::Duration(_)
        | Value::Timestamp(_)
        | Value::Type(_) => out.push_str(&text_of(value)?),
        other => return Err(rejected(Clause::Text, other)),
    }
    Ok(())
}

fn write_map(map: &Value<'_>, out: &mut String, meter: &mut Meter) -> Result<(), EvaluationError> {
    let mut entries = Vec::new();
    for key in map.keys() {
        meter.work(1)?;
        let text = match &key {
            Key::String(text) => {
                meter.work_on_texts(1, 2 * text.len())?;
                go_quoted(text)
            }
            other => text_of(&other.clone().into_value())?,
        };
        let key = key.into_value();
        entries.push((text, map.entry(&key).unwrap_or(Value::Null)));
    }
    entries.sort_by(|left, right| left.0.cmp(&right.0));
    out.push('{');
    for (index, (key, value)) in entries.iter().enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        out.push_str(key);
        out.push(':');
        write_text(value, true, out, meter)?;
    }
    out.push('}');
    Ok(())
}
