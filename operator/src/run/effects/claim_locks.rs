//! Locks on claims for devices that are being written.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use kube_batch_model::name::ObjectKey;
use tokio::sync::OwnedMutexGuard;

/// The claims that are being written, each by one worker at a time: pods that share a claim would run into
/// one conflict after the other.
#[derive(Default)]
pub(crate) struct ClaimLocks(Mutex<BTreeMap<ObjectKey, Weak<tokio::sync::Mutex<()>>>>);

impl ClaimLocks {
    pub(super) async fn lock(&self, claim: &ObjectKey) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| lock.strong_count() > 0);
            let known = locks.get(claim).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let new = Arc::default();
                locks.insert(claim.clone(), Arc::downgrade(&new));
                new
            })
        };
        lock.lock_owned().await
    }
}
