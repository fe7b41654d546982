//! Equality and order of values.

use std::cmp::Ordering;

use crate::{
    error::EvaluationError,
    functions::semvers,
    meter::Meter,
    value::{Value, whole},
};

/// Whether two values are equal. Numbers are compared by value, unlike types are not equal.
///
/// # Errors
///
/// [`EvaluationError::NoSuchOverload`] if the left value is a quantity, version, URL, address,
/// block or format, and the right one is of another type: as in Kubernetes.
pub(crate) fn equal(
    left: &Value<'_>,
    right: &Value<'_>,
    meter: &mut Meter,
) -> Result<bool, EvaluationError> {
    Ok(match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::String(left), Value::String(right)) => {
            meter.work_on_bytes(left.len().min(right.len()))?;
            left == right
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            meter.work_on_bytes(left.len().min(right.len()))?;
            left == right
        }
        (Value::List(left), Value::List(right)) => lists_equal(left, right, meter)?,
        (Value::Optional(left), Value::Optional(right)) => match (left, right) {
            (Some(left), Some(right)) => equal(left, right, meter)?,
            (left, right) => left.is_none() && right.is_none(),
        },
        (Value::Duration(left), Value::Duration(right)) => left == right,
        (Value::Timestamp(left), Value::Timestamp(right)) => left.total() == right.total(),
        (Value::Type(left), Value::Type(right)) => left == right,
        (Value::Quantity(left), Value::Quantity(right)) => left == right,
        (Value::Semver(left), Value::Semver(right)) => {
            semvers::compare(left, right, meter)?.is_eq()
        }
        (Value::Url(left), Value::Url(right)) => {
            meter.work_on_bytes(left.len().min(right.len()))?;
            left == right
        }
        (Value::Ip(left), Value::Ip(right)) => left == right,
        (Value::Cidr(left), Value::Cidr(right)) => left == right,
        (Value::Format(left), Value::Format(right)) => left.name == right.name,
        (
            Value::Quantity(_)
            | Value::Semver(_)
            | Value::Url(_)
            | Value::Ip(_)
            | Value::Cidr(_)
            | Value::Format(_),
            _,
        ) => return Err(EvaluationError::NoSuchOverload),
        (left, right) if left.is_map() && right.is_map() => maps_equal(left, right, meter)?,
        (left, right) => compare_numbers(left, right).is_some_and(Ordering::is_eq),
    })
}

/// As [`equal`], where an element that cannot be compared is as good as an equal one: cel-go only
/// looks for elements that differ.
fn agrees(left: &Value<'_>, right: &Value<'_>, meter: &mut Meter) -> Result<bool, EvaluationError> {
    meter.work(1)?;
    match equal(left, right, meter) {
        Err(EvaluationError::NoSuchOverload) => Ok(true),
        outcome => outcome,
    }
}

fn lists_equal(
    left: &[Value<'_>],
    right: &[Value<'_>],
    meter: &mut Meter,
) -> Result<bool, EvaluationError> {
    if left.len() != right.len() {
        return Ok(false);
    }
    for (left, right) in left.iter().zip(right) {
        if !agrees(left, right, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn maps_equal(
    left: &Value<'_>,
    right: &Value<'_>,
    meter: &mut Meter,
) -> Result<bool, EvaluationError> {
    if left.len() != right.len() {
        return Ok(false);
    }
    for key in left.keys() {
        let key = key.into_value();
        meter.work_on_key(&key, left)?;
        meter.work_on_key(&key, right)?;
        let (Some(of_left), Some(of_right)) = (left.entry(&key), right.entry(&key)) else {
            return Ok(false);
        };
        if !agrees(&of_left, &of_right, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The order of two values of one type, or of two numbers.
///
/// # Errors
///
/// [`EvaluationError::NoSuchOverload`] if they have no order.
pub(crate) fn compare(
    left: &Value<'_>,
    right: &Value<'_>,
) -> Result<Option<Ordering>, EvaluationError> {
    Ok(Some(match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bytes(left), Value::Bytes(right)) => left.cmp(right),
        (Value::Duration(left), Value::Duration(right)) => left.cmp(right),
        (Value::Timestamp(left), Value::Timestamp(right)) => left.total().cmp(&right.total()),
        (left, right) if is_number(left) && is_number(right) => {
            return Ok(compare_numbers(left, right));
        }
        _ => return Err(EvaluationError::NoSuchOverload),
    }))
}

const fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::UInt(_) | Value::Double(_))
}

/// The order of two numbers; none if one is not a number.
fn compare_numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(right),
        (Value::Double(left), right) => compare_double(*left, integer(right)?),
        (left, Value::Double(right)) => {
            compare_double(*right, integer(left)?).map(Ordering::reverse)
        }
        (left, right) => Some(integer(left)?.cmp(&integer(right)?)),
    }
}

fn integer(value: &Value<'_>) -> Option<i128> {
    match value {
        Value::Int(number) => Some(i128::from(*number)),
        Value::UInt(number) => Some(i128::from(*number)),
        _ => None,
    }
}

/// cel-go converts the integer to a double unless the double is out of range.
#[expect(clippy::cast_precision_loss, reason = "as upstream")]
fn compare_double(double: f64, integer: i128) -> Option<Ordering> {
    double.partial_cmp(&(integer as f64))
}

/// The index that a value is: doubles count if they are whole.
pub(crate) fn index(value: &Value<'_>) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::UInt(number) => i64::try_from(*number).ok(),
        Value::Double(number) => whole(*number),
        _ => None,
    }
}
