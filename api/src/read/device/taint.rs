//! Taints of devices, and who tolerates them.

use k8s_openapi::api::resource::v1::{
    DeviceTaint as ApiTaint, DeviceTaintRule, DeviceTaintSelector,
    DeviceToleration as ApiToleration,
};
use kube_batch_model::{
    facts::{
        FactError,
        device::taint::{DeviceTaint, DeviceTaintRuleFacts, DeviceToleration, TaintedDevices},
    },
    name::Name,
};

use crate::read::metadata::object_key;

/// Reads a taint.
pub(super) fn taint(taint: &ApiTaint) -> DeviceTaint {
    DeviceTaint {
        key: Name::from(taint.key.as_str()),
        value: Name::from(taint.value.as_deref().unwrap_or_default()),
        effect: Name::from(taint.effect.as_str()),
    }
}

/// Reads a toleration.
pub(super) fn toleration(toleration: &ApiToleration) -> DeviceToleration {
    let name = |text: &Option<String>| text.as_deref().map(Name::from);
    DeviceToleration {
        key: name(&toleration.key),
        operator: Name::from(toleration.operator.as_deref().unwrap_or("Equal")),
        value: name(&toleration.value),
        effect: name(&toleration.effect),
        seconds: toleration.toleration_seconds,
    }
}

/// The toleration as the API writes it.
pub(super) fn api_toleration(toleration: &DeviceToleration) -> ApiToleration {
    let text = |name: &Option<Name>| name.as_ref().map(ToString::to_string);
    ApiToleration {
        key: text(&toleration.key),
        operator: Some(toleration.operator.to_string()),
        value: text(&toleration.value),
        effect: text(&toleration.effect),
        toleration_seconds: toleration.seconds,
    }
}

/// Reads a DeviceTaintRule.
///
/// # Errors
///
/// [`FactError`] if it has no name: skip it.
pub fn taint_rule(rule: &DeviceTaintRule) -> Result<DeviceTaintRuleFacts, FactError> {
    let key = object_key("DeviceTaintRule", &rule.metadata)?;
    let name = |text: &Option<String>| text.as_deref().map(Name::from);
    let devices = |selector: &DeviceTaintSelector| TaintedDevices {
        driver: name(&selector.driver),
        pool: name(&selector.pool),
        device: name(&selector.device),
    };
    Ok(DeviceTaintRuleFacts {
        name: key.name,
        devices: rule.spec.device_selector.as_ref().map(devices),
        taint: taint(&rule.spec.taint),
    })
}
