//! Lists: cel-go's `ext.Lists`, version 3, and Kubernetes' library `lists`.

use std::{cmp::Ordering, sync::Arc};

use crate::{
    equality::{compare, equal},
    error::EvaluationError,
    functions::{operators, strings},
    meter::{Meter, size},
    overload::{Row, mistyped, one},
    value::{Outcome, Value},
};

pub(crate) const ROWS: &[Row] = &[
    ("lists.range(int) -> list<int>", output_cost, range),
    ("distinct(self list<T>) -> list<T>", compare_cost, distinct),
    ("flatten(self list<list<T>>) -> list<T>", flatten_cost, flatten),
    ("flatten(self list<dyn>, int) -> list<dyn>", flatten_cost, flatten),
    ("reverse(self list<T>) -> list<T>", output_cost, reverse),
    ("slice(self list<T>, int, int) -> list<T>", output_cost, slice),
    ("first(self list<V>) -> optional<V>", one, first),
    ("last(self list<V>) -> optional<V>", one, last),
    ("includes(self dyn, dyn) -> bool", read_cost, includes),
    ("indexOf(self list<A>, A) -> int", read_cost, index_of),
    ("lastIndexOf(self list<A>, A) -> int", read_cost, last_index_of),
    ("indexOf(self string, string) -> int", read_cost, strings::index_of),
    ("indexOf(self string, string, int) -> int", read_cost, strings::index_of),
    ("lastIndexOf(self string, string) -> int", read_cost, strings::last_index_of),
    ("lastIndexOf(self string, string, int) -> int", read_cost, strings::last_index_of),
    ("sort(self list<int>) -> list<int>", compare_cost, sort),
    ("sort(self list<uint>) -> list<uint>", compare_cost, sort),
    ("sort(self list<double>) -> list<double>", compare_cost, sort),
    ("sort(self list<bool>) -> list<bool>", compare_cost, sort),
    ("sort(self list<duration>) -> list<duration>", compare_cost, sort),
    ("sort(self list<timestamp>) -> list<timestamp>", compare_cost, sort),
    ("sort(self list<string>) -> list<string>", compare_cost, sort),
    ("sort(self list<bytes>) -> list<bytes>", compare_cost, sort),
    ("@sortByAssociatedKeys(self list<T>, list<int>) -> list<T>", by_cost, sort_by),
    ("@sortByAssociatedKeys(self list<T>, list<uint>) -> list<T>", by_cost, sort_by),
    ("@sortByAssociatedKeys(self list<T>, list<double>) -> list<T>", by_cost, sort_by),
    ("@sortByAssociatedKeys(self list<T>, list<bool>) -> list<T>", by_cost, sort_by),
    ("@sortByAssociatedKeys(self list<T>, list<duration>) -> list<T>", by_cost, sort_by),
    ("@sortByAssociatedKeys(self list<T>, list<timestamp>) -> list<T>", by_cost, sort_by),
    ("@sortByAssociatedKeys(self list<T>, list<string>) -> list<T>", by_cost, sort_by),
    ("@sortByAssociatedKeys(self list<T>, list<bytes>) -> list<T>", by_cost, sort_by),
    ("isSorted(self list<int>) -> bool", read_cost, is_sorted),
    ("isSorted(self list<uint>) -> bool", read_cost, is_sorted),
    ("isSorted(self list<double>) -> bool", read_cost, is_sorted),
    ("isSorted(self list<bool>) -> bool", read_cost, is_sorted),
    ("isSorted(self list<duration>) -> bool", read_cost, is_sorted),
    ("isSorted(self list<timestamp>) -> bool", read_cost, is_sorted),
    ("isSorted(self list<string>) -> bool", read_cost, is_sorted),
    ("isSorted(self list<bytes>) -> bool", read_cost, is_sorted),
    ("max(self list<int>) -> int", read_cost, max),
    ("max(self list<uint>) -> uint", read_cost, max),
    ("max(self list<double>) -> double", read_cost, max),
    ("max(self list<bool>) -> bool", read_cost, max),
    ("max(self list<duration>) -> duration", read_cost, max),
    ("max(self list<timestamp>) -> timestamp", read_cost, max),
    ("max(self list<string>) -> string", read_cost, max),
    ("max(self list<bytes>) -> bytes", read_cost, max),
    ("min(self list<int>) -> int", read_cost, min),
    ("min(self list<uint>) -> uint", read_cost, min),
    ("min(self list<double>) -> double", read_cost, min),
    ("min(self list<bool>) -> bool", read_cost, min),
    ("min(self list<duration>) -> duration", read_cost, min),
    ("min(self list<timestamp>) -> timestamp", read_cost, min),
    ("min(self list<string>) -> string", read_cost, min),
    ("min(self list<bytes>) -> bytes", read_cost, min),
    ("sum(self list<int>) -> int", read_cost, sum_ints),
    ("sum(self list<uint>) -> uint", read_cost, sum_uints),
    ("sum(self list<double>) -> double", read_cost, sum_doubles),
    ("sum(self list<duration>) -> duration", read_cost, sum_durations),
];

