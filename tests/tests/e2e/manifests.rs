//! The manifests in the documentation and in `examples/`: a real API server accepts them, without unknown fields.

use std::{collections::BTreeSet, fs, path::Path};

use kube_batch_testbed::cluster::Options;
use serde_json::{Value, json};
use xtask_launcher::build::root;

use crate::{
    bed::{Bed, NAMESPACE, nodes},
    other_groups::install_other_definitions,
};

/// API groups of controllers that the test bed does not install: only the pod templates of their objects are
/// checked.
const NOT_INSTALLED: [&str; 11] = [
    "argoproj.io",
    "config.k8s.io",
    "jobset.x-k8s.io",
    "kubeflow.org",
    "kustomize.config.k8s.io",
    "leaderworkerset.x-k8s.io",
    "ray.io",
    "sparkoperator.k8s.io",
    "trainer.kubeflow.org",
    "monitoring.coreos.com",
    "batch.volcano.sh",
];

/// An object, and where it is written.
struct Manifest {
    file: String,
    object: Value,
}

/// The objects of YAML text; parts of objects are left out.
fn objects(file: &str, text: &str) -> Vec<Manifest> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{file}: {error}\n{text}"));
    let is_object = |value: &Value| value["apiVersion"].is_string() && value["kind"].is_string();
    let listed = documents.into_iter().flat_map(|document| match document {
        Value::Array(items) => items,
        other => vec![other],
    });
    let manifest = |object| Manifest { file: file.to_owned(), object };
    listed.filter(is_object).map(manifest).collect()
}

/// The YAML blocks of a page, each without the indentation of its fence.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        match (&mut open, line.trim_start()) {
            (None, "```yaml") => open = Some((indent, String::new())),
            (Some(_), "```") => blocks.extend(open.take().map(|(_, block)| block)),
            (Some((indent, block)), _) => {
                block.push_str(line.get(*indent..).unwrap_or_default());
                block.push('\n');
            }
            (None, _) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

fn files(directory: &Path, extension: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(directory).expect("the directory exists");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let has_extension =
        |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == extension);
    let mut paths: Vec<_> = paths.filter(has_extension).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| fs::read_to_string(path).expect("it is text");
    paths.iter().map(|path| (path.display().to_string(), read(path))).collect()
}

fn manifests() -> Vec<Manifest> {
    let root = root();
    let mut pages = files(&root.join("docs"), "md");
    pages.extend(files(root, "md"));
    let of_page = |(file, text): &(String, String)| {
        blocks(text).iter().flat_map(|block| objects(file, block)).collect::<Vec<_>>()
    };
    let mut manifests: Vec<Manifest> = pages.iter().flat_map(of_page).collect();
    for (file, text) in files(&root.join("examples"), "yaml") {
        // Test cases and configurations are none.
        if text.contains("\nkind: ") && !text.contains("\nexpect:") {
            manifests.extend(objects(&file, &text));
        }
    }
    manifests
}

/// The pod templates in an object.
fn pod_templates(object: &Value, found: &mut Vec<Value>) {
    match object {
        Value::Object(fields) => {
            if fields.get("spec").is_some_and(|spec| spec["containers"].is_array()) {
                let metadata = json!({"name": "template", "namespace": NAMESPACE});
                let template = json!({"metadata": fields.get("metadata"), "spec": fields["spec"]});
                found.push(json!({
                    "apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": template,
                }));
            }
            fields.values().for_each(|value| pod_templates(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| pod_templates(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn an_api_server_accepts_every_manifest_of_the_documentation() {
    let options = Options { pod_groups: true, ..Options::default() };
    let bed = Bed::with_options(options, &nodes(0, "1"));
    install_other_definitions(&bed);
    let manifests = manifests();
    let namespaces = manifests.iter().filter_map(|m| m.object["metadata"]["namespace"].as_str());
    for namespace in namespaces.collect::<BTreeSet<_>>() {
        bed.apply(
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        );
    }
    let mut problems = Vec::new();
    let (mut n_objects, mut n_templates) = (0, 0);
    for Manifest { file, object } in &manifests {
        let api = object["apiVersion"].as_str().expect("it has one");
        let group = api.split_once('/').map_or("", |(group, _)| group);
        let mut checked = Vec::new();
        if NOT_INSTALLED.contains(&group) {
            pod_templates(object, &mut checked);
            n_templates += checked.len();
        } else {
            checked.push(object.clone());
            n_objects += 1;
        }
        for object in checked {
            let args = ["create", "--filename=-", "--dry-run=server", "--validate=strict"];
            if let Err(error) = bed.plane.kubectl_stdin(args, &object.to_string()) {
                let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
                problems.push(format!("{file}: {kind} {name}: {error:#}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(n_objects >= 10 && n_templates >= 5, "{n_objects} objects, {n_templates} templates");
}
