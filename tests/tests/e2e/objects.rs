//! The objects that define a job: PodGroups of both API groups, pods without a group, disruption
//! budgets, claims.

use kube_batch_testbed::nodes::Nodes;
use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, group, job, nodes};

/// A PodGroup of the older API group.
pub(crate) fn old_group(name: &str, min_member: usize) -> Value {
    let mut group = group(name, min_member);
    group["apiVersion"] = json!("scheduling.incubator.k8s.io/v1alpha1");
    group
}

fn in_queue(mut group: Value, queue: &str) -> Value {
    group["spec"]["queue"] = json!(queue);
    group
}

/// A Job whose pods name no PodGroup.
fn job_without_group(name: &str, n: usize, cpu: &str) -> Value {
    let mut job = job(name, n, cpu);
    job["spec"]["template"]["metadata"]["annotations"].take();
    job
}

fn is_pending(bed: &Bed, owner: &str, n_pods: usize) -> Result<(), String> {
    let (n_pending, n_running) =
        (bed.pods_in(owner, "Pending").len(), bed.pods_in(owner, "Running").len());
    if (n_pending, n_running) == (n_pods, 0) {
        Ok(())
    } else {
        Err(format!("{n_pending} are pending, {n_running} are running"))
    }
}

#[test]
fn both_api_groups_work_together() {
    let mut bed = Bed::new(&nodes(2, "4"));
    bed.install_older_group();
    bed.start_scheduler(&[]);
    for (version, api_group, queue) in [
        ("v1alpha1", "scheduling.incubator.k8s.io", "old"),
        ("v1alpha2", "scheduling.sigs.dev", "new"),
    ] {
        bed.apply(&json!({
            "apiVersion": format!("{api_group}/{version}"),
            "kind": "Queue",
            "metadata": {"name": queue},
            "spec": {"weight": 1, "capability": {"cpu": "2"}},
        }));
    }
    // A group of one API group may name a queue of the other.
    bed.apply(&in_queue(old_group("old-in-new", 2), "new"));
    bed.apply(&job("old-in-new", 2, "1"));
    bed.apply(&in_queue(group("new-in-old", 2), "old"));
    bed.apply(&job("new-in-old", 2, "1"));
    bed.wait_until_running("old-in-new", 2);
    bed.wait_until_running("new-in-old", 2);
    // The status of each object is written in its own API group.
    for (resource, name, field, wanted) in [
        ("podgroups.scheduling.incubator.k8s.io", "old-in-new", "/status/running", json!(2)),
        ("podgroups.scheduling.sigs.dev", "new-in-old", "/status/running", json!(2)),
        ("queues.scheduling.incubator.k8s.io", "old", "/status/allocated/cpu", json!("2")),
        ("queues.scheduling.sigs.dev", "new", "/status/allocated/cpu", json!("2")),
    ] {
        bed.eventually(&format!("{field} of {resource} {name} is {wanted}"), || {
            let object = bed.get(resource, name);
            if object.pointer(field) == Some(&wanted) { Ok(()) } else { Err(object.to_string()) }
        });
    }
    // The capability of each queue applies to the jobs that name it.
    bed.apply(&in_queue(old_group("too-much", 1), "new"));
    bed.apply(&job("too-much", 1, "1"));
    bed.expect_waiting("too-much");
}

fn has_default_queue_in(bed: &Bed, api_group: &str) {
    bed.eventually(&format!("the default queue exists in {api_group}"), || {
        bed.kubectl(["get", &format!("queues.{api_group}"), "default"]).map(drop)
    });
}

#[test]
fn the_older_api_group_can_be_installed_later() {
    let mut bed = Bed::new(&nodes(1, "4"));
    bed.start_scheduler(&[]);
    has_default_queue_in(&bed, "scheduling.sigs.dev");
    bed.apply(&group("early", 1));
    bed.apply(&job("early", 1, "1"));
    bed.wait_until_running("early", 1);
    bed.install_older_group();
    bed.apply(&old_group("late", 2));
    bed.apply(&job("late", 2, "1"));
    bed.wait_until_running("late", 2);
}