/// The cost of calling a function that makes a list.
const LIST: u64 = 11;

fn output_cost(
    meter: &mut Meter,
    _: &[Value<'_>],
    result: &Value<'_>,
) -> Result<u64, EvaluationError> {
    Ok(size(result, meter)?.saturating_add(LIST))
}

fn flatten_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    let depth = match arguments.get(1) {
        Some(Value::Int(depth)) => u64::try_from(*depth).unwrap_or(1),
        _ => 1,
    };
    let n = arguments.first().map_or(Ok(1), |list| size(list, meter))?;
    Ok(n.saturating_mul(depth).saturating_add(LIST))
}

fn compare_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    arguments.first().map_or(Ok(1), |list| self_compare_cost(meter, list))
}

fn by_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    arguments.get(1).map_or(Ok(1), |list| self_compare_cost(meter, list))
}

/// Two for each pair of elements, and a little more if they are texts.
fn self_compare_cost(meter: &mut Meter, list: &Value<'_>) -> Result<u64, EvaluationError> {
    let n = size(list, meter)?;
    let pairs = n.saturating_mul(n);
    let tenths = match list {
        Value::List(elements)
            if matches!(elements.first(), Some(Value::String(_) | Value::Bytes(_))) =>
        {
            pairs.saturating_mul(21) / 10
        }
        _ => pairs.saturating_mul(2),
    };
    Ok(tenths.saturating_add(LIST))
}

/// One for each element, or a tenth for each byte of texts.
fn read_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    arguments.first().map_or(Ok(1), |list| cost_within(meter, list, 2))
}

/// The cost of reading a value. Deeper levels of lists are not worth looking for. A list may hold another one many
/// times, so each element that is looked at is work.
fn cost_within(meter: &mut Meter, value: &Value<'_>, levels: u32) -> Result<u64, EvaluationError> {
    meter.work(1)?;
    match value {
        Value::String(text) => Ok(text.len() as u64 / 10),
        Value::Bytes(bytes) => Ok(bytes.len() as u64 / 10),
        Value::List(elements) if levels > 0 => {
            elements.iter().map(|element| cost_within(meter, element, levels - 1)).sum()
        }
        other => size(other, meter),
    }
}

fn range<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Int(n)] = arguments else { return mistyped() };
    if *n < 0 {
        let message = format!("lists.range: size must be non-negative, got {n}");
        return Err(EvaluationError::invalid(message));
    }
    meter.work_on_values(usize::try_from(*n).unwrap_or(usize::MAX))?;
    Ok(Value::list((0..*n).map(Value::Int).collect()))
}

fn distinct<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(elements)] = arguments else { return mistyped() };
    let mut unique: Vec<Value<'a>> = Vec::new();
    for element in elements.iter() {
        if position(unique.iter(), element, meter)?.is_none() {
            meter.work_on_values(1)?;
            unique.push(element.clone());
        }
    }
    Ok(Value::list(unique))
}

/// The place of the first element that is equal to `value`. What cannot be compared is not equal.
fn position<'v, 'a: 'v>(
    elements: impl Iterator<Item = &'v Value<'a>>,
    value: &Value<'a>,
    meter: &mut Meter,
) -> Result<Option<usize>, EvaluationError> {
    for (index, element) in elements.enumerate() {
        meter.work(1)?;
        match equal(element, value, meter) {
            Ok(true) => return Ok(Some(index)),
            Ok(false) | Err(EvaluationError::NoSuchOverload) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn flatten<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (elements, depth) = match arguments {
        [Value::List(elements)] => (elements, 1),
        [Value::List(elements), Value::Int(depth)] => (elements, *depth),
        _ => return mistyped(),
    };
    let Ok(depth) = u64::try_from(depth) else {
        return Err(EvaluationError::invalid("level must be non-negative"));
    };
    let mut flat = Vec::new();
    flatten_into(&mut flat, elements, depth, meter)?;
    Ok(Value::list(flat))
}

fn flatten_into<'a>(
    flat: &mut Vec<Value<'a>>,
    elements: &[Value<'a>],
    depth: u64,
    meter: &mut Meter,
) -> Result<(), EvaluationError> {
    for element in elements {
        meter.work_on_values(1)?;
        match element {
            Value::List(inner) if depth > 0 => flatten_into(flat, inner, depth - 1, meter)?,
            other => flat.push(other.clone()),
        }
    }
    Ok(())
}

fn reverse<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(elements)] = arguments else { return mistyped() };
    meter.work_on_values(elements.len())?;
    Ok(Value::list(elements.iter().rev().cloned().collect()))
}

fn slice<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(elements), Value::Int(start), Value::Int(end)] = arguments else {
        return mistyped();
    };
    let bounds = usize::try_from(*start).ok().zip(usize::try_from(*end).ok());
    let part = bounds.and_then(|(start, end)| elements.get(start..end)).ok_or_else(|| {
        let n = elements.len();
        EvaluationError::invalid(format!("cannot slice({start}, {end}), list is length {n}"))
    })?;
    meter.work_on_values(part.len())?;
    Ok(Value::List(Arc::new(part.to_vec())))
}

