//! Labels, and selectors over them: parsed once, matched often.
//!
//! A requirement that cannot be parsed matches nothing. It is not an error, because the API server
//! has already rejected invalid objects.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use self::problem::{comparison_problem, requirement_problem};
use crate::name::Name;

pub mod node_affinity;
pub mod problem;

/// Labels, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "BTreeMap<Name, Name>", into = "BTreeMap<Name, Name>")]
pub struct Labels(Box<[(Name, Name)]>);

impl Labels {
    /// Reads the label map of an object.
    pub fn from_map(map: Option<&BTreeMap<String, String>>) -> Self {
        map.into_iter().flatten().collect()
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Name> {
        let at = self.0.binary_search_by(|(own, _)| (**own).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Keys and values in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> FromIterator<(&'a String, &'a String)> for Labels {
    /// Labels in the order of their keys, as a map gives them.
    fn from_iter<I: IntoIterator<Item = (&'a String, &'a String)>>(pairs: I) -> Self {
        let names = |(key, value): (&String, &String)| {
            (Name::from(key.as_str()), Name::from(value.as_str()))
        };
        Self(pairs.into_iter().map(names).collect())
    }
}

impl From<BTreeMap<Name, Name>> for Labels {
    fn from(map: BTreeMap<Name, Name>) -> Self {
        Self(map.into_iter().collect())
    }
}

impl From<Labels> for BTreeMap<Name, Name> {
    fn from(labels: Labels) -> Self {
        labels.0.into_iter().collect()
    }
}

/// One condition on a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    key: Name,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum Test {
    In(Vec<Name>),
    NotIn(Vec<Name>),
    Exists,
    DoesNotExist,
    Gt(i64),
    Lt(i64),
    /// Could not be parsed.
    Never,
}

impl Requirement {
    /// `key` has exactly this value.
    pub fn equals(key: Name, value: Name) -> Self {
        Self { key, test: Test::In(vec![value]) }
    }

    /// A requirement on a field of a node; only its name can be selected.
    pub fn of_field(key: &str, operator: &str, values: &[String]) -> Self {
        // A node name may be longer than a label value, so it is not checked as one.
        let names = values.iter().map(|value| Name::from(value.as_str())).collect();
        let test = match operator {
            _ if key != NAME || values.len() != 1 => Test::Never,
            "In" => Test::In(names),
            "NotIn" => Test::NotIn(names),
            _ => Test::Never,
        };
        Self { key: Name::from(key), test }
    }

    /// `key` has one of these values.
    pub fn one_of(key: Name, values: Vec<Name>) -> Self {
        Self { key, test: Test::In(values) }
    }

    /// Nothing meets it: it was not understood.
    pub fn never(key: Name) -> Self {
        Self { key, test: Test::Never }
    }

    /// Reads a requirement on a node label, or one on the labels of another object, which has no operators that
    /// compare numbers.
    pub fn parse(key: &str, operator: &str, texts: &[String]) -> Self {
        let values = || texts.iter().map(|value| Name::from(value.as_str())).collect();
        let problem = match operator {
            "Gt" | "Lt" => comparison_problem(key, operator, texts),
            _ => requirement_problem(key, operator, texts),
        };
        let operand = || texts.first().and_then(|value| value.parse().ok());
        let test = match operator {
            _ if problem.is_some() => Test::Never,
            "In" => Test::In(values()),
            "NotIn" => Test::NotIn(values()),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::DoesNotExist,
            "Gt" => operand().map_or(Test::Never, Test::Gt),
            "Lt" => operand().map_or(Test::Never, Test::Lt),
            _ => Test::Never,
        };
        Self { key: Name::from(key), test }
    }

    /// Operator and values, as the API writes them. One that was not understood becomes one that nothing meets.
    pub fn parts(&self) -> (&'static str, Option<Vec<String>>) {
        let texts = |values: &[Name]| Some(values.iter().map(ToString::to_string).collect());
        match &self.test {
            Test::In(values) => ("In", texts(values)),
            Test::NotIn(values) => ("NotIn", texts(values)),
            Test::Exists => ("Exists", None),
            Test::DoesNotExist => ("DoesNotExist", None),
            Test::Gt(than) => ("Gt", Some(vec![than.to_string()])),
            Test::Lt(than) => ("Lt", Some(vec![than.to_string()])),
            Test::Never => ("In", None),
        }
    }

    /// Whether the requirement was understood.
    pub fn is_valid(&self) -> bool {
        self.test != Test::Never
    }

    /// The label key.
    pub const fn key(&self) -> &Name {
        &self.key
    }

    /// Whether the labels fulfil it.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.accepts(labels.get(&self.key))
    }

    /// Whether this value of its label fulfils it; `None` is an absent label.
    pub fn accepts(&self, value: Option<&Name>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Gt(than) => number().is_some_and(|number| number > *than),
            Test::Lt(than) => number().is_some_and(|number| number < *than),
            Test::Never => false,
        }
    }

    /// The values that it lists. It treats all other values alike. `None` if it compares numbers.
    pub fn listed(&self) -> Option<&[Name]> {
        match &self.test {
            Test::In(values) | Test::NotIn(values) => Some(values),
            Test::Exists | Test::DoesNotExist | Test::Never => Some(&[]),
            Test::Gt(_) | Test::Lt(_) => None,
        }
    }

    /// Whether it refuses the values that it does not list.
    pub fn refuses_unlisted(&self) -> bool {
        match &self.test {
            Test::In(_) | Test::DoesNotExist | Test::Never => true,
            Test::NotIn(_) | Test::Exists | Test::Gt(_) | Test::Lt(_) => false,
        }
    }

    /// The label pairs of which one is required; `None` for other kinds of requirements.
    pub fn wanted_pairs(&self) -> Option<impl Iterator<Item = (&Name, &Name)>> {
        match &self.test {
            Test::In(values) => Some(values.iter().map(|value| (&self.key, value))),
            Test::NotIn(_)
            | Test::Exists
            | Test::DoesNotExist
            | Test::Gt(_)
            | Test::Lt(_)
            | Test::Never => None,
        }
    }
}

/// As `kubectl get -l` writes it: `team=physics`, `tier in (a,b)`, `!spot`.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, test } = self;
        let list =
            |values: &[Name]| values.iter().map(|value| &**value).collect::<Vec<_>>().join(",");
        match test {
            Test::In(values) if values.len() == 1 => write!(f, "{key}={}", list(values)),
            Test::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", list(values)),
            Test::In(values) => write!(f, "{key} in ({})", list(values)),
            Test::NotIn(values) => write!(f, "{key} notin ({})", list(values)),
            Test::Exists => write!(f, "{key}"),
            Test::DoesNotExist => write!(f, "!{key}"),
            Test::Gt(than) => write!(f, "{key}>{than}"),
            Test::Lt(than) => write!(f, "{key}<{than}"),
            Test::Never => write!(f, "{key} in ()"),
        }
    }
}

