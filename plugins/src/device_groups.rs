//! Groups of classes that match the same physical devices.
//!
//! Classes that have a physical device in common form a group. A class is in no group if its devices are plain and
//! match no other class: they are counted as devices.
// Parity: see docs/parity.md#v8.

use std::collections::{BTreeMap, BTreeSet};

use kube_batch_devices::{
    devices_of_class::DevicesOfClass, hardware::Physical, inventory::Inventory, rows::DeviceIdx,
};
use kube_batch_model::{
    column::{Column, NodeIdx, Ordinal},
    facts::device::slice::CapacityFacts,
    name::Name,
};

kube_batch_model::row_type! {
    /// Row of a group of classes.
    pub(crate) GroupIdx,
    /// Row of a model of devices.
    pub(crate) ModelIdx,
}

/// A group of classes.
#[derive(Debug)]
struct Group {
    /// The first class by name, after which the resource is called.
    name: Name,
    /// The physical devices by the node that alone can use them; `None` for those that several nodes can use.
    of_nodes: BTreeMap<Option<NodeIdx>, BTreeSet<Physical>>,
}

/// The groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: Column<GroupIdx, Group>,
    of_class: BTreeMap<Name, GroupIdx>,
    of_physical: BTreeMap<Physical, GroupIdx>,
    /// The model of each device; empty if there are no groups.
    model: Column<DeviceIdx, ModelIdx>,
    n_models: usize,
}

/// What decides how much a request takes of the physical devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Model<'a> {
    /// What the whole device takes of them, in thousandths.
    part: i64,
    /// The capacities of a device that can be shared.
    capacity: Option<&'a BTreeMap<Name, CapacityFacts>>,
}

impl Groups {
    pub(crate) fn new<'a>(
        inventory: &Inventory,
        by_class: impl IntoIterator<Item = (&'a Name, &'a DevicesOfClass)>,
    ) -> Self {
        let classes: Vec<(&Name, &DevicesOfClass)> = by_class.into_iter().collect();
        let mut new = Self::default();
        for members in connected(inventory, &classes) {
            if let [only] = members[..]
                && is_plain(inventory, classes[only].1)
            {
                continue;
            }
            let mut of_nodes: BTreeMap<Option<NodeIdx>, BTreeSet<Physical>> = BTreeMap::new();
            let group = GroupIdx::new(new.groups.len());
            for (name, devices) in members.iter().map(|at| classes[*at]) {
                new.of_class.insert(name.clone(), group);
                for (node, rows) in devices.iter() {
                    for (physical, _) in rows.iter().flat_map(|row| inventory.parts(*row, None)) {
                        of_nodes.entry(node).or_default().insert(physical);
                        new.of_physical.insert(physical, group);
                    }
                }
            }
            new.groups.push(Group { name: classes[members[0]].0.clone(), of_nodes });
        }
        if !new.is_empty() {
            new.assign_models(inventory);
        }
        new
    }

    fn assign_models(&mut self, inventory: &Inventory) {
        let mut known: BTreeMap<Model<'_>, ModelIdx> = BTreeMap::new();
        for (row, device) in inventory.devices().iter() {
            let part = inventory.parts(row, None).iter().map(|(_, part)| part).sum();
            let capacity = device.is_shared.then(|| &device.facts().capacity);
            let n_known = known.len();
            let model = known.entry(Model { part, capacity });
            self.model.push(*model.or_insert_with(|| ModelIdx::new(n_known)));
        }
        self.n_models = known.len();
    }

    /// The first device of each model, of some devices.
    pub(crate) fn first_of_models(
        &self,
        devices: impl Iterator<Item = DeviceIdx>,
    ) -> Vec<DeviceIdx> {
        let mut is_known = Column::<ModelIdx, bool>::filled(false, self.n_models);
        let is_first = |row: &DeviceIdx| {
            let model = self.model[*row];
            !std::mem::replace(&mut is_known[model], true)
        };
        devices.filter(is_first).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of_class.is_empty()
    }

    /// The classes that are in a group.
    pub(crate) fn classes(&self) -> impl Iterator<Item = &Name> {
        self.of_class.keys()
    }

    /// The class after which the resource of a group is called.
    pub(crate) fn name(&self, group: GroupIdx) -> &Name {
        &self.groups[group].name
    }

    pub(crate) fn of_class(&self, class: &Name) -> Option<GroupIdx> {
        self.of_class.get(class).copied()
    }

    pub(crate) fn of_physical(&self, physical: Physical) -> Option<GroupIdx> {
        self.of_physical.get(&physical).copied()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = GroupIdx> {
        self.groups.ids()
    }

    /// Number of physical devices by the only node that can use them; `None` for those that several nodes can use.
    pub(crate) fn counts(
        &self,
        group: GroupIdx,
    ) -> impl Iterator<Item = (Option<NodeIdx>, usize)> + '_ {
        self.groups[group].of_nodes.iter().map(|(node, all)| (*node, all.len()))
    }
}

fn is_plain(inventory: &Inventory, devices: &DevicesOfClass) -> bool {
    let mut rows = devices.iter().flat_map(|(_, rows)| rows);
    rows.all(|row| inventory.devices()[*row].is_plain())
}

/// The positions of the classes that have physical devices in common, directly or through others.
fn connected(inventory: &Inventory, classes: &[(&Name, &DevicesOfClass)]) -> Vec<Vec<usize>> {
    // Each class points to an earlier one of its group, and the first one to itself.
    let mut earlier: Vec<usize> = (0..classes.len()).collect();
    let mut first_of: BTreeMap<Physical, usize> = BTreeMap::new();
    for (at, (_, devices)) in classes.iter().enumerate() {
        for row in devices.iter().flat_map(|(_, rows)| rows) {
            for (physical, _) in inventory.parts(*row, None) {
                let other = *first_of.entry(physical).or_insert(at);
                let (one, other) = (first(&earlier, at), first(&earlier, other));
                earlier[one.max(other)] = one.min(other);
            }
        }
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for at in 0..classes.len() {
        groups.entry(first(&earlier, at)).or_default().push(at);
    }
    groups.into_values().collect()
}

fn first(earlier: &[usize], mut at: usize) -> usize {
    while earlier[at] != at {
        at = earlier[at];
    }
    at
}
