//! Admission that rejects or delays bindings.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, group, nodes, pods};

/// Namespace whose bindings fail.
const BROKEN: &str = "broken";

/// Size of a gang.
const N_PODS: usize = 200;

/// Maximum time until a gang is bound while the bindings of another namespace fail. The debug build
/// takes a second or two without them; the rest is for a loaded machine.
const BOUND_WITHIN: Duration = Duration::from_secs(15);

/// Sends a dry-run binding and returns the error.
pub(crate) fn try_binding(bed: &Bed, namespace: &str, name: &str) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding?dryRun=All");
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "none"},
    });
    let args = ["create", "--raw", &*path, "--filename", "-"];
    let sent = bed.plane.kubectl_stdin(args, &binding.to_string());
    sent.map_or_else(|error| error.to_string(), |_| String::new())
}

/// A webhook for the bindings of one namespace, at an address that accepts connections and never answers.
fn dead_webhook(listener: &TcpListener) -> Value {
    let address = listener.local_addr().expect("a listener has an address");
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "dead"},
        "webhooks": [{
            "name": "dead.example.com",
            "clientConfig": {"url": format!("https://{address}/")},
            "rules": [{
                "operations": ["CREATE"],
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods/binding"],
            }],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": BROKEN}},
            "failurePolicy": "Fail",
            "timeoutSeconds": 10,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    })
}

/// Creates a gang in a namespace.
fn create_gang(bed: &Bed, namespace: &str, name: &str) {
    let in_namespace = |mut object: Value| {
        object["metadata"]["namespace"] = json!(namespace);
        object
    };
    bed.apply(&in_namespace(group(name, N_PODS)));
    let pods: Vec<Value> = pods(name, N_PODS, "1").into_iter().map(in_namespace).collect();
    bed.plane.create(&pods).expect("pods are created");
}

/// Creates a gang and returns how long it takes until it is bound.
fn time_gang(bed: &Bed, name: &str) -> Duration {
    let start = Instant::now();
    create_gang(bed, NAMESPACE, name);
    bed.wait_until_bound(name, N_PODS);
    start.elapsed()
}

#[test]
fn a_namespace_whose_bindings_fail_does_not_delay_others() {
    let mut bed = Bed::new(&nodes(14, "64"));
    bed.create_namespace(BROKEN);
    bed.start_scheduler(&[]);
    let without = time_gang(&bed, "without");

    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    bed.apply(&dead_webhook(&listener));
    bed.eventually("bindings of the namespace fail", || {
        let error = try_binding(&bed, BROKEN, "probe");
        if error.contains("failed calling webhook") { Ok(()) } else { Err(error) }
    });
    create_gang(&bed, BROKEN, "fails");
    bed.eventually("the scheduler retries its bindings", || {
        let retries = bed.scheduler(0).metric("kube_batch_write_retries_total");
        if retries > 0.0 { Ok(()) } else { Err("it does not".to_owned()) }
    });
    let first = time_gang(&bed, "first");
    let second = time_gang(&bed, "second");
    eprintln!("bound within {without:.1?}, then {first:.1?} and {second:.1?} beside the failures");
    assert!(first < BOUND_WITHIN && second < BOUND_WITHIN, "{first:?}, {second:?}");
    assert_eq!(bed.n_bound("fails"), 0);

    bed.kubectl(["delete", "validatingwebhookconfiguration", "dead"]).expect("deleted");
    let after = bed.wait_until_bound("fails", N_PODS);
    eprintln!("the others were bound {after:.1?} after the webhook was deleted");
}
