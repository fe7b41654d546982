//! What a claim requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{OpaqueConfig, taint::DeviceToleration};
use crate::{name::Name, quantity::Quantity};

/// The specification of a claim. Equal ones are interchangeable.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimSpec {
    /// Its requests, in order.
    pub requests: Vec<DeviceRequest>,
    /// What its devices must have in common.
    pub constraints: Vec<Constraint>,
    /// Configuration for drivers.
    pub config: Vec<ClaimConfig>,
}

/// Some devices of a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceRequest {
    /// Unique in the claim.
    pub name: Name,
    /// The devices.
    pub alternatives: Alternatives,
}

/// The devices of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Alternatives {
    /// These.
    Exactly(Wanted),
    /// The first that can be had, each with its name.
    FirstAvailable(Vec<(Name, Wanted)>),
    /// A kind of request that is not known.
    Unknown,
}

/// Devices of one class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Wanted {
    /// The class.
    pub class: Name,
    /// Selectors besides those of the class: all must hold.
    pub selectors: Vec<Selector>,
    /// How many.
    pub mode: AllocationMode,
    /// Whether devices in use may be taken, to look after them.
    pub admin_access: bool,
    /// Taints that are tolerated.
    pub tolerations: Vec<DeviceToleration>,
    /// The least capacity of each device, by name.
    pub capacity: BTreeMap<Name, Quantity>,
    /// Whether it has derived attributes, which need a gate that is off.
    pub has_derived_attributes: bool,
}

/// How many devices a request gets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AllocationMode {
    /// This number of devices.
    ExactCount(u64),
    /// All of a node that match.
    All,
    /// A mode that is not known.
    Unknown(Name),
}

/// A selector of devices: an expression in CEL, or `None` for a kind that is not known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Selector(pub Option<Name>);

/// What some devices of a claim must have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Constraint {
    /// The requests it is about, or `request/alternative`; empty for all.
    pub requests: Vec<Name>,
    /// The constraint.
    pub rule: ConstraintRule,
}

/// A constraint over devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConstraintRule {
    /// The value of the attribute is the same for all.
    Match(Name),
    /// The value of the attribute is different for each.
    Distinct(Name),
    /// A kind that is not known.
    Unknown,
}

/// Configuration of a claim for drivers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimConfig {
    /// The requests it is about, or `request/alternative`; empty for all.
    pub requests: Vec<Name>,
    /// The parameters; `None` for a kind that is not known.
    pub opaque: Option<OpaqueConfig>,
}

impl Wanted {
    /// A number of devices of a class, any of them.
    pub fn of_class(class: &Name, n_devices: u64) -> Self {
        Self {
            class: class.clone(),
            selectors: Vec::new(),
            mode: AllocationMode::ExactCount(n_devices),
            admin_access: false,
            tolerations: Vec::new(),
            capacity: BTreeMap::new(),
            has_derived_attributes: false,
        }
    }
}

impl Constraint {
    /// Whether it is about a request, or about an alternative of it.
    pub fn is_about(&self, request: &str, alternative: Option<&str>) -> bool {
        concerns(&self.requests, request, alternative)
    }
}

impl ClaimConfig {
    /// Whether it is about a request, or about an alternative of it.
    pub fn is_about(&self, request: &str, alternative: Option<&str>) -> bool {
        concerns(&self.requests, request, alternative)
    }
}

/// Whether a list of requests has this one: a request stands for all its alternatives, and an empty list for
/// all requests.
fn concerns(requests: &[Name], request: &str, alternative: Option<&str>) -> bool {
    let is_named = |name: &Name| {
        **name == *request
            || alternative
                .is_some_and(|alternative| name.split_once('/') == Some((request, alternative)))
    };
    requests.is_empty() || requests.iter().any(is_named)
}
