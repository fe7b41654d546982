//! Something for each topology domain.
//!
//! Nodes that give a label key the same value are one domain of that key; a node that lacks the key
//! is in none. Rules about domains differ in what they count and where, not in how a node finds what
//! its domain has.

use kube_batch_api::column::{NodeIdx, Ordinal};

use crate::node_labels::{Key, NodeLabels, Value};

/// A `T` for each domain of one key.
#[derive(Clone, Debug)]
pub(crate) struct ByDomain<T> {
    key: Key,
    /// As long as the largest domain that was ever changed needs; the others have the default.
    values: Vec<T>,
}

impl<T: Copy + Default> ByDomain<T> {
    /// The default for every domain of a key.
    pub(crate) const fn new(key: Key) -> Self {
        Self { key, values: Vec::new() }
    }

    /// What a node's domain has; `None` if the node is in no domain.
    pub(crate) fn get(&self, labels: &NodeLabels, node: NodeIdx) -> Option<T> {
        let domain = labels.value(self.key, node);
        let value = self.values.get(domain.at()).copied().unwrap_or_default();
        (!domain.is_absent()).then_some(value)
    }

    /// What a node's domain has, to be changed; `None` if the node is in no domain.
    pub(crate) fn get_mut(&mut self, labels: &NodeLabels, node: NodeIdx) -> Option<&mut T> {
        let domain = labels.value(self.key, node);
        if domain.is_absent() {
            return None;
        }
        if self.values.len() <= domain.at() {
            self.values.resize(domain.at() + 1, T::default());
        }
        Some(&mut self.values[domain.at()])
    }

    /// In how many domains these nodes are.
    pub(crate) fn n_domains(
        &self,
        labels: &NodeLabels,
        nodes: impl Iterator<Item = NodeIdx>,
    ) -> usize {
        let mut is_seen = vec![false; labels.n_values(self.key)];
        let domains = nodes.map(|node| labels.value(self.key, node));
        let mut is_new = |domain: Value| !std::mem::replace(&mut is_seen[domain.at()], true);
        domains.filter(|domain| !domain.is_absent() && is_new(*domain)).count()
    }
}
