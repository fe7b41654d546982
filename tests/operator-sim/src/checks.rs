//! What must hold when everything has been calm for a while.

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Namespace, Node, Pod},
        resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
        scheduling::v1::PriorityClass,
    },
    serde::de::DeserializeOwned,
};
use kube_batch::Registry;
use kube_batch_api::{dialect::RawObject, kind::ApplyObject as _};
use kube_batch_cache::{
    assumed::{Assumed, InFlight},
    snapshot::{SnapshotOptions, take_snapshot},
    store::Store,
};
use kube_batch_framework::candidates::Search;
use kube_batch_model::group_version::GroupVersion::{self, V1Alpha2};
use kube_batch_scheduler::conf;
use serde_json::Value;
use tokio::time::{Duration, Instant};

use crate::{
    configuration::Configuration,
    devices::rules::{unused_claim, useless_claim},
    pods::{is_member, job_of},
    replicas::{self, Process},
    server::{
        DEVICE_CLASSES, GROUPS, KUBERNETES_GROUPS, Key, Kind, NAMESPACES, NODES, PODS,
        PRIORITY_CLASSES, QUEUES, RESOURCE_CLAIMS, SLICES, Server,
    },
    shared::Shared,
    world::{Eviction, World},
};

/// Checks everything, and records the first rule that is broken.
pub(crate) fn at_the_end(
    shared: &Shared,
    processes: &[Process],
    quiet: Duration,
    registry: &Registry,
) {
    // Jobs that started from reservations are protected for longer than the calm time.
    let now = replicas::true_time(shared.elapsed());
    let mut world = shared.lock();
    let configuration = world.text_of(Configuration::Shipped).expect("it is there");
    let truth = store_of(&world.server, registry);
    let problem = leader(&world, processes)
        .or_else(|| writes(&world, quiet))
        .or_else(|| caches(&truth, processes))
        .or_else(|| decisions(&truth, &configuration, now, registry))
        .or_else(|| half_started(&world))
        .or_else(|| evicted_in_vain(&world))
        .or_else(|| unused_claim(&world.server))
        .or_else(|| useless_claim(&world.server));
    if let Some(problem) = problem {
        world.break_rule(problem);
    }
}

/// One of the processes leads.
fn leader(world: &World, processes: &[Process]) -> Option<String> {
    let holder = world.holder();
    let holds = |process: &Process| world.identity(process.number) == holder;
    (!processes.iter().any(holds)).then(|| format!("{holder:?} holds the lease in the end"))
}

/// Nothing is written any more.
fn writes(world: &World, quiet: Duration) -> Option<String> {
    let (at, what) = world.last_write.as_ref()?;
    (at.elapsed() < quiet).then(|| format!("{what}, {:?} before the end", at.elapsed()))
}

/// The caches have what the server has.
fn caches(truth: &Store, processes: &[Process]) -> Option<String> {
    processes.iter().find_map(|process| {
        if let Some((kind, why)) = process.view.unsynced().first_key_value() {
            return Some(format!("process {} has no list of {kind}: {why:?}", process.number));
        }
        process.view.with(|store, assumed| {
            let tables = [
                ("nodes", store.nodes == truth.nodes),
                ("pods", store.pods == truth.pods),
                ("groups", store.groups == truth.groups),
                ("queues", store.queues == truth.queues),
                ("namespaces", store.namespaces == truth.namespaces),
                ("priority classes", store.priority_classes == truth.priority_classes),
                ("claims for devices", store.resource_claims == truth.resource_claims),
                ("slices", store.resource_slices == truth.resource_slices),
                ("device classes", store.device_classes == truth.device_classes),
            ];
            let wrong = tables.iter().find(|(_, is_equal)| !is_equal);
            let number = process.number;
            let sent = assumed.iter().find(|(_, in_flight, _)| {
                // The others are places that pods keep while they wait.
                matches!(in_flight, InFlight::Bind { .. } | InFlight::Evict)
            });
            wrong
                .map(|(table, _)| {
                    format!("the {table} of process {number} differ from the server's")
                })
                .or_else(|| {
                    let (pod, in_flight, _) = sent?;
                    Some(format!("process {number} still assumes {in_flight:?} of {}", pod.key))
                })
        })
    })
}

/// A cycle over what the server has decides nothing: everything that fits runs, and queues have their
/// shares. Unless something is reserved: since when jobs have waited depends on what the leader has seen.
fn decisions(
    truth: &Store,
    configuration: &str,
    now: Timestamp,
    registry: &Registry,
) -> Option<String> {
    if truth.queues.values().any(|queue| !queue.status.reserved.is_empty()) {
        return None;
    }
    let options = SnapshotOptions::default();
    let snapshot = take_snapshot(truth, &Assumed::default(), &options);
    let conf = conf::parse(configuration, registry).expect("a configuration").conf;
    let cycle = conf.run_cycle(snapshot.cluster, now, Search::Index, &mut |_| {});
    let decision = cycle.decisions.iter().find(|decision| decision.is_write())?;
    Some(format!("in the end it could still be decided: {decision:?}"))
}

