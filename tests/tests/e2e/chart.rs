//! The Helm chart, rendered and installed by Helm.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use kube_batch_testbed::{
    assets::{Assets, Binary},
    cluster::Options,
};
use serde_json::Value;
use xtask_launcher::build::root;

use crate::bed::{Bed, nodes};

const OLDER_QUEUES: &str = "queues.scheduling.incubator.k8s.io";

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn helm() -> Command {
    Command::new(Assets::helm().unwrap_or_else(|error| panic!("{error}")))
}

fn chart() -> String {
    root().join("deploy/chart").display().to_string()
}

/// Renders the chart with these additional arguments.
fn template(args: &[&str]) -> Result<String, String> {
    let mut command = helm();
    command.args(["template", "kube-batch", &chart(), "--namespace", "kube-batch-system"]);
    // Without a cluster, Helm assumes an old version of Kubernetes.
    run(command.args(["--include-crds", "--kube-version", "1.37.0"]).args(args))
}

/// The objects of manifests by kind and name, without the labels that only Helm adds and with numbers
/// as both tools would read them.
fn objects(manifests: &str) -> BTreeMap<String, Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifests).expect("YAML");
    let named = documents.into_iter().filter(|document| !document.is_null()).map(|mut object| {
        normalise(&mut object);
        (format!("{} {}", object["kind"], object["metadata"]["name"]), object)
    });
    named.collect()
}

fn normalise(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for label in ["instance", "version", "managed-by"] {
                fields.remove(&format!("app.kubernetes.io/{label}"));
            }
            fields.remove("helm.sh/chart");
            fields.values_mut().for_each(normalise);
        }
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::String(text) => text.truncate(text.trim_end().len()),
        Value::Number(number) => *value = number.as_f64().into(),
        Value::Null | Value::Bool(_) => {}
    }
}

#[test]
fn the_chart_passes_helm_lint() {
    let linted = run(helm().args(["lint", "--strict", &chart()]));
    assert!(linted.is_ok(), "{linted:?}");
}

#[test]
fn default_values_give_the_manifests_of_kustomize() {
    let assets = Assets::provide(&[Binary::Kubectl]).unwrap_or_else(|error| panic!("{error}"));
    let mut kubectl = Command::new(assets.path(Binary::Kubectl));
    let kustomized = run(kubectl.arg("kustomize").arg(root().join("deploy"))).expect("manifests");
    let mut expected = objects(&kustomized);
    // Helm creates the namespace with --create-namespace.
    expected.remove("\"Namespace\" \"kube-batch-system\"");
    let rendered = objects(&template(&[]).expect("manifests"));
    let names =
        |objects: &BTreeMap<String, Value>| -> Vec<String> { objects.keys().cloned().collect() };
    assert_eq!(names(&rendered), names(&expected));
    for (name, object) in rendered {
        assert_eq!(object, expected[&name], "{name}");
    }
}

#[test]
fn values_give_the_manifests_of_the_components() {
    let assets = Assets::provide(&[Binary::Kubectl]).unwrap_or_else(|error| panic!("{error}"));
    let defaults = objects(&template(&[]).expect("manifests"));
    // Kustomize writes expressions of several lines with blank lines between them.
    let text = |objects: &BTreeMap<String, Value>| {
        serde_json::to_string_pretty(objects).expect("JSON").replace("\\n\\n", "\\n")
    };
    for (component, value) in [
        ("admission", "admission.enabled=true"),
        ("queue-tree", "admission.queueTree.enabled=true"),
        ("queue-promises", "admission.queuePromises.enabled=true"),
        ("queue-deletion", "admission.queueDeletion.enabled=true"),
        ("job-evictions", "admission.jobEvictions.enabled=true"),
        ("flow-control", "flowControl.enabled=true"),
        ("network-policy", "networkPolicy.enabled=true"),
    ] {
        let directory = root().join("deploy/components").join(component);
        let mut kubectl = Command::new(assets.path(Binary::Kubectl));
        let kustomized = run(kubectl.arg("kustomize").arg(directory)).expect("manifests");
        let mut rendered = objects(&template(&["--set", value]).expect("manifests"));
        rendered.retain(|name, _| !defaults.contains_key(name));
        assert_eq!(text(&rendered), text(&objects(&kustomized)), "{component}");
    }
}

