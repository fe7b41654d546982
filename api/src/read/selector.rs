//! Selectors, as the API has them.

use k8s_openapi::{
    api::core::v1 as core, apimachinery::pkg::apis::meta::v1::LabelSelector as ApiLabelSelector,
};
use kube_batch_model::{
    name::Name,
    selector::{
        LabelSelector, NodeTerm, Requirement,
        node_affinity::{
            NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PreferredNodes,
        },
        problem::{
            SelectorProblem, is_label_key, is_label_value, labels_problem, requirement_problem,
        },
    },
};

/// Reads `matchLabels` and `matchExpressions`.
pub fn label_selector(selector: &ApiLabelSelector) -> LabelSelector {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| {
        if is_label_key(key) && is_label_value(value) {
            Requirement::equals(Name::from(key.as_str()), Name::from(value.as_str()))
        } else {
            Requirement::never(Name::from(key.as_str()))
        }
    });
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        match expression.operator.as_str() {
            // Gt and Lt are for nodes only.
            "Gt" | "Lt" => Requirement::never(Name::from(&*expression.key)),
            operator => {
                let values = expression.values.as_deref().unwrap_or_default();
                Requirement::parse(&expression.key, operator, values)
            }
        }
    });
    LabelSelector::new(labels.chain(expressions))
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

/// The node affinity of a pod.
pub fn node_affinity(affinity: &core::NodeAffinity) -> NodeAffinity {
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref();
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.as_ref();
    let preferred = preferred.map(|all| {
        let own = all
            .iter()
            .map(|own| PreferredNodes { weight: own.weight, preference: term(&own.preference) });
        own.collect()
    });
    NodeAffinity {
        required_during_scheduling_ignored_during_execution: required.map(|selector| {
            let terms = selector.node_selector_terms.iter().map(term);
            NodeSelector { node_selector_terms: terms.collect() }
        }),
        preferred_during_scheduling_ignored_during_execution: preferred,
    }
}

fn term(term: &core::NodeSelectorTerm) -> NodeSelectorTerm {
    let requirement = |own: &core::NodeSelectorRequirement| NodeSelectorRequirement {
        key: own.key.clone(),
        operator: own.operator.clone(),
        values: own.values.clone(),
    };
    let all = |list: &Option<Vec<core::NodeSelectorRequirement>>| {
        list.as_ref().map(|list| list.iter().map(requirement).collect())
    };
    NodeSelectorTerm {
        match_expressions: all(&term.match_expressions),
        match_fields: all(&term.match_fields),
    }
}

/// The terms of a node selector.
pub fn node_terms(selector: &core::NodeSelector) -> Vec<NodeTerm> {
    selector.node_selector_terms.iter().map(|own| term(own).compiled()).collect()
}

/// The term as the API writes it.
pub fn api_node_term(term: &NodeTerm) -> core::NodeSelectorTerm {
    let write = |requirements: &[Requirement]| {
        let written = requirements.iter().map(api_requirement).collect();
        (!requirements.is_empty()).then_some(written)
    };
    core::NodeSelectorTerm {
        match_expressions: write(term.expressions()),
        match_fields: write(term.fields()),
    }
}

/// A requirement as the API writes it.
fn api_requirement(requirement: &Requirement) -> core::NodeSelectorRequirement {
    let (operator, values) = requirement.parts();
    let key = requirement.key().to_string();
    core::NodeSelectorRequirement { key, operator: operator.to_owned(), values }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
