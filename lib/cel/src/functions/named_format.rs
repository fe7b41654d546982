//! Named formats of texts: Kubernetes' library `format`.

use crate::{
    error::EvaluationError,
    meter::{Meter, pattern_cost, size},
    named_format::FORMATS,
    overload::{Row, mistyped, one},
    value::{Outcome, Value},
};

pub(crate) const ROWS: &[Row] = &[
    ("format.named(string) -> optional<Format>", one, named),
    ("format.dns1123Label() -> Format", one, |_, _| constant("dns1123Label")),
    ("format.dns1123Subdomain() -> Format", one, |_, _| constant("dns1123Subdomain")),
    ("format.dns1035Label() -> Format", one, |_, _| constant("dns1035Label")),
    ("format.qualifiedName() -> Format", one, |_, _| constant("qualifiedName")),
    ("format.dns1123LabelPrefix() -> Format", one, |_, _| constant("dns1123LabelPrefix")),
    ("format.dns1123SubdomainPrefix() -> Format", one, |_, _| constant("dns1123SubdomainPrefix")),
    ("format.dns1035LabelPrefix() -> Format", one, |_, _| constant("dns1035LabelPrefix")),
    ("format.labelValue() -> Format", one, |_, _| constant("labelValue")),
    ("format.uri() -> Format", one, |_, _| constant("uri")),
    ("format.uuid() -> Format", one, |_, _| constant("uuid")),
    ("format.byte() -> Format", one, |_, _| constant("byte")),
    ("format.date() -> Format", one, |_, _| constant("date")),
    ("format.datetime() -> Format", one, |_, _| constant("datetime")),
    ("validate(self Format, string) -> optional<list<string>>", validate_cost, validate),
];

fn find<'a>(name: &str) -> Option<Value<'a>> {
    FORMATS.iter().find(|format| format.name == name).map(Value::Format)
}

fn constant<'a>(name: &str) -> Outcome<'a> {
    find(name).ok_or(EvaluationError::NoSuchOverload)
}

fn named<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(name)] => Ok(Value::Optional(find(name).map(std::sync::Arc::new))),
        _ => mistyped(),
    }
}

fn validate_cost(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    match arguments {
        [Value::Format(format), text] => {
            Ok(pattern_cost(size(text, meter)?, format.pattern_length))
        }
        _ => Ok(1),
    }
}

/// Nothing for a valid text, else what is wrong.
fn validate<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    if let Some(Value::String(text)) = arguments.get(1) {
        // Each byte is looked at by itself.
        meter.work(text.len() / 2)?;
    }
    match arguments {
        [Value::Format(format), Value::String(text)] if (format.is_valid)(text) => {
            Ok(Value::Optional(None))
        }
        [Value::Format(format), Value::String(_)] => {
            Ok(Value::some(Value::strings([format.message])))
        }
        _ => mistyped(),
    }
}
