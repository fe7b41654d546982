//! Why a selector cannot be parsed, and where.
//!
//! The API server rejects such selectors, so they come from a file, or from an API server with other
//! rules.

use std::collections::BTreeMap;

use crate::name::is_dns_subdomain;

/// A part of a selector that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorProblem {
    /// The path of the part, from the selector.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

impl SelectorProblem {
    /// A problem of the part at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }

    /// This problem, of a selector that is at `path`.
    #[must_use]
    pub fn under(self, path: &str) -> Self {
        Self { path: format!("{path}.{}", self.path), ..self }
    }
}

/// The first problem of a mapping of labels, which is at `path`.
pub fn labels_problem(path: &str, labels: &BTreeMap<String, String>) -> Option<SelectorProblem> {
    labels.iter().find_map(|(key, value)| {
        let path = format!("{path}[{key}]");
        if !is_label_key(key) {
            return Some(SelectorProblem::new(path, format!("{key:?} is not a label key")));
        }
        let problem = || SelectorProblem::new(path, format!("{value:?} is not a label value"));
        (!is_label_value(value)).then(problem)
    })
}

/// Problem of a weight in a list of preferences, which are from 1 to 100.
pub fn preference_weight_problem(path: &str, weight: i32) -> Option<SelectorProblem> {
    let message = || format!("must be from 1 to 100, not {weight}");
    (!(1..=100).contains(&weight))
        .then(|| SelectorProblem::new(format!("{path}.weight"), message()))
}

/// The first problem of a requirement on a label.
pub fn requirement_problem(
    key: &str,
    operator: &str,
    values: &[String],
) -> Option<SelectorProblem> {
    if !is_label_key(key) {
        return Some(SelectorProblem::new("key", format!("{key:?} is not a label key")));
    }
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let message = format!("must not be empty with operator {operator}");
            Some(SelectorProblem::new("values", message))
        }
        "In" | "NotIn" => value_problem(values),
        "Exists" | "DoesNotExist" if values.is_empty() => None,
        "Exists" | "DoesNotExist" => {
            let message = format!("must be empty with operator {operator}");
            Some(SelectorProblem::new("values", message))
        }
        _ => {
            let message = format!("{operator:?} is not an operator of this selector");
            Some(SelectorProblem::new("operator", message))
        }
    }
}

/// The first problem of a requirement on a node label with the operator Gt or Lt. A label value
/// never starts with a sign, so a negative operand is broken, as in Kubernetes.
pub(super) fn comparison_problem(
    key: &str,
    operator: &str,
    values: &[String],
) -> Option<SelectorProblem> {
    if !is_label_key(key) {
        return Some(SelectorProblem::new("key", format!("{key:?} is not a label key")));
    }
    let is_number =
        |value: &str| value.bytes().all(|b| b.is_ascii_digit()) && value.parse::<i64>().is_ok();
    match values {
        [value] if is_number(value) => None,
        _ => {
            let message = format!("must be one number without a sign with operator {operator}");
            Some(SelectorProblem::new("values", message))
        }
    }
}

fn value_problem(values: &[String]) -> Option<SelectorProblem> {
    let at = values.iter().position(|value| !is_label_value(value))?;
    let message = format!("{:?} is not a label value", values[at]);
    Some(SelectorProblem::new(format!("values[{at}]"), message))
}

/// At most 63 characters, alphanumeric at both ends, `-`, `_` and `.` inside; or empty.
pub fn is_label_value(value: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let ends = [value.bytes().next(), value.bytes().next_back()];
    value.len() <= 63
        && value.bytes().all(inner)
        && ends.into_iter().flatten().all(|b| b.is_ascii_alphanumeric())
}

/// Whether a text is a label key, which Kubernetes also calls a qualified name: a name like a label
/// value that is not empty, after an optional DNS subdomain and a slash.
pub fn is_label_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_dns_subdomain)
}
