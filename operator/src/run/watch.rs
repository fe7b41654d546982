//! Watches: parse the objects of the API server into facts, and store them in the scheduler cache.
//!
//! Each kind has a watch of its own that never ends. A complete list replaces what was known. An
//! object that cannot be read is logged, counted and skipped; its watch continues. The order of
//! events does not matter: the snapshot derives everything else from the facts.

mod failure;

use std::{collections::BTreeSet, fmt::Debug, sync::Arc, time::Duration};

use backon::ExponentialBuilder;
use futures::StreamExt;
use k8s_openapi::{
    api::{
        core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
        policy::v1::PodDisruptionBudget,
        resource::v1::ResourceClaim,
        scheduling::v1::PriorityClass,
        storage::v1::{CSIDriver, CSINode, StorageClass},
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

use self::failure::Failure;
use super::{
    guard::Guarded,
    metrics::{Kind, Metrics},
    permission::missing_rule,
    scheduler_cache::{CacheState, SchedulerCache},
    supervisor::Supervisor,
};

/// How often a kind is asked for that the API server does not serve.
const ABSENT_PERIOD: Duration = Duration::from_secs(5);
/// The pause before a new list, when the resource version of a watch is too old.
const EXPIRED_PAUSE: Duration = Duration::from_secs(1);
/// The shortest pause after a failure, doubled with each in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause. Fifteen watches that retry every ten seconds are no load for an API server,
/// and scheduling resumes soon after an outage; client-go waits up to thirty.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Kinds that roles of earlier versions do not name. Without the permission they count as not served,
/// so that an update of the image alone does not stop scheduling.
const OPTIONAL_KINDS: &[&str] = &[ResourceClaim::KIND, CSIDriver::KIND];

/// A kind of object that is watched.
trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// Its key in the store.
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
    open: fn(&WatchHandler, &Client, &mut Supervisor),
}

/// The table, the key and the parser of each kind. Where a table holds objects of several kinds,
/// `if` selects the keys of this one.
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
            &[$(Watch { kind: <$type as Watched>::KIND, open: WatchHandler::open::<$type> }),*];
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
    CSIDriver as "csidrivers.storage.k8s.io": csi_drivers[Name = name],
        |driver, state| state.store.apply_csi_driver(driver);
    ResourceClaim as "resourceclaims.resource.k8s.io": resource_claims[ObjectKey = key],
        |claim, state| state.store.apply_resource_claim(claim);
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

/// The kinds to watch; PriorityClasses only where they rank jobs.
fn watches(priority_class: bool) -> impl Iterator<Item = &'static Watch> {
    WATCHES.iter().filter(move |watch| priority_class || watch.kind != PriorityClass::KIND)
}

/// Names of the kinds to watch.
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
    let handler = WatchHandler { cache: Arc::clone(cache), metrics: Arc::clone(metrics) };
    for watch in watches(priority_class) {
        (watch.open)(&handler, client, tasks);
    }
}

/// Stores the objects of watches in the scheduler cache.
#[derive(Clone)]
struct WatchHandler {
    cache: Arc<SchedulerCache>,
    metrics: Arc<Metrics>,
}

/// Why a watch has to start again.
enum Restart {
    /// The API server cannot stream its list: page through it.
    WithPaging,
    /// The API server does not serve the kind: ask again later.
    WhenServed,
    /// The API server no longer knows what changed since: list again.
    WithNewList,
}

/// What a watch remembers from one event to the next.
struct Progress<K: Watched> {
    /// Keys of the list that is being received.
    listed: BTreeSet<K::Key>,
    /// Whether the API server did not serve the kind when it was asked last.
    is_absent: bool,
    /// Whether it did not permit the watch when it was asked last.
    is_forbidden: bool,
}

impl WatchHandler {
    fn open<K: Watched>(&self, client: &Client, tasks: &mut Supervisor) {
        let (handler, client) = (self.clone(), client.clone());
        // Restarted: it lists again, as after any gap, and no cycle runs until it has.
        tasks.spawn_restarted("watch", move || handler.clone().watch::<K>(client.clone()));
    }

