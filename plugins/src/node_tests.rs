//! Selectors over nodes, compiled against the nodes of the session.
//!
//! A requirement on a label becomes the set of values that pass it; asking it of a node is a look
//! into two tables. The operators themselves are the business of [`kube_batch_api::selector`].
//!
//! Source: Kubernetes 1.36, `component-helpers/scheduling/corev1/nodeaffinity`.

use kube_batch_api::{
    cluster::Cluster,
    column::{NodeIdx, Ordinal},
    facts::class::PodTemplate,
    name::Name,
    selector::{NodeTerm, Requirement},
};

use crate::node_labels::{Key, NodeLabels, Value};

/// A condition on one label of a node.
#[derive(Clone, Debug)]
struct LabelTest {
    key: Key,
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
    fn passes(&self, labels: &NodeLabels, node: NodeIdx) -> bool {
        let value = labels.value(self.key, node);
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
    pub(crate) fn passes(&self, labels: &NodeLabels, node: NodeIdx) -> bool {
        self.0.iter().all(|test| test.passes(labels, node))
    }

    /// A key and the few values one of which a node must give it.
    pub(crate) fn few_values(&self) -> Option<(Key, &[Value])> {
        self.0.iter().find_map(|test| match &test.accepts {
            Accepts::OneOf(values) => Some((test.key, values.as_slice())),
            Accepts::Marked(_) => None,
        })
    }
}

/// Alternatives one of which must hold; none of none.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnyOf(Vec<AllOf>);

impl AnyOf {
    pub(crate) fn passes(&self, labels: &NodeLabels, node: NodeIdx) -> bool {
        self.0.iter().any(|all| all.passes(labels, node))
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
    pub(crate) fn passes(&self, labels: &NodeLabels, node: NodeIdx) -> bool {
        self.selector.passes(labels, node)
            && self.affinity.as_ref().is_none_or(|any| any.passes(labels, node))
    }
}

/// Turns selectors into tests; learns the keys they name.
pub(crate) struct Compiler<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) labels: &'a mut NodeLabels,
}

impl Compiler<'_> {
    /// The row of a label key.
    pub(crate) fn key(&mut self, name: &Name) -> Key {
        self.labels.key(self.cluster, name)
    }

    pub(crate) fn required_nodes(&mut self, template: &PodTemplate) -> RequiredNodes {
        let pairs = template.node_selector.iter();
        RequiredNodes {
            selector: AllOf(pairs.map(|(key, value)| self.one_of(key, [value])).collect()),
            affinity: template.node_affinity.as_ref().map(|terms| self.any_of(terms)),
        }
    }

    /// Terms of a node affinity: one must hold, and one that asks nothing never does.
    pub(crate) fn any_of(&mut self, terms: &[NodeTerm]) -> AnyOf {
        AnyOf(terms.iter().filter_map(|term| self.node_term(term)).collect())
    }

    /// One term; `None` if it asks nothing and so matches nothing.
    pub(crate) fn node_term(&mut self, term: &NodeTerm) -> Option<AllOf> {
        if term.is_empty() {
            return None;
        }
        let mut tests = self.all_of(term.expressions());
        for field in term.fields() {
            let key = self.labels.node_name(self.cluster);
            tests.0.push(self.test(key, field));
        }
        Some(tests)
    }

    /// Requirements on labels that must all hold.
    pub(crate) fn all_of(&mut self, requirements: &[Requirement]) -> AllOf {
        let mut test = |requirement: &Requirement| {
            let key = self.key(requirement.key());
            self.test(key, requirement)
        };
        AllOf(requirements.iter().map(&mut test).collect())
    }

    /// Alternatives of requirements on labels; one without requirements never holds.
    pub(crate) fn alternatives<'r>(
        &mut self,
        alternatives: impl Iterator<Item = &'r [Requirement]>,
    ) -> AnyOf {
        let asks = alternatives.filter(|requirements| !requirements.is_empty());
        AnyOf(asks.map(|requirements| self.all_of(requirements)).collect())
    }

    fn one_of<'n>(&mut self, key: &Name, values: impl IntoIterator<Item = &'n Name>) -> LabelTest {
        let key = self.key(key);
        let values = values.into_iter().filter_map(|value| self.labels.find(key, value));
        LabelTest { key, accepts: Accepts::OneOf(values.collect()) }
    }

    fn test(&self, key: Key, requirement: &Requirement) -> LabelTest {
        if let Some(pairs) = requirement.wanted_pairs() {
            let values = pairs.filter_map(|(_, value)| self.labels.find(key, value));
            return LabelTest { key, accepts: Accepts::OneOf(values.collect()) };
        }
        let mut marked = vec![false; self.labels.n_values(key)];
        marked[Value::ABSENT.at()] = requirement.accepts(None);
        for (name, value) in self.labels.values(key) {
            marked[value.at()] = requirement.accepts(Some(name));
        }
        LabelTest { key, accepts: Accepts::Marked(marked) }
    }
}
