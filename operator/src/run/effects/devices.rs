//! Claims for devices of a binding. Each gets the devices that were chosen for it, and the pod as one of
//! its users; the pod is bound when all devices are ready.
//!
//! Kubernetes' DynamicResources plugin does the same at its PreBind, with the same writes in the same order,
//! and takes them back in the same way. What a claim was given stays: the next attempt finds it.
// Parity: see docs/parity.md#devices.

use std::sync::Arc;

use k8s_openapi::{
    api::{
        core::v1::Pod,
        resource::v1::{
            AllocationResult, ResourceClaim, ResourceClaimConsumerReference, ResourceClaimSpec,
            ResourceClaimStatus,
        },
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use kube_batch_api::read::{
    self,
    device::{
        claim::{api_allocation, api_consumer},
        request::api_claim_spec,
    },
};
use kube_batch_devices::{
    pod::{Readiness, readiness},
    result::NEW_SHARE,
};
use kube_batch_model::{
    decision::{DeviceChoice, PodRef},
    devices::ExtendedClaim,
    facts::{
        device::claim::{
            Allocation, Consumer, DELETE_PROTECTION, DeviceResult, EXTENDED_RESOURCE_CLAIM,
        },
        pod::FIELD_MANAGER,
    },
    name::{Name, ObjectKey},
    selector::NodeTerm,
};
use serde_json::json;

use super::{call::WriteError, context::Context, queue::Undo};
use crate::run::metrics::Write;

/// How often a write is tried that conflicts with another: as often as Kubernetes tries it.
const N_TRIES: u32 = 5;
/// How many may use a claim: a limit of the API.
const MAX_CONSUMERS: usize = 256;

const POST: PostParams = PostParams { dry_run: false, field_manager: None };

/// A claim of a pod that is to be bound.
struct Binding<'a> {
    context: &'a Context,
    pod: &'a PodRef,
    node: &'a Name,
    choice: &'a DeviceChoice,
    claim: &'a ObjectKey,
    /// Who uses it: the pod or its PodGroup.
    user: Consumer,
}

impl<'a> Binding<'a> {
    fn new(
        context: &'a Context,
        (pod, node): (&'a PodRef, &'a Name),
        choice: &'a DeviceChoice,
    ) -> Self {
        let user = choice.consumer(pod);
        Self { context, pod, node, choice, claim: &choice.claim, user }
    }
}

/// Gives a claim the devices that were chosen, unless it has them already, and reserves it for the pod.
///
/// Returns `false` without a write if the pod does not wait any more.
///
/// # Errors
///
/// [`WriteError`], with the name of the claim.
pub(super) async fn reserve(
    context: &Context,
    place: (&PodRef, &Name),
    choice: &DeviceChoice,
) -> Result<bool, WriteError> {
    let _lock = context.claim_locks.lock(&choice.claim).await;
    let binding = Binding::new(context, place, choice);
    let mut conflict = String::new();
    for _ in 0..N_TRIES {
        match binding.try_to_reserve().await {
            Err(WriteError::Conflict(why)) => conflict = why,
            answer => return answer,
        }
    }
    Err(WriteError::Conflict(conflict))
}

impl Binding<'_> {
    fn api(&self) -> Api<ResourceClaim> {
        Api::namespaced(self.context.client.clone(), &self.claim.namespace)
    }

    fn rejected(&self, what: &str) -> WriteError {
        WriteError::Rejected(format!("claim {} {what}", self.claim))
    }

    /// Reads the claim as it is now.
    async fn read(&self) -> Result<ResourceClaim, WriteError> {
        let read = self.context.read(self.api().get(&self.claim.name)).await;
        let claim = read.map_err(|error| error.about(&format!("read claim {}", self.claim)))?;
        self.context.store(&claim);
        Ok(claim)
    }

    /// Reads the claim, or creates it if it is for extended resources.
    async fn read_or_create(&self) -> Result<ResourceClaim, WriteError> {
        let Some(new) = &self.choice.new else { return self.read().await };
        let api = self.api();
        let claim = match self.context.read(api.get(&self.claim.name)).await {
            Err(WriteError::NotFound) if self.context.waits(self.pod) => {
                let made = extended_claim(self.claim, self.pod, new);
                self.context.call(Write::ResourceClaim, api.create(&POST, &made)).await
            }
            answer => answer,
        };
        let about = format!("create claim {}", self.claim);
        let claim = claim.map_err(|error| error.about(&about))?;
        self.context.store(&claim);
        let owners = claim.metadata.owner_references.iter().flatten();
        if !owners.into_iter().any(|owner| owner.uid == *self.pod.uid) {
            return Err(self.rejected("belongs to another pod"));
        }
        Ok(claim)
    }

    async fn try_to_reserve(&self) -> Result<bool, WriteError> {
        // Also if the pod is gone: an earlier write may have been done whose answer was lost.
        let mut claim = self.read_or_create().await?;
        if !self.context.waits(self.pod) {
            return Ok(false);
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(self.rejected("got deleted in the meantime"));
        }
        let allocation = self.allocation_for(&claim, self.choice.allocation.as_ref())?;
        if self.is_user_of(&claim) && allocation.is_none() {
            return Ok(true);
        }
        if users(&claim).len() >= MAX_CONSUMERS {
            return Err(self.rejected(&format!("is used by {MAX_CONSUMERS} already")));
        }
        if allocation.is_some() {
            claim = self.protect(claim).await?;
        }
        self.write_status(claim, allocation).await.map(|()| true)
    }

    /// The allocation to write to a claim; `None` if it has the one that the decision is based on.
    fn allocation_for(
        &self,
        claim: &ResourceClaim,
        chosen: Option<&Allocation>,
    ) -> Result<Option<AllocationResult>, WriteError> {
        let facts =
            read::resource_claim(claim).map_err(|error| WriteError::Rejected(error.to_string()))?;
        let is_expected = match (&facts.allocation, chosen) {
            (None, Some(chosen)) => {
                self.expect_free(chosen)?;
                return Ok(Some(self.new_allocation(chosen)));
            }
            (None, None) => {
                // Another binding in flight was given the devices first, and is written later.
                let in_flight = self.context.cache.lock().assumed.allocation_of(self.claim);
                let in_flight = in_flight.filter(|allocation| self.reaches_node(allocation));
                let lost = || self.rejected("got deallocated in the meantime");
                let chosen = in_flight.ok_or_else(lost)?;
                // The other binding may be in flight only because it was rejected and its back-off has not ended.
                self.expect_free(&chosen)?;
                return Ok(Some(self.new_allocation(&chosen)));
            }
            // Another pod that shares the claim has written it, or we have, and the answer was lost.
            (Some(found), Some(chosen)) => names_same_devices(found, chosen),
            (Some(found), None) => self.reaches_node(found),
        };
        let elsewhere = || self.rejected("got allocated elsewhere in the meantime");
        is_expected.then_some(None).ok_or_else(elsewhere)
    }

    /// Checks that the watch has not shown meanwhile that another scheduler has allocated a device: the API server
    /// does not check it.
    fn expect_free(&self, chosen: &Allocation) -> Result<(), WriteError> {
        let state = self.context.cache.lock();
        let taken = chosen
            .exclusive()
            .find_map(|id| Some((id, state.other_holder(self.claim, id)?.clone())));
        taken.map_or(Ok(()), |(id, other)| {
            Err(self.rejected(&format!("cannot get device {id}: claim {other} has got it")))
        })
    }

    /// An allocation as it is written: with its time, which may not be added later, and new ids for its shares.
    fn new_allocation(&self, chosen: &Allocation) -> AllocationResult {
        let mut allocation = api_allocation(chosen);
        allocation.allocation_timestamp = Some(Time(self.context.clock.now()));
        let devices = allocation.devices.iter_mut();
        let results = devices.flat_map(|devices| devices.results.iter_mut().flatten());
        for share in results.filter_map(|result| result.share_id.as_mut()) {
            if share == NEW_SHARE {
                *share = uuid::Uuid::new_v4().to_string();
            }
        }
        allocation
    }

    /// Whether the node of the pod can use the devices. A node that is not known cannot be checked.
    fn reaches_node(&self, allocation: &Allocation) -> bool {
        let node = self.context.cache.lock().store.nodes.get(self.node).map(Arc::clone);
        let (Some(node), Some(terms)) = (node, &allocation.nodes) else { return true };
        terms.iter().any(|term: &NodeTerm| term.matches(&node.name, &node.labels))
    }

    fn is_user_of(&self, claim: &ResourceClaim) -> bool {
        users(claim).iter().any(|user| user.uid == *self.user.uid)
    }

    /// Adds the finalizer, without which the claim controller never frees the devices.
    async fn protect(&self, mut claim: ResourceClaim) -> Result<ResourceClaim, WriteError> {
        let finalizers = claim.metadata.finalizers.get_or_insert_default();
        if finalizers.iter().any(|name| name == DELETE_PROTECTION) {
            return Ok(claim);
        }
        finalizers.push(DELETE_PROTECTION.to_owned());
        let api = self.api();
        let request = api.replace(&self.claim.name, &POST, &claim);
        let written = self.context.call(Write::ResourceClaim, request).await;
        written.map_err(|error| error.about(&format!("add finalizer to claim {}", self.claim)))
    }

    async fn write_status(
        &self,
        mut claim: ResourceClaim,
        allocation: Option<AllocationResult>,
    ) -> Result<(), WriteError> {
        let what = if allocation.is_some() { "allocation and reservation" } else { "reservation" };
        let is_user = self.is_user_of(&claim);
        let status = claim.status.get_or_insert_default();
        if allocation.is_some() {
            status.allocation = allocation;
        }
        if !is_user {
            status.reserved_for.get_or_insert_default().push(api_consumer(&self.user));
        }
        let written = replace_status(self.context, &self.api(), &claim).await;
        let about = |error: WriteError| error.about(&format!("add {what} to claim {}", self.claim));
        written.map(drop).map_err(about)
    }

    /// Takes the devices from the claim, unless they are ready or it has other users.
    ///
    /// Returns whether the claim does not name the pod any more.
    async fn try_to_deallocate(&self) -> Result<bool, WriteError> {
        let claim = self.read().await?;
        let has_others = users(&claim).iter().any(|user| user.uid != *self.user.uid);
        let facts = read::resource_claim(&claim);
        let allocation = facts.as_ref().ok().and_then(|facts| facts.allocation.as_ref());
        let is_ready = facts.as_ref().ok().zip(allocation).is_none_or(|(facts, allocation)| {
            readiness(facts, allocation, None) == Readiness::Ready
        });
        if has_others || is_ready {
            return Ok(false);
        }
        deallocated(self.context, &self.api(), claim).await.map(|_| true)
    }

    /// Removes the pod from the users of the claim.
    async fn release(&self) -> Result<(), WriteError> {
        let uid = {
            let state = self.context.cache.lock();
            state.store.resource_claims.get(self.claim).map(|facts| facts.uid.clone())
        };
        // Nothing is left of a claim that was deleted.
        let Some(claim_uid) = uid else { return Ok(()) };
        let patch = Patch::Strategic(json!({
            "metadata": {"uid": &*claim_uid},
            "status": {"reservedFor": [{"$patch": "delete", "uid": &*self.pod.uid}]},
        }));
        let api = self.api();
        let params = patch_params();
        let request = api.patch_status(&self.claim.name, &params, &patch);
        let written = self.context.call(Write::ResourceClaim, request).await?;
        self.context.store(&written);
        Ok(())
    }
}

