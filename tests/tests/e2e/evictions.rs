//! Who leaves for whom, and what is left for people to read.

use serde_json::{Value, json};

use crate::bed::{Bed, group, job, nodes, priority_class, queue};

fn with(mut group: Value, field: &str, value: &str) -> Value {
    group["spec"][field] = json!(value);
    group
}

#[test]
fn a_more_important_gang_preempts_no_more_than_it_needs() {
    let mut bed = Bed::new(&nodes(2, "2"));
    bed.apply(&priority_class("high", 1000));
    bed.schedule(&[]);
    bed.apply(&group("low", 1));
    let mut low = job("low", 4, "1");
    // Long enough to be looked at while they leave.
    low["spec"]["template"]["metadata"]["annotations"]["testbed.kube-batch/stop-after"] =
        json!("3s");
    bed.apply(&low);
    bed.runs("low", 4);

    bed.apply(&with(group("high", 2), "priorityClassName", "high"));
    bed.apply(&job("high", 2, "1"));
    bed.eventually("two victims carry why they leave", || {
        let is_told = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            let mut why =
                conditions.into_iter().flatten().map(|one| (&one["type"], &one["reason"]));
            pod["metadata"]["deletionTimestamp"].is_string()
                && why
                    .any(|why| why == (&json!("DisruptionTarget"), &json!("PreemptionByScheduler")))
        };
        let n_told = bed.list("pods").iter().filter(is_told).count();
        if n_told == 2 { Ok(()) } else { Err(format!("{n_told} do")) }
    });
    bed.runs("high", 2);
    bed.runs("low", 2);
    bed.always("nobody else leaves", || {
        let running = bed.pods_in("high", "Running").len();
        if running == 2 { Ok(()) } else { Err(format!("{running} run")) }
    });
    let events = bed.list("events");
    let count = |reason: &str| events.iter().filter(|event| event["reason"] == reason).count();
    assert_eq!(count("Preempted"), 2, "two pods left");
    assert!(count("Evict") > 0, "their group says so");
}

#[test]
fn a_queue_takes_back_what_it_deserves() {
    let mut bed = Bed::new(&nodes(2, "2"));
    bed.apply(&queue("one", 1));
    bed.apply(&queue("two", 1));
    bed.schedule(&[]);
    bed.apply(&with(group("lent", 1), "queue", "one"));
    bed.apply(&job("lent", 4, "1"));
    bed.runs("lent", 4);
    bed.apply(&with(group("due", 2), "queue", "two"));
    bed.apply(&job("due", 2, "1"));
    bed.runs("due", 2);
    bed.runs("lent", 2);
    bed.always("the shares stay", || {
        let running = ["due", "lent"].map(|job| bed.pods_in(job, "Running").len());
        if running == [2, 2] { Ok(()) } else { Err(format!("{running:?} run")) }
    });
    bed.eventually("the queue says what it holds", || {
        let status = bed.get("queues.scheduling.sigs.dev", "two")["status"].clone();
        if status["allocated"]["cpu"] == "2" { Ok(()) } else { Err(status.to_string()) }
    });
}
