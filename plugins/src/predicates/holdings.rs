//! What tasks hold on their node and others cannot have beside them: host ports and disks.
//!
//! Source: Kubernetes 1.36, `plugins/nodeports` and `volumerestrictions`.

use std::collections::BTreeMap;

use kube_batch_api::{
    cluster::Cluster,
    column::{Column, NodeIdx},
    facts::class::{Disk, HostPort, PodTemplate},
    name::Name,
};
use kube_batch_framework::plugin::Capacity;

use crate::{
    constraint_classes::{ConstraintClassIdx, ConstraintClasses},
    rows::row_type,
    topology_counts::{PodCount, PodCountChange},
};

row_type! {
    /// Row of a thing that can be held.
    Item,
}

/// Who holds what on which node.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// What a task of the constraint class holds on its node.
    held: Column<ConstraintClassIdx, Vec<Item>>,
    /// What must not be held on a node for a task of the constraint class to go there.
    clashes: Column<ConstraintClassIdx, Vec<Item>>,
    holders: Column<NodeIdx, BTreeMap<Item, PodCount>>,
}

impl Holdings {
    /// Host ports: equal protocol and number, and equal addresses or one that is all addresses.
    pub(super) fn of_ports(cluster: &Cluster, classes: &ConstraintClasses) -> Self {
        Self::new(cluster, classes, |template| &template.host_ports, ports_clash)
    }

    /// Disks named in the pod.
    pub(super) fn of_disks(cluster: &Cluster, classes: &ConstraintClasses) -> Self {
        Self::new(cluster, classes, |template| &template.disks, disks_clash)
    }

    fn new<T: Ord>(
        cluster: &Cluster,
        classes: &ConstraintClasses,
        things: fn(&PodTemplate) -> &Vec<T>,
        clash: fn(&T, &T) -> bool,
    ) -> Self {
        let things = |constraint_class| things(classes.template(cluster, constraint_class)).iter();
        let mut holdings = Self {
            held: Column::filled(Vec::new(), classes.len()),
            clashes: Column::filled(Vec::new(), classes.len()),
            holders: Column::filled(BTreeMap::new(), cluster.nodes.facts.len()),
        };
        if classes.to_place().all(|constraint_class| things(constraint_class).next().is_none()) {
            return holdings;
        }
        let mut items = BTreeMap::<&T, Item>::new();
        let mut rows = Column::<Item, &T>::new();
        for constraint_class in classes.present() {
            let own = things(constraint_class)
                .map(|thing| *items.entry(thing).or_insert_with(|| rows.push(thing)));
            holdings.held[constraint_class] = own.collect();
        }
        for constraint_class in classes.to_place() {
            let clashing = rows
                .iter()
                .filter(|(_, other)| things(constraint_class).any(|own| clash(own, other)));
            holdings.clashes[constraint_class] = clashing.map(|(item, _)| item).collect();
        }
        holdings
    }

    /// Whether the constraint class can be kept from a node by what is held there.
    pub(super) fn concerns(&self, constraint_class: ConstraintClassIdx) -> bool {
        !self.clashes[constraint_class].is_empty()
    }

    /// Whether something is held on the node that a task of the constraint class cannot have beside it.
    pub(super) fn clashes(
        &self,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> bool {
        let holders = &self.holders[node];
        let is_held = |item| holders.get(item).is_some_and(|count| count.of(capacity) > 0);
        !holders.is_empty() && self.clashes[constraint_class].iter().any(is_held)
    }

    /// A task of the constraint class came to a node or left it.
    pub(super) fn moved(
        &mut self,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
        change: PodCountChange,
    ) {
        for item in &self.held[constraint_class] {
            let count = self.holders[node].entry(*item).or_default();
            count.apply(change);
            if count.is_zero() {
                self.holders[node].remove(item);
            }
        }
    }
}

fn ports_clash(left: &HostPort, right: &HostPort) -> bool {
    let is_every = |address: &Name| **address == *"0.0.0.0";
    left.port == right.port
        && left.protocol == right.protocol
        && (left.address == right.address || is_every(&left.address) || is_every(&right.address))
}

/// The same disk, unless both only read it; an Amazon volume even then.
fn disks_clash(left: &Disk, right: &Disk) -> bool {
    match (left, right) {
        (Disk::Gce { name: l, read_only: l_reads }, Disk::Gce { name: r, read_only: r_reads }) => {
            l == r && !(*l_reads && *r_reads)
        }
        (Disk::Aws { id: l }, Disk::Aws { id: r }) => l == r,
        (
            Disk::Iscsi { iqn: l, read_only: l_reads },
            Disk::Iscsi { iqn: r, read_only: r_reads },
        ) => l == r && !(*l_reads && *r_reads),
        (
            Disk::Rbd { monitors: l, pool: l_pool, image: l_image, read_only: l_reads },
            Disk::Rbd { monitors: r, pool: r_pool, image: r_image, read_only: r_reads },
        ) => {
            let shares_a_monitor = l.iter().any(|monitor| r.contains(monitor));
            (l_pool, l_image) == (r_pool, r_image) && shares_a_monitor && !(*l_reads && *r_reads)
        }
        (Disk::Gce { .. } | Disk::Aws { .. } | Disk::Iscsi { .. } | Disk::Rbd { .. }, _) => false,
    }
}
