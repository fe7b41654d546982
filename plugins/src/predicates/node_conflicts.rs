//! What two pods on one node cannot both use: host ports, and disks that pods name themselves.

use std::collections::BTreeMap;

use kube_batch_framework::plugin::Capacity;
use kube_batch_model::{
    column::{Column, NodeIdx},
    facts::class::PodTemplate,
    name::Name,
};

use crate::{
    compiled::Opening,
    constraint_classes::ConstraintClassIdx,
    pod_count::{Placed, PodCount},
};

kube_batch_model::row_type! {
    /// Row of a port or disk that some pod uses.
    pub(crate) Item,
}

/// Which items are in use on which node, and which of them conflict.
#[derive(Debug)]
pub(super) struct NodeConflicts {
    /// What a pod of the class uses on its node.
    uses: Column<ConstraintClassIdx, Vec<Item>>,
    /// What must not be in use on a node for a pod of the class to go there.
    conflicts: Column<ConstraintClassIdx, Vec<Item>>,
    users: Column<NodeIdx, BTreeMap<Item, PodCount>>,
}

impl NodeConflicts {
    /// Indexes the items that `items` reads from a template; two conflict if `conflict` holds, and only
    /// items with the same `bucket` are compared.
    pub(super) fn new<T: Ord>(
        opening: Opening<'_>,
        items: fn(&PodTemplate) -> &Vec<T>,
        bucket: fn(&T) -> (i32, &Name),
        conflict: fn(&T, &T) -> bool,
    ) -> Self {
        let classes = opening.classes();
        let items = |class| items(opening.template(class)).iter();
        let mut conflicts = Self {
            uses: opening.by_class(Vec::new()),
            conflicts: opening.by_class(Vec::new()),
            users: Column::filled(BTreeMap::new(), opening.cluster.nodes.facts.len()),
        };
        if classes.to_place().all(|class| items(class).next().is_none()) {
            return conflicts;
        }
        let mut by_value = BTreeMap::<&T, Item>::new();
        let mut rows = Column::<Item, &T>::new();
        for class in classes.present() {
            let own =
                items(class).map(|item| *by_value.entry(item).or_insert_with(|| rows.push(item)));
            conflicts.uses[class] = own.collect();
        }
        let mut by_bucket = BTreeMap::<(i32, &Name), Vec<Item>>::new();
        for (item, value) in rows.iter() {
            by_bucket.entry(bucket(value)).or_default().push(item);
        }
        for class in classes.to_place() {
            let conflicting = |own| {
                let others = by_bucket.get(&bucket(own)).into_iter().flatten().copied();
                others.filter(|other| conflict(own, rows[*other]))
            };
            let mut conflicting: Vec<Item> = items(class).flat_map(conflicting).collect();
            conflicting.sort_unstable();
            conflicting.dedup();
            conflicts.conflicts[class] = conflicting;
        }
        conflicts
    }

    /// Whether items in use can refuse a node to the class.
    pub(super) fn concern(&self, class: ConstraintClassIdx) -> bool {
        !self.conflicts[class].is_empty()
    }

    /// Whether something is in use on the node that conflicts with a pod of the class.
    pub(super) fn exist(
        &self,
        class: ConstraintClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> bool {
        let users = &self.users[node];
        let is_used = |item| users.get(item).is_some_and(|count| count.of(capacity) > 0);
        !users.is_empty() && self.conflicts[class].iter().any(is_used)
    }

    pub(super) fn on_placement(&mut self, placed: &Placed) {
        for item in &self.uses[placed.constraint_class] {
            for (node, change) in placed.counts() {
                let count = self.users[node].entry(*item).or_default();
                count.apply(change);
                if count.is_zero() {
                    self.users[node].remove(item);
                }
            }
        }
    }
}
