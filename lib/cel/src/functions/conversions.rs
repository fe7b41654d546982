//! Conversions between types.

use crate::{
    error::EvaluationError,
    functions::times,
    meter::Meter,
    overload::{Row, mistyped, one, read_first, same},
    value::{INT_BOUND, Outcome, Value},
};

pub(crate) const ROWS: &[Row] = &[
    ("dyn(A) -> dyn", one, same),
    ("type(A) -> type<A>", one, type_of),
    ("bool(bool) -> bool", one, same),
    ("bool(string) -> bool", one, to_bool),
    ("bytes(bytes) -> bytes", one, same),
    ("bytes(string) -> bytes", read_first, to_bytes),
    ("double(double) -> double", one, same),
    ("double(int) -> double", one, to_double),
    ("double(string) -> double", one, to_double),
    ("double(uint) -> double", one, to_double),
    ("int(int) -> int", one, same),
    ("int(double) -> int", one, to_int),
    ("int(duration) -> int", one, to_int),
    ("int(timestamp) -> int", one, to_int),
    ("int(string) -> int", one, to_int),
    ("int(uint) -> int", one, to_int),
    ("uint(uint) -> uint", one, same),
    ("uint(double) -> uint", one, to_uint),
    ("uint(int) -> uint", one, to_uint),
    ("uint(string) -> uint", one, to_uint),
    ("string(string) -> string", one, same),
    ("string(bool) -> string", one, to_string),
    ("string(bytes) -> string", read_first, to_string),
    ("string(double) -> string", one, to_string),
    ("string(duration) -> string", one, to_string),
    ("string(timestamp) -> string", one, to_string),
    ("string(int) -> string", one, to_string),
    ("string(uint) -> string", one, to_string),
    ("string(IP) -> string", one, to_string),
    ("string(CIDR) -> string", one, to_string),
];

fn type_of<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [value] => Ok(Value::Type(value.type_name())),
        _ => mistyped(),
    }
}

fn fails<'a>(from: &str, to: &str) -> Outcome<'a> {
    Err(EvaluationError::invalid(format!("type conversion error from '{from}' to '{to}'")))
}

fn to_bool<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = arguments else { return mistyped() };
    match &**text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
        _ => fails("string", "bool"),
    }
}

fn to_bytes<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => Ok(Value::Bytes(text.as_bytes().into())),
        _ => mistyped(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "as upstream")]
fn to_double<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Int(number)] => Ok(Value::Double(*number as f64)),
        [Value::UInt(number)] => Ok(Value::Double(*number as f64)),
        [Value::String(text)] => match parse_double(text) {
            Some(number) => Ok(Value::Double(number)),
            None => fails("string", "double"),
        },
        _ => mistyped(),
    }
}

/// Decimal numbers, and infinity and NaN, as Go spells them. Its hexadecimal floats are missing.
fn parse_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = unsigned.to_ascii_lowercase();
    if lower == "inf" || lower == "infinity" {
        return Some(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    if lower == "nan" {
        return (unsigned == text).then_some(f64::NAN);
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// 2^64
const UINT_BOUND: f64 = 18_446_744_073_709_551_616.0;

#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn to_int<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let overflow = EvaluationError::Overflow("integer");
    match arguments {
        // Upstream excludes -2^63, too.
        [Value::Double(number)] if number.abs() < INT_BOUND => Ok(Value::Int(*number as i64)),
        [Value::Double(_)] => Err(overflow),
        [Value::UInt(number)] => i64::try_from(*number).map(Value::Int).map_err(|_| overflow),
        [Value::Duration(nanoseconds)] => Ok(Value::Int(*nanoseconds)),
        [Value::Timestamp(moment)] => Ok(Value::Int(moment.seconds)),
        [Value::String(text)] => match text.parse() {
            Ok(number) => Ok(Value::Int(number)),
            Err(_) => fails("string", "int"),
        },
        _ => mistyped(),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn to_uint<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let overflow = EvaluationError::Overflow("unsigned integer");
    match arguments {
        [Value::Double(number)] if *number >= 0.0 && *number < UINT_BOUND => {
            Ok(Value::UInt(*number as u64))
        }
        [Value::Double(_)] => Err(overflow),
        [Value::Int(number)] => u64::try_from(*number).map(Value::UInt).map_err(|_| overflow),
        [Value::String(text)] => match text.parse() {
            Ok(number) if !text.starts_with('+') => Ok(Value::UInt(number)),
            _ => fails("string", "uint"),
        },
        _ => mistyped(),
    }
}

fn to_string<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [value] = arguments else { return mistyped() };
    Ok(Value::String(text_of(value)?.into()))
}

/// What `string()` makes of a value.
///
/// # Errors
///
/// [`EvaluationError::NoSuchOverload`] for a type that has no text form, and another error for
/// bytes that are not UTF-8.
pub(crate) fn text_of(value: &Value<'_>) -> Result<String, EvaluationError> {
    Ok(match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        Value::Double(number) => double_text(*number),
        Value::String(text) => text.to_string(),
        Value::Bytes(bytes) => String::from_utf8(bytes.to_vec()).map_err(|_| {
            EvaluationError::invalid("invalid UTF-8 in bytes, cannot convert to string")
        })?,
        Value::Duration(nanoseconds) => times::duration_text(*nanoseconds),
        Value::Timestamp(moment) => times::timestamp_text(moment),
        Value::Type(name) => (*name).to_owned(),
        Value::Ip(address) => super::addresses::address_text(address),
        Value::Cidr(block) => {
            format!("{}/{}", super::addresses::address_text(&block.address), block.prefix)
        }
        _ => return Err(EvaluationError::NoSuchOverload),
    })
}

/// The shortest text that reads as this number, as Go's `%g` writes it: with an exponent if that is
/// below -4 or above 5.
pub(crate) fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
