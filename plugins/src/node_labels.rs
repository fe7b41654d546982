//! Node labels as small numbers.
//!
//! Rules about nodes compare label values over and over. Here each key that some rule names becomes
//! a column, and each value that some node gives it a number, so that no text is compared once the
//! session is open. Nodes with the same value of a key are one topology domain of that key.
//! A key that no rule names costs nothing.

use std::collections::BTreeMap;

use kube_batch_api::{
    cluster::Cluster,
    column::{Column, NodeIdx, Ordinal},
    name::Name,
};

use crate::rows::row_type;

row_type! {
    /// Row of a label key that some rule names.
    Key,
    /// Number of a value of one key; a domain of that key.
    Value,
}

impl Value {
    /// The node does not carry the key.
    pub(crate) const ABSENT: Self = Self(0);

    pub(crate) fn is_absent(self) -> bool {
        self == Self::ABSENT
    }
}

/// The labels of all nodes, as far as rules name them.
#[derive(Debug, Default)]
pub(crate) struct NodeLabels {
    keys: BTreeMap<Name, Key>,
    /// Not a label: the name, which `matchFields` sees.
    node_name: Option<Key>,
    columns: Column<Key, LabelColumn>,
}

#[derive(Debug)]
struct LabelColumn {
    values: BTreeMap<Name, Value>,
    of_node: Column<NodeIdx, Value>,
}

impl LabelColumn {
    fn new<'a>(values: impl Iterator<Item = Option<&'a Name>>) -> Self {
        let mut numbers = BTreeMap::new();
        let of_node = values
            .map(|value| {
                let Some(value) = value else { return Value::ABSENT };
                if let Some(number) = numbers.get(value) {
                    return *number;
                }
                let number = Value::new(numbers.len() + 1);
                numbers.insert(value.clone(), number);
                number
            })
            .collect();
        Self { values: numbers, of_node }
    }
}

impl NodeLabels {
    /// The row of a key; a key that is new gets a column.
    pub(crate) fn key(&mut self, cluster: &Cluster, name: &Name) -> Key {
        if let Some(key) = self.keys.get(name) {
            return *key;
        }
        let nodes = cluster.nodes.facts.values();
        let key = self.columns.push(LabelColumn::new(nodes.map(|facts| facts.labels.get(name))));
        self.keys.insert(name.clone(), key);
        key
    }

    /// The row of the node's name: a key of which every node has its own value.
    pub(crate) fn node_name(&mut self, cluster: &Cluster) -> Key {
        if let Some(key) = self.node_name {
            return key;
        }
        let nodes = cluster.nodes.facts.values();
        let key = self.columns.push(LabelColumn::new(nodes.map(|facts| Some(&facts.name))));
        self.node_name = Some(key);
        key
    }

    /// What a node gives a key.
    pub(crate) fn value(&self, key: Key, node: NodeIdx) -> Value {
        self.columns[key].of_node[node]
    }

    /// Whether a node carries a key.
    pub(crate) fn has(&self, key: Key, node: NodeIdx) -> bool {
        !self.value(key, node).is_absent()
    }

    /// The number of a value that some node gives the key.
    pub(crate) fn find(&self, key: Key, value: &Name) -> Option<Value> {
        self.columns[key].values.get(value).copied()
    }

    /// The values that nodes give a key.
    pub(crate) fn values(&self, key: Key) -> impl Iterator<Item = (&Name, Value)> {
        self.columns[key].values.iter().map(|(name, value)| (name, *value))
    }

    /// One more than the largest number of a value of the key.
    pub(crate) fn n_values(&self, key: Key) -> usize {
        self.columns[key].values.len() + 1
    }
}
