//! Which claims hold which devices, to find those that two claims hold.
//!
//! The API server does not check that a device is free: two schedulers can give it away at the same time.

use std::collections::{BTreeMap, BTreeSet};

use kube_batch_cache::store::Store;
use kube_batch_model::{
    facts::device::{
        DeviceId,
        claim::{Allocation, ResourceClaimFacts},
    },
    name::ObjectKey,
};
use tracing::warn;

/// The claims that hold each device alone.
#[derive(Debug, Default)]
pub(crate) struct DeviceHolders {
    /// A claim that was deleted stays here until another one gets the device: the facts decide.
    claims: BTreeMap<DeviceId, BTreeSet<ObjectKey>>,
    /// The devices that two claims hold, which are reported once.
    reported: BTreeSet<DeviceId>,
}

impl DeviceHolders {
    /// Follows the change of a claim; the store has it already. Returns how many devices have more than one
    /// holder now and had not before, which is logged.
    pub(crate) fn update(
        &mut self,
        store: &Store,
        before: Option<&ResourceClaimFacts>,
        after: &ResourceClaimFacts,
    ) -> u64 {
        let (held, holds) = (before.map(devices_of).unwrap_or_default(), devices_of(after));
        for id in held.difference(&holds) {
            self.remove(id, &after.key);
        }
        let new = holds.difference(&held).filter(|id| self.add(store, id, &after.key));
        new.count() as u64
    }

    /// A claim besides this one that holds a device.
    pub(crate) fn other_than(
        &self,
        store: &Store,
        claim: &ObjectKey,
        id: &DeviceId,
    ) -> Option<&ObjectKey> {
        self.claims.get(id)?.iter().find(|other| *other != claim && holds(store, other, id))
    }

    fn remove(&mut self, id: &DeviceId, claim: &ObjectKey) {
        if let Some(claims) = self.claims.get_mut(id) {
            claims.remove(claim);
            if claims.len() < 2 {
                self.reported.remove(id);
            }
            if claims.is_empty() {
                self.claims.remove(id);
            }
        }
    }

    /// Adds a holder; returns whether it is a conflict that is new.
    fn add(&mut self, store: &Store, id: &DeviceId, claim: &ObjectKey) -> bool {
        let claims = self.claims.entry(id.clone()).or_default();
        claims.retain(|other| other != claim && holds(store, other, id));
        if claims.len() < 2 {
            // An earlier conflict has ended: its other claims were deleted.
            self.reported.remove(id);
        }
        claims.insert(claim.clone());
        if claims.len() < 2 {
            return false;
        }
        let is_new = self.reported.insert(id.clone());
        if is_new {
            let claims: Vec<String> = claims.iter().map(ToString::to_string).collect();
            warn!(
                device = %id, claims = claims.join(", "),
                "two claims hold one device; another scheduler may allocate devices of this driver"
            );
        }
        is_new
    }
}

fn holds(store: &Store, claim: &ObjectKey, id: &DeviceId) -> bool {
    let facts = store.resource_claims.get(claim);
    facts.is_some_and(|facts| devices_of(facts).contains(id))
}

/// The devices that a claim holds alone.
fn devices_of(claim: &ResourceClaimFacts) -> BTreeSet<&DeviceId> {
    claim.allocation.iter().flat_map(Allocation::exclusive).collect()
}