/// Writes to the status of a pod which containers get the devices of the claim for its extended resources: the
/// kubelet reads it there. The last write before the binding, because the API server lets no one take it back.
///
/// # Errors
///
/// [`WriteError`].
// Parity: differs, see docs/parity.md#v12.
pub(super) async fn map_extended_resources(
    context: &Context,
    PodRef { key, uid }: &PodRef,
    choices: &[DeviceChoice],
) -> Result<(), WriteError> {
    let made = choices.iter().find_map(|choice| Some((&choice.claim, choice.new.as_ref()?)));
    let Some((claim, new)) = made else { return Ok(()) };
    let mappings = new.mappings.iter().map(|mapping| {
        json!({
            "containerName": &*mapping.container,
            "resourceName": &*mapping.resource,
            "requestName": &*mapping.request,
        })
    });
    let status = json!({
        "resourceClaimName": &*claim.name,
        "requestMappings": mappings.collect::<Vec<_>>(),
    });
    let patch = Patch::Strategic(json!({
        "metadata": {"uid": &**uid},
        "status": {"extendedResourceClaimStatus": status},
    }));
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.namespace);
    let params = patch_params();
    let request = api.patch_status(&key.name, &params, &patch);
    let written = context.call(Write::ResourceClaim, request).await;
    let pod = written.map_err(|error| error.about(&format!("patch pod {key}")))?;
    context.store(&pod);
    Ok(())
}

