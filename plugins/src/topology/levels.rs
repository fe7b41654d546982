//! The domains of each level.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_framework::topology::Level;
use kube_batch_model::{
    cluster::Cluster,
    column::{Column, DomainIdx, NodeIdx, Ordinal},
    name::Name,
};

use super::resolve::LevelPath;
use crate::node_labels::{LabelColumn, NodeLabels};

/// Makes each level once.
pub(super) struct LevelMaker<'a> {
    cluster: &'a Cluster,
    labels: &'a NodeLabels,
    made: BTreeMap<LevelPath, Arc<Level>>,
    /// By labels: see [`Self::numbers`].
    numbers: BTreeMap<Vec<Name>, Arc<Column<NodeIdx, usize>>>,
}

impl<'a> LevelMaker<'a> {
    pub(super) const fn new(cluster: &'a Cluster, labels: &'a NodeLabels) -> Self {
        Self { cluster, labels, made: BTreeMap::new(), numbers: BTreeMap::new() }
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

    fn make(&mut self, number: usize, path: &LevelPath) -> Level {
        let needed: Vec<Arc<LabelColumn>> =
            path.needed().map(|key| self.labels.column(self.cluster, key)).collect();
        let is_member = |node: NodeIdx| needed.iter().all(|column| column.has(node));
        let numbers = self.numbers(path.keys());
        let n_numbers = numbers.values().max().map_or(0, |last| last + 1);
        // The first node of each domain.
        let mut firsts: Vec<Option<NodeIdx>> = vec![None; n_numbers];
        for (node, number) in numbers.iter().filter(|(node, _)| is_member(*node)) {
            firsts[*number].get_or_insert(node);
        }
        let mut rows: Vec<Option<DomainIdx>> = vec![None; n_numbers];
        let members = firsts.iter().enumerate().filter(|(_, first)| first.is_some());
        for (row, (number, _)) in members.enumerate() {
            rows[number] = Some(DomainIdx::new(row));
        }
        let domain = |(node, number): (NodeIdx, &usize)| rows[*number].filter(|_| is_member(node));
        let names = self.names(path, firsts.into_iter().flatten().collect());
        Level::new(number, path.key().clone(), names, numbers.iter().map(domain).collect())
    }

    /// A number for each node: equal numbers stand for equal values of these labels, and the numbers are in the
    /// order of the values.
    fn numbers(&mut self, keys: &[Name]) -> Arc<Column<NodeIdx, usize>> {
        let n_nodes = self.cluster.nodes.facts.len();
        let Some((last, broader)) = keys.split_last() else {
            return Arc::new(Column::filled(0, n_nodes));
        };
        if let Some(numbers) = self.numbers.get(keys) {
            return Arc::clone(numbers);
        }
        let broader = self.numbers(broader);
        let column = self.labels.column(self.cluster, last);
        let ranks = ranks(&column);
        let pairs = broader.iter().map(|(node, number)| {
            (number * column.n_values() + ranks[column.value(node).at()]) as u64
        });
        let numbers = Arc::new(dense(&pairs.collect::<Vec<u64>>()));
        self.numbers.insert(keys.to_vec(), Arc::clone(&numbers));
        numbers
    }

    /// The name of the domain of each of these nodes: the value of its label, with the values of the broader
    /// labels in front if there are several domains of this name.
    fn names(&self, path: &LevelPath, firsts: Vec<NodeIdx>) -> Column<DomainIdx, Name> {
        let value = |node: NodeIdx, key: &Name| {
            self.cluster.nodes.facts[node].labels.get(key).cloned().unwrap_or_default()
        };
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
fn ranks(column: &LabelColumn) -> Vec<usize> {
    let mut ranks = vec![0; column.n_values()];
    for (rank, (_, value)) in column.values().enumerate() {
        ranks[value.at()] = rank + 1;
    }
    ranks
}

/// The position of each number among the different ones.
fn dense(numbers: &[u64]) -> Column<NodeIdx, usize> {
    let largest = numbers.iter().max().copied().unwrap_or(0);
    // Broader labels mostly follow from the narrower ones, so that there are few different pairs.
    let is_small = largest < 16 * numbers.len() as u64;
    if !is_small {
        let mut different = numbers.to_vec();
        different.sort_unstable();
        different.dedup();
        return numbers
            .iter()
            .map(|number| different.partition_point(|own| own < number))
            .collect();
    }
    let mut positions = vec![0; largest as usize + 1];
    numbers.iter().for_each(|number| positions[*number as usize] = 1);
    let mut next = 0;
    for position in &mut positions {
        next += std::mem::replace(position, next);
    }
    numbers.iter().map(|number| positions[*number as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_numbers_keep_their_order() {
        let of = |numbers: &[u64]| dense(numbers).values().copied().collect::<Vec<_>>();
        assert_eq!(of(&[]), [0; 0]);
        assert_eq!(of(&[5, 2, 5, 9]), [1, 0, 1, 2]);
        assert_eq!(of(&[5, 2, 5, 9_000_000_000]), [1, 0, 1, 2], "too large for a table");
    }
}
