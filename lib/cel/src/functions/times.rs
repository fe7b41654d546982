//! Durations and timestamps.
//!
//! There is no current time in CEL. Time zones are offsets such as `+01:30`, and UTC; the names of
//! the time zone database are not known here.

use jiff::{SignedDuration, civil::DateTime};

use crate::{
    error::EvaluationError,
    meter::Meter,
    overload::{Row, mistyped, one, same},
    value::{Moment, Outcome, Value},
};

pub(crate) const ROWS: &[Row] = &[
    ("duration(duration) -> duration", one, same),
    ("duration(string) -> duration", one, duration),
    ("timestamp(timestamp) -> timestamp", one, same),
    ("timestamp(int) -> timestamp", one, timestamp),
    ("timestamp(string) -> timestamp", one, timestamp),
    ("getHours(self duration) -> int", one, hours),
    ("getMinutes(self duration) -> int", one, minutes),
    ("getSeconds(self duration) -> int", one, seconds),
    ("getMilliseconds(self duration) -> int", one, milliseconds),
    ("getFullYear(self timestamp) -> int", one, full_year),
    ("getFullYear(self timestamp, string) -> int", one, full_year),
    ("getMonth(self timestamp) -> int", one, month),
    ("getMonth(self timestamp, string) -> int", one, month),
    ("getDate(self timestamp) -> int", one, date),
    ("getDate(self timestamp, string) -> int", one, date),
    ("getDayOfMonth(self timestamp) -> int", one, day_of_month),
    ("getDayOfMonth(self timestamp, string) -> int", one, day_of_month),
    ("getDayOfWeek(self timestamp) -> int", one, day_of_week),
    ("getDayOfWeek(self timestamp, string) -> int", one, day_of_week),
    ("getDayOfYear(self timestamp) -> int", one, day_of_year),
    ("getDayOfYear(self timestamp, string) -> int", one, day_of_year),
    ("getHours(self timestamp) -> int", one, hours),
    ("getHours(self timestamp, string) -> int", one, hours),
    ("getMinutes(self timestamp) -> int", one, minutes),
    ("getMinutes(self timestamp, string) -> int", one, minutes),
    ("getSeconds(self timestamp) -> int", one, seconds),
    ("getSeconds(self timestamp, string) -> int", one, seconds),
    ("getMilliseconds(self timestamp) -> int", one, milliseconds),
    ("getMilliseconds(self timestamp, string) -> int", one, milliseconds),
];

const SECOND: i64 = 1_000_000_000;
/// The first and the last second of a timestamp: the years 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Units of durations, as in Go; longer names first.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3600 * SECOND),
];

fn duration<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = arguments else { return mistyped() };
    parse_duration(text).map(Value::Duration).ok_or_else(|| {
        EvaluationError::invalid(
            "type conversion error from 'string' to 'google.protobuf.Duration'",
        )
    })
}

/// Nanoseconds of a text such as `-1h1.5s`.
fn parse_duration(text: &str) -> Option<i64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned == "0" {
        return Some(0);
    }
    let mut rest = unsigned;
    let mut total: i128 = 0;
    while !rest.is_empty() || unsigned.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let (name, unit) = UNITS.iter().find(|(name, _)| {
            let following = after.strip_prefix(name);
            following.is_some_and(|text| !text.starts_with(char::is_alphabetic))
        })?;
        total = total.checked_add(scaled(number, *unit)?)?;
        if total > i128::from(u64::MAX) {
            return None;
        }
        rest = &after[name.len()..];
    }
    i64::try_from(if text.starts_with('-') { -total } else { total }).ok()
}

/// A decimal number of units in nanoseconds, rounded down.
fn scaled(number: &str, unit: i64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let parse =
        |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<i128>().ok() };
    // Digits beyond these are less than a nanosecond of an hour.
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let unit = i128::from(unit);
    parse(whole)?.checked_mul(unit)?.checked_add(parse(fraction)?.checked_mul(unit)? / scale)
}

