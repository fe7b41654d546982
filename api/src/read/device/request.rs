//! What a claim requests.

use k8s_openapi::{
    api::resource::v1::{
        CapacityRequirements, DeviceClaim, DeviceConstraint as ApiConstraint,
        DeviceRequest as ApiRequest, DeviceSelector, DeviceSubRequest,
        DeviceToleration as ApiToleration, ExactDeviceRequest,
    },
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use kube_batch_model::{
    facts::{
        FactError,
        device::request::{
            AllocationMode, Alternatives, ClaimConfig, ClaimSpec, Constraint, ConstraintRule,
            DeviceRequest, Selector, Wanted,
        },
    },
    name::Name,
};

use super::{opaque_config, quantity, taint::toleration};
use crate::read::metadata::names;

/// Reads the devices of a claim; `object` names the claim.
///
/// # Errors
///
/// [`FactError`] if an amount cannot be read: skip the claim.
pub fn claim_spec(object: &str, devices: Option<&DeviceClaim>) -> Result<ClaimSpec, FactError> {
    let Some(devices) = devices else { return Ok(ClaimSpec::default()) };
    let requests = devices.requests.iter().flatten().enumerate();
    let config = devices.config.iter().flatten().map(|config| ClaimConfig {
        requests: names(config.requests.as_deref()),
        opaque: config
            .opaque
            .as_ref()
            .map(|opaque| opaque_config(&opaque.driver, &opaque.parameters)),
    });
    Ok(ClaimSpec {
        requests: requests
            .map(|(at, request)| {
                let field = format!("spec.devices.requests[{at}]");
                read_request((object, &field), request)
            })
            .collect::<Result<_, _>>()?,
        constraints: devices.constraints.iter().flatten().map(constraint).collect(),
        config: config.collect(),
    })
}

/// The devices of a claim as the API has them, if every request is for a number of devices of a class and
/// there is nothing else: as in claims for extended resources.
pub fn api_claim_spec(spec: &ClaimSpec) -> DeviceClaim {
    let request = |request: &DeviceRequest| {
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
    let requests = spec.requests.iter().filter_map(request).collect();
    DeviceClaim { requests: Some(requests), ..DeviceClaim::default() }
}

fn read_request(at: (&str, &str), request: &ApiRequest) -> Result<DeviceRequest, FactError> {
    let (object, field) = at;
    let alternatives = match (&request.exactly, &request.first_available) {
        (Some(exactly), _) => {
            let field = format!("{field}.exactly");
            Alternatives::Exactly(wanted_exactly((object, &field), exactly)?)
        }
        (None, Some(list)) if !list.is_empty() => {
            let list = list.iter().enumerate().map(|(at, alternative)| {
                let field = format!("{field}.firstAvailable[{at}]");
                let wanted = wanted_alternative((object, &field), alternative)?;
                Ok((Name::from(alternative.name.as_str()), wanted))
            });
            Alternatives::FirstAvailable(list.collect::<Result<_, FactError>>()?)
        }
        (None, _) => Alternatives::Unknown,
    };
    Ok(DeviceRequest { name: Name::from(request.name.as_str()), alternatives })
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

fn wanted_exactly(at: (&str, &str), request: &ExactDeviceRequest) -> Result<Wanted, FactError> {
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
    Ok(Wanted { admin_access, ..wanted(at, fields)? })
}

fn wanted_alternative(at: (&str, &str), request: &DeviceSubRequest) -> Result<Wanted, FactError> {
    let fields = Fields {
        class: &request.device_class_name,
        mode: request.allocation_mode.as_deref(),
        count: request.count,
        selectors: request.selectors.as_deref(),
        tolerations: request.tolerations.as_deref(),
        capacity: request.capacity.as_ref(),
        has_derived_attributes: request.derived_attributes.iter().flatten().next().is_some(),
    };
    wanted(at, fields)
}

fn wanted((object, field): (&str, &str), fields: Fields<'_>) -> Result<Wanted, FactError> {
    let amounts = fields.capacity.and_then(|capacity| capacity.requests.as_ref());
    let amount = |(name, text): (&String, &ApiQuantity)| {
        let field = format!("{field}.capacity.requests[{name}]");
        Ok((Name::from(name.as_str()), quantity(object, &field, text)?))
    };
    Ok(Wanted {
        class: Name::from(fields.class),
        selectors: selectors(fields.selectors),
        mode: mode(fields.mode, fields.count),
        admin_access: false,
        tolerations: fields.tolerations.into_iter().flatten().map(toleration).collect(),
        capacity: amounts.into_iter().flatten().map(amount).collect::<Result<_, FactError>>()?,
        has_derived_attributes: fields.has_derived_attributes,
    })
}

/// Without a mode, one device or `count`.
fn mode(mode: Option<&str>, count: Option<i64>) -> AllocationMode {
    match mode {
        None | Some("" | "ExactCount") => {
            let count = count.unwrap_or(1);
            AllocationMode::ExactCount(u64::try_from(count).unwrap_or(0))
        }
        Some("All") => AllocationMode::All,
        Some(other) => AllocationMode::Unknown(Name::from(other)),
    }
}

pub(super) fn selectors(selectors: Option<&[DeviceSelector]>) -> Vec<Selector> {
    let expression = |selector: &DeviceSelector| {
        Selector(selector.cel.as_ref().map(|cel| Name::from(cel.expression.as_str())))
    };
    selectors.into_iter().flatten().map(expression).collect()
}

fn constraint(constraint: &ApiConstraint) -> Constraint {
    let rule = match (&constraint.match_attribute, &constraint.distinct_attribute) {
        (Some(attribute), _) => ConstraintRule::Match(Name::from(attribute.as_str())),
        (None, Some(attribute)) => ConstraintRule::Distinct(Name::from(attribute.as_str())),
        (None, None) => ConstraintRule::Unknown,
    };
    Constraint { requests: names(constraint.requests.as_deref()), rule }
}
