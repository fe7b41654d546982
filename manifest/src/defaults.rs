//! Defaults that an API server would set, for objects read from files.
//!
//! Only those that the scheduler depends on: a node without conditions has none.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Affinity, Container, Node, Pod, PodAffinityTerm, PodSpec},
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, LabelSelectorRequirement, Time},
    },
};
use kube_batch_model::resource::{CPU, MEMORY};

use crate::object::{Kind, Object};

/// The namespace of objects that name none.
pub const NAMESPACE: &str = "default";

/// Label by which pods select nodes by name.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Label by which selectors pick namespaces by name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Fills in what is absent, as created at `created`: namespace, uid, creation time, the phase of a
/// pod, its requests and the label keys in its selectors, the hostname label and the capacity of a
/// node, and the label with the name of a namespace.
///
/// The uid is `namespace/name`, so that equal manifests give equal runs.
pub fn fill(object: &mut Object, created: Timestamp) {
    let is_namespaced = object.kind().is_namespaced();
    let meta = object.meta_mut();
    if is_namespaced {
        meta.namespace = meta.namespace.take().filter(|namespace| !namespace.is_empty());
        meta.namespace.get_or_insert_with(|| NAMESPACE.to_owned());
    }
    meta.creation_timestamp.get_or_insert(Time(created));
    let key = object.key().to_string();
    object.meta_mut().uid.get_or_insert(key);
    if let Object::Pod(pod) = object {
        fill_pod(pod);
    } else if let Object::Node(node) = object {
        fill_node(node);
    } else if object.kind() == Kind::Namespace {
        let meta = object.meta_mut();
        let name = meta.name.clone().unwrap_or_default();
        meta.labels.get_or_insert_default().entry(NAMESPACE_NAME.to_owned()).or_insert(name);
    }
}

fn fill_pod(pod: &mut Pod) {
    let status = pod.status.get_or_insert_default();
    status.phase.get_or_insert_with(|| "Pending".to_owned());
    fill_spec(pod);
}

/// Fills in the fields of the spec of a pod that an API server sets when it creates the pod. Filling
/// in twice makes no difference.
pub fn fill_spec(pod: &mut Pod) {
    if let Some(spec) = &mut pod.spec {
        fill_requests(spec);
    }
    merge_label_keys(pod);
}

/// Sets each request that is absent to the limit, in every container. A request of the pod itself is
/// set to its limit if no container requests the resource; if one does, what the containers request
/// counts, which is what the API server writes there.
///
/// Source: `SetDefaults_Pod` and `defaultPodRequests` of Kubernetes 1.37.
// Parity: see docs/parity.md#r8.
fn fill_requests(spec: &mut PodSpec) {
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let Some(resources) = &mut container.resources else { continue };
        fill_from(resources.limits.as_ref(), &mut resources.requests, |_| true);
    }
    let all = || spec.init_containers.iter().flatten().chain(&spec.containers);
    let requests = |container: &Container, name: &str| {
        let requests = container.resources.as_ref().and_then(|all| all.requests.as_ref());
        requests.is_some_and(|requests| requests.contains_key(name))
    };
    let Some(resources) = &spec.resources else { return };
    let mut of_pod = resources.requests.clone();
    fill_from(resources.limits.as_ref(), &mut of_pod, |name| {
        is_of_pods(name) && !all().any(|container| requests(container, name))
    });
    if let Some(resources) = &mut spec.resources {
        resources.requests = of_pod;
    }
}

