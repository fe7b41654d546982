//! What users may do with PodGroups and Queues, by the roles of `deploy/user-roles.yaml`.

use kube_batch_testbed::cluster::{Options, Server};
use serde_json::{Value, json};

use crate::{
    bed::{Bed, NAMESPACE, group, job, nodes, pods, queue},
    other_groups::{coscheduling_group, install_other_definitions},
};

/// Runs kubectl as a user, and returns what it prints or its error.
fn kubectl_as(bed: &Bed, user: &str, args: &[&str]) -> Result<String, String> {
    let user = ["--as", user, "--as-group", "team", "--as-group", "system:authenticated"];
    let args = user.iter().chain(args).copied();
    bed.plane.kubectl(args).map_err(|error| error.to_string())
}

fn apply_as(bed: &Bed, user: &str, object: &Value) -> Result<(), String> {
    let args = ["apply", "--as", user, "--as-group", "team", "--filename", "-"];
    let applied = bed.plane.kubectl_stdin(args, &object.to_string());
    applied.map(drop).map_err(|error| error.to_string())
}

pub(crate) fn bind_in_namespace(bed: &Bed, user: &str, role: &str) {
    bed.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": user, "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }));
}

/// Lets a user use a queue and a PriorityClass.
pub(crate) fn let_use(bed: &Bed, user: &str, queue: &str, class: &str) {
    let may_use = |group: &str, resource: &str, name: &str| {
        json!({
            "apiGroups": [group], "resources": [resource], "resourceNames": [name],
            "verbs": ["use"],
        })
    };
    bed.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "submitters"},
        "rules": [
            may_use("scheduling.sigs.dev", "queues", queue),
            may_use("scheduling.k8s.io", "priorityclasses", class),
        ],
    }));
    let name = format!("submitter-{}", user.replace(':', "-"));
    let user = format!("--user={user}");
    let role = ["create", "clusterrolebinding", &name, "--clusterrole=submitters", &user];
    bed.kubectl(role).expect("a binding");
}

#[test]
fn only_who_may_use_a_queue_or_a_class_names_it_in_a_pod_group() {
    let bed = Bed::new(&nodes(1, "1"));
    for name in ["training", "research"] {
        bed.apply(&queue(name, 1));
    }
    for name in ["high", "higher"] {
        bed.apply(&json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": 1000,
        }));
    }
    for user in ["alice", "bob"] {
        bind_in_namespace(&bed, user, "edit");
    }
    bed.install_component("admission");
    install_other_definitions(&bed);
    let_use(&bed, "alice", "training", "high");

    let with = |name: &str, queue: &str, class: &str| {
        let mut group = group(name, 1);
        for (field, value) in [("queue", queue), ("priorityClassName", class)] {
            if !value.is_empty() {
                group["spec"][field] = value.into();
            }
        }
        group
    };
    let refused = |user: &str, group: &Value, what: &str| match apply_as(&bed, user, group) {
        Err(error) => error.contains(&format!("user \"{user}\" may not use the {what}")),
        Ok(()) => false,
    };
    // The API server takes a moment to enforce a new policy.
    bed.eventually("bob may not use the queue", || {
        let group = with("early", "training", "");
        if refused("bob", &group, "queue \"training\"") {
            return Ok(());
        }
        bed.kubectl(["delete", "podgroups.scheduling.sigs.dev", "early", "-n", NAMESPACE])?;
        Err("the PodGroup was created".to_owned())
    });
    bed.eventually("alice may use the queue", || {
        apply_as(&bed, "alice", &with("a", "training", "high"))
    });
    assert!(refused("alice", &with("b", "research", ""), "queue \"research\""));
    assert!(refused("alice", &with("b", "", "higher"), "PriorityClass \"higher\""));
    assert!(refused("bob", &with("b", "", "high"), "PriorityClass \"high\""));
    apply_as(&bed, "bob", &with("b", "", "")).expect("any user may use the default queue");
    assert!(refused("bob", &with("b", "training", ""), "queue \"training\""));
    // A change of another field needs no permission for the queue and the class.
    let mut changed = with("a", "training", "high");
    changed["spec"]["minMember"] = 2.into();
    apply_as(&bed, "bob", &changed).expect("another field");
    assert!(refused("bob", &with("a", "research", "high"), "queue \"research\""));
    // The same for PodGroups of other APIs. Their roles come with their definitions, not with ours.
    const GROUPS: &str = "--resource=podgroups.scheduling.x-k8s.io";
    let role = ["create", "clusterrole", "other-groups", "--verb=get,create,patch", GROUPS];
    bed.kubectl(role).expect("a role");
    let role = "--clusterrole=other-groups";
    bed.kubectl(["create", "clusterrolebinding", "other-groups", role, "--group=team"])
        .expect("a binding");
    let other = |name: &str, queue: &str| {
        let mut group = coscheduling_group(name, 1);
        group["metadata"]["labels"]["scheduling.sigs.dev/queue"] = queue.into();
        group
    };
    bed.eventually("the definition is known to everyone", || {
        apply_as(&bed, "alice", &other("a", "training"))
    });
    assert!(refused("bob", &other("b", "training"), "queue \"training\""));
    // A pod is mostly created by a controller: its service account counts.
    let mut pod = pods("p", 1, "1").remove(0);
    pod["metadata"]["annotations"] = json!({"scheduling.sigs.dev/queue": "training"});
    let rejected = apply_as(&bed, "alice", &pod).expect_err("the service account may not");
    let reason = "service account \"default\" may not use the queue \"training\"";
    assert!(rejected.contains(reason), "{rejected}");
    let_use(&bed, &format!("system:serviceaccount:{NAMESPACE}:default"), "training", "high");
    bed.eventually("the service account may use the queue", || apply_as(&bed, "bob", &pod));
}

