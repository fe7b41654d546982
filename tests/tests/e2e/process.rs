//! The process: its flags, exit codes, replicas and health endpoints.

use std::{process::Command, thread, time::Duration};

use kube_batch_testbed::cluster::Options;
use serde_json::{Value, json};
use xtask_launcher::build::root;

use crate::bed::{Bed, SYSTEM, binary, group, job, nodes, pods};

#[test]
fn startup_errors_are_printed() {
    for (argument, message) in [
        ("--kubeconfig=/no/such/file", "kubeconfig /no/such/file does not exist"),
        ("--leader-elect", "--leader-elect needs --lock-object-namespace"),
        ("--listen-address=999.0.0.1:1", "cannot listen on 999.0.0.1:1"),
        ("--scheduler-conf=/no/such/conf", "cannot read configuration /no/such/conf"),
    ] {
        let output =
            Command::new(binary()).args(["run", argument]).output().expect("the binary runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{argument}: {stderr}");
        assert!(stderr.contains(message), "{argument}: {stderr}");
    }
}

/// A scheduler without permissions or without an API server reports what is missing, and works as
/// soon as that is available.
#[test]
fn readiness_reports_errors_until_they_are_resolved() {
    let mut bed = Bed::new(&nodes(1, "2"));
    let user = bed.plane.kubeconfig_for_user("unprivileged", &[]).expect("a kubeconfig");
    bed.spawn_scheduler_as(&user, &[]);
    // No server listens on this port.
    bed.spawn_scheduler(&["--master=https://127.0.0.1:1"]);
    for (row, error) in [(0, "cannot watch resource \"nodes\""), (1, "Connection refused")] {
        bed.eventually("/readyz fails and gives the reason", || {
            let (status, body) = bed.scheduler(row).get("/readyz");
            if status == 503 && body.contains(error) { Ok(()) } else { Err(body) }
        });
        assert_eq!(bed.scheduler(row).get("/healthz").0, 200, "a restart would not help");
    }
    let log = bed.scheduler(0).log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("missing permission")).collect();
    for rule in [
        r#"{apiGroups: [\"\"], resources: [nodes], verbs: [list, watch]}"#,
        "{apiGroups: [scheduling.sigs.dev], resources: [queues], verbs: [list, watch]}",
        "{apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [list, watch]}",
    ] {
        let n_lines = lines.iter().filter(|line| line.contains(rule)).count();
        assert_eq!(n_lines, 1, "each kind once: {rule} in {log}");
    }
    let (role, user) = ("--clusterrole=kube-batch", "--user=unprivileged");
    bed.kubectl(["create", "clusterrolebinding", "unprivileged", role, user]).expect("a binding");
    bed.wait_until_ready(0);
    bed.apply(&group("gang", 2));
    bed.apply(&job("gang", 2, "1"));
    bed.wait_until_running("gang", 2);
}

#[test]
fn an_api_server_of_another_authority_is_not_trusted() {
    let mut bed = Bed::new(&nodes(1, "2"));
    let options = Options { controllers: false, kwok: false, ..Options::default() };
    let other = Bed::empty_with_options(options);
    let trusted = bed.plane.service_account_kubeconfig(SYSTEM, "kube-batch").expect("a kubeconfig");
    let text = std::fs::read_to_string(&trusted).expect("a file");
    let authority = |bed: &Bed| bed.plane.certificate_authority().display().to_string();
    let text = text.replace(&authority(&bed), &authority(&other));
    let untrusted = bed.plane.log_dir().join("untrusted.kubeconfig");
    std::fs::write(&untrusted, text).expect("a file");
    let row = bed.spawn_scheduler_as(&untrusted, &[]);
    bed.eventually("/readyz names the certificate", || {
        let (status, body) = bed.scheduler(row).get("/readyz");
        if status == 503 && body.contains("invalid peer certificate") { Ok(()) } else { Err(body) }
    });
    // With the right authority, all else equal, it works.
    let row = bed.spawn_scheduler_as(&trusted, &[]);
    bed.wait_until_ready(row);
    assert_eq!(bed.scheduler(0).get("/readyz").0, 503);
}