#[test]
fn the_newer_api_group_can_be_installed_later() {
    let mut bed = Bed::new(&nodes(1, "4"));
    bed.install_older_group();
    let [groups, queues] =
        ["podgroups", "queues"].map(|kind| format!("{kind}.scheduling.sigs.dev"));
    bed.kubectl(["delete", "crd", &groups, &queues]).expect("deleted");
    bed.start_scheduler(&[]);
    has_default_queue_in(&bed, "scheduling.incubator.k8s.io");
    bed.apply(&old_group("early", 1));
    bed.apply(&job("early", 1, "1"));
    bed.wait_until_running("early", 1);
    bed.install();
    bed.apply(&group("late", 2));
    bed.apply(&job("late", 2, "1"));
    bed.wait_until_running("late", 2);
}

#[test]
fn jobs_that_name_no_queue_use_the_default_queue() {
    let mut bed = Bed::new(&nodes(1, "4"));
    bed.apply(&json!({
        "apiVersion": "scheduling.sigs.dev/v1alpha2",
        "kind": "Queue",
        "metadata": {"name": "catch-all"},
        "spec": {"weight": 1, "capability": {"cpu": "2"}},
    }));
    bed.start_scheduler(&["--default-queue=catch-all"]);
    bed.apply(&group("named-none", 1));
    bed.apply(&job("named-none", 1, "1"));
    bed.apply(&job_without_group("no-group", 1, "1"));
    bed.wait_until_running("named-none", 1);
    bed.wait_until_running("no-group", 1);
    bed.eventually("the queue counts the pods of both jobs", || {
        let status = bed.get("queues.scheduling.sigs.dev", "catch-all")["status"].clone();
        if status["allocated"]["cpu"] == "2" { Ok(()) } else { Err(status.to_string()) }
    });

    // After the queue is deleted, its pods keep running and no more pods start.
    bed.kubectl(["delete", "queues.scheduling.sigs.dev", "catch-all"]).expect("deleted");
    bed.apply(&job_without_group("too-late", 1, "1"));
    bed.eventually("the pod reports that the queue does not exist", || {
        let text =
            bed.pods_in("too-late", "Pending").iter().map(Value::to_string).collect::<String>();
        if text.contains("catch-all") { Ok(()) } else { Err(text) }
    });
    bed.wait_until_running("named-none", 1);
}

#[test]
fn pods_without_a_group_start_one_by_one() {
    let mut bed = Bed::new(&nodes(1, "2"));
    bed.start_scheduler(&[]);
    bed.apply(&job_without_group("shadow", 3, "1"));
    bed.wait_until_running("shadow", 2);
    bed.eventually("the third pod reports why it is pending", || {
        let text =
            bed.pods_in("shadow", "Pending").iter().map(Value::to_string).collect::<String>();
        let words = "its pods name no PodGroup, so each starts by itself; it fits on no node: 0/1 nodes are available: 1 \
                     Insufficient cpu";
        if text.contains(words) {
            Ok(())
        } else {
            Err(text)
        }
    });
    // The scheduler ignores pods of other schedulers.
    let mut foreign = job_without_group("foreign", 1, "0");
    foreign["spec"]["template"]["spec"]["schedulerName"] = json!("another-scheduler");
    bed.apply(&foreign);
    bed.eventually("the pod exists", || is_pending(&bed, "foreign", 1));
    bed.consistently("the pod has no conditions", || {
        let pods = bed.pods_in("foreign", "Pending");
        if pods.iter().all(|pod| pod["status"]["conditions"].is_null()) {
            Ok(())
        } else {
            Err(pods[0].to_string())
        }
    });
}

