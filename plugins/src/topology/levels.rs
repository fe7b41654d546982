//! The domains of each level.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_api::{
    cluster::Cluster,
    column::{Column, DomainIdx, NodeIdx, Ordinal},
    name::Name,
};
use kube_batch_framework::topology::Level;

use super::resolve::LevelPath;
use crate::node_labels::{LabelColumn, NodeLabels};

/// Makes each level once.
pub(super) struct LevelMaker<'a> {
    cluster: &'a Cluster,
    labels: &'a NodeLabels,
    made: BTreeMap<LevelPath, Arc<Level>>,
}

impl<'a> LevelMaker<'a> {
    pub(super) const fn new(cluster: &'a Cluster, labels: &'a NodeLabels) -> Self {
        Self { cluster, labels, made: BTreeMap::new() }
    }

    /// The level of these labels.
    pub(super) fn level(&mut self, path: &LevelPath) -> Arc<Level> {
        if let Some(level) = self.made.get(path) {
            return Arc::clone(level);
        }
        let level = Arc::new(self.make(self.made.len(), path));
        self.made.insert(path.clone(), Arc::clone(&level));
        level
    }

    fn make(&self, number: usize, path: &LevelPath) -> Level {
        let columns: Vec<Arc<LabelColumn>> =
            path.keys().iter().map(|key| self.labels.column(self.cluster, key)).collect();
        let needed: Vec<Arc<LabelColumn>> =
            path.needed().map(|key| self.labels.column(self.cluster, key)).collect();
        let nodes = || self.cluster.nodes.facts.ids();
        // Equal numbers stand for equal values of all labels so far; they are in the order of the values.
        let mut numbers: Column<NodeIdx, u64> = Column::filled(0, nodes().len());
        for column in &columns {
            let ranks = ranks(column);
            for node in nodes() {
                let n_values = column.n_values() as u64;
                numbers[node] = numbers[node] * n_values + ranks[column.value(node).at()];
            }
            number_anew(&mut numbers);
        }
        let is_member = |node: &NodeIdx| needed.iter().all(|column| column.has(*node));
        let mut firsts: BTreeMap<u64, NodeIdx> = BTreeMap::new();
        for node in nodes().filter(is_member) {
            firsts.entry(numbers[node]).or_insert(node);
        }
        let rows: BTreeMap<u64, DomainIdx> =
            firsts.keys().enumerate().map(|(row, number)| (*number, DomainIdx::new(row))).collect();
        let domain = |node: NodeIdx| rows.get(&numbers[node]).copied().filter(|_| is_member(&node));
        let names = self.names(path, firsts.values());
        Level::new(number, path.key().clone(), names, nodes().map(domain).collect())
    }

    /// The name of the domain of each of these nodes: the value of its label, with the values of the broader
    /// labels in front if there are several domains of this name.
    fn names<'n>(
        &self,
        path: &LevelPath,
        firsts: impl Iterator<Item = &'n NodeIdx>,
    ) -> Column<DomainIdx, Name> {
        let value = |node: NodeIdx, key: &Name| {
            self.cluster.nodes.facts[node].labels.get(key).cloned().unwrap_or_default()
        };
        let firsts: Vec<NodeIdx> = firsts.copied().collect();
        let mut n_domains: BTreeMap<Name, usize> = BTreeMap::new();
        for node in &firsts {
            *n_domains.entry(value(*node, path.key())).or_default() += 1;
        }
        let name = |node: &NodeIdx| {
            let own = value(*node, path.key());
            if n_domains[&own] == 1 {
                return own;
            }
            let values = path.keys().iter().map(|key| value(*node, key));
            Name::from(values.collect::<Vec<_>>().join("/"))
        };
        firsts.iter().map(name).collect()
    }
}

/// The position of each value among those of its label by name; a node without the label is the first.
fn ranks(column: &LabelColumn) -> Vec<u64> {
    let mut ranks = vec![0; column.n_values()];
    for (rank, (_, value)) in column.values().enumerate() {
        ranks[value.at()] = rank as u64 + 1;
    }
    ranks
}

/// Replaces numbers by their positions among the different ones, so that they stay small.
fn number_anew(numbers: &mut Column<NodeIdx, u64>) {
    let mut different: Vec<u64> = numbers.values().copied().collect();
    different.sort_unstable();
    different.dedup();
    for number in numbers.values_mut() {
        let at = different.binary_search(number).expect("it is among them");
        *number = at as u64;
    }
}
