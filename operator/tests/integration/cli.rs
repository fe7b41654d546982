//! The binary as a user sees it: output, messages and exit codes.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use kube_batch_manifest::object::Kind;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate is in the workspace")
        .to_owned()
}

pub(crate) fn kube_batch(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kube-batch"))
        .args(args)
        .current_dir(root())
        .env_remove("KUBE_BATCH_CONFIG")
        .output()
        .expect("the binary runs")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// A temporary file, deleted when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("kube-batch-{}-{name}", std::process::id()));
        fs::write(&path, content).expect("a temporary file");
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Commands of a Markdown file with the output shown for them.
fn console_blocks(markdown: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    for block in markdown.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        let (command, output) = block.split_once('\n').unwrap_or((block, ""));
        blocks.push((command.trim_start_matches("$ ").to_owned(), output.to_owned()));
    }
    blocks
}

#[test]
fn outputs_in_the_readme_are_current() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let mut blocks = console_blocks(&readme);
    // Commands that need a cluster are compared by the end-to-end tests.
    blocks.retain(|(command, _)| command.starts_with("kube-batch "));
    assert!(blocks.len() >= 3);
    for (command, shown) in blocks {
        let args: Vec<&str> = command.split_whitespace().skip(1).collect();
        let printed = stdout(&kube_batch(&args));
        match shown.split_once("...\n") {
            Some((start, _)) => assert!(printed.starts_with(start), "{command}:\n{printed}"),
            None => assert_eq!(printed, shown, "{command}"),
        }
    }
}

/// Of the output of a command the pages show parts, with `...` between them.
#[test]
fn outputs_in_the_pages_about_queues_are_current() {
    let pages = ["queues", "migrating-from-kueue", "migrating-from-kai"];
    let texts =
        pages.map(|page| fs::read_to_string(root().join(format!("docs/{page}.md"))).unwrap());
    let blocks: Vec<_> = texts.iter().flat_map(|text| console_blocks(text)).collect();
    assert!(blocks.len() >= 8);
    for (command, shown) in blocks {
        let args: Vec<&str> = command.split_whitespace().skip(1).collect();
        let output = kube_batch(&args);
        assert_eq!(stderr(&output), "", "{command}");
        let printed = stdout(&output);
        let mut rest = &*printed;
        for part in shown.split("...\n") {
            let Some((_, after)) = rest.split_once(part) else {
                panic!("{command} does not print\n{part}but\n{printed}");
            };
            rest = after;
        }
    }
}

/// The queues that the pages show are those of the examples.
#[test]
fn queues_in_the_pages_are_those_of_the_examples() {
    for (page, example) in
        [("migrating-from-kueue", "from-kueue"), ("migrating-from-kai", "from-kai")]
    {
        let text = fs::read_to_string(root().join(format!("docs/{page}.md"))).unwrap();
        let file = root().join(format!("examples/queues/{example}.yaml"));
        let example = fs::read_to_string(file).unwrap();
        let shown = text.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
        assert!(example.contains(shown.unwrap()), "{page}");
    }
}

/// The picture in the README, and what the text below it says.
#[test]
fn the_picture_in_the_readme_is_current() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let path = "docs/borrow-and-reclaim.svg";
    assert!(readme.contains(&format!("]({path})")));
    let example = "examples/borrow-and-reclaim.yaml";
    let conf = ["--config", "examples/scheduler.yaml"];
    let args = [&["simulate", "-f", example, "-o", "svg", "--cycles", "18"], &conf[..]].concat();
    let picture = fs::read_to_string(root().join(path)).unwrap();
    assert_eq!(stdout(&kube_batch(&args)), picture);
    let args = [&["simulate", "-f", example, "-o", "json", "--cycles", "18"], &conf[..]].concat();
    let outcome: Value = serde_json::from_str(&stdout(&kube_batch(&args))).unwrap();
    // Cycle, and job of the pod that starts or for which another is evicted.
    let mut counts: BTreeMap<(u64, &str), usize> = BTreeMap::new();
    for cycle in outcome["cycles"].as_array().unwrap() {
        let number = cycle["cycle"].as_u64().unwrap();
        let entries = |list: &str| cycle[list].as_array().unwrap();
        let started = entries("binds").iter().map(|bind| bind["pod"].as_str().unwrap());
        let jobs = ["default/llm-a", "default/llm-b", "default/sweep"];
        let started = started.map(|pod| jobs.into_iter().find(|job| pod.starts_with(job)).unwrap());
        let gainers = entries("evictions").iter().map(|eviction| eviction["for"].as_str().unwrap());
        for job in started.chain(gainers) {
            *counts.entry((number, job)).or_default() += 1;
        }
    }
    let expected = [
        ((1, "default/llm-a"), 6),
        ((2, "default/llm-a"), 6),
        ((8, "default/llm-b"), 6),
        ((14, "default/sweep"), 6),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
}

