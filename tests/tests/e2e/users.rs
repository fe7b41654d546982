//! What users may do with PodGroups and Queues, by the roles of `deploy/user-roles.yaml`.

use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, group, nodes, queue};

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

fn bind_in_namespace(bed: &Bed, user: &str, role: &str) {
    bed.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": user, "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }));
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
