//! Claims that waited for their pod: each gets its volume, or a provisioner is told the node, and
//! the pod is bound when all of them are.
//!
//! The work is that of Kubernetes' volume binding plugin at its PreBind; who binds claim and volume
//! to one another in the end is the volume controller.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use kube_batch_api::{
    decision::ClaimChoice,
    name::{Name, ObjectKey},
};
use serde_json::json;
use tokio::time::Instant;

use super::{Effects, FIELD_MANAGER, call::call};
use crate::run::metrics::Write;

/// How long claims may take to be bound; a decision stands a little longer. Kubernetes waits ten
/// minutes, and its pod waits with it; ours is decided anew, with the same node for what is being
/// made.
const BIND_TIMEOUT: Duration = Duration::from_secs(100);
/// How often they are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Annotation that tells a provisioner the node.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of a volume whose claim a controller chose, not an administrator: it may be taken
/// back.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

impl Effects {
    /// Gives claims what was chosen for them and waits until they are bound; else says why not.
    pub(super) async fn bind_claims(
        &self,
        node: &Name,
        claims: &[ClaimChoice],
    ) -> Result<(), String> {
        for ClaimChoice { claim, volume } in claims {
            let done = match volume {
                Some(volume) => self.reserve(volume, claim).await,
                None => self.select_node(claim, node).await,
            };
            done.map_err(|why| format!("claim {claim}: {why}"))?;
        }
        let started = Instant::now();
        while !claims.iter().all(|choice| self.is_bound(&choice.claim)) {
            if started.elapsed() > BIND_TIMEOUT {
                return Err(format!(
                    "its claims were not bound within {} s",
                    BIND_TIMEOUT.as_secs()
                ));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    fn is_bound(&self, claim: &ObjectKey) -> bool {
        let state = self.cache.lock();
        let facts = state.store.claims.get(claim);
        facts.is_some_and(|facts| facts.bind_completed && facts.volume.is_some())
    }

    /// Makes a volume that of a claim, unless it is somebody's already.
    async fn reserve(&self, volume: &Name, claim: &ObjectKey) -> Result<(), String> {
        let uid = {
            let state = self.cache.lock();
            let facts = state.store.claims.get(claim).ok_or("it does not exist")?;
            facts.uid.to_string()
        };
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let found = call(&self.metrics, Write::Volume, || volumes.get(volume)).await;
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
        // The version it was read at is in it: of two that take it one is refused.
        let params = PostParams::default();
        call(&self.metrics, Write::Volume, || volumes.replace(volume, &params, &found))
            .await
            .map(drop)
            .map_err(|why| format!("volume {volume}: {why}"))
    }

    /// Tells the provisioner of a claim on which node its volume is needed.
    async fn select_node(&self, claim: &ObjectKey, node: &Name) -> Result<(), String> {
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &claim.namespace);
        let params =
            PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": {"annotations": {SELECTED_NODE: &**node}}}));
        call(&self.metrics, Write::Volume, || claims.patch(&claim.name, &params, &patch))
            .await
            .map(drop)
            .map_err(|why| why.to_string())
    }
}
