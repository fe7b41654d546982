//! Bindings: what follows each answer, and how long a rejected binding waits.

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube_batch_api::kind::version_of;
use tokio::time::Instant;

use super::*;
use crate::run::metrics::{Task, WriteKind};

#[tokio::test(flavor = "local", start_paused = true)]
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

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_binding_whose_answer_was_lost_is_found_by_reading_the_pod() {
    let world = World::new();
    world.api.fail(Method::POST, "/binding", [Fault::Lost]);
    let requests = ["POST binding", "POST binding", "GET a"];
    let seen = world.outcome(&bind_to("n")).await;
    let node = Some("n".to_owned());
    assert_eq!(seen, Seen { node, in_flight: false, ..bound(&requests) }, "it was read as bound");
    assert_eq!(world.n_writes(Write::Bind, "conflict"), 1);
    assert_eq!(
        world.metrics.write_retries.get_or_create(&WriteKind { write: Write::Bind }).get(),
        1
    );
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_binding_whose_answer_was_lost_is_found_although_it_is_rejected_then() {
    let world = World::new();
    world.api.fail(Method::POST, "/binding", [Fault::Lost, Fault::Status(403)]);
    let seen = world.outcome(&bind_to("n")).await;
    assert_eq!(seen.requests, ["POST binding", "POST binding", "GET a"]);
    assert_eq!((seen.n_placed, seen.node.as_deref()), (1, Some("n")));
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_binding_that_was_done_before_the_server_failed_for_good_is_found() {
    let world = World::new();
    world.api.fail(Method::POST, "/binding", [Fault::Lost]);
    world.api.fail_always(Method::POST, "/binding", Fault::Status(503));
    let seen = world.outcome(&bind_to("n")).await;
    assert_eq!(seen.requests.last().map(String::as_str), Some("GET a"));
    assert_eq!((seen.n_placed, seen.node.as_deref()), (1, Some("n")));
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_pod_bound_by_another_scheduler_is_stored_as_read() {
    let world = World::new();
    world.api.put(POD, pod("u", Some("m")));
    let expected = seen(&["POST binding", "GET a"], &[], Some("m"));
    assert_eq!(world.outcome(&bind_to("n")).await, expected);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_replaced_pod_is_not_mistaken_for_the_old_one() {
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

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_pod_that_is_gone_is_forgotten() {
    let world = World::new();
    world.api.remove(POD);
    let expected = Seen { is_known: false, ..seen(&["POST binding", "GET a"], &[], None) };
    assert_eq!(world.outcome(&bind_to("n")).await, expected);
    assert_eq!(world.n_writes(Write::Bind, "gone"), 1);
}

#[tokio::test(flavor = "local", start_paused = true)]
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
            let place = world.cache.lock().assumed.get(&pod_ref().uid).cloned();
            assert_eq!(place, Some(InFlight::Rejected { node: "n".into() }), "{code}");
            assert!(world.cache.lock().version > version, "a cycle is woken");
        }
        let event = &world.api.sent_to(&Method::POST, "/events")[0].body["note"];
        assert_eq!(*event, "cannot bind to n: injected");
        assert_eq!(world.n_writes(Write::Bind, "refused"), 3);
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
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

#[tokio::test(flavor = "local", start_paused = true)]
async fn the_back_off_has_an_upper_bound() {
    let world = World::new();
    world.api.fail_always(Method::POST, "/binding", Fault::Status(403));
    for _ in 0..20 {
        world.outcome(&bind_to("n")).await;
        tokio::time::sleep(Duration::from_millis(60_010)).await;
        assert!(!world.seen().in_flight);
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn the_back_off_of_a_pod_that_is_gone_is_forgotten() {
    let world = World::new();
    world.api.fail(Method::POST, "/binding", [Fault::Status(403)]);
    world.outcome(&bind_to("n")).await;
    world.cache.lock().store.pods.delete(&pod_ref().key);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(world.effects.back_off.lock().expect("no panic").is_empty());
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn retry_after_is_respected() {
    for fault in [Fault::RetryAfter(429, 7), Fault::RetryAfter(503, 7), Fault::TooManyRequests(7)] {
        let world = World::new();
        world.api.fail(Method::POST, "/binding", [fault.clone()]);
        let started = Instant::now();
        let seen = world.outcome(&bind_to("n")).await;
        assert_eq!(seen, bound(&["POST binding", "POST binding"]), "{fault:?}");
        let took = started.elapsed().as_secs_f64();
        assert!((7.0..7.5).contains(&took), "{fault:?}: {took}");
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_binding_is_retried_through_an_outage() {
    let faults = [Fault::Status(500), Fault::Hang, Fault::Status(503), Fault::Status(429)];
    let world = World::new();
    world.api.fail(Method::POST, "/binding", faults);
    assert_eq!(world.outcome(&bind_to("n")).await, bound(&["POST binding"; 5]));
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_binding_without_answer_backs_off_when_the_pod_still_waits() {
    for (fault, why) in [(Fault::Hang, "no answer for 5.0s"), (Fault::Status(500), "injected")] {
        let world = World::new();
        world.api.fail_always(Method::POST, "/binding", fault.clone());
        let started = Instant::now();
        let seen = world.outcome(&bind_to("n")).await;
        assert_eq!(seen.requests.last().map(String::as_str), Some("GET a"), "{fault:?}");
        assert!(seen.in_flight && seen.n_placed == 0, "{fault:?}");
        assert_eq!(seen.events, ["FailedScheduling"], "{fault:?}");
        let note = &world.api.sent_to(&Method::POST, "/events")[0].body["note"];
        assert_eq!(*note, format!("cannot bind to n: {why}"));
        assert!(started.elapsed() < Duration::from_secs(26), "{fault:?}");
        assert_eq!(world.n_writes(Write::Bind, "failed"), 1);
        tokio::time::sleep(Duration::from_millis(1010)).await;
        assert!(!world.seen().in_flight, "{fault:?}: it is decided again");
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_binding_is_assumed_until_the_pod_can_be_read() {
    let world = World::new();
    world.api.fail(Method::POST, "/binding", [Fault::Lost]);
    world.api.fail_always(Method::GET, POD, Fault::Hang);
    world.decide(&bind_to("n"));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(world.seen().in_flight, "it is not known yet, so the place is kept");
    world.api.recover();
    world.settle().await;
    let seen = world.seen();
    assert_eq!((seen.node.as_deref(), seen.n_placed), (Some("n"), 1));
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_binding_that_the_watch_does_not_show_is_read() {
    let world = World::new();
    assert_eq!(world.outcome(&bind_to("n")).await, bound(&["POST binding"]));
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(world.seen().requests.len(), 1);
    world.api.fail(Method::GET, POD, [Fault::Status(503)]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let seen = world.seen();
    assert_eq!(seen.requests, ["POST binding", "GET a", "GET a"]);
    assert_eq!((seen.node.as_deref(), seen.in_flight, seen.n_placed), (Some("n"), false, 1));
    assert_eq!(seen.events, ["Scheduled"], "once");
    assert_eq!(world.metrics.decisions_unconfirmed.get(), 1);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_late_answer_does_not_restore_a_deleted_pod() {
    let world = World::new();
    let mut answer = pod("u", None);
    answer["metadata"]["resourceVersion"] = json!("5");
    let answer: Pod = serde_json::from_value(answer).expect("a pod");
    let mut deleted = answer.metadata.clone();
    deleted.resource_version = Some("7".to_owned());
    {
        let mut state = world.cache.lock();
        assert!(state.history("pods").deleted(version_of(&deleted)));
        state.store.pods.delete(&pod_ref().key);
    }
    world.effects.context.store(&answer);
    assert!(!world.seen().is_known);
    let next = Pod {
        metadata: ObjectMeta { resource_version: Some("8".to_owned()), ..deleted },
        ..answer
    };
    world.effects.context.store(&next);
    assert!(world.seen().is_known, "the next pod of that name");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_later_decision_is_not_affected_by_the_back_off_of_an_earlier_one() {
    let world = World::new();
    world.api.fail(Method::POST, "/binding", [Fault::Status(403)]);
    world.outcome(&bind_to("n")).await;
    // The first one was dropped for another reason meanwhile.
    world.outcome(&bind_to("m")).await;
    tokio::time::sleep(Duration::from_millis(1010)).await;
    assert!(world.seen().in_flight, "the second one is in flight");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_panic_affects_one_write_and_its_decision_backs_off() {
    for (decision, method, fails_at) in
        [(bind_to("n"), Method::POST, "/binding"), (bind_with(Some("v")), Method::GET, VOLUME)]
    {
        let world = World::with_claim(&json!(null));
        world.api.fail(method, fails_at, [Fault::Panic]);
        let outcome = world.outcome(&decision).await;
        assert_eq!(
            (outcome.in_flight, &*outcome.events),
            (true, &["FailedScheduling".to_owned()][..])
        );
        assert_eq!(world.metrics.task_failures.get_or_create(&Task { task: "write" }).get(), 1);
        tokio::time::sleep(Duration::from_millis(1010)).await;
        assert!(!world.seen().in_flight, "it may be decided again");
        let n_before = world.seen().n_placed;
        world.outcome(&bind_to("n")).await;
        assert_eq!(world.seen().n_placed, n_before + 1, "the workers go on");
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_namespace_without_answers_does_not_hold_up_others() {
    let world = World::new();
    world.api.fail_always(Method::POST, "/namespaces/dead/", Fault::Hang);
    for n in 0..40 {
        let pod = PodRef { uid: format!("d{n}").as_str().into(), key: ObjectKey::new("dead", "p") };
        world.decide(&Decision::Bind {
            minimum: 1,
            protected_until: None,
            queue: "q".into(),
            pod,
            node: "n".into(),
            claims: vec![],
            devices: Vec::new(),
        });
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    let started = Instant::now();
    world.decide(&bind_to("n"));
    while world.seen().n_placed == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}
