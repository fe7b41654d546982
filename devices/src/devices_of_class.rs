//! The devices of a class: which there are, and where.

use std::collections::BTreeMap;

use kube_batch_model::column::{NodeIdx, Ordinal};

use crate::{
    inventory::{Device, Inventory},
    rows::DeviceIdx,
    wanted::{Match, Matching},
};

/// The devices of a class, each once, by the node that alone can use them; `None` for those that several nodes
/// can use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevicesOfClass(BTreeMap<Option<NodeIdx>, Vec<DeviceIdx>>);

impl DevicesOfClass {
    /// The devices of complete pools that are what a request for any device of the class wants.
    pub fn of(inventory: &Inventory, matching: &Matching) -> Self {
        let usable = inventory.usable();
        let is_first = |row: DeviceIdx, device: &Device| {
            let mut rows = inventory.rows_of(&device.id);
            rows.find(|row| usable.contains(row.at())) == Some(row)
        };
        let counts = |row: DeviceIdx, device: &Device| {
            usable.contains(row.at())
                && (device.is_listed_once || is_first(row, device))
                && matching.of(row) == Match::Yes
        };
        let devices = inventory.devices().iter().filter(|(row, device)| counts(*row, device));
        let mut counted: Vec<(Option<NodeIdx>, DeviceIdx)> =
            devices.map(|(row, device)| (device.node, row)).collect();
        counted.sort_by_key(|(node, _)| *node);
        let of_node = |devices: &[(Option<NodeIdx>, DeviceIdx)]| {
            (devices[0].0, devices.iter().map(|(_, row)| *row).collect())
        };
        Self(counted.chunk_by(|l, r| l.0 == r.0).map(of_node).collect())
    }

    /// The devices of each node, and those of several nodes first.
    pub fn iter(&self) -> impl Iterator<Item = (Option<NodeIdx>, &[DeviceIdx])> {
        self.0.iter().map(|(node, devices)| (*node, devices.as_slice()))
    }

    /// Whether one of them can be shared, so that there is no number of how often they can be allocated.
    pub fn has_shares(&self, inventory: &Inventory) -> bool {
        let mut all = self.0.values().flatten();
        all.any(|row| inventory.devices()[*row].is_shared)
    }
}
