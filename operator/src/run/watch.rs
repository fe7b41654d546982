//! Watches: objects of the API server into facts, parsed at the door.
//!
//! Each kind has a watch of its own that never ends. A complete list replaces what was known; an
//! object that cannot be read costs a warning and a counter, and no watch. Whatever order events
//! come in, the fold derives the rest.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc, time::Duration};

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
        watcher::{self, Config, Event, InitialListStrategy},
    },
};
use kube_batch_api::{
    crd::{ApiVersion, v1alpha1, v1alpha2},
    facts::FactError,
    name::{Name, ObjectKey},
};
use kube_batch_cache::store::{Change, Store};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::{
    guard::Guarded,
    metrics::{Kind, Metrics},
    mirror::Mirror,
};

/// How long until a kind that the server does not know is asked for again.
const ABSENT_PERIOD: Duration = Duration::from_secs(5);

/// A kind of objects that is watched.
trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// Its key among the facts.
    type Key: Ord + Send;
    /// Plural and group, as RBAC and `kubectl` name it.
    const KIND: &'static str;

    fn key(meta: &ObjectMeta) -> Self::Key;
    fn apply(&self, store: &mut Store) -> Result<Change, FactError>;
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

macro_rules! watched {
    ($($type:ty as $kind:literal: $table:ident[$key_type:ty = $key:expr],
        |$object:ident, $store:ident| $apply:expr;)*) => {
        $( impl Watched for $type {
            type Key = $key_type;
            const KIND: &'static str = $kind;

            fn key(meta: &ObjectMeta) -> Self::Key {
                $key(meta)
            }
            fn apply(&self, $store: &mut Store) -> Result<Change, FactError> {
                let $object = self;
                $apply
            }
            fn forget(store: &mut Store, key: &Self::Key) -> bool {
                store.$table.delete(key)
            }
            fn retain(store: &mut Store, listed: &BTreeSet<Self::Key>) -> bool {
                store.$table.retain(|key| listed.contains(key))
            }
        } )*
    };
}

/// The two API groups keep their objects in one table, each under its own version.
macro_rules! watched_in {
    ($version:expr, $module:ident, $groups:literal, $queues:literal) => {
        impl Watched for $module::PodGroup {
            type Key = (ObjectKey, ApiVersion);
            const KIND: &'static str = $groups;

            fn key(meta: &ObjectMeta) -> Self::Key {
                (key(meta), $version)
            }
            fn apply(&self, store: &mut Store) -> Result<Change, FactError> {
                store.apply_group($version, &self.metadata, &self.spec, self.status.as_ref())
            }
            fn forget(store: &mut Store, key: &Self::Key) -> bool {
                store.groups.delete(key)
            }
            fn retain(store: &mut Store, listed: &BTreeSet<Self::Key>) -> bool {
                store.groups.retain(|key| key.1 != $version || listed.contains(key))
            }
        }

        impl Watched for $module::Queue {
            type Key = (Name, ApiVersion);
            const KIND: &'static str = $queues;

            fn key(meta: &ObjectMeta) -> Self::Key {
                (name(meta), $version)
            }
            fn apply(&self, store: &mut Store) -> Result<Change, FactError> {
                store.apply_queue($version, &self.metadata, &self.spec, self.status.as_ref())
            }
            fn forget(store: &mut Store, key: &Self::Key) -> bool {
                store.queues.delete(key)
            }
            fn retain(store: &mut Store, listed: &BTreeSet<Self::Key>) -> bool {
                store.queues.retain(|key| key.1 != $version || listed.contains(key))
            }
        }
    };
}

watched! {
    Node as "nodes": nodes[Name = name], |node, store| store.apply_node(node);
    Pod as "pods": pods[ObjectKey = key], |pod, store| store.apply_pod(pod);
    Namespace as "namespaces": namespaces[Name = name],
        |namespace, store| store.apply_namespace(namespace);
    PersistentVolume as "persistentvolumes": volumes[Name = name],
        |volume, store| store.apply_volume(volume);
    PersistentVolumeClaim as "persistentvolumeclaims": claims[ObjectKey = key],
        |claim, store| store.apply_claim(claim);
    PodDisruptionBudget as "poddisruptionbudgets.policy": budgets[ObjectKey = key],
        |budget, store| store.apply_budget(budget);
    PriorityClass as "priorityclasses.scheduling.k8s.io": priority_classes[Name = name],
        |class, store| store.apply_priority_class(class);
    StorageClass as "storageclasses.storage.k8s.io": storage_classes[Name = name],
        |class, store| store.apply_storage_class(class);
    CSINode as "csinodes.storage.k8s.io": csi_nodes[Name = name],
        |node, store| store.apply_csi_node(node);
}
watched_in!(
    ApiVersion::V1Alpha1,
    v1alpha1,
    "podgroups.scheduling.incubator.k8s.io",
    "queues.scheduling.incubator.k8s.io"
);
watched_in!(
    ApiVersion::V1Alpha2,
    v1alpha2,
    "podgroups.scheduling.sigs.dev",
    "queues.scheduling.sigs.dev"
);

