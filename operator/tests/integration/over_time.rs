//! `kube-batch simulate` over time: objects that arrive, traces, and what queues use.

use serde_json::Value;

use crate::cli::{SMALL_CLUSTER, Scratch, kube_batch, one_pod_job, simulated, stderr, stdout};

fn arriving(name: &str, duration: &str, at: &str) -> String {
    let annotation =
        format!("metadata: {{name: {name}, annotations: {{kube-batch.sim/arrives-at: '{at}'}}}}");
    one_pod_job(name, duration).replacen(&format!("metadata: {{name: {name}}}"), &annotation, 1)
}

/// When each pod was created and bound.
fn times(outcome: &Value) -> Vec<[&str; 3]> {
    let pods = outcome["pods"].as_array().expect("pods").iter();
    let fields = ["pod", "created", "bound"];
    pods.map(|pod| fields.map(|field| pod[field].as_str().unwrap_or("-"))).collect()
}

#[test]
fn objects_arrive_at_the_time_of_their_annotation() {
    let jobs = one_pod_job("a", "10s")
        + &arriving("late", "10s", "2025-01-01T10:00:00Z")
        + &arriving("b", "10s", "1h30m")
        + &arriving("passed", "10s", "2024-01-01T00:00:00Z")
        + &arriving("c", "10s", "5403");
    let (outcome, messages) = simulated("arrives.yaml", &(SMALL_CLUSTER.to_owned() + &jobs));
    assert_eq!(messages, "");
    assert_eq!(
        times(&outcome),
        [
            ["default/a-0", "2025-01-01T00:00:00Z", "2025-01-01T00:00:01Z"],
            ["default/b-0", "2025-01-01T01:30:00Z", "2025-01-01T01:30:00Z"],
            // The node is free when b has ended.
            ["default/c-0", "2025-01-01T01:30:03Z", "2025-01-01T01:30:10Z"],
            ["default/late-0", "2025-01-01T10:00:00Z", "2025-01-01T10:00:00Z"],
            ["default/passed-0", "2025-01-01T00:00:01Z", "2025-01-01T00:00:11Z"],
        ]
    );
}

#[test]
fn an_object_with_a_bad_time_is_left_out() {
    let jobs = arriving("a", "10s", "soon") + &one_pod_job("b", "10s");
    let (outcome, messages) = simulated("soon.yaml", &(SMALL_CLUSTER.to_owned() + &jobs));
    assert!(
        messages.contains("Job a: metadata.annotations[kube-batch.sim/arrives-at]"),
        "{messages}"
    );
    assert_eq!(outcome["pods"].as_array().map(Vec::len), Some(1));
    // Problems of an object that arrives later are found when it is read.
    let bad = arriving("a", "never", "1h");
    let (_, messages) = simulated("never.yaml", &(SMALL_CLUSTER.to_owned() + &bad));
    assert!(messages.contains("kube-batch.sim/duration-seconds"), "{messages}");
}

#[test]
fn a_trace_says_what_its_queues_used() {
    let cluster = Scratch::new("of-trace.yaml", SMALL_CLUSTER.as_bytes());
    let rows = "submit_time,run_time,name,pods,cpu\n\
                0,1h,a,1,1\n\
                600,30m,b,1,1\n\
                later,30m,c,1,1\n\
                2h,30m,d,2,500m\n";
    let trace = Scratch::new("trace.csv", rows.as_bytes());
    let args = ["simulate", "-f", cluster.path(), "--trace", trace.path()];
    let output = kube_batch(&[&args[..], &["-o", "json"]].concat());
    let messages = stderr(&output);
    assert!(messages.contains("trace.csv:4") && messages.contains("submit_time"), "{messages}");
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let queue = &outcome["queues"][0];
    // b waits until a has ended after an hour, which begins one second after the simulation.
    let waits = &queue["waits"];
    assert_eq!((&waits["pods"], &waits["longestSeconds"]), (&4.into(), &3001.into()));
    assert_eq!((&waits["p50Seconds"], &waits["p95Seconds"]), (&0.into(), &3001.into()));
    assert_eq!(queue["hours"]["cpu"], 2.0);
    assert_eq!(queue["evictions"], 0);

    let table = stdout(&kube_batch(&args));
    let (_, over_time) = table.split_once("OVER TIME\n").expect("it is long");
    let mut lines = over_time.lines();
    assert_eq!(lines.next(), Some("QUEUE    PODS  WAITED p50    p95  LONGEST  EVICTED  CPU HOURS"));
    let row: Vec<&str> = lines.next().expect("a queue").split_whitespace().collect();
    assert_eq!(row, ["default", "4", "0s", "50m1s", "50m1s", "0", "2.0"]);
    let picture = stdout(&kube_batch(&[&args[..], &["-o", "svg"]].concat()));
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"), "{picture}");
    for part in [">default<", ">up to 1 cpu<", ">a<", ">1h<"] {
        assert!(picture.contains(part), "{part} in {picture}");
    }
}
