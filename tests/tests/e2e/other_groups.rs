//! PodGroups of other APIs: Kubernetes' own, as the Job controller creates them, those of Volcano, and those of
//! scheduler-plugins, side by side with ours.

use kube_batch_testbed::{cluster::Options, nodes::Nodes};
use serde_json::{Value, json};
use xtask_launcher::build::root;

use crate::bed::{Bed, NAMESPACE, SYSTEM, group, job, nodes, pods};

/// Kubernetes' own PodGroups.
const KUBERNETES: &str = "podgroups.scheduling.k8s.io";
/// Those of Volcano.
const VOLCANO: &str = "podgroups.scheduling.volcano.sh";
/// Those of scheduler-plugins.
const COSCHEDULING: &str = "podgroups.scheduling.x-k8s.io";

/// A cluster that serves Kubernetes' own PodGroups.
pub(crate) fn bed_with_own_groups(audit: bool, nodes: &Nodes) -> Bed {
    Bed::with_options(Options { pod_groups: true, audit, ..Options::default() }, nodes)
}

/// Installs small definitions of the PodGroups of Volcano and of scheduler-plugins.
pub(crate) fn install_other_definitions(bed: &Bed) {
    for (file, kind) in [("volcano.yaml", VOLCANO), ("coscheduling.yaml", COSCHEDULING)] {
        let path = root().join("tests/tests/e2e/crds").join(file);
        let path = path.to_str().expect("a plain path");
        bed.kubectl(["apply", "--filename", path]).expect("the definitions are valid");
        bed.eventually(&format!("{kind} are served"), || {
            bed.kubectl(["get", kind, "--all-namespaces"]).map(drop)
        });
    }
}

/// A Job whose pods name no PodGroup.
fn plain_job(name: &str, n_pods: usize) -> Value {
    let mut job = job(name, n_pods, "1");
    job["spec"]["template"]["metadata"]["annotations"].take();
    job
}

/// A Job that asks the Job controller for a gang of all its pods.
fn gang_job(name: &str, n_pods: usize) -> Value {
    let mut job = plain_job(name, n_pods);
    job["spec"]["scheduling"] = json!({"schedulingPolicy": {"gang": {}}});
    job
}

/// A PodGroup of Volcano, with minimum resources of one CPU a pod.
pub(crate) fn volcano_group(name: &str, n_pods: usize) -> Value {
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minMember": n_pods, "minResources": {"cpu": n_pods}},
    })
}

/// A PodGroup of scheduler-plugins.
pub(crate) fn coscheduling_group(name: &str, n_pods: usize) -> Value {
    json!({
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minMember": n_pods},
    })
}