/// A selector over labels: all requirements must hold; without requirements everything matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LabelSelector(Vec<Requirement>);

/// As `kubectl get -l` writes it; one that selects everything is empty.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "," };
            write!(f, "{separator}{requirement}")?;
        }
        Ok(())
    }
}

impl LabelSelector {
    /// A selector of these requirements.
    pub fn new(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        let mut requirements: Vec<Requirement> = requirements.into_iter().collect();
        requirements.sort_unstable();
        requirements.dedup();
        Self(requirements)
    }

    /// This selector with further requirements.
    #[must_use]
    pub fn and(&self, requirements: impl IntoIterator<Item = Requirement>) -> Self {
        Self::new(self.0.iter().cloned().chain(requirements))
    }

    /// Whether the labels fulfil every requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }

    /// Whether every requirement was understood.
    pub fn is_valid(&self) -> bool {
        self.0.iter().all(Requirement::is_valid)
    }

    /// Whether there are no requirements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The requirements.
    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }
}

/// The field of a node that can be selected.
const NAME: &str = "metadata.name";

/// One alternative of a node selector: labels and fields together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeTerm {
    expressions: Vec<Requirement>,
    /// Requirements on `metadata.name`; any other field is broken.
    fields: Vec<Requirement>,
    /// The names of each `metadata.name In` field, for cutting the nodes by name.
    names: Vec<Vec<Name>>,
}

