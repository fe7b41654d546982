//! What an API server would reject in claims for devices, their templates, and classes of devices.
//!
//! Source: `pkg/apis/resource/validation/validation.go` of Kubernetes 1.37.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{DeviceClaim, DeviceRequest, DeviceSelector};
use kube_batch_cel::Program;
use kube_batch_model::selector::problem::SelectorProblem as Problem;

use crate::object::Object;

/// The most devices that all requests of a claim may ask for, and the most requests.
const MAX_REQUESTS: usize = 32;

/// The problems of a claim, a template or a class, with their paths in the object.
pub(super) fn device_problems(object: &Object) -> Vec<Problem> {
    match object {
        Object::ResourceClaim(claim) => {
            let devices = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
            claim_problems("spec.devices", devices)
        }
        Object::ResourceClaimTemplate(template) => {
            let spec = template.spec.as_ref().and_then(|spec| spec.spec.as_ref());
            claim_problems("spec.spec.devices", spec.and_then(|spec| spec.devices.as_ref()))
        }
        Object::DeviceClass(class) => {
            let selectors = class.spec.as_ref().and_then(|spec| spec.selectors.as_deref());
            selector_problems("spec.selectors", selectors)
        }
        _ => Vec::new(),
    }
}

/// Whether a claim or a template asks for admin access.
pub fn wants_admin_access(object: &Object) -> bool {
    let devices = match object {
        Object::ResourceClaim(claim) => claim.spec.as_ref().and_then(|spec| spec.devices.as_ref()),
        Object::ResourceClaimTemplate(template) => {
            let spec = template.spec.as_ref().and_then(|spec| spec.spec.as_ref());
            spec.and_then(|spec| spec.devices.as_ref())
        }
        _ => None,
    };
    let requests = devices.and_then(|devices| devices.requests.as_deref());
    let mut exact = requests.into_iter().flatten().filter_map(|request| request.exactly.as_ref());
    exact.any(|request| request.admin_access == Some(true))
}

fn claim_problems(path: &str, devices: Option<&DeviceClaim>) -> Vec<Problem> {
    let requests = devices.and_then(|devices| devices.requests.as_deref()).unwrap_or_default();
    let mut found = Vec::new();
    if requests.len() > MAX_REQUESTS {
        let message = format!("must have at most {MAX_REQUESTS} items, not {}", requests.len());
        found.push(Problem::new(format!("{path}.requests"), message));
    }
    let mut names = BTreeSet::new();
    for (at, request) in requests.iter().enumerate() {
        let path = format!("{path}.requests[{at}]");
        if !names.insert(&request.name) {
            let message = format!("{:?} is the name of another request", request.name);
            found.push(Problem::new(format!("{path}.name"), message));
        }
        found.extend(request_problems(&path, request));
    }
    found
}

fn request_problems(path: &str, request: &DeviceRequest) -> Vec<Problem> {
    let list = request.first_available.as_deref().unwrap_or_default();
    let mut found = Vec::new();
    match (&request.exactly, list.is_empty()) {
        (Some(_), false) => {
            found.push(Problem::new(path, "must have exactly or firstAvailable, not both"));
        }
        (None, true) => found.push(Problem::new(path, "must have exactly or firstAvailable")),
        (Some(exactly), true) => {
            let own = (&*exactly.device_class_name, exactly.allocation_mode.as_deref());
            let path = format!("{path}.exactly");
            found.extend(amount_problem(&path, own, exactly.count));
            let selectors = exactly.selectors.as_deref();
            found.extend(selector_problems(&format!("{path}.selectors"), selectors));
        }
        (None, false) => {
            for (at, own) in list.iter().enumerate() {
                let path = format!("{path}.firstAvailable[{at}]");
                let wanted = (&*own.device_class_name, own.allocation_mode.as_deref());
                found.extend(amount_problem(&path, wanted, own.count));
                let selectors = own.selectors.as_deref();
                found.extend(selector_problems(&format!("{path}.selectors"), selectors));
            }
        }
    }
    found
}

fn amount_problem(
    path: &str,
    (class, mode): (&str, Option<&str>),
    count: Option<i64>,
) -> Vec<Problem> {
    let class_is_missing =
        || Problem::new(format!("{path}.deviceClassName"), "is missing".to_owned());
    let of_class = class.is_empty().then(class_is_missing);
    let of_count = |count: i64| match mode.unwrap_or("ExactCount") {
        "ExactCount" if count < 1 => {
            Some(Problem::new(format!("{path}.count"), format!("must be at least 1, not {count}")))
        }
        "All" => Some(Problem::new(format!("{path}.count"), "must not be set with mode All")),
        _ => None,
    };
    let is_known = |mode: &&str| matches!(*mode, "ExactCount" | "All");
    let of_mode = mode.filter(|mode| !is_known(mode)).map(|mode| {
        let message = format!("must be ExactCount or All, not {mode:?}");
        Problem::new(format!("{path}.allocationMode"), message)
    });
    [of_class, of_mode, count.and_then(of_count)].into_iter().flatten().collect()
}

fn selector_problems(path: &str, selectors: Option<&[DeviceSelector]>) -> Vec<Problem> {
    let selectors = selectors.into_iter().flatten().enumerate();
    let problem = |(at, selector): (usize, &DeviceSelector)| {
        let path = format!("{path}[{at}].cel.expression");
        let Some(cel) = &selector.cel else {
            return Some(Problem::new(path, "is missing"));
        };
        let error = Program::compile(&cel.expression).err()?;
        Some(Problem::new(path, format!("does not compile: {error}")))
    };
    selectors.filter_map(problem).collect()
}
