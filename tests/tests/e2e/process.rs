//! The process: its flags, its end, its replicas, and what it tells.

use std::{process::Command, thread, time::Duration};

use kube_batch_testbed::cluster::Options;
use kube_batch_tests::build::root;
use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, SYSTEM, binary, group, job, nodes};

#[test]
fn what_keeps_it_from_starting_is_told() {
    for (argument, sentence) in [
        ("--kubeconfig=/no/such/file", "kubeconfig /no/such/file does not exist"),
        ("--leader-elect", "--leader-elect needs --lock-object-namespace"),
        ("--listen-address=999.0.0.1:1", "cannot listen on 999.0.0.1:1"),
        ("--scheduler-conf=/no/such/conf", "cannot read configuration /no/such/conf"),
    ] {
        let ended = Command::new(binary()).args(["run", argument]).output().expect("it runs");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{argument}: {stderr}");
        assert!(stderr.contains(sentence), "{argument}: {stderr}");
    }
}

/// It reports what is missing, and continues as soon as that is there.
#[test]
fn what_keeps_it_from_working_is_told_and_waited_for() {
    let mut bed = Bed::new(&nodes(1, "2"));
    let user = bed.plane.kubeconfig_for_user("somebody", &[]).expect("a kubeconfig");
    bed.start_as(&user, &[]);
    // Nobody listens there.
    bed.start(&["--master=https://127.0.0.1:1"]);
    for (row, obstacle) in [(0, "cannot watch resource \"nodes\""), (1, "Connection refused")] {
        bed.eventually("it is not ready and says why", || {
            let (status, body) = bed.scheduler(row).get("/readyz");
            if status == 503 && body.contains(obstacle) { Ok(()) } else { Err(body) }
        });
        assert_eq!(bed.scheduler(row).get("/healthz").0, 200, "a new start would not help");
    }
    assert!(bed.scheduler(0).log().contains("apply deploy/rbac.yaml"));
    let (role, user) = ("--clusterrole=kube-batch", "--user=somebody");
    bed.kubectl(["create", "clusterrolebinding", "somebody", role, user]).expect("a binding");
    bed.is_ready(0);
    bed.apply(&group("gang", 2));
    bed.apply(&job("gang", 2, "1"));
    bed.runs("gang", 2);
}

#[test]
fn a_broken_configuration_leaves_the_old_one_in_force() {
    let mut bed = Bed::new(&nodes(1, "2"));
    let path = bed.plane.log_dir().join("scheduler.yaml");
    let good = std::fs::read_to_string(root().join("examples/scheduler.yaml")).expect("the sample");
    std::fs::write(&path, &good).expect("a file");
    bed.schedule(&[&format!("--scheduler-conf={}", path.display())]);
    let is_valid = |wanted: f64| {
        bed.eventually("the metric says so", || {
            let valid = bed.scheduler(0).metric("kube_batch_config_valid");
            if valid == wanted { Ok(()) } else { Err(format!("it is {valid}")) }
        });
    };
    is_valid(1.0);
    // As from an editor that is not done.
    std::fs::write(&path, &good[..good.len() / 2]).expect("a file");
    is_valid(0.0);
    bed.apply(&group("gang", 2));
    bed.apply(&job("gang", 2, "1"));
    bed.runs("gang", 2);
    std::fs::write(&path, &good).expect("a file");
    is_valid(1.0);
}

fn leads(bed: &Bed, row: usize) -> Result<(), String> {
    if bed.scheduler(row).leads() { Ok(()) } else { Err("it does not".to_owned()) }
}

