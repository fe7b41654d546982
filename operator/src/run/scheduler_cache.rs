//! The scheduler cache: what is known of the cluster, shared by watches, cycles and writes.
//!
//! Watches store facts, writes store what the API server answered, cycles take snapshots. There is
//! one lock, and nothing holds it across an `await`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolumeClaim, Pod},
    resource::v1::ResourceClaim,
};
use kube_batch_api::kind::{ApplyObject as _, WatchedKind as _, name_of};
use kube_batch_cache::{
    assumed::{Assumed, DecisionId},
    history::History,
    mirror::Mirror,
    store::{Change, Store},
};
use kube_batch_model::{
    decision::{ClaimChoice, DeviceChoice, PodRef},
    facts::{FactError, device::DeviceId, pod::TaskFacts},
    name::{Name, ObjectKey},
};
use kube_batch_scheduler::writes;
use tokio::{sync::Notify, time::Instant};

use super::{
    claim_waits::ClaimWaits,
    device_holders::DeviceHolders,
    effects::queue::Target,
    forming::Forming,
    metrics::{Kind, Metrics},
};

/// How often a part of the names, labels and templates that no pod uses any more is freed: all of them
/// once a minute.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);
/// For how long a kind may be silent before no cycle decides on what is known of it. A watch that works is heard of
/// every half minute, and the alert about one that is not uses the same time.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(120);
/// How many changes are copied, or decisions looked at, before the lock is released for others.
const N_AT_ONCE: usize = 1000;
/// Of how many pods that no cycle has seen it is known when they were stored: a replica that does not lead runs none.
const MAX_ARRIVED: usize = 10_000;
/// How long the lock is left to others between two such steps.
const BREATH: Duration = Duration::from_micros(100);

/// Facts and decisions in flight, with a notification of changes.
pub(crate) struct SchedulerCache {
    state: Mutex<CacheState>,
    /// A copy of facts and decisions for those who read them for a long time.
    mirror: Mutex<Mirror>,
    /// Notified when something changed that a decision can depend on.
    changed: Notify,
    /// Notified when a claim is bound that a binding waits for, or has changed if it is for devices.
    claims_bound: Arc<Notify>,
    metrics: Arc<Metrics>,
}

/// What the lock guards.
pub(crate) struct CacheState {
    pub(crate) store: Store,
    pub(crate) assumed: Assumed,
    /// Incremented with every change that a decision can depend on.
    pub(crate) version: u64,
    /// Whether statuses may have changed since the last snapshot though no decision would: decisions were
    /// confirmed as expected, or a status was not written because an earlier write of it was in flight.
    pub(crate) wants_statuses: bool,
    /// Kinds without a complete list, with the last error of their watch.
    unsynced: BTreeMap<&'static str, Option<String>>,
    /// When each kind was heard of last.
    heard: BTreeMap<&'static str, Instant>,
    /// The versions of each kind.
    histories: BTreeMap<&'static str, History>,
    /// The term of this replica, as the scheduler has begun it; 0 before the first.
    term: u64,
    /// The last term in which each kind was up to date.
    confirmed: BTreeMap<&'static str, u64>,
    /// Bindings that the API server accepted and the watch has not shown yet, and since when.
    answered: BTreeMap<Name, Instant>,
    /// The pods whose binding waits for a claim.
    awaited: ClaimWaits,
    /// The pods whose binding waits for the devices of a claim.
    awaited_devices: ClaimWaits,
    /// Those of them one of whose claims was bound, or has changed if it is for devices.
    bound: BTreeSet<Name>,
    claims_bound: Arc<Notify>,
    /// The claims that hold each device.
    holders: DeviceHolders,
    /// The default queue, while it is being created.
    awaited_queue: Option<Name>,
    /// The decision after which to look for those that are settled.
    settled: Option<Name>,
    /// The jobs of which another pod starts no cycle.
    pub(crate) forming: Forming,
    /// When each pod without a node was stored that no cycle has seen.
    arrived: HashMap<Name, Instant>,
    metrics: Arc<Metrics>,
}

