//! The devices of the cluster, and how many there are of each class.
//!
//! They are sorted into nodes once, and again only when slices, classes, rules about taints, or names and labels
//! of nodes have changed: the tables are kept with the objects that they are derived from.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use kube_batch_devices::{
    devices_of_class::DevicesOfClass, extended::class_for, inventory::Inventory,
    selectors::Selectors, usage::Held, wanted::AllWanted,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{Column, Dim, NodeIdx},
    devices::{devices_of_class, physical_devices_of_class},
    facts::{
        device::{
            claim::ResourceClaimFacts,
            class::{DeviceClassFacts, implicit_resource},
            request::Wanted,
        },
        node::NodeFacts,
    },
    name::{Name, ObjectKey},
    resource::{MAX_AMOUNT, ResourceVector},
};

use crate::device_groups::Groups;

/// What searches for devices read.
#[derive(Debug)]
pub(crate) struct DeviceTables {
    nodes: Column<NodeIdx, Arc<NodeFacts>>,
    pub(crate) inventory: Inventory,
    /// The devices of each class, and whether one of them can be shared.
    by_class: BTreeMap<Name, (DevicesOfClass, bool)>,
    groups: Groups,
    /// What the requests of the last session wanted.
    kept: Mutex<(Selectors, AllWanted)>,
    /// The devices that claims held when the last session opened.
    held: Mutex<Vec<HeldBy>>,
}

/// A claim, and the devices of its allocation; none if it is not allocated.
pub(crate) type HeldBy = (Arc<ResourceClaimFacts>, Arc<Held>);

impl DeviceTables {
    /// The tables of a cluster.
    pub(crate) fn of(cluster: &Cluster) -> Arc<Self> {
        let published = &cluster.devices.published;
        let kept = published.derived.get::<Self>();
        kept.filter(|tables| tables.are_about(&cluster.nodes.facts)).unwrap_or_else(|| {
            let new = Arc::new(Self::new(cluster));
            published.derived.put(Arc::clone(&new));
            new
        })
    }

    /// Whether nodes have the names and labels that the tables were made with.
    fn are_about(&self, nodes: &Column<NodeIdx, Arc<NodeFacts>>) -> bool {
        let is_same = |(own, other): (&Arc<NodeFacts>, &Arc<NodeFacts>)| {
            Arc::ptr_eq(own, other) || own.name == other.name && own.labels == other.labels
        };
        self.nodes.len() == nodes.len() && self.nodes.values().zip(nodes.values()).all(is_same)
    }

    fn new(cluster: &Cluster) -> Self {
        let published = &cluster.devices.published;
        let rules: Vec<_> = published.taint_rules.values().cloned().collect();
        let nodes = &cluster.nodes.facts;
        let inventory = Inventory::new(nodes, published.slices.values(), &rules);
        let (mut selectors, mut wanted) = (Selectors::default(), AllWanted::default());
        let mut by_class = BTreeMap::new();
        for class in published.classes.values() {
            // Administrators write classes.
            let mut budget = u64::MAX;
            let any = Wanted::of_class(&class.name, 1);
            let row = wanted.row(&inventory, &mut selectors, (&any, class), &mut budget);
            let all = DevicesOfClass::of(&inventory, wanted.get(row));
            let has_shares = all.has_shares(&inventory);
            by_class.insert(class.name.clone(), (all, has_shares));
        }
        let (kept, held) = (Mutex::new((selectors, wanted)), Mutex::default());
        let groups =
            Groups::new(&inventory, by_class.iter().map(|(name, (devices, _))| (name, devices)));
        Self { nodes: nodes.clone(), inventory, by_class, groups, kept, held }
    }

    /// What the last session knew of expressions and requests, to begin the next one with.
    pub(crate) fn known(&self) -> (Selectors, AllWanted) {
        let (mut selectors, wanted) = self.lock().clone();
        let wanted = wanted.again(&mut selectors);
        (selectors, wanted)
    }

