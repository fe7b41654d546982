//! A watch against a server that lists, streams, refuses and forgets.

mod every_field;
mod filler;

use std::{sync::Arc, time::Duration};

use http::Method;
use k8s_openapi::api::{core::v1::Node, resource::v1::ResourceClaim};
use kube_batch_api::{
    dialect::{GroupOf, QueueOf},
    kind::WatchedKind as _,
};
use kube_batch_cache::store::Store;
use kube_batch_model::group_version::GroupVersion;
use prometheus_client::metrics::{counter::Counter, family::Family};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::run::{
    clock::Clock,
    fake_api::{FakeApi, Fault, Sent},
    metrics::{Kind, Metrics, Task},
    scheduler_cache::SchedulerCache,
    term::{Term, Terms},
};

const NODES: &str = "/api/v1/nodes";
const QUEUES: &str = "/apis/scheduling.sigs.dev/v1alpha2/queues";

/// A watch of nodes that runs.
struct World {
    api: FakeApi,
    cache: Arc<SchedulerCache>,
    metrics: Arc<Metrics>,
    tasks: Supervisor,
    terms: Terms,
    started: Instant,
}

fn node(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
        "status": {"allocatable": {"cpu": cpu}},
    })
}

impl World {
    /// A server with nodes `a` and `b`, and a watch that has not begun.
    fn new() -> Self {
        let (api, metrics) = (FakeApi::default(), Arc::new(Metrics::new()));
        let cache = Arc::new(SchedulerCache::new(
            Store::default(),
            &[Node::RESOURCE],
            Arc::clone(&metrics),
        ));
        let tasks = Supervisor::new(Arc::clone(&metrics));
        for name in ["a", "b"] {
            api.put(&format!("{NODES}/{name}"), node(name, "4"));
        }
        Self { api, cache, metrics, tasks, terms: Terms::default(), started: Instant::now() }
    }

    fn handler(&self) -> Handler {
        let (cache, metrics) = (Arc::clone(&self.cache), Arc::clone(&self.metrics));
        Handler { cache, metrics, clock: Clock::system() }
    }

    fn source(&self) -> WatchSource {
        WatchSource { client: self.api.client(), terms: self.terms.clone(), seed: 0 }
    }

    /// This replica leads, in its first term or in a later one.
    fn lead(&self, number: u64) {
        self.cache.begin_term(number);
        self.terms.set(Some(Term { number, ..Term::FOREVER }));
    }

    /// A world with a server that serves nodes, and a watch that has begun.
    async fn watching() -> Self {
        let mut world = Self::new();
        world.api.serve(NODES);
        world.start();
        world.wait(0).await;
        assert_eq!(world.nodes(), ["a", "b"]);
        world
    }

    fn start(&mut self) {
        let (source, handler) = (self.source(), self.handler());
        follow::spawn::<Node>(&source, &handler, &mut self.tasks);
    }