impl SchedulerCache {
    /// A cache that starts with `store` and waits for the lists of these kinds.
    pub(crate) fn new(mut store: Store, kinds: &[&'static str], metrics: Arc<Metrics>) -> Self {
        for kind in kinds {
            metrics.watch_synced.get_or_create(&Kind { kind }).set(0);
        }
        let claims_bound = Arc::new(Notify::new());
        let mut assumed = Assumed::default();
        store.record_changes();
        assumed.record_changes();
        let state = CacheState {
            store,
            assumed,
            version: 0,
            wants_statuses: false,
            unsynced: kinds.iter().map(|kind| (*kind, None)).collect(),
            heard: kinds.iter().map(|kind| (*kind, Instant::now())).collect(),
            histories: BTreeMap::new(),
            term: 0,
            confirmed: kinds.iter().map(|kind| (*kind, 0)).collect(),
            answered: BTreeMap::new(),
            awaited: ClaimWaits::default(),
            awaited_devices: ClaimWaits::default(),
            holders: DeviceHolders::default(),
            bound: BTreeSet::new(),
            claims_bound: Arc::clone(&claims_bound),
            awaited_queue: None,
            settled: None,
            forming: Forming::default(),
            arrived: HashMap::new(),
            metrics: Arc::clone(&metrics),
        };
        let (state, mirror) = (Mutex::new(state), Mutex::default());
        Self { state, mirror, changed: Notify::new(), claims_bound, metrics }
    }

    /// Locks the state. Never held across an `await`.
    pub(crate) fn lock(&self) -> MutexGuard<'_, CacheState> {
        // A panic leaves one fact unstored at worst, as facts are replaced whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the copy of facts and decisions, which is equal to them at the moment that `at` sees. It takes
    /// long at first, and not for async threads.
    pub(crate) fn mirror<T>(
        &self,
        at: impl FnOnce(&mut CacheState) -> T,
    ) -> (MutexGuard<'_, Mirror>, T) {
        let mut mirror = self.mirror.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut state = self.lock();
            let CacheState { store, assumed, .. } = &mut *state;
            if mirror.copy_changes(store, assumed, N_AT_ONCE) {
                let seen = at(&mut state);
                drop(state);
                return (mirror, seen);
            }
            drop(state);
            // Those who wait for the lock would not get it if it were taken again at once.
            std::thread::sleep(BREATH);
        }
    }

    /// Wakes the scheduler if a decision can depend on `change`.
    pub(crate) fn record_change(&self, state: &mut CacheState, change: Change) {
        if change == Change::Facts {
            state.version += 1;
            self.changed.notify_one();
        }
    }

    /// Makes a cycle run, whatever changed.
    pub(crate) fn wake(&self) {
        let mut state = self.lock();
        self.record_change(&mut state, Change::Facts);
    }

    /// Makes a cycle run when it is time for statuses.
    pub(crate) fn want_statuses(&self) {
        self.lock().wants_statuses = true;
        self.changed.notify_one();
    }

    /// Waits for a change that a decision can depend on.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Marks a kind as being listed again. No cycle runs until that is done: the other kinds may be
    /// ahead of this one.
    pub(crate) fn set_unsynced(&self, kind: &'static str) {
        let mut state = self.lock();
        if !state.unsynced.contains_key(kind) {
            state.unsynced.insert(kind, None);
            self.metrics.watch_synced.get_or_create(&Kind { kind }).set(0);
        }
    }

    /// Marks a kind as completely listed, and up to date in this term.
    pub(crate) fn set_synced(&self, kind: &'static str, term: Option<u64>) {
        let mut state = self.lock();
        // A kind that is not served is confirmed every few seconds.
        if let Some(term) = term
            && state.confirmed.insert(kind, term) != Some(term)
        {
            self.record_change(&mut state, Change::Facts);
        }
        if state.unsynced.remove(kind).is_some() {
            self.metrics.watch_synced.get_or_create(&Kind { kind }).set(1);
            self.record_change(&mut state, Change::Facts);
        }
    }

    /// Begins a term of this replica: decisions of earlier ones are not known to it, it starts from the
    /// facts. No cycle runs until every kind is up to date in this term.
    pub(crate) fn begin_term(&self, number: u64) {
        let mut state = self.lock();
        state.term = number;
        state.forget_decisions();
        self.record_change(&mut state, Change::Facts);
    }

    /// Ends the term: what this replica had decided is up to the next leader.
    pub(crate) fn end_term(&self) {
        self.lock().forget_decisions();
    }

    /// Records that the API server has said something about a kind, or that it need not.
    pub(crate) fn heard(&self, kind: &'static str) {
        let mut state = self.lock();
        let before = state.heard.insert(kind, Instant::now());
        if before.is_some_and(|before| before.elapsed() > STALE_AFTER) {
            self.record_change(&mut state, Change::Facts);
        }
    }

