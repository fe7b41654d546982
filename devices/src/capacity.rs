//! How much of a capacity a share consumes.
//!
//! Source: Kubernetes 1.37, `dynamic-resource-allocation/structured/internal/incubating/consumable_capacity.go`.
//! With the gate DRAFractionalCapacityRange off, as it is by default, amounts are rounded up to whole numbers
//! where a policy limits them.

use std::collections::BTreeMap;

use kube_batch_model::{
    facts::device::slice::{CapacityFacts, DeviceFacts, RequestPolicy, ValidAmounts},
    name::Name,
    quantity::Quantity,
};

/// Nano-units in one unit.
const NANO: i128 = 1_000_000_000;

/// Why an amount cannot be rounded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "capacity \"{capacity}\": capacity request cannot be represented in the device's range arithmetic: request {request} exceeds MaxInt64"
)]
pub struct TooLarge {
    /// The capacity.
    pub capacity: Name,
    /// What is requested, capped.
    pub request: Quantity,
}

/// What a share of a device consumes of each of its capacities, in nano-units. `None` if the device cannot
/// give what is requested even while it is not in use.
///
/// # Errors
///
/// [`TooLarge`] if a request cannot be rounded.
pub fn consumed_by_share(
    device: &DeviceFacts,
    requested: &BTreeMap<Name, Quantity>,
) -> Result<Option<BTreeMap<Name, i128>>, TooLarge> {
    if requested.keys().any(|name| !device.capacity.contains_key(name)) {
        return Ok(None);
    }
    let mut consumed = BTreeMap::new();
    for (name, capacity) in &device.capacity {
        match amount((name, capacity), requested.get(name).copied())? {
            Some(amount) if amount <= capacity.value.nano() => {
                consumed.insert(name.clone(), amount);
            }
            Some(_) | None => return Ok(None),
        }
    }
    Ok(Some(consumed))
}

/// Whether a device that is not shared has what is requested.
///
/// # Errors
///
/// [`TooLarge`] if a request cannot be rounded.
pub fn has_capacity(
    device: &DeviceFacts,
    requested: &BTreeMap<Name, Quantity>,
) -> Result<bool, TooLarge> {
    for (name, request) in requested {
        let Some(capacity) = device.capacity.get(name) else { return Ok(false) };
        match amount((name, capacity), Some(*request))? {
            Some(amount) if amount <= capacity.value.nano() => {}
            Some(_) | None => return Ok(false),
        }
    }
    Ok(true)
}

/// What a request for a capacity consumes of it, in nano-units; `None` if there is no such amount.
fn amount(
    (name, capacity): (&Name, &CapacityFacts),
    requested: Option<Quantity>,
) -> Result<Option<i128>, TooLarge> {
    let policy = capacity.policy.as_ref();
    let Some(request) = requested else {
        let default = policy.and_then(|policy| policy.default);
        return Ok(Some(default.unwrap_or(capacity.value).nano()));
    };
    let Some(RequestPolicy { valid, .. }) = policy else { return Ok(Some(request.nano())) };
    Ok(match valid {
        ValidAmounts::Any => Some(request.nano()),
        ValidAmounts::Values(values) => {
            values.iter().find(|value| **value >= request).map(|value| value.nano())
        }
        ValidAmounts::Range { min, max, step } => {
            if request.units() == i64::MAX {
                return Err(TooLarge { capacity: name.clone(), request });
            }
            let units = |quantity: Quantity| i128::from(quantity.units());
            let (min, request) = (units(*min), units(request));
            let rounded = match step.map(units) {
                _ if request <= min => min,
                Some(step) if step > 0 => min + (request - min + step - 1) / step * step,
                Some(_) | None => request,
            };
            let is_too_large = max.is_some_and(|max| rounded > units(max));
            (!is_too_large).then_some(rounded * NANO)
        }
    })
}
