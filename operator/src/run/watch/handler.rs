//! What lists and watches show, stored in the scheduler cache.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube_batch_api::{
    dialect,
    kind::{name_of, version_of},
};
use kube_batch_cache::{
    history::Version,
    store::{Change, Stored as _},
};
use kube_batch_model::text::shortened;
use tracing::warn;

use super::kinds::{Key, Watched};
use crate::run::{
    clock::Clock,
    guard::Guarded,
    metrics::{Kind, Metrics},
    scheduler_cache::SchedulerCache,
};

/// How many objects are looked at before the lock of the cache is released for others.
const N_AT_ONCE: usize = 2000;

/// Stores objects in the scheduler cache. Those that are older than what is known are not stored, see
/// [`kube_batch_cache::history`].
#[derive(Clone)]
pub(crate) struct Handler {
    pub(crate) cache: Arc<SchedulerCache>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Clock,
}

impl Handler {
    /// The version up to which everything of a kind is known.
    pub(super) fn seen<K: Watched>(&self) -> Version {
        self.cache.lock().history(K::RESOURCE).seen()
    }

    /// Records that a watch is alive.
    pub(super) fn heard<K: Watched>(&self) {
        self.cache.heard(K::RESOURCE);
        let labels = Kind { kind: K::RESOURCE };
        let now = self.clock.now().as_second();
        self.metrics.watch_last_message.get_or_create(&labels).set(now);
    }

    /// An object of a list that is being received; its key is added to `listed`.
    pub(super) fn listed<K: Watched>(&self, object: &Guarded<K>, listed: &mut BTreeSet<Key<K>>) {
        self.count::<K>();
        listed.insert(K::key(&name_of(object.meta())));
        if self.cache.lock().history(K::RESOURCE).listed(version_of(object.meta())) {
            self.apply(object);
        }
    }

    /// The end of a list: removes what is not in it.
    pub(super) fn end_of_list<K: Watched>(&self, version: Version, mut listed: BTreeSet<Key<K>>) {
        {
            let mut state = self.cache.lock();
            let history = state.history(K::RESOURCE);
            listed.extend(history.newer_than(version).map(|name| K::key(name)));
            history.end_of_list(version, |name| listed.contains(&K::key(name)));
        }
        self.remove_others::<K>(&listed);
    }

    /// Removes all objects of a kind except these.
    pub(super) fn remove_others<K: Watched>(&self, listed: &BTreeSet<Key<K>>) {
        let mut after = None;
        loop {
            let mut state = self.cache.lock();
            let keep = |key: &Key<K>| !K::has_key(key) || listed.contains(key);
            let table = K::Facts::table(&mut state.store);
            let (has_removed, last) = table.retain_some(after.as_ref(), N_AT_ONCE, keep);
            if has_removed {
                state.wake_all();
                self.cache.record_change(&mut state, Change::Facts);
            }
            match last {
                Some(last) => after = Some(last),
                None => return,
            }
        }
    }

    /// Records that the API server serves a kind.
    pub(super) fn set_served<K: Watched>(&self) {
        if let Some(version) =
            K::API.filter(|version| dialect::spec(*version).groups == K::RESOURCE)
        {
            let mut state = self.cache.lock();
            let change = state.store.set_served(version, true);
            self.cache.record_change(&mut state, change);
        }
    }

    /// Records whether a kind can be read. Returns whether that has changed.
    pub(super) fn set_readable<K: Watched>(&self, is_readable: bool) -> bool {
        let Some(version) = K::API.filter(|version| dialect::spec(*version).groups == K::RESOURCE)
        else {
            return false;
        };
        let mut state = self.cache.lock();
        let change = state.store.set_readable(version, is_readable);
        self.cache.record_change(&mut state, change);
        change != Change::Nothing
    }

    /// An object that was added or changed.
    pub(super) fn shown<K: Watched>(&self, object: &Guarded<K>) {
        self.count::<K>();
        if self.cache.lock().history(K::RESOURCE).shown(version_of(object.meta())) {
            self.apply(object);
        }
    }

    /// An object that was deleted.
    pub(super) fn deleted<K: Watched>(&self, meta: &ObjectMeta) {
        self.count::<K>();
        let name = name_of(meta);
        let mut state = self.cache.lock();
        if state.history(K::RESOURCE).deleted(version_of(meta))
            && K::Facts::table(&mut state.store).delete(&K::key(&name))
        {
            state.wake_for_deleted(&name);
            self.cache.record_change(&mut state, Change::Facts);
        }
    }

    /// Nothing else has changed up to this version.
    pub(super) fn reached<K: Watched>(&self, version: Version) {
        self.cache.lock().history(K::RESOURCE).reached(version);
    }

    fn count<K: Watched>(&self) {
        self.metrics.watch_events.get_or_create(&Kind { kind: K::RESOURCE }).inc();
    }

    fn apply<K: Watched>(&self, object: &Guarded<K>) {
        if let Err(problem) = self.store(object) {
            self.metrics.malformed_objects.get_or_create(&Kind { kind: K::RESOURCE }).inc();
            warn!(problem, "skipped an object that cannot be read");
        }
    }

    /// Stores an object, or says why it cannot be read.
    pub(super) fn store<K: Watched>(&self, object: &Guarded<K>) -> Result<Change, String> {
        let problem = match &object.0 {
            Ok(object) => {
                let mut state = self.cache.lock();
                match object.store(&mut state) {
                    Ok(change) => {
                        self.cache.record_change(&mut state, change);
                        return Ok(change);
                    }
                    Err(error) => error.to_string(),
                }
            }
            Err(broken) => {
                let meta = &broken.metadata;
                format!("{} {}: {}", K::kind(&()), name_of(meta), broken.error)
            }
        };
        Err(shortened(&problem).into_owned())
    }
}
