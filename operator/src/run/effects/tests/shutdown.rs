//! Shutdown: draining the queue, and losing the lease.

use kube_batch_model::group_version::GroupVersion;
use tokio::time::Instant;

use super::*;

#[tokio::test(flavor = "local", start_paused = true)]
async fn unsent_writes_are_removed_when_the_lease_is_lost() {
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

#[tokio::test(flavor = "local", start_paused = true)]
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

#[tokio::test(flavor = "local", start_paused = true)]
async fn draining_does_not_wait_for_a_back_off() {
    let world = World::new();
    world.api.fail(Method::POST, "/binding", [Fault::Status(403)]);
    world.decide(&bind_to("n"));
    let started = Instant::now();
    world.settle().await;
    assert!(started.elapsed() < Duration::from_millis(100));
    assert!(world.seen().in_flight);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn volumes_are_not_waited_for_when_the_lease_is_lost() {
    let world = World::with_claim(&json!(null));
    world.decide(&bind_with(None));
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.stop.cancel();
    world.effects.clear();
    world.settle().await;
    world.cache_claim(true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.seen().requests, ["PATCH c"], "another replica decides now");
}

/// Workers that have nothing to do must not keep the only thread busy.
#[tokio::test(flavor = "local", start_paused = true)]
async fn workers_that_cannot_send_wait() {
    let world = World::new();
    world.api.fail_always(Method::POST, "", Fault::Hang);
    world.api.fail_always(Method::PATCH, "", Fault::Hang);
    for n in 0..20 {
        let pod = PodRef { uid: format!("{n}").as_str().into(), key: ObjectKey::new("ns", "p") };
        world.decide(&Decision::Bind {
            minimum: 1,
            protected_until: None,
            queue: "q".into(),
            pod,
            node: "n".into(),
            claims: vec![],
            devices: Vec::new(),
        });
        let target =
            Target::Group(GroupVersion::V1Alpha2, ObjectKey::new("ns", format!("{n}").as_str()));
        world.effects.enqueue_status(target, json!({}), vec![]);
        world.effects.enqueue_event(event());
    }
    // Time is paused: it passes only when no task has anything to do.
    tokio::time::timeout(Duration::from_secs(100), std::future::pending::<()>())
        .await
        .expect_err("");
}