/// Takes back what was written to a claim for a pod that is not bound after all.
///
/// # Errors
///
/// [`WriteError`]. Without it the claim stays as it is, and the next attempt finds it reserved.
pub(super) async fn release(
    context: &Context,
    place: (&PodRef, &Name),
    choice: &DeviceChoice,
    undo: Undo,
) -> Result<(), WriteError> {
    let _lock = context.claim_locks.lock(&choice.claim).await;
    let binding = Binding::new(context, place, choice);
    if choice.new.is_some() {
        return free(context, &choice.claim, &binding.user).await;
    }
    if undo == Undo::Devices {
        for _ in 0..N_TRIES {
            match binding.try_to_deallocate().await {
                Ok(true) => return Ok(()),
                Ok(false) => break,
                Err(WriteError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    // The other pods of a PodGroup may use the claim.
    if choice.group.is_some() {
        return Ok(());
    }
    binding.release().await
}

/// Takes the devices from a claim that a waiting pod cannot use. One for extended resources is deleted.
///
/// # Errors
///
/// [`WriteError`].
pub(super) async fn deallocate(
    context: &Context,
    pod: &PodRef,
    claim: &ObjectKey,
) -> Result<(), WriteError> {
    let _lock = context.claim_locks.lock(claim).await;
    free(context, claim, &Consumer::pod(&pod.key.name, &pod.uid)).await
}

/// Deletes a claim for extended resources, or takes the devices from any other claim, unless others use it.
async fn free(context: &Context, key: &ObjectKey, user: &Consumer) -> Result<(), WriteError> {
    let mut conflict = String::new();
    for _ in 0..N_TRIES {
        match try_to_free(context, key, user).await {
            Err(WriteError::Conflict(why)) => conflict = why,
            Err(WriteError::NotFound) => return Ok(()),
            Err(error) => return Err(error.about(&format!("deallocate claim {key}"))),
            Ok(()) => return Ok(()),
        }
    }
    Err(WriteError::Conflict(conflict))
}

async fn try_to_free(
    context: &Context,
    key: &ObjectKey,
    user: &Consumer,
) -> Result<(), WriteError> {
    let api: Api<ResourceClaim> = Api::namespaced(context.client.clone(), &key.namespace);
    let mut claim = context.read(api.get(&key.name)).await?;
    context.store(&claim);
    let has_others = users(&claim).iter().any(|other| other.uid != *user.uid);
    let facts = read::resource_claim(&claim);
    let is_extended = facts.is_ok_and(|facts| {
        facts.extended_for.is_some() && facts.controller.as_ref() == Some(&user.uid)
    });
    if is_extended {
        // Its finalizer would keep it until the claim controller has seen that it has no users.
        if claim.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty()) {
            claim = deallocated(context, &api, claim).await?;
            let finalizers = claim.metadata.finalizers.get_or_insert_default();
            finalizers.retain(|name| name != DELETE_PROTECTION);
            let request = api.replace(&key.name, &POST, &claim);
            claim = context.call(Write::ResourceClaim, request).await?;
        }
        let preconditions = Preconditions {
            uid: claim.metadata.uid.clone(),
            resource_version: claim.metadata.resource_version.clone(),
        };
        let params = DeleteParams::default().preconditions(preconditions);
        context.call(Write::ResourceClaim, api.delete(&key.name, &params)).await?;
        return Ok(());
    }
    let is_allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
    if is_allocated && !has_others {
        deallocated(context, &api, claim).await?;
    }
    Ok(())
}

/// The claim without devices and users.
async fn deallocated(
    context: &Context,
    api: &Api<ResourceClaim>,
    mut claim: ResourceClaim,
) -> Result<ResourceClaim, WriteError> {
    claim.status = Some(ResourceClaimStatus::default());
    replace_status(context, api, &claim).await
}

/// Replaces the status of a claim at the version at which it was read.
async fn replace_status(
    context: &Context,
    api: &Api<ResourceClaim>,
    claim: &ResourceClaim,
) -> Result<ResourceClaim, WriteError> {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let request = api.replace_status(name, &POST, claim);
    let written = context.call(Write::ResourceClaim, request).await?;
    context.store(&written);
    Ok(written)
}

/// The claim for the extended resources of a pod.
fn extended_claim(key: &ObjectKey, pod: &PodRef, new: &ExtendedClaim) -> ResourceClaim {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.key.name.to_string(),
        uid: pod.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    ResourceClaim {
        metadata: ObjectMeta {
            name: Some(key.name.to_string()),
            namespace: Some(key.namespace.to_string()),
            annotations: Some([(EXTENDED_RESOURCE_CLAIM.to_owned(), "true".to_owned())].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(ResourceClaimSpec { devices: Some(api_claim_spec(&new.spec)) }),
        status: None,
    }
}

fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}

/// Those who use a claim.
fn users(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    let users = claim.status.as_ref().and_then(|status| status.reserved_for.as_deref());
    users.unwrap_or_default()
}

/// Whether two allocations are the same but for the time, and the ids of shares.
fn names_same_devices(one: &Allocation, other: &Allocation) -> bool {
    let is_same = |(one, other): (&DeviceResult, &DeviceResult)| {
        (&one.request, &one.id, one.admin_access, one.share.is_some(), &one.consumed)
            == (
                &other.request,
                &other.id,
                other.admin_access,
                other.share.is_some(),
                &other.consumed,
            )
    };
    one.results.len() == other.results.len() && one.results.iter().zip(&other.results).all(is_same)
}
