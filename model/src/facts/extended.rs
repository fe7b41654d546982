//! The extended resources that each container of a pod requests.
//!
//! A class of devices can stand for an extended resource. The scheduler then makes a claim whose requests are
//! named after the containers, so amounts for the whole pod do not suffice.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde::{Deserialize, Serialize};

use super::{
    device::class::class_of_implicit_resource,
    request::{containers, is_sidecar},
};
use crate::{name::Name, quantity::Quantity};

/// A container that requests extended resources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExtendedRequests {
    /// The name of the container.
    pub container: Name,
    /// Its position among init containers and containers.
    pub at: usize,
    /// Whether it ends before the containers start.
    pub is_init: bool,
    /// What it requests, in order of the names.
    pub requests: Vec<ExtendedRequest>,
}

/// A request of a container for an extended resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExtendedRequest {
    /// The resource.
    pub resource: Name,
    /// Its position among all resources that the container requests, in order of the names.
    pub rank: usize,
    /// The amount.
    pub count: u64,
}

/// The containers of a pod that request extended resources.
pub(super) fn extended_requests(spec: &PodSpec) -> Vec<ExtendedRequests> {
    let n_init = spec.init_containers.as_ref().map_or(0, Vec::len);
    let of_container = |(at, container): (usize, &Container)| {
        let requests = container.resources.as_ref()?.requests.as_ref()?;
        let requests = requests.iter().enumerate().filter_map(|(rank, (resource, amount))| {
            let amount: Quantity = amount.0.parse().ok().filter(|_| is_extended(resource))?;
            let count = u64::try_from(amount.units()).ok().filter(|count| *count > 0)?;
            Some(ExtendedRequest { resource: Name::from(resource.as_str()), rank, count })
        });
        let requests: Vec<ExtendedRequest> = requests.collect();
        (!requests.is_empty()).then(|| ExtendedRequests {
            container: Name::from(container.name.as_str()),
            at,
            is_init: at < n_init && !is_sidecar(container),
            requests,
        })
    };
    containers(spec).enumerate().filter_map(of_container).collect()
}

/// Whether a resource is one that no part of Kubernetes itself provides.
fn is_extended(resource: &str) -> bool {
    let is_native = |domain: &str| domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    class_of_implicit_resource(resource).is_some()
        || resource
            .split_once('/')
            .is_some_and(|(domain, _)| !is_native(domain) && !domain.starts_with("requests."))
}