    async fn watch<K: Watched>(self, client: Client) {
        let _stale = StaleOnDrop { cache: Arc::clone(&self.cache), kind: K::KIND };
        let mut strategy = InitialListStrategy::StreamingList;
        let mut progress =
            Progress::<K> { listed: BTreeSet::new(), is_absent: false, is_forbidden: false };
        loop {
            match self.follow(&client, &strategy, &mut progress).await {
                Restart::WithPaging => strategy = InitialListStrategy::ListWatch,
                Restart::WithNewList => tokio::time::sleep(EXPIRED_PAUSE).await,
                Restart::WhenServed => {
                    let was_absent = std::mem::replace(&mut progress.is_absent, true);
                    if !was_absent && !progress.is_forbidden {
                        info!(kind = K::KIND, "the API server does not serve this kind yet");
                    }
                    self.end_of_list::<K>(&BTreeSet::new());
                    tokio::time::sleep(ABSENT_PERIOD).await;
                }
            }
        }
    }

    /// Handles events until the watch has to start again.
    async fn follow<K: Watched>(
        &self,
        client: &Client,
        strategy: &InitialListStrategy,
        progress: &mut Progress<K>,
    ) -> Restart {
        let config = Config { initial_list_strategy: strategy.clone(), ..Config::default() };
        let api: Api<Guarded<K>> = Api::all(client.clone());
        let mut events = watcher::watcher(api, config).backoff(pauses()).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.handle(event, progress),
                Err(error) => {
                    if let Some(restart) = self.handle_failure(&error, strategy, progress) {
                        return restart;
                    }
                }
            }
        }
        unreachable!("a watch never ends")
    }

    fn handle<K: Watched>(&self, event: Event<Guarded<K>>, progress: &mut Progress<K>) {
        let count = || self.metrics.watch_events.get_or_create(&Kind { kind: K::KIND }).inc();
        match event {
            Event::Init => {
                progress.listed.clear();
                self.cache.set_unsynced(K::KIND);
            }
            Event::InitApply(object) => {
                count();
                progress.listed.insert(K::key(object.meta()));
                self.apply(&object);
            }
            Event::InitDone => {
                let was_absent = std::mem::take(&mut progress.is_absent);
                if std::mem::take(&mut progress.is_forbidden) {
                    info!(kind = K::KIND, "the API server permits to watch this kind now");
                } else if was_absent {
                    info!(kind = K::KIND, "the API server serves this kind now");
                }
                self.end_of_list::<K>(&std::mem::take(&mut progress.listed));
            }
            Event::Apply(object) => {
                count();
                self.apply(&object);
            }
            Event::Delete(object) => {
                count();
                self.forget::<K>(object.meta());
            }
        }
    }

    /// Does what a failure calls for; most watches go on by themselves.
    fn handle_failure<K: Watched>(
        &self,
        error: &watcher::Error,
        strategy: &InitialListStrategy,
        progress: &mut Progress<K>,
    ) -> Option<Restart> {
        let kind = K::KIND;
        self.metrics.watch_failures.get_or_create(&Kind { kind }).inc();
        match Failure::of(error, strategy) {
            Failure::Absent => return Some(Restart::WhenServed),
            Failure::CannotStream => {
                debug!(kind, "the API server does not stream lists, paging through them");
                return Some(Restart::WithPaging);
            }
            Failure::ExpiredAtStart => {
                debug!(kind, "the resource version of the watch is too old, listing again");
                self.cache.set_unsynced(kind);
                return Some(Restart::WithNewList);
            }
            Failure::Expired => {
                debug!(kind, "the resource version of the watch is too old, listing again");
                self.cache.set_unsynced(kind);
            }
            Failure::Busy => debug!(kind, "the API server is busy, retrying"),
            Failure::Forbidden(reason) => {
                if !std::mem::replace(&mut progress.is_forbidden, true) {
                    let rule = missing_rule(&reason);
                    warn!(
                        kind,
                        reason, rule, "missing permission; add the rule to the role kube-batch"
                    );
                }
                if OPTIONAL_KINDS.contains(&kind) {
                    return Some(Restart::WhenServed);
                }
                self.cache.set_list_error(kind, reason);
            }
            Failure::Other(error) => {
                warn!(kind, error, "cannot watch, retrying");
                self.cache.set_list_error(kind, error);
            }
        }
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
            warn!(problem, "skipped an object that cannot be read");
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

/// Pauses after failures in a row.
fn pauses() -> ExponentialBackoff {
    let pauses = ExponentialBuilder::new()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .without_max_times()
        .with_jitter();
    ExponentialBackoff::from(pauses)
}

/// Marks a kind as not listed when its watch is gone, however it ended.
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