    /// The kinds of which nothing has been heard for too long, with how long that is.
    pub(crate) fn stale(&self) -> BTreeMap<&'static str, Duration> {
        self.lock().stale().collect()
    }

    /// Records why a kind has no complete list yet.
    pub(crate) fn set_list_error(&self, kind: &'static str, why: String) {
        if let Some(error) = self.lock().unsynced.get_mut(kind) {
            *error = Some(why);
        }
    }

    /// Kinds without a complete list, with the last error of their watch.
    pub(crate) fn unsynced(&self) -> BTreeMap<&'static str, Option<String>> {
        self.lock().unsynced.clone()
    }

    /// Whether every kind has a complete list that is not too old, and is up to date in the term that was begun last.
    pub(crate) fn is_synced(&self) -> bool {
        self.lock().is_synced()
    }

    /// Lets no cycle run before this queue exists; with `None` they run again.
    pub(crate) fn await_queue(&self, name: Option<Name>) {
        let mut state = self.lock();
        state.awaited_queue = name;
        self.record_change(&mut state, Change::Facts);
    }

    /// Whether a cycle may run: every list is complete, and the default queue is not being created.
    pub(crate) fn is_ready(&self) -> bool {
        let state = &mut *self.lock();
        state.awaited_queue.take_if(|name| state.store.queue(name).is_some());
        state.awaited_queue.is_none() && state.is_synced()
    }

    /// Records that the API server accepted a binding. It stays in flight until the watch shows it.
    /// Returns when the pod was created, if it is still stored.
    pub(crate) fn record_binding(&self, pod: &PodRef, id: DecisionId) -> Option<Timestamp> {
        let mut state = self.lock();
        state.assumed.accept(&pod.uid, id);
        let facts = state.store.pods.get(&pod.key).map(Arc::clone);
        // It is not in flight any more if the watch has shown it, or that the pod is deleted.
        let is_in_flight = state.assumed.id(&pod.uid) == Some(id);
        if is_in_flight && facts.as_ref().is_none_or(|facts| facts.node.is_none()) {
            state.answered.insert(pod.uid.clone(), Instant::now());
        }
        facts.map(|facts| facts.created)
    }

    /// Frees, again and again, what no object uses any more. A replica that does not lead needs it too: no
    /// cycle lets its copy follow, and the keys of all that has changed would pile up.
    pub(crate) async fn sweep_forever(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP_PERIOD).await;
            self.lock().store.sweep_some();
            while !self.follow_some() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Lets the copy follow by some changes, unless somebody reads it. Returns whether nothing is left to do.
    fn follow_some(&self) -> bool {
        let mut mirror = match self.mirror.try_lock() {
            Ok(mirror) => mirror,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return true,
        };
        let CacheState { store, assumed, .. } = &mut *self.lock();
        mirror.copy_changes(store, assumed, N_AT_ONCE)
    }

    /// Waits until a claim is bound that a binding waits for, or has changed if it is for devices.
    pub(crate) async fn claims_bound(&self) {
        self.claims_bound.notified().await;
    }

    /// Takes the pods whose binding waited for a claim that is bound now, or has changed if it is for devices.
    pub(crate) fn take_bound(&self) -> BTreeSet<Name> {
        std::mem::take(&mut self.lock().bound)
    }

    /// Drops a decision about a pod, but not a later one, so that the facts alone count; returns whether
    /// the pod is still known.
    pub(crate) fn drop_decision(&self, pod: &PodRef, id: DecisionId) -> bool {
        let mut state = self.lock();
        if state.assumed.forget_decision(&pod.uid, id) {
            self.record_change(&mut state, Change::Facts);
        }
        state.is_known(pod)
    }

    /// Records that the API server rejected a binding. A cycle runs: the gang may be incomplete now.
    pub(crate) fn reject_binding(&self, pod: &PodRef, id: DecisionId) {
        let mut state = self.lock();
        state.assumed.reject(&pod.uid, id);
        self.record_change(&mut state, Change::Facts);
    }

    /// Ends the back-off of a rejected decision; returns whether the pod is still known.
    pub(crate) fn end_back_off(&self, pod: &PodRef, id: DecisionId) -> bool {
        let mut state = self.lock();
        if state.assumed.end_back_off(&pod.uid, id) {
            self.record_change(&mut state, Change::Facts);
        }
        state.is_known(pod)
    }
}

impl CacheState {
    /// Whether every kind has been listed, was heard of lately, and is up to date in this term.
    pub(crate) fn is_synced(&self) -> bool {
        self.unsynced.is_empty()
            && self.confirmed.values().all(|term| *term >= self.term)
            && self.stale().next().is_none()
    }