/// The first violation of a schema by a value. Supports only the keywords of our schema: building a
/// validator would take longer than all tests.
fn violation(root: &Value, schema: &Value, value: &Value, path: &str) -> Option<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let definition = &root["$defs"][name.rsplit('/').next().unwrap_or_default()];
        return violation(root, definition, value, path);
    }
    if let Some(alternatives) = schema["anyOf"].as_array() {
        let violations = alternatives.iter().map(|own| violation(root, own, value, path));
        let violations: Option<Vec<String>> = violations.collect();
        return violations.map(|all| all.join(", and "));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let fits = types.iter().any(|name| match *name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    });
    if !fits {
        return Some(format!("{path} is not of {types:?}"));
    }
    if let Some(items) = value.as_array() {
        return items.iter().find_map(|item| violation(root, &schema["items"], item, path));
    }
    let object = value.as_object()?;
    let missing = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(key) = missing.into_iter().find(|key| !object.contains_key(*key)) {
        return Some(format!("{path}.{key} is missing"));
    }
    object.iter().find_map(|(key, value)| {
        let path = format!("{path}.{key}");
        match (&schema["properties"][key], &schema["additionalProperties"]) {
            (Value::Null, Value::Null) => Some(format!("{path} is not in the schema")),
            (Value::Null, others) => violation(root, others, value, &path),
            (property, _) => violation(root, property, value, &path),
        }
    })
}

#[test]
fn every_example_runs_and_matches_the_json_schema() {
    let schema = fs::read_to_string(root().join("docs/simulate.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    // The first job has no cluster of its own.
    let examples: [&[&str]; 20] = [
        &["gang.yaml"],
        &["gang-waits.yaml"],
        &["two-queues.yaml"],
        &["preemption.yaml"],
        &["reclaim.yaml"],
        &["borrow-and-reclaim.yaml"],
        &["gpu-cluster/cluster.yaml"],
        &["queues/nodes.yaml", "queues/1-weights.yaml"],
        &["queues/nodes.yaml", "queues/2-tree.yaml"],
        &["queues/nodes.yaml", "queues/3-amounts.yaml"],
        &["queues/nodes.yaml", "queues/4-guarantee.yaml"],
        &["queues/nodes.yaml", "queues/5-fence.yaml"],
        &["queues/nodes.yaml", "queues/6-sweeps.yaml"],
        &["queues/from-kueue.yaml"],
        &["queues/from-kai.yaml"],
        &["gang.yaml", "first-job.yaml"],
        &["topology.yaml"],
        &["devices/two-models.yaml"],
        &["devices/partitions.yaml"],
        &["devices/nvlink.yaml"],
    ];
    for files in examples {
        let example = files.join(" and ");
        let files: Vec<String> = files.iter().map(|file| format!("examples/{file}")).collect();
        let mut args = vec!["simulate", "--config", "examples/scheduler.yaml", "-o", "json"];
        args.extend(files.iter().flat_map(|file| ["-f", file]));
        let output = kube_batch(&args);
        assert_eq!(output.status.code(), Some(0), "{example}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{example}");
        let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(violation(&schema, &schema, &outcome, "outcome"), None, "{example}");
        assert!(outcome["cycles"][0]["binds"].is_array(), "{example}");
    }
}

#[test]
fn devices_are_shown_by_class_and_node_and_with_their_pods() {
    let example = "examples/devices/nvlink.yaml";
    let output =
        kube_batch(&["simulate", "-f", example, "--config", "examples/scheduler.yaml", "-v"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "default/train-2   gpu-c      1  gpu.example.com/gpu-c/gpu-4, gpu.example.com/gpu-c/gpu-5, \
         gpu.example.com/gpu-c/gpu-6, gpu.example.com/gpu-c/gpu-7",
        "gpu.example.com  gpu-a     5        8",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(text.contains("6 pods placed, 2 waiting"), "{text}");
}

#[test]
fn packed_gpus_are_used_and_spread_gpus_block_gangs() {
    for (config, expected) in [("gpu-cluster/spread.yaml", 8), ("scheduler.yaml", 64)] {
        let config = format!("examples/{config}");
        let cluster = "examples/gpu-cluster/cluster.yaml";
        let output = kube_batch(&["simulate", "-f", cluster, "--config", &config, "-o", "json"]);
        let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
        let used = outcome["nodes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|node| node["used"]["nvidia.com/gpu"].as_str()?.parse::<u32>().ok());
        assert_eq!(used.sum::<u32>(), expected, "{config}");
    }
}

#[test]
fn an_invalid_pod_template_is_reported_with_its_position() {
    let gang = fs::read_to_string(root().join("examples/gang.yaml")).unwrap();
    let file = Scratch::new("template.yaml", gang.replace("{cpu: '1'}", "{cpu: '1x'}").as_bytes());
    let strict = kube_batch(&["simulate", "-f", file.path(), "--strict"]);
    assert_eq!(strict.status.code(), Some(1));
    let messages = stderr(&strict);
    for part in ["Job default/qj-1", "spec.template.spec.containers[0].resources.requests", ":26:"]
    {
        assert!(messages.contains(part), "{part} in {messages}");
    }
}

#[test]
fn an_invalid_object_does_not_affect_the_others() {
    let file = Scratch::new(
        "bad.yaml",
        b"apiVersion: v1\nkind: Node\nmetadata: {name: bad}\nstatus: {allocatable: {cpu: 1x}}\n---\n\
          apiVersion: v1\nkind: Node\nmetadata: {name: good}\nstatus: {allocatable: {cpu: 1, pods: 9}}\n",
    );
    let output = kube_batch(&["simulate", "-f", file.path()]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("good"), "{}", stdout(&output));
    let messages = stderr(&output);
    for part in ["Node bad", "document 1", "status.allocatable", "unknown suffix \"x\"", ":4:29"] {
        assert!(messages.contains(part), "{part} in {messages}");
    }
    let strict = kube_batch(&["simulate", "-f", file.path(), "--strict"]);
    assert_eq!(strict.status.code(), Some(1));
    assert_eq!(stdout(&strict), "");
}

#[test]
fn names_of_missing_objects_are_reported() {
    let file = Scratch::new(
        "dangling.yaml",
        b"apiVersion: scheduling.sigs.dev/v1alpha2\nkind: PodGroup\nmetadata: {name: g, namespace: a}\n\
          spec: {minMember: 1, queue: nope}\n---\napiVersion: v1\nkind: Pod\n\
          metadata: {name: p, namespace: b, annotations: {scheduling.k8s.io/group-name: g}}\n\
          spec: {schedulerName: kube-batch, containers: [{name: c}]}\n",
    );
    let messages = stderr(&kube_batch(&["simulate", "-f", file.path()]));
    assert!(
        messages.contains("PodGroup a/g: spec.queue: queue \"nope\" does not exist"),
        "{messages}"
    );
    assert!(
        messages.contains("PodGroup b/g does not exist; the one in namespace a is not used"),
        "{messages}"
    );
}

#[test]
fn unusable_input_is_reported_and_nothing_is_run() {
    let empty = Scratch::new("empty.yaml", b"");
    let binary = Scratch::new("binary.yaml", &[0, 159, 146, 150]);
    let nested = Scratch::new("nested.yaml", "[".repeat(10_000).as_bytes());
    for (path, message) in [
        (empty.path(), "contains no objects"),
        (binary.path(), "is not"),
        (nested.path(), "is nested more than 128 levels deep"),
    ] {
        let output = kube_batch(&["simulate", "-f", path]);
        assert_eq!(output.status.code(), Some(1), "{path}");
        assert!(stderr(&output).contains(message), "{path}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{path}");
    }
}

#[test]
fn a_file_that_cannot_be_read_stops_the_command() {
    for (path, message) in [
        ("no/such/file.yaml", "no such file or directory"),
        ("operator/src", "contains no manifests"),
    ] {
        let output = kube_batch(&["simulate", "-f", "examples/gang.yaml", "-f", path]);
        assert_eq!(output.status.code(), Some(2), "{path}");
        assert!(stderr(&output).contains(message), "{path}: {}", stderr(&output));
        assert!(stderr(&output).contains("1 source cannot be read; nothing was run"), "{path}");
        assert_eq!(stdout(&output), "", "{path}");
    }
}

/// What `simulate -o json` prints for a manifest, and what it writes to standard error.
pub(crate) fn simulated(name: &str, manifest: &str) -> (Value, String) {
    let file = Scratch::new(name, manifest.as_bytes());
    let output = kube_batch(&["simulate", "-f", file.path(), "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    (serde_json::from_slice(&output.stdout).expect("JSON"), stderr(&output))
}

/// A queue, and a node with room for one of the pods below.
pub(crate) const SMALL_CLUSTER: &str = "\
{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}}
---
{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: 1, pods: 9}}}
---
";

pub(crate) fn one_pod_job(name: &str, duration: &str) -> String {
    format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}}}, spec: {{template: {{\
         metadata: {{annotations: {{kube-batch.sim/duration-seconds: '{duration}'}}}}, spec: {{\
         schedulerName: kube-batch, containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}}}}}}}\n---\n"
    )
}

