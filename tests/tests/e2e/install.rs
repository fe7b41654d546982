//! The installed CRDs: what `kubectl` prints, which objects the API server rejects, and objects
//! that were stored under older CRDs.

use std::fs;

use kube_batch_testbed::cluster::{ControlPlane, Options};
use serde_json::{Value, json};
use xtask_launcher::build::root;

use crate::bed::{Bed, NAMESPACE, SYSTEM, group, job, nodes};

const GROUPS: [(&str, &str); 2] =
    [("scheduling.incubator.k8s.io", "v1alpha1"), ("scheduling.sigs.dev", "v1alpha2")];

#[test]
fn kubectl_shows_the_status_of_groups_and_queues() {
    let mut bed = Bed::new(&nodes(2, "2"));
    bed.start_scheduler(&[]);
    bed.apply(&group("whole", 2));
    bed.apply(&job("whole", 2, "1"));
    bed.wait_until_running("whole", 2);
    bed.apply(&group("waits", 3));
    bed.apply(&job("waits", 3, "1"));

    // The printed table: the header, and a row for each object.
    let table = |kind: &str| -> Vec<Vec<String>> {
        let text = bed.kubectl(["get", kind, "--namespace", NAMESPACE]).expect("a table");
        let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        text.lines().map(cells).collect()
    };
    let shows = |kind: &str, expected: &[&[&str]]| {
        bed.eventually(&format!("kubectl get {kind}"), || {
            let table = table(kind);
            // The last column is the age.
            let known = |row: &Vec<String>| row[..row.len().saturating_sub(1)].to_vec();
            let there: Vec<Vec<String>> = table.iter().map(known).collect();
            if there == expected { Ok(()) } else { Err(format!("{table:?}")) }
        });
    };
    shows(
        "podgroups.scheduling.sigs.dev",
        &[
            &["NAME", "QUEUE", "PHASE", "REASON", "MIN", "READY", "RUNNING", "SUCCEEDED"],
            &["waits", "Pending", "NotEnoughResources", "3", "0", "0", "0"],
            &["whole", "Running", "2", "2", "2", "0"],
        ],
    );
    shows(
        "queues",
        &[
            &[
                "NAME",
                "PARENT",
                "STATE",
                "WEIGHT",
                "PENDING",
                "RUNNING",
                "UNKNOWN",
                "SHARE",
                "CAPABILITY",
            ],
            &["default", "Open", "1", "1", "1", "0", "0.50"],
        ],
    );
    // One API group is installed, so that short names are not ambiguous.
    for short in ["pg", "q", "podgroups", "queues", "kube-batch"] {
        let mut command = bed.plane.kubectl_command();
        let printed =
            command.args(["get", short, "--namespace", NAMESPACE]).output().expect("runs");
        let warnings = String::from_utf8_lossy(&printed.stderr);
        assert!(printed.status.success() && warnings.is_empty(), "kubectl get {short}: {warnings}");
        let name = if short.starts_with('q') { "default" } else { "whole" };
        let table = String::from_utf8_lossy(&printed.stdout);
        assert!(table.contains(name), "kubectl get {short}: {table}");
    }

    let described = bed
        .kubectl(["describe", "podgroups.scheduling.sigs.dev", "waits", "--namespace", NAMESPACE])
        .expect("a description");
    for part in ["Min Member:  3", "NotEnoughResources", "2 Insufficient cpu."] {
        assert!(described.contains(part), "{part}: {described}");
    }
    bed.eventually("its pods report the same reason", || {
        let pods = bed.pods_in("waits", "Pending");
        let name = pods[0]["metadata"]["name"].as_str().expect("a name");
        let described = bed.kubectl(["describe", "pod", name, "--namespace", NAMESPACE])?;
        let parts = ["FailedScheduling", "0/2 nodes are available: 2 Insufficient cpu."];
        let is_reported = parts.iter().all(|part| described.contains(part));
        if is_reported { Ok(()) } else { Err(described) }
    });
}

#[test]
fn full_names_and_the_category_mean_kube_batch_beside_kubernetes_own_groups() {
    let flags =
        ["--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1beta1=true"];
    let options = Options {
        api_server_flags: flags.map(str::to_owned).to_vec(),
        controllers: false,
        kwok: false,
        ..Options::default()
    };
    let plane = ControlPlane::start(options).unwrap_or_else(|error| panic!("{error}"));
    plane.apply_crds(&root().join("deploy/chart/crds")).expect("served");
    plane.kubectl(["create", "namespace", NAMESPACE]).expect("a namespace");
    plane.apply(&group("ours", 1).to_string()).expect("created");
    let get = |name: &str| {
        let args = ["get", name, "--namespace", NAMESPACE, "--output", "name"];
        plane.kubectl(args).unwrap_or_else(|error| panic!("{error}"))
    };
    let ours = "podgroup.scheduling.sigs.dev/ours\n";
    assert_eq!(get("podgroups"), "", "docs/install.md: this name means Kubernetes' own PodGroups");
    for name in ["podgroups.scheduling.sigs.dev", "kube-batch", "pg"] {
        assert_eq!(get(name), ours, "{name}");
    }
}

