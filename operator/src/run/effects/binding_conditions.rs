//! Whether the devices of a binding are ready: until their binding conditions are true, the pod is not bound.

use jiff::{SignedDuration, Timestamp};
use kube_batch_devices::pod::{Readiness, readiness};
use kube_batch_model::{
    decision::{Decision, DeviceChoice},
    name::ObjectKey,
};
use kube_batch_scheduler::writes::{Event, EventType, Regarding};

use super::queue::{DecisionWrite, WriteStep};
use crate::run::scheduler_cache::CacheState;

/// How long devices may take to be ready, from their allocation: Kubernetes' default `bindingTimeout`.
const READY_TIMEOUT: SignedDuration = SignedDuration::from_secs(600);

/// What a binding waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// Nothing: all devices are ready.
    Nothing,
    /// Devices of this claim, until this time.
    Until(ObjectKey, Timestamp),
    /// Something that will never happen, for this reason.
    Failed(String),
}

/// What a binding with these claims waits for, as far as the cache knows.
pub(super) fn awaited(state: &CacheState, devices: &[DeviceChoice], now: Timestamp) -> Awaited {
    let mut waits: Option<(ObjectKey, Timestamp)> = None;
    for DeviceChoice { claim, .. } in devices {
        let facts = state.store.resource_claims.get(claim).filter(|facts| !facts.deleting);
        let Some(facts) = facts else {
            return Awaited::Failed(format!("claim {claim} got deleted in the meantime"));
        };
        let Some(allocation) = &facts.allocation else {
            return Awaited::Failed(format!("claim {claim} got deallocated in the meantime"));
        };
        match readiness(facts, allocation, None) {
            Readiness::Ready => {}
            Readiness::Failed => {
                return Awaited::Failed(format!("device binding failed: claim={claim}"));
            }
            Readiness::Waits => {
                let since = allocation.timestamp.unwrap_or(now);
                let end = since.saturating_add(READY_TIMEOUT).unwrap_or(Timestamp::MAX);
                if waits.as_ref().is_none_or(|(_, first)| end < *first) {
                    waits = Some((claim.clone(), end));
                }
            }
        }
    }
    match waits {
        None => Awaited::Nothing,
        Some((claim, end)) if end <= now => Awaited::Failed(timeout_of(&claim)),
        Some((claim, end)) => Awaited::Until(claim, end),
    }
}

/// The event about a binding that begins to wait for its devices.
pub(super) fn pending_event(write: &DecisionWrite) -> Option<Event> {
    let Decision::Bind { pod, node, .. } = &*write.decision else { return None };
    (write.step == WriteStep::WaitForDevices).then(|| Event {
        regarding: Regarding::Pod(pod.clone()),
        related: None,
        type_: EventType::Normal,
        reason: "BindingConditionsPending",
        action: "Scheduling",
        message: format!("waiting for binding conditions for device on node {node}"),
    })
}

/// The text of the event about a claim whose devices are not ready in time.
pub(super) fn timeout_of(claim: &ObjectKey) -> String {
    format!("device binding timeout: claim={claim}")
}