#[test]
fn a_simulation_ends_when_nothing_can_change_any_more() {
    // The cycles in between, in which nothing happens, are not run one by one.
    let jobs = one_pod_job("a", "10s") + &one_pod_job("b", "24h") + &one_pod_job("c", "1.5s");
    let (outcome, _) = simulated("ends.yaml", &(SMALL_CLUSTER.to_owned() + &jobs));
    let cycles: Vec<_> = outcome["cycles"].as_array().expect("cycles").iter().collect();
    let bound: Vec<_> = cycles
        .iter()
        .map(|cycle| (cycle["cycle"].as_u64(), cycle["binds"][0]["pod"].as_str()))
        .collect();
    let expected = [
        (Some(1), Some("default/a-0")),
        (Some(11), Some("default/b-0")),
        (Some(86_411), Some("default/c-0")),
    ];
    assert_eq!(bound, expected);
    let statuses: Vec<_> = outcome["pods"].as_array().expect("pods").iter().collect();
    assert!(statuses.iter().all(|pod| pod["status"] == "Succeeded"), "{statuses:?}");
    assert_eq!(outcome["waiting"]["maxSeconds"], 86_411);
}

#[test]
fn an_object_without_a_creation_time_is_younger_than_those_of_a_cluster() {
    let group = |name: &str, meta: &str| {
        format!(
            "{{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {{name: {name}{meta}}}, spec: {{minMember: 1}}}}\n---\n\
             {{apiVersion: v1, kind: Pod, metadata: {{name: {name}, annotations: {{scheduling.k8s.io/group-name: {name}}}{meta}}}, \
             spec: {{schedulerName: kube-batch, containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}}}\n---\n"
        )
    };
    let manifest = SMALL_CLUSTER.to_owned()
        + &group("a-new", "")
        + &group("old", ", creationTimestamp: '2026-05-01T00:00:00Z'");
    let (outcome, _) = simulated("ages.yaml", &manifest);
    assert_eq!(outcome["cycles"][0]["binds"][0]["pod"], "default/old");
    let waiting = &outcome["podGroups"][1];
    assert_eq!(waiting["podGroup"], "default/a-new");
    assert_eq!(waiting["waitingSince"], "2026-05-01T00:00:01Z");
    assert_eq!(outcome["waiting"]["pending"], 1);
}