    fn stale(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let silent = self.heard.iter().map(|(kind, heard)| (*kind, heard.elapsed()));
        silent.filter(|(_, silent)| *silent > STALE_AFTER)
    }

    fn is_known(&self, pod: &PodRef) -> bool {
        self.store.pods.get(&pod.key).is_some_and(|facts| facts.uid == pod.uid)
    }

    /// The versions of a kind.
    pub(crate) fn history(&mut self, kind: &'static str) -> &mut History {
        self.histories.entry(kind).or_default()
    }

    /// Forgets the versions of a kind, because the API server has.
    pub(crate) fn forget_history(&mut self, kind: &'static str) {
        self.histories.remove(kind);
    }

    /// Stores the facts of a pod.
    ///
    /// A binding that the watch confirms as decided is no reason for a cycle: without this a burst
    /// of a thousand bindings would start cycles that find nothing new. Nor is a pod of a job that lacks more pods.
    pub(crate) fn apply_pod(&mut self, pod: &Pod) -> Result<Change, FactError> {
        let mut facts = pod.facts(self.store.interner_mut())?;
        // The annotation of a pod may have been changed before the watch has shown its binding.
        if let Some(queue) = self.assumed.bound_queue(&facts) {
            facts.bound_queue = Some(queue);
        }
        let key = &facts.key.clone();
        let before = self.store.pods.get(key).map(Arc::clone);
        let mut change = self.store.put(facts);
        if let (Change::Facts, Some(after)) = (change, self.store.pods.get(key))
            && match before {
                Some(before) => self.assumed.foresaw(&before, after),
                None => self.pod_arrives(&Arc::clone(after)),
            }
        {
            self.wants_statuses = true;
            change = Change::Written;
        }
        if let Some(uid) = self.store.pods.get(key).map(|facts| facts.uid.clone())
            && self.assumed.settle_pod(&uid, &self.store)
        {
            self.measure_lag(&uid);
        }
        Ok(change)
    }

    /// Records that a pod is new. Returns whether no cycle could decide anything about it.
    fn pod_arrives(&mut self, facts: &TaskFacts) -> bool {
        if facts.node.is_some() {
            return false;
        }
        if self.arrived.len() < MAX_ARRIVED {
            self.arrived.insert(facts.uid.clone(), Instant::now());
        }
        self.forming.still_forms(&facts.job_key(self.store.served()))
    }

    /// Begins a cycle, which sees all pods that have arrived: returns when those were stored that none has seen.
    pub(crate) fn begin_cycle(&mut self) -> HashMap<Name, Instant> {
        // Until it has ended, it is not known which jobs lack pods.
        self.forming = Forming::default();
        std::mem::take(&mut self.arrived)
    }

    /// Measures how long after the answer the watch has shown a binding.
    fn measure_lag(&mut self, uid: &Name) {
        if let Some(since) = self.answered.remove(uid) {
            self.metrics.watch_lag.observe(since.elapsed().as_secs_f64());
        }
    }

    /// Stores the facts of a claim.
    pub(crate) fn apply_claim(
        &mut self,
        claim: &PersistentVolumeClaim,
    ) -> Result<Change, FactError> {
        let change = self.store.apply(claim)?;
        let key = name_of(&claim.metadata);
        if self.store.claims.get(&key).is_some_and(|facts| facts.is_bound()) {
            let pods = self.awaited.take(&key);
            self.wake(pods);
        }
        Ok(change)
    }

    /// Has bindings look again at what they wait for.
    fn wake(&mut self, pods: BTreeSet<Name>) {
        if !pods.is_empty() {
            self.bound.extend(pods);
            self.claims_bound.notify_one();
        }
    }

    /// An object of this name was deleted: bindings that wait for such a claim look again.
    pub(crate) fn wake_for_deleted(&mut self, key: &ObjectKey) {
        let (claims, devices) = (self.awaited.take(key), self.awaited_devices.take(key));
        self.wake(claims);
        self.wake(devices);
    }

    /// Some objects were deleted: all bindings that wait for claims look again.
    pub(crate) fn wake_all(&mut self) {
        let (claims, devices) = (self.awaited.take_all(), self.awaited_devices.take_all());
        self.wake(claims);
        self.wake(devices);
    }

