//! Volumes of a binding, which are reserved or provisioned before the pod is bound.

use super::*;

#[tokio::test(flavor = "local", start_paused = true)]
async fn the_node_of_a_claim_is_set_before_the_pod_is_bound() {
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

#[tokio::test(flavor = "local", start_paused = true)]
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

#[tokio::test(flavor = "local", start_paused = true)]
async fn volumes_that_are_not_available_are_reported_and_the_decision_waits() {
    let other = json!({"namespace": "ns", "name": "d", "uid": "other"});
    // Reserved by an administrator: the claim need not exist yet.
    let other_name = json!({"namespace": "ns", "name": "d"});
    let (put, get) =
        (Some((Method::PUT, Fault::Status(409))), Some((Method::GET, Fault::Status(404))));
    for (claim_ref, fault, requests, event) in [
        (other, None, &["GET v"][..], "claim ns/c: volume v belongs to another claim"),
        (other_name, None, &["GET v"], "claim ns/c: volume v belongs to another claim"),
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

#[tokio::test(flavor = "local", start_paused = true)]
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

#[tokio::test(flavor = "local", start_paused = true)]
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

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_binding_whose_claim_is_deleted_is_given_up_at_once() {
    let world = World::with_claim(&json!(null));
    world.decide(&bind_with(None));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(world.seen().events.is_empty(), "it waits");
    {
        let (mut state, claim) = (world.cache.lock(), ObjectKey::new("ns", "c"));
        state.store.claims.delete(&claim);
        state.wake_for_deleted(&claim);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let event = &world.api.sent_to(&Method::POST, "/events")[0].body["note"];
    assert_eq!(*event, "claim ns/c got deleted in the meantime");
}
