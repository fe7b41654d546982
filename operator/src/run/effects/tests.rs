//! What follows an answer of the API server, for every kind of write and of answer.

use http::Method;
use kube_batch_api::{
    decision::{Decision, EvictReason},
    name::{JobKey, ObjectKey},
};
use serde_json::json;
use tokio::time::Instant;

use kube_batch_scheduler::writes::decision_writes;

use super::{test_effects::TestEffects, *};
use crate::run::{
    fake_api::{FakeApi, Fault},
    metrics::{Task, WriteKind, Written},
};

const POD: &str = "/api/v1/namespaces/ns/pods/a";
const GROUP: &str = "/apis/scheduling.sigs.dev/v1alpha2/namespaces/ns/podgroups/g";

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
    Decision::Bind { pod: pod_ref(), node: node.into(), claims: vec![] }
}

fn evict() -> Decision {
    let by = JobKey::Group(ObjectKey::new("ns", "urgent"));
    Decision::Evict {
        pod: pod_ref(),
        node: "n".into(),
        reason: EvictReason::Preempt,
        by,
        queue: "q".into(),
    }
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

    /// Server and cache both know this pod.
    fn stores(&self, path: &str, pod: &Value) {
        self.api.put(path, pod.clone());
        let pod = serde_json::from_value(pod.clone()).expect("a pod");
        self.cache.lock().store.apply_pod(&pod).expect("facts");
    }

    /// Records a decision and sends it.
    fn decide(&self, decision: &Decision) {
        self.cache.lock().assumed.note(decision, Timestamp::now());
        let writes = decision_writes(std::slice::from_ref(decision), &self.cache.lock().store);
        writes.into_iter().for_each(|write| self.effects.enqueue_decision(write));
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
            in_flight: state.assumed.get(&pod_ref().uid).is_some(),
            node: facts.and_then(|facts| facts.node.as_ref().map(ToString::to_string)),
            is_known: facts.is_some(),
            n_placed: self.metrics.pods_placed.get(),
        }
    }

    fn n_writes(&self, write: Write, result: &'static str) -> u64 {
        self.metrics.writes.get_or_create(&Written { write, result }).get()
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

#[tokio::test(start_paused = true)]
async fn a_binding_that_is_answered_stays_in_flight_until_the_watch_shows_it() {
    let world = World::new();
    assert_eq!(world.outcome(&bind_to("n")).await, bound(&["POST binding"]));
    let sent = &world.api.sent_to(&Method::POST, "/binding")[0];
    assert_eq!(sent.body["metadata"]["uid"], "u");
    assert_eq!(sent.body["target"]["name"], "n");
    assert_eq!(world.n_writes(Write::Bind, "done"), 1);
    let event = &world.api.sent_to(&Method::POST, "/events")[0];
    assert_eq!(event.body["note"], "Successfully assigned ns/a to n");
    assert_eq!(event.body["regarding"]["uid"], "u");
}

#[tokio::test(start_paused = true)]
async fn a_binding_whose_answer_was_lost_is_found_by_reading_the_pod() {
    let world = World::new();
    world.api.fail(Method::POST, "/binding", [Fault::Lost]);
    let requests = ["POST binding", "POST binding", "GET a"];
    let seen = world.outcome(&bind_to("n")).await;
    assert_eq!(seen, Seen { node: Some("n".to_owned()), ..bound(&requests) });
    assert_eq!(world.n_writes(Write::Bind, "conflict"), 1);
    assert_eq!(
        world.metrics.write_retries.get_or_create(&WriteKind { write: Write::Bind }).get(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_was_done_before_the_server_failed_for_good_is_found() {
    let world = World::new();
    world.api.fail(Method::POST, "/binding", [Fault::Lost]);
    world.api.fail_always(Method::POST, "/binding", Fault::Status(503));
    let seen = world.outcome(&bind_to("n")).await;
    assert_eq!(seen.requests.last().map(String::as_str), Some("GET a"));
    assert_eq!((seen.n_placed, seen.node.as_deref()), (1, Some("n")));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_somebody_else_bound_is_as_the_server_says() {
    let world = World::new();
    world.api.put(POD, pod("u", Some("m")));
    let expected = seen(&["POST binding", "GET a"], &[], Some("m"));
    assert_eq!(world.outcome(&bind_to("n")).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_replaced_is_not_taken_for_the_old_one() {
    // The new pod is on the very node, so only its uid says that the binding was not ours.
    for node in [None, Some("n")] {
        let world = World::new();
        world.api.put(POD, pod("another", node));
        let expected = seen(&["POST binding", "GET a"], &[], node);
        assert_eq!(world.outcome(&bind_to("n")).await, expected);
        let facts = world.cache.lock().store.pods.get(&pod_ref().key).map(Arc::clone);
        assert_eq!(&*facts.expect("the new pod").uid, "another");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_is_forgotten() {
    let world = World::new();
    world.api.remove(POD);
    let expected = Seen { is_known: false, ..seen(&["POST binding", "GET a"], &[], None) };
    assert_eq!(world.outcome(&bind_to("n")).await, expected);
    assert_eq!(world.n_writes(Write::Bind, "gone"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_binding_is_reported_and_waits_before_it_is_decided_again() {
    for code in [400, 403, 410, 422] {
        let world = World::new();
        world.api.fail_always(Method::POST, "/binding", Fault::Status(code));
        for (back_off, n_sent) in [(1, 1), (2, 2), (4, 3)] {
            let outcome = world.outcome(&bind_to("n")).await;
            assert!(outcome.in_flight, "{code}: it is not decided again at once");
            assert_eq!(outcome.requests, vec!["POST binding"; n_sent], "{code}");
            assert_eq!(outcome.events, vec!["FailedScheduling"; n_sent], "{code}");
            let version = world.cache.lock().version;
            tokio::time::sleep(Duration::from_millis(back_off * 1000 - 10)).await;
            assert!(world.seen().in_flight, "{code}: {back_off} s are not over");
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(!world.seen().in_flight, "{code}: {back_off} s are over");
            assert!(world.cache.lock().version > version, "a cycle is woken");
        }
        let event = &world.api.sent_to(&Method::POST, "/events")[0].body["note"];
        assert_eq!(*event, "cannot bind to n: injected");
        assert_eq!(world.n_writes(Write::Bind, "refused"), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_resets_the_back_off() {
    let world = World::new();
    let rejected = || world.api.fail(Method::POST, "/binding", [Fault::Status(403)]);
    for _ in 0..2 {
        rejected();
        world.outcome(&bind_to("n")).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    world.outcome(&bind_to("n")).await;
    world.stores(POD, &pod("u", None));
    rejected();
    world.outcome(&bind_to("n")).await;
    tokio::time::sleep(Duration::from_millis(1010)).await;
    assert!(!world.seen().in_flight, "it is the first one again: 1 s");
}

#[tokio::test(start_paused = true)]
async fn the_back_off_has_an_upper_bound() {
    let world = World::new();
    world.api.fail_always(Method::POST, "/binding", Fault::Status(403));
    for _ in 0..20 {
        world.outcome(&bind_to("n")).await;
        tokio::time::sleep(Duration::from_millis(60_010)).await;
        assert!(!world.seen().in_flight);
    }
}

#[tokio::test(start_paused = true)]
async fn the_back_off_of_a_pod_that_is_gone_is_forgotten() {
    let world = World::new();
    world.api.fail(Method::POST, "/binding", [Fault::Status(403)]);
    world.outcome(&bind_to("n")).await;
    world.cache.lock().store.pods.delete(&pod_ref().key);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(world.effects.back_off.lock().expect("no panic").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_server_asks_for_is_kept() {
    let world = World::new();
    world.api.fail(Method::POST, "/binding", [Fault::RetryAfter(429, 7)]);
    let started = Instant::now();
    assert_eq!(world.outcome(&bind_to("n")).await, bound(&["POST binding", "POST binding"]));
    let took = started.elapsed().as_secs_f64();
    assert!((7.0..7.5).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn a_binding_is_retried_through_an_outage() {
    let faults = [Fault::Status(500), Fault::Hang, Fault::Status(503), Fault::Status(429)];
    let world = World::new();
    world.api.fail(Method::POST, "/binding", faults);
    assert_eq!(world.outcome(&bind_to("n")).await, bound(&["POST binding"; 5]));
}

#[tokio::test(start_paused = true)]
async fn a_binding_without_answer_is_dropped_when_the_pod_still_waits() {
    for fault in [Fault::Hang, Fault::Status(500)] {
        let world = World::new();
        world.api.fail_always(Method::POST, "/binding", fault.clone());
        let started = Instant::now();
        let seen = world.outcome(&bind_to("n")).await;
        assert_eq!(seen.requests.last().map(String::as_str), Some("GET a"), "{fault:?}");
        assert!(!seen.in_flight && seen.n_placed == 0, "{fault:?}: it is decided again");
        assert!(started.elapsed() < Duration::from_secs(26), "{fault:?}");
        assert_eq!(world.n_writes(Write::Bind, "failed"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_is_dropped_when_the_pod_cannot_be_read_either() {
    let world = World::new();
    world.api.fail_always(Method::POST, "/binding", Fault::Status(409));
    world.api.fail_always(Method::GET, POD, Fault::Hang);
    let expected = seen(&["POST binding", "GET a"], &[], None);
    assert_eq!(world.outcome(&bind_to("n")).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_victim_is_marked_and_then_deleted() {
    let world = World::with_running_pod();
    let seen = world.outcome(&evict()).await;
    assert_eq!(seen.requests, ["PATCH status", "DELETE a"]);
    assert!(seen.in_flight, "until the watch shows it");
    let sent = world.api.sent();
    let condition = &sent[0].body["status"]["conditions"][0];
    assert_eq!(condition["type"], "DisruptionTarget");
    assert_eq!(sent[0].body["metadata"]["uid"], "u");
    assert_eq!(sent[1].body["preconditions"]["uid"], "u");
    assert_eq!(world.n_writes(Write::Evict, "done"), 2);
    assert_eq!(world.api.object(POD), None);
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_is_gone_is_forgotten() {
    let world = World::with_running_pod();
    world.api.remove(POD);
    let expected = Seen { is_known: false, ..seen(&["PATCH status", "GET a"], &[], None) };
    assert_eq!(world.outcome(&evict()).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_was_replaced_is_not_deleted() {
    let world = World::with_running_pod();
    world.api.put(POD, pod("another", Some("m")));
    let expected = seen(&["PATCH status", "GET a"], &[], Some("m"));
    assert_eq!(world.outcome(&evict()).await, expected);
    assert!(world.api.object(POD).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_victim_replaced_between_mark_and_deletion_is_not_deleted() {
    let world = World::with_running_pod();
    world.api.fail(Method::DELETE, POD, [Fault::Status(409)]);
    let seen = world.outcome(&evict()).await;
    assert_eq!(seen.requests, ["PATCH status", "DELETE a", "GET a"]);
    assert!(!seen.in_flight);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_eviction_is_reported_and_waits() {
    for (method, requests) in
        [(Method::PATCH, &["PATCH status"][..]), (Method::DELETE, &["PATCH status", "DELETE a"])]
    {
        for code in [403, 410, 422] {
            let world = World::with_running_pod();
            world.api.fail_always(method.clone(), POD, Fault::Status(code));
            let outcome = world.outcome(&evict()).await;
            let expected = seen(requests, &["FailedScheduling"], Some("n"));
            assert_eq!(outcome, Seen { in_flight: true, ..expected }, "{method} {code}");
            let event = &world.api.sent_to(&Method::POST, "/events")[0].body["note"];
            assert_eq!(*event, "cannot evict: injected");
            tokio::time::sleep(Duration::from_millis(1010)).await;
            assert!(!world.seen().in_flight);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_is_retried_through_an_outage() {
    let world = World::with_running_pod();
    world.api.fail(Method::PATCH, POD, [Fault::Status(503), Fault::Hang]);
    world.api.fail(Method::DELETE, POD, [Fault::RetryAfter(429, 3)]);
    let seen = world.outcome(&evict()).await;
    let (mark, delete) = ("PATCH status", "DELETE a");
    assert_eq!(seen.requests, [mark, mark, mark, delete, delete]);
    assert!(seen.in_flight);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_whose_answer_was_lost_is_found_by_reading_the_pod() {
    let world = World::with_running_pod();
    world.api.fail(Method::DELETE, POD, [Fault::Lost]);
    let requests = ["PATCH status", "DELETE a", "DELETE a", "GET a"];
    let expected = Seen { is_known: false, ..seen(&requests, &[], None) };
    assert_eq!(world.outcome(&evict()).await, expected);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_without_answer_is_dropped() {
    let world = World::with_running_pod();
    world.api.fail_always(Method::DELETE, POD, Fault::Status(500));
    let seen = world.outcome(&evict()).await;
    assert_eq!(seen.requests.last().map(String::as_str), Some("GET a"));
    assert_eq!((seen.in_flight, seen.node.as_deref()), (false, Some("n")));
}

/// A PodGroup, as server and cache know it, and its status target.
fn with_group(world: &World) -> Target {
    let group = json!({
        "apiVersion": "scheduling.sigs.dev/v1alpha2", "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "ns", "uid": "g"},
        "spec": {"minMember": 1}, "status": {},
    });
    world.api.put(GROUP, group);
    Target::Group(kube_batch_api::crd::ApiVersion::V1Alpha2, ObjectKey::new("ns", "g"))
}

fn event() -> Event {
    Event {
        regarding: Regarding::Pod(pod_ref()),
        type_: EventType::Warning,
        reason: "Unschedulable",
        action: "Scheduling",
        message: "why".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_written_is_in_the_cache_and_its_event_is_sent() {
    let world = World::new();
    let target = with_group(&world);
    let patch = json!({"status": {"phase": "Running"}});
    world.effects.enqueue_status(target, patch.clone(), Some(event()));
    world.settle().await;
    let seen = world.seen();
    assert_eq!(seen.requests, ["PATCH status"]);
    assert_eq!(seen.events, ["Unschedulable"]);
    assert_eq!(world.api.sent_to(&Method::PATCH, "/status")[0].body, patch);
    let state = world.cache.lock();
    let group = state.store.group(&ObjectKey::new("ns", "g")).expect("the group");
    assert_eq!(group.status.phase, "Running");
    drop(state);
    assert_eq!(world.n_writes(Write::GroupStatus, "done"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_not_written_has_no_event() {
    let expected = [
        (Fault::Status(404), "gone", 1),
        (Fault::Status(403), "refused", 1),
        (Fault::Status(409), "conflict", 1),
        (Fault::Status(410), "refused", 1),
        (Fault::Status(422), "refused", 1),
        (Fault::Hang, "failed", 4),
    ];
    for (fault, result, n_sent) in expected {
        let world = World::new();
        let target = with_group(&world);
        world.api.fail_always(Method::PATCH, GROUP, fault.clone());
        world.effects.enqueue_status(target.clone(), json!({"status": {}}), Some(event()));
        world.settle().await;
        let seen = world.seen();
        assert_eq!(seen.requests, vec!["PATCH status"; n_sent], "{fault:?}");
        assert!(seen.events.is_empty(), "{fault:?}");
        assert_eq!(world.n_writes(Write::GroupStatus, result), 1, "{fault:?}");
        assert!(!world.effects.defer_if_writing(&target), "{fault:?}: the next one may be written");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_is_retried_through_an_outage() {
    let world = World::new();
    let target = with_group(&world);
    let faults = [Fault::Status(500), Fault::RetryAfter(429, 2), Fault::Lost];
    world.api.fail(Method::PATCH, GROUP, faults);
    world.effects.enqueue_status(target, json!({"status": {"phase": "Running"}}), Some(event()));
    world.settle().await;
    let seen = world.seen();
    assert_eq!(seen.requests, ["PATCH status"; 4]);
    assert_eq!(seen.events, ["Unschedulable"]);
}

#[tokio::test(start_paused = true)]
async fn a_cycle_that_wanted_to_write_meanwhile_is_woken() {
    let world = World::new();
    let target = with_group(&world);
    world.api.fail(Method::PATCH, GROUP, [Fault::Hang]);
    world.effects.enqueue_status(target.clone(), json!({"status": {}}), None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = world.cache.lock().version;
    assert!(world.effects.defer_if_writing(&target));
    world.settle().await;
    assert!(world.cache.lock().version > before);
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_pod_that_no_longer_waits_is_not_written() {
    let patch = json!({"metadata": {"uid": "u"}, "status": {"nominatedNodeName": "n"}});
    let target = Target::Pod(pod_ref());
    let world = World::new();
    world.effects.enqueue_status(target.clone(), patch.clone(), None);
    world.settle().await;
    assert_eq!(world.seen().requests, ["PATCH status"]);
    let facts = world.cache.lock().store.pods.get(&pod_ref().key).map(Arc::clone);
    assert_eq!(facts.expect("the pod").nominated_node.as_deref(), Some("n"));

    world.cache.lock().assumed.note(&bind_to("n"), Timestamp::now());
    world.effects.enqueue_status(target.clone(), patch.clone(), Some(event()));
    world.settle().await;
    let world = World::with_running_pod();
    world.effects.enqueue_status(target, patch, Some(event()));
    world.settle().await;
    assert_eq!((world.seen().requests, world.seen().events), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_event_is_sent_once_unless_the_server_is_not_well() {
    for (faults, result, n_sent) in [
        (vec![], "done", 1),
        (vec![Fault::Status(404)], "gone", 1),
        (vec![Fault::Status(409)], "conflict", 1),
        (vec![Fault::Status(403)], "refused", 1),
        (vec![Fault::Status(422)], "refused", 1),
        (vec![Fault::Status(500), Fault::RetryAfter(429, 1), Fault::Hang], "done", 4),
    ] {
        let world = World::new();
        world.api.fail(Method::POST, "/events", faults.clone());
        world.effects.enqueue_event(event());
        world.settle().await;
        assert_eq!(world.api.sent().len(), n_sent, "{faults:?}");
        assert_eq!(world.n_writes(Write::Event, result), 1, "{faults:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_sent_is_forgotten_with_the_lease() {
    let world = World::new();
    world.stop.cancel();
    tokio::task::yield_now().await;
    world.decide(&bind_to("n"));
    world.effects.enqueue_event(event());
    assert!(world.effects.has_pending_decisions());
    assert!(!world.effects.drain(Duration::from_secs(1)).await);
    world.effects.clear();
    assert!(!world.effects.has_pending_decisions());
    assert!(world.effects.drain(Duration::ZERO).await);
    assert!(world.api.sent().is_empty());
    assert_eq!(world.metrics.effects_queued.get(), 0);
}

const VOLUME: &str = "/api/v1/persistentvolumes/v";
const CLAIM: &str = "/api/v1/namespaces/ns/persistentvolumeclaims/c";

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
    let claims = vec![ClaimChoice { claim, volume: volume.map(Name::from) }];
    Decision::Bind { pod: pod_ref(), node: "n".into(), claims }
}

impl World {
    /// A world with a claim that waits, and a volume with this claim reference.
    fn with_claim(claim_ref: &Value) -> Self {
        let world = Self::new();
        world.api.put(VOLUME, volume(claim_ref));
        world.api.put(CLAIM, claim(false));
        world.cache_claim(false);
        world
    }

    /// The watch shows the claim.
    fn cache_claim(&self, is_bound: bool) {
        let claim = serde_json::from_value(claim(is_bound)).expect("a claim");
        self.cache.lock().store.apply_claim(&claim).expect("facts");
    }
}

#[tokio::test(start_paused = true)]
async fn draining_waits_for_a_binding_that_waits_for_its_volumes() {
    let world = World::with_claim(&json!(null));
    world.decide(&bind_with(None));
    assert!(!world.effects.drain(Duration::from_secs(20)).await, "the pod is not bound yet");
    world.cache_claim(true);
    assert!(world.effects.drain(Duration::from_secs(20)).await);
    let expected = bound(&["PATCH c", "POST binding"]);
    assert_eq!(world.seen(), expected);
    assert_eq!(world.metrics.effects_in_flight.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn draining_does_not_wait_for_a_back_off() {
    let world = World::new();
    world.api.fail(Method::POST, "/binding", [Fault::Status(403)]);
    world.decide(&bind_to("n"));
    let started = Instant::now();
    world.settle().await;
    assert!(started.elapsed() < Duration::from_millis(100));
    assert!(world.seen().in_flight);
}

#[tokio::test(start_paused = true)]
async fn a_provisioner_is_told_the_node_before_the_pod_is_bound() {
    let world = World::with_claim(&json!(null));
    world.decide(&bind_with(None));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.seen().requests, ["PATCH c"]);
    let sent = &world.api.sent_to(&Method::PATCH, CLAIM)[0];
    assert_eq!(sent.body["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], "n");
    world.cache_claim(true);
    world.settle().await;
    assert_eq!(world.seen(), bound(&["PATCH c", "POST binding"]));
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_reserved_for_its_claim() {
    let ours = json!({"namespace": "ns", "name": "c", "uid": "c-uid"});
    let by_name = json!({"namespace": "ns", "name": "c"});
    for (claim_ref, requests, is_by_controller) in [
        (json!(null), &["GET v", "PUT v", "POST binding"][..], true),
        (by_name, &["GET v", "PUT v", "POST binding"], false),
        (ours, &["GET v", "POST binding"], false),
    ] {
        let world = World::with_claim(&claim_ref);
        world.decide(&bind_with(Some("v")));
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.cache_claim(true);
        world.settle().await;
        assert_eq!(world.seen(), bound(requests), "{claim_ref}");
        let volume = world.api.object(VOLUME).expect("the volume");
        assert_eq!(volume["spec"]["claimRef"]["uid"], "c-uid", "{claim_ref}");
        let annotation = &volume["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"];
        assert_eq!(annotation.is_string(), is_by_controller, "{claim_ref}");
    }
}

#[tokio::test(start_paused = true)]
async fn volumes_that_are_not_available_are_reported_and_the_decision_waits() {
    let other = json!({"namespace": "ns", "name": "d", "uid": "other"});
    let (put, get) =
        (Some((Method::PUT, Fault::Status(409))), Some((Method::GET, Fault::Status(404))));
    for (claim_ref, fault, requests, event) in [
        (other, None, &["GET v"][..], "claim ns/c: volume v belongs to another claim"),
        (json!(null), put, &["GET v", "PUT v"], "claim ns/c: volume v: injected"),
        (json!(null), get, &["GET v"], "claim ns/c: volume v: it does not exist any more"),
    ] {
        let world = World::with_claim(&claim_ref);
        if let Some((method, fault)) = fault {
            world.api.fail(method, VOLUME, [fault]);
        }
        let outcome = world.outcome(&bind_with(Some("v"))).await;
        let expected = seen(requests, &["FailedScheduling"], None);
        assert_eq!(outcome, Seen { in_flight: true, ..expected });
        assert_eq!(world.api.sent_to(&Method::POST, "/events")[0].body["note"], event);
        tokio::time::sleep(Duration::from_millis(1010)).await;
        assert!(!world.seen().in_flight);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_rejects_the_node_or_is_unknown_is_reported() {
    let world = World::with_claim(&json!(null));
    world.api.fail(Method::PATCH, CLAIM, [Fault::Status(403)]);
    world.outcome(&bind_with(None)).await;
    world.cache.lock().store.claims.delete(&ObjectKey::new("ns", "c"));
    world.outcome(&bind_with(Some("v"))).await;
    let events = world.api.sent_to(&Method::POST, "/events");
    let events: Vec<&Value> = events.iter().map(|sent| &sent.body["note"]).collect();
    assert_eq!(events, ["claim ns/c: injected", "claim ns/c: it does not exist"]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_not_bound_in_time_is_reported() {
    let world = World::with_claim(&json!(null));
    world.decide(&bind_with(None));
    tokio::time::sleep(Duration::from_secs(99)).await;
    assert!(world.seen().events.is_empty());
    world.settle().await;
    let expected = seen(&["PATCH c"], &["FailedScheduling"], None);
    assert_eq!(world.seen(), Seen { in_flight: true, ..expected });
    let event = &world.api.sent_to(&Method::POST, "/events")[0].body["note"];
    assert_eq!(*event, "its claims were not bound within 100 s");
}

#[tokio::test(start_paused = true)]
async fn volumes_are_not_waited_for_when_the_lease_is_lost() {
    let world = World::with_claim(&json!(null));
    world.decide(&bind_with(None));
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.stop.cancel();
    world.settle().await;
    world.cache_claim(true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.seen().requests, ["PATCH c"], "somebody else decides now");
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_write_and_its_decision_waits() {
    let (plain, with_claim) = (bind_to("n"), bind_with(Some("v")));
    for (decision, fails_at, task) in
        [(plain, "/binding", "write"), (with_claim, VOLUME, "volumes")]
    {
        let world = World::with_claim(&json!(null));
        let method = if task == "write" { Method::POST } else { Method::GET };
        world.api.fail(method, fails_at, [Fault::Panic]);
        let outcome = world.outcome(&decision).await;
        assert_eq!(
            (outcome.in_flight, &*outcome.events),
            (true, &["FailedScheduling".to_owned()][..])
        );
        assert_eq!(world.metrics.task_failures.get_or_create(&Task { task }).get(), 1);
        tokio::time::sleep(Duration::from_millis(1010)).await;
        assert!(!world.seen().in_flight, "it may be decided again");
        let n_before = world.seen().n_placed;
        world.outcome(&bind_to("n")).await;
        assert_eq!(world.seen().n_placed, n_before + 1, "the workers go on");
    }
}
