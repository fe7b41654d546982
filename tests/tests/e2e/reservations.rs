//! Room that is kept for a job that has waited long, with a real API server (docs/parity.md#a12).

use std::fs;

use serde_json::{Value, json};
use xtask_launcher::build::root;

use crate::bed::{Bed, NAMESPACE, group, nodes, pods, queue};

const PROTECTION: &str = "scheduling.sigs.dev/protected-until";

fn create(bed: &Bed, name: &str, n_pods: usize, min: usize, queue: &str) {
    let mut group = group(name, min);
    group["spec"]["queue"] = json!(queue);
    bed.apply(&group);
    bed.plane.create(&pods(name, n_pods, "2")).expect("pods are created");
}

fn delete(bed: &Bed, pod: &str) {
    let args = ["delete", "pod", pod, "--namespace", NAMESPACE, "--wait=false"];
    bed.kubectl(args).expect("deleted");
}

/// The message of the condition Unschedulable of a PodGroup.
fn message(bed: &Bed, name: &str) -> String {
    let group = bed.get("podgroups.scheduling.sigs.dev", name);
    let conditions = group["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let waits =
        |condition: &&Value| condition["type"] == "Unschedulable" && condition["status"] == "True";
    let found = conditions.iter().find(waits);
    found.and_then(|condition| condition["message"].as_str()).unwrap_or_default().to_owned()
}

fn says(bed: &Bed, name: &str, part: &str) {
    bed.eventually("the message says what is reserved", || {
        let message = message(bed, name);
        if message.contains(part) { Ok(()) } else { Err(message) }
    });
}

fn reserved(bed: &Bed, cpu: &Value) {
    bed.eventually("the status of the queue says what is reserved", || {
        let queue = bed.get("queues.scheduling.sigs.dev", "b");
        let found = &queue["status"]["reserved"]["cpu"];
        if found == cpu { Ok(()) } else { Err(queue["status"].to_string()) }
    });
}

/// A gang of two nodes, whose queue deserves one, starts beside a stream of another queue; another replica keeps
/// its reservation.
#[test]
fn a_gang_larger_than_its_share_starts_from_a_reservation() {
    let mut bed = Bed::new(&nodes(2, "2"));
    let sample = fs::read_to_string(root().join("examples/scheduler.yaml")).expect("the sample");
    let configuration = sample.replace("reservation.after: 5m", "reservation.after: 5s");
    assert_ne!(configuration, sample);
    let path = bed.plane.log_dir().join("scheduler.yaml");
    fs::write(&path, configuration).expect("a file");
    let flag = format!("--scheduler-conf={}", path.display());
    bed.apply(&queue("a", 1));
    bed.apply(&queue("b", 1));
    let first = bed.start_scheduler(&[&flag]);
    create(&bed, "old", 2, 1, "a");
    bed.wait_until_running("old", 2);
    create(&bed, "big", 2, 2, "b");
    says(&bed, "big", "are reserved for it");
    reserved(&bed, &json!("4"));
    delete(&bed, "old-0");
    create(&bed, "young", 1, 1, "a");
    says(&bed, "young", "is reserved for job");
    bed.take_scheduler(first).kill();
    bed.start_scheduler(&[&flag]);
    bed.consistently("the room is kept", || match bed.n_bound("young") {
        0 => Ok(()),
        n_bound => Err(format!("{n_bound} are bound")),
    });
    delete(&bed, "old-1");
    bed.wait_until_running("big", 2);
    for pod in bed.pods_in("big", "Running") {
        assert!(pod["metadata"]["annotations"][PROTECTION].is_string(), "{pod}");
    }
    reserved(&bed, &Value::Null);
    bed.consistently("the gang is not reclaimed", || match bed.pods_in("big", "Running").len() {
        2 => Ok(()),
        n_running => Err(format!("{n_running} run")),
    });
}
