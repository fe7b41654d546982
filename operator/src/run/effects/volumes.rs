//! Claims that waited for their pod. Each gets its volume reserved, or its provisioner gets the
//! selected node; the pod is bound when all claims are.
//!
//! Kubernetes' VolumeBinding plugin does the same at its PreBind. The volume controller is what
//! binds claim and volume to one another in the end.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use kube_batch_api::{
    decision::ClaimChoice,
    facts::pod::FIELD_MANAGER,
    name::{Name, ObjectKey},
};
use serde_json::json;
use tokio::time::Instant;

use super::{call::call, context::Context};
use crate::run::metrics::Write;

/// How long claims may take to be bound; a decision expires a little later. Kubernetes waits ten
/// minutes; here the pod is decided again, with the same node for volumes being provisioned.
const BIND_TIMEOUT: Duration = Duration::from_secs(100);
/// How often the cache is checked for bound claims.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Annotation of a claim that names the node for its provisioner.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of a volume whose claim a controller chose, not an administrator: it may be undone.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// Reserves or provisions what was chosen for the claims and waits until they are bound.
///
/// # Errors
///
/// If one of them could not be, with the reason: the pod is not to be bound.
pub(super) async fn bind_claims(
    context: &Context,
    node: &Name,
    claims: &[ClaimChoice],
) -> Result<(), String> {
    for ClaimChoice { claim, volume } in claims {
        let done = match volume {
            Some(volume) => reserve(context, volume, claim).await,
            None => select_node(context, claim, node).await,
        };
        done.map_err(|why| format!("claim {claim}: {why}"))?;
    }
    let started = Instant::now();
    while !claims.iter().all(|choice| is_bound(context, &choice.claim)) {
        if started.elapsed() > BIND_TIMEOUT {
            return Err(format!("its claims were not bound within {} s", BIND_TIMEOUT.as_secs()));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

fn is_bound(context: &Context, claim: &ObjectKey) -> bool {
    let state = context.cache.lock();
    let facts = state.store.claims.get(claim);
    facts.is_some_and(|facts| facts.bind_completed && facts.volume.is_some())
}

/// Reserves a volume for a claim, unless it belongs to another one.
async fn reserve(context: &Context, volume: &Name, claim: &ObjectKey) -> Result<(), String> {
    let uid = {
        let state = context.cache.lock();
        let facts = state.store.claims.get(claim).ok_or("it does not exist")?;
        facts.uid.to_string()
    };
    let volumes: Api<PersistentVolume> = Api::all(context.client.clone());
    let found = call(&context.metrics, Write::Volume, || volumes.get(volume)).await;
    let mut found = found.map_err(|why| format!("volume {volume}: {why}"))?;
    let spec = found.spec.get_or_insert_default();
    match &spec.claim_ref {
        Some(other) if other.uid.as_deref() == Some(&uid) => return Ok(()),
        Some(other) if other.uid.as_ref().is_some_and(|uid| !uid.is_empty()) => {
            return Err(format!("volume {volume} belongs to another claim"));
        }
        Some(_) => {}
        None => {
            let annotations = found.metadata.annotations.get_or_insert_default();
            annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
        }
    }
    spec.claim_ref = Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: Some(claim.namespace.to_string()),
        name: Some(claim.name.to_string()),
        uid: Some(uid),
        ..ObjectReference::default()
    });
    // The version it was read at is in it: of two that reserve it one gets a conflict.
    let params = PostParams::default();
    call(&context.metrics, Write::Volume, || volumes.replace(volume, &params, &found))
        .await
        .map(drop)
        .map_err(|why| format!("volume {volume}: {why}"))
}

/// Names the node for the provisioner of a claim.
async fn select_node(context: &Context, claim: &ObjectKey, node: &Name) -> Result<(), String> {
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(context.client.clone(), &claim.namespace);
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"metadata": {"annotations": {SELECTED_NODE: &**node}}}));
    call(&context.metrics, Write::Volume, || claims.patch(&claim.name, &params, &patch))
        .await
        .map(drop)
        .map_err(|why| why.to_string())
}
