//! Watches: objects of the API server into facts, parsed at the door.
//!
//! Each kind has a watch of its own that never ends. A complete list replaces what was known; an
//! object that cannot be read costs a warning and a counter, and no watch. Whatever order events
//! come in, the fold derives the rest.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc, time::Duration};

use backon::ExponentialBuilder;
use futures::StreamExt;
use k8s_openapi::{
    api::{
        core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
        policy::v1::PodDisruptionBudget,
        scheduling::v1::PriorityClass,
        storage::v1::{CSINode, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Config, Event, ExponentialBackoff, InitialListStrategy},
    },
};
use kube_batch_api::{
    crd::{
        ApiVersion::{self, V1Alpha1, V1Alpha2},
        v1alpha1, v1alpha2,
    },
    facts::FactError,
    name::{Name, ObjectKey},
};
use kube_batch_cache::store::{Change, Store};
use serde::de::DeserializeOwned;
use tracing::{debug, info, warn};

use super::{
    error,
    guard::Guarded,
    metrics::{Kind, Metrics},
    scheduler_cache::{CacheState, SchedulerCache},
    supervisor::Supervisor,
};

/// How long until a kind that the server does not know is asked for again.
const ABSENT_PERIOD: Duration = Duration::from_secs(5);
/// How long until a watch is begun anew that the server no longer knows the past of.
const EXPIRED_PAUSE: Duration = Duration::from_secs(1);
/// The shortest pause after a failure, doubled with each in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause. A server that is back is wanted at once, and thirteen watches that knock
/// every ten seconds are no load for it; client-go waits up to thirty.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A kind of objects that is watched.
trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// Its key among the facts.
    type Key: Ord + Send;
    /// Plural and group, as RBAC and `kubectl` name it.
    const KIND: &'static str;

    fn key(meta: &ObjectMeta) -> Self::Key;
    fn apply(&self, state: &mut CacheState) -> Result<Change, FactError>;
    fn forget(store: &mut Store, key: &Self::Key) -> bool;
    fn retain(store: &mut Store, listed: &BTreeSet<Self::Key>) -> bool;
}

fn name(meta: &ObjectMeta) -> Name {
    Name::from(meta.name.as_deref().unwrap_or_default())
}

fn key(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

/// A kind in the table of those that are watched.
struct Watch {
    kind: &'static str,
    open: fn(&Door, &Client, &mut Supervisor),
}

/// Where the objects of a kind are kept, under which key, and how they get there. Where a table
/// holds objects of several kinds, `if` tells which keys are this kind's.
macro_rules! watched {
    ($($type:ty as $kind:literal:
        $table:ident[$key_type:ty = $key:expr] $(if $is_its:expr)?,
        |$object:ident, $state:ident| $apply:expr;)*) => {
        $( impl Watched for $type {
            type Key = $key_type;
            const KIND: &'static str = $kind;

            fn key(meta: &ObjectMeta) -> Self::Key {
                $key(meta)
            }
            fn apply(&self, $state: &mut CacheState) -> Result<Change, FactError> {
                let $object = self;
                $apply
            }
            fn forget(store: &mut Store, key: &Self::Key) -> bool {
                store.$table.delete(key)
            }
            fn retain(store: &mut Store, listed: &BTreeSet<Self::Key>) -> bool {
                store.$table.retain(|key| listed.contains(key) $(|| !$is_its(key))?)
            }
        } )*

        const WATCHES: &[Watch] =
            &[$(Watch { kind: <$type as Watched>::KIND, open: Door::open::<$type> }),*];
    };
}

watched! {
    Node as "nodes": nodes[Name = name], |node, state| state.store.apply_node(node);
    Pod as "pods": pods[ObjectKey = key], |pod, state| state.apply_pod(&key(&pod.metadata), pod);
    Namespace as "namespaces": namespaces[Name = name],
        |namespace, state| state.store.apply_namespace(namespace);
    PersistentVolume as "persistentvolumes": volumes[Name = name],
        |volume, state| state.store.apply_volume(volume);
    PersistentVolumeClaim as "persistentvolumeclaims": claims[ObjectKey = key],
        |claim, state| state.store.apply_claim(claim);
    PodDisruptionBudget as "poddisruptionbudgets.policy": budgets[ObjectKey = key],
        |budget, state| state.store.apply_budget(budget);
    PriorityClass as "priorityclasses.scheduling.k8s.io": priority_classes[Name = name],
        |class, state| state.store.apply_priority_class(class);
    StorageClass as "storageclasses.storage.k8s.io": storage_classes[Name = name],
        |class, state| state.store.apply_storage_class(class);
    CSINode as "csinodes.storage.k8s.io": csi_nodes[Name = name],
        |node, state| state.store.apply_csi_node(node);
    v1alpha1::PodGroup as "podgroups.scheduling.incubator.k8s.io":
        groups[(ObjectKey, ApiVersion) = |meta| (key(meta), V1Alpha1)] if is_in(V1Alpha1),
        |group, state| {
            state.store.apply_group(V1Alpha1, &group.metadata, &group.spec, group.status.as_ref())
        };
    v1alpha2::PodGroup as "podgroups.scheduling.sigs.dev":
        groups[(ObjectKey, ApiVersion) = |meta| (key(meta), V1Alpha2)] if is_in(V1Alpha2),
        |group, state| {
            state.store.apply_group(V1Alpha2, &group.metadata, &group.spec, group.status.as_ref())
        };
    v1alpha1::Queue as "queues.scheduling.incubator.k8s.io":
        queues[(Name, ApiVersion) = |meta| (name(meta), V1Alpha1)] if is_in(V1Alpha1),
        |queue, state| {
            state.store.apply_queue(V1Alpha1, &queue.metadata, &queue.spec, queue.status.as_ref())
        };
    v1alpha2::Queue as "queues.scheduling.sigs.dev":
        queues[(Name, ApiVersion) = |meta| (name(meta), V1Alpha2)] if is_in(V1Alpha2),
        |queue, state| {
            state.store.apply_queue(V1Alpha2, &queue.metadata, &queue.spec, queue.status.as_ref())
        };
}

/// Whether a key is one of this API group.
fn is_in<K>(version: ApiVersion) -> impl Fn(&(K, ApiVersion)) -> bool {
    move |key| key.1 == version
}

/// The table's kinds; PriorityClasses only where they rank jobs.
fn watches(priority_class: bool) -> impl Iterator<Item = &'static Watch> {
    WATCHES.iter().filter(move |watch| priority_class || watch.kind != PriorityClass::KIND)
}