#[test]
fn users_read_queues_by_the_role_that_an_administrator_binds() {
    const PODGROUPS: &str = "podgroups.scheduling.sigs.dev";
    const QUEUES: &str = "queues.scheduling.sigs.dev";
    let bed = Bed::new(&nodes(1, "1"));
    bed.apply(&queue("shared", 1));
    bind_in_namespace(&bed, "editor", "edit");
    bind_in_namespace(&bed, "viewer", "view");
    let may = |user: &str, args: &[&str]| kubectl_as(&bed, user, args).map(drop);
    let is_forbidden = |result: Result<(), String>, what: &str| match result {
        Err(error) if error.contains("forbidden") => {}
        other => panic!("{what}: {other:?}"),
    };
    // The controller that aggregates roles takes a moment.
    bed.eventually("an editor may create PodGroups", || apply_as(&bed, "editor", &group("g", 1)));
    let in_namespace = ["get", PODGROUPS, "--namespace", NAMESPACE];
    bed.eventually("a viewer may read PodGroups", || may("viewer", &in_namespace));
    is_forbidden(apply_as(&bed, "viewer", &group("other", 1)), "a viewer creates PodGroups");
    is_forbidden(may("viewer", &["get", PODGROUPS, "--namespace", "default"]), "elsewhere");

    // The command of docs/install.md.
    is_forbidden(may("editor", &["get", QUEUES]), "queues before the role is bound");
    let bound = bed.kubectl([
        "create",
        "clusterrolebinding",
        "kube-batch-queue-viewers",
        "--clusterrole",
        "kube-batch-queue-viewer",
        "--group",
        "team",
    ]);
    bound.expect("bound");
    for user in ["editor", "viewer"] {
        bed.eventually(&format!("{user} may read queues"), || {
            may(user, &["get", QUEUES, "shared"])
        });
        is_forbidden(apply_as(&bed, user, &queue("shared", 9)), "a change of a queue");
        is_forbidden(apply_as(&bed, user, &queue("own", 9)), "a new queue");
        is_forbidden(may(user, &["delete", QUEUES, "shared"]), "a deletion of a queue");
    }
}

/// A queue that may use this much CPU.
fn limited_queue(name: &str, cpu: &str) -> Value {
    let mut queue = queue(name, 1);
    queue["spec"]["capability"] = json!({"cpu": cpu});
    queue
}

fn group_in(name: &str, queue: &str) -> Value {
    let mut group = group(name, 2);
    group["spec"]["queue"] = json!(queue);
    group
}