/// A Job whose pods are for another scheduler name, and in a PodGroup of scheduler-plugins.
pub(crate) fn coscheduling_job(name: &str, n_pods: usize) -> Value {
    let mut job = plain_job(name, n_pods);
    let template = &mut job["spec"]["template"];
    template["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = json!(name);
    template["spec"]["schedulerName"] = json!("scheduler-plugins-scheduler");
    job
}

/// A Job whose pods are for Volcano's scheduler name.
pub(crate) fn volcano_job(name: &str, n_pods: usize) -> Value {
    let mut job = job(name, n_pods, "1");
    job["spec"]["template"]["spec"]["schedulerName"] = json!("volcano");
    job
}

/// The PodGroup that the Job controller has created for a Job.
fn own_group_of(bed: &Bed, job: &str) -> Option<Value> {
    let is_of_job = |group: &Value| {
        let owners = group["metadata"]["ownerReferences"].as_array();
        owners.is_some_and(|owners| owners.iter().any(|o| o["kind"] == "Job" && o["name"] == job))
    };
    bed.list(KUBERNETES).into_iter().find(is_of_job)
}

/// Waits until the PodGroup of a Job has its condition with this status and reason, and returns the message.
fn wait_for_condition(bed: &Bed, job: &str, status: &str, reason: &str) -> String {
    let condition = || {
        let group = own_group_of(bed, job).ok_or("there is no PodGroup")?;
        let condition = group["status"]["conditions"][0].clone();
        let is_right = condition["type"] == "PodGroupInitiallyScheduled"
            && condition["status"] == status
            && condition["reason"] == reason;
        if is_right { Ok(condition) } else { Err(group["status"].to_string()) }
    };
    bed.eventually(&format!("the PodGroup of {job} is {status}, {reason}"), || {
        condition().map(drop)
    });
    let condition = condition().expect("it was there");
    condition["message"].as_str().unwrap_or_default().to_owned()
}

fn wait_for_phase(bed: &Bed, kind: &str, name: &str, phase: &str) {
    bed.eventually(&format!("{name} is {phase}"), || {
        let status = bed.get(kind, name)["status"].clone();
        if status["phase"] == phase { Ok(()) } else { Err(status.to_string()) }
    });
}

#[test]
fn jobs_with_and_without_a_gang_of_kubernetes_own_start() {
    let mut bed = bed_with_own_groups(false, &nodes(2, "2"));
    bed.start_scheduler(&[]);
    bed.apply(&gang_job("large", 5));
    let expected = "minCount (5) cannot be satisfied: 4 scheduled, 0 remaining, ";
    bed.eventually("the PodGroup says how much of it fits", || {
        let message = wait_for_condition(&bed, "large", "False", "Unschedulable");
        if message.starts_with(expected) { Ok(()) } else { Err(message) }
    });
    bed.eventually("all pods of the gang are unschedulable, for autoscalers", || {
        let pods = bed.pods_in("large", "Pending");
        let is_reported = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            conditions.is_some_and(|all| all.iter().any(|c| c["reason"] == "Unschedulable"))
        };
        let n_reported = pods.iter().filter(is_reported).count();
        if n_reported == 5 { Ok(()) } else { Err(format!("{n_reported} of 5 are")) }
    });
    // A Job without `spec.scheduling` has a basic group: what fits of it starts.
    bed.apply(&plain_job("plain", 6));
    bed.wait_until_running("plain", 4);
    assert_eq!(wait_for_condition(&bed, "plain", "True", "Scheduled"), "");
    bed.expect_waiting("large");
    bed.kubectl(["delete", "job", "plain", "--namespace", NAMESPACE, "--cascade=foreground"])
        .expect("deleted");
    bed.plane
        .create_nodes(&Nodes { prefix: "more".to_owned(), ..nodes(1, "2") })
        .expect("another node");
    bed.wait_until_running("large", 5);
    assert_eq!(wait_for_condition(&bed, "large", "True", "Scheduled"), "");
    let printed = bed.kubectl(["get", KUBERNETES, "--namespace", NAMESPACE]).expect("a table");
    assert!(printed.contains("Scheduled"), "{printed}");
}

#[test]
fn a_job_in_one_of_our_groups_stays_in_it_although_it_has_one_of_kubernetes_own() {
    let mut bed = bed_with_own_groups(false, &nodes(1, "2"));
    bed.start_scheduler(&[]);
    bed.apply(&group("ours", 3));
    bed.apply(&job("ours", 3, "1"));
    bed.eventually("the Job controller has created a PodGroup", || {
        own_group_of(&bed, "ours").map(drop).ok_or_else(|| "it has not".to_owned())
    });
    wait_for_phase(&bed, "podgroups.scheduling.sigs.dev", "ours", "Pending");
    bed.expect_waiting("ours");
}

#[test]
fn groups_of_all_apis_start_side_by_side_although_the_leader_is_killed() {
    let mut bed = bed_with_own_groups(false, &nodes(2, "4"));
    install_other_definitions(&bed);
    let namespace = format!("--lock-object-namespace={SYSTEM}");
    let periods = ["--lease-duration=4s", "--renew-deadline=3s", "--retry-period=1s"];
    let names =
        ["--scheduler-name=kube-batch,volcano", "--scheduler-name=scheduler-plugins-scheduler"];
    let flags = [&["--leader-elect", &namespace][..], &periods, &names].concat();
    bed.start_scheduler(&flags);
    bed.start_scheduler(&flags);
    // Controllers of Volcano create pods only now.
    bed.apply(&volcano_group("volcano", 3));
    wait_for_phase(&bed, VOLCANO, "volcano", "Inqueue");
    bed.apply(&volcano_job("volcano", 3));
    bed.apply(&coscheduling_group("coscheduling", 3));
    wait_for_phase(&bed, COSCHEDULING, "coscheduling", "Pending");
    bed.wait_until_running("volcano", 3);
    wait_for_phase(&bed, VOLCANO, "volcano", "Running");
    // Five places are left; three gangs of three compete for them.
    bed.apply(&coscheduling_job("coscheduling", 3));
    bed.wait_until_running("coscheduling", 3);
    wait_for_phase(&bed, COSCHEDULING, "coscheduling", "Running");
    bed.apply(&gang_job("own", 3));
    bed.apply(&group("ours", 3));
    bed.apply(&job("ours", 3, "1"));
    wait_for_condition(&bed, "own", "False", "Unschedulable");
    let leader = usize::from(!bed.scheduler(0).is_leader());
    bed.take_scheduler(leader).kill();
    bed.plane
        .create_nodes(&Nodes { prefix: "more".to_owned(), ..nodes(1, "4") })
        .expect("another node");
    bed.wait_until_running("own", 3);
    bed.wait_until_running("ours", 3);
    wait_for_condition(&bed, "own", "True", "Scheduled");
}

