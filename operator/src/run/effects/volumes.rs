//! Claims that waited for their pod. Each gets its volume reserved, or its provisioner gets the
//! selected node; the pod is bound when all claims are.
//!
//! Kubernetes' VolumeBinding plugin does the same at its PreBind. The volume controller is what
//! binds claim and volume to one another in the end.

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use kube_batch_model::{
    decision::ClaimChoice,
    facts::pod::FIELD_MANAGER,
    name::{Name, ObjectKey},
};
use serde_json::json;

use super::{call::WriteError, context::Context};
use crate::run::{metrics::Write, scheduler_cache::CacheState};

/// Annotation of a claim that names the node for its provisioner.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of a volume whose claim a controller chose, not an administrator: it may be undone.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

const POST: PostParams = PostParams { dry_run: false, field_manager: None };

/// Reserves or provisions what was chosen for a claim.
///
/// # Errors
///
/// [`WriteError`], with the name of the claim.
pub(super) async fn bind_claim(
    context: &Context,
    node: &Name,
    choice: &ClaimChoice,
) -> Result<(), WriteError> {
    let claim = &choice.claim;
    let bound = match &choice.volume {
        Some(volume) => reserve(context, volume, claim).await,
        None => select_node(context, claim, choice.node(node)).await,
    };
    bound.map_err(|error| error.about(&format!("claim {claim}")))
}

/// Whether all claims are bound, as far as the cache knows.
///
/// # Errors
///
/// Says which claim does not exist any more.
pub(super) fn are_bound(state: &CacheState, claims: &[ClaimChoice]) -> Result<bool, String> {
    let mut are_bound = true;
    for ClaimChoice { claim, .. } in claims {
        let facts = state.store.claims.get(claim);
        let facts = facts.ok_or_else(|| format!("claim {claim} got deleted in the meantime"))?;
        are_bound &= facts.is_bound();
    }
    Ok(are_bound)
}

/// Reserves a volume for a claim, unless it belongs to another one.
async fn reserve(context: &Context, volume: &Name, claim: &ObjectKey) -> Result<(), WriteError> {
    let uid = {
        let state = context.cache.lock();
        let does_not_exist = || WriteError::Rejected("it does not exist".to_owned());
        state.store.claims.get(claim).ok_or_else(does_not_exist)?.uid.to_string()
    };
    let about_volume = |error: WriteError| error.about(&format!("volume {volume}"));
    let volumes: Api<PersistentVolume> = Api::all(context.client.clone());
    let mut found = context.call(Write::Volume, volumes.get(volume)).await.map_err(about_volume)?;
    let spec = found.spec.get_or_insert_default();
    match &spec.claim_ref {
        Some(known) if known.uid.as_deref() == Some(&uid) => return Ok(()),
        // An administrator has reserved it for a claim of this name.
        Some(known) if is_reserved_for(known, claim) => {}
        Some(_) => {
            let why = format!("volume {volume} belongs to another claim");
            return Err(WriteError::Rejected(why));
        }
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
    let request = volumes.replace(volume, &POST, &found);
    context.call(Write::Volume, request).await.map(drop).map_err(about_volume)
}

/// Whether a claim reference without uid names this claim.
fn is_reserved_for(reference: &ObjectReference, claim: &ObjectKey) -> bool {
    reference.uid.as_ref().is_none_or(String::is_empty)
        && reference.namespace.as_deref() == Some(&*claim.namespace)
        && reference.name.as_deref() == Some(&*claim.name)
}

/// Names the node for the provisioner of a claim.
async fn select_node(context: &Context, claim: &ObjectKey, node: &Name) -> Result<(), WriteError> {
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(context.client.clone(), &claim.namespace);
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"metadata": {"annotations": {SELECTED_NODE: &**node}}}));
    let request = claims.patch(&claim.name, &params, &patch);
    context.call(Write::Volume, request).await.map(drop)
}
