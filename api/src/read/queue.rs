//! Queues.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_batch_model::{
    duration,
    facts::{FactError, queue::QueueFacts},
    group_version::GroupVersion,
    name::Name,
    object_status::QueueStatus,
};

use super::{
    amounts::limits,
    metadata::{created, object_key},
};
use crate::crd::QueueSpec;

/// Reads a queue.
///
/// # Errors
///
/// [`FactError`] if it has no name, a negative weight, or an amount or duration that cannot be read:
/// skip it.
pub fn queue(
    version: GroupVersion,
    meta: &ObjectMeta,
    spec: &QueueSpec,
    status: Option<&QueueStatus>,
) -> Result<QueueFacts, FactError> {
    let key = object_key("Queue", meta)?;
    let object = || format!("Queue {}", key.name);
    let weight = u32::try_from(spec.weight).map_err(|_| {
        FactError::new(object(), "spec.weight", format!("{} is negative", spec.weight))
    })?;
    let capability = limits(&spec.capability)
        .map_err(|error| FactError::amount(object(), "spec.capability", &error))?;
    let min_runtime = spec.min_runtime.as_deref().map_or(Ok(Duration::ZERO), duration::parse);
    let min_runtime =
        min_runtime.map_err(|problem| FactError::new(object(), "spec.minRuntime", problem))?;
    Ok(QueueFacts {
        uid: Name::from(meta.uid.as_deref().unwrap_or_default()),
        version,
        created: created(meta),
        weight,
        capability,
        min_runtime,
        not_honoured: Vec::new(),
        resource_version: meta.resource_version.as_deref().map(Name::from),
        status: status.cloned().unwrap_or_default(),
        name: key.name,
    })
}
