//! Kinds of objects a job can be made of: both API groups, none at all, a budget, claims.

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
fn groupless(name: &str, n: usize, cpu: &str) -> Value {
    let mut job = job(name, n, cpu);
    job["spec"]["template"]["metadata"]["annotations"].take();
    job
}

fn waits(bed: &Bed, owner: &str, n_pods: usize) -> Result<(), String> {
    let (n_pending, n_running) =
        (bed.pods_in(owner, "Pending").len(), bed.pods_in(owner, "Running").len());
    if (n_pending, n_running) == (n_pods, 0) {
        Ok(())
    } else {
        Err(format!("{n_pending} wait, {n_running} run"))
    }
}

#[test]
fn both_api_groups_stand_side_by_side() {
    let mut bed = Bed::new(&nodes(2, "4"));
    bed.schedule(&[]);
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
    bed.runs("old-in-new", 2);
    bed.runs("new-in-old", 2);
    // Each object gets its own status, in its own group.
    for (resource, name, field, wanted) in [
        ("podgroups.scheduling.incubator.k8s.io", "old-in-new", "/status/running", json!(2)),
        ("podgroups.scheduling.sigs.dev", "new-in-old", "/status/running", json!(2)),
        ("queues.scheduling.incubator.k8s.io", "old", "/status/allocated/cpu", json!("2")),
        ("queues.scheduling.sigs.dev", "new", "/status/allocated/cpu", json!("2")),
    ] {
        bed.eventually(&format!("{resource} {name} says so"), || {
            let object = bed.get(resource, name);
            if object.pointer(field) == Some(&wanted) { Ok(()) } else { Err(object.to_string()) }
        });
    }
    // The capability of each queue applies to the jobs that name it.
    bed.apply(&in_queue(old_group("too-much", 1), "new"));
    bed.apply(&job("too-much", 1, "1"));
    bed.always("the queue is full", || waits(&bed, "too-much", 1));
}

#[test]
fn an_api_group_is_served_when_it_appears() {
    let mut bed = Bed::new(&nodes(1, "4"));
    let [groups, queues] =
        ["podgroups", "queues"].map(|kind| format!("{kind}.scheduling.sigs.dev"));
    bed.kubectl(["delete", "crd", &groups, &queues]).expect("deleted");
    bed.schedule(&[]);
    bed.apply(&groupless("early", 1, "1"));
    bed.runs("early", 1);
    bed.install();
    bed.apply(&group("late", 2));
    bed.apply(&job("late", 2, "1"));
    bed.runs("late", 2);
}

#[test]
fn the_default_queue_takes_who_names_none() {
    let mut bed = Bed::new(&nodes(1, "4"));
    bed.apply(&json!({
        "apiVersion": "scheduling.sigs.dev/v1alpha2",
        "kind": "Queue",
        "metadata": {"name": "everybody"},
        "spec": {"weight": 1, "capability": {"cpu": "2"}},
    }));
    bed.schedule(&["--default-queue=everybody"]);
    bed.apply(&group("named-none", 1));
    bed.apply(&job("named-none", 1, "1"));
    bed.apply(&groupless("no-group", 1, "1"));
    bed.runs("named-none", 1);
    bed.runs("no-group", 1);
    bed.eventually("both count", || {
        let status = bed.get("queues.scheduling.sigs.dev", "everybody")["status"].clone();
        if status["allocated"]["cpu"] == "2" { Ok(()) } else { Err(status.to_string()) }
    });

    // Nothing is taken from a queue that is gone, and nothing more is given to it.
    bed.kubectl(["delete", "queues.scheduling.sigs.dev", "everybody"]).expect("deleted");
    bed.apply(&groupless("too-late", 1, "1"));
    bed.eventually("it says that the queue is missing", || {
        let text =
            bed.pods_in("too-late", "Pending").iter().map(Value::to_string).collect::<String>();
        if text.contains("everybody") { Ok(()) } else { Err(text) }
    });
    bed.runs("named-none", 1);
}

