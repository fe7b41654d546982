//! Classes of devices.

use k8s_openapi::api::resource::v1::DeviceClass;
use kube_batch_model::{
    facts::{FactError, device::class::DeviceClassFacts},
    name::Name,
};

use super::{opaque_config, request::selectors};
use crate::read::metadata::{created, object_key};

/// Reads a DeviceClass.
///
/// # Errors
///
/// [`FactError`] if it has no name: skip it.
pub fn device_class(class: &DeviceClass) -> Result<DeviceClassFacts, FactError> {
    let key = object_key("DeviceClass", &class.metadata)?;
    let spec = class.spec.as_ref();
    let config = spec.and_then(|spec| spec.config.as_deref()).into_iter().flatten().map(|config| {
        let opaque = config.opaque.as_ref()?;
        Some(opaque_config(&opaque.driver, &opaque.parameters))
    });
    Ok(DeviceClassFacts {
        name: key.name,
        created: created(&class.metadata),
        selectors: selectors(spec.and_then(|spec| spec.selectors.as_deref())),
        config: config.collect(),
        extended_resource: spec
            .and_then(|spec| spec.extended_resource_name.as_deref())
            .map(Name::from),
    })
}
