//! Statuses: what the cache stores and which event is sent after each answer.

use super::*;

const GROUP: &str = "/apis/scheduling.sigs.dev/v1alpha2/namespaces/ns/podgroups/g";

/// A PodGroup, as server and cache know it, and its status target.
fn with_group(world: &World) -> Target {
    let group = json!({
        "apiVersion": "scheduling.sigs.dev/v1alpha2", "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "ns", "uid": "g"},
        "spec": {"minMember": 1}, "status": {},
    });
    world.api.put(GROUP, group);
    Target::Group(
        kube_batch_model::group_version::GroupVersion::V1Alpha2,
        ObjectKey::new("ns", "g"),
    )
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_status_that_is_written_is_in_the_cache_and_its_event_is_sent() {
    let world = World::new();
    let target = with_group(&world);
    let patch = json!({"status": {"phase": "Running"}});
    world.effects.enqueue_status(target, patch.clone(), vec![event()]);
    world.settle().await;
    let seen = world.seen();
    assert_eq!(seen.requests, ["PATCH status"]);
    assert_eq!(seen.events, ["Unschedulable"]);
    assert_eq!(world.api.sent_to(&Method::PATCH, "/status")[0].body, patch);
    let state = world.cache.lock();
    let group = state.store.group_of_any_api(&ObjectKey::new("ns", "g")).expect("the group");
    assert_eq!(group.status.phase, "Running");
    drop(state);
    assert_eq!(world.n_writes(Write::GroupStatus, "done"), 1);
}

#[tokio::test(flavor = "local", start_paused = true)]
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
        world.effects.enqueue_status(target.clone(), json!({"status": {}}), vec![event()]);
        world.settle().await;
        let seen = world.seen();
        let patches = world.api.sent_to(&Method::PATCH, "/status");
        assert_eq!(patches.len(), n_sent, "{fault:?}");
        assert!(seen.events.is_empty(), "{fault:?}");
        assert_eq!(world.n_writes(Write::GroupStatus, result), 1, "{fault:?}");
        assert!(!world.effects.defer_if_writing(&target), "{fault:?}: the next one may be written");
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_status_that_others_have_written_is_read_before_it_is_written_again() {
    let world = World::new();
    let target = with_group(&world);
    world.api.serve("/apis/scheduling.sigs.dev/v1alpha2/namespaces/ns/podgroups");
    let before = world.cache.lock().version;
    let patch = json!({"metadata": {"resourceVersion": "0"}, "status": {"phase": "Running"}});
    world.effects.enqueue_status(target, patch, vec![event()]);
    world.settle().await;
    let seen = world.seen();
    assert_eq!(
        (seen.requests, seen.events),
        (vec!["PATCH status".into(), "GET podgroups".into()], vec![])
    );
    let state = world.cache.lock();
    let group = state.store.group_of_any_api(&ObjectKey::new("ns", "g")).expect("as it was read");
    assert!(group.resource_version.is_some());
    assert!(state.version > before, "a cycle starts, which compares with what was read");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_status_is_retried_through_an_outage() {
    let world = World::new();
    let target = with_group(&world);
    let faults = [Fault::Status(500), Fault::RetryAfter(429, 2), Fault::Lost];
    world.api.fail(Method::PATCH, GROUP, faults);
    world.effects.enqueue_status(target, json!({"status": {"phase": "Running"}}), vec![event()]);
    world.settle().await;
    let seen = world.seen();
    assert_eq!(seen.requests, ["PATCH status"; 4]);
    assert_eq!(seen.events, ["Unschedulable"]);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_deferred_status_write_starts_a_cycle() {
    let world = World::new();
    let target = with_group(&world);
    world.api.fail(Method::PATCH, GROUP, [Fault::Hang]);
    world.effects.enqueue_status(target.clone(), json!({"status": {}}), Vec::new());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = world.cache.lock().version;
    assert!(world.effects.defer_if_writing(&target));
    world.settle().await;
    assert!(world.cache.lock().version > before);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn the_status_of_a_pod_that_no_longer_waits_is_not_written() {
    let patch = json!({"metadata": {"uid": "u"}, "status": {"nominatedNodeName": "n"}});
    let target = Target::Pod(pod_ref());
    let world = World::new();
    world.effects.enqueue_status(target.clone(), patch.clone(), Vec::new());
    world.settle().await;
    assert_eq!(world.seen().requests, ["PATCH status"]);
    let facts = world.cache.lock().store.pods.get(&pod_ref().key).map(Arc::clone);
    assert_eq!(facts.expect("the pod").nominated_node.as_deref(), Some("n"));

    world.cache.lock().assumed.note(&bind_to("n"), Timestamp::now());
    world.effects.enqueue_status(target.clone(), patch.clone(), vec![event()]);
    world.settle().await;
    let world = World::with_running_pod();
    world.effects.enqueue_status(target, patch, vec![event()]);
    world.settle().await;
    assert_eq!((world.seen().requests, world.seen().events), (vec![], vec![]));
}
