//! Events that are sent by themselves.

use super::*;

#[tokio::test(flavor = "local", start_paused = true)]
async fn an_event_is_retried_only_after_server_errors() {
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