    /// Records that the binding of the pod with this uid waits for claims.
    pub(crate) fn await_claims(&mut self, uid: &Name, claims: &[ClaimChoice]) {
        let Self { awaited, assumed, .. } = self;
        let claims = claims.iter().map(|choice| &choice.claim);
        awaited.wait(uid, claims, |uid| assumed.id(uid).is_some());
    }

    /// Stores the facts of a claim for devices.
    ///
    /// What decisions in flight have written is no reason for a cycle, as with pods.
    pub(crate) fn apply_resource_claim(
        &mut self,
        claim: &ResourceClaim,
    ) -> Result<Change, FactError> {
        let key = &name_of(&claim.metadata);
        let before = self.store.resource_claims.get(key).map(Arc::clone);
        let change = self.store.apply(claim)?;
        let after = self.store.resource_claims.get(key).map(Arc::clone);
        let (Change::Facts | Change::Written, Some(after)) = (change, after) else {
            return Ok(change);
        };
        let n_conflicts = self.holders.update(&self.store, before.as_deref(), &after);
        self.metrics.device_conflicts.inc_by(n_conflicts);
        let pods = self.awaited_devices.take(key);
        self.wake(pods);
        let is_foreseen = before.is_some_and(|before| self.assumed.foresaw_claim(&before, &after));
        Ok(if is_foreseen { Change::Written } else { change })
    }

    /// A claim besides this one that holds a device.
    pub(crate) fn other_holder(&self, claim: &ObjectKey, id: &DeviceId) -> Option<&ObjectKey> {
        self.holders.other_than(&self.store, claim, id)
    }

    /// Records that the binding of the pod with this uid waits for the devices of claims.
    pub(crate) fn await_devices(&mut self, uid: &Name, devices: &[DeviceChoice]) {
        let Self { awaited_devices, assumed, .. } = self;
        let claims = devices.iter().map(|choice| &choice.claim);
        awaited_devices.wait(uid, claims, |uid| assumed.id(uid).is_some());
    }

    fn forget_decisions(&mut self) {
        self.assumed.clear();
        self.answered.clear();
        self.awaited = ClaimWaits::default();
        self.awaited_devices = ClaimWaits::default();
        self.bound.clear();
    }

    /// Whether the facts show what became of a decision about the pod with this uid.
    pub(crate) fn is_shown(&self, uid: &Name, id: DecisionId) -> bool {
        self.assumed.is_settled(uid, id, &self.store)
    }

    /// The facts of a pod, if it is still the same pod and waits for a node.
    pub(crate) fn waiting(&self, pod: &PodRef) -> Option<&TaskFacts> {
        writes::waiting(&self.store, &self.assumed, pod)
    }

    /// The stored version of a PodGroup or queue; `None` also for pods, whose statuses are merged without one.
    pub(crate) fn version_of(&self, target: &Target) -> Option<&Name> {
        match target {
            Target::Pod(_) => None,
            Target::Group(version, key) => {
                self.store.groups.get(&(key.clone(), *version))?.resource_version.as_ref()
            }
            Target::Queue(version, name) => {
                self.store.queues.get(&(name.clone(), *version))?.resource_version.as_ref()
            }
        }
    }