#[test]
fn the_logs_say_what_was_decided() {
    let mut bed = Bed::new(&nodes(1, "2"));
    let audit = bed.plane.log_dir().join("audit.jsonl");
    bed.start_scheduler(&[&format!("--audit-log={}", audit.display()), "--v=0"]);
    bed.apply(&group("starts", 2));
    bed.apply(&job("starts", 2, "1"));
    bed.wait_until_running("starts", 2);
    bed.apply(&group("waits", 2));
    bed.apply(&job("waits", 2, "1"));
    bed.eventually("the log says what waits", || {
        let log = bed.scheduler(0).log();
        if log.contains("a job is unschedulable") { Ok(()) } else { Err(log) }
    });
    // Further cycles do not repeat it.
    bed.apply(&job("third", 1, "1"));
    bed.eventually("the third waits too", || {
        let pods = bed.list("pods").len();
        if pods == 5 { Ok(()) } else { Err(format!("{pods} pods")) }
    });
    let log = bed.scheduler(0).log();
    let count = |words: &[&str]| {
        log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    };
    for words in [
        &[
            "using the configuration",
            "actions=\"reclaim, allocate, backfill, preempt\"",
            "priority, gang",
        ][..],
        &["the queues", "default (weight 1)"],
        &["starting a gang", "job=test/starts", "min=2", "pods=2"],
        &["a job is unschedulable", "job=test/waits", "NotEnoughResources", "Insufficient cpu"],
    ] {
        assert_eq!(count(words), 1, "{words:?} once in {log}");
    }
    let audit = std::fs::read_to_string(audit).expect("an audit log");
    let lines: Vec<Value> =
        audit.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert_eq!(lines.len(), 2, "{audit}");
    for line in lines {
        assert_eq!((&line["decision"], &line["job"]), (&json!("bind"), &json!("test/starts")));
        assert_eq!(line["queue"], "default");
        assert!(line["node"].is_string() && line["time"].is_string() && line["cycle"].is_string());
    }
}

#[test]
fn an_invalid_configuration_keeps_the_previous_one() {
    let mut bed = Bed::new(&nodes(1, "2"));
    let path = bed.plane.log_dir().join("scheduler.yaml");
    let valid =
        std::fs::read_to_string(root().join("examples/scheduler.yaml")).expect("the sample");
    std::fs::write(&path, &valid).expect("a file");
    bed.start_scheduler(&[&format!("--scheduler-conf={}", path.display())]);
    let wait_for_metric = |wanted: f64| {
        bed.eventually(&format!("kube_batch_config_valid is {wanted}"), || {
            let valid = bed.scheduler(0).metric("kube_batch_config_valid");
            if valid == wanted { Ok(()) } else { Err(format!("it is {valid}")) }
        });
    };
    wait_for_metric(1.0);
    // A file that an editor has written only in part, up to the middle of a word.
    let (part, _) = valid.split_once("ugins:").expect("the sample has plugins");
    std::fs::write(&path, part).expect("a file");
    wait_for_metric(0.0);
    bed.apply(&group("gang", 2));
    bed.apply(&job("gang", 2, "1"));
    bed.wait_until_running("gang", 2);
    std::fs::write(&path, &valid).expect("a file");
    wait_for_metric(1.0);
}

fn is_leader(bed: &Bed, row: usize) -> Result<(), String> {
    if bed.scheduler(row).is_leader() { Ok(()) } else { Err("it is not".to_owned()) }
}

