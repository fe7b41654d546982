//! What changes in place for the whole cluster: nodes, queues and budgets.

use std::sync::Arc;

use kube_batch_model::{
    cluster::Cluster,
    column::{Column, NodeIdx, Ordinal},
    facts::{node::NodeFacts, policy::BudgetFacts},
    name::Name,
    resource::ResourceList,
};

use super::changed::{Changed, FormerFacts};
use crate::{
    snapshot::{
        budgets_of,
        queues::{tree_of, write_columns, write_namespace, write_selected},
    },
    store::Store,
};

/// Writes changed nodes; `None` if there are others, or other resources.
pub(super) fn write_nodes(
    cluster: &mut Cluster,
    store: &Store,
    changed: &FormerFacts<Name, NodeFacts>,
) -> Option<()> {
    for (name, before) in changed {
        let (before, after) = (before.as_ref()?, store.nodes.get(name)?);
        if !have_same_names(&before.allocatable, &after.allocatable) {
            return None;
        }
        let node = row_of_node(&cluster.nodes.facts, name)?;
        let dimensions = &cluster.dimensions;
        let amounts = dimensions.vector(&after.allocatable);
        let (had, has) =
            (dimensions.idle(&cluster.nodes.allocatable[node]), dimensions.idle(&amounts));
        for dim in dimensions.ids() {
            cluster.nodes.allocatable[node][dim] = amounts[dim];
            cluster.nodes.idle[node][dim] += has[dim] - had[dim];
        }
        cluster.nodes.facts[node] = Arc::clone(after);
    }
    Some(())
}

/// The row of a node; they are in name order.
pub(super) fn row_of_node(nodes: &Column<NodeIdx, Arc<NodeFacts>>, name: &Name) -> Option<NodeIdx> {
    let row = nodes.values().as_slice().binary_search_by(|facts| facts.name.cmp(name));
    row.ok().map(NodeIdx::new)
}

/// Writes changed queues; `None` if there are others, or other resources.
pub(super) fn write_queues(cluster: &mut Cluster, store: &Store, changed: &Changed) -> Option<()> {
    let mut has_moved = false;
    for (name, _) in changed.queues.keys() {
        let row = cluster.queues.facts.iter().find(|(_, facts)| facts.name == *name);
        let Some((row, before)) = row else {
            // It was new and is gone already, or is new.
            if store.queue(name).is_none() { continue } else { return None }
        };
        let after = store.queue(name)?;
        let is_same = before.created == after.created
            && have_same_names(&before.capability, &after.capability)
            && have_same_names(&before.deserved, &after.deserved)
            && have_same_names(&before.guarantee, &after.guarantee);
        if !is_same {
            return None;
        }
        has_moved |= before.parent != after.parent || before.is_top != after.is_top;
        // A status changes often, and there may be thousands of namespaces.
        let selects_others = before.namespace_selector != after.namespace_selector;
        cluster.queues.facts[row] = Arc::clone(after);
        write_columns(&mut cluster.queues, row, &cluster.dimensions);
        if selects_others {
            write_selected(&mut cluster.queues, row, store);
        }
    }
    for namespace in &changed.namespaces {
        write_namespace(&mut cluster.queues, namespace, store);
    }
    if has_moved {
        let tree = tree_of(&cluster.queues.facts);
        cluster.queues.set_tree(tree);
    }
    Some(())
}

/// Writes changed budgets; `None` if one of them is a minimum of a job.
pub(super) fn write_budgets(cluster: &mut Cluster, store: &Store, changed: &Changed) -> Option<()> {
    if changed.budgets.is_empty() {
        return Some(());
    }
    let minimum = |budget: &BudgetFacts| {
        let BudgetFacts { created, controller, min_available, .. } = budget;
        controller.as_ref().map(|controller| (controller.clone(), *created, *min_available))
    };
    for (key, before) in &changed.budgets {
        let after = store.budgets.get(key).and_then(|budget| minimum(budget));
        if before.as_ref().and_then(|budget| minimum(budget)) != after {
            return None;
        }
    }
    cluster.budgets = budgets_of(store);
    Some(())
}

/// Whether the same resources are in both lists: so the dimensions are the same.
fn have_same_names(l: &ResourceList, r: &ResourceList) -> bool {
    l.iter().map(|(name, _)| name).eq(r.iter().map(|(name, _)| name))
}
