//! What follows an answer of the API server, for every kind of write and of answer.
//!
//! There is a module for each kind of write, and one for shutdown. They share the world in this file.

mod bindings;
mod devices;
mod events;
mod evictions;
mod shutdown;
mod statuses;
mod volumes;

use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube_batch_api::kind::ApplyObject as _;
use kube_batch_cache::assumed::InFlight;
use kube_batch_model::{
    decision::{ClaimChoice, Decision},
    name::ObjectKey,
};
use serde_json::json;

use super::{test_effects::TestEffects, *};
use crate::run::{
    fake_api::{FakeApi, Fault},
    metrics::{Metrics, Written},
    scheduler_cache::SchedulerCache,
};

const POD: &str = "/api/v1/namespaces/ns/pods/a";
const VOLUME: &str = "/api/v1/persistentvolumes/v";
const CLAIM: &str = "/api/v1/namespaces/ns/persistentvolumeclaims/c";

/// The scheduler's writing side, a server for it, and a pod that both know.
struct World {
    api: FakeApi,
    cache: Arc<SchedulerCache>,
    metrics: Arc<Metrics>,
    effects: Arc<Effects>,
    stop: CancellationToken,
    _workers: JoinSet<()>,
}

/// What can be seen after a write.
#[derive(Debug, PartialEq)]
struct Seen {
    /// Method, and last part of the path.
    requests: Vec<String>,
    /// Reason of each event.
    events: Vec<String>,
    /// Whether the decision is in flight.
    in_flight: bool,
    /// The pod's node, as the cache knows it; none if it does not know the pod.
    node: Option<String>,
    is_known: bool,
    n_placed: u64,
}

impl World {
    fn new() -> Self {
        let TestEffects { api, cache, metrics, effects, stop, workers } = TestEffects::start();
        let world = Self { api, cache, metrics, effects, stop, _workers: workers };
        world.stores(POD, &pod("u", None));
        world
    }

    /// A world in which the pod runs on node `n`.
    fn with_running_pod() -> Self {
        let world = Self::new();
        world.stores(POD, &pod("u", Some("n")));
        world
    }

    /// A world with a claim that waits, and a volume with this claim reference.
    fn with_claim(claim_ref: &Value) -> Self {
        let world = Self::new();
        world.api.put(VOLUME, volume(claim_ref));
        world.api.put(CLAIM, claim(false));
        world.cache_claim(false);
        world
    }

    /// Server and cache both know this pod.
    fn stores(&self, path: &str, pod: &Value) {
        self.api.put(path, pod.clone());
        let pod: Pod = serde_json::from_value(pod.clone()).expect("a pod");
        self.cache.lock().store.apply(&pod).expect("facts");
    }

    /// The watch shows the claim.
    fn cache_claim(&self, is_bound: bool) {
        let claim = serde_json::from_value(claim(is_bound)).expect("a claim");
        self.cache.lock().apply_claim(&claim).expect("facts");
    }

    /// Records a decision and sends it.
    fn decide(&self, decision: &Decision) {
        let mut state = self.cache.lock();
        state.assumed.note(decision, Timestamp::now());
        let id = state.assumed.id(&decision.pod().uid).expect("it was noted");
        self.effects.enqueue_decision(id, Arc::new(decision.clone()), None);
    }

    /// Waits until everything is sent and answered.
    async fn settle(&self) {
        assert!(self.effects.drain(Duration::from_secs(300)).await, "writes are still under way");
    }

    /// Sends a decision and looks at what followed.
    async fn outcome(&self, decision: &Decision) -> Seen {
        self.decide(decision);
        self.settle().await;
        self.seen()
    }

    fn seen(&self) -> Seen {
        let state = self.cache.lock();
        let facts = state.store.pods.get(&pod_ref().key);
        let sent = self.api.sent();
        let (events, requests): (Vec<_>, Vec<_>) =
            sent.iter().partition(|sent| sent.path.ends_with("/events"));
        let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        Seen {
            requests: requests
                .iter()
                .map(|sent| format!("{} {}", sent.method, last(&sent.path)))
                .collect(),
            events: events
                .iter()
                .map(|sent| sent.body["reason"].as_str().unwrap_or_default().to_owned())
                .collect(),
            in_flight: matches!(
                state.assumed.get(&pod_ref().uid),
                Some(InFlight::Bind { .. } | InFlight::Evict)
            ),
            node: facts.and_then(|facts| facts.node.as_ref().map(ToString::to_string)),
            is_known: facts.is_some(),
            n_placed: self.metrics.pods_placed.get(),
        }
    }

    fn n_writes(&self, write: Write, result: &'static str) -> u64 {
        self.metrics.writes.get_or_create(&Written { write, result }).get()
    }
}

fn pod(uid: &str, node: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "namespace": "ns", "uid": uid},
        "spec": {"schedulerName": "kube-batch", "nodeName": node, "containers": [{"name": "c"}]},
        "status": {"phase": "Pending"},
    })
}

fn pod_ref() -> PodRef {
    PodRef { uid: "u".into(), key: ObjectKey::new("ns", "a") }
}

fn bind_to(node: &str) -> Decision {
    Decision::Bind {
        minimum: 1,
        protected_until: None,
        queue: "q".into(),
        pod: pod_ref(),
        node: node.into(),
        claims: vec![],
        devices: Vec::new(),
    }
}

fn event() -> Event {
    Event {
        regarding: Regarding::Pod(pod_ref()),
        related: None,
        type_: EventType::Warning,
        reason: "Unschedulable",
        action: "Scheduling",
        message: "why".into(),
    }
}

fn claim(is_bound: bool) -> Value {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "ns", "uid": "c-uid"},
        "spec": {"storageClassName": "slow"},
    });
    if is_bound {
        claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
        claim["spec"]["volumeName"] = json!("v");
    }
    claim
}

fn volume(claim_ref: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v", "uid": "v"},
        "spec": {"claimRef": claim_ref},
    })
}

/// A binding for which the claim gets this volume, or one that is provisioned.
fn bind_with(volume: Option<&str>) -> Decision {
    let claim = ObjectKey::new("ns", "c");
    let claims = vec![ClaimChoice { claim, volume: volume.map(Name::from), made_for: None }];
    Decision::Bind {
        minimum: 1,
        protected_until: None,
        queue: "q".into(),
        pod: pod_ref(),
        node: "n".into(),
        claims,
        devices: Vec::new(),
    }
}

/// The pod as bound, by an answer that is not read back: the watch shows its node.
fn bound(requests: &[&str]) -> Seen {
    Seen { in_flight: true, n_placed: 1, ..seen(requests, &["Scheduled"], None) }
}

/// No decision in flight, nothing placed.
fn seen(requests: &[&str], events: &[&str], node: Option<&str>) -> Seen {
    Seen {
        requests: requests.iter().map(ToString::to_string).collect(),
        events: events.iter().map(ToString::to_string).collect(),
        in_flight: false,
        node: node.map(str::to_owned),
        is_known: true,
        n_placed: 0,
    }
}