/// The kinds that are watched.
pub(crate) fn kinds(priority_class: bool) -> Vec<&'static str> {
    watches(priority_class).map(|watch| watch.kind).collect()
}

/// Starts a watch for each kind.
pub(crate) fn start(
    client: &Client,
    cache: &Arc<SchedulerCache>,
    metrics: &Arc<Metrics>,
    priority_class: bool,
    tasks: &mut Supervisor,
) {
    let door = Door { cache: Arc::clone(cache), metrics: Arc::clone(metrics) };
    for watch in watches(priority_class) {
        (watch.open)(&door, client, tasks);
    }
}

/// Where objects come in.
#[derive(Clone)]
struct Door {
    cache: Arc<SchedulerCache>,
    metrics: Arc<Metrics>,
}

/// Why a watch has to begin anew.
enum Anew {
    /// The server cannot stream its list: page through it.
    Paging,
    /// The server does not know the kind.
    Absent,
    /// The server no longer knows what changed since: list again.
    Expired,
}

impl Door {
    fn open<K: Watched>(&self, client: &Client, tasks: &mut Supervisor) {
        let (door, client) = (self.clone(), client.clone());
        // Restarted: it lists anew, as after any gap, and no cycle runs until it has.
        tasks.spawn_restarted("watch", move || door.clone().watch::<K>(client.clone()));
    }

    async fn watch<K: Watched>(self, client: Client) {
        let _stale = StaleOnDrop { cache: Arc::clone(&self.cache), kind: K::KIND };
        let mut strategy = InitialListStrategy::StreamingList;
        let mut is_absent = false;
        loop {
            match self.follow::<K>(&client, &strategy, &mut is_absent).await {
                Anew::Paging => strategy = InitialListStrategy::ListWatch,
                Anew::Expired => tokio::time::sleep(EXPIRED_PAUSE).await,
                Anew::Absent => {
                    if !is_absent {
                        info!(kind = K::KIND, "the server does not serve this kind yet");
                    }
                    is_absent = true;
                    self.end_of_list::<K>(&BTreeSet::new());
                    tokio::time::sleep(ABSENT_PERIOD).await;
                }
            }
        }
    }