// Parity: see docs/parity.md#d6.
#[test]
fn a_pod_counts_for_the_queue_from_which_it_was_bound_whatever_its_user_changes() {
    const RECORD: &str = "scheduling.sigs.dev/bound-queue";
    const MINIMUM: &str = "scheduling.sigs.dev/bound-minimum";
    const GROUPS: &str = "podgroups.scheduling.sigs.dev";
    let mut bed = Bed::new(&nodes(2, "4"));
    bed.install_component("admission");
    bed.apply(&limited_queue("a", "2"));
    let first = bed.start_scheduler(&[]);
    bind_in_namespace(&bed, "alice", "edit");
    bed.apply(&group_in("g", "a"));
    bed.apply(&job("g", 2, "1"));
    bed.wait_until_running("g", 2);
    let pods = bed.pods_in("g", "Running");
    for pod in &pods {
        assert_eq!(pod["metadata"]["annotations"][RECORD], "a", "{pod}");
        assert_eq!(pod["metadata"]["annotations"][MINIMUM], "2", "{pod}");
    }
    let alice = |args: &[&str]| {
        kubectl_as(&bed, "alice", &[args, &["--namespace", NAMESPACE]].concat()).map(drop)
    };
    // The API server takes a moment to enforce a new policy.
    let mut placed = crate::bed::pods("placed", 1, "1").remove(0);
    placed["spec"]["nodeName"] = pods[0]["spec"]["nodeName"].clone();
    placed["metadata"]["annotations"] = json!({RECORD: "default"});
    let name = placed["metadata"]["name"].as_str().expect("a name").to_owned();
    bed.eventually("no user creates a pod with a node and a record", || {
        match apply_as(&bed, "alice", &placed) {
            Err(error) if error.contains("what was decided when the pod was bound") => Ok(()),
            other => {
                let deleted = alice(&["delete", "pod", &name, "--force"]);
                Err(format!("{other:?}, {deleted:?}"))
            }
        }
    });
    let name = pods[0]["metadata"]["name"].as_str().expect("a name");
    let changes = [RECORD, MINIMUM].map(|key| [format!("{key}=9"), format!("{key}-")]);
    for change in changes.as_flattened() {
        let changed = alice(&["annotate", "pod", name, "--overwrite", change]);
        assert!(changed.expect_err("forbidden").contains("cannot be changed"), "{change}");
    }
    alice(&["annotate", "pod", name, "example.com/note=x"]).expect("another annotation");
    alice(&["delete", GROUPS, "g"]).expect("deleted");
    bed.apply(&group_in("h", "a"));
    bed.apply(&job("h", 2, "1"));
    bed.expect_waiting("h");
    // The next leader reads the record.
    bed.take_scheduler(first).kill();
    bed.start_scheduler(&[]);
    bed.expect_waiting("h");
    bed.kubectl(["delete", "job", "g", "--namespace", NAMESPACE]).expect("deleted");
    bed.wait_until_running("h", 2);
}

// Parity: see docs/parity.md#s3.
#[test]
fn the_job_controller_counts_a_pod_that_succeeds_while_it_is_deleted() {
    // Without simulated kubelets, nothing ends the pod. Its node exists, or the pod garbage collector would delete it.
    let mut bed = Bed::with_options(Options { kwok: false, ..Options::default() }, &nodes(1, "1"));
    let mut job = job("j", 1, "1");
    job["spec"]["template"]["spec"]["nodeName"] = json!("node-00000");
    bed.apply(&job);
    bed.eventually("its pod exists", || match bed.list("pods").len() {
        1 => Ok(()),
        n_pods => Err(format!("{n_pods} pods")),
    });
    let pods = bed.list("pods");
    let name = pods[0]["metadata"]["name"].as_str().expect("a name");
    // It would count the pod as failed if it saw it between the two steps.
    bed.plane.stop(Server::Controllers).expect("the controllers are stopped");
    bed.kubectl(["delete", "pod", name, "--namespace", NAMESPACE, "--wait=false"])
        .expect("deleted");
    let ended = json!({"status": {"phase": "Succeeded"}}).to_string();
    let patch =
        ["patch", "pod", name, "--namespace", NAMESPACE, "--subresource=status", "--patch", &ended];
    bed.kubectl(patch).expect("patched");
    bed.plane.restart(Server::Controllers).expect("the controllers start");
    bed.eventually("the Job counts it", || {
        let job = bed.get("job", "j");
        let counts = &job["status"]["succeeded"];
        if *counts == json!(1) { Ok(()) } else { Err(job["status"].to_string()) }
    });
}
