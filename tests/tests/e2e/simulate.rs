//! `kube-batch simulate --kubeconfig`: a simulation of the cluster as it is.

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

use crate::bed::{Bed, NAMESPACE, binary, group, job, nodes, queue};

fn simulate(kubeconfig: &Path, flags: &[&str]) -> Output {
    Command::new(binary())
        .args(["simulate", "-o", "json", "--kubeconfig"])
        .arg(kubeconfig)
        .args(flags)
        .output()
        .expect("the binary runs")
}

fn outcome(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The pods of a running scheduler stay where they are, those that wait are placed in the
/// simulation, and the cluster does not change.
#[test]
fn a_cluster_is_simulated_and_not_changed() {
    let mut bed = Bed::new(&nodes(1, "4"));
    bed.apply(&queue("default", 1));
    bed.start_scheduler(&[]);
    bed.apply(&group("runs", 2));
    bed.apply(&job("runs", 2, "1"));
    bed.wait_until_running("runs", 2);
    bed.take_scheduler(0).kill();
    bed.apply(&group("waits", 2));
    bed.apply(&job("waits", 2, "1"));
    bed.eventually("the pods of the second job exist", || {
        let n_pods = bed.pods_in("waits", "Pending").len();
        if n_pods == 2 { Ok(()) } else { Err(format!("{n_pods} pods")) }
    });

    let kubeconfig = bed.plane.kubeconfig();
    let output = simulate(&kubeconfig, &[]);
    let result = outcome(&output);
    let binds = result["cycles"][0]["binds"].as_array().expect("binds");
    let names: Vec<&str> = binds.iter().filter_map(|bind| bind["pod"].as_str()).collect();
    assert_eq!(names.len(), 2, "{result}");
    assert!(names.iter().all(|name| name.starts_with(&format!("{NAMESPACE}/waits-"))), "{names:?}");
    assert_eq!(result["nodes"][0]["used"]["cpu"], "4");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, "", "an administrator may read everything");
    assert_eq!(bed.pods_in("waits", "Pending").len(), 2, "the cluster has not changed");

    let missing = simulate(&kubeconfig, &["--context", "nowhere"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("nowhere"));
}

/// A user reads what the role permits; the rest is reported.
#[test]
fn what_a_user_may_not_read_is_reported() {
    let bed = Bed::new(&nodes(1, "4"));
    let user = bed.plane.kubeconfig_for_user("viewer", &[]).expect("a kubeconfig");
    bed.kubectl(["create", "clusterrole", "nodes", "--verb=list", "--resource=nodes"])
        .expect("a role");
    bed.kubectl(["create", "clusterrolebinding", "nodes", "--clusterrole=nodes", "--user=viewer"])
        .expect("a binding");
    bed.kubectl([
        "create",
        "role",
        "pods",
        "--verb=list",
        "--resource=pods",
        "--namespace=default",
    ])
    .expect("a role");
    bed.kubectl([
        "create",
        "rolebinding",
        "pods",
        "--role=pods",
        "--user=viewer",
        "--namespace=default",
    ])
    .expect("a binding");
    bed.eventually("the user may read nodes and the pods of a namespace", || {
        let output = simulate(&user, &[]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let denied: Vec<&str> = stderr.lines().filter(|line| line.contains("you may ")).collect();
        let [denied] = denied[..] else { return Err(stderr) };
        let parts = [
            "you may not read queues, podgroups, ",
            ", and read pods only in namespace default: ",
            "more kinds",
            "jobs wait, because their queues do not exist",
        ];
        let is_met = parts.iter().all(|part| denied.contains(part)) && !denied.contains("nodes,");
        if is_met { Ok(()) } else { Err(stderr) }
    });
    let result = outcome(&simulate(&user, &[]));
    assert_eq!(result["nodes"].as_array().map(Vec::len), Some(1));
}