    /// The classes whose devices are counted as parts of physical ones.
    pub(crate) const fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Keeps what a session knows of expressions and requests.
    pub(crate) fn keep(&self, selectors: &Selectors, wanted: &AllWanted) {
        *self.lock() = (selectors.clone(), wanted.clone());
    }

    /// The devices that each claim holds. Only those of claims that are new or have changed since the last session are
    /// looked up.
    pub(crate) fn held(
        &self,
        claims: &BTreeMap<ObjectKey, Arc<ResourceClaimFacts>>,
    ) -> Vec<HeldBy> {
        let mut last = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = std::mem::take(&mut *last).into_iter().peekable();
        let held = claims.values().map(|facts| {
            let is_same = |(other, _): &HeldBy| Arc::ptr_eq(other, facts);
            if let Some(same) = known.next_if(is_same) {
                return same;
            }
            while known.next_if(|(other, _)| other.key < facts.key).is_some() {}
            known.next_if(is_same).unwrap_or_else(|| {
                let of = |allocation| Held::of(&self.inventory, allocation);
                let devices = facts.allocation.as_ref().map_or_else(Held::default, of);
                (Arc::clone(facts), Arc::new(devices))
            })
        });
        let held: Vec<HeldBy> = held.collect();
        last.clone_from(&held);
        held
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Selectors, AllWanted)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many devices of a class there are for a resource that it stands for. Of the devices of nodes that take no
    /// new pods, those count that are in use; those of nodes that advertise the resource do not count.
    fn total(&self, cluster: &Cluster, class: &Name, dim: Dim) -> i64 {
        let Some((all, has_shares)) = self.by_class.get(class) else { return 0 };
        if *has_shares {
            return MAX_AMOUNT;
        }
        let nodes = &cluster.nodes.allocatable;
        let is_advertised = |node: Option<NodeIdx>| node.is_some_and(|node| nodes[node][dim] != 0);
        let counts = all.iter().map(|(node, devices)| (node, devices.len()));
        usable(cluster, dim, counts.filter(|(node, _)| !is_advertised(*node)))
    }
}

/// Number of usable devices, in thousandths. `counts` has the number of devices of each node; `None` stands for those
/// that several nodes can use. Of a node that takes no new pods, only devices in use count.
fn usable(
    cluster: &Cluster,
    dim: Dim,
    counts: impl Iterator<Item = (Option<NodeIdx>, usize)>,
) -> i64 {
    let nodes = &cluster.nodes;
    let amounts = counts.map(|(node, n_devices)| {
        let amount = 1000 * n_devices as i64;
        match node {
            Some(node) if !nodes.facts[node].is_usable() => nodes.used[node][dim].clamp(0, amount),
            Some(_) | None => amount,
        }
    });
    amounts.sum()
}

/// How many devices there are for each resource that classes stand for, beside what nodes advertise, in
/// thousandths.
// Parity: see docs/parity.md#v8.
pub fn device_totals(cluster: &Cluster) -> ResourceVector {
    let mut totals = ResourceVector::zero(cluster.dimensions.len());
    let classes = &cluster.devices.published.classes;
    if classes.is_empty() {
        return totals;
    }
    let tables = DeviceTables::of(cluster);
    for class in classes.values() {
        let extended = class.extended_resource.iter().filter(|resource| {
            class_for(classes, resource)
                .is_some_and(|own: &DeviceClassFacts| own.name == class.name)
        });
        let names = [devices_of_class(&class.name), implicit_resource(&class.name)];
        for name in names.iter().chain(extended) {
            if let Some(dim) = cluster.dimensions.get(name) {
                totals[dim] = tables.total(cluster, &class.name, dim);
            }
        }
    }
    for group in tables.groups.ids() {
        let name = physical_devices_of_class(tables.groups.name(group));
        if let Some(dim) = cluster.dimensions.get(&name) {
            totals[dim] = usable(cluster, dim, tables.groups.counts(group));
        }
    }
    totals
}
