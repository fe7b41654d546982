//! The mistakes of a first afternoon: each is explained by what a user looks at anyway, `kubectl
//! describe` of the PodGroup or of a pod, within seconds.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, binary, group, job, nodes, queue};

/// How long a user has to wait for the reason at most. That a gang lacks pods is reported a second
/// later than anything else.
const LONGEST: Duration = Duration::from_secs(15);

fn changed(mut object: Value, path: &str, value: Value) -> Value {
    *object.pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = value;
    object
}

/// A Job with another field in the spec of its pods.
fn with_pod_field(mut job: Value, field: &str, value: Value) -> Value {
    job["spec"]["template"]["spec"][field] = value;
    job
}

/// Waits until `kubectl describe` shows all the words, and prints how long that took.
fn explains(bed: &Bed, mistake: &str, object: &[&str], words: &[&str]) {
    let started = Instant::now();
    bed.eventually(&format!("{mistake} is explained"), || {
        let [kind, name] = object else { panic!("a kind and a name") };
        let name = match *kind {
            // Any pod of the Job.
            "pod" => {
                let pods = bed.pods_in(name, "Pending");
                let pod = pods.first().ok_or_else(|| "no pod".to_owned())?;
                pod["metadata"]["name"].as_str().expect("a name").to_owned()
            }
            _ => (*name).to_owned(),
        };
        let text = bed.kubectl(["describe", kind, &name, "--namespace", NAMESPACE])?;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.iter().all(|word| text.contains(word)) { Ok(()) } else { Err(text) }
    });
    let took = started.elapsed();
    println!("{mistake}: {:.1} s, kubectl describe {}", took.as_secs_f64(), object.join(" "));
    assert!(took < LONGEST, "{mistake}: {took:?}");
}

const GROUP: &str = "podgroup.scheduling.sigs.dev";

#[test]
fn each_mistake_is_explained_by_kubectl() {
    let mut bed = Bed::new(&nodes(2, "4"));
    bed.start_scheduler(&[]);
    a_missing_queue(&bed);
    a_gang_larger_than_the_cluster(&bed);
    another_scheduler(&bed);
    a_wrong_annotation(&bed);
    a_gang_above_the_limit_of_its_queue(&bed);
    a_cordoned_and_a_tainted_node(&bed);
    an_unbound_claim(&bed);
    a_missing_priority_class(&bed);
    a_typing_error_in_the_configuration(&bed);
}

fn a_missing_queue(bed: &Bed) {
    bed.apply(&group("no-queue", 2));
    bed.kubectl([
        "patch",
        GROUP,
        "no-queue",
        "--namespace",
        NAMESPACE,
        "--type=merge",
        "--patch={\"spec\":{\"queue\":\"missing\"}}",
    ])
    .expect("a patch");
    bed.apply(&job("no-queue", 2, "1"));
    let words = &["QueueNotFound", "queue \"missing\" does not exist"];
    explains(bed, "missing queue", &[GROUP, "no-queue"], words);
    explains(bed, "missing queue", &["pod", "no-queue"], &words[1..]);
}

fn a_gang_larger_than_the_cluster(bed: &Bed) {
    bed.apply(&group("large", 3));
    bed.apply(&job("large", 3, "3"));
    let words = &["NeverFits", "never fits", "request 9 cpu, and the whole cluster has 8"];
    explains(bed, "too large a gang", &[GROUP, "large"], words);
}

fn another_scheduler(bed: &Bed) {
    bed.apply(&group("other", 2));
    let other = with_pod_field(job("other", 2, "1"), "schedulerName", json!("default-scheduler"));
    bed.apply(&other);
    let words = &["NotEnoughTasks", "default-scheduler"];
    explains(bed, "wrong schedulerName", &[GROUP, "other"], words);
}

fn a_wrong_annotation(bed: &Bed) {
    bed.apply(&group("annotated", 2));
    let annotation = "/spec/template/metadata/annotations/scheduling.k8s.io~1group-name";
    bed.apply(&changed(job("annotated", 2, "1"), annotation, json!("typo")));
    let words = &["PodGroup test/typo does not exist"];
    explains(bed, "wrong annotation", &["pod", "annotated"], words);
    explains(bed, "wrong annotation", &[GROUP, "annotated"], &["NotEnoughTasks"]);
}

fn a_gang_above_the_limit_of_its_queue(bed: &Bed) {
    let mut limited = queue("limited", 1);
    limited["spec"]["capability"] = json!({"cpu": "1"});
    bed.apply(&limited);
    let mut capped = group("capped", 2);
    capped["spec"]["queue"] = json!("limited");
    bed.apply(&capped);
    bed.apply(&job("capped", 2, "1"));
    let words = &["QueueCapability", "request 2 cpu, and queue \"limited\" is limited to 1"];
    explains(bed, "capability", &[GROUP, "capped"], words);
}

fn a_cordoned_and_a_tainted_node(bed: &Bed) {
    let names: Vec<String> = bed
        .list_all("nodes")
        .iter()
        .map(|node| node["metadata"]["name"].as_str().expect("a name").to_owned())
        .collect();
    let [first, second] = &names[..] else { panic!("two nodes: {names:?}") };
    bed.kubectl(["cordon", first]).expect("cordoned");
    bed.kubectl(["taint", "nodes", second, "team=a:NoSchedule"]).expect("tainted");
    bed.apply(&group("shut-out", 2));
    bed.apply(&job("shut-out", 2, "1"));
    let words = &["1 node(s) were unschedulable"];
    explains(bed, "cordon", &[GROUP, "shut-out"], words);
    let words = &["1 node(s) had untolerated taint(s)"];
    explains(bed, "taint", &["pod", "shut-out"], words);
    bed.kubectl(["uncordon", first]).expect("uncordoned");
    bed.wait_until_running("shut-out", 2);
    bed.kubectl(["taint", "nodes", second, "team-"]).expect("untainted");
}

fn an_unbound_claim(bed: &Bed) {
    bed.apply(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": NAMESPACE},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
                 "resources": {"requests": {"storage": "1Gi"}}},
    }));
    bed.apply(&group("unbound", 1));
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    bed.apply(&with_pod_field(job("unbound", 1, "1"), "volumes", volumes));
    let words = &["VolumeNotReady", "unbound immediate PersistentVolumeClaims"];
    explains(bed, "unbound claim", &[GROUP, "unbound"], words);
}

fn a_missing_priority_class(bed: &Bed) {
    let mut ranked = group("ranked", 1);
    ranked["spec"]["priorityClassName"] = json!("missing");
    bed.apply(&ranked);
    bed.apply(&job("ranked", 1, "1"));
    let words =
        &["Misconfigured", "PriorityClassNotFound", "PriorityClass \"missing\" does not exist"];
    explains(bed, "missing PriorityClass", &[GROUP, "ranked"], words);
    bed.wait_until_running("ranked", 1);
}

fn a_typing_error_in_the_configuration(bed: &Bed) {
    let conf = bed.plane.log_dir().join("typo.yaml");
    std::fs::write(&conf, "actions: allocate, backfil\ntiers: []\n").expect("a file");
    let started = Instant::now();
    let output = Command::new(binary())
        .args(["run", &format!("--scheduler-conf={}", conf.display())])
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("backfil") && text.contains("backfill"), "{text}");
    println!("configuration typo: {:.1} s, exit code 2", started.elapsed().as_secs_f64());
}
