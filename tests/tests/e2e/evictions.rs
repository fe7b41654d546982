//! Which pods are evicted, and what their conditions and events report.

use serde_json::{Value, json};

use crate::bed::{Bed, group, job, nodes, priority_class, queue};

fn with(mut group: Value, field: &str, value: &str) -> Value {
    group["spec"][field] = json!(value);
    group
}

#[test]
fn a_gang_of_higher_priority_preempts_only_what_it_needs() {
    let mut bed = Bed::new(&nodes(2, "2"));
    bed.apply(&priority_class("high", 1000));
    bed.start_scheduler(&[]);
    bed.apply(&group("low", 1));
    let mut low = job("low", 4, "1");
    // Victims terminate slowly, so that the test sees their conditions.
    low["spec"]["template"]["metadata"]["annotations"]["testbed.kube-batch/stop-after"] =
        json!("3s");
    bed.apply(&low);
    bed.wait_until_running("low", 4);

    bed.apply(&with(group("high", 2), "priorityClassName", "high"));
    bed.apply(&job("high", 2, "1"));
    bed.eventually("two victims have the condition DisruptionTarget", || {
        let is_victim = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            let mut reasons = conditions
                .into_iter()
                .flatten()
                .map(|condition| (&condition["type"], &condition["reason"]));
            pod["metadata"]["deletionTimestamp"].is_string()
                && reasons.any(|reason| {
                    reason == (&json!("DisruptionTarget"), &json!("PreemptionByScheduler"))
                })
        };
        let n_victims = bed.list("pods").iter().filter(is_victim).count();
        if n_victims == 2 { Ok(()) } else { Err(format!("{n_victims} have it")) }
    });
    bed.wait_until_running("high", 2);
    bed.wait_until_running("low", 2);
    bed.consistently("the pods of the preemptor keep running", || {
        let running = bed.pods_in("high", "Running").len();
        if running == 2 { Ok(()) } else { Err(format!("{running} are running")) }
    });
    let events = bed.list("events");
    let count = |reason: &str| events.iter().filter(|event| event["reason"] == reason).count();
    assert_eq!(count("Preempted"), 2, "two pods were evicted");
    let preempted = events.iter().filter(|event| event["reason"] == "Preempted");
    for event in preempted {
        let related = (&event["related"]["kind"], &event["related"]["name"]);
        assert_eq!(related, (&json!("PodGroup"), &json!("high")), "{event}");
    }
    assert!(count("Evict") > 0, "their group has an event");
}

#[test]
fn a_queue_reclaims_what_it_deserves() {
    let mut bed = Bed::new(&nodes(2, "2"));
    bed.apply(&queue("one", 1));
    bed.apply(&queue("two", 1));
    bed.start_scheduler(&[]);
    bed.apply(&with(group("lent", 1), "queue", "one"));
    bed.apply(&job("lent", 4, "1"));
    bed.wait_until_running("lent", 4);
    bed.apply(&with(group("due", 2), "queue", "two"));
    bed.apply(&job("due", 2, "1"));
    bed.wait_until_running("due", 2);
    bed.wait_until_running("lent", 2);
    bed.consistently("each queue keeps its share", || {
        let running = ["due", "lent"].map(|job| bed.pods_in(job, "Running").len());
        if running == [2, 2] { Ok(()) } else { Err(format!("{running:?} are running")) }
    });
    bed.eventually("the status of the queue reports its allocated CPU", || {
        let status = bed.get("queues.scheduling.sigs.dev", "two")["status"].clone();
        if status["allocated"]["cpu"] == "2" { Ok(()) } else { Err(status.to_string()) }
    });
}