#[test]
fn controllers_that_are_not_simulated_are_reported() {
    let manifest = SMALL_CLUSTER.to_owned()
        + "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a}}\n---\n\
           {apiVersion: batch/v1, kind: CronJob, metadata: {name: a}}\n---\n\
           {apiVersion: batch/v1, kind: CronJob, metadata: {name: b}}\n---\n\
           {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n---\n"
        + &one_pod_job("a", "1");
    let (outcome, messages) = simulated("unknown.yaml", &manifest);
    for part in [
        "1 PyTorchJob (kubeflow.org/v1) is not expanded into pods",
        "2 CronJobs (batch/v1) are not expanded into pods",
        "does not use these kinds: 1 v1 ConfigMap",
    ] {
        assert!(messages.contains(part), "{part} in {messages}");
        assert!(outcome["warnings"].to_string().contains(part), "{part}");
    }
}

#[test]
fn kinds_that_the_input_lacks_are_reported() {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {schedulerName: kube-batch, \
               priorityClassName: high, containers: [{name: c}], \
               volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}\n---\n";
    let (_, messages) = simulated("lacks.yaml", pod);
    for part in [
        "the input has no nodes, but there are pods: no pod can be placed",
        "the input has no persistentvolumeclaims, but pods name claims: pods with claims wait",
        "PriorityClass \"high\" does not exist, but 1 pod names it, such as default/p: an API server \
         would reject it",
    ] {
        assert!(messages.contains(part), "{part} in {messages}");
    }
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {storageClassName: fast, volumeName: v}}\n---\n\
                 {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: other}, spec: {storageClassName: fast}}\n---\n";
    let class = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1}\n---\n";
    let (_, messages) = simulated("claims.yaml", &(SMALL_CLUSTER.to_owned() + pod + claim + class));
    assert!(!messages.contains("no nodes") && !messages.contains("PriorityClass"), "{messages}");
    assert!(messages.contains("the input has no persistentvolumes, but claims name volumes"));
    assert!(messages.contains("the input has no storageclasses, but claims name classes"));
}

/// A pod with this beginning of a spec, in the format of one document.
fn pod(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{{spec}, containers: \
         [{{name: c}}]}}}}\n---\n"
    )
}

/// Exit code and messages with --strict.
fn strictly(name: &str, manifest: &str) -> (Option<i32>, String) {
    let file = Scratch::new(name, manifest.as_bytes());
    let output = kube_batch(&["simulate", "-f", file.path(), "--strict"]);
    (output.status.code(), stderr(&output))
}

#[test]
fn manifests_get_the_defaults_of_an_api_server() {
    let manifest = SMALL_CLUSTER.to_owned()
        + "{apiVersion: v1, kind: Pod, metadata: {name: large}, spec: {schedulerName: kube-batch, \
           containers: [{name: c, resources: {limits: {cpu: 2}}}]}}\n---\n"
        + "{apiVersion: v1, kind: Pod, metadata: {name: low}, spec: {schedulerName: kube-batch, \
           containers: [{name: c, resources: {requests: {cpu: 1}}}]}}\n---\n"
        + "{apiVersion: v1, kind: Pod, metadata: {name: zz-high}, spec: {schedulerName: kube-batch, \
           priorityClassName: high, containers: [{name: c, resources: {requests: {cpu: 1}}}]}}\n---\n"
        + "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 9}";
    let (outcome, messages) = simulated("defaults.yaml", &manifest);
    assert_eq!(messages, "");
    assert_eq!(outcome["queues"][0]["weight"], 1);
    assert_eq!(outcome["cycles"][0]["binds"][0]["pod"], "default/zz-high");
    assert_eq!(outcome["pods"][0]["status"], "Pending", "its limit is its request");
}

#[test]
fn waiting_pods_of_other_schedulers_are_reported() {
    let similar = SMALL_CLUSTER.to_owned() + &pod("a", "schedulerName: kube-bach");
    let (code, messages) = strictly("similar.yaml", &similar);
    assert_eq!(code, Some(1));
    assert!(
        messages.contains(
            "warning: 1 waiting pod names another scheduler: kube-bach (did you mean kube-batch?)"
        ),
        "{messages}"
    );
    let unnamed = SMALL_CLUSTER.to_owned() + &pod("a", "hostNetwork: false");
    let (code, messages) = strictly("unnamed.yaml", &unnamed);
    assert_eq!(code, Some(1));
    assert!(
        messages.contains("1 waiting pod names another scheduler: default-scheduler (pods for")
    );
    let ours = pod("ours", "schedulerName: kube-batch");
    assert_eq!(strictly("both.yaml", &(unnamed.clone() + &ours)), (Some(0), String::new()));
    let volcano = SMALL_CLUSTER.to_owned() + &pod("v", "schedulerName: volcano") + &ours;
    let (code, messages) = strictly("volcano.yaml", &volcano);
    assert_eq!(code, Some(0));
    assert_eq!(messages, "note: 1 waiting pod names another scheduler: volcano\n");
    let running = unnamed.replace("hostNetwork: false", "nodeName: n");
    assert_eq!(strictly("running.yaml", &running), (Some(0), String::new()));
}

