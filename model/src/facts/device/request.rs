//! What a claim requests.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::resource::v1::{
        CapacityRequirements, DeviceClaim, DeviceConstraint as ApiConstraint,
        DeviceRequest as ApiRequest, DeviceSelector, DeviceSubRequest,
        DeviceToleration as ApiToleration, ExactDeviceRequest,
    },
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use serde::{Deserialize, Serialize};

use super::{OpaqueConfig, quantity, taint::DeviceToleration};
use crate::{facts::FactError, name::Name, quantity::Quantity};

/// The specification of a claim. Equal ones are interchangeable.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimSpec {
    /// Its requests, in order.
    pub requests: Vec<Request>,
    /// What its devices must have in common.
    pub constraints: Vec<Constraint>,
    /// Configuration for drivers.
    pub config: Vec<ClaimConfig>,
}

/// Some devices of a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Request {
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
    /// So many.
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

/// A list of names.
fn names(list: Option<&[String]>) -> Vec<Name> {
    list.into_iter().flatten().map(|name| Name::from(name.as_str())).collect()
}

impl ClaimSpec {
    /// Reads the devices of a claim; `object` names the claim.
    ///
    /// # Errors
    ///
    /// [`FactError`] if an amount cannot be read: skip the claim.
    pub fn from_api(object: &str, devices: Option<&DeviceClaim>) -> Result<Self, FactError> {
        let Some(devices) = devices else { return Ok(Self::default()) };
        let requests = devices.requests.iter().flatten().enumerate();
        let config = devices.config.iter().flatten().map(|config| ClaimConfig {
            requests: names(config.requests.as_deref()),
            opaque: config
                .opaque
                .as_ref()
                .map(|opaque| OpaqueConfig::from_api(&opaque.driver, &opaque.parameters)),
        });
        Ok(Self {
            requests: requests
                .map(|(at, request)| {
                    let field = format!("spec.devices.requests[{at}]");
                    Request::from_api((object, &field), request)
                })
                .collect::<Result<_, _>>()?,
            constraints: devices.constraints.iter().flatten().map(Constraint::from_api).collect(),
            config: config.collect(),
        })
    }
}

impl ClaimSpec {
    /// The devices of a claim as the API has them, if every request is for a number of devices of a class and
    /// there is nothing else: as in claims for extended resources.
    pub fn to_api(&self) -> DeviceClaim {
        let request = |request: &Request| {
            let Alternatives::Exactly(wanted) = &request.alternatives else { return None };
            let AllocationMode::ExactCount(n_devices) = wanted.mode else { return None };
            let exactly = ExactDeviceRequest {
                device_class_name: wanted.class.to_string(),
                allocation_mode: Some("ExactCount".to_owned()),
                count: i64::try_from(n_devices).ok(),
                ..ExactDeviceRequest::default()
            };
            Some(ApiRequest {
                name: request.name.to_string(),
                exactly: Some(exactly),
                ..ApiRequest::default()
            })
        };
        let requests = self.requests.iter().filter_map(request).collect();
        DeviceClaim { requests: Some(requests), ..DeviceClaim::default() }
    }
}

impl Wanted {
    /// So many devices of a class, any of them.
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

impl Request {
    fn from_api(at: (&str, &str), request: &ApiRequest) -> Result<Self, FactError> {
        let (object, field) = at;
        let alternatives = match (&request.exactly, &request.first_available) {
            (Some(exactly), _) => {
                let field = format!("{field}.exactly");
                Alternatives::Exactly(Wanted::exactly((object, &field), exactly)?)
            }
            (None, Some(list)) if !list.is_empty() => {
                let list = list.iter().enumerate().map(|(at, alternative)| {
                    let field = format!("{field}.firstAvailable[{at}]");
                    let wanted = Wanted::alternative((object, &field), alternative)?;
                    Ok((Name::from(alternative.name.as_str()), wanted))
                });
                Alternatives::FirstAvailable(list.collect::<Result<_, FactError>>()?)
            }
            (None, _) => Alternatives::Unknown,
        };
        Ok(Self { name: Name::from(request.name.as_str()), alternatives })
    }
}

/// The fields that requests and alternatives share.
struct Fields<'a> {
    class: &'a str,
    mode: Option<&'a str>,
    count: Option<i64>,
    selectors: Option<&'a [DeviceSelector]>,
    tolerations: Option<&'a [ApiToleration]>,
    capacity: Option<&'a CapacityRequirements>,
    has_derived_attributes: bool,
}

