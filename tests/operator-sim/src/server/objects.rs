//! What every object has: metadata with preconditions, and patches that change it.

use serde_json::{Map, Value, json};

/// Whether an object is being deleted.
pub(crate) fn is_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Why an object is not as the metadata of a request presupposes.
pub(super) fn precondition(known: &Value, wanted: &Value) -> Option<&'static str> {
    for (field, problem) in [
        ("uid", "the UID in the precondition does not match"),
        ("resourceVersion", "the object has been modified"),
    ] {
        if wanted[field].is_string() && wanted[field] != known["metadata"][field] {
            return Some(problem);
        }
    }
    None
}

pub(super) fn merge_conditions(status: &mut Value, conditions: &Value) {
    if !status.is_object() {
        *status = json!({});
    }
    let known = &mut status["conditions"];
    if !known.is_array() {
        *known = json!([]);
    }
    let known = known.as_array_mut().expect("an array");
    for condition in conditions.as_array().into_iter().flatten() {
        match known.iter_mut().find(|other| other["type"] == condition["type"]) {
            Some(other) => merge(other, condition),
            None => known.push(condition.clone()),
        }
    }
}

/// A merge patch (RFC 7386).
pub(super) fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let known = object.as_object_mut().expect("an object");
    for (field, value) in fields {
        match value {
            Value::Null => drop(known.remove(field)),
            Value::Object(_) => merge(known.entry(field.clone()).or_insert(Value::Null), value),
            _ => drop(known.insert(field.clone(), value.clone())),
        }
    }
}
