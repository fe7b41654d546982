//! The extended resources that each container of a pod requests.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use kube_batch_model::{
    facts::{
        device::class::class_of_implicit_resource,
        extended::{ExtendedRequest, ExtendedRequests},
    },
    name::Name,
    quantity::Quantity,
};

use super::request::{containers, is_sidecar};

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