#[test]
fn the_readme_shows_what_kubectl_prints() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    let mut bed = Bed::new(&nodes(100, "32"));
    bed.start_scheduler(&[]);
    // The last column of a table is the age.
    let ageless = |text: &str| -> Vec<Vec<String>> {
        let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        let without_age = |mut row: Vec<String>| {
            row.pop();
            row
        };
        text.lines().map(cells).map(without_age).collect()
    };
    let blocks: Vec<&str> = readme.split("```console\n$ kubectl ").skip(1).collect();
    assert!(blocks.len() >= 2);
    for block in blocks {
        let (command, rest) = block.split_once('\n').expect("a command and what it prints");
        let shown = rest.split("```").next().unwrap_or_default();
        let command = command.replace("examples/", &format!("{}/examples/", root().display()));
        bed.eventually(&format!("kubectl {command}"), || {
            let printed =
                bed.plane.kubectl(command.split_whitespace()).expect("the command succeeds");
            if ageless(&printed) == ageless(shown) { Ok(()) } else { Err(printed) }
        });
    }
}

#[test]
fn the_scheduler_has_a_network_policy_that_selects_its_pods() {
    let bed = Bed::empty();
    bed.install();
    bed.install_component("network-policy");
    let get = |kind: &str| -> Value {
        let args = ["get", kind, "kube-batch", "--namespace", SYSTEM, "--output", "json"];
        serde_json::from_str(&bed.kubectl(args).expect("it exists")).expect("JSON")
    };
    let policy = &get("networkpolicy")["spec"];
    assert_eq!(policy["podSelector"]["matchLabels"], get("service")["spec"]["selector"]);
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(policy["ingress"][0]["ports"][0]["port"], "http");
}

/// The API server counts the requests that it dispatched by FlowSchema and priority level.
#[test]
fn requests_of_the_scheduler_have_a_priority_level_of_their_own() {
    const LEVELS: [(&str, &str); 3] = [
        ("kube-batch-leader-election", "leader-election"),
        ("kube-batch-writes", "kube-batch"),
        ("kube-batch-reads", "kube-batch"),
    ];
    let mut bed = Bed::new(&nodes(1, "2"));
    bed.install_component("flow-control");
    bed.eventually("the FlowSchemas have their priority levels", || {
        for (schema, _) in LEVELS {
            let path = "jsonpath={.status.conditions[?(@.type=='Dangling')].status}";
            let dangling = bed.kubectl(["get", "flowschema", schema, "--output", path])?;
            if dangling != "False" {
                return Err(format!("{schema}: Dangling is {dangling:?}"));
            }
        }
        Ok(())
    });
    bed.start_scheduler(&["--leader-elect", &format!("--lock-object-namespace={SYSTEM}")]);
    bed.apply(&group("gang", 2));
    bed.apply(&job("gang", 2, "1"));
    bed.wait_until_running("gang", 2);
    bed.eventually("each FlowSchema has requests", || {
        let metrics = bed.kubectl(["get", "--raw", "/metrics"])?;
        for (schema, level) in LEVELS {
            let series = format!(
                "apiserver_flowcontrol_dispatched_requests_total{{flow_schema=\"{schema}\",\
                 priority_level=\"{level}\"}}"
            );
            if !metrics.contains(&series) {
                return Err(format!("there is no {series}"));
            }
        }
        Ok(())
    });
}

#[test]
fn kubectl_explains_every_field() {
    let bed = Bed::new(&nodes(1, "1"));
    bed.install_older_group();
    for (group, version) in GROUPS {
        let flag = format!("--api-version={group}/{version}");
        for (path, sentence) in [
            ("podgroups", "start together or not at all"),
            ("podgroups.spec.minMember", "placeable together before any of them starts"),
            ("podgroups.spec.queue", "queue whose share the pods count against"),
            ("podgroups.status.phase", "fewer than the minimum have a place"),
            ("queues.spec.weight", "Part of the cluster the queue deserves"),
            ("queues.spec.capability", "Hard limits"),
            ("queues.status.share", "largest part of its deserved amount"),
        ] {
            // The API server publishes the schema of a new kind with a delay.
            bed.eventually(&format!("{path} in {group} is explained"), || {
                let text = bed.kubectl(["explain", path, &flag])?;
                // kubectl wraps lines.
                let words: Vec<&str> = text.split_whitespace().collect();
                if words.join(" ").contains(sentence) { Ok(()) } else { Err(text) }
            });
        }
        for path in ["podgroups", "queues"] {
            let text = bed.kubectl(["explain", path, &flag, "--recursive"]).expect("a tree");
            assert!(!text.contains("<no description>"), "{text}");
        }
    }
}