impl Wanted {
    fn exactly(at: (&str, &str), request: &ExactDeviceRequest) -> Result<Self, FactError> {
        let fields = Fields {
            class: &request.device_class_name,
            mode: request.allocation_mode.as_deref(),
            count: request.count,
            selectors: request.selectors.as_deref(),
            tolerations: request.tolerations.as_deref(),
            capacity: request.capacity.as_ref(),
            has_derived_attributes: request.derived_attributes.iter().flatten().next().is_some(),
        };
        let admin_access = request.admin_access == Some(true);
        Ok(Self { admin_access, ..Self::of(at, fields)? })
    }

    fn alternative(at: (&str, &str), request: &DeviceSubRequest) -> Result<Self, FactError> {
        let fields = Fields {
            class: &request.device_class_name,
            mode: request.allocation_mode.as_deref(),
            count: request.count,
            selectors: request.selectors.as_deref(),
            tolerations: request.tolerations.as_deref(),
            capacity: request.capacity.as_ref(),
            has_derived_attributes: request.derived_attributes.iter().flatten().next().is_some(),
        };
        Self::of(at, fields)
    }

    fn of((object, field): (&str, &str), fields: Fields<'_>) -> Result<Self, FactError> {
        let amounts = fields.capacity.and_then(|capacity| capacity.requests.as_ref());
        let amount = |(name, text): (&String, &ApiQuantity)| {
            let field = format!("{field}.capacity.requests[{name}]");
            Ok((Name::from(name.as_str()), quantity(object, &field, text)?))
        };
        Ok(Self {
            class: Name::from(fields.class),
            selectors: Selector::from_api(fields.selectors),
            mode: AllocationMode::of(fields.mode, fields.count),
            admin_access: false,
            tolerations: fields
                .tolerations
                .into_iter()
                .flatten()
                .map(DeviceToleration::from_api)
                .collect(),
            capacity: amounts
                .into_iter()
                .flatten()
                .map(amount)
                .collect::<Result<_, FactError>>()?,
            has_derived_attributes: fields.has_derived_attributes,
        })
    }
}

impl AllocationMode {
    /// Without a mode, one device or `count`.
    fn of(mode: Option<&str>, count: Option<i64>) -> Self {
        match mode {
            None | Some("" | "ExactCount") => {
                let count = count.unwrap_or(1);
                Self::ExactCount(u64::try_from(count).unwrap_or(0))
            }
            Some("All") => Self::All,
            Some(other) => Self::Unknown(Name::from(other)),
        }
    }
}

impl Selector {
    pub(super) fn from_api(selectors: Option<&[DeviceSelector]>) -> Vec<Self> {
        let expression = |selector: &DeviceSelector| {
            Self(selector.cel.as_ref().map(|cel| Name::from(cel.expression.as_str())))
        };
        selectors.into_iter().flatten().map(expression).collect()
    }
}

impl Constraint {
    fn from_api(constraint: &ApiConstraint) -> Self {
        let rule = match (&constraint.match_attribute, &constraint.distinct_attribute) {
            (Some(attribute), _) => ConstraintRule::Match(Name::from(attribute.as_str())),
            (None, Some(attribute)) => ConstraintRule::Distinct(Name::from(attribute.as_str())),
            (None, None) => ConstraintRule::Unknown,
        };
        Self { requests: names(constraint.requests.as_deref()), rule }
    }

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
