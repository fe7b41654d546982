//! A value for each topology domain.
//!
//! The nodes with one value of a label are one domain of that label; a node without the label is in
//! none.

use std::sync::Arc;

use kube_batch_model::column::{NodeIdx, Ordinal};

use crate::node_labels::{LabelColumn, Value};

/// A `T` for each domain of one label key.
#[derive(Clone, Debug)]
pub(crate) struct ByDomain<T> {
    labels: Arc<LabelColumn>,
    /// Long enough for the last domain that was changed; the others have the default.
    values: Vec<T>,
}

impl<T: Copy + Default> ByDomain<T> {
    /// The default for every domain of a key.
    pub(crate) const fn new(labels: Arc<LabelColumn>) -> Self {
        Self { labels, values: Vec::new() }
    }

    /// The domains.
    pub(crate) const fn labels(&self) -> &Arc<LabelColumn> {
        &self.labels
    }

    /// The value of a node's domain; `None` if the node is in no domain.
    pub(crate) fn get(&self, node: NodeIdx) -> Option<T> {
        let domain = self.labels.value(node);
        let value = self.values.get(domain.at()).copied().unwrap_or_default();
        (!domain.is_absent()).then_some(value)
    }

    /// The value of a node's domain, to be changed; `None` if the node is in no domain.
    pub(crate) fn get_mut(&mut self, node: NodeIdx) -> Option<&mut T> {
        let domain = self.labels.value(node);
        if domain.is_absent() {
            return None;
        }
        if self.values.len() <= domain.at() {
            self.values.resize(domain.at() + 1, T::default());
        }
        Some(&mut self.values[domain.at()])
    }

    /// Number of domains of these nodes.
    pub(crate) fn n_domains(&self, nodes: impl Iterator<Item = NodeIdx>) -> usize {
        let mut is_seen = vec![false; self.labels.n_values()];
        let domains = nodes.map(|node| self.labels.value(node));
        let mut is_new = |domain: Value| !std::mem::replace(&mut is_seen[domain.at()], true);
        domains.filter(|domain| !domain.is_absent() && is_new(*domain)).count()
    }
}
