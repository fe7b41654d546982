//! Objects that change or are deleted while the scheduler uses them.

use std::{thread, time::Duration};

use serde_json::{Value, json};

use crate::{
    bed::{Bed, NAMESPACE, group, job, nodes, priority_class, queue},
    proxy::{Handling, Proxy},
};

#[test]
fn a_pod_deleted_during_binding_is_replaced() {
    let mut bed = Bed::new(&nodes(2, "4"));
    let proxy = Proxy::start(&bed.plane);
    // The proxy rejects all bindings for a while.
    proxy.rule(|request| {
        if request.uri.path().ends_with("/binding") {
            Handling::Respond(503)
        } else {
            Handling::Forward
        }
    });
    bed.start_scheduler(&[&proxy.flag()]);
    bed.apply(&group("gang", 4));
    bed.apply(&job("gang", 4, "1"));
    bed.eventually("the scheduler retries bindings", || {
        let retries = bed.scheduler(0).metric("kube_batch_write_retries_total");
        if retries > 0.0 { Ok(()) } else { Err("none".to_owned()) }
    });
    // The Job creates another pod, with another name and uid.
    let pod = bed.pods_in("gang", "Pending")[0]["metadata"]["name"].clone();
    let pod = pod.as_str().expect("a name");
    bed.kubectl(["delete", "pod", pod, "--namespace", NAMESPACE]).expect("deleted");
    proxy.rule(|_| Handling::Forward);
    bed.wait_until_running("gang", 4);
    assert!(bed.get("pods", pod).is_null());
}

#[test]
fn pods_move_off_a_drained_node() {
    let mut bed = Bed::new(&nodes(2, "4"));
    bed.start_scheduler(&[]);
    bed.apply(&group("gang", 2));
    bed.apply(&job("gang", 4, "1"));
    bed.wait_until_running("gang", 4);
    bed.kubectl(["drain", "node-00000", "--force", "--ignore-daemonsets"]).expect("drained");
    bed.wait_until_running("gang", 4);
    let on_drained = |pod: &Value| pod["spec"]["nodeName"] == "node-00000";
    assert!(!bed.pods_in("gang", "Running").iter().any(on_drained));
    bed.kubectl(["delete", "node", "node-00000"]).expect("deleted");
    bed.apply(&job("too-much", 1, "1"));
    bed.apply(&group("too-much", 1));
    bed.expect_waiting("too-much");
}

#[test]
fn changes_of_a_podgroup_take_effect() {
    let mut bed = Bed::new(&nodes(1, "4"));
    bed.start_scheduler(&[]);
    bed.apply(&group("gang", 6));
    bed.apply(&job("gang", 6, "1"));
    bed.expect_waiting("gang");
    bed.apply(&group("gang", 3));
    bed.wait_until_running("gang", 4);
    // The minimum exceeds the number of running pods: they keep running.
    bed.apply(&group("gang", 6));
    bed.eventually("the group reports that its minimum is not met", || {
        let status = bed.get("podgroups.scheduling.sigs.dev", "gang")["status"].clone();
        if status["phase"] == "Unknown" { Ok(()) } else { Err(status.to_string()) }
    });
    bed.wait_until_running("gang", 4);
    // The waiting pods now name a group that does not exist.
    bed.kubectl(["delete", "podgroups.scheduling.sigs.dev", "gang", "--namespace", NAMESPACE])
        .expect("deleted");
    bed.eventually("the waiting pods report it", || {
        let text = bed.pods_in("gang", "Pending").iter().map(Value::to_string).collect::<String>();
        if text.contains("PodGroup") { Ok(()) } else { Err(text) }
    });
    bed.wait_until_running("gang", 4);
}

#[test]
fn a_recreated_priority_class_changes_priorities() {
    let mut bed = Bed::new(&nodes(1, "2"));
    bed.apply(&priority_class("rank", 0));
    bed.start_scheduler(&[]);
    bed.apply(&group("first", 1));
    bed.apply(&job("first", 2, "1"));
    bed.wait_until_running("first", 2);
    let mut second = group("second", 2);
    second["spec"]["priorityClassName"] = json!("rank");
    bed.apply(&second);
    bed.apply(&job("second", 2, "1"));
    bed.expect_waiting("second");
    // The value of a class is immutable, but the class can be deleted and created again.
    bed.kubectl(["delete", "priorityclass", "rank"]).expect("deleted");
    bed.apply(&priority_class("rank", 1000));
    bed.wait_until_running("second", 2);
}

#[test]
fn jobs_of_a_deleted_queue_wait() {
    let mut bed = Bed::new(&nodes(1, "4"));
    bed.start_scheduler(&[]);
    let team = queue("team", 1);
    bed.apply(&team);
    let mut gang = group("gang", 2);
    gang["spec"]["queue"] = json!("team");
    bed.apply(&gang);
    bed.apply(&job("gang", 2, "1"));
    bed.wait_until_running("gang", 2);
    bed.kubectl(["delete", "queues.scheduling.sigs.dev", "team"]).expect("deleted");
    let mut late = group("late", 1);
    late["spec"]["queue"] = json!("team");
    bed.apply(&late);
    bed.apply(&job("late", 1, "1"));
    bed.eventually("the group reports that its queue does not exist", || {
        let status = bed.get("podgroups.scheduling.sigs.dev", "late")["status"].clone();
        if status["conditions"][0]["reason"] == "QueueNotFound" {
            Ok(())
        } else {
            Err(status.to_string())
        }
    });
    thread::sleep(Duration::from_secs(1));
    bed.wait_until_running("gang", 2);
    bed.apply(&team);
    bed.wait_until_running("late", 1);
}