    async fn follow<K: Watched>(
        &self,
        client: &Client,
        strategy: &InitialListStrategy,
        is_absent: &mut bool,
    ) -> Anew {
        let config = Config { initial_list_strategy: strategy.clone(), ..Config::default() };
        let api: Api<Guarded<K>> = Api::all(client.clone());
        let pauses = ExponentialBuilder::new()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .without_max_times()
            .with_jitter();
        let pauses = ExponentialBackoff::from(pauses);
        let mut events = watcher::watcher(api, config).backoff(pauses).boxed();
        let mut listed = BTreeSet::new();
        while let Some(event) = events.next().await {
            let kind = Kind { kind: K::KIND };
            match event {
                Ok(Event::Init) => {
                    listed.clear();
                    self.cache.set_unsynced(K::KIND);
                }
                Ok(Event::InitApply(object)) => {
                    self.metrics.watch_events.get_or_create(&kind).inc();
                    listed.insert(K::key(object.meta()));
                    self.apply(&object);
                }
                Ok(Event::InitDone) => {
                    if std::mem::take(is_absent) {
                        info!(kind = K::KIND, "the server serves this kind now");
                    }
                    self.end_of_list::<K>(&std::mem::take(&mut listed));
                }
                Ok(Event::Apply(object)) => {
                    self.metrics.watch_events.get_or_create(&kind).inc();
                    self.apply(&object);
                }
                Ok(Event::Delete(object)) => {
                    self.metrics.watch_events.get_or_create(&kind).inc();
                    self.forget::<K>(object.meta());
                }
                Err(error) => {
                    self.metrics.watch_failures.get_or_create(&kind).inc();
                    if let Some(anew) = self.judge::<K>(&error, strategy) {
                        return anew;
                    }
                }
            }
        }
        unreachable!("a watch goes on for ever")
    }

    /// What a failure means; most pass by themselves.
    fn judge<K: Watched>(
        &self,
        error: &watcher::Error,
        strategy: &InitialListStrategy,
    ) -> Option<Anew> {
        use watcher::Error;
        let api_status = match error {
            Error::InitialListFailed(kube::Error::Api(status))
            | Error::WatchStartFailed(kube::Error::Api(status))
            | Error::WatchFailed(kube::Error::Api(status)) => Some(&**status),
            Error::WatchError(status) => Some(&**status),
            Error::InitialListFailed(_)
            | Error::WatchStartFailed(_)
            | Error::WatchFailed(_)
            | Error::NoResourceVersion => None,
        };
        let code = api_status.map(|status| status.code);
        match code {
            Some(404) => return Some(Anew::Absent),
            // Servers without streaming lists call the request invalid.
            Some(400 | 422) if *strategy == InitialListStrategy::StreamingList => {
                debug!(kind = K::KIND, "the server does not stream lists, paging through them");
                return Some(Anew::Paging);
            }
            Some(410) => {
                debug!(kind = K::KIND, "the watch is too old, listing again");
                self.cache.set_unsynced(K::KIND);
                // `kube` lists again by itself where the stream says so, not where its start does.
                let is_refused = matches!(error, Error::WatchStartFailed(_));
                return is_refused.then_some(Anew::Expired);
            }
            Some(429) => {
                // As from a server that has only just learnt of the kind.
                debug!(kind = K::KIND, "the server asks for patience");
                return None;
            }
            Some(403) => {
                let status = api_status.map(|status| status.message.clone()).unwrap_or_default();
                warn!(
                    kind = K::KIND,
                    reason = status,
                    "not allowed to watch: give the role of deploy/ to this service account"
                );
                self.cache.set_list_error(K::KIND, status);
                return None;
            }
            Some(_) | None => {}
        }
        let cause = api_status.map_or_else(|| error::chain(error), |status| status.message.clone());
        warn!(kind = K::KIND, error = cause, "cannot watch, trying again");
        self.cache.set_list_error(K::KIND, cause);
        None
    }

    fn apply<K: Watched>(&self, object: &Guarded<K>) {
        let read = match &object.0 {
            Ok(object) => {
                let mut state = self.cache.lock();
                object
                    .apply(&mut state)
                    .map(|change| self.cache.record_change(&mut state, change))
                    .map_err(|error| error.to_string())
            }
            Err(broken) => {
                let meta = &broken.metadata;
                Err(format!("{} {}: {}", K::kind(&()), key(meta), broken.error))
            }
        };
        if let Err(problem) = read {
            self.metrics.malformed_objects.get_or_create(&Kind { kind: K::KIND }).inc();
            warn!(problem, "an object cannot be read and is skipped");
        }
    }

    fn forget<K: Watched>(&self, meta: &ObjectMeta) {
        let mut state = self.cache.lock();
        if K::forget(&mut state.store, &K::key(meta)) {
            self.cache.record_change(&mut state, Change::Facts);
        }
    }

    fn end_of_list<K: Watched>(&self, listed: &BTreeSet<K::Key>) {
        let mut state = self.cache.lock();
        if K::retain(&mut state.store, listed) {
            self.cache.record_change(&mut state, Change::Facts);
        }
        drop(state);
        self.cache.set_synced(K::KIND);
    }
}

/// What is known of a kind is stale when its watch is gone, however it ended.
struct StaleOnDrop {
    cache: Arc<SchedulerCache>,
    kind: &'static str,
}

impl Drop for StaleOnDrop {
    fn drop(&mut self) {
        self.cache.set_unsynced(self.kind);
    }
}

#[cfg(test)]
mod tests;
