//! Selectors over nodes, compiled against the nodes of the session.
//!
//! A requirement on a label becomes the set of values that meet it, so that evaluating it for a node
//! is a look-up in two tables. The operators are evaluated by [`kube_batch_model::selector`].
//!
//! Source: Kubernetes 1.36, `component-helpers/scheduling/corev1/nodeaffinity`.

use std::sync::Arc;

use kube_batch_model::{
    cluster::Cluster,
    column::{NodeIdx, Ordinal},
    facts::class::PodTemplate,
    name::Name,
    selector::{NodeTerm, Requirement},
};

use crate::node_labels::{LabelColumn, NodeLabels, Value};

/// A condition on one label of a node.
#[derive(Clone, Debug)]
struct LabelTest {
    labels: Arc<LabelColumn>,
    accepts: Accepts,
}

/// The values that pass.
#[derive(Clone, Debug)]
enum Accepts {
    /// These few.
    OneOf(Vec<Value>),
    /// Those marked, by number; the first is the absent label.
    Marked(Vec<bool>),
}

impl LabelTest {
    fn one_of<'n>(labels: Arc<LabelColumn>, values: impl Iterator<Item = &'n Name>) -> Self {
        let values = values.filter_map(|value| labels.find(value)).collect();
        Self { labels, accepts: Accepts::OneOf(values) }
    }

    fn new(labels: Arc<LabelColumn>, requirement: &Requirement) -> Self {
        if let Some(pairs) = requirement.wanted_pairs() {
            return Self::one_of(labels, pairs.map(|(_, value)| value));
        }
        let accepts_unlisted = !requirement.refuses_unlisted();
        let mut marked = vec![accepts_unlisted; labels.n_values()];
        marked[Value::ABSENT.at()] = requirement.accepts(None);
        match requirement.listed() {
            Some(listed) => {
                for value in listed.iter().filter_map(|name| labels.find(name)) {
                    marked[value.at()] = !accepts_unlisted;
                }
            }
            None => {
                for (name, value) in labels.values() {
                    marked[value.at()] = requirement.accepts(Some(name));
                }
            }
        }
        Self { labels, accepts: Accepts::Marked(marked) }
    }

    fn passes(&self, node: NodeIdx) -> bool {
        let value = self.labels.value(node);
        match &self.accepts {
            Accepts::OneOf(values) => values.contains(&value),
            Accepts::Marked(marked) => marked[value.at()],
        }
    }
}

/// Conditions that must all hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllOf(Vec<LabelTest>);

impl AllOf {
    pub(crate) fn passes(&self, node: NodeIdx) -> bool {
        self.0.iter().all(|test| test.passes(node))
    }

    /// A label and its values of which a node must have one, if some condition is of that kind.
    pub(crate) fn few_values(&self) -> Option<(&Arc<LabelColumn>, &[Value])> {
        self.0.iter().find_map(|test| match &test.accepts {
            Accepts::OneOf(values) => Some((&test.labels, values.as_slice())),
            Accepts::Marked(_) => None,
        })
    }
}

/// Alternatives of which one must hold. Without alternatives, no node passes.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnyOf(Vec<AllOf>);

impl AnyOf {
    pub(crate) fn passes(&self, node: NodeIdx) -> bool {
        self.0.iter().any(|all| all.passes(node))
    }

    /// The alternative, if there is exactly one.
    pub(crate) fn only(&self) -> Option<&AllOf> {
        match self.0.as_slice() {
            [all] => Some(all),
            _ => None,
        }
    }
}

/// Node selector and required node affinity of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequiredNodes {
    selector: AllOf,
    affinity: Option<AnyOf>,
}

impl RequiredNodes {
    pub(crate) fn passes(&self, node: NodeIdx) -> bool {
        self.selector.passes(node) && self.affinity.as_ref().is_none_or(|any| any.passes(node))
    }

    /// Whether every node passes, whatever its labels.
    pub(crate) fn is_empty(&self) -> bool {
        self.selector.0.is_empty() && self.affinity.is_none()
    }
}

/// Compiles selectors into tests.
#[derive(Clone, Copy)]
pub(crate) struct Compiler<'a> {
    cluster: &'a Cluster,
    labels: &'a NodeLabels,
}

impl<'a> Compiler<'a> {
    pub(crate) const fn new(cluster: &'a Cluster, labels: &'a NodeLabels) -> Self {
        Self { cluster, labels }
    }

    /// The column of a label key.
    pub(crate) fn column(self, key: &Name) -> Arc<LabelColumn> {
        self.labels.column(self.cluster, key)
    }

    /// The column of node names.
    pub(crate) fn node_name(self) -> Arc<LabelColumn> {
        self.labels.node_name(self.cluster)
    }

    pub(crate) fn required_nodes(self, template: &PodTemplate) -> RequiredNodes {
        let pairs = template.node_selector.iter();
        let equals = |(key, value): &(Name, Name)| {
            LabelTest::one_of(self.column(key), std::iter::once(value))
        };
        RequiredNodes {
            selector: AllOf(pairs.map(equals).collect()),
            affinity: template.node_affinity.as_ref().map(|terms| self.any_of(terms)),
        }
    }

    /// Terms of a node affinity, of which one must hold. An empty term never holds.
    pub(crate) fn any_of(self, terms: &[NodeTerm]) -> AnyOf {
        AnyOf(terms.iter().filter_map(|term| self.node_term(term)).collect())
    }

    /// One term; `None` if it is empty and so matches nothing.
    pub(crate) fn node_term(self, term: &NodeTerm) -> Option<AllOf> {
        if term.is_empty() {
            return None;
        }
        let mut tests = self.all_of(term.expressions());
        let fields = term.fields().iter();
        tests.0.extend(fields.map(|field| LabelTest::new(self.node_name(), field)));
        Some(tests)
    }

    /// Requirements on labels that must all hold.
    pub(crate) fn all_of(self, requirements: &[Requirement]) -> AllOf {
        let test =
            |requirement: &Requirement| LabelTest::new(self.column(requirement.key()), requirement);
        AllOf(requirements.iter().map(test).collect())
    }

    /// Alternatives of requirements on labels. An alternative without requirements never holds.
    pub(crate) fn alternatives<'r>(
        self,
        alternatives: impl Iterator<Item = &'r [Requirement]>,
    ) -> AnyOf {
        let alternatives = alternatives.filter(|requirements| !requirements.is_empty());
        AnyOf(alternatives.map(|requirements| self.all_of(requirements)).collect())
    }
}
