//! What every kind of write needs.

use std::sync::Arc;

use kube::Client;
use kube_batch_api::facts::FactError;
use kube_batch_cache::store::{Change, Store};

use crate::run::{metrics::Metrics, scheduler_cache::SchedulerCache};

/// A client, where answers are stored, and where writes are counted.
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) cache: Arc<SchedulerCache>,
    pub(super) metrics: Arc<Metrics>,
}

impl Context {
    /// Stores an object that the API server answered with. One that cannot be read is left to the
    /// watch, which counts it.
    pub(super) fn store(&self, apply: impl FnOnce(&mut Store) -> Result<Change, FactError>) {
        let mut state = self.cache.lock();
        if let Ok(change) = apply(&mut state.store) {
            self.cache.record_change(&mut state, change);
        }
    }
}
