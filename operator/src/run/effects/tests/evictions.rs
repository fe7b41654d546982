//! Evictions: what follows each answer to the mark of the victim and to its deletion.

use kube_batch_model::{
    decision::{EvictionCause, JobInQueue},
    name::JobKey,
};

use super::*;

fn evict() -> Decision {
    let job = JobKey::annotated(ObjectKey::new("ns", "urgent"));
    let cause = EvictionCause::Preempt(JobInQueue { job, queue: "q".into(), is_named: true });
    Decision::Evict { pod: pod_ref(), node: "n".into(), cause }
}

#[tokio::test(flavor = "local", start_paused = true)]
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

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_victim_that_is_gone_is_forgotten() {
    let world = World::with_running_pod();
    world.api.remove(POD);
    let expected = Seen { is_known: false, ..seen(&["PATCH status", "GET a"], &[], None) };
    assert_eq!(world.outcome(&evict()).await, expected);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_victim_that_was_replaced_is_not_deleted() {
    let world = World::with_running_pod();
    world.api.put(POD, pod("another", Some("m")));
    let expected = seen(&["PATCH status", "GET a"], &[], Some("m"));
    assert_eq!(world.outcome(&evict()).await, expected);
    assert!(world.api.object(POD).is_some());
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_victim_replaced_between_mark_and_deletion_is_not_deleted() {
    let world = World::with_running_pod();
    world.api.fail(Method::DELETE, POD, [Fault::Status(409)]);
    let seen = world.outcome(&evict()).await;
    assert_eq!(seen.requests, ["PATCH status", "DELETE a", "GET a"]);
    assert!(!seen.in_flight);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_rejected_eviction_is_reported_and_waits() {
    for (method, requests) in
        [(Method::PATCH, &["PATCH status"][..]), (Method::DELETE, &["PATCH status", "DELETE a"])]
    {
        for code in [403, 410, 422] {
            let world = World::with_running_pod();
            world.api.fail_always(method.clone(), POD, Fault::Status(code));
            let outcome = world.outcome(&evict()).await;
            let expected = seen(requests, &["FailedEviction"], Some("n"));
            assert_eq!(outcome, Seen { in_flight: true, ..expected }, "{method} {code}");
            let event = &world.api.sent_to(&Method::POST, "/events")[0].body["note"];
            assert_eq!(*event, "cannot evict: injected");
            tokio::time::sleep(Duration::from_millis(1010)).await;
            assert!(!world.seen().in_flight);
        }
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn an_eviction_is_retried_through_an_outage() {
    let world = World::with_running_pod();
    world.api.fail(Method::PATCH, POD, [Fault::Status(503), Fault::Hang]);
    world.api.fail(Method::DELETE, POD, [Fault::RetryAfter(429, 3)]);
    let seen = world.outcome(&evict()).await;
    let (mark, delete) = ("PATCH status", "DELETE a");
    assert_eq!(seen.requests, [mark, mark, mark, delete, delete]);
    assert!(seen.in_flight);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_deletion_whose_answer_was_lost_is_found_by_reading_the_pod() {
    let world = World::with_running_pod();
    world.api.fail(Method::DELETE, POD, [Fault::Lost]);
    let requests = ["PATCH status", "DELETE a", "DELETE a", "GET a"];
    let expected = Seen { is_known: false, ..seen(&requests, &[], None) };
    assert_eq!(world.outcome(&evict()).await, expected);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn an_eviction_without_answer_backs_off() {
    let world = World::with_running_pod();
    world.api.fail_always(Method::DELETE, POD, Fault::Status(500));
    let seen = world.outcome(&evict()).await;
    assert_eq!(seen.requests.last().map(String::as_str), Some("GET a"));
    assert_eq!((seen.in_flight, seen.node.as_deref()), (true, Some("n")));
    assert_eq!(seen.events, ["FailedEviction"]);
    tokio::time::sleep(Duration::from_millis(1010)).await;
    assert!(!world.seen().in_flight);
}