/// The kinds that are watched; PriorityClasses only where they rank jobs.
pub(crate) fn kinds(priority_class: bool) -> Vec<&'static str> {
    let mut kinds = vec![
        Node::KIND,
        Pod::KIND,
        Namespace::KIND,
        PersistentVolume::KIND,
        PersistentVolumeClaim::KIND,
        PodDisruptionBudget::KIND,
        StorageClass::KIND,
        CSINode::KIND,
        <v1alpha1::PodGroup as Watched>::KIND,
        <v1alpha1::Queue as Watched>::KIND,
        <v1alpha2::PodGroup as Watched>::KIND,
        <v1alpha2::Queue as Watched>::KIND,
    ];
    if priority_class {
        kinds.push(PriorityClass::KIND);
    }
    kinds
}

/// Starts a watch for each kind.
pub(crate) fn start(
    client: &Client,
    mirror: &Arc<Mirror>,
    metrics: &Arc<Metrics>,
    priority_class: bool,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let door = Door { mirror: Arc::clone(mirror), metrics: Arc::clone(metrics) };
    door.open::<Node>(client, &mut tasks);
    door.open::<Pod>(client, &mut tasks);
    door.open::<Namespace>(client, &mut tasks);
    door.open::<PersistentVolume>(client, &mut tasks);
    door.open::<PersistentVolumeClaim>(client, &mut tasks);
    door.open::<PodDisruptionBudget>(client, &mut tasks);
    door.open::<StorageClass>(client, &mut tasks);
    door.open::<CSINode>(client, &mut tasks);
    door.open::<v1alpha1::PodGroup>(client, &mut tasks);
    door.open::<v1alpha1::Queue>(client, &mut tasks);
    door.open::<v1alpha2::PodGroup>(client, &mut tasks);
    door.open::<v1alpha2::Queue>(client, &mut tasks);
    if priority_class {
        door.open::<PriorityClass>(client, &mut tasks);
    }
    tasks
}

/// Where objects come in.
#[derive(Clone)]
struct Door {
    mirror: Arc<Mirror>,
    metrics: Arc<Metrics>,
}

/// Why a watch has to begin anew.
enum Anew {
    /// The server cannot stream its list: page through it.
    Paging,
    /// The server does not know the kind.
    Absent,
}

impl Door {
    fn open<K: Watched>(&self, client: &Client, tasks: &mut JoinSet<()>) {
        tasks.spawn(self.clone().watch::<K>(client.clone()));
    }

    async fn watch<K: Watched>(self, client: Client) {
        let mut strategy = InitialListStrategy::StreamingList;
        let mut is_absent = false;
        loop {
            match self.follow::<K>(&client, &strategy, &mut is_absent).await {
                Anew::Paging => strategy = InitialListStrategy::ListWatch,
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
        let mut events = watcher::watcher(api, config).default_backoff().boxed();
        let mut listed = BTreeSet::new();
        while let Some(event) = events.next().await {
            let kind = Kind { kind: K::KIND };
            match event {
                Ok(Event::Init) => listed.clear(),
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
                return None;
            }
            Some(403) => {
                let status = api_status.map(|status| status.message.clone()).unwrap_or_default();
                warn!(
                    kind = K::KIND,
                    reason = status,
                    "not allowed to watch: give the role of deploy/ to this service account"
                );
                self.mirror.set_obstacle(K::KIND, status);
                return None;
            }
            Some(_) | None => {}
        }
        let cause = cause(error);
        warn!(kind = K::KIND, error = cause, "cannot watch, trying again");
        self.mirror.set_obstacle(K::KIND, cause);
        None
    }

    fn apply<K: Watched>(&self, object: &Guarded<K>) {
        let read = match &object.0 {
            Ok(object) => {
                let mut state = self.mirror.lock();
                object
                    .apply(&mut state.store)
                    .map(|change| self.mirror.note(&mut state, change))
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
        let mut state = self.mirror.lock();
        if K::forget(&mut state.store, &K::key(meta)) {
            self.mirror.note(&mut state, Change::Facts);
        }
    }

    fn end_of_list<K: Watched>(&self, listed: &BTreeSet<K::Key>) {
        let mut state = self.mirror.lock();
        if K::retain(&mut state.store, listed) {
            self.mirror.note(&mut state, Change::Facts);
        }
        drop(state);
        self.mirror.set_synced(K::KIND);
    }
}

/// An error with its causes, each said once.
pub(crate) fn cause(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}
