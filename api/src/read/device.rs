//! Devices of Dynamic Resource Allocation, as the API has them.

pub mod claim;
pub mod class;
pub mod request;
pub mod slice;
pub mod taint;

use k8s_openapi::{
    api::resource::v1::OpaqueDeviceConfiguration,
    apimachinery::pkg::{api::resource::Quantity as ApiQuantity, runtime::RawExtension},
};
use kube_batch_model::{
    facts::{FactError, device::OpaqueConfig},
    name::Name,
    quantity::{Quantity, QuantityError},
};

/// Reads parameters for a driver.
fn opaque_config(driver: &str, parameters: &RawExtension) -> OpaqueConfig {
    OpaqueConfig { driver: Name::from(driver), parameters: Name::from(parameters.0.to_string()) }
}

/// Parameters for a driver as the API writes them.
fn api_config(config: &OpaqueConfig) -> OpaqueDeviceConfiguration {
    // It was made from JSON.
    let parameters = serde_json::from_str(&config.parameters).unwrap_or_default();
    OpaqueDeviceConfiguration {
        driver: config.driver.to_string(),
        parameters: RawExtension(parameters),
    }
}

/// Reads a quantity of a field.
fn quantity(object: &str, field: &str, text: &ApiQuantity) -> Result<Quantity, FactError> {
    text.0.parse().map_err(|error: QuantityError| FactError::new(object, field, error.to_string()))
}
