//! Gangs at their minimum that are evicted as a whole, by two replicas.

use kube_batch_testbed::cluster::Options;
use serde_json::{Value, json};

use crate::bed::{Bed, SCHEDULER, SYSTEM, group, job, nodes, priority_class, queue};

/// How long a victim takes to stop: as long as a pod may by default.
const TERMINATION: &str = "30s";

/// Starts two replicas; the first one leads.
fn start_replicas(bed: &mut Bed) {
    let namespace = format!("--lock-object-namespace={SYSTEM}");
    let periods = ["--lease-duration=4s", "--renew-deadline=3s", "--retry-period=1s"];
    let flags = [&["--leader-elect", &namespace][..], &periods].concat();
    bed.start_scheduler(&flags);
    bed.eventually("the first replica is the leader", || {
        if bed.scheduler(0).is_leader() { Ok(()) } else { Err("it is not".to_owned()) }
    });
    bed.start_scheduler(&flags);
}

/// Creates a gang that needs all its pods, and its Job, which replaces pods that are evicted.
fn start_gang(bed: &Bed, name: &str, n_pods: usize, fields: Value) {
    let mut group = group(name, n_pods);
    for (field, value) in fields.as_object().expect("fields of the spec") {
        group["spec"][field] = value.clone();
    }
    bed.apply(&group);
    let mut job = job(name, n_pods, "1");
    job["spec"]["template"]["metadata"]["annotations"]["testbed.kube-batch/stop-after"] =
        json!(TERMINATION);
    bed.apply(&job);
}

/// The pods of a Job that are being terminated and still run.
fn n_terminating(bed: &Bed, owner: &str) -> usize {
    let is_victim = |pod: &&Value| {
        pod["metadata"]["labels"]["of"] == owner
            && pod["metadata"]["deletionTimestamp"].is_string()
            && pod["status"]["phase"] == "Running"
    };
    bed.list("pods").iter().filter(is_victim).count()
}

fn wait_until_terminating(bed: &Bed, owner: &str, n_pods: usize) {
    bed.eventually(&format!("{n_pods} pods of {owner} are being terminated"), || {
        let n = n_terminating(bed, owner);
        if n == n_pods { Ok(()) } else { Err(format!("{n} are")) }
    });
}

/// Waits a while and checks that exactly these many pods have been evicted since the cluster started, each
/// once.
fn expect_evicted(bed: &Bed, n_pods: usize) {
    bed.consistently("nothing else is evicted", || {
        let mut pods: Vec<String> = Vec::new();
        for event in bed.plane.audit_events().expect("an audit log") {
            let is_eviction = event.verb == "delete" && event.resource == "pods";
            if is_eviction && event.user == SCHEDULER && event.code < 300 {
                pods.push(event.name);
            }
        }
        if pods.len() == n_pods { Ok(()) } else { Err(format!("{pods:?} were evicted")) }
    });
}

/// Waits until the PodGroup has the condition with this status.
fn wait_for_condition(bed: &Bed, name: &str, condition: &str, status: &str) {
    bed.eventually(&format!("{name} has the condition {condition}={status}"), || {
        let group = bed.get("podgroups.scheduling.sigs.dev", name);
        let conditions = group["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_wanted = |of: &&Value| of["type"] == condition && of["status"] == status;
        conditions.iter().find(is_wanted).map(drop).ok_or_else(|| group["status"].to_string())
    });
}

#[test]
fn a_gang_that_preempts_another_starts_although_the_leader_is_killed_meanwhile() {
    let mut bed = Bed::with_options(Options { audit: true, ..Options::default() }, &nodes(2, "4"));
    bed.apply(&priority_class("high", 1000));
    bed.apply(&priority_class("middle", 100));
    start_replicas(&mut bed);
    start_gang(&bed, "low", 4, json!({}));
    bed.wait_until_running("low", 4);
    start_gang(&bed, "middle", 4, json!({"priorityClassName": "middle"}));
    bed.wait_until_running("middle", 4);

    start_gang(&bed, "high", 3, json!({"priorityClassName": "high"}));
    wait_until_terminating(&bed, "low", 4);
    wait_for_condition(&bed, "low", "Preempted", "True");
    bed.take_scheduler(0).kill();
    bed.wait_until_running("high", 3);
    // While the victims stop, nothing changes.
    let n_cycles = bed.scheduler(0).metric("kube_batch_cycles_total");
    assert!((1.0..200.0).contains(&n_cycles), "{n_cycles} cycles");
    assert_eq!(n_terminating(&bed, "low"), 0, "the victims had their time to stop");
    bed.wait_until_running("middle", 4);
    bed.expect_waiting("low");
    expect_evicted(&bed, 4);

    // The gang runs again once there is room.
    bed.kubectl(["delete", "job", "high", "--namespace=test"]).expect("deleted");
    bed.kubectl(["delete", "podgroups.scheduling.sigs.dev", "high", "--namespace=test"])
        .expect("deleted");
    bed.wait_until_running("low", 4);
    wait_for_condition(&bed, "low", "Preempted", "False");
    expect_evicted(&bed, 4);
}

#[test]
fn a_queue_reclaims_the_gang_that_no_budget_protects() {
    let mut bed = Bed::with_options(Options { audit: true, ..Options::default() }, &nodes(2, "4"));
    bed.apply(&queue("one", 1));
    bed.apply(&queue("two", 1));
    start_replicas(&mut bed);
    // The older one would be evicted last, but the younger one has a budget.
    start_gang(&bed, "older", 4, json!({"queue": "one"}));
    bed.wait_until_running("older", 4);
    bed.apply(&json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "younger", "namespace": "test"},
        "spec": {"minAvailable": 4, "selector": {"matchLabels": {"of": "younger"}}},
    }));
    start_gang(&bed, "younger", 4, json!({"queue": "one"}));
    bed.wait_until_running("younger", 4);
    bed.eventually("the budget counts the pods", || {
        let status = bed.get("poddisruptionbudgets", "younger")["status"].clone();
        let is_counted = status["currentHealthy"] == 4 && status["disruptionsAllowed"] == 0;
        if is_counted { Ok(()) } else { Err(status.to_string()) }
    });

    start_gang(&bed, "due", 4, json!({"queue": "two"}));
    wait_until_terminating(&bed, "older", 4);
    wait_for_condition(&bed, "older", "Reclaimed", "True");
    bed.take_scheduler(0).kill();
    bed.wait_until_running("due", 4);
    bed.wait_until_running("younger", 4);
    // Both queues have what they deserve: neither takes the gang of the other.
    bed.expect_waiting("older");
    expect_evicted(&bed, 4);
}
