//! Queues.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::{FactError, created, object_key};
use crate::{
    api_version::ApiVersion,
    crd::{QueueSpec, QueueStatus},
    duration,
    name::Name,
    resource::ResourceList,
};

/// The fields of a queue that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueFacts {
    /// Its name.
    pub name: Name,
    /// Its uid.
    pub uid: Name,
    /// The API group it lives in.
    pub version: ApiVersion,
    /// Creation time.
    pub created: Timestamp,
    /// Its weight; 0 where the object has none.
    // Parity: kept, see docs/parity.md#d3.
    pub weight: u32,
    /// Hard limits by resource.
    pub capability: ResourceList,
    /// How long its pods and gangs run before they may be evicted; zero if `spec.minRuntime` is absent.
    // Parity: new, see docs/parity.md#p12.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub min_runtime: Duration,
    /// Fields of its spec that have no effect here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_honoured: Vec<Name>,
    /// The version in which its status was stored; a write of the status says that it follows on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<Name>,
    /// The status as stored.
    pub status: QueueStatus,
}

impl QueueFacts {
    /// Reads a queue.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name, a negative weight, or an amount or duration that cannot be read:
    /// skip it.
    pub fn from_parts(
        version: ApiVersion,
        meta: &ObjectMeta,
        spec: &QueueSpec,
        status: Option<&QueueStatus>,
    ) -> Result<Self, FactError> {
        let key = object_key("Queue", meta)?;
        let object = || format!("Queue {}", key.name);
        let weight = u32::try_from(spec.weight).map_err(|_| {
            FactError::new(object(), "spec.weight", format!("{} is negative", spec.weight))
        })?;
        let capability = ResourceList::of_limits(&spec.capability)
            .map_err(|error| FactError::amount(object(), "spec.capability", &error))?;
        let min_runtime = spec.min_runtime.as_deref().map_or(Ok(Duration::ZERO), duration::parse);
        let min_runtime =
            min_runtime.map_err(|problem| FactError::new(object(), "spec.minRuntime", problem))?;
        Ok(Self {
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
}