#[test]
fn what_jobs_and_queues_of_the_input_lack_is_reported() {
    let node = SMALL_CLUSTER.split_once("---\n").expect("two objects").1;
    let lacks = node.to_owned()
        + &pod("a", "schedulerName: kube-batch")
        + &pod("lost", "schedulerName: kube-batch, nodeName: gone")
        + "{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {name: g}, spec: {}}\n---\n"
        + "{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: q}, spec: \
           {capability: {gpu: 2, cpu: 1, zero: 0}}}\n---\n"
        + "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {metadata: \
           {annotations: {scheduling.k8s.io/group-name: gg}}, spec: {containers: [{name: c}]}}}}";
    let lacks = lacks.replace("cpu: 1, pods: 9}", "cpu: 1, pods: 9, nvidia.com/gpu: 1}");
    let (_, messages) = simulated("jobs-lack.yaml", &lacks);
    for part in [
        "queue \"default\" does not exist, and is the queue of jobs that name none (1 PodGroup, 1 pod \
         without a PodGroup)",
        "the node of 1 running pod is not in the input, such as gone of default/lost",
        "Queue q: spec.capability[gpu]: no node has this resource (did you mean nvidia.com/gpu?)",
        "Job default/j: spec.template.metadata.annotations[scheduling.k8s.io/group-name]: PodGroup \
         default/gg does not exist",
    ] {
        assert!(messages.contains(part), "{part} in {messages}");
    }
    assert_eq!(messages.matches("spec.capability").count(), 1, "{messages}");
}

#[test]
fn a_pod_that_an_api_server_would_reject_is_reported_and_simulated() {
    let spec = "schedulerName: kube-batch, topologySpreadConstraints: [{maxSkew: 0, topologyKey: \
                zone, whenUnsatisfiable: ScheduleAnyway, minDomains: 0}]";
    let manifest = SMALL_CLUSTER.to_owned() + &pod("a", spec);
    let (outcome, messages) = simulated("rejected.yaml", &manifest);
    assert_eq!(outcome["pods"][0]["status"], "Running");
    let expected = "warning: Pod default/a: spec.topologySpreadConstraints[0].maxSkew: must be at \
                    least 1, not 0; an API server would reject this Pod (1 further reason)";
    assert!(messages.contains(expected), "{messages}");
    assert!(messages.contains("rejected.yaml:5:"), "{messages}");
    let stored = manifest.replace("{name: a}", "{name: a, uid: u}");
    assert_eq!(simulated("stored.yaml", &stored).1, "");
}