/// Seconds, without trailing zeros.
#[expect(clippy::cast_precision_loss, reason = "as upstream")]
pub(crate) fn duration_text(nanoseconds: i64) -> String {
    let whole = (nanoseconds / SECOND) as f64;
    let fraction = (nanoseconds % SECOND) as f64;
    format!("{}s", whole + fraction / 1e9)
}

fn timestamp<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Int(seconds)] => moment(i128::from(*seconds) * i128::from(SECOND), 0),
        [Value::String(text)] => {
            let (total, offset) = parse_timestamp(text).ok_or_else(|| {
                EvaluationError::invalid(
                    "type conversion error from 'string' to 'google.protobuf.Timestamp'",
                )
            })?;
            moment(total, offset)
        }
        _ => mistyped(),
    }
}

/// The timestamp a number of nanoseconds after 1970-01-01T00:00:00Z.
fn moment<'a>(total: i128, offset_seconds: i32) -> Outcome<'a> {
    let second = i128::from(SECOND);
    let overflow = EvaluationError::Overflow("timestamp");
    let seconds = i64::try_from(total.div_euclid(second)).map_err(|_| overflow.clone())?;
    if !SECONDS.contains(&seconds) {
        return Err(overflow);
    }
    let nanoseconds = u32::try_from(total.rem_euclid(second)).map_err(|_| overflow)?;
    Ok(Value::Timestamp(Moment { seconds, nanoseconds, offset_seconds }))
}

/// Nanoseconds since 1970 and the offset of a text in the format of RFC 3339.
fn parse_timestamp(text: &str) -> Option<(i128, i32)> {
    let local = text.get(..19)?;
    let is_punctuated = |at: usize, expected: u8| local.as_bytes()[at] == expected;
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if !marks.into_iter().all(|(at, expected)| is_punctuated(at, expected)) {
        return None;
    }
    let part = |from: usize, to: usize| digits(&local[from..to]);
    let date_time = DateTime::new(
        i16::try_from(part(0, 4)?).ok()?,
        i8::try_from(part(5, 7)?).ok()?,
        i8::try_from(part(8, 10)?).ok()?,
        i8::try_from(part(11, 13)?).ok()?,
        i8::try_from(part(14, 16)?).ok()?,
        i8::try_from(part(17, 19)?).ok()?,
        0,
    )
    .ok()?;
    let (nanoseconds, zone) = fraction(&text[19..])?;
    let offset = match zone {
        "Z" => 0,
        zone => zone_offset(zone)?,
    };
    let seconds = date_time.duration_since(EPOCH).as_secs() - i64::from(offset);
    Some((i128::from(seconds) * i128::from(SECOND) + i128::from(nanoseconds), offset))
}

fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The nanoseconds of `.5` at the beginning of the text, and what follows.
fn fraction(text: &str) -> Option<(u32, &str)> {
    let Some(rest) = text.strip_prefix(['.', ',']) else { return Some((0, text)) };
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    let (number, rest) = rest.split_at(end);
    if number.is_empty() {
        return None;
    }
    let nine = &format!("{number:0<9}")[..9];
    Some((digits(nine)?, rest))
}

/// The seconds of `+01:30`.
fn zone_offset(zone: &str) -> Option<i32> {
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone[1..].split_once(':')?;
    if hours.len() != 2 || minutes.len() != 2 {
        return None;
    }
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    let seconds = i32::try_from(hours * 3600 + minutes * 60).ok()?;
    (hours <= 24 && minutes < 60).then_some(sign * seconds)
}

/// The local date and time at an offset.
fn local(moment: &Moment, offset_seconds: i32) -> Result<DateTime, EvaluationError> {
    let seconds = moment.seconds + i64::from(offset_seconds);
    EPOCH
        .checked_add(SignedDuration::from_secs(seconds))
        .map_err(|_| EvaluationError::Overflow("timestamp"))
}

