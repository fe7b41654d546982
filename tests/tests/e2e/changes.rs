//! Objects that change under its feet.

use std::{thread, time::Duration};

use serde_json::{Value, json};

use crate::{
    bed::{Bed, NAMESPACE, group, job, nodes, priority_class, queue},
    proxy::{Fate, Proxy},
};

#[test]
fn a_pod_deleted_while_it_is_bound_is_no_loss() {
    let mut bed = Bed::new(&nodes(2, "4"));
    let proxy = Proxy::start(&bed.plane);
    // No binding arrives for a while.
    proxy.rule(
        |asked| {
            if asked.uri.path().ends_with("/binding") { Fate::Answer(503) } else { Fate::Pass }
        },
    );
    bed.schedule(&[&proxy.flag()]);
    bed.apply(&group("gang", 4));
    bed.apply(&job("gang", 4, "1"));
    bed.eventually("bindings are tried", || {
        let retries = bed.scheduler(0).metric("kube_batch_write_retries_total");
        if retries > 0.0 { Ok(()) } else { Err("none".to_owned()) }
    });
    // The Job makes another one, with another name and uid.
    let pod = bed.pods_in("gang", "Pending")[0]["metadata"]["name"].clone();
    let pod = pod.as_str().expect("a name");
    bed.kubectl(["delete", "pod", pod, "--namespace", NAMESPACE]).expect("deleted");
    proxy.rule(|_| Fate::Pass);
    bed.runs("gang", 4);
    assert!(bed.get("pods", pod).is_null());
}

#[test]
fn a_drained_node_is_left_and_not_come_back_to() {
    let mut bed = Bed::new(&nodes(2, "4"));
    bed.schedule(&[]);
    bed.apply(&group("gang", 2));
    bed.apply(&job("gang", 4, "1"));
    bed.runs("gang", 4);
    bed.kubectl(["drain", "node-00000", "--force", "--ignore-daemonsets"]).expect("drained");
    bed.runs("gang", 4);
    let on_drained = |pod: &Value| pod["spec"]["nodeName"] == "node-00000";
    assert!(!bed.pods_in("gang", "Running").iter().any(on_drained));
    bed.kubectl(["delete", "node", "node-00000"]).expect("deleted");
    bed.apply(&job("too-much", 1, "1"));
    bed.apply(&group("too-much", 1));
    bed.never_runs("too-much");
}

#[test]
fn a_gang_is_what_its_group_says_now() {
    let mut bed = Bed::new(&nodes(1, "4"));
    bed.schedule(&[]);
    bed.apply(&group("gang", 6));
    bed.apply(&job("gang", 6, "1"));
    bed.never_runs("gang");
    bed.apply(&group("gang", 3));
    bed.runs("gang", 4);
    // More than run: those that run go on.
    bed.apply(&group("gang", 6));
    bed.eventually("the group says what it lacks", || {
        let status = bed.get("podgroups.scheduling.sigs.dev", "gang")["status"].clone();
        if status["phase"] == "Unknown" { Ok(()) } else { Err(status.to_string()) }
    });
    bed.runs("gang", 4);
    // A group that is deleted leaves its pods without one.
    bed.kubectl(["delete", "podgroups.scheduling.sigs.dev", "gang", "--namespace", NAMESPACE])
        .expect("deleted");
    bed.eventually("those that wait say so", || {
        let text = bed.pods_in("gang", "Pending").iter().map(Value::to_string).collect::<String>();
        if text.contains("PodGroup") { Ok(()) } else { Err(text) }
    });
    bed.runs("gang", 4);
}

#[test]
fn ranks_change_with_their_class() {
    let mut bed = Bed::new(&nodes(1, "2"));
    bed.apply(&priority_class("rank", 0));
    bed.schedule(&[]);
    bed.apply(&group("first", 1));
    bed.apply(&job("first", 2, "1"));
    bed.runs("first", 2);
    let mut second = group("second", 2);
    second["spec"]["priorityClassName"] = json!("rank");
    bed.apply(&second);
    bed.apply(&job("second", 2, "1"));
    bed.never_runs("second");
    // A value cannot be changed, but a class can be deleted and created again.
    bed.kubectl(["delete", "priorityclass", "rank"]).expect("deleted");
    bed.apply(&priority_class("rank", 1000));
    bed.runs("second", 2);
}

#[test]
fn a_queue_that_goes_keeps_its_jobs_waiting() {
    let mut bed = Bed::new(&nodes(1, "4"));
    bed.schedule(&[]);
    let team = queue("team", 1);
    bed.apply(&team);
    let mut gang = group("gang", 2);
    gang["spec"]["queue"] = json!("team");
    bed.apply(&gang);
    bed.apply(&job("gang", 2, "1"));
    bed.runs("gang", 2);
    bed.kubectl(["delete", "queues.scheduling.sigs.dev", "team"]).expect("deleted");
    let mut late = group("late", 1);
    late["spec"]["queue"] = json!("team");
    bed.apply(&late);
    bed.apply(&job("late", 1, "1"));
    bed.eventually("the group says that the queue is missing", || {
        let status = bed.get("podgroups.scheduling.sigs.dev", "late")["status"].clone();
        if status["conditions"][0]["reason"] == "QueueNotFound" {
            Ok(())
        } else {
            Err(status.to_string())
        }
    });
    thread::sleep(Duration::from_secs(1));
    bed.runs("gang", 2);
    bed.apply(&team);
    bed.runs("late", 1);
}