/// Adds the limits that are wanted and have no request to the requests.
fn fill_from(
    limits: Option<&BTreeMap<String, Quantity>>,
    requests: &mut Option<BTreeMap<String, Quantity>>,
    is_wanted: impl Fn(&str) -> bool,
) {
    for (name, limit) in limits.into_iter().flatten().filter(|(name, _)| is_wanted(name)) {
        let requests = requests.get_or_insert_default();
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

/// Whether a pod as a whole can request this resource.
fn is_of_pods(name: &str) -> bool {
    [CPU, MEMORY].contains(&name) || name.starts_with("hugepages-")
}

/// Merges `matchLabelKeys` and `mismatchLabelKeys` of a pod into the selectors beside them, with the
/// values of its own labels, as the API server does when it creates the pod.
///
/// A key that a selector already has with that operator was merged before: merging twice makes no
/// difference, even if the label of the pod has changed since.
// Parity: see docs/parity.md#f12.
fn merge_label_keys(pod: &mut Pod) {
    let Some(spec) = &mut pod.spec else { return };
    let empty = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&empty);
    for term in spec.affinity.iter_mut().flat_map(pod_terms) {
        if let Some(selector) = &mut term.label_selector {
            merge(selector, term.match_label_keys.as_deref(), "In", labels);
            merge(selector, term.mismatch_label_keys.as_deref(), "NotIn", labels);
        }
    }
    for constraint in spec.topology_spread_constraints.iter_mut().flatten() {
        if let Some(selector) = &mut constraint.label_selector {
            merge(selector, constraint.match_label_keys.as_deref(), "In", labels);
        }
    }
}

/// The terms of inter-pod affinity and anti-affinity.
fn pod_terms(affinity: &mut Affinity) -> impl Iterator<Item = &mut PodAffinityTerm> {
    let (affine, anti) = (&mut affinity.pod_affinity, &mut affinity.pod_anti_affinity);
    let lists = [
        affine.as_mut().map(|a| {
            (
                &mut a.required_during_scheduling_ignored_during_execution,
                &mut a.preferred_during_scheduling_ignored_during_execution,
            )
        }),
        anti.as_mut().map(|a| {
            (
                &mut a.required_during_scheduling_ignored_during_execution,
                &mut a.preferred_during_scheduling_ignored_during_execution,
            )
        }),
    ];
    lists.into_iter().flatten().flat_map(|(required, preferred)| {
        let preferred = preferred.iter_mut().flatten();
        let preferred = preferred.map(|weighted| &mut weighted.pod_affinity_term);
        required.iter_mut().flatten().chain(preferred)
    })
}

fn merge(
    selector: &mut LabelSelector,
    keys: Option<&[String]>,
    operator: &str,
    labels: &BTreeMap<String, String>,
) {
    for key in keys.unwrap_or_default() {
        let mut known = selector.match_expressions.iter().flatten();
        if known.any(|known| known.key == *key && known.operator == operator) {
            continue;
        }
        let Some(value) = labels.get(key) else { continue };
        selector.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
            key: key.clone(),
            operator: operator.to_owned(),
            values: Some(vec![value.clone()]),
        });
    }
}

fn fill_node(node: &mut Node) {
    let labels = node.metadata.labels.get_or_insert_with(BTreeMap::new);
    if let (Some(name), false) = (&node.metadata.name, labels.contains_key(HOSTNAME)) {
        labels.insert(HOSTNAME.to_owned(), name.clone());
    }
    if let Some(status) = &mut node.status
        && status.capacity.is_none()
    {
        status.capacity.clone_from(&status.allocatable);
    }
}

#[cfg(test)]
mod tests {
    use kube_batch_yaml::{Limits, Problems, parse};
    use serde_json::json;

    use super::*;
    use crate::object::{Kind, Served};

    fn filled(kind: Kind, text: &str) -> Object {
        let node = parse(text, &Limits::default()).expect("YAML");
        let mut object =
            Object::read(kind, Served::BuiltIn, &node, &Problems::default()).expect("an object");
        fill(&mut object, "2025-01-01T00:00:00Z".parse().expect("a time"));
        object
    }

