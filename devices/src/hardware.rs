//! Which physical devices a device is made of, and what part of each it takes.
//!
//! A physical device is a set of counters, or a device that consumes no counters. A partition takes, of each set, the
//! largest fraction that it consumes of any counter. A share takes a part of what its device takes: the largest
//! fraction that it consumes of any capacity.
// Parity: see docs/parity.md#v8.

use std::collections::BTreeMap;

use kube_batch_model::name::Name;

use crate::{
    inventory::{Device, Inventory},
    rows::{CounterIdx, DeviceIdx},
};

/// A whole physical device: parts are in thousandths, rounded down, but at least 1.
pub const WHOLE: i64 = 1000;

/// A physical device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Physical {
    /// A set of counters, by its first counter.
    Set(CounterIdx),
    /// A device that consumes no counters, by its first row.
    Device(DeviceIdx),
}

impl Inventory {
    /// The physical devices that a device uses, ascending, with the part that it takes of each, from 1 to [`WHOLE`].
    /// `share` is what a share consumes of the capacities of the device, in nano-units; without it, the device is taken
    /// exclusively.
    pub fn parts(
        &self,
        device: DeviceIdx,
        share: Option<&BTreeMap<Name, i128>>,
    ) -> Vec<(Physical, i64)> {
        let own = &self.devices()[device];
        let of_device = share.map_or(WHOLE, |share| largest_fraction(own, share));
        let mut of_sets: BTreeMap<CounterIdx, i64> = BTreeMap::new();
        for (counter, _) in &own.consumes {
            let part = fraction(own.consumed_of(*counter), self.counters()[*counter]);
            let largest = of_sets.entry(self.first_of_set(*counter)).or_default();
            *largest = part.max(*largest);
        }
        if of_sets.is_empty() {
            let first = self.rows_of(&own.id).min().unwrap_or(device);
            return vec![(Physical::Device(first), of_device.max(1))];
        }
        let part = |of_set: i64| (of_device * of_set / WHOLE).max(1);
        of_sets.into_iter().map(|(set, of_set)| (Physical::Set(set), part(of_set))).collect()
    }
}

/// The largest fraction, in thousandths, that `consumed` takes of a capacity of the device; [`WHOLE`] if it names none.
fn largest_fraction(device: &Device, consumed: &BTreeMap<Name, i128>) -> i64 {
    let capacity = &device.facts().capacity;
    let fractions = consumed.iter().filter_map(|(name, amount)| {
        let all = capacity.get(name)?;
        Some(fraction(*amount, all.value.nano()))
    });
    fractions.max().unwrap_or(WHOLE)
}

/// `part / all` in thousandths, rounded down, at most [`WHOLE`]; [`WHOLE`] if `all` is not positive. Both are in
/// nano-units.
fn fraction(part: i128, all: i128) -> i64 {
    if all <= 0 {
        return WHOLE;
    }
    // Nano-units of 64-bit amounts have at most 94 bits, so this does not overflow.
    i64::try_from(part.clamp(0, all) * i128::from(WHOLE) / all).unwrap_or(WHOLE)
}