#[test]
fn what_is_gone_at_the_end_is_shown() {
    let failing = "{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {activeDeadlineSeconds: \
                   5, template: {spec: {schedulerName: kube-batch, containers: [{name: c, resources: \
                   {requests: {cpu: 1}}}]}}}}";
    let (outcome, _) = simulated("gone.yaml", &(SMALL_CLUSTER.to_owned() + failing));
    assert_eq!(outcome["podGroups"][0]["phase"], "Failed");
    let cluster = &outcome["cluster"];
    assert_eq!(
        (&cluster["utilization"]["cpu"], &cluster["peakUtilization"]["cpu"]),
        (&0.0.into(), &1.0.into())
    );
    assert_eq!(cluster["peak"]["cpu"], "1");
    let file = Scratch::new("gone-table.yaml", (SMALL_CLUSTER.to_owned() + failing).as_bytes());
    let shown = stdout(&kube_batch(&["simulate", "-f", file.path()]));
    for part in ["Used at the end: cpu 0/1 (0%)", "Used at the peak: cpu 1/1 (100%)", "Failed"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn jobs_of_the_same_name_are_told_apart() {
    let owner =
        "ownerReferences: [{apiVersion: batch/v1, kind: Job, name: x, uid: u, controller: true}]";
    let member = pod("x0", "schedulerName: kube-batch").replace(
        "{name: x0}",
        &format!("{{name: x0, annotations: {{scheduling.k8s.io/group-name: x}}, {owner}}}"),
    );
    let alone = pod("x1", "schedulerName: kube-batch")
        .replace("{name: x1}", &format!("{{name: x1, {owner}}}"));
    let group = "{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {name: x}, spec: \
                 {minMember: 1}}";
    let manifest = SMALL_CLUSTER.to_owned() + &member + &alone + group;
    let file = Scratch::new("same.yaml", manifest.as_bytes());
    let shown = stdout(&kube_batch(&["simulate", "-f", file.path()]));
    assert!(shown.contains("default/x (no PodGroup)  default"), "{shown}");
    assert!(shown.contains("default/x                default"), "{shown}");
}

#[test]
fn a_simulation_of_no_time_and_a_missing_kubeconfig_are_errors() {
    for until in ["1d", "0", "1500ms"] {
        let output = kube_batch(&["simulate", "-f", "examples/gang.yaml", "--until", until]);
        assert_eq!(output.status.code(), Some(2), "{until}");
        assert!(
            stderr(&output).contains("expected at least one second, in whole seconds"),
            "{until}"
        );
    }
    let output = kube_batch(&["simulate", "--kubeconfig", "no/such"]);
    assert_eq!(output.status.code(), Some(2));
    let messages = stderr(&output);
    assert_eq!(messages.matches("No such file").count(), 1, "{messages}");
    assert_eq!(messages.matches("no/such").count(), 1, "{messages}");
}

#[test]
fn nodes_and_queues_are_shown_with_what_limits_them() {
    let manifest = "\
{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}, spec: {capability: {nvidia.com/gpu: 4}}}
---
{apiVersion: v1, kind: Node, metadata: {name: gpu}, spec: {unschedulable: true, taints: [{key: gpu, value: a100, effect: NoSchedule}]}, status: {allocatable: {cpu: 8, pods: 9, nvidia.com/gpu: 8, ephemeral-storage: 9Gi}}}
---
{apiVersion: v1, kind: Node, metadata: {name: down}, status: {allocatable: {cpu: 8, pods: 9}, conditions: [{type: Ready, status: 'False'}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {schedulerName: kube-batch, containers: [{name: c, resources: {requests: {nvidia.com/gpu: 1}}}]}}
";
    let file = Scratch::new("tables.yaml", manifest.as_bytes());
    let printed = stdout(&kube_batch(&["simulate", "-f", file.path()]));
    for part in [
        "Used: cpu 0/16 (0%), nvidia.com/gpu 0/8 (0%), pods 0/18 (0%)",
        "Waited: pending pods for up to 1s",
        "QUEUE    WEIGHT  CAPABILITY",
        "4 GPUs",
        "NVIDIA.COM/GPU",
        "Ready,SchedulingDisabled",
        "NotReady",
        "gpu=a100:NoSchedule",
        "WAITS",
    ] {
        assert!(printed.contains(part), "{part} in\n{printed}");
    }
    assert!(!printed.contains("EPHEMERAL-STORAGE"), "no pod requests it:\n{printed}");
}

#[test]
fn every_place_lists_the_kinds_that_a_simulation_reads() {
    let kinds = Kind::kubectl_list();
    let help = stdout(&kube_batch(&["simulate", "--help"])).replace([' ', '\n'], "");
    assert!(help.contains(&kinds), "{help}");
    for document in ["README.md", "docs/simulate.md"] {
        let text = fs::read_to_string(root().join(document)).unwrap();
        assert!(text.contains(&kinds), "{document} does not contain {kinds}");
    }
    let manual = fs::read_to_string(root().join("docs/simulate.md")).unwrap();
    for kind in Kind::ALL.iter().copied() {
        assert!(manual.contains(kind.name()), "docs/simulate.md does not mention {kind}");
    }
}

#[test]
fn every_error_in_a_configuration_is_listed_and_nothing_is_run() {
    let conf = Scratch::new(
        "conf.yaml",
        b"actions: alocate, x\ntiers:\n- plugins: [{name: gan}, {name: drf, enableJobOrder: 3}]\n- foo\n",
    );
    let output = kube_batch(&["simulate", "-f", "examples/gang.yaml", "--config", conf.path()]);
    assert_eq!(output.status.code(), Some(2));
    let messages = stderr(&output);
    for part in [
        "unknown action \"alocate\", did you mean allocate",
        "unknown action \"x\"",
        "unknown plugin \"gan\", did you mean gang",
        "expected a boolean, found the number 3",
        "expected a mapping, found \"foo\"",
        "5 errors in configuration",
    ] {
        assert!(messages.contains(part), "{part} in {messages}");
    }
    assert_eq!(stdout(&output), "");
    let missing = kube_batch(&["simulate", "-f", "examples/gang.yaml", "--config", "no/such.yaml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("cannot read configuration no/such.yaml"));
}

#[test]
fn test_cases_pass_or_fail_or_are_invalid() {
    let passes = kube_batch(&["test", "examples/cases", "examples/integrations"]);
    assert_eq!(passes.status.code(), Some(0), "{}", stderr(&passes));

    let good = fs::read_to_string(root().join("examples/cases/research-may-borrow.yaml")).unwrap();
    let wrong = Scratch::new("wrong.yaml", good.replace("research: 4}", "research: 5}").as_bytes());
    let fails = kube_batch(&["test", wrong.path()]);
    assert_eq!(fails.status.code(), Some(1));
    let shown = stdout(&fails);
    assert!(shown.contains("FAIL research-may-borrow"), "{shown}");
    assert!(shown.contains("bindCount.queues.research"), "{shown}");
    assert!(shown.contains("wanted 5") && shown.contains("got    4"), "{shown}");

    let misspelt = Scratch::new("misspelt.yaml", good.replace("bindCount", "bindCuont").as_bytes());
    let invalid = kube_batch(&["test", misspelt.path()]);
    assert_eq!(invalid.status.code(), Some(2));
    assert!(stderr(&invalid).contains("bindCuont"), "{}", stderr(&invalid));
}

/// A case that fails, and one that passes.
fn two_cases() -> String {
    let good = fs::read_to_string(root().join("examples/cases/research-may-borrow.yaml"))
        .expect("the example");
    let wrong = good.replace("name: research-may-borrow", "name: wrong");
    format!("{}\n---\n{good}", wrong.replace("research: 4}", "research: 5}"))
}

#[test]
fn results_of_test_cases_are_printed_for_programs() {
    let file = Scratch::new("two.yaml", two_cases().as_bytes());
    let output = kube_batch(&["test", file.path(), "-o", "json", "-v"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["passed"], &report["failed"]), (&1.into(), &1.into()));
    let wrong = &report["cases"][0];
    assert_eq!(
        (wrong["name"].as_str(), wrong["outcome"].as_str()),
        (Some("wrong"), Some("failed"))
    );
    assert_eq!(wrong["mismatches"][0]["got"], "4");
    assert_eq!(wrong["cycles"][0]["binds"].as_array().map(Vec::len), Some(4));
    assert!(report["cases"][1]["seconds"].is_f64());

    let xml = stdout(&kube_batch(&["test", file.path(), "-o", "junit"]));
    for part in [
        r#"<testsuites name="kube-batch test" tests="2" failures="1" errors="0" time=""#,
        r#"<testcase name="wrong" classname=""#,
        r#"<failure message="bindCount.queues.research: wanted 5, got 4">"#,
        "</testsuites>",
    ] {
        assert!(xml.contains(part), "{part} in {xml}");
    }
}

#[test]
fn a_failing_test_case_can_be_explained_and_can_be_the_last() {
    let file = Scratch::new("explained.yaml", two_cases().as_bytes());
    let quiet = stdout(&kube_batch(&["test", file.path()]));
    assert!(!quiet.contains("cycle 1") && quiet.contains("1 passed, 1 failed"), "{quiet}");
    let verbose = stdout(&kube_batch(&["test", file.path(), "--verbose"]));
    for part in ["cycle 1\n", "bind default/sweep-0 to n1", "PASS research-may-borrow (", " ms)"] {
        assert!(verbose.contains(part), "{part} in {verbose}");
    }
    let first = kube_batch(&["test", file.path(), "--fail-fast"]);
    assert_eq!(first.status.code(), Some(1));
    assert!(stdout(&first).contains("0 passed, 1 failed"), "{}", stdout(&first));
}

#[test]
fn test_cases_run_under_another_configuration() {
    // Without proportion, no queue is limited to its share, and without allocate nothing starts.
    let conf = Scratch::new(
        "no-allocate.yaml",
        b"actions: backfill\ntiers:\n- plugins: [{name: priority}, {name: gang}]\n",
    );
    let output = kube_batch(&["test", "examples/cases", "--config", conf.path()]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("got    0"), "{}", stdout(&output));
}

/// Exit code and messages of a test case with a node `n1`, a pod `ns/p0` and the rest.
fn tested(rest: &str) -> (Option<i32>, String) {
    let text = format!(
        "name: a\nobjects:\n- {{apiVersion: v1, kind: Node, metadata: {{name: n1}}}}\n- {{apiVersion: v1, \
         kind: Pod, metadata: {{name: p0, namespace: ns}}, spec: {{schedulerName: kube-batch, \
         containers: []}}}}\n- {{apiVersion: batch/v1, kind: Job, metadata: {{name: j}}, spec: \
         {{parallelism: 0, template: {{spec: {{containers: []}}}}}}}}\n{rest}\n"
    );
    let file = Scratch::new(&format!("case-{}.yaml", rest.len()), text.as_bytes());
    let output = kube_batch(&["test", file.path()]);
    (output.status.code(), stderr(&output))
}

#[test]
fn a_case_that_could_not_fail_is_invalid() {
    for (rest, expected) in [
        (
            "expect: {notScheduled: [ns/p1]}",
            "pod \"ns/p1\" never exists in this case, did you mean ns/p0",
        ),
        ("expect: {notScheduled: [p0]}", "\"p0\" is not of the form namespace/name"),
        ("expect: {evictsNot: [ns/p0, ns/p22]}", "expect.evictsNot[1]: pod \"ns/p22\""),
        ("expect: {binds: {ns/p0: n2}}", "node \"n2\" never exists"),
        ("expect: {bindCount: {queues: {q: 0}}}", "queue \"q\" never exists"),
        ("expect: {bindCount: {groups: {ns/gg: 0}}}", "PodGroup, controller or pod \"ns/gg\""),
        ("expect: {podGroups: {ns/g: {}}}", "PodGroup \"ns/g\" never exists"),
        ("expect: {sameNode: [[ns/p0, ns/x]]}", "expect.sameNode[0][1]"),
        ("expect: {eventsNot: [{object: Pod ns/x}]}", "pod \"ns/x\" never exists"),
        ("expect: {eventsNot: [{object: Podd ns/p0}]}", "is not of the form Pod namespace/name"),
        ("expect: {}", "has no expectations, so it tests nothing"),
        ("steps: [{cycles: 3}]", "has no expectations, so it tests nothing"),
        ("expect: {bindCount: -1}", "expect.bindCount: -1 is negative"),
        ("expect: {bindCount: {total: {min: -2}}}", "-2 is negative"),
    ] {
        let (code, messages) = tested(rest);
        assert_eq!(code, Some(2), "{rest}: {messages}");
        assert!(messages.contains(expected), "{expected} in {messages}");
    }
    for rest in [
        "expect: {notScheduled: [ns/p0, default/j-0, default/j-1-2], bindCount: {groups: {default/j: 0}}}",
        "steps: [{cycles: 1}, {expect: {}}, {delete: [{kind: Pod, namespace: ns, name: p0}], \
         cycles: 1}, {expect: {notScheduled: [ns/p0], bindCount: {queues: {default: 0}}}}]",
    ] {
        assert_eq!(tested(rest), (Some(0), String::new()), "{rest}");
    }
}

#[test]
fn names_of_cases_are_unique_and_their_configurations_are_checked() {
    let case = "name: same\nconfig: {actions: allocate, tiers: [{plugins: [{name: gang, enabelJobReady: \
                false}]}]}\nexpect: {bindCount: 0}\n";
    let (one, two) =
        (Scratch::new("one.yaml", case.as_bytes()), Scratch::new("two-same.yaml", case.as_bytes()));
    let output = kube_batch(&["test", one.path(), one.path(), two.path()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("1 passed, 0 failed, 1 invalid"), "{}", stdout(&output));
    let messages = stderr(&output);
    let expected = format!("name: a case in {} has this name too", one.path());
    assert!(messages.contains(&expected) && messages.contains(two.path()), "{messages}");
    let warning = "unknown key has no effect, did you mean enableJobReady";
    assert!(
        messages
            .contains(&format!("warning: config.tiers[0].plugins[0].enabelJobReady: {warning}"))
    );
    let json = kube_batch(&["test", one.path(), "-o", "json"]);
    let report: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert!(report["cases"][0]["warnings"][0].as_str().is_some_and(|text| text.ends_with(warning)));
}

#[test]
fn manifests_among_test_cases_are_reported_once_for_each_file() {
    let output = kube_batch(&["test", "examples/two-queues.yaml", "examples/cases"]);
    assert_eq!(output.status.code(), Some(2));
    let messages = stderr(&output);
    assert_eq!(messages.lines().count(), 1, "{messages}");
    assert!(messages.contains("examples/two-queues.yaml: contains manifests, not test cases"));
    assert!(stdout(&output).contains("1 passed, 0 failed, 1 invalid"), "{}", stdout(&output));
}

/// Runs a shell with a script that completes `kube-batch simulate --conf` and prints what it offers.
fn completed_by(shell: &str, args: &[&str], script: &str) -> String {
    let output = kube_batch(&["completions", shell]);
    assert_eq!(output.status.code(), Some(0));
    let file = Scratch::new(&format!("completions.{shell}"), &output.stdout);
    let script = script.replace("COMPLETIONS", file.path());
    let run = Command::new(shell).args(args).arg("-c").arg(&script).output();
    let run = run.unwrap_or_else(|error| {
        panic!("cannot run {shell}: {error}; install it, for example with apt-get install {shell}")
    });
    assert!(run.status.success(), "{shell}: {}", stderr(&run));
    stdout(&run)
}

#[test]
fn bash_completes_flags_after_a_subcommand() {
    let script = "source COMPLETIONS
        complete -p kube-batch >/dev/null || exit 1
        try() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
            _kube-batch kube-batch \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"
            echo \"${COMPREPLY[*]}\"; }
        try kube-batch sim
        try kube-batch simulate --conf
        try kube-batch test --fail
        try kube-batch simulate --output ''";
    let function = stdout(&kube_batch(&["completions", "bash"]));
    let name = function.lines().next().unwrap_or_default().trim_end_matches("() {").to_owned();
    let offered = completed_by("bash", &["--norc"], &script.replace("_kube-batch", &name));
    assert_eq!(
        offered.lines().collect::<Vec<_>>(),
        ["simulate", "--config", "--fail-fast", "table json yaml svg"]
    );
}

#[test]
fn fish_completes_flags_after_a_subcommand() {
    let script = "source COMPLETIONS
        complete -C 'kube-batch sim'
        complete -C 'kube-batch simulate --conf'
        complete -C 'kube-batch simulate --output '";
    let offered = completed_by("fish", &["--no-config"], script);
    for word in ["simulate\t", "--config\t", "json\t"] {
        assert!(offered.contains(word), "{word} in {offered}");
    }
}

#[test]
fn zsh_completes_flags_after_a_subcommand() {
    // Completion needs a terminal: zsh runs another zsh in one, and types into that.
    let script = "zmodload zsh/zpty
        zpty -b inner zsh -f -i
        zpty -w inner \"PS1= ; stty -echo; autoload -Uz compinit; compinit -u -D; source COMPLETIONS; \\
            zstyle ':completion:*' list-prompt ''; LISTMAX=0; COLUMNS=200; echo re''ady\"
        zpty -r -m inner line '*ready*'
        zpty -n -w inner $'kube-batch simulate --conf\\t'
        zpty -r -m inner line '*--config*' && print offered --config
        zpty -n -w inner $'\\x15kube-batch simulate --output js\\t'
        zpty -r -m inner line '*json*' && print offered json
        zpty -d inner";
    let offered = completed_by("zsh", &["-f"], script);
    assert!(offered.contains("offered --config\noffered json"), "{offered}");
}

#[test]
fn completions_and_manual_pages_come_from_the_command_line() {
    for shell in ["bash", "zsh", "fish"] {
        let output = kube_batch(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("simulate"));
    }
    let directory = std::env::temp_dir().join(format!("kube-batch-man-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let output = kube_batch(&["man", directory.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = fs::read_to_string(directory.join("kube-batch-simulate.1")).unwrap();
    fs::remove_dir_all(&directory).unwrap();
    assert!(page.contains("simulate"));
}
