//! Versions: Kubernetes' library `semver`, version 1.

use std::{cmp::Ordering, sync::Arc};

use semver::Version;

use crate::{
    error::EvaluationError,
    meter::Meter,
    overload::{Row, mistyped, one, read_first},
    value::{Outcome, Value},
};

pub(crate) const ROWS: &[Row] = &[
    ("semver(string) -> Semver", read_first, semver),
    ("semver(string, bool) -> Semver", read_first, semver),
    ("isSemver(string) -> bool", read_first, is_semver),
    ("isSemver(string, bool) -> bool", read_first, is_semver),
    ("isGreaterThan(self Semver, Semver) -> bool", one, is_greater_than),
    ("isLessThan(self Semver, Semver) -> bool", one, is_less_than),
    ("compareTo(self Semver, Semver) -> int", one, compare_to),
    ("major(self Semver) -> int", one, major),
    ("minor(self Semver) -> int", one, minor),
    ("patch(self Semver) -> int", one, patch),
];

/// The version that the arguments name; the second one asks to normalise it.
fn parse(arguments: &[Value<'_>]) -> Result<Version, EvaluationError> {
    let (text, is_lenient) = match arguments {
        [Value::String(text)] => (text, false),
        [Value::String(text), Value::Bool(is_lenient)] => (text, *is_lenient),
        _ => return Err(EvaluationError::NoSuchOverload),
    };
    let text = if is_lenient { normalised(text)? } else { text.to_string() };
    Version::parse(&text)
        .map_err(|error| EvaluationError::invalid(format!("invalid semantic version: {error}")))
}

/// Without `v` and leading zeros, and with three parts.
fn normalised(text: &str) -> Result<String, EvaluationError> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    let is_short = parts.len() < 3;
    if is_short && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return Err(EvaluationError::invalid(
            "short version cannot contain PreRelease/Build meta data",
        ));
    }
    parts.resize(3, "0".to_owned());
    Ok(parts.join("."))
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let trimmed = part.trim_start_matches('0');
    let zero = if trimmed.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "0" };
    format!("{zero}{trimmed}")
}

fn semver<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Semver(Arc::new(parse(arguments)?)))
}

fn is_semver<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(parse(arguments).is_ok()))
}

/// The order of two versions.
fn compared(meter: &mut Meter, arguments: &[Value<'_>]) -> Result<Ordering, EvaluationError> {
    let [Value::Semver(left), Value::Semver(right)] = arguments else {
        return Err(EvaluationError::NoSuchOverload);
    };
    compare(left, right, meter)
}

/// The order of two versions. Their parts are compared one by one, which are a byte or more.
pub(crate) fn compare(
    left: &Version,
    right: &Version,
    meter: &mut Meter,
) -> Result<Ordering, EvaluationError> {
    meter.work(left.pre.len().min(right.pre.len()) / 2)?;
    Ok(left.cmp_precedence(right))
}

fn is_greater_than<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(compared(meter, arguments)?.is_gt()))
}

fn is_less_than<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(compared(meter, arguments)?.is_lt()))
}

fn compare_to<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(compared(meter, arguments)? as i64))
}

fn part<'a>(arguments: &[Value<'a>], of: fn(&Version) -> u64) -> Outcome<'a> {
    match arguments {
        // Upstream converts without looking, too.
        [Value::Semver(version)] => Ok(Value::Int(of(version).cast_signed())),
        _ => mistyped(),
    }
}

fn major<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    part(arguments, |version| version.major)
}

fn minor<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    part(arguments, |version| version.minor)
}

fn patch<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    part(arguments, |version| version.patch)
}