#[test]
fn the_api_server_rejects_invalid_objects() {
    let bed = Bed::new(&nodes(1, "1"));
    bed.install_older_group();
    let object = |kind: &str, spec: Value| {
        GROUPS.map(|(group, version)| {
            json!({
                "apiVersion": format!("{group}/{version}"),
                "kind": kind,
                "metadata": {"name": "invalid", "namespace": NAMESPACE},
                "spec": spec,
            })
        })
    };
    for (kind, spec, message) in [
        (
            "PodGroup",
            json!({"minMember": -1}),
            "spec.minMember in body should be greater than or equal to 0",
        ),
        ("PodGroup", json!({"minMember": "two"}), "spec.minMember in body must be of type integer"),
        ("PodGroup", json!({"minMember": 5_000_000_000_u64}), "spec.minMember"),
        ("PodGroup", json!({"queue": "q".repeat(254)}), "spec.queue: Too long"),
        ("PodGroup", json!({"minmember": 1}), "unknown field \"spec.minmember\""),
        (
            "Queue",
            json!({"weight": -1}),
            "spec.weight in body should be greater than or equal to 0",
        ),
        ("Queue", json!({"weight": 1.5}), "spec.weight"),
        ("Queue", json!({"capability": {"cpu": "-1"}}), "spec.capability.cpu"),
        ("Queue", json!({"capability": {"cpu": -1}}), "spec.capability.cpu"),
        ("Queue", json!({"capability": {"memory": "1 GB"}}), "spec.capability.memory"),
    ] {
        for object in object(kind, spec.clone()) {
            let version = object["apiVersion"].clone();
            let applied = bed.plane.apply(&object.to_string()).map_err(|error| error.to_string());
            let Err(error) = applied else { panic!("{version} {kind} {spec} was accepted") };
            assert!(error.contains(message), "{version} {kind} {spec}: {error}");
        }
    }
}

/// The CRDs of kube-batch v0.5.0 validate little; objects stored under them may be invalid.
#[test]
fn objects_stored_under_old_crds_are_read() {
    let mut bed = Bed::empty();
    for (api_group, version) in GROUPS {
        for (kind, plural, scope) in
            [("PodGroup", "podgroups", "Namespaced"), ("Queue", "queues", "Cluster")]
        {
            let name = format!("{plural}.{api_group}");
            bed.apply(&json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": name,
                    "annotations": {"api-approved.kubernetes.io": "unapproved, like those of v0.5.0"},
                },
                "spec": {
                    "group": api_group,
                    "names": {"kind": kind, "plural": plural},
                    "scope": scope,
                    "versions": [{
                        "name": version,
                        "served": true,
                        "storage": true,
                        "schema": {"openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": true,
                        }},
                    }],
                },
            }));
            bed.kubectl(["wait", "--for=condition=Established", "crd", &name]).expect("served");
        }
    }
    bed.create_namespace(NAMESPACE);
    let queue = json!({
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "old"},
        "spec": {"weight": 3},
        "status": {},
    });
    let old_group = |name: &str, spec: Value| {
        json!({
            "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
            // As the Go client of v0.5.0 writes it: with empty and zero values.
            "status": {"phase": "", "conditions": null, "running": 0},
        })
    };
    bed.apply(&queue);
    bed.apply(&old_group("valid", json!({"minMember": 2, "queue": "old", "backoffLimit": 3})));
    // This group cannot be decoded; it must not affect other objects.
    bed.apply(&old_group("malformed", json!({"minMember": "two"})));

    bed.install();
    bed.install_older_group();
    bed.plane.create_nodes(&nodes(2, "2")).expect("nodes are created");
    bed.start_scheduler(&[]);
    bed.apply(&job("valid", 2, "1"));
    bed.wait_until_running("valid", 2);
    bed.eventually("the phase of the group is Running", || {
        let status = bed.get("podgroups.scheduling.incubator.k8s.io", "valid")["status"].clone();
        if status["phase"] == "Running" { Ok(()) } else { Err(status.to_string()) }
    });
    assert!(bed.scheduler(0).metric("kube_batch_malformed_objects_total") >= 1.0);
    let log = bed.scheduler(0).log();
    assert!(log.contains("test/malformed") && log.contains("minMember"), "{log}");
}
