//! What every kind of write needs.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube_batch_api::kind::{WatchedKind as _, version_of};
use kube_batch_cache::store::Change;
use kube_batch_model::decision::PodRef;

use super::claim_locks::ClaimLocks;
use crate::run::{
    clock::Clock, metrics::Metrics, scheduler_cache::SchedulerCache, term::Terms, watch::Watched,
};

/// A client, where answers are stored, and where writes are counted.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) cache: Arc<SchedulerCache>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) terms: Terms,
    pub(crate) clock: Clock,
    pub(crate) claim_locks: ClaimLocks,
}

impl Context {
    /// Stores an object that the API server answered with, unless the watch has shown a later version of
    /// it. One that cannot be read is left to the watch, which counts it.
    pub(super) fn store<K: Watched>(&self, object: &K) {
        let mut state = self.cache.lock();
        if state.history(K::RESOURCE).answered(version_of(object.meta()))
            && let Ok(change) = object.store(&mut state)
        {
            self.cache.record_change(&mut state, change);
        }
    }

    /// Whether a pod exists and has no node, as far as the cache knows.
    pub(super) fn waits(&self, pod: &PodRef) -> bool {
        let state = self.cache.lock();
        let facts = state.store.pods.get(&pod.key);
        facts.is_some_and(|facts| facts.uid == pod.uid && facts.node.is_none())
    }

    /// Removes a pod that the API server no longer has.
    pub(super) fn remove_pod(&self, pod: &PodRef) {
        let mut state = self.cache.lock();
        state.history(Pod::RESOURCE).gone(&pod.key, &pod.uid);
        let known = state.store.pods.get(&pod.key);
        if known.is_some_and(|facts| facts.uid == pod.uid) {
            state.store.pods.delete(&pod.key);
            self.cache.record_change(&mut state, Change::Facts);
        }
    }
}
