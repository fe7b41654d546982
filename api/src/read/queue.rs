//! Queues.

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
    selector::{label_selector, label_selector_problem},
};
use crate::crd::{DesiredState, QueueSpec};

/// The most that a queue is before or after its siblings.
const MAX_PRIORITY: i32 = 1_000_000;

/// Reads a queue.
///
/// # Errors
///
/// [`FactError`] if it has no name, a negative weight or number of jobs, a priority out of range, or an amount or
/// duration that cannot be read: skip it.
pub fn queue(
    version: GroupVersion,
    meta: &ObjectMeta,
    spec: &QueueSpec,
    status: Option<&QueueStatus>,
) -> Result<QueueFacts, FactError> {
    let key = object_key("Queue", meta)?;
    let error = |field: &str, problem: String| {
        FactError::new(format!("Queue {}", key.name), format!("spec.{field}"), problem)
    };
    let natural = |field: &str, number: i32| {
        u32::try_from(number).map_err(|_| error(field, format!("{number} is negative")))
    };
    let amounts = |field: &str, amounts| {
        let object = format!("Queue {}", key.name);
        limits(amounts)
            .map_err(|problem| FactError::amount(object, format!("spec.{field}"), &problem))
    };
    let priority = spec.priority.unwrap_or(0);
    if !(-MAX_PRIORITY..=MAX_PRIORITY).contains(&priority) {
        let problem = format!("{priority} is not between -{MAX_PRIORITY} and {MAX_PRIORITY}");
        return Err(error("priority", problem));
    }
    if let Some(selector) = &spec.namespace_selector
        && let Some(problem) = label_selector_problem(selector)
    {
        return Err(error(&format!("namespaceSelector.{}", problem.path), problem.message));
    }
    let min_runtime = spec.min_runtime.as_deref().map(duration::parse).transpose();
    Ok(QueueFacts {
        is_top: false,
        uid: Name::from(meta.uid.as_deref().unwrap_or_default()),
        version,
        created: created(meta),
        weight: natural("weight", spec.weight)?,
        capability: amounts("capability", &spec.capability)?,
        parent: spec.parent.as_deref().filter(|parent| !parent.is_empty()).map(Name::from),
        deserved: amounts("deserved", &spec.deserved)?,
        guarantee: amounts("guarantee", &spec.guarantee)?,
        priority,
        not_reclaimable: spec.reclaimable == Some(false),
        closed: spec.state == Some(DesiredState::Closed),
        max_running_jobs: spec
            .max_running_jobs
            .map(|n| natural("maxRunningJobs", n))
            .transpose()?,
        order: spec.order.unwrap_or_default(),
        namespace_selector: spec.namespace_selector.as_ref().map(label_selector),
        min_runtime: min_runtime.map_err(|problem| error("minRuntime", problem))?,
        generation: meta.generation,
        not_honoured: Vec::new(),
        resource_version: meta.resource_version.as_deref().map(Name::from),
        status: status.cloned().unwrap_or_default(),
        name: key.name.clone(),
    })
}