/// The command of docs/install.md for another namespace.
#[test]
fn flow_schemas_follow_the_namespace_of_a_kustomization() {
    let manual = fs::read_to_string(root().join("docs/install.md")).expect("the manual");
    let (_, replacements) = manual.split_once("```yaml\nreplacements:").expect("an example");
    let replacements = replacements.split("```").next().unwrap_or_default();
    // Kustomize reads only relative paths, below a directory without links.
    let directory = root().join("target").join(format!("kustomization-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let kustomization = format!(
        "namespace: batch\nresources: [../../deploy]\n\
         components: [../../deploy/components/flow-control]\nreplacements:{replacements}"
    );
    fs::write(directory.join("kustomization.yaml"), kustomization).expect("a file");
    let assets = Assets::provide(&[Binary::Kubectl]).unwrap_or_else(|error| panic!("{error}"));
    let kustomized =
        run(Command::new(assets.path(Binary::Kubectl)).arg("kustomize").arg(&directory));
    fs::remove_dir_all(&directory).expect("removed");
    let objects = objects(&kustomized.expect("manifests"));
    let schemas: Vec<&Value> =
        objects.values().filter(|object| object["kind"] == "FlowSchema").collect();
    assert_eq!(schemas.len(), 3);
    for schema in schemas {
        let subject = &schema["spec"]["rules"][0]["subjects"][0]["serviceAccount"];
        assert_eq!(subject["namespace"], "batch", "{schema}");
    }
}

/// The paths of all values, from the schema of the chart.
fn paths(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let sections = schema["properties"].as_object().filter(|_| schema["default"].is_null());
    let Some(sections) = sections else {
        found.insert(path.to_owned());
        return;
    };
    for (name, schema) in sections.iter().filter(|(name, _)| *name != "global") {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        paths(schema, &path, found);
    }
}

#[test]
fn every_value_changes_what_is_installed() {
    let file = root().join("deploy/chart/values.schema.json");
    let schema = fs::read_to_string(file).expect("the schema");
    let mut untested = BTreeSet::new();
    paths(&serde_json::from_str(&schema).expect("JSON"), "", &mut untested);
    let monitors = "monitoring.serviceMonitor.enabled=true";
    let rules = "monitoring.prometheusRule.enabled=true";
    let dashboards = "monitoring.dashboard.enabled=true";
    let flow_control = "flowControl.enabled=true";
    let network_policy = "networkPolicy.enabled=true";
    let promises = "admission.queuePromises.enabled=true";
    let api_server = "networkPolicy.apiServer.to[0]";
    for (set, part) in [
        ("admission.enabled=true", "policyName: kube-batch-podgroups"),
        ("admission.queueTree.enabled=true", "policyName: kube-batch-queue-tree"),
        (promises, "expression: \"'kube-batch:queue-promises'\""),
        (&format!("admission.queuePromises.group=quotas,{promises}"), "expression: \"'quotas'\""),
        ("admission.queueDeletion.enabled=true", "policyName: kube-batch-queue-deletion"),
        ("admission.jobEvictions.enabled=true", "policyName: kube-batch-job-evictions"),
        ("crds.v1alpha1=true", "name: queues.scheduling.incubator.k8s.io"),
        ("defaultQueue.create=false", "- run\n"),
        ("extraArgs[0]=--v=4", "- --v=4"),
        ("fullnameOverride=other", "name: other-queue-viewer"),
        (flow_control, "kind: FlowSchema"),
        (
            &format!("flowControl.nominalConcurrencyShares=7,{flow_control}"),
            "nominalConcurrencyShares: 7",
        ),
        ("image.pullPolicy=Always", "imagePullPolicy: Always"),
        ("image.repository=registry.example/kube-batch", "registry.example/kube-batch:"),
        ("image.tag=edge", "image: \"kube-batch:edge\""),
        ("imagePullSecrets[0].name=mine", "- name: mine"),
        ("leaderElection.enabled=false", "- --create-default-queue\n"),
        (&format!("monitoring.dashboard.labels.x=mine,{dashboards}"), "x: mine"),
        (dashboards, "kube-batch-queues.json"),
        (&format!("monitoring.prometheusRule.labels.x=mine,{rules}"), "x: mine"),
        (rules, "alert: KubeBatchNoLeader"),
        (&format!("monitoring.serviceMonitor.labels.x=mine,{monitors}"), "x: mine"),
        (monitors, "kind: ServiceMonitor"),
        (network_policy, "kubernetes.io/metadata.name: monitoring"),
        (&format!("networkPolicy.metricsFrom=null,{network_policy}"), "ingress: []"),
        (&format!("networkPolicy.apiServer.ports[0]=16443,{network_policy}"), "port: 16443"),
        (&format!("{api_server}.ipBlock.cidr=192.0.2.1/32,{network_policy}"), "cidr: 192.0.2.1/32"),
        ("nodeSelector.disk=fast", "disk: fast"),
        ("priorityClassName=mine", "priorityClassName: mine"),
        ("queueViewers.groups[0]=team-a", "name: \"team-a\""),
        ("queueViewers.users[0]=tina", "name: \"tina\""),
        ("replicaCount=1", "replicas: 1"),
        ("resources.requests.cpu=2", "cpu: 2"),
        ("schedulerConf=actions: allocate", "actions: allocate\n"),
        ("tolerations[0].key=mine", "key: mine"),
    ] {
        // One replica, which is allowed without leader election.
        let rendered = template(&["--set", "replicaCount=1", "--set", set]).expect(set);
        let before = template(&["--set", "replicaCount=2"]).expect("the defaults");
        assert!(
            rendered.contains(part) && rendered != before,
            "{set}: {part} is not in\n{rendered}"
        );
        objects(&rendered);
        let value = set.split(['=', '[']).next().unwrap_or_default();
        untested.retain(|path| *path != value && !value.starts_with(&format!("{path}.")));
    }
    assert!(untested.is_empty(), "not tested: {untested:?}");
}

#[test]
fn unknown_and_wrong_values_are_refused() {
    for (set, problem) in [
        ("replicaCont=3", "'replicaCont' not allowed"),
        ("image.repo=x", "'repo' not allowed"),
        ("replicaCount=two", "got string, want integer"),
        ("replicaCount=-1", "minimum: got -1, want 0"),
        ("image.pullPolicy=Sometimes", "value must be one of 'Always', 'IfNotPresent', 'Never'"),
        ("extraArgs[0]=v=4", "'v=4' does not match pattern"),
        ("leaderElection.enabled=false", "replicaCount above 1 requires leaderElection.enabled"),
    ] {
        match template(&["--set", set]) {
            Err(error) => assert!(error.contains(problem), "{set}: {error}"),
            Ok(_) => panic!("{set} was accepted"),
        }
    }
}

/// Runs the commands that the notes of a release tell its user.
fn run_commands_of_notes(bed: &Bed, printed: &str) -> usize {
    let (_, notes) = printed.split_once("NOTES:").expect("Helm prints notes");
    let commands = notes.lines().filter_map(|line| line.trim().strip_prefix("kubectl "));
    let mut n_run = 0;
    for command in commands {
        bed.eventually(&format!("kubectl {command}"), || {
            let args = command.split_whitespace().chain(["--request-timeout=30s"]);
            bed.plane.kubectl(args).map(drop).map_err(|error| error.to_string())
        });
        n_run += 1;
    }
    n_run
}

#[test]
fn a_release_is_installed_upgraded_and_uninstalled() {
    // The pods of the release are bound by kube-scheduler, and simulated.
    let options = Options { scheduler: true, ..Options::default() };
    let bed = Bed::empty_with_options(options);
    bed.plane.create_nodes(&nodes(2, "4")).expect("nodes are created");
    let helm = |args: &[&str]| {
        let mut command = helm();
        command.arg("--kubeconfig").arg(bed.plane.kubeconfig());
        run(command.args(args).args(["--namespace", "batch"]))
    };
    let is_served = |kind: &str| bed.kubectl(["get", kind]).is_ok();
    let chart = chart();

    let printed = helm(&["install", "nightly", &chart, "--create-namespace"]).expect("installed");
    assert_eq!(run_commands_of_notes(&bed, &printed), 2, "{printed}");
    assert!(printed.contains("deployment/nightly-kube-batch"), "{printed}");
    assert!(!is_served(OLDER_QUEUES));

    // The command of docs/install.md before an upgrade.
    let crds = format!("--filename={chart}/crds");
    bed.kubectl(["apply", "--server-side", "--force-conflicts", &crds]).expect("applied");
    let older = ["upgrade", "nightly", &chart, "--set", "crds.v1alpha1=true"];
    let printed = helm(&older).expect("upgraded");
    assert_eq!(run_commands_of_notes(&bed, &printed), 3, "{printed}");
    // CRDs that the release owns are upgraded with it, and kept after it.
    helm(&older).expect("upgraded again");
    bed.apply(&serde_json::json!({
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "old"},
        "spec": {"weight": 1},
    }));
    helm(&["upgrade", "nightly", &chart, "--set", "crds.v1alpha1=false"]).expect("upgraded");
    bed.kubectl(["get", OLDER_QUEUES, "old"]).expect("the CRD and its object are kept");
    helm(&older).expect("upgraded");
    // The API server accepts the objects of every value that only enables something in Kubernetes.
    let policies = "admission.queueTree.enabled=true,admission.queuePromises.enabled=true,\
                    admission.queueDeletion.enabled=true,admission.jobEvictions.enabled=true";
    let enabled = &format!(
        "admission.enabled=true,{policies},flowControl.enabled=true,networkPolicy.enabled=true"
    );
    helm(&[&older[..], &["--set", enabled]].concat()).expect("upgraded");
    helm(&["uninstall", "nightly"]).expect("uninstalled");
    bed.kubectl(["get", OLDER_QUEUES, "old"]).expect("the CRD and its object are kept");

    // CRDs that another release created, or the crds/ of an earlier chart, are left alone.
    let unowned = ["crd", "podgroups.scheduling.incubator.k8s.io", "meta.helm.sh/release-name-"];
    bed.kubectl(["annotate", unowned[0], unowned[1], unowned[2]]).expect("annotated");
    let settings = [
        "crds.v1alpha1=true,fullnameOverride=batch,replicaCount=1,leaderElection.enabled=false",
        "defaultQueue.create=false,extraArgs[0]=--scheduler-name=mine",
    ];
    let install = ["install", "other", &chart, "--set", settings[0], "--set", settings[1]];
    let printed = helm(&install).expect("installed");
    assert_eq!(run_commands_of_notes(&bed, &printed), 3, "{printed}");
    for part in ["`schedulerName: mine`", "deployment/batch\n", "is not created"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    bed.kubectl(["get", OLDER_QUEUES, "old"]).expect("the CRD and its object are kept");
}