#[test]
fn the_next_replica_goes_on_where_the_leader_was_killed() {
    let namespace = format!("--lock-object-namespace={SYSTEM}");
    let periods = ["--lease-duration=4s", "--renew-deadline=3s", "--retry-period=1s"];
    let election = [&["--leader-elect", &*namespace], &periods[..]].concat();
    let mut bed = Bed::new(&nodes(4, "8"));
    bed.schedule(&election);
    bed.eventually("the first replica leads", || leads(&bed, 0));
    bed.schedule(&election);
    assert!(!bed.scheduler(1).leads(), "one replica leads");

    bed.apply(&group("burst", 30));
    bed.apply(&job("burst", 30, "1"));
    bed.take(0).kill();
    bed.runs("burst", 30);
    assert!(bed.scheduler(0).leads());

    // Told to stop, it gives the lease back and ends well.
    bed.schedule(&election);
    assert_eq!(bed.take(0).terminate(), Some(0));
    bed.eventually("the third replica leads", || leads(&bed, 0));
}

/// Many leaders die, each somewhere between the first decision of a burst and its last binding.
#[test]
fn whatever_moment_a_leader_is_killed_at_nothing_is_lost() {
    let namespace = format!("--lock-object-namespace={SYSTEM}");
    let periods = ["--lease-duration=2s", "--renew-deadline=1500ms", "--retry-period=300ms"];
    let election = [&["--leader-elect", &*namespace], &periods[..]].concat();
    let options = Options { audit: true, ..Options::default() };
    let mut bed = Bed::with(options, &nodes(8, "16"));
    // Pods are there at once, not one by one as the Job controller makes them.
    let burst = |round: usize| -> Vec<Value> {
        let name = format!("burst-{round}");
        let template = &job(&name, 1, "500m")["spec"]["template"];
        let pod = |nth: usize| {
            let mut pod = template.clone();
            pod["apiVersion"] = json!("v1");
            pod["kind"] = json!("Pod");
            pod["metadata"]["name"] = json!(format!("{name}-{nth}"));
            pod["metadata"]["namespace"] = json!(NAMESPACE);
            pod
        };
        (0..30).map(pod).collect()
    };
    bed.schedule(&election);
    bed.eventually("the first replica leads", || leads(&bed, 0));
    // From at once to when all is likely done.
    for (round, delay) in [0, 20, 40, 80, 160, 320, 640].into_iter().enumerate() {
        bed.schedule(&election);
        bed.plane.create(&burst(round)).expect("pods are made");
        let of_group = group(&format!("burst-{round}"), 30);
        bed.apply(&of_group);
        thread::sleep(Duration::from_millis(delay));
        bed.take(0).kill();
        // Whole or not at all: it fits, so the next leader makes it whole.
        bed.runs(&format!("burst-{round}"), 30);
    }
    crate::outages::assert_bound_once(&bed, 210);
}

#[test]
fn what_it_knows_can_be_simulated() {
    let mut bed = Bed::new(&nodes(1, "2"));
    bed.schedule(&["--debug-snapshot"]);
    bed.apply(&group("a", 3));
    bed.apply(&job("a", 3, "1"));
    bed.eventually("the gang is seen", || {
        let status = bed.get("podgroups.scheduling.sigs.dev", "a")["status"].to_string();
        if status.contains("Insufficient cpu") { Ok(()) } else { Err(status) }
    });
    assert_eq!(bed.scheduler(0).metric("kube_batch_unschedule_task_count"), 3.0);
    let (status, dump) = bed.scheduler(0).get("/debug/snapshot");
    assert_eq!(status, 200);
    let file = bed.plane.log_dir().join("snapshot.jsonl");
    std::fs::write(&file, dump).expect("a file");
    let simulated = Command::new(binary())
        .args(["simulate", "--cycles", "1", "-f"])
        .arg(&file)
        .current_dir(root())
        .output()
        .expect("it runs");
    let stdout = String::from_utf8_lossy(&simulated.stdout);
    assert!(stdout.contains("test/a"), "{stdout}");
    assert!(stdout.contains("Insufficient cpu"), "{stdout}");
    assert_eq!(bed.scheduler(0).get("/healthz").0, 200);
    assert_eq!(bed.scheduler(0).get("/nothing").0, 404);
}
