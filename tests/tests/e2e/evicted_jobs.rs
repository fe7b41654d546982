//! What the Job controller makes of pods that were evicted, and whether `simulate` predicts it.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use xtask_launcher::build::root;

use crate::{
    bed::{Bed, NAMESPACE, binary, group, job, nodes, priority_class, queue},
    users::bind_in_namespace,
};

/// Pods that a reclaim takes from the Job: more than the `backoffLimit` of Kubernetes, 6.
const N_EVICTED: usize = 8;

/// A cluster in which a Job holds twice what its queue deserves; its scheduler has ended.
fn borrowed(spec: &Value) -> Bed {
    let mut bed = Bed::new(&nodes(2, "8"));
    bed.apply(&queue("research", 1));
    bed.apply(&queue("training", 1));
    bed.start_scheduler(&[]);
    submit(&bed, "sweep", "research", 1, 2 * N_EVICTED, spec);
    bed.wait_until_running("sweep", 2 * N_EVICTED);
    if spec["podFailurePolicy"].is_null() {
        let words = "Job sweep fails for good if more than 6 of its pods are evicted; add to the spec of the Job: \
                     podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}";
        says(&bed, "sweep", &["FailsWhenEvicted", words]);
    }
    bed.take_scheduler(0).kill();
    bed
}

/// Waits until a user with the role `edit` reads all the words about a PodGroup, and prints how long that took.
fn says(bed: &Bed, name: &str, words: &[&str]) {
    bind_in_namespace(bed, USER, "edit");
    let started = Instant::now();
    bed.eventually(&format!("{name} says why"), || {
        let args = ["describe", GROUP, name, "--namespace", NAMESPACE, "--as", USER];
        let text = bed.plane.kubectl(args).map_err(|error| error.to_string())?;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.iter().all(|words| text.contains(words)) { Ok(()) } else { Err(text) }
    });
    println!("{name}: {:.1} s: {}", started.elapsed().as_secs_f64(), words.join(" … "));
}

const GROUP: &str = "podgroups.scheduling.sigs.dev";

/// A user who may do what the role `edit` allows.
const USER: &str = "dana";

/// Applies a PodGroup in a queue and its Job, with more fields in the spec of the Job.
fn submit(bed: &Bed, name: &str, queue: &str, min: usize, n_pods: usize, spec: &Value) {
    let mut group = group(name, min);
    group["spec"]["queue"] = json!(queue);
    bed.apply(&group);
    let mut job = job(name, n_pods, "1");
    for (field, value) in spec.as_object().into_iter().flatten() {
        job["spec"][field] = value.clone();
    }
    bed.apply(&job);
}

/// The gang that takes back what its queue deserves.
fn reclaim(bed: &Bed) {
    submit(bed, "due", "training", N_EVICTED, N_EVICTED, &json!({}));
    bed.eventually("the pods of the gang exist", || {
        let n_pods = bed.pods_in("due", "Pending").len();
        if n_pods == N_EVICTED { Ok(()) } else { Err(format!("{n_pods} exist")) }
    });
}

/// What `simulate` says of a PodGroup after this time: `running`, `pending`, and the reason of what it waits for.
fn predicted(bed: &Bed, name: &str, until: &str) -> (u64, u64, String) {
    let output = Command::new(binary())
        .args(["simulate", "-o", "json", "--until", until, "--config"])
        .arg(root().join("examples/scheduler.yaml"))
        .arg("--kubeconfig")
        .arg(bed.plane.kubeconfig())
        .output()
        .expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let groups = outcome["podGroups"].as_array().expect("PodGroups");
    let own = format!("{NAMESPACE}/{name}");
    let group = groups.iter().find(|group| group["podGroup"] == own.as_str());
    let group = group.unwrap_or_else(|| panic!("{own} is reported: {outcome}"));
    let count = |field: &str| group[field].as_u64().unwrap_or_default();
    let reason = group["reason"].as_str().unwrap_or_default().to_owned();
    (count("running"), count("pending"), reason)
}

/// The reason of the condition Failed of a Job, if it is True.
fn failed(bed: &Bed, name: &str) -> Option<String> {
    let job = bed.get("jobs", name);
    let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let failed = conditions.iter().find(|own| own["type"] == "Failed" && own["status"] == "True");
    failed.and_then(|own| own["reason"].as_str()).map(str::to_owned)
}

#[test]
fn a_job_that_loses_more_pods_than_its_limit_fails_as_predicted() {
    let mut bed = borrowed(&json!({}));
    reclaim(&bed);
    let sweep = predicted(&bed, "sweep", "30s");
    assert_eq!(sweep, (0, 0, "BackoffLimitExceeded".to_owned()));
    assert_eq!(predicted(&bed, "due", "30s").0, N_EVICTED as u64);

    bed.start_scheduler(&[]);
    bed.wait_until_running("due", N_EVICTED);
    bed.eventually("the Job has failed", || match failed(&bed, "sweep") {
        Some(reason) if reason == "BackoffLimitExceeded" => Ok(()),
        other => Err(format!("{other:?}, {}", bed.get("jobs", "sweep")["status"])),
    });
    bed.wait_until_running("sweep", 0);
    let words = "only 0 of the required 1 pods exist";
    let why = "Job sweep has failed (BackoffLimitExceeded) and creates no more";
    says(&bed, "sweep", &[words, why, "Phase: Completed"]);
}