#[test]
fn pods_without_a_group_start_one_by_one() {
    let mut bed = Bed::new(&nodes(1, "2"));
    bed.schedule(&[]);
    bed.apply(&groupless("shadow", 3, "1"));
    bed.runs("shadow", 2);
    bed.eventually("the third says why it waits", || {
        let text =
            bed.pods_in("shadow", "Pending").iter().map(Value::to_string).collect::<String>();
        if text.contains("0/1 nodes are available: 1 Insufficient cpu.") {
            Ok(())
        } else {
            Err(text)
        }
    });
    // Those of other schedulers are none of its business.
    let mut foreign = groupless("foreign", 1, "0");
    foreign["spec"]["template"]["spec"]["schedulerName"] = json!("somebody-else");
    bed.apply(&foreign);
    bed.eventually("its pod is there", || waits(&bed, "foreign", 1));
    bed.always("nobody touches it", || {
        let pods = bed.pods_in("foreign", "Pending");
        if pods.iter().all(|pod| pod["status"]["conditions"].is_null()) {
            Ok(())
        } else {
            Err(pods[0].to_string())
        }
    });
}

#[test]
fn a_budget_makes_a_gang_of_its_controllers_pods() {
    let mut bed = Bed::new(&nodes(1, "2"));
    bed.schedule(&[]);
    let mut job = groupless("legacy", 3, "1");
    // Its pods come when the budget is there.
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
    bed.eventually("its pods are there", || waits(&bed, "legacy", 3));
    bed.always("two of three would fit, and do not start", || waits(&bed, "legacy", 3));
    let more = Nodes { prefix: "more".to_owned(), ..nodes(1, "1") };
    bed.plane.create_nodes(&more).expect("a node is made");
    bed.runs("legacy", 3);
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

/// A volume that only one node can use, and its class, both named `local`.
pub(crate) fn make_local_volume(bed: &Bed, node: &str) {
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
fn a_pod_follows_its_volume() {
    let mut bed = Bed::new(&nodes(3, "2"));
    bed.schedule(&[]);
    make_local_volume(&bed, "node-00002");
    bed.apply(&claim("local", "local"));
    bed.apply(&with_claim(job("local", 1, "1"), "local"));
    bed.apply(&group("local", 1));
    // One that is bound before anybody uses it.
    bed.apply(&claim("bound", "immediate"));
    bed.apply(&with_claim(job("bound", 1, "1"), "bound"));
    bed.apply(&group("bound", 1));
    // One that is made when its pod has a node.
    bed.apply(&claim("made", "first-consumer"));
    bed.apply(&with_claim(job("made", 1, "1"), "made"));
    bed.apply(&group("made", 1));
    for name in ["local", "bound", "made"] {
        bed.runs(name, 1);
        assert_eq!(bed.get("persistentvolumeclaims", name)["status"]["phase"], "Bound", "{name}");
    }
    assert_eq!(bed.pods_in("local", "Running")[0]["spec"]["nodeName"], "node-00002");
    let node = bed.pods_in("made", "Running")[0]["spec"]["nodeName"].clone();
    let selected = bed.get("persistentvolumeclaims", "made")["metadata"]["annotations"]
        ["volume.kubernetes.io/selected-node"]
        .clone();
    assert_eq!(selected, node);

    // A gang whose last member has no claim waits as a whole, and no volume is made for it.
    bed.apply(&claim("first", "first-consumer"));
    bed.apply(&group("gang", 2));
    for (name, claim) in [("gang-0", "first"), ("gang-1", "missing")] {
        let mut member = with_claim(job(name, 1, "100m"), claim);
        member["spec"]["template"]["metadata"]["annotations"]["scheduling.k8s.io/group-name"] =
            json!("gang");
        bed.apply(&member);
    }
    bed.eventually("the member says what is missing", || {
        let pods = bed.pods_in("gang-1", "Pending");
        let text = pods.iter().map(Value::to_string).collect::<String>();
        if text.contains("missing") { Ok(()) } else { Err(text) }
    });
    bed.always("no volume is made", || {
        let claim = bed.get("persistentvolumeclaims", "first");
        let is_chosen =
            claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_string();
        if is_chosen { Err(claim.to_string()) } else { Ok(()) }
    });
    bed.apply(&claim("missing", "first-consumer"));
    bed.runs("gang-0", 1);
    bed.runs("gang-1", 1);
}
