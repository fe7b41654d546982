//! Regular expressions: CEL's `matches` and Kubernetes' library `regex`.

use std::sync::Arc;

use crate::{
    error::EvaluationError,
    meter::{Meter, pattern_cost, size},
    overload::{Row, mistyped},
    value::{Outcome, Value},
};

pub(crate) const ROWS: &[Row] = &[
    ("matches(string, string) -> bool", search_cost, matches),
    ("matches(self string, string) -> bool", search_cost, matches),
    ("find(self string, string) -> string", search_cost, find),
    ("findAll(self string, string) -> list<string>", search_cost, find_all),
    ("findAll(self string, string, int) -> list<string>", search_cost, find_all),
];

fn search_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    match arguments {
        [text, pattern, ..] => Ok(pattern_cost(size(text, meter)?, size(pattern, meter)?)),
        _ => Ok(1),
    }
}

fn matches<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::String(pattern)] = arguments else { return mistyped() };
    let pattern = meter.pattern(pattern)?;
    meter.work(pattern.match_work(text.len()))?;
    Ok(Value::Bool(pattern.regex.is_match(text)))
}

fn find<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::String(pattern)] = arguments else { return mistyped() };
    let pattern = meter.pattern(pattern)?;
    meter.work(pattern.find_work(text.len()))?;
    Ok(Value::string(pattern.regex.find(text).map_or("", |found| found.as_str())))
}

/// All matches, or at most the given number of them if it is not negative.
fn find_all<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, pattern, limit) = match arguments {
        [Value::String(text), Value::String(pattern)] => (text, pattern, usize::MAX),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => {
            (text, pattern, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return mistyped(),
    };
    let pattern = meter.pattern(pattern)?;
    let mut found = Vec::new();
    let mut left = text.len();
    for part in pattern.regex.find_iter(text).take(limit) {
        // Each search may read on to the end of the text before it knows where its match ends.
        meter.work(pattern.find_work(left) + 1)?;
        meter.work_on_texts(1, part.len())?;
        left = text.len() - part.end();
        found.push(Value::string(part.as_str()));
    }
    meter.work(pattern.find_work(left))?;
    Ok(Value::List(Arc::new(found)))
}