#[test]
fn a_gang_whose_job_goes_on_is_evicted_first() {
    let mut bed = Bed::new(&nodes(2, "4"));
    bed.apply(&queue("default", 1));
    bed.apply(&priority_class("high", 1000));
    bed.start_scheduler(&[]);
    let ignores = json!({
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}],
        },
    });
    submit(&bed, "tolerant", "default", 4, 4, &ignores);
    bed.wait_until_running("tolerant", 4);
    // Younger, so it would be the first to leave.
    submit(&bed, "fragile", "default", 4, 4, &json!({"backoffLimit": 3}));
    bed.wait_until_running("fragile", 4);
    let mut group = group("urgent", 4);
    group["spec"]["queue"] = json!("default");
    group["spec"]["priorityClassName"] = json!("high");
    bed.apply(&group);
    bed.apply(&job("urgent", 4, "1"));
    bed.wait_until_running("urgent", 4);
    assert_eq!(failed(&bed, "fragile"), None);
    bed.wait_until_running("fragile", 4);
    bed.wait_until_running("tolerant", 0);
}

#[test]
fn a_pod_group_is_completed_when_its_job_is_deleted() {
    let mut bed = Bed::new(&nodes(1, "4"));
    bed.apply(&queue("default", 1));
    bed.start_scheduler(&[]);
    submit(&bed, "short", "default", 2, 2, &json!({}));
    bed.wait_until_running("short", 2);
    bed.kubectl(["delete", "job", "short", "--namespace", NAMESPACE]).expect("it is deleted");
    bed.eventually("the PodGroup is Completed", || {
        let phase = bed.get(GROUP, "short")["status"]["phase"].clone();
        let n_pending =
            bed.get("queues.scheduling.sigs.dev", "default")["status"]["pending"].clone();
        if phase == "Completed" && n_pending == 0 { Ok(()) } else { Err(phase.to_string()) }
    });
}

#[test]
fn a_job_that_ignores_evictions_gets_its_pods_back_after_ten_seconds() {
    let spec = json!({
        "completionMode": "Indexed",
        "backoffLimitPerIndex": 3,
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}],
        },
    });
    let mut bed = borrowed(&spec);
    reclaim(&bed);
    let n = N_EVICTED as u64;
    // Before the back-off has passed and after it: the pods exist again, and wait.
    assert_eq!(predicted(&bed, "sweep", "8s").0, n);
    assert_eq!(predicted(&bed, "sweep", "8s").1, 0);
    assert_eq!(predicted(&bed, "sweep", "30s").1, n);

    bed.start_scheduler(&[]);
    bed.wait_until_running("due", N_EVICTED);
    let evicted = Instant::now();
    bed.eventually("the pods that were evicted exist again", || {
        let n_pods = bed.pods_in("sweep", "Pending").len();
        if n_pods == N_EVICTED { Ok(()) } else { Err(format!("{n_pods} exist")) }
    });
    let late = evicted.elapsed();
    println!("the replacements exist {} ms after the gang runs", late.as_millis());
    assert!(late > Duration::from_secs(4), "{late:?}: there is no back-off any more: say so");
    assert_eq!(failed(&bed, "sweep"), None);
    assert_eq!(bed.get("jobs", "sweep")["status"]["failed"].as_u64().unwrap_or(0), 0);
}

#[test]
fn an_optional_policy_lets_jobs_ignore_evictions() {
    let bed = Bed::new(&nodes(1, "4"));
    bed.install_component("job-evictions");
    let rule = json!([{
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }]);
    // The policy takes effect after some time.
    bed.eventually("a Job gets the rule", || {
        drop(bed.kubectl([
            "delete",
            "job",
            "plain",
            "--namespace",
            NAMESPACE,
            "--ignore-not-found",
        ]));
        bed.apply(&job("plain", 1, "1"));
        let spec = bed.get("jobs", "plain")["spec"].clone();
        let has_rule = spec["podFailurePolicy"]["rules"] == rule;
        if has_rule && spec["podReplacementPolicy"] == "Failed" {
            Ok(())
        } else {
            Err(spec.to_string())
        }
    });
    let with = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut job = job(name, 1, "1");
        change(&mut job["spec"]);
        bed.apply(&job);
        bed.get("jobs", name)["spec"]["podFailurePolicy"].clone()
    };
    let other = |spec: &mut Value| spec["template"]["spec"]["schedulerName"] = json!("other");
    assert_eq!(with("other", &other), Value::Null);
    let restarts =
        |spec: &mut Value| spec["template"]["spec"]["restartPolicy"] = json!("OnFailure");
    assert_eq!(with("restarts", &restarts), Value::Null);
    let own =
        json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]});
    let has_own = with("own", &|spec: &mut Value| spec["podFailurePolicy"] = own.clone());
    assert_eq!(has_own["rules"][0]["action"], "FailJob");
}