#[test]
fn another_replica_takes_over_when_the_leader_is_killed() {
    let namespace = format!("--lock-object-namespace={SYSTEM}");
    let periods = ["--lease-duration=4s", "--renew-deadline=3s", "--retry-period=1s"];
    let election = [&["--leader-elect", &*namespace], &periods[..]].concat();
    let mut bed = Bed::new(&nodes(4, "8"));
    bed.start_scheduler(&election);
    bed.eventually("the first replica is the leader", || is_leader(&bed, 0));
    bed.start_scheduler(&election);
    assert!(!bed.scheduler(1).is_leader(), "there is only one leader");

    bed.apply(&group("burst", 30));
    bed.apply(&job("burst", 30, "1"));
    bed.take_scheduler(0).kill();
    bed.wait_until_running("burst", 30);
    assert!(bed.scheduler(0).is_leader());

    // On SIGTERM the leader releases the lease and exits with code 0.
    bed.start_scheduler(&election);
    assert_eq!(bed.take_scheduler(0).terminate(), Some(0));
    bed.eventually("the third replica is the leader", || is_leader(&bed, 0));
}

/// Several leaders are killed, each at another time between the first decision about a gang and its
/// last binding.
#[test]
fn every_pod_is_bound_once_although_leaders_are_killed() {
    let namespace = format!("--lock-object-namespace={SYSTEM}");
    let periods = ["--lease-duration=2s", "--renew-deadline=1500ms", "--retry-period=300ms"];
    let election = [&["--leader-elect", &*namespace], &periods[..]].concat();
    let options = Options { audit: true, ..Options::default() };
    let mut bed = Bed::with_options(options, &nodes(8, "16"));
    bed.start_scheduler(&election);
    bed.eventually("the first replica is the leader", || is_leader(&bed, 0));
    // From immediately to when all pods are probably bound.
    for (round, delay) in [0, 20, 40, 80, 160, 320, 640].into_iter().enumerate() {
        bed.start_scheduler(&election);
        let burst = format!("burst-{round}");
        // All pods are created at once, not one by one as by the Job controller.
        bed.plane.create(&pods(&burst, 30, "500m")).expect("pods are created");
        bed.apply(&group(&burst, 30));
        thread::sleep(Duration::from_millis(delay));
        bed.take_scheduler(0).kill();
        // The gang fits, so the next leader binds its remaining pods.
        bed.wait_until_running(&burst, 30);
    }
    crate::outages::assert_bound_once(&bed, 210);
}

#[test]
fn a_debug_snapshot_can_be_simulated() {
    let mut bed = Bed::new(&nodes(1, "2"));
    bed.start_scheduler(&["--debug-snapshot"]);
    bed.apply(&group("a", 3));
    bed.apply(&job("a", 3, "1"));
    bed.eventually("the condition of the gang gives the reason", || {
        let status = bed.get("podgroups.scheduling.sigs.dev", "a")["status"].to_string();
        if status.contains("the whole cluster has 2") { Ok(()) } else { Err(status) }
    });
    bed.eventually("the metrics, which may be a second old, count its tasks", || {
        let waiting = bed.scheduler(0).metric("kube_batch_unschedule_task_count");
        if waiting == 3.0 { Ok(()) } else { Err(format!("{waiting}")) }
    });
    let (status, dump) = bed.scheduler(0).get("/debug/snapshot");
    assert_eq!(status, 200);
    let file = bed.plane.log_dir().join("snapshot.jsonl");
    std::fs::write(&file, dump).expect("a file");
    let simulated = Command::new(binary())
        .args(["simulate", "--cycles", "1", "-f"])
        .arg(&file)
        .current_dir(root())
        .output()
        .expect("the binary runs");
    let stdout = String::from_utf8_lossy(&simulated.stdout);
    assert!(stdout.contains("test/a"), "{stdout}");
    assert!(stdout.contains("the whole cluster has 2"), "{stdout}");
    assert_eq!(bed.scheduler(0).get("/healthz").0, 200);
    assert_eq!(bed.scheduler(0).get("/nothing").0, 404);
}