#[test]
fn a_disruption_budget_sets_the_minimum_of_its_controllers_pods() {
    let mut bed = Bed::new(&nodes(1, "2"));
    bed.start_scheduler(&[]);
    let mut job = job_without_group("legacy", 3, "1");
    // The pods are created after the budget.
    job["spec"]["suspend"] = json!(true);
    bed.apply(&job);
    let uid = bed.get("jobs", "legacy")["metadata"]["uid"].clone();
    bed.apply(&json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "legacy", "namespace": NAMESPACE, "ownerReferences": [{
            "apiVersion": "batch/v1", "kind": "Job", "name": "legacy", "uid": uid, "controller": true,
        }]},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {"of": "legacy"}}},
    }));
    job["spec"]["suspend"] = json!(false);
    bed.apply(&job);
    bed.eventually("the pods exist", || is_pending(&bed, "legacy", 3));
    bed.consistently("no pod starts although two of three fit", || is_pending(&bed, "legacy", 3));
    let more = Nodes { prefix: "more".to_owned(), ..nodes(1, "1") };
    bed.plane.create_nodes(&more).expect("a node is created");
    bed.wait_until_running("legacy", 3);
}

pub(crate) fn claim(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

pub(crate) fn with_claim(mut job: Value, claim: &str) -> Value {
    let pod = &mut job["spec"]["template"]["spec"];
    pod["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    pod["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    job
}

/// Creates a volume that only one node can use, and its class, both named `local`.
pub(crate) fn create_local_volume(bed: &Bed, node: &str) {
    bed.apply(&json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "local"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
            ]}]}},
        },
    }));
    bed.apply(&json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }));
}

#[test]
fn a_pod_is_placed_where_its_volume_is() {
    let mut bed = Bed::new(&nodes(3, "2"));
    bed.start_scheduler(&[]);
    create_local_volume(&bed, "node-00002");
    bed.apply(&claim("local", "local"));
    bed.apply(&with_claim(job("local", 1, "1"), "local"));
    bed.apply(&group("local", 1));
    // A claim that is bound before a pod uses it.
    bed.apply(&claim("bound", "immediate"));
    bed.apply(&with_claim(job("bound", 1, "1"), "bound"));
    bed.apply(&group("bound", 1));
    // A claim whose volume is provisioned after its pod has a node.
    bed.apply(&claim("provisioned", "first-consumer"));
    bed.apply(&with_claim(job("provisioned", 1, "1"), "provisioned"));
    bed.apply(&group("provisioned", 1));
    for name in ["local", "bound", "provisioned"] {
        bed.wait_until_running(name, 1);
        assert_eq!(bed.get("persistentvolumeclaims", name)["status"]["phase"], "Bound", "{name}");
    }
    assert_eq!(bed.pods_in("local", "Running")[0]["spec"]["nodeName"], "node-00002");
    let node = bed.pods_in("provisioned", "Running")[0]["spec"]["nodeName"].clone();
    let selected = bed.get("persistentvolumeclaims", "provisioned")["metadata"]["annotations"]
        ["volume.kubernetes.io/selected-node"]
        .clone();
    assert_eq!(selected, node);

    // If the claim of one pod does not exist, the whole gang waits, and no volume is provisioned.
    bed.apply(&claim("first", "first-consumer"));
    bed.apply(&group("gang", 2));
    for (name, claim) in [("gang-0", "first"), ("gang-1", "missing")] {
        let mut member = with_claim(job(name, 1, "100m"), claim);
        member["spec"]["template"]["metadata"]["annotations"]["scheduling.k8s.io/group-name"] =
            json!("gang");
        bed.apply(&member);
    }
    bed.eventually("the pod reports the missing claim", || {
        let pods = bed.pods_in("gang-1", "Pending");
        let text = pods.iter().map(Value::to_string).collect::<String>();
        if text.contains("missing") { Ok(()) } else { Err(text) }
    });
    bed.consistently("no node is selected for the other claim", || {
        let claim = bed.get("persistentvolumeclaims", "first");
        let is_selected =
            claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_string();
        if is_selected { Err(claim.to_string()) } else { Ok(()) }
    });
    bed.apply(&claim("missing", "first-consumer"));
    bed.wait_until_running("gang-0", 1);
    bed.wait_until_running("gang-1", 1);
}
