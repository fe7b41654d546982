//! Why a selector cannot be parsed, and where.
//!
//! The API server rejects such selectors, so they come from a file, or from an API server with other
//! rules.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm},
    apimachinery::pkg::apis::meta::v1::LabelSelector as ApiLabelSelector,
};

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

    /// The same problem, of a selector that is at `path`.
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

/// The first problem of a label selector.
pub fn label_selector_problem(selector: &ApiLabelSelector) -> Option<SelectorProblem> {
    let labels = selector.match_labels.as_ref();
    let of_labels = labels.and_then(|labels| labels_problem("matchLabels", labels));
    let mut expressions = selector.match_expressions.iter().flatten().enumerate();
    of_labels.or_else(|| {
        expressions.find_map(|(at, expression)| {
            let values = expression.values.as_deref().unwrap_or_default();
            let problem = requirement_problem(&expression.key, &expression.operator, values)?;
            Some(problem.under(&format!("matchExpressions[{at}]")))
        })
    })
}

/// Problem of a weight in a list of preferences, which are from 1 to 100.
pub fn preference_weight_problem(path: &str, weight: i32) -> Option<SelectorProblem> {
    let message = || format!("must be from 1 to 100, not {weight}");
    (!(1..=100).contains(&weight))
        .then(|| SelectorProblem::new(format!("{path}.weight"), message()))
}

/// All problems of a node affinity.
pub fn node_affinity_problems(affinity: &NodeAffinity) -> Vec<SelectorProblem> {
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref();
    let is_empty = required.is_some_and(|required| required.node_selector_terms.is_empty());
    let no_terms = is_empty.then(|| {
        let path = "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
        SelectorProblem::new(path, "must have at least one term")
    });
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter();
    let weights = preferred.flatten().enumerate().filter_map(|(at, preferred)| {
        let path = format!("preferredDuringSchedulingIgnoredDuringExecution[{at}]");
        preference_weight_problem(&path, preferred.weight)
    });
    let required = required.into_iter().flat_map(|required| &required.node_selector_terms);
    let required = required.enumerate().map(|(at, term)| {
        let list = "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
        (format!("{list}[{at}]"), term)
    });
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter();
    let preferred = preferred.flatten().enumerate().map(|(at, preferred)| {
        let list = "preferredDuringSchedulingIgnoredDuringExecution";
        (format!("{list}[{at}].preference"), &preferred.preference)
    });
    let of_term = |(path, term): (String, &NodeSelectorTerm)| {
        let problems = term_problems(term).into_iter();
        problems.map(|problem| problem.under(&path)).collect::<Vec<_>>()
    };
    let of_terms = required.chain(preferred).flat_map(of_term);
    no_terms.into_iter().chain(weights).chain(of_terms).collect()
}

fn term_problems(term: &NodeSelectorTerm) -> Vec<SelectorProblem> {
    let values =
        |requirement: &NodeSelectorRequirement| requirement.values.clone().unwrap_or_default();
    let expressions = term.match_expressions.iter().flatten().enumerate();
    let expressions = expressions.filter_map(|(at, expression)| {
        let values = values(expression);
        let problem = match expression.operator.as_str() {
            operator @ ("Gt" | "Lt") => comparison_problem(&expression.key, operator, &values),
            operator => requirement_problem(&expression.key, operator, &values),
        };
        Some(problem?.under(&format!("matchExpressions[{at}]")))
    });
    let fields = term.match_fields.iter().flatten().enumerate();
    let fields = fields
        .filter_map(|(at, field)| Some(field_problem(field)?.under(&format!("matchFields[{at}]"))));
    expressions.chain(fields).collect()
}

/// The first problem of a requirement on a label.
pub(super) fn requirement_problem(
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

fn field_problem(field: &NodeSelectorRequirement) -> Option<SelectorProblem> {
    let n_values = field.values.as_ref().map_or(0, Vec::len);
    if field.key != "metadata.name" {
        let message = format!("{:?} is not a field that can be selected", field.key);
        return Some(SelectorProblem::new("key", message));
    }
    if !matches!(field.operator.as_str(), "In" | "NotIn") {
        let message = format!("{:?} is not an operator of this selector", field.operator);
        return Some(SelectorProblem::new("operator", message));
    }
    (n_values != 1).then(|| SelectorProblem::new("values", "must be one node name"))
}

fn value_problem(values: &[String]) -> Option<SelectorProblem> {
    let at = values.iter().position(|value| !is_label_value(value))?;
    let message = format!("{:?} is not a label value", values[at]);
    Some(SelectorProblem::new(format!("values[{at}]"), message))
}

/// At most 63 characters, alphanumeric at both ends, `-`, `_` and `.` inside; or empty.
pub(super) fn is_label_value(value: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    use super::*;

    fn texts(values: &[&str]) -> Vec<String> {
        values.iter().map(|value| (*value).to_owned()).collect()
    }

    #[test]
    fn the_first_problem_of_a_label_selector_is_found() {
        let problem = |key: &str, operator: &str, values: &[&str]| {
            let values = Some(texts(values)).filter(|values| !values.is_empty());
            let (key, operator) = (key.to_owned(), operator.to_owned());
            let expressions = vec![LabelSelectorRequirement { key, operator, values }];
            let selector =
                ApiLabelSelector { match_expressions: Some(expressions), match_labels: None };
            label_selector_problem(&selector).map(|p| format!("{}: {}", p.path, p.message))
        };
        let at = |text: &str| Some(format!("matchExpressions[0].{text}"));
        assert_eq!(problem("a.b/c", "In", &["x", ""]), None);
        assert_eq!(problem("c", "Exists", &[]), None);
        assert_eq!(problem("c", "In", &[]), at("values: must not be empty with operator In"));
        assert_eq!(problem("c", "NotIn", &["x", "-"]), at("values[1]: \"-\" is not a label value"));
        assert_eq!(
            problem("c", "Exists", &["x"]),
            at("values: must be empty with operator Exists")
        );
        assert_eq!(
            problem("c", "Gt", &["1"]),
            at("operator: \"Gt\" is not an operator of this selector")
        );
        for key in ["", "a b", "/a", "a/", "A/b", "a/b/c", "-a"] {
            assert_eq!(
                problem(key, "Exists", &[]),
                at(&format!("key: {key:?} is not a label key"))
            );
        }
    }

    #[test]
    fn problems_of_match_labels_name_the_key() {
        let labels = BTreeMap::from([("a".to_owned(), "?".to_owned())]);
        let selector = ApiLabelSelector { match_labels: Some(labels), match_expressions: None };
        let expected = SelectorProblem::new("matchLabels[a]", "\"?\" is not a label value");
        assert_eq!(label_selector_problem(&selector), Some(expected));
    }
}