    /// Removes decisions that the facts confirm, of some that are in flight. Those of pods are removed
    /// when the pod is stored; this finds those that wait for claims, or whose pod is deleted.
    pub(crate) fn settle_some(&mut self) {
        let after = self.settled.take();
        let settled;
        (settled, self.settled) = self.assumed.settle_some(&self.store, after.as_ref(), N_AT_ONCE);
        settled.iter().for_each(|uid| self.measure_lag(uid));
        if !settled.is_empty() {
            // The volumes of a pod that is deleted may be used again.
            self.version += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use k8s_openapi::api::core::v1::Node;
    use kube_batch_cache::{assumed::InFlight, live::LiveSnapshot, snapshot::SnapshotOptions};
    use serde_json::json;

    use super::*;

    const N_NODES: usize = 5_000;
    const N_PODS: usize = 160_000;

    /// A cache with many nodes, each with as many running pods as the others.
    fn large_cache() -> SchedulerCache {
        let mut store = Store::default();
        for n in 0..N_NODES {
            let node = json!({
                "metadata": {"name": format!("node-{n}")},
                "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}},
            });
            store.apply::<Node>(&serde_json::from_value(node).expect("a node")).expect("facts");
        }
        let pod = json!({
            "metadata": {"name": "pod", "namespace": "ns", "uid": "pod"},
            "spec": {
                "schedulerName": "kube-batch", "nodeName": "node-0",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            },
            "status": {"phase": "Running"},
        });
        store.apply::<Pod>(&serde_json::from_value(pod).expect("a pod")).expect("facts");
        let key = ObjectKey::new("ns", "pod");
        let pod = store.pods.get(&key).map(Arc::clone).expect("the pod");
        store.pods.delete(&key);
        for n in 0..N_PODS {
            let name = Name::from(format!("pod-{n}"));
            let key = ObjectKey { namespace: "ns".into(), name: name.clone() };
            let node = Some(format!("node-{}", n % N_NODES).into());
            let facts = TaskFacts { key: key.clone(), uid: name, node, ..TaskFacts::clone(&pod) };
            store.pods.share(key, Arc::new(facts));
        }
        SchedulerCache::new(store, &[], Arc::new(Metrics::new()))
    }

    /// Takes a snapshot as a cycle does, from the start and after changes.
    fn take_snapshots(cache: &SchedulerCache) {
        let mut live = LiveSnapshot::default();
        for n in 0..3 {
            let (mut mirror, ()) = cache.mirror(|_| ());
            let Mirror { store, assumed } = &mut *mirror;
            let snapshot = live.refresh(store, assumed, &SnapshotOptions::default());
            assert_eq!(snapshot.cluster.tasks.facts.len(), N_PODS - n);
            live.keep(snapshot.cluster);
            drop(mirror);
            let mut state = cache.lock();
            state.store.pods.delete(&ObjectKey::new("ns", format!("pod-{n}")));
            state.settle_some();
            state.store.sweep_some();
        }
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn the_copy_of_a_replica_that_runs_no_cycles_follows() {
        let mut store = Store::default();
        for n in 0..2 * N_AT_ONCE {
            let node = json!({"metadata": {"name": format!("node-{n}")}});
            store.apply::<Node>(&serde_json::from_value(node).expect("a node")).expect("facts");
        }
        let cache = Arc::new(SchedulerCache::new(store, &[], Arc::new(Metrics::new())));
        tokio::task::spawn_local(Arc::clone(&cache).sweep_forever());
        let n_copied = || cache.mirror.lock().expect("no panic").store.nodes.len();
        assert_eq!(n_copied(), 0);
        tokio::time::sleep(2 * SWEEP_PERIOD).await;
        assert_eq!(n_copied(), 2 * N_AT_ONCE);
        assert!(cache.follow_some(), "nothing is left to copy");
    }

    #[test]
    fn the_answer_about_a_pod_that_was_deleted_leaves_nothing_behind() {
        let cache = SchedulerCache::new(Store::default(), &[], Arc::new(Metrics::new()));
        let pod = PodRef { uid: "a".into(), key: ObjectKey::new("ns", "a") };
        let bind = InFlight::Bind {
            queue: Some("q".into()),
            node: "n".into(),
            claims: Vec::new(),
            devices: Vec::new(),
        };
        cache.lock().assumed.insert(pod.clone(), bind, Timestamp::UNIX_EPOCH);
        let id = cache.lock().assumed.id(&pod.uid).expect("a decision");
        // The watch has shown that the pod is deleted.
        let version = cache.lock().version;
        cache.lock().settle_some();
        assert!(cache.lock().version > version, "a cycle runs: what it held is free");
        cache.record_binding(&pod, id);
        assert!(cache.lock().answered.is_empty());
    }

    /// Nothing of it may take long, or watches, writes and the lease would wait: 5 ms of a release build.
    /// The bound here is that of a debug build on a busy machine; a snapshot under the lock exceeds it.
    #[test]
    fn the_lock_is_never_held_for_long() {
        // Other processes may keep this one waiting; with a lock that is held for long, each attempt waits.
        let mut attempts = std::iter::repeat_with(longest_wait).take(5);
        let is_short = attempts.any(|wait| {
            println!("the longest wait for the lock: {wait:?}");
            wait < Duration::from_millis(100)
        });
        assert!(is_short, "the lock is held for long in each attempt");
    }

    /// The longest wait for the lock while cycles take their snapshots.
    fn longest_wait() -> Duration {
        let cache = large_cache();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while !ended.load(Ordering::Relaxed) {
                    let started = std::time::Instant::now();
                    drop(cache.lock());
                    longest = longest.max(started.elapsed());
                    std::thread::sleep(Duration::from_micros(200));
                }
                longest
            });
            take_snapshots(&cache);
            ended.store(true, Ordering::Relaxed);
            waiter.join().expect("no panic")
        })
    }
}
