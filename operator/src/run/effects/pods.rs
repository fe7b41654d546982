//! Bindings and evictions.
//!
//! A conflict or a lost answer is settled by reading the pod, never by guessing.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use kube_batch_api::{decision::PodRef, facts::pod::FIELD_MANAGER, name::Name};
use kube_batch_cache::store::Change;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::timeout;
use tracing::debug;

use super::{
    call::{ANSWER_TIMEOUT, WriteError, call},
    context::Context,
};
use crate::run::metrics::Write;

/// What became of a decision.
#[derive(Debug)]
pub(super) enum Settled {
    /// The API server did what was decided.
    Done,
    /// It did not, and the cache has the pod as it is now.
    NotDone,
    /// It rejected it, for this reason.
    Rejected(String),
    /// RBAC does not permit it.
    Forbidden(String),
}

fn pods(context: &Context, pod: &PodRef) -> Api<Pod> {
    Api::namespaced(context.client.clone(), &pod.key.namespace)
}

/// Binds a pod to a node.
pub(super) async fn bind(context: &Context, pod: &PodRef, node: &Name) -> Settled {
    let pods = pods(context, pod);
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": &*pod.key.name,
            "namespace": &*pod.key.namespace,
            "uid": &*pod.uid,
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": &**node},
    });
    let params = PostParams::default();
    let answer = call(&context.metrics, Write::Bind, || {
        pods.create_subresource::<_, IgnoredAny>("binding", &pod.key.name, &params, &binding)
    });
    match answer.await {
        Ok(_) => Settled::Done,
        Err(error @ WriteError::Rejected(_)) => {
            Settled::Rejected(format!("cannot bind to {node}: {error}"))
        }
        Err(error @ WriteError::Forbidden(_)) => {
            Settled::Forbidden(format!("cannot bind to {node}: {error}"))
        }
        // A conflict may be with our own binding whose answer was lost.
        Err(
            error @ (WriteError::NotFound | WriteError::Conflict(_) | WriteError::Unanswered(_)),
        ) => {
            debug!(%pod.key, %node, %error, "the binding failed, reading the pod");
            let found = read_again(context, pod).await;
            if found.as_ref() == Some(node) { Settled::Done } else { Settled::NotDone }
        }
    }
}

/// Evicts a pod: sets the condition first, which says why, and then deletes the pod.
// Parity: differs, see docs/parity.md#e6.
pub(super) async fn evict(context: &Context, pod: &PodRef, message: &str) -> Settled {
    let evicted = match mark_as_victim(context, pod, message).await {
        Ok(()) => delete(context, pod).await,
        Err(error) => Err(error),
    };
    match evicted {
        Ok(()) => Settled::Done,
        Err(error @ WriteError::Rejected(_)) => Settled::Rejected(format!("cannot evict: {error}")),
        Err(error @ WriteError::Forbidden(_)) => {
            Settled::Forbidden(format!("cannot evict: {error}"))
        }
        Err(
            error @ (WriteError::NotFound | WriteError::Conflict(_) | WriteError::Unanswered(_)),
        ) => {
            debug!(%pod.key, %error, "the eviction failed, reading the pod");
            read_again(context, pod).await;
            Settled::NotDone
        }
    }
}

async fn mark_as_victim(context: &Context, pod: &PodRef, message: &str) -> Result<(), WriteError> {
    let pods = pods(context, pod);
    let patch = Patch::Strategic(json!({
        "metadata": {"uid": &*pod.uid},
        "status": {"conditions": [{
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": message,
            "lastTransitionTime": Timestamp::now().to_string(),
        }]},
    }));
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let answer = call(&context.metrics, Write::Evict, || {
        pods.patch_subresource("status", &pod.key.name, &params, &patch)
    });
    answer.await.map(drop)
}

async fn delete(context: &Context, pod: &PodRef) -> Result<(), WriteError> {
    let pods = pods(context, pod);
    let uid = Some(pod.uid.to_string());
    let preconditions = Some(Preconditions { uid, resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    let answer = call(&context.metrics, Write::Evict, || pods.delete(&pod.key.name, &params)).await;
    answer.map(drop)
}

/// Reads a pod and stores what it is now; returns its node, if it is still the same pod.
async fn read_again(context: &Context, pod: &PodRef) -> Option<Name> {
    let pods = pods(context, pod);
    match timeout(ANSWER_TIMEOUT, pods.get_opt(&pod.key.name)).await {
        Ok(Ok(Some(found))) => {
            let is_same = found.metadata.uid.as_deref() == Some(&*pod.uid);
            let node = found.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            let node = node.filter(|node| is_same && !node.is_empty()).map(Name::from);
            context.store(|store| store.apply_pod(&found));
            node
        }
        Ok(Ok(None)) => {
            let mut state = context.cache.lock();
            let known = state.store.pods.get(&pod.key);
            if known.is_some_and(|facts| facts.uid == pod.uid) {
                state.store.pods.delete(&pod.key);
                context.cache.record_change(&mut state, Change::Facts);
            }
            None
        }
        // The watch will show it.
        Ok(Err(_)) | Err(_) => None,
    }
}
