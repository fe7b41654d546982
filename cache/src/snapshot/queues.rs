//! Queues, as a snapshot has them.

use std::{collections::HashMap, sync::Arc};

use kube_batch_model::{
    cluster::{Queues, SelectedNamespaces},
    column::{Column, Dim, QueueIdx},
    facts::{node::NamespaceFacts, queue::QueueFacts},
    name::Name,
    queue_tree::QueueTree,
    resource::{Dimensions, Ledger, ResourceList},
    selector::{LabelSelector, Labels},
};

use crate::store::Store;

/// The queues in order of creation, then name, without jobs and sums.
pub(super) fn queues_of(
    queues: Vec<&Arc<QueueFacts>>,
    dimensions: &Dimensions,
    store: &Store,
) -> Queues {
    let mut facts: Vec<_> = queues.into_iter().map(Arc::clone).collect();
    facts.sort_by(|l, r| (l.created, &l.name).cmp(&(r.created, &r.name)));
    let nothing = Ledger::zero(dimensions.len(), facts.len());
    let n_queues = facts.len();
    let mut queues = Queues {
        held: nothing.clone(),
        leaving: nothing.clone(),
        stuck: nothing,
        tree: QueueTree::default(),
        capability: Column::filled(Vec::new(), n_queues),
        deserved: Column::filled(Vec::new(), n_queues),
        guarantee: Column::filled(Vec::new(), n_queues),
        namespaces: Column::filled(None, n_queues),
        jobs: Column::filled(Vec::new(), n_queues),
        facts: facts.into_iter().collect(),
    };
    for queue in queues.facts.ids() {
        write_columns(&mut queues, queue, dimensions);
        write_selected(&mut queues, queue, store);
    }
    queues.tree = tree_of(&queues.facts);
    queues
}

/// Which queue is below which.
pub(crate) fn tree_of(facts: &Column<QueueIdx, Arc<QueueFacts>>) -> QueueTree {
    let parents = facts.values().map(|facts| facts.parent.clone()).collect();
    let rows: HashMap<&Name, QueueIdx> =
        facts.iter().map(|(row, facts)| (&facts.name, row)).collect();
    let top = facts.iter().find(|(_, facts)| facts.is_top).map(|(row, _)| row);
    QueueTree::new(&parents, |name| rows.get(name).copied(), top)
}

/// Writes the amounts of one queue.
pub(crate) fn write_columns(queues: &mut Queues, row: QueueIdx, dimensions: &Dimensions) {
    let facts = &queues.facts[row];
    let amounts = |list: &ResourceList| -> Vec<(Dim, i64)> {
        let known = list.iter().filter_map(|(name, amount)| Some((dimensions.get(name)?, amount)));
        known.collect()
    };
    queues.capability[row] = amounts(&facts.capability);
    // Parity: the slots of pods are only limited, see docs/parity.md#q3.
    let promised = |list| amounts(list).into_iter().filter(|(dim, _)| *dim != Dim::PODS).collect();
    queues.deserved[row] = promised(&facts.deserved);
    queues.guarantee[row] = promised(&facts.guarantee);
}

/// Writes which namespaces may use a queue, after its selector has changed.
pub(crate) fn write_selected(queues: &mut Queues, row: QueueIdx, store: &Store) {
    let selector = queues.facts[row].namespace_selector.as_ref();
    queues.namespaces[row] = selector.map(|selector| selected(selector, store));
}

fn selected(selector: &LabelSelector, store: &Store) -> SelectedNamespaces {
    let mut selected = SelectedNamespaces::by(selector);
    for NamespaceFacts { name, labels, .. } in store.namespaces.values().map(|facts| &**facts) {
        selected.set(name, selector.matches(labels));
    }
    selected
}

/// Follows the labels of a namespace.
pub(crate) fn write_namespace(queues: &mut Queues, namespace: &Name, store: &Store) {
    let none = Labels::default();
    let labels = store.namespaces.get(namespace).map_or(&none, |facts| &facts.labels);
    for (facts, selected) in queues.facts.values().zip(queues.namespaces.values_mut()) {
        if let Some((selector, selected)) = facts.namespace_selector.as_ref().zip(selected.as_mut())
        {
            selected.set(namespace, selector.matches(labels));
        }
    }
}
