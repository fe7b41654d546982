//! Which devices are in use, and how much of the shared ones.

use std::collections::BTreeMap;

use kube_batch_api::{column::Column, facts::device::claim::DeviceResult, name::Name};

use crate::{
    inventory::Inventory,
    rows::{CounterIdx, DeviceIdx},
};

/// What is in use at one time.
///
/// Devices taken with admin access count for nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Number of exclusive allocations of each device: more than one if two schedulers allocated it at once.
    exclusive: Column<DeviceIdx, u32>,
    shares: BTreeMap<DeviceIdx, Shares>,
    /// What devices in use consume of each counter, in nano-units.
    consumed: Column<CounterIdx, i128>,
}

/// The shares of one device.
#[derive(Clone, Debug, Default, PartialEq)]
struct Shares {
    n_shares: u32,
    /// Of each capacity, in nano-units.
    consumed: BTreeMap<Name, i128>,
}

/// Whether something is added or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Add,
    Remove,
}

impl Sign {
    const fn of(self, amount: i128) -> i128 {
        match self {
            Self::Add => amount,
            Self::Remove => -amount,
        }
    }

    const fn count(self, n: u32) -> u32 {
        match self {
            Self::Add => n + 1,
            Self::Remove => n - 1,
        }
    }
}

impl Usage {
    /// Nothing is in use.
    pub fn none(inventory: &Inventory) -> Self {
        Self {
            exclusive: Column::filled(0, inventory.devices().len()),
            shares: BTreeMap::new(),
            consumed: Column::filled(0, inventory.counters().len()),
        }
    }

    /// Adds a device of an allocation.
    pub fn add(&mut self, inventory: &Inventory, result: &DeviceResult) {
        self.change(inventory, result, Sign::Add);
    }

    /// Takes a device of an allocation back that was added.
    pub fn remove(&mut self, inventory: &Inventory, result: &DeviceResult) {
        self.change(inventory, result, Sign::Remove);
    }

    fn change(&mut self, inventory: &Inventory, result: &DeviceResult, sign: Sign) {
        if result.admin_access {
            return;
        }
        for row in inventory.rows_of(&result.id) {
            let was_in_use = self.is_in_use(row);
            if result.share.is_some() {
                self.change_shares(row, &result.consumed, sign);
            } else {
                self.exclusive[row] = sign.count(self.exclusive[row]);
            }
            if was_in_use != self.is_in_use(row) {
                for (counter, amount) in &inventory.devices()[row].consumes {
                    self.consumed[*counter] += sign.of(*amount);
                }
            }
        }
    }

    fn change_shares(
        &mut self,
        row: DeviceIdx,
        consumed: &BTreeMap<Name, kube_batch_api::quantity::Quantity>,
        sign: Sign,
    ) {
        let shares = self.shares.entry(row).or_default();
        shares.n_shares = sign.count(shares.n_shares);
        for (name, amount) in consumed {
            *shares.consumed.entry(name.clone()).or_default() += sign.of(amount.nano());
        }
        if shares.n_shares == 0 {
            self.shares.remove(&row);
        }
    }

    /// Whether the device is allocated exclusively.
    pub fn is_exclusive(&self, device: DeviceIdx) -> bool {
        self.exclusive[device] > 0
    }

    /// Whether shares of the device are allocated.
    pub fn is_shared(&self, device: DeviceIdx) -> bool {
        self.shares.contains_key(&device)
    }

    /// Whether the device consumes its counters.
    pub fn is_in_use(&self, device: DeviceIdx) -> bool {
        self.is_exclusive(device) || self.is_shared(device)
    }

    /// What shares consume of a capacity, in nano-units.
    pub fn consumed_of(&self, device: DeviceIdx, capacity: &Name) -> i128 {
        let shares = self.shares.get(&device);
        shares.and_then(|shares| shares.consumed.get(capacity)).copied().unwrap_or_default()
    }

    /// What is left of a counter, in nano-units.
    pub fn left(&self, inventory: &Inventory, counter: CounterIdx) -> i128 {
        inventory.counters()[counter] - self.consumed[counter]
    }
}
