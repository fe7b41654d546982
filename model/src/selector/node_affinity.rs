//! The node affinity of a pod, or one that a configuration adds, as it is written.

use serde::{Deserialize, Serialize};

use super::{
    NodeTerm, Requirement,
    problem::{
        SelectorProblem, comparison_problem, preference_weight_problem, requirement_problem,
    },
};
use crate::null::null_is_default;

/// Which nodes are allowed, and which are preferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// The allowed nodes.
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
    /// The preferred nodes.
    pub preferred_during_scheduling_ignored_during_execution: Option<Vec<PreferredNodes>>,
}

/// Nodes that match one of some terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// The terms.
    #[serde(deserialize_with = "null_is_default")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Nodes that are preferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreferredNodes {
    /// From 1 to 100.
    #[serde(deserialize_with = "null_is_default")]
    pub weight: i32,
    /// Which.
    #[serde(deserialize_with = "null_is_default")]
    pub preference: NodeSelectorTerm,
}

/// Requirements that a node meets together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// On labels.
    pub match_expressions: Option<Vec<NodeSelectorRequirement>>,
    /// On fields: `metadata.name`.
    pub match_fields: Option<Vec<NodeSelectorRequirement>>,
}

/// A requirement on a label or field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorRequirement {
    /// The label or field.
    #[serde(deserialize_with = "null_is_default")]
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    #[serde(deserialize_with = "null_is_default")]
    pub operator: String,
    /// What it is compared with.
    pub values: Option<Vec<String>>,
}

impl NodeSelectorRequirement {
    fn values(&self) -> &[String] {
        self.values.as_deref().unwrap_or_default()
    }
}

impl NodeSelectorTerm {
    /// The term as it is matched.
    pub fn compiled(&self) -> NodeTerm {
        let expressions = self.match_expressions.iter().flatten();
        let fields = self.match_fields.iter().flatten();
        NodeTerm::new(
            expressions.map(|own| Requirement::parse(&own.key, &own.operator, own.values())),
            fields.map(|own| Requirement::of_field(&own.key, &own.operator, own.values())),
        )
    }
}

impl NodeAffinity {
    /// Alternatives of the allowed nodes; `None` if all are.
    pub fn required(&self) -> Option<Vec<NodeTerm>> {
        let required = self.required_during_scheduling_ignored_during_execution.as_ref()?;
        Some(required.node_selector_terms.iter().map(NodeSelectorTerm::compiled).collect())
    }

    /// Preferred terms with their weights; a weight of 0 prefers nothing.
    pub fn preferred(&self) -> Vec<(i64, NodeTerm)> {
        let preferred = self.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        let preferred = preferred.filter(|preferred| preferred.weight != 0);
        preferred.map(|own| (own.weight.into(), own.preference.compiled())).collect()
    }
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