/// No gang runs in part, unless it lacks pods.
fn half_started(world: &World) -> Option<String> {
    let of_kind = |kind| world.server.all(kind).map(move |(key, group)| (kind, key, group));
    of_kind(GROUPS).chain(of_kind(KUBERNETES_GROUPS)).find_map(|(kind, key, group)| {
        let min =
            [&group["spec"]["minMember"], &group["spec"]["schedulingPolicy"]["gang"]["minCount"]];
        let min = min.into_iter().find_map(Value::as_u64).unwrap_or(0);
        let members = || {
            let pods = world.server.all(PODS).map(|(_, pod)| &**pod);
            pods.filter(move |pod| is_member(kind, &key.1, pod))
                .filter(|pod| pod["status"]["phase"] != "Failed")
        };
        let has_node = |pod: &&Value| pod["spec"]["nodeName"].is_string();
        let n_started = members().filter(has_node).count() as u64;
        let runs = |pod: &Value| has_node(&pod) && pod["status"]["phase"] != "Succeeded";
        (n_started < min && min <= members().count() as u64 && members().any(runs))
            .then(|| format!("{n_started} pods of {} have started, it needs {min}", key.1))
    })
}

/// The jobs for which pods were evicted run, unless a job that precedes them in their queue has started instead.
// Parity: see docs/parity.md#p1-nominations.
fn evicted_in_vain(world: &World) -> Option<String> {
    let runs = |pod: &Value| pod["spec"]["nodeName"].is_string();
    world.evicted.iter().find_map(|Eviction { at, pod: victim, by }| {
        let (namespace, name) = by.split_once('/')?;
        let key = (namespace.to_owned(), name.to_owned());
        let kinds = [GROUPS, KUBERNETES_GROUPS];
        let kind = kinds.into_iter().find(|kind| world.server.get(*kind, &key).is_some());
        let is_placed = match kind {
            Some(kind) => {
                let mut pods = world.server.all(PODS);
                pods.any(|(_, pod)| is_member(kind, name, pod) && runs(pod))
            }
            None => world.server.get(PODS, &key).is_none_or(|pod| runs(pod)),
        };
        let (namespace, pod) = victim;
        (!is_placed && !has_preceded(world, &key, *at))
            .then(|| format!("{namespace}/{pod} was evicted for {by}, which does not run"))
    })
}

/// Whether a pod of a job of the same queue and of higher priority was bound after a time: it may have taken the places
/// of this job.
fn has_preceded(world: &World, job: &Key, since: Instant) -> bool {
    let (queue, priority) = order_of(&world.server, job);
    let bound = world.bound_since.iter().filter(|(at, _)| *at >= since);
    bound.into_iter().any(|(_, pod)| {
        let job = world.server.get(PODS, pod).map(|object| job_of(pod, object));
        job.is_some_and(|job| {
            let other = order_of(&world.server, &job);
            other.0 == queue && other.1 > priority
        })
    })
}

/// The queue of a job and its priority. Only our own groups name them.
fn order_of(server: &Server, job: &Key) -> (String, i64) {
    let spec = server.get(GROUPS, job).map_or(Value::Null, |group| group["spec"].clone());
    let class = spec["priorityClassName"].as_str().unwrap_or_default();
    let class = server.get(PRIORITY_CLASSES, &(String::new(), class.to_owned()));
    let priority = class.and_then(|class| class["value"].as_i64()).unwrap_or(0);
    (spec["queue"].as_str().unwrap_or("default").to_owned(), priority)
}

/// What a scheduler would know that has listed everything.
fn store_of(server: &Server, registry: &Registry) -> Store {
    fn read<T: DeserializeOwned>(server: &Server, kind: Kind) -> impl Iterator<Item = T> {
        let objects = server.all(kind).map(|(_, object)| (**object).clone());
        objects.map(|object| k8s_openapi::serde_json::from_value(object).expect("an object"))
    }
    let mut store = Store::new(registry.metadata_prefixes());
    for version in [GroupVersion::Kubernetes, V1Alpha2] {
        let _ = store.set_served(version, true);
    }
    read::<Node>(server, NODES).for_each(|node| drop(store.apply(&node)));
    read::<Pod>(server, PODS).for_each(|pod| drop(store.apply(&pod)));
    read::<Namespace>(server, NAMESPACES).for_each(|namespace| drop(store.apply(&namespace)));
    read::<PriorityClass>(server, PRIORITY_CLASSES).for_each(|class| drop(store.apply(&class)));
    read::<ResourceClaim>(server, RESOURCE_CLAIMS).for_each(|claim| drop(store.apply(&claim)));
    read::<ResourceSlice>(server, SLICES).for_each(|slice| drop(store.apply(&slice)));
    read::<DeviceClass>(server, DEVICE_CLASSES).for_each(|class| drop(store.apply(&class)));
    for (version, kind) in [(V1Alpha2, GROUPS), (GroupVersion::Kubernetes, KUBERNETES_GROUPS)] {
        read::<RawObject>(server, kind).for_each(|group| drop(store.apply_group(version, &group)));
    }
    read::<RawObject>(server, QUEUES).for_each(|queue| drop(store.apply_queue(V1Alpha2, &queue)));
    store
}
