//! Which devices are in use, and how much of the shared ones.

use std::collections::BTreeMap;

use kube_batch_model::{
    column::Column,
    facts::device::claim::{Allocation, DeviceResult},
    name::Name,
};

use crate::{
    inventory::{Device, Inventory},
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
    /// Number of counters of which more is consumed than there is: two schedulers allocated at once.
    n_overdrawn: u32,
}

/// The devices of an allocation that count as in use, with their rows, so that they are looked up once.
#[derive(Clone, Debug, Default)]
pub struct Held(pub(crate) Vec<HeldDevice>);

/// A device of an allocation that counts as in use.
#[derive(Clone, Debug)]
pub(crate) struct HeldDevice {
    /// The device.
    pub(crate) row: DeviceIdx,
    /// What a share consumes, by capacity, in nano-units; `None` if the device is allocated exclusively.
    pub(crate) share: Option<BTreeMap<Name, i128>>,
}

impl Held {
    /// Those of an allocation.
    pub fn of(inventory: &Inventory, allocation: &Allocation) -> Self {
        let counted = allocation.results.iter().filter(|result| !result.admin_access);
        let counted: Vec<&DeviceResult> = counted.collect();
        let mut held = Vec::with_capacity(counted.len());
        // The devices of an allocation are mostly of one pool, which is then looked up once.
        let is_same_pool = |l: &&DeviceResult, r: &&DeviceResult| {
            l.id.pool == r.id.pool && l.id.driver == r.id.driver
        };
        for results in counted.chunk_by(is_same_pool) {
            let mut devices = inventory.devices_of(&results[0].id);
            for result in results {
                let share = || {
                    result.share.as_ref()?;
                    let consumed = result.consumed.iter();
                    Some(consumed.map(|(name, amount)| (name.clone(), amount.nano())).collect())
                };
                let rows = devices.next_rows(&result.id.device);
                held.extend(rows.map(|row| HeldDevice { row, share: share() }));
            }
        }
        Self(held)
    }

    /// All devices that are held. For one that is shared, also what the share consumes of each capacity, in nano-units.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceIdx, Option<&BTreeMap<Name, i128>>)> {
        self.0.iter().map(|device| (device.row, device.share.as_ref()))
    }

    /// Those that are allocated exclusively.
    pub fn exclusive(&self) -> impl Iterator<Item = DeviceIdx> {
        self.0.iter().filter(|device| device.share.is_none()).map(|device| device.row)
    }
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
            n_overdrawn: 0,
        }
    }

    /// Adds the devices of an allocation.
    pub fn add(&mut self, inventory: &Inventory, held: &Held) {
        self.change(inventory, held, Sign::Add);
    }

    /// Takes the devices of an allocation back that were added.
    pub fn remove(&mut self, inventory: &Inventory, held: &Held) {
        self.change(inventory, held, Sign::Remove);
    }

    fn change(&mut self, inventory: &Inventory, Held(held): &Held, sign: Sign) {
        for HeldDevice { row, share } in held {
            let was_in_use = self.is_in_use(*row);
            match share {
                Some(consumed) => self.change_shares(*row, consumed, sign),
                None => self.exclusive[*row] = sign.count(self.exclusive[*row]),
            }
            if was_in_use != self.is_in_use(*row) {
                for (counter, amount) in &inventory.devices()[*row].consumes {
                    self.consume(inventory, *counter, sign.of(*amount));
                }
            }
        }
    }

    fn consume(&mut self, inventory: &Inventory, counter: CounterIdx, amount: i128) {
        let was_overdrawn = self.left(inventory, counter) < 0;
        self.consumed[counter] += amount;
        match (was_overdrawn, self.left(inventory, counter) < 0) {
            (false, true) => self.n_overdrawn += 1,
            (true, false) => self.n_overdrawn -= 1,
            (false, false) | (true, true) => {}
        }
    }

    fn change_shares(&mut self, row: DeviceIdx, consumed: &BTreeMap<Name, i128>, sign: Sign) {
        let shares = self.shares.entry(row).or_default();
        shares.n_shares = sign.count(shares.n_shares);
        for (name, amount) in consumed {
            *shares.consumed.entry(name.clone()).or_default() += sign.of(*amount);
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

    /// Whether every counter of its pool has enough left for a device, and none is overdrawn. `chosen` is what the
    /// devices chosen so far consume of a counter: they are not in use yet.
    pub(crate) fn has_counters(
        &self,
        inventory: &Inventory,
        device: &Device,
        chosen: impl Fn(CounterIdx) -> i128,
    ) -> bool {
        let has = |counter: CounterIdx| {
            self.left(inventory, counter) - chosen(counter) >= device.consumed_of(counter)
        };
        let of_pool = || inventory.pool(device.pool).counters.iter().all(|counter| has(*counter));
        // No device is chosen that overdraws a counter. So a counter that this one does not consume is overdrawn only
        // if it was before any device was chosen.
        let has_all = device.consumes.iter().all(|(counter, _)| has(*counter))
            && (self.n_overdrawn == 0 || of_pool());
        debug_assert_eq!(has_all, of_pool(), "{}", device.id);
        has_all
    }

    /// What is left of a counter, in nano-units.
    pub fn left(&self, inventory: &Inventory, counter: CounterIdx) -> i128 {
        inventory.counters()[counter] - self.consumed[counter]
    }
}