fn first<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::List(elements)] => Ok(Value::Optional(elements.first().cloned().map(Arc::new))),
        _ => mistyped(),
    }
}

fn last<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::List(elements)] => Ok(Value::Optional(elements.last().cloned().map(Arc::new))),
        _ => mistyped(),
    }
}

/// Whether a list has an element, or a value that is no list is equal to it.
fn includes<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::List(elements), value] => {
            Ok(Value::Bool(position(elements.iter(), value, meter)?.is_some()))
        }
        [single, value] => {
            Ok(Value::Bool(position(std::iter::once(single), value, meter)?.is_some()))
        }
        _ => mistyped(),
    }
}

fn index_of<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(elements), value] = arguments else { return mistyped() };
    let found = position(elements.iter(), value, meter)?;
    Ok(found.map_or(Value::Int(-1), operators::count))
}

fn last_index_of<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(elements), value] = arguments else { return mistyped() };
    let found = position(elements.iter().rev(), value, meter)?;
    Ok(found.map_or(Value::Int(-1), |from_end| operators::count(elements.len() - 1 - from_end)))
}

fn sort<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [list] = arguments else { return mistyped() };
    sort_by(meter, &[list.clone(), list.clone()])
}

/// The elements of the first list in the order of the keys in the second. Equal keys keep the order
/// of their elements; upstream may exchange them.
pub(crate) fn sort_by<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(elements), Value::List(keys)] = arguments else { return mistyped() };
    meter.work(elements.len().saturating_mul(elements.len()))?;
    meter.work_on_values(elements.len())?;
    // Each key is compared with some others.
    let n_compared = keys.len().checked_ilog2().unwrap_or(0) as usize + 1;
    let bytes = keys.iter().map(Value::bytes).fold(0, usize::saturating_add);
    meter.work_on_bytes(bytes.saturating_mul(n_compared))?;
    if let Some(first) = keys.first() {
        let name = first.type_name();
        if keys.len() > 1 && keys.iter().any(|key| key.type_name() != name) {
            return Err(EvaluationError::invalid("list elements must have the same type"));
        }
        if compare(first, first).is_err() {
            return Err(EvaluationError::invalid("list elements must be comparable"));
        }
    }
    let mut order: Vec<usize> = (0..elements.len()).collect();
    order.sort_by(|left, right| order_of(&keys[*left], &keys[*right]));
    Ok(Value::list(order.into_iter().map(|index| elements[index].clone()).collect()))
}

/// A total order: NaN is after all numbers.
fn order_of(left: &Value<'_>, right: &Value<'_>) -> Ordering {
    match (left, right) {
        (Value::Double(left), Value::Double(right)) => {
            left.partial_cmp(right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
        }
        (left, right) => compare(left, right).ok().flatten().unwrap_or(Ordering::Equal),
    }
}

/// Counts the comparison of each element with another.
fn work_on(elements: &[Value<'_>], meter: &mut Meter) -> Result<(), EvaluationError> {
    elements.iter().try_for_each(|element| meter.work_on_bytes(element.len().unwrap_or(0) + 8))
}

fn is_sorted<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(elements)] = arguments else { return mistyped() };
    work_on(elements, meter)?;
    for pair in elements.windows(2) {
        if let Ok(Some(Ordering::Greater)) = compare(&pair[0], &pair[1]) {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn extreme<'a>(
    meter: &mut Meter,
    arguments: &[Value<'a>],
    name: &str,
    replaces: Ordering,
) -> Outcome<'a> {
    let [Value::List(elements)] = arguments else { return mistyped() };
    work_on(elements, meter)?;
    let mut best: Option<&Value<'a>> = None;
    for element in elements.iter() {
        // Elements that cannot be compared do not replace the best one, as upstream.
        if best.is_none_or(|best| compare(best, element).ok().flatten() == Some(replaces)) {
            best = Some(element);
        }
    }
    best.cloned().ok_or_else(|| EvaluationError::invalid(format!("{name} called on empty list")))
}

fn max<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    extreme(meter, arguments, "max", Ordering::Less)
}

fn min<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    extreme(meter, arguments, "min", Ordering::Greater)
}

fn sum<'a>(meter: &mut Meter, arguments: &[Value<'a>], zero: Value<'a>) -> Outcome<'a> {
    let [Value::List(elements)] = arguments else { return mistyped() };
    elements
        .iter()
        .try_fold(zero, |total, element| operators::add(meter, &[total, element.clone()]))
}

fn sum_ints<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    sum(meter, arguments, Value::Int(0))
}

fn sum_uints<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    sum(meter, arguments, Value::UInt(0))
}

fn sum_doubles<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    sum(meter, arguments, Value::Double(0.0))
}

fn sum_durations<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    sum(meter, arguments, Value::Duration(0))
}
