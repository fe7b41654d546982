//! Quantities: Kubernetes' library `quantity`.

use kube_batch_quantity::Quantity;

use crate::{
    error::EvaluationError,
    meter::Meter,
    overload::{Row, mistyped, one, read_first},
    value::{Outcome, Value},
};

pub(crate) const ROWS: &[Row] = &[
    ("quantity(string) -> Quantity", read_first, quantity),
    ("isQuantity(string) -> bool", read_first, is_quantity),
    ("sign(Quantity) -> int", one, sign),
    ("isGreaterThan(self Quantity, Quantity) -> bool", one, is_greater_than),
    ("isLessThan(self Quantity, Quantity) -> bool", one, is_less_than),
    ("compareTo(self Quantity, Quantity) -> int", one, compare_to),
    ("asApproximateFloat(self Quantity) -> double", one, as_approximate_float),
    ("asInteger(self Quantity) -> int", one, as_integer),
    ("isInteger(self Quantity) -> bool", one, is_integer),
    ("add(self Quantity, Quantity) -> Quantity", one, add),
    ("add(self Quantity, int) -> Quantity", one, add),
    ("sub(self Quantity, Quantity) -> Quantity", one, sub),
    ("sub(self Quantity, int) -> Quantity", one, sub),
];

/// Parses a quantity as apimachinery, which takes a missing number for 0: `Ki` and `-` are quantities.
fn parse(text: &str) -> Option<Quantity> {
    if text.is_empty() {
        return None;
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    if let Some(exponent) = suffix.strip_prefix(['e', 'E'])
        && exponent.starts_with(|c: char| c.is_ascii_digit() || c == '+' || c == '-')
    {
        exponent.parse::<i64>().ok()?;
    }
    if matches!(number, "" | ".") { format!("0{suffix}").parse() } else { text.parse() }.ok()
}

fn quantity<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = arguments else { return mistyped() };
    parse(text).map(Value::Quantity).ok_or_else(|| {
        EvaluationError::invalid(
            "quantities must match the regular expression \
             '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        )
    })
}

fn is_quantity<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => Ok(Value::Bool(parse(text).is_some())),
        _ => mistyped(),
    }
}

fn sign<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(amount)] => Ok(order(amount.cmp(&Quantity::from_units(0)))),
        _ => mistyped(),
    }
}

fn order<'a>(ordering: std::cmp::Ordering) -> Value<'a> {
    Value::Int(ordering as i64)
}

fn is_greater_than<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(left), Value::Quantity(right)] => Ok(Value::Bool(left > right)),
        _ => mistyped(),
    }
}

fn is_less_than<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(left), Value::Quantity(right)] => Ok(Value::Bool(left < right)),
        _ => mistyped(),
    }
}

fn compare_to<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(left), Value::Quantity(right)] => Ok(order(left.cmp(right))),
        _ => mistyped(),
    }
}

fn as_approximate_float<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(amount)] => Ok(Value::Double(amount.approximate())),
        _ => mistyped(),
    }
}

fn as_integer<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(amount)] => amount
            .whole_units()
            .map(Value::Int)
            .ok_or_else(|| EvaluationError::invalid("cannot convert value to integer")),
        _ => mistyped(),
    }
}

fn is_integer<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(amount)] => Ok(Value::Bool(amount.whole_units().is_some())),
        _ => mistyped(),
    }
}

/// Two amounts; an integer is a number of units.
fn pair(arguments: &[Value<'_>]) -> Option<(Quantity, Quantity)> {
    match arguments {
        [Value::Quantity(left), Value::Quantity(right)] => Some((*left, *right)),
        [Value::Quantity(left), Value::Int(units)] => Some((*left, Quantity::from_units(*units))),
        _ => None,
    }
}

/// The sum is exact: it may be more than a parsed quantity can be.
fn add<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (left, right) = pair(arguments).ok_or(EvaluationError::NoSuchOverload)?;
    Ok(Value::Quantity(left.saturating_add(right)))
}

fn sub<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (left, right) = pair(arguments).ok_or(EvaluationError::NoSuchOverload)?;
    Ok(Value::Quantity(left.saturating_sub(right)))
}
