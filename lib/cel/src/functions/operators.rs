//! Operators, and the functions of CEL's standard library that are not conversions.

use std::sync::Arc;

use crate::{
    equality::{compare, equal},
    error::EvaluationError,
    functions::times,
    meter::{Meter, size, tenths},
    overload::{Row, mistyped, one},
    value::{Outcome, Value},
};

/// The order is upstream's: the first overload that agrees decides about an unknown type.
pub(crate) const ROWS: &[Row] = &[
    ("!_(bool) -> bool", one, not),
    ("-_(double) -> double", one, negate),
    ("-_(int) -> int", one, negate),
    // Typing only: indices and conditionals are kinds of expressions.
    ("_?_:_(bool, A, A) -> A", one, unreachable),
    ("_[_](list<A>, int) -> A", one, unreachable),
    ("_[_](map<A, B>, A) -> B", one, unreachable),
    ("_[_](optional<list<A>>, int) -> optional<A>", one, unreachable),
    ("_[_](optional<map<A, B>>, A) -> optional<B>", one, unreachable),
    ("_[?_](list<A>, int) -> optional<A>", one, unreachable),
    ("_[?_](map<A, B>, A) -> optional<B>", one, unreachable),
    ("_[?_](optional<list<A>>, int) -> optional<A>", one, unreachable),
    ("_[?_](optional<map<A, B>>, A) -> optional<B>", one, unreachable),
    ("_==_(A, A) -> bool", equality_cost, equals),
    ("_!=_(A, A) -> bool", shorter_cost, differs),
    ("@in(A, list<A>) -> bool", list_cost, in_list),
    ("@in(A, map<A, B>) -> bool", one, in_map),
    ("_+_(bytes, bytes) -> bytes", both_cost, concatenate),
    ("_+_(double, double) -> double", one, add),
    ("_+_(duration, duration) -> duration", one, times::add),
    ("_+_(duration, timestamp) -> timestamp", one, times::add),
    ("_+_(timestamp, duration) -> timestamp", one, times::add),
    ("_+_(int, int) -> int", one, add),
    ("_+_(list<A>, list<A>) -> list<A>", one, concatenate),
    ("_+_(string, string) -> string", both_cost, concatenate),
    ("_+_(uint, uint) -> uint", one, add),
    ("_-_(double, double) -> double", one, subtract),
    ("_-_(duration, duration) -> duration", one, times::subtract),
    ("_-_(int, int) -> int", one, subtract),
    ("_-_(timestamp, duration) -> timestamp", one, times::subtract),
    ("_-_(timestamp, timestamp) -> duration", one, times::subtract),
    ("_-_(uint, uint) -> uint", one, subtract),
    ("_*_(double, double) -> double", one, multiply),
    ("_*_(int, int) -> int", one, multiply),
    ("_*_(uint, uint) -> uint", one, multiply),
    ("_/_(double, double) -> double", one, divide),
    ("_/_(int, int) -> int", one, divide),
    ("_/_(uint, uint) -> uint", one, divide),
    ("_%_(int, int) -> int", one, remainder),
    ("_%_(uint, uint) -> uint", one, remainder),
    ("_<_(bool, bool) -> bool", one, less),
    ("_<_(int, int) -> bool", one, less),
    ("_<_(int, double) -> bool", one, less),
    ("_<_(int, uint) -> bool", one, less),
    ("_<_(uint, uint) -> bool", one, less),
    ("_<_(uint, double) -> bool", one, less),
    ("_<_(uint, int) -> bool", one, less),
    ("_<_(double, double) -> bool", one, less),
    ("_<_(double, int) -> bool", one, less),
    ("_<_(double, uint) -> bool", one, less),
    ("_<_(string, string) -> bool", shorter_cost, less),
    ("_<_(bytes, bytes) -> bool", shorter_cost, less),
    ("_<_(timestamp, timestamp) -> bool", one, less),
    ("_<_(duration, duration) -> bool", one, less),
    ("_<=_(bool, bool) -> bool", one, less_or_equal),
    ("_<=_(int, int) -> bool", one, less_or_equal),
    ("_<=_(int, double) -> bool", one, less_or_equal),
    ("_<=_(int, uint) -> bool", one, less_or_equal),
    ("_<=_(uint, uint) -> bool", one, less_or_equal),
    ("_<=_(uint, double) -> bool", one, less_or_equal),
    ("_<=_(uint, int) -> bool", one, less_or_equal),
    ("_<=_(double, double) -> bool", one, less_or_equal),
    ("_<=_(double, int) -> bool", one, less_or_equal),
    ("_<=_(double, uint) -> bool", one, less_or_equal),
    ("_<=_(string, string) -> bool", shorter_cost, less_or_equal),
    ("_<=_(bytes, bytes) -> bool", shorter_cost, less_or_equal),
    ("_<=_(timestamp, timestamp) -> bool", one, less_or_equal),
    ("_<=_(duration, duration) -> bool", one, less_or_equal),
    ("_>_(bool, bool) -> bool", one, greater),
    ("_>_(int, int) -> bool", one, greater),
    ("_>_(int, double) -> bool", one, greater),
    ("_>_(int, uint) -> bool", one, greater),
    ("_>_(uint, uint) -> bool", one, greater),
    ("_>_(uint, double) -> bool", one, greater),
    ("_>_(uint, int) -> bool", one, greater),
    ("_>_(double, double) -> bool", one, greater),
    ("_>_(double, int) -> bool", one, greater),
    ("_>_(double, uint) -> bool", one, greater),
    ("_>_(string, string) -> bool", shorter_cost, greater),
    ("_>_(bytes, bytes) -> bool", shorter_cost, greater),
    ("_>_(timestamp, timestamp) -> bool", one, greater),
    ("_>_(duration, duration) -> bool", one, greater),
    ("_>=_(bool, bool) -> bool", one, greater_or_equal),
    ("_>=_(int, int) -> bool", one, greater_or_equal),
    ("_>=_(int, double) -> bool", one, greater_or_equal),
    ("_>=_(int, uint) -> bool", one, greater_or_equal),
    ("_>=_(uint, uint) -> bool", one, greater_or_equal),
    ("_>=_(uint, double) -> bool", one, greater_or_equal),
    ("_>=_(uint, int) -> bool", one, greater_or_equal),
    ("_>=_(double, double) -> bool", one, greater_or_equal),
    ("_>=_(double, int) -> bool", one, greater_or_equal),
    ("_>=_(double, uint) -> bool", one, greater_or_equal),
    ("_>=_(string, string) -> bool", shorter_cost, greater_or_equal),
    ("_>=_(bytes, bytes) -> bool", shorter_cost, greater_or_equal),
    ("_>=_(timestamp, timestamp) -> bool", one, greater_or_equal),
    ("_>=_(duration, duration) -> bool", one, greater_or_equal),
    ("size(bytes) -> int", one, length),
    ("size(self bytes) -> int", one, length),
    ("size(list<A>) -> int", one, length),
    ("size(self list<A>) -> int", one, length),
    ("size(map<A, B>) -> int", one, length),
    ("size(self map<A, B>) -> int", one, length),
    ("size(string) -> int", one, length),
    ("size(self string) -> int", one, length),
];

