//! What the scheduler believes, shared between watches, cycles and effects.
//!
//! Watches write facts, effects write what they were answered, cycles read. One lock; nobody holds
//! it while waiting for anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube_batch_api::{
    decision::PodRef,
    facts::{FactError, pod::TaskFacts},
    name::{Name, ObjectKey},
};
use kube_batch_cache::{
    assumed::{Assumed, InFlight},
    store::{Change, Store},
};
use tokio::sync::Notify;

use super::metrics::{Kind, Metrics};

/// Facts, decisions in flight, and who must be told of changes.
pub(crate) struct Mirror {
    state: Mutex<State>,
    /// Something changed that a decision can depend on.
    changed: Notify,
    metrics: Arc<Metrics>,
}

/// What the lock guards.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) assumed: Assumed,
    /// Grows with every change a decision can depend on.
    pub(crate) version: u64,
    /// Whether there are changes that say no more than what was decided, and that no cycle has
    /// looked at.
    pub(crate) has_confirmed: bool,
    /// Kinds whose complete list is still missing, with why, if that is known.
    unsynced: BTreeMap<&'static str, Option<String>>,
    /// Bindings that were answered and that the watch has yet to show, and since when.
    answered: BTreeMap<Name, Instant>,
}

impl Mirror {
    /// A mirror that has seen nothing, and waits for these kinds.
    pub(crate) fn new(kinds: &[&'static str], metrics: Arc<Metrics>) -> Self {
        for kind in kinds {
            metrics.watch_synced.get_or_create(&Kind { kind }).set(0);
        }
        let state = State {
            store: Store::default(),
            assumed: Assumed::default(),
            version: 0,
            has_confirmed: false,
            unsynced: kinds.iter().map(|kind| (*kind, None)).collect(),
            answered: BTreeMap::new(),
        };
        Self { state: Mutex::new(state), changed: Notify::new(), metrics }
    }

    /// The state, to be held for a moment.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked held a fact half-stored at worst, and facts are replaced whole.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Wakes the cycle if `change` could matter to it.
    pub(crate) fn note(&self, state: &mut State, change: Change) {
        if change == Change::Facts {
            state.version += 1;
            self.changed.notify_one();
        }
    }

    /// Has the next cycle look, whatever changed.
    pub(crate) fn wake(&self) {
        let mut state = self.lock();
        self.note(&mut state, Change::Facts);
    }

    /// Waits for a change that could matter.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// A kind is listed anew, as what changed since is not known any more. Nothing is decided until
    /// that is done: other kinds may know already what this one does not.
    pub(crate) fn set_unsynced(&self, kind: &'static str) {
        let mut state = self.lock();
        if !state.unsynced.contains_key(kind) {
            state.unsynced.insert(kind, None);
            self.metrics.watch_synced.get_or_create(&Kind { kind }).set(0);
        }
    }

    /// The complete list of a kind is there.
    pub(crate) fn set_synced(&self, kind: &'static str) {
        let mut state = self.lock();
        if state.unsynced.remove(kind).is_some() {
            self.metrics.watch_synced.get_or_create(&Kind { kind }).set(1);
            self.note(&mut state, Change::Facts);
        }
    }

    /// Why the first complete list of a kind is missing.
    pub(crate) fn set_obstacle(&self, kind: &'static str, why: String) {
        if let Some(obstacle) = self.lock().unsynced.get_mut(kind) {
            *obstacle = Some(why);
        }
    }

    /// Kinds whose first complete list is missing, with why, if that is known.
    pub(crate) fn unsynced(&self) -> BTreeMap<&'static str, Option<String>> {
        self.lock().unsynced.clone()
    }

    /// Whether every kind has had its first complete list.
    pub(crate) fn is_synced(&self) -> bool {
        self.lock().unsynced.is_empty()
    }

    /// A binding was answered well; it stays in flight until the watch shows it.
    pub(crate) fn bound(&self, pod: &PodRef) {
        let mut state = self.lock();
        let shown = state.store.pods.get(&pod.key).is_some_and(|facts| facts.node.is_some());
        if !shown {
            state.answered.insert(pod.uid.clone(), Instant::now());
        }
    }

    /// A decision came to nothing: the pod is as the facts say. Says whether they still know it.
    pub(crate) fn give_up(&self, pod: &PodRef) -> bool {
        let mut state = self.lock();
        state.assumed.forget(&pod.uid);
        self.note(&mut state, Change::Facts);
        state.store.pods.get(&pod.key).is_some_and(|facts| facts.uid == pod.uid)
    }
}

impl State {
    /// Stores the facts of a pod. That a binding is done is no news: of a burst of a thousand only
    /// the last answers change what a cycle would see.
    pub(crate) fn apply_pod(&mut self, key: &ObjectKey, pod: &Pod) -> Result<Change, FactError> {
        let before = self.store.pods.get(key).map(Arc::clone);
        let change = self.store.apply_pod(pod)?;
        if let (Change::Facts, Some(before), Some(after)) =
            (change, before, self.store.pods.get(key))
            && self.assumed.foresaw(&before, after)
        {
            self.has_confirmed = true;
            return Ok(Change::Written);
        }
        Ok(change)
    }

    /// The facts of a pod, if it is still the same one and waits for a node.
    pub(crate) fn waiting(&self, pod: &PodRef) -> Option<&TaskFacts> {
        let facts = self.store.pods.get(&pod.key)?;
        let is_bound = facts.node.is_some()
            || matches!(self.assumed.get(&pod.uid), Some(InFlight::Bind { .. }));
        (facts.uid == pod.uid && !is_bound).then_some(&**facts)
    }

    /// Forgets decisions that the facts confirm, and those that were given up; says how many the
    /// latter are.
    pub(crate) fn settle(
        &mut self,
        now: Timestamp,
        after: jiff::SignedDuration,
        metrics: &Metrics,
    ) -> usize {
        self.assumed.settle(&self.store);
        let expired: BTreeSet<Name> = self.assumed.expire(now, after).into_iter().collect();
        let assumed = &self.assumed;
        self.answered.retain(|uid, since| {
            let waits = assumed.get(uid).is_some();
            if !waits && !expired.contains(uid) {
                metrics.watch_lag.observe(since.elapsed().as_secs_f64());
            }
            waits
        });
        expired.len()
    }
}