impl NodeTerm {
    /// A term with requirements on labels and on fields.
    pub fn new(
        expressions: impl IntoIterator<Item = Requirement>,
        fields: impl IntoIterator<Item = Requirement>,
    ) -> Self {
        let fields: Vec<Requirement> = fields.into_iter().collect();
        let names = fields.iter().filter_map(|field| {
            let Test::In(names) = &field.test else { return None };
            (*field.key == *NAME).then(|| names.clone())
        });
        Self { expressions: expressions.into_iter().collect(), names: names.collect(), fields }
    }

    /// A term with requirements on labels only.
    pub fn of_labels(requirements: &[Requirement]) -> Self {
        Self { expressions: requirements.to_vec(), fields: Vec::new(), names: Vec::new() }
    }

    /// The term that the node of this name matches.
    pub fn of_node(name: &Name) -> Self {
        let names = vec![name.clone()];
        let field = Requirement::one_of(Name::from(NAME), names.clone());
        Self { expressions: Vec::new(), fields: vec![field], names: vec![names] }
    }

    /// The term that matches what all these terms match. Equal requirements are in it once.
    pub fn all_of<'a>(terms: impl Iterator<Item = &'a Self>) -> Self {
        let mut all = Self { expressions: Vec::new(), fields: Vec::new(), names: Vec::new() };
        for term in terms {
            merge(&mut all.expressions, &term.expressions);
            merge(&mut all.fields, &term.fields);
            merge(&mut all.names, &term.names);
        }
        all
    }

    /// Whether the node matches the term. An empty term matches nothing.
    pub fn matches(&self, name: &Name, labels: &Labels) -> bool {
        if self.is_empty() {
            return false;
        }
        self.expressions.iter().all(|requirement| requirement.matches(labels))
            && self.fields.iter().all(|requirement| requirement.accepts(Some(name)))
    }

    /// The requirements on labels.
    pub fn expressions(&self) -> &[Requirement] {
        &self.expressions
    }

    /// The requirements on fields. Only the node's name is supported; a requirement on any other
    /// field matches nothing.
    pub fn fields(&self) -> &[Requirement] {
        &self.fields
    }

    /// Whether the term is empty.
    pub fn is_empty(&self) -> bool {
        self.expressions.is_empty() && self.fields.is_empty()
    }

    /// For each `metadata.name In` field of the term, the names it lists.
    pub fn listed_names(&self) -> &[Vec<Name>] {
        &self.names
    }
}

/// Adds what is new, in order.
fn merge<T: Clone + PartialEq>(all: &mut Vec<T>, more: &[T]) {
    for one in more {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let map = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Labels::from_map(Some(&map))
    }

    fn requirement(key: &str, operator: &str, values: &[&str]) -> Requirement {
        let values: Vec<String> = values.iter().map(|v| (*v).to_owned()).collect();
        Requirement::parse(key, operator, &values)
    }

    #[test]
    fn absent_labels_match_only_negative_operators() {
        let none = labels(&[]);
        assert!(!requirement("zone", "In", &["a"]).matches(&none));
        assert!(requirement("zone", "NotIn", &["a"]).matches(&none));
        assert!(requirement("zone", "DoesNotExist", &[]).matches(&none));
        assert!(!requirement("zone", "Gt", &["1"]).matches(&none));
    }

    #[test]
    fn numbers_compare_strictly_and_broken_operands_never_match() {
        let rank = labels(&[("rank", "3")]);
        assert!(requirement("rank", "Gt", &["2"]).matches(&rank));
        assert!(!requirement("rank", "Gt", &["3"]).matches(&rank));
        assert!(requirement("rank", "Lt", &["4"]).matches(&rank));
        assert!(!requirement("rank", "Gt", &["-1"]).matches(&rank));
        assert!(!requirement("rank", "Gt", &["x"]).matches(&rank));
        assert!(!requirement("rank", "Like", &["3"]).matches(&rank));
    }

    #[test]
    fn an_empty_selector_matches_all_and_an_empty_node_term_nothing() {
        assert!(LabelSelector::default().matches(&labels(&[])));
        let term = NodeTerm::new([], []);
        assert!(!term.matches(&Name::from("n1"), &labels(&[])));
    }
}
