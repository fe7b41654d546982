//! Optional values: cel-go's `cel.OptionalTypes`.

use std::sync::Arc;

use crate::{
    error::EvaluationError,
    meter::Meter,
    overload::{Row, mistyped, one},
    value::{Outcome, Value},
};

pub(crate) const ROWS: &[Row] = &[
    ("optional.none() -> optional<V>", one, none),
    ("optional.of(V) -> optional<V>", one, of),
    ("optional.ofNonZeroValue(V) -> optional<V>", one, of_non_zero),
    ("optional.unwrap(list<optional<V>>) -> list<V>", one, unwrap),
    ("unwrapOpt(self list<optional<V>>) -> list<V>", one, unwrap),
    ("hasValue(self optional<V>) -> bool", one, has_value),
    ("value(self optional<V>) -> V", one, value),
    // Typing only: the second argument is evaluated only if it is needed.
    ("or(self optional<V>, optional<V>) -> optional<V>", one, none),
    ("orValue(self optional<V>, V) -> V", one, none),
];

fn none<'a>(_: &mut Meter, _: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Optional(None))
}

fn of<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [value] => Ok(Value::some(value.clone())),
        _ => mistyped(),
    }
}

fn of_non_zero<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [value] if is_zero(value) => Ok(Value::Optional(None)),
        [value] => Ok(Value::some(value.clone())),
        _ => mistyped(),
    }
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Optional(None) | Value::Bool(false) => true,
        Value::Int(number) => *number == 0,
        Value::UInt(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::Duration(nanoseconds) => *nanoseconds == 0,
        other => other.len() == Some(0),
    }
}

fn unwrap<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(elements)] = arguments else { return mistyped() };
    meter.work_on_values(elements.len())?;
    let mut values = Vec::new();
    for element in elements.iter() {
        match element {
            Value::Optional(inner) => values.extend(inner.as_deref().cloned()),
            _ => return Err(EvaluationError::NoSuchOverload),
        }
    }
    Ok(Value::List(Arc::new(values)))
}

fn has_value<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Optional(inner)] => Ok(Value::Bool(inner.is_some())),
        _ => mistyped(),
    }
}

fn value<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Optional(Some(inner))] => Ok((**inner).clone()),
        [Value::Optional(None)] => Err(EvaluationError::invalid("optional.none() dereference")),
        _ => mistyped(),
    }
}