    async fn wait(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds) + Duration::from_millis(50)).await;
    }

    /// Waits until this many seconds after the beginning of the test.
    async fn wait_until(&self, seconds: u64) {
        tokio::time::sleep_until(self.started + Duration::from_secs(seconds)).await;
    }

    fn nodes(&self) -> Vec<String> {
        let state = self.cache.lock();
        state.store.nodes.iter().map(|(name, _)| name.to_string()).collect()
    }

    fn list_error(&self) -> Option<String> {
        self.cache.unsynced().remove(Node::RESOURCE).flatten()
    }

    fn count(&self, family: &Family<Kind, Counter>) -> u64 {
        family.get_or_create(&Kind { kind: Node::RESOURCE }).get()
    }

    /// How each request asked: `stream` its list, `page` through it, or `resume` a watch.
    fn requests(&self) -> Vec<&'static str> {
        let how = |sent: &Sent| match &*sent.query {
            query if query.contains("sendInitialEvents=true") => "stream",
            query if query.contains("watch=true") => "resume",
            _ => "page",
        };
        self.api.sent().iter().map(how).collect()
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn objects_that_change_change_the_cache() {
    let world = World::watching().await;
    assert!(world.cache.is_synced());
    assert_eq!(world.requests(), ["stream", "resume"]);
    let version = || world.cache.lock().version;
    let before = version();
    world.api.put(&format!("{NODES}/c"), node("c", "4"));
    world.api.remove(&format!("{NODES}/a"));
    world.wait(0).await;
    assert_eq!(world.nodes(), ["b", "c"]);
    assert_eq!(version(), before + 2);
    world.api.put(&format!("{NODES}/c"), node("c", "4"));
    world.wait(0).await;
    assert_eq!(version(), before + 2, "nothing has changed but its version");
    assert_eq!(world.count(&world.metrics.watch_events), 5);
    assert_eq!(world.count(&world.metrics.watch_failures), 0);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_server_that_does_not_stream_lists_is_paged_through() {
    for code in [400, 422] {
        let mut world = World::new();
        world.api.serve(NODES);
        world.api.fail_always(Method::GET, "sendInitialEvents", Fault::Status(code));
        world.start();
        world.wait(0).await;
        assert!(world.cache.is_synced());
        assert_eq!(world.nodes(), ["a", "b"]);
        assert_eq!(world.requests(), ["stream", "page", "resume"]);
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_kind_that_is_not_served_is_an_empty_list_until_it_is() {
    let mut world = World::new();
    let queue = json!({"metadata": {"name": "q", "uid": "q"}, "spec": {}});
    world.api.put(&format!("{QUEUES}/q"), queue);
    let (source, handler) = (world.source(), world.handler());
    world.lead(1);
    world.cache.set_synced(Node::RESOURCE, Some(1));
    follow::spawn::<QueueOf<{ GroupVersion::V1Alpha2 as u8 }>>(&source, &handler, &mut world.tasks);
    let n_queues = || world.cache.lock().store.queues.len();
    world.wait(0).await;
    assert!(world.cache.is_synced(), "there is nothing to wait for");
    assert_eq!(n_queues(), 0);
    let version = world.cache.lock().version;
    world.wait(20).await;
    assert_eq!(world.cache.lock().version, version, "no reason for a cycle");
    world.api.serve(QUEUES);
    world.wait(5).await;
    assert_eq!(n_queues(), 1);
    assert!(world.cache.is_synced());
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_core_kind_that_is_not_served_is_an_error() {
    let world = World::watching().await;
    world.api.fail(Method::GET, NODES, [Fault::Status(410)]);
    world.api.fail_always(Method::GET, NODES, Fault::Status(404));
    world.api.end_watches(NODES);
    world.wait(60).await;
    assert_eq!(world.nodes(), ["a", "b"], "nodes do not disappear because of a wrong answer");
    assert!(!world.cache.is_synced());
    assert!(world.list_error().expect("an error").contains("does not serve"));
    world.api.recover();
    world.wait(20).await;
    assert!(world.cache.is_synced());
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_watch_that_is_silent_is_given_up_after_half_a_minute() {
    let world = World::watching().await;
    world.wait(5).await;
    world.api.fail_always(Method::GET, NODES, Fault::Hang);
    // The server ends the watch that is open; the next one hangs.
    world.wait(25).await;
    world.api.recover();
    world.api.put(&format!("{NODES}/c"), node("c", "4"));
    world.wait(35).await;
    assert_eq!(world.nodes(), ["a", "b", "c"]);
    assert!(world.cache.is_synced());
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_list_without_an_answer_is_asked_for_again_soon_and_then_with_more_patience() {
    let mut world = World::new();
    world.api.serve(NODES);
    world.api.fail_always(Method::GET, NODES, Fault::Hang);
    world.lead(1);
    world.start();
    // 5, 10, 20 and 30 s of patience, and pauses of 0.5 to 10 s.
    for (at, n_requests) in [(4, 1), (6, 2), (15, 2), (18, 3), (35, 3), (42, 4), (65, 4), (82, 5)] {
        world.wait_until(at).await;
        assert_eq!(world.requests().len(), n_requests, "after {at} s");
    }
    world.api.recover();
    world.wait_until(150).await;
    assert!(world.cache.is_synced());
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_list_that_is_older_than_what_was_shown_is_not_believed() {
    let world = World::watching().await;
    world.api.put(&format!("{NODES}/c"), node("c", "4"));
    world.wait(0).await;
    let seen = world.cache.lock().history(Node::RESOURCE).seen();
    world.api.go_back_to(1);
    world.api.fail(Method::GET, NODES, [Fault::Status(410)]);
    world.api.end_watches(NODES);
    world.wait(60).await;
    assert!(!world.cache.is_synced());
    assert!(world.list_error().expect("an error").contains("an old state"));
    world.wait(120).await;
    assert!(world.cache.is_synced(), "a restore from a backup, if it lasts");
    assert!(world.cache.lock().history(Node::RESOURCE).seen() < seen);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn an_event_of_an_older_version_than_was_seen_leads_to_a_new_list() {
    let world = World::watching().await;
    world.api.put(&format!("{NODES}/c"), node("c", "4"));
    world.wait(0).await;
    // Restored from a backup: the connection stays, and the next version is one that was seen before.
    world.api.go_back_to(1);
    world.api.put(&format!("{NODES}/d"), node("d", "4"));
    world.wait(0).await;
    assert!(!world.cache.is_synced(), "what is known may be gone");
    world.wait(120).await;
    assert!(world.cache.is_synced());
    assert!(world.nodes().contains(&"d".to_owned()));
    world.api.put(&format!("{NODES}/e"), node("e", "4"));
    world.wait(0).await;
    assert!(world.nodes().contains(&"e".to_owned()), "what is new after that is seen");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_watch_that_waits_for_a_lost_version_is_noticed() {
    let world = World::watching().await;
    world.api.put(&format!("{NODES}/c"), node("c", "4"));
    world.wait(0).await;
    world.api.go_back_to(1);
    // Such an API server sends nothing until it has reached that version again, not even a bookmark.
    world.api.end_watches(NODES);
    world.wait(30).await;
    assert!(!world.cache.is_synced());
    world.wait(120).await;
    assert!(world.cache.is_synced());
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_new_leader_waits_until_it_knows_what_the_one_before_has_done() {
    let world = World::watching().await;
    world.wait(1).await;
    // Nothing tells the watch of the change.
    world.api.put_silently(&format!("{NODES}/c"), node("c", "4"));
    world.lead(1);
    assert!(!world.cache.is_synced());
    world.wait(0).await;
    assert!(world.cache.is_synced());
    assert_eq!(world.nodes(), ["a", "b", "c"]);
    assert_eq!(world.requests(), ["stream", "resume", "page", "resume", "resume"]);
    world.lead(2);
    assert!(!world.cache.is_synced(), "in every term");
    world.wait(0).await;
    assert!(world.cache.is_synced());
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_list_that_begins_in_a_term_is_enough_for_it() {
    let mut world = World::new();
    world.api.serve(NODES);
    world.lead(1);
    world.start();
    world.wait(0).await;
    assert!(world.cache.is_synced());
    assert_eq!(world.requests(), ["stream", "resume"]);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_list_removes_what_is_gone() {
    let world = World::watching().await;
    world.api.end_watches(NODES);
    world.api.fail_always(Method::GET, NODES, Fault::Status(500));
    world.wait(5).await;
    assert_eq!(world.nodes(), ["a", "b"], "an outage removes nothing");
    world.api.remove(&format!("{NODES}/a"));
    world.api.recover();
    world.api.fail(Method::GET, NODES, [Fault::Status(410)]);
    world.wait(30).await;
    assert_eq!(world.nodes(), ["b"]);
    assert!(world.cache.is_synced());
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn an_expired_watch_lists_again_and_nothing_is_decided_meanwhile() {
    let world = World::watching().await;
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410});
    world.api.fail(Method::GET, NODES, [Fault::Status(500)]);
    world.api.send_event(NODES, &json!({"type": "ERROR", "object": status}));
    world.wait(0).await;
    assert!(!world.cache.is_synced(), "other kinds may know more than this one");
    world.wait(5).await;
    assert!(world.cache.is_synced());
    assert_eq!(world.requests(), ["stream", "resume", "stream", "stream", "resume"]);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_watch_that_cannot_be_resumed_lists_again() {
    let world = World::watching().await;
    world.api.fail(Method::GET, NODES, [Fault::Status(410)]);
    world.api.end_watches(NODES);
    world.wait(1).await;
    assert!(!world.cache.is_synced());
    world.wait(2).await;
    assert!(world.cache.is_synced());
    assert_eq!(world.requests(), ["stream", "resume", "resume", "stream", "resume"]);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_watch_that_ends_is_resumed_and_stays_synced() {
    let world = World::watching().await;
    world.api.end_watches(NODES);
    world.wait(1).await;
    assert_eq!(world.requests(), ["stream", "resume", "resume"]);
    assert!(world.cache.is_synced());
    world.api.put(&format!("{NODES}/c"), node("c", "4"));
    world.wait(0).await;
    assert_eq!(world.nodes(), ["a", "b", "c"]);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn the_reason_why_a_kind_is_not_listed_is_kept() {
    for code in [403, 500] {
        let mut world = World::new();
        world.api.serve(NODES);
        world.api.fail_always(Method::GET, NODES, Fault::Status(code));
        world.start();
        world.wait(0).await;
        assert!(!world.cache.is_synced());
        assert_eq!(world.list_error().as_deref(), Some("injected"), "{code}");
        assert!(world.count(&world.metrics.watch_failures) >= 1);
        world.api.recover();
        world.wait(15).await;
        assert!(world.cache.is_synced(), "{code}");
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_busy_server_is_not_reported_as_an_error() {
    let mut world = World::new();
    world.api.serve(NODES);
    world.api.fail(Method::GET, NODES, [Fault::Status(429)]);
    world.start();
    world.wait(0).await;
    assert_eq!((world.cache.is_synced(), world.list_error()), (false, None));
    world.wait(15).await;
    assert!(world.cache.is_synced());
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn an_object_that_cannot_be_read_is_skipped_and_counted() {
    let mut world = World::new();
    world.api.serve(NODES);
    world.api.put(&format!("{NODES}/broken"), node("broken", "1x"));
    let mut untyped = node("untyped", "4");
    untyped["status"] = json!(7);
    world.api.put(&format!("{NODES}/untyped"), untyped);
    world.start();
    world.wait(0).await;
    assert!(world.cache.is_synced());
    assert_eq!(world.nodes(), ["a", "b"]);
    assert_eq!(world.count(&world.metrics.malformed_objects), 2);
    world.api.put(&format!("{NODES}/a"), node("a", "much"));
    world.wait(0).await;
    assert_eq!(world.nodes(), ["a", "b"], "what was known of it stays");
    assert_eq!(world.count(&world.metrics.malformed_objects), 3);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_watch_that_panics_lists_again_and_nothing_is_decided_meanwhile() {
    let world = World::watching().await;
    world.api.fail(Method::GET, NODES, [Fault::Panic]);
    world.api.end_watches(NODES);
    world.wait(1).await;
    assert!(!world.cache.is_synced());
    world.api.remove(&format!("{NODES}/a"));
    world.wait(1).await;
    assert!(world.cache.is_synced());
    assert_eq!(world.nodes(), ["b"]);
    assert_eq!(world.requests(), ["stream", "resume", "resume", "stream", "resume"]);
    let failures = world.metrics.task_failures.get_or_create(&Task { task: "watch" }).get();
    assert_eq!(failures, 1);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn an_optional_kind_without_permission_stops_no_cycle() {
    const CLAIMS: &str = "/apis/resource.k8s.io/v1/resourceclaims";
    let world = World::new();
    let metrics = Arc::clone(&world.metrics);
    let cache = Arc::new(SchedulerCache::new(
        Store::default(),
        &[ResourceClaim::RESOURCE],
        Arc::clone(&metrics),
    ));
    world.api.serve(CLAIMS);
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns", "uid": "c"}, "spec": {},
    });
    world.api.put(&format!("{CLAIMS}/c"), claim);
    world.api.fail_always(Method::GET, CLAIMS, Fault::Status(403));
    let mut tasks = Supervisor::new(Arc::clone(&metrics));
    let handler = Handler { cache: Arc::clone(&cache), metrics, clock: Clock::system() };
    follow::spawn::<ResourceClaim>(&world.source(), &handler, &mut tasks);
    world.wait(1).await;
    assert!(cache.is_synced(), "it counts as not served");
    assert_eq!(cache.lock().store.resource_claims.iter().count(), 0);
    world.api.recover();
    world.wait(10).await;
    assert_eq!(cache.lock().store.resource_claims.iter().count(), 1, "once it is permitted");
}

/// A watch of the PodGroups of scheduler-plugins, and what the store knows of that API.
struct OtherApi {
    world: World,
    cache: Arc<SchedulerCache>,
}

const OTHERS: &str = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups";

impl OtherApi {
    /// The watch begins while requests for it fail in this way.
    async fn begun(fault: Option<Fault>, is_served: bool) -> Self {
        const VERSION: u8 = GroupVersion::Coscheduling as u8;
        type Group = GroupOf<VERSION>;
        let world = World::new();
        let metrics = Arc::clone(&world.metrics);
        let kinds = [Group::RESOURCE];
        let cache = Arc::new(SchedulerCache::new(Store::default(), &kinds, Arc::clone(&metrics)));
        if is_served {
            world.api.serve(OTHERS);
            let group = json!({
                "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
                "metadata": {"name": "g", "namespace": "ns", "uid": "g"}, "spec": {"minMember": 2},
            });
            world.api.put(&format!("{OTHERS}/g"), group);
        }
        if let Some(fault) = fault {
            world.api.fail_always(Method::GET, OTHERS, fault);
        }
        let mut tasks = Supervisor::new(Arc::clone(&metrics));
        let handler = Handler { cache: Arc::clone(&cache), metrics, clock: Clock::system() };
        follow::spawn::<Group>(&world.source(), &handler, &mut tasks);
        let world = World { tasks, ..world };
        world.wait(0).await;
        Self { world, cache }
    }

    /// Whether cycles may run, the API is served, it can be read, and its PodGroup is known.
    fn state(&self) -> [bool; 4] {
        let state = self.cache.lock();
        let (served, unreadable) = (state.store.served(), state.store.unreadable());
        let n_groups = state.store.groups.iter().count();
        let version = GroupVersion::Coscheduling;
        [state.is_synced(), served.has(version), !unreadable.has(version), n_groups == 1]
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn an_api_that_is_not_served_stops_nothing() {
    let other = OtherApi::begun(None, false).await;
    assert_eq!(other.state(), [true, false, true, false]);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn an_api_that_a_new_leader_may_not_read_is_served_and_unreadable() {
    for (fault, seconds) in [(403, 0), (429, 15), (500, 15), (503, 15)] {
        let other = OtherApi::begun(Some(Fault::Status(fault)), true).await;
        other.world.wait(seconds).await;
        assert_eq!(other.state(), [true, true, false, false], "{fault}");
        other.world.api.recover();
        other.world.wait(15).await;
        assert_eq!(other.state(), [true, true, true, true], "{fault}");
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn an_api_that_can_no_longer_be_read_is_still_served() {
    for (fault, seconds, is_kept) in
        [(403, 1, true), (404, 1, false), (429, 60, true), (500, 60, true)]
    {
        let other = OtherApi::begun(None, true).await;
        assert_eq!(other.state(), [true, true, true, true]);
        other.world.api.fail_always(Method::GET, OTHERS, Fault::Status(fault));
        other.world.api.end_watches(OTHERS);
        other.world.wait(1 + seconds).await;
        // An API that is gone has no PodGroups; the pods that name them wait for these.
        assert_eq!(other.state(), [true, true, !is_kept, is_kept], "{fault}");
        other.world.wait(300).await;
        assert_eq!(other.state(), [true, true, !is_kept, is_kept], "{fault}");
        other.world.api.recover();
        other.world.wait(15).await;
        assert_eq!(other.state(), [true, true, true, true], "{fault}");
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn nothing_is_decided_on_facts_that_are_too_old() {
    for fault in [Fault::Status(403), Fault::Status(500), Fault::Status(429), Fault::Hang] {
        let world = World::watching().await;
        world.api.fail_always(Method::GET, NODES, fault.clone());
        world.api.end_watches(NODES);
        world.wait(110).await;
        assert!(world.cache.is_synced(), "{fault:?}: an outage of two minutes stops nothing");
        world.wait(15).await;
        assert!(!world.cache.is_synced(), "{fault:?}");
        assert!(world.cache.stale().contains_key(Node::RESOURCE), "{fault:?}");
        let before = world.cache.lock().version;
        world.api.recover();
        world.wait(60).await;
        assert!(world.cache.is_synced(), "{fault:?}");
        assert!(world.cache.lock().version > before, "{fault:?}: a cycle runs");
    }
}