/// Values of Kubernetes' own types are compared for 1.
fn equality_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    result: &Value<'_>,
) -> Result<u64, EvaluationError> {
    match arguments.first() {
        Some(
            Value::Quantity(_)
            | Value::Semver(_)
            | Value::Url(_)
            | Value::Ip(_)
            | Value::Cidr(_)
            | Value::Format(_),
        ) => Ok(1),
        _ => shorter_cost(meter, arguments, result),
    }
}

/// A tenth of the size of the shorter argument.
fn shorter_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    let [left, right] = arguments else { return Ok(1) };
    Ok(tenths(size(left, meter)?.min(size(right, meter)?)))
}

fn both_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    let sizes = arguments.iter().map(|text| size(text, meter));
    Ok(tenths(sizes.sum::<Result<u64, _>>()?))
}

fn list_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    arguments.get(1).map_or(Ok(1), |list| size(list, meter))
}

fn unreachable<'a>(_: &mut Meter, _: &[Value<'a>]) -> Outcome<'a> {
    mistyped()
}

fn not<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => mistyped(),
    }
}

const INT: EvaluationError = EvaluationError::Overflow("integer");
const UINT: EvaluationError = EvaluationError::Overflow("unsigned integer");

fn negate<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Int(number)] => number.checked_neg().map(Value::Int).ok_or(INT),
        [Value::Double(number)] => Ok(Value::Double(-number)),
        _ => mistyped(),
    }
}

fn equals<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [left, right] => equal(left, right, meter).map(Value::Bool),
        _ => mistyped(),
    }
}

fn differs<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [left, right] => equal(left, right, meter).map(|is_equal| Value::Bool(!is_equal)),
        _ => mistyped(),
    }
}