    #[test]
    fn absent_fields_are_set() {
        let Object::Pod(pod) = filled(Kind::Pod, "metadata: {name: a}") else { panic!("a pod") };
        assert_eq!(
            serde_json::to_value(pod).expect("JSON"),
            json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "a",
                    "namespace": "default",
                    "uid": "default/a",
                    "creationTimestamp": "2025-01-01T00:00:00Z",
                },
                "status": {"phase": "Pending"},
            })
        );
        let node = filled(Kind::Node, "metadata: {name: n}\nstatus: {allocatable: {cpu: 2}}");
        let Object::Node(node) = node else { panic!("a node") };
        assert_eq!(
            serde_json::to_value(node).expect("JSON"),
            json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": "n",
                    "uid": "n",
                    "creationTimestamp": "2025-01-01T00:00:00Z",
                    "labels": {"kubernetes.io/hostname": "n"},
                },
                "status": {"allocatable": {"cpu": "2"}, "capacity": {"cpu": "2"}},
            })
        );
    }

    #[test]
    fn label_keys_are_merged_into_selectors_once() {
        let text = "metadata: {name: a, labels: {app: web, rev: '2'}}\n\
                    spec:\n  containers: []\n  affinity:\n    podAntiAffinity:\n      \
                    requiredDuringSchedulingIgnoredDuringExecution:\n      - topologyKey: zone\n        \
                    labelSelector: {matchLabels: {app: web}}\n        \
                    matchLabelKeys: [rev, absent]\n        mismatchLabelKeys: [app]\n      \
                    - {topologyKey: zone, matchLabelKeys: [rev]}\n";
        let mut object = filled(Kind::Pod, text);
        let terms = |object: &Object| {
            let Object::Pod(pod) = object else { panic!("a pod") };
            let spec = serde_json::to_value(pod.spec.as_ref()).expect("JSON");
            let list = "requiredDuringSchedulingIgnoredDuringExecution";
            spec["affinity"]["podAntiAffinity"][list].clone()
        };
        let merged = terms(&object);
        assert_eq!(
            merged[0]["labelSelector"]["matchExpressions"],
            json!([
                {"key": "rev", "operator": "In", "values": ["2"]},
                {"key": "app", "operator": "NotIn", "values": ["web"]},
            ])
        );
        assert_eq!(merged[1].get("labelSelector"), None, "a term without a selector has none");
        // A pod that was read from a cluster, and relabelled there.
        let labels = BTreeMap::from([("rev".to_owned(), "3".to_owned())]);
        object.meta_mut().labels = Some(labels);
        fill(&mut object, "2025-01-01T00:00:00Z".parse().expect("a time"));
        assert_eq!(terms(&object), merged);
    }

    #[test]
    fn a_limit_without_a_request_is_the_request() {
        let spec = |text: &str| {
            let text = format!("metadata: {{name: a}}\nspec: {text}");
            let Object::Pod(pod) = filled(Kind::Pod, &text) else { panic!("a pod") };
            serde_json::to_value(pod.spec).expect("JSON")
        };
        let resources = "{limits: {gpu.com/a: 8, cpu: 2}, requests: {cpu: 1}}";
        let requests = json!({"cpu": "1", "gpu.com/a": "8"});
        let got = spec(&format!(
            "{{containers: [{{name: a, resources: {resources}}}, {{name: b}}], \
             initContainers: [{{name: c, resources: {resources}}}]}}"
        ));
        assert_eq!(got["containers"][0]["resources"]["requests"], requests);
        assert_eq!(got["containers"][1].get("resources"), None);
        assert_eq!(got["initContainers"][0]["resources"]["requests"], requests);
        // The pod as a whole requests its limit only where no container requests anything, and only
        // what Kubernetes supports there.
        let got = spec(
            "{resources: {limits: {cpu: 4, memory: 1Gi, gpu.com/a: 1}}, \
             containers: [{name: a, resources: {limits: {cpu: 2}}}]}",
        );
        assert_eq!(got["resources"]["requests"], json!({"memory": "1Gi"}));
        let got = spec("{containers: [], resources: {requests: {cpu: 1}, limits: {cpu: 2}}}");
        assert_eq!(got["resources"]["requests"], json!({"cpu": "1"}));
    }

    #[test]
    fn a_queue_without_a_weight_gets_that_of_the_crd() {
        let weight = |text: &str| match filled(Kind::Queue, text) {
            Object::Queue(_, queue) => queue.spec["weight"].as_i64().unwrap_or(0),
            other => panic!("{other}"),
        };
        assert_eq!(weight("metadata: {name: q}"), 1);
        assert_eq!(weight("metadata: {name: q}\nspec: {}"), 1);
        assert_eq!(weight("metadata: {name: q}\nspec: {weight: null}"), 1);
        assert_eq!(weight("metadata: {name: q}\nspec: {weight: 0}"), 0);
        // An API server that has stored it has set its defaults.
        assert_eq!(weight("metadata: {name: q, uid: u}\nspec: {}"), 0);
    }

    #[test]
    fn present_fields_are_kept() {
        let text = "metadata: {name: n, uid: u, labels: {kubernetes.io/hostname: other}, \
                    creationTimestamp: 2020-01-01T00:00:00Z}\n\
                    status: {allocatable: {cpu: 2}, capacity: {cpu: 3}}";
        let (before, after) = (
            parse(text, &Limits::default()).expect("YAML").typed::<Node>("").expect("a node"),
            filled(Kind::Node, text),
        );
        assert_eq!(after, Object::Node(Box::new(before)));
        let text = "metadata: {name: p, namespace: ns, uid: u}\nstatus: {phase: Running}";
        let Object::Pod(pod) = filled(Kind::Pod, text) else { panic!("a pod") };
        assert_eq!(pod.metadata.namespace.as_deref(), Some("ns"));
        assert_eq!(pod.status.and_then(|status| status.phase).as_deref(), Some("Running"));
    }

    #[test]
    fn cluster_scoped_kinds_get_no_namespace() {
        let queue = filled(Kind::Queue, "metadata: {name: q}");
        assert_eq!(queue.meta().namespace, None);
        assert_eq!(queue.meta().uid.as_deref(), Some("q"));
    }
}
