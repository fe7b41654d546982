//! Taints of devices, and who tolerates them.

use serde::{Deserialize, Serialize};

use super::DeviceId;
use crate::{facts::fact::Fact, name::Name};

/// A taint of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceTaint {
    /// Its key.
    pub key: Name,
    /// Its value, empty if absent.
    pub value: Name,
    /// `NoSchedule`, `NoExecute` or `None`.
    pub effect: Name,
}

impl DeviceTaint {
    /// Whether it keeps the device from requests that do not tolerate it. Effects that are unknown do not.
    pub fn keeps_away(&self) -> bool {
        matches!(&*self.effect, "NoSchedule" | "NoExecute")
    }
}

/// A toleration, as the request writes it: it is copied into the allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceToleration {
    /// The key; `None` for all.
    pub key: Option<Name>,
    /// `Exists` or `Equal`.
    pub operator: Name,
    /// The value.
    pub value: Option<Name>,
    /// The effect; `None` for all.
    pub effect: Option<Name>,
    /// For how long a taint `NoExecute` is tolerated.
    pub seconds: Option<i64>,
}

impl DeviceToleration {
    /// Whether the taint is tolerated.
    pub fn tolerates(&self, taint: &DeviceTaint) -> bool {
        let is_or_all = |own: &Option<Name>, name: &Name| {
            own.as_ref().is_none_or(|own| own.is_empty() || own == name)
        };
        let value = self.value.as_deref().unwrap_or_default();
        is_or_all(&self.effect, &taint.effect)
            && is_or_all(&self.key, &taint.key)
            && match &*self.operator {
                "Exists" => true,
                "" | "Equal" => *value == *taint.value,
                _ => false,
            }
    }
}

/// A DeviceTaintRule: one taint for the devices that it selects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceTaintRuleFacts {
    /// Its name.
    pub name: Name,
    /// The devices; `None` for no device.
    pub devices: Option<TaintedDevices>,
    /// The taint.
    pub taint: DeviceTaint,
}

impl Fact for DeviceTaintRuleFacts {}

/// The devices that a rule taints: those that have every name given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaintedDevices {
    /// The driver.
    pub driver: Option<Name>,
    /// The pool.
    pub pool: Option<Name>,
    /// The device.
    pub device: Option<Name>,
}

impl DeviceTaintRuleFacts {
    /// Whether it taints the device.
    pub fn taints(&self, id: &DeviceId) -> bool {
        let is_or_any =
            |own: &Option<Name>, name: &Name| own.as_ref().is_none_or(|own| own == name);
        self.devices.as_ref().is_some_and(|devices| {
            is_or_any(&devices.driver, &id.driver)
                && is_or_any(&devices.pool, &id.pool)
                && is_or_any(&devices.device, &id.device)
        })
    }
}
