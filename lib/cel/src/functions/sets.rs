//! Lists as sets: cel-go's `ext.Sets`.

use crate::{
    error::EvaluationError,
    functions::operators::contains,
    meter::{Meter, size},
    overload::{Row, mistyped},
    value::{Outcome, Value},
};

pub(crate) const ROWS: &[Row] = &[
    ("sets.contains(list<T>, list<T>) -> bool", product_cost, contains_all),
    ("sets.equivalent(list<T>, list<T>) -> bool", double_product_cost, equivalent),
    ("sets.intersects(list<T>, list<T>) -> bool", product_cost, intersects),
];

fn product(meter: &mut Meter, arguments: &[Value<'_>]) -> Result<u64, EvaluationError> {
    arguments.iter().try_fold(1, |n: u64, list| Ok(n.saturating_mul(size(list, meter)?)))
}

fn product_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    Ok(product(meter, arguments)?.saturating_add(1))
}

fn double_product_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    Ok(product(meter, arguments)?.saturating_mul(2).saturating_add(1))
}

fn contains_all<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list), Value::List(sublist)] = arguments else { return mistyped() };
    for element in sublist.iter() {
        if !contains(list, element, meter)? {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn equivalent<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [left, right] = arguments else { return mistyped() };
    match contains_all(meter, arguments)? {
        Value::Bool(true) => contains_all(meter, &[right.clone(), left.clone()]),
        other => Ok(other),
    }
}

fn intersects<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(left), Value::List(right)] = arguments else { return mistyped() };
    for element in left.iter() {
        if contains(right, element, meter)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