fn in_list<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [value, Value::List(elements)] => contains(elements, value, meter).map(Value::Bool),
        _ => mistyped(),
    }
}

/// Whether an element is equal to `value`.
///
/// # Errors
///
/// If none is, but one could not be compared.
pub(crate) fn contains(
    elements: &[Value<'_>],
    value: &Value<'_>,
    meter: &mut Meter,
) -> Result<bool, EvaluationError> {
    let mut outcome = Ok(false);
    for element in elements {
        meter.work(1)?;
        match equal(value, element, meter) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(EvaluationError::NoSuchOverload) => {
                outcome = Err(EvaluationError::NoSuchOverload);
            }
            Err(error) => return Err(error),
        }
    }
    outcome
}

fn in_map<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [key, map] = arguments else { return mistyped() };
    meter.work_on_key(key, map)?;
    Ok(Value::Bool(map.has_key(key)))
}

/// The sum of two numbers, durations, or a timestamp and a duration.
pub(crate) fn add<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Int(left), Value::Int(right)] => {
            left.checked_add(*right).map(Value::Int).ok_or(INT)
        }
        [Value::UInt(left), Value::UInt(right)] => {
            left.checked_add(*right).map(Value::UInt).ok_or(UINT)
        }
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left + right)),
        _ => times::add(meter, arguments),
    }
}

fn concatenate<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(left), Value::String(right)] => {
            meter.work_on_bytes(left.len() + right.len())?;
            Ok(Value::String([&**left, &**right].concat().into()))
        }
        [Value::Bytes(left), Value::Bytes(right)] => {
            meter.work_on_bytes(left.len() + right.len())?;
            Ok(Value::Bytes([&**left, &**right].concat().into()))
        }
        [Value::List(left), Value::List(right)] => {
            meter.work_on_values(left.len() + right.len())?;
            Ok(Value::List(Arc::new(left.iter().chain(&**right).cloned().collect())))
        }
        _ => mistyped(),
    }
}

fn subtract<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Int(left), Value::Int(right)] => {
            left.checked_sub(*right).map(Value::Int).ok_or(INT)
        }
        [Value::UInt(left), Value::UInt(right)] => {
            left.checked_sub(*right).map(Value::UInt).ok_or(UINT)
        }
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left - right)),
        _ => mistyped(),
    }
}

fn multiply<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Int(left), Value::Int(right)] => {
            left.checked_mul(*right).map(Value::Int).ok_or(INT)
        }
        [Value::UInt(left), Value::UInt(right)] => {
            left.checked_mul(*right).map(Value::UInt).ok_or(UINT)
        }
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left * right)),
        _ => mistyped(),
    }
}

fn divide<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::UInt(_), Value::UInt(0)] => {
            Err(EvaluationError::DivisionByZero)
        }
        [Value::Int(left), Value::Int(right)] => {
            left.checked_div(*right).map(Value::Int).ok_or(INT)
        }
        [Value::UInt(left), Value::UInt(right)] => Ok(Value::UInt(left / right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left / right)),
        _ => mistyped(),
    }
}

fn remainder<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::UInt(_), Value::UInt(0)] => {
            Err(EvaluationError::ModulusByZero)
        }
        [Value::Int(left), Value::Int(right)] => {
            left.checked_rem(*right).map(Value::Int).ok_or(INT)
        }
        [Value::UInt(left), Value::UInt(right)] => Ok(Value::UInt(left % right)),
        _ => mistyped(),
    }
}

fn ordered<'a>(arguments: &[Value<'a>], holds: fn(std::cmp::Ordering) -> bool) -> Outcome<'a> {
    match arguments {
        [left, right] => Ok(Value::Bool(compare(left, right)?.is_some_and(holds))),
        _ => mistyped(),
    }
}

fn less<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    ordered(arguments, std::cmp::Ordering::is_lt)
}

fn less_or_equal<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    ordered(arguments, std::cmp::Ordering::is_le)
}

fn greater<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    ordered(arguments, std::cmp::Ordering::is_gt)
}

fn greater_or_equal<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    ordered(arguments, std::cmp::Ordering::is_ge)
}

fn length<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => Ok(count(text.chars().count())),
        [value] => value.len().map(count).ok_or(EvaluationError::NoSuchOverload),
        _ => mistyped(),
    }
}

/// A number of things.
pub(crate) fn count<'a>(n: usize) -> Value<'a> {
    Value::Int(i64::try_from(n).unwrap_or(i64::MAX))
}
