//! Taints of devices, and who tolerates them.

use k8s_openapi::api::resource::v1::{
    DeviceTaint as ApiTaint, DeviceTaintRule, DeviceTaintSelector,
    DeviceToleration as ApiToleration,
};
use serde::{Deserialize, Serialize};

use super::DeviceId;
use crate::{
    facts::{FactError, object_key},
    name::Name,
};

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
    /// Reads a taint.
    pub fn from_api(taint: &ApiTaint) -> Self {
        Self {
            key: Name::from(taint.key.as_str()),
            value: Name::from(taint.value.as_deref().unwrap_or_default()),
            effect: Name::from(taint.effect.as_str()),
        }
    }

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
    /// Reads a toleration.
    pub fn from_api(toleration: &ApiToleration) -> Self {
        let name = |text: &Option<String>| text.as_deref().map(Name::from);
        Self {
            key: name(&toleration.key),
            operator: Name::from(toleration.operator.as_deref().unwrap_or("Equal")),
            value: name(&toleration.value),
            effect: name(&toleration.effect),
            seconds: toleration.toleration_seconds,
        }
    }

    /// The toleration as the API writes it.
    pub fn to_api(&self) -> ApiToleration {
        let text = |name: &Option<Name>| name.as_ref().map(ToString::to_string);
        ApiToleration {
            key: text(&self.key),
            operator: Some(self.operator.to_string()),
            value: text(&self.value),
            effect: text(&self.effect),
            toleration_seconds: self.seconds,
        }
    }

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
    /// Reads a DeviceTaintRule.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name: skip it.
    pub fn from_rule(rule: &DeviceTaintRule) -> Result<Self, FactError> {
        let key = object_key("DeviceTaintRule", &rule.metadata)?;
        let name = |text: &Option<String>| text.as_deref().map(Name::from);
        let devices = |selector: &DeviceTaintSelector| TaintedDevices {
            driver: name(&selector.driver),
            pool: name(&selector.pool),
            device: name(&selector.device),
        };
        Ok(Self {
            name: key.name,
            devices: rule.spec.device_selector.as_ref().map(devices),
            taint: DeviceTaint::from_api(&rule.spec.taint),
        })
    }

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