#[test]
fn a_group_of_kubernetes_own_starts_in_one_zone() {
    let mut bed = bed_with_own_groups(false, &nodes(6, "2"));
    bed.start_scheduler(&[]);
    bed.apply(&json!({
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "near", "namespace": NAMESPACE},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 5}},
            "schedulingConstraints": {"topology": [{"key": "topology.kubernetes.io/zone"}]},
        },
    }));
    for mut pod in pods("near", 5, "1") {
        pod["metadata"]["annotations"].take();
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": "near"});
        bed.apply(&pod);
    }
    bed.eventually("the PodGroup says that no zone is large enough", || {
        let status = bed.get(KUBERNETES, "near")["status"].to_string();
        let expected = "minCount (5) cannot be satisfied: 4 scheduled, 0 remaining, never fits: at most 4 of the \
                        5 required pods fit into one zone";
        if status.contains(expected) { Ok(()) } else { Err(status) }
    });
    bed.expect_waiting("near");
    bed.plane
        .create_nodes(&Nodes { prefix: "more".to_owned(), ..nodes(1, "2") })
        .expect("another node in the first zone");
    bed.eventually("all pods of the gang are bound", || match bed.n_bound("near") {
        5 => Ok(()),
        n => Err(format!("{n} of 5 are")),
    });
    for pod in bed.list("pods") {
        let node = pod["spec"]["nodeName"].as_str().expect("it is bound");
        assert!(["node-00000", "node-00003", "more-00000"].contains(&node), "{node}");
    }
}

/// Two gangs of a composite PodGroup start together: with room for one of them, none does.
#[test]
fn the_groups_of_a_composite_group_start_together() {
    let mut bed = bed_with_own_groups(false, &nodes(3, "2"));
    bed.start_scheduler(&[]);
    let workload = |template: &str| json!({"workloadName": "run", "templateName": template});
    bed.apply(&json!({
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": "run", "namespace": NAMESPACE},
        "spec": {
            "schedulingPolicy": {"gang": {"minGroupCount": 2}},
            "workloadRef": workload("run"),
        },
    }));
    for name in ["left", "right"] {
        bed.apply(&json!({
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": 4}},
                "workloadRef": workload(name),
                "parentCompositePodGroupName": "run",
            },
        }));
        for mut pod in pods(name, 4, "1") {
            pod["metadata"]["annotations"].take();
            pod["spec"]["schedulingGroup"] = json!({"podGroupName": name});
            bed.apply(&pod);
        }
    }
    let says = |bed: &Bed, group: &str, expected: &str| {
        let status = bed.get(KUBERNETES, group)["status"].to_string();
        if status.contains(expected) { Ok(()) } else { Err(status) }
    };
    bed.eventually("the group that fits says that both are required", || {
        let expected = "1 of the 2 required groups of CompositePodGroup test/run fit";
        says(&bed, "left", expected).or_else(|_| says(&bed, "right", expected))
    });
    for name in ["left", "right"] {
        bed.expect_waiting(name);
    }
    bed.plane
        .create_nodes(&Nodes { prefix: "more".to_owned(), ..nodes(1, "2") })
        .expect("another node");
    for name in ["left", "right"] {
        bed.eventually("all pods of both gangs are bound", || match bed.n_bound(name) {
            4 => Ok(()),
            n => Err(format!("{n} of 4 of {name} are")),
        });
        bed.eventually("the condition is that of kube-scheduler", || {
            says(&bed, name, "\"reason\":\"Scheduled\",\"status\":\"True\"")
        });
    }
    let status = bed.get("compositepodgroups.scheduling.k8s.io", "run")["status"].clone();
    assert!(status.is_null() || status == json!({}), "kube-batch does not write it: {status}");
}
