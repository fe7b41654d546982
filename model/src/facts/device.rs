//! Devices of Dynamic Resource Allocation: who publishes them, who claims them, and who holds them.
//!
//! Only what decides an allocation is kept, and what has to be copied into one. Fields behind feature gates
//! that are off in Kubernetes 1.37 are not read, but for those whose presence makes a device or a request
//! unusable.

pub mod claim;
pub mod class;
pub mod request;
pub mod slice;
pub mod taint;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::Name;

/// What identifies a device: names of devices are unique in their pool, those of pools for their driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId {
    /// The driver.
    pub driver: Name,
    /// The pool.
    pub pool: Name,
    /// The device.
    pub device: Name,
}

impl DeviceId {
    /// From what [`fmt::Display`] writes. Only pools may have a `/` in their name.
    fn parse(text: &str) -> Option<Self> {
        let (driver, rest) = text.split_once('/')?;
        let (pool, device) = rest.rsplit_once('/')?;
        Some(Self { driver: driver.into(), pool: pool.into(), device: device.into() })
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// Parameters for a driver, copied from a class or a claim into its allocation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OpaqueConfig {
    /// The driver that reads them.
    pub driver: Name,
    /// The parameters, as JSON.
    pub parameters: Name,
}
