//! The calls of bindings and evictions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use kube_batch_cache::store::Store;
use kube_batch_model::{
    decision::PodRef,
    facts::pod::FIELD_MANAGER,
    membership::{BOUND_MINIMUM_ANNOTATION, BOUND_QUEUE_ANNOTATION, PROTECTED_UNTIL_ANNOTATION},
    name::Name,
};
use serde::de::IgnoredAny;
use serde_json::json;

use super::{call::WriteError, context::Context};
use crate::run::metrics::Write;

/// What became of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FoundPod {
    /// It is bound to this node, and is not being deleted.
    Bound(Name),
    /// It waits for a node.
    Waits,
    /// It is being deleted, or is deleted.
    Leaves,
}

fn pods(context: &Context, pod: &PodRef) -> Api<Pod> {
    Api::namespaced(context.client.clone(), &pod.key.namespace)
}

/// What a binding records in annotations, which the API server copies to the pod. There they replace what users have
/// written.
pub(super) struct BindingRecord<'a> {
    /// The queue for which it counts.
    // Parity: see docs/parity.md#d6.
    pub(super) queue: &'a Name,
    /// The minimum of its job.
    // Parity: see docs/parity.md#g1.
    pub(super) minimum: u32,
    /// Until when it may not be reclaimed.
    // Parity: see docs/parity.md#a12.
    pub(super) protected_until: Option<&'a str>,
}

/// Binds a pod to a node.
pub(super) async fn bind(
    context: &Context,
    pod: &PodRef,
    node: &Name,
    record: &BindingRecord<'_>,
) -> Result<(), WriteError> {
    let pods = pods(context, pod);
    let mut annotations = BTreeMap::from([
        (BOUND_QUEUE_ANNOTATION, record.queue.to_string()),
        (BOUND_MINIMUM_ANNOTATION, record.minimum.to_string()),
    ]);
    if let Some(end) = record.protected_until {
        annotations.insert(PROTECTED_UNTIL_ANNOTATION, end.to_owned());
    }
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": &*pod.key.name,
            "namespace": &*pod.key.namespace,
            "uid": &*pod.uid,
            "annotations": annotations,
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": &**node},
    });
    let params = PostParams::default();
    let request =
        pods.create_subresource::<_, IgnoredAny>("binding", &pod.key.name, &params, &binding);
    context.call(Write::Bind, request).await.map(drop)
}

/// Writes the condition that says why a pod is evicted.
// Parity: differs, see docs/parity.md#e6.
pub(super) async fn mark_as_victim(
    context: &Context,
    pod: &PodRef,
    message: &str,
) -> Result<(), WriteError> {
    let pods = pods(context, pod);
    let patch = Patch::Strategic(json!({
        "metadata": {"uid": &*pod.uid},
        "status": {"conditions": [{
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": message,
            "lastTransitionTime": context.clock.now().to_string(),
        }]},
    }));
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let request = pods.patch_subresource("status", &pod.key.name, &params, &patch);
    context.call(Write::Evict, request).await.map(drop)
}

/// Deletes a pod.
pub(super) async fn delete(context: &Context, pod: &PodRef) -> Result<(), WriteError> {
    let pods = pods(context, pod);
    let uid = Some(pod.uid.to_string());
    let preconditions = Some(Preconditions { uid, resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    context.call(Write::Evict, pods.delete(&pod.key.name, &params)).await.map(drop)
}

/// Reads a pod at the most recent version, and stores what it is now.
pub(super) async fn read(context: &Context, pod: &PodRef) -> Result<FoundPod, WriteError> {
    let pods = pods(context, pod);
    let found = match context.read(pods.get(&pod.key.name)).await {
        Ok(found) => found,
        Err(WriteError::NotFound) => {
            context.remove_pod(pod);
            return Ok(FoundPod::Leaves);
        }
        Err(error) => return Err(error),
    };
    let is_same = found.metadata.uid.as_deref() == Some(&*pod.uid);
    if !is_same {
        context.remove_pod(pod);
    }
    context.store(&found);
    let node = found.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    Ok(match node.filter(|node| !node.is_empty()) {
        _ if !is_same || found.metadata.deletion_timestamp.is_some() => FoundPod::Leaves,
        Some(node) => FoundPod::Bound(node.into()),
        None => FoundPod::Waits,
    })
}

/// What the binding says of the protection of a pod: empty if it replaces what a user has written, which must not stay.
// Parity: see docs/parity.md#a12.
pub(super) fn protection(store: &Store, pod: &PodRef, end: Option<Timestamp>) -> Option<String> {
    let facts = store.pods.get(&pod.key);
    let is_written = facts.is_some_and(|facts| facts.protected_until.is_some());
    let text = end.map(|end| end.to_string());
    text.or_else(|| is_written.then(String::new))
}
