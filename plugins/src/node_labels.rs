//! Node labels as small numbers.
//!
//! Rules about nodes compare label values over and over. Here each label key that a rule names
//! becomes a column, and each of its values a number, so that no string is compared once the session
//! is open. Nodes with the same value of a key are one topology domain of that key. A key that no
//! rule names costs nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use kube_batch_model::{
    cluster::Cluster,
    column::{Column, NodeIdx, Ordinal},
    facts::node::NodeFacts,
    name::Name,
};

use kube_batch_framework::plugin::DomainColumn;

kube_batch_model::row_type! {
    /// Number of a label column.
    pub(crate) Key,
    /// Number of a value of one key; a domain of that key.
    pub(crate) Value,
}

impl Value {
    /// The node does not have the label.
    pub(crate) const ABSENT: Self = Self(0);

    pub(crate) fn is_absent(self) -> bool {
        self == Self::ABSENT
    }
}

/// The values that nodes have for one label key.
#[derive(Debug)]
pub(crate) struct LabelColumn {
    key: Key,
    numbers: BTreeMap<Name, Value>,
    of_node: Column<NodeIdx, Value>,
    /// Number of nodes with each value.
    n_nodes: Column<Value, u32>,
}

impl LabelColumn {
    fn new<'a>(key: usize, values: impl Iterator<Item = Option<&'a Name>>) -> Self {
        let mut numbers = BTreeMap::new();
        // Nodes with adjacent names mostly have the same value.
        let mut last: (Option<&Name>, Value) = (None, Value::ABSENT);
        let of_node: Column<NodeIdx, Value> = values
            .map(|value| {
                if value == last.0 {
                    return last.1;
                }
                let number = match value.map(|value| (value, numbers.get(value))) {
                    None => Value::ABSENT,
                    Some((_, Some(number))) => *number,
                    Some((value, None)) => {
                        let number = Value::new(numbers.len() + 1);
                        numbers.insert(value.clone(), number);
                        number
                    }
                };
                last = (value, number);
                number
            })
            .collect();
        let mut n_nodes = Column::filled(0, numbers.len() + 1);
        for value in of_node.values() {
            n_nodes[*value] += 1;
        }
        Self { key: Key::new(key), numbers, of_node, n_nodes }
    }

    /// The number of the column: different keys have different numbers.
    pub(crate) const fn key(&self) -> Key {
        self.key
    }

    /// The value of a node.
    pub(crate) fn value(&self, node: NodeIdx) -> Value {
        self.of_node[node]
    }

    /// The value of each node, as a number.
    pub(crate) fn numbers(&self) -> DomainColumn {
        self.of_node.values().map(|value| value.at() as u32).collect()
    }

    /// All nodes, ascending.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeIdx> + use<> {
        self.of_node.ids()
    }

    /// Whether a node has the label.
    pub(crate) fn has(&self, node: NodeIdx) -> bool {
        !self.value(node).is_absent()
    }

    /// Whether some node has the label.
    pub(crate) fn has_values(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Whether no other node has the value of the node.
    pub(crate) fn is_alone(&self, node: NodeIdx) -> bool {
        self.n_nodes[self.value(node)] == 1
    }

    /// The number of a value, if some node has it.
    pub(crate) fn find(&self, value: &Name) -> Option<Value> {
        self.numbers.get(value).copied()
    }

    /// The values that nodes have.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&Name, Value)> {
        self.numbers.iter().map(|(name, value)| (name, *value))
    }

    /// One more than the largest number of a value.
    pub(crate) fn n_values(&self) -> usize {
        self.numbers.len() + 1
    }
}

/// The label columns of a session. A column is built when a rule first names its key, whichever
/// plugin the rule belongs to.
#[derive(Debug, Default)]
pub(crate) struct NodeLabels {
    columns: Mutex<Columns>,
}

#[derive(Debug, Default)]
struct Columns {
    by_key: BTreeMap<Name, Arc<LabelColumn>>,
    /// Not a label: the node's name, which `matchFields` compares.
    node_name: Option<Arc<LabelColumn>>,
    /// The keys that nodes have.
    known: BTreeSet<Name>,
    /// The column of every key that no node has: any user may name thousands of them.
    absent: Option<Arc<LabelColumn>>,
}

impl Columns {
    fn len(&self) -> usize {
        self.by_key.len()
            + usize::from(self.node_name.is_some())
            + usize::from(self.absent.is_some())
    }

    /// The column of all keys that no node has. With the first one it collects the keys that nodes have.
    fn absent(&mut self, cluster: &Cluster) -> &Arc<LabelColumn> {
        let number = self.len();
        self.absent.get_or_insert_with(|| {
            let mut last: Option<&NodeFacts> = None;
            for facts in cluster.nodes.facts.values() {
                // Most nodes have the same keys.
                let is_equal = |last: &NodeFacts| {
                    let (own, other) = (facts.labels.iter(), last.labels.iter());
                    own.map(|(key, _)| key).eq(other.map(|(key, _)| key))
                };
                if !last.is_some_and(is_equal) {
                    self.known.extend(facts.labels.iter().map(|(key, _)| key.clone()));
                }
                last = Some(&**facts);
            }
            Arc::new(LabelColumn::new(number, cluster.nodes.facts.values().map(|_| None)))
        })
    }
}

impl NodeLabels {
    /// The column of a label key.
    pub(crate) fn column(&self, cluster: &Cluster, key: &Name) -> Arc<LabelColumn> {
        let mut columns = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(column) = columns.by_key.get(key) {
            return Arc::clone(column);
        }
        let absent = Arc::clone(columns.absent(cluster));
        if !columns.known.contains(key) {
            return absent;
        }
        let values = cluster.nodes.facts.values().map(|facts| facts.labels.get(key));
        let column = Arc::new(LabelColumn::new(columns.len(), values));
        columns.by_key.insert(key.clone(), Arc::clone(&column));
        column
    }

    /// A column in which the value of every node is its name.
    pub(crate) fn node_name(&self, cluster: &Cluster) -> Arc<LabelColumn> {
        let mut columns = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        let number = columns.len();
        let column = columns.node_name.get_or_insert_with(|| {
            let names = cluster.nodes.facts.values().map(|facts| Some(&facts.name));
            Arc::new(LabelColumn::new(number, names))
        });
        Arc::clone(column)
    }
}