/// In the format of RFC 3339, with the offset that the timestamp was read with.
pub(crate) fn timestamp_text(moment: &Moment) -> String {
    let Ok(local) = local(moment, moment.offset_seconds) else { return String::new() };
    let (year, month, day) = (local.year(), local.month(), local.day());
    let (hour, minute, second) = (local.hour(), local.minute(), local.second());
    let fraction = format!(".{:09}", moment.nanoseconds);
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    let zone = match moment.offset_seconds / 60 {
        0 => "Z".to_owned(),
        minutes => {
            let sign = if minutes < 0 { '-' } else { '+' };
            format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
        }
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}")
}

pub(crate) fn add<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Duration(left), Value::Duration(right)] => left
            .checked_add(*right)
            .map(Value::Duration)
            .ok_or(EvaluationError::Overflow("duration")),
        [Value::Timestamp(at), Value::Duration(by)]
        | [Value::Duration(by), Value::Timestamp(at)] => {
            moment(at.total() + i128::from(*by), at.offset_seconds)
        }
        _ => mistyped(),
    }
}

pub(crate) fn subtract<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let overflow = EvaluationError::Overflow("duration");
    match arguments {
        [Value::Duration(left), Value::Duration(right)] => {
            left.checked_sub(*right).map(Value::Duration).ok_or(overflow)
        }
        [Value::Timestamp(at), Value::Duration(by)] => {
            moment(at.total() - i128::from(*by), at.offset_seconds)
        }
        [Value::Timestamp(left), Value::Timestamp(right)] => {
            i64::try_from(left.total() - right.total()).map(Value::Duration).map_err(|_| overflow)
        }
        _ => mistyped(),
    }
}

/// The local date and time that a method is about, in UTC unless a zone is given.
fn local_time(arguments: &[Value<'_>]) -> Result<DateTime, EvaluationError> {
    match arguments {
        [Value::Timestamp(moment)] => local(moment, 0),
        [Value::Timestamp(moment), Value::String(zone)] => local(moment, offset_of(zone)?),
        _ => Err(EvaluationError::NoSuchOverload),
    }
}

fn offset_of(zone: &str) -> Result<i32, EvaluationError> {
    if matches!(zone, "" | "UTC") {
        return Ok(0);
    }
    let minutes = || {
        let (hours, minutes) = zone.split_once(':')?;
        let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
        let minutes = if zone.starts_with('-') { minutes.checked_neg()? } else { minutes };
        hours.checked_mul(60)?.checked_add(minutes)?.checked_mul(60)
    };
    minutes().ok_or_else(|| EvaluationError::invalid(format!("unknown time zone {zone}")))
}

fn integer<'a>(number: impl Into<i64>) -> Outcome<'a> {
    Ok(Value::Int(number.into()))
}

fn full_year<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    integer(local_time(arguments)?.year())
}

fn month<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    integer(local_time(arguments)?.month() - 1)
}

fn date<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    integer(local_time(arguments)?.day())
}

fn day_of_month<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    integer(local_time(arguments)?.day() - 1)
}

fn day_of_week<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    integer(local_time(arguments)?.weekday().to_sunday_zero_offset())
}

fn day_of_year<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    integer(local_time(arguments)?.day_of_year() - 1)
}

fn hours<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Duration(nanoseconds)] => integer(nanoseconds / (3600 * SECOND)),
        _ => integer(local_time(arguments)?.hour()),
    }
}

fn minutes<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Duration(nanoseconds)] => integer(nanoseconds / (60 * SECOND)),
        _ => integer(local_time(arguments)?.minute()),
    }
}

fn seconds<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Duration(nanoseconds)] => integer(nanoseconds / SECOND),
        _ => integer(local_time(arguments)?.second()),
    }
}

fn milliseconds<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Duration(nanoseconds)] => integer(nanoseconds / 1_000_000),
        [Value::Timestamp(moment), ..] => {
            local_time(arguments)?;
            integer(moment.nanoseconds / 1_000_000)
        }
        _ => mistyped(),
    }
}
