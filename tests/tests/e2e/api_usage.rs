//! The requests of the scheduler: exactly those that its role allows, and no repeated writes.

use std::{cell::Cell, collections::BTreeSet, fs};

use hyper::Method;
use kube_batch_testbed::{audit::AuditEvent, cluster::Options};
use serde_json::{Value, json};
use xtask_launcher::build::root;

use crate::{
    bed::{Bed, NAMESPACE, SCHEDULER, SYSTEM, group, job, nodes, priority_class, queue},
    devices,
    objects::{claim, create_local_volume, old_group, with_claim},
    other_groups::{
        bed_with_own_groups, coscheduling_group, coscheduling_job, install_other_definitions,
        volcano_group,
    },
    proxy::{Handling, Proxy},
};

/// API group, resource with its subresource, and verb, as in a rule of a role.
type Permission = (String, String, String);

/// Permissions without a request of their own. The API server checks them with other requests: `binding` when
/// the status of a claim for devices changes, `pods/finalizers` when an object is created that a pod owns.
/// Claims are created and deleted for pods that request devices as extended resources. An optional policy asks who may
/// use queues.
const CHECKED_ONLY: [(&str, &str, &str); 7] = [
    ("scheduling.incubator.k8s.io", "queues", "use"),
    ("scheduling.sigs.dev", "queues", "use"),
    ("resource.k8s.io", "resourceclaims/binding", "patch"),
    ("resource.k8s.io", "resourceclaims/binding", "update"),
    ("resource.k8s.io", "resourceclaims", "create"),
    ("resource.k8s.io", "resourceclaims", "delete"),
    ("", "pods/finalizers", "update"),
];

/// The requests of the scheduler for resources.
fn requests(bed: &Bed) -> Vec<AuditEvent> {
    let mut events = bed.plane.audit_events().expect("an audit log");
    events.retain(|event| event.user == SCHEDULER && !event.resource.is_empty());
    events
}

/// The permission that a request needs.
fn permission(request: &AuditEvent) -> Permission {
    // `/api/v1/…` or `/apis/GROUP/VERSION/…`
    let mut parts = request.uri.split('/').skip(1);
    let group = match parts.next() {
        Some("apis") => parts.next().unwrap_or_default(),
        _ => "",
    };
    let resource = match &*request.subresource {
        "" => request.resource.clone(),
        subresource => format!("{}/{subresource}", request.resource),
    };
    (group.to_owned(), resource, request.verb.clone())
}

/// The permissions that `deploy/rbac.yaml` grants the scheduler.
fn granted() -> BTreeSet<Permission> {
    let text = fs::read_to_string(root().join("deploy/rbac.yaml")).expect("the roles");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("the roles are YAML");
    let texts = |rule: &Value, key: &str| -> Vec<String> {
        let list = rule[key].as_array().expect("a list");
        list.iter().map(|text| text.as_str().expect("a text").to_owned()).collect()
    };
    let mut granted = BTreeSet::new();
    for rule in documents.iter().filter_map(|document| document["rules"].as_array()).flatten() {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                for verb in texts(rule, "verbs") {
                    granted.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    granted
}

/// Starts and stops a scheduler, and then starts one that uses the proxy.
fn start_schedulers(bed: &mut Bed, proxy: &Proxy) {
    // The default queue belongs to the newer API group, or to the older if the newer is not served.
    let has_default_queue = |bed: &Bed, group: &str| {
        let kind = format!("queues.{group}");
        bed.eventually(&format!("the default queue exists in {kind}"), || {
            bed.kubectl(["get", &kind, "default"]).map(drop)
        });
    };
    bed.start_scheduler(&[]);
    has_default_queue(bed, "scheduling.sigs.dev");
    assert_eq!(bed.take_scheduler(0).terminate(), Some(0));
    bed.kubectl(["delete", "queues.scheduling.sigs.dev", "default"]).expect("deleted");
    bed.start_scheduler(&[
        "--leader-elect",
        &format!("--lock-object-namespace={SYSTEM}"),
        &proxy.flag(),
    ]);
    has_default_queue(bed, "scheduling.incubator.k8s.io");
}

/// Creates a device, a claim for it, and a pod with this claim, and waits until the pod runs.
fn create_pod_with_device(bed: &Bed) {
    for object in [devices::class(), devices::slice("node-00001", 1), devices::claim("device")] {
        bed.apply(&object);
    }
    let mut job = job("device", 1, "0");
    job["spec"]["template"]["spec"]["resourceClaims"] =
        json!([{"name": "gpu", "resourceClaimName": "device"}]);
    bed.apply(&group("device", 1));
    bed.apply(&job);
    bed.wait_until_running("device", 1);
    let status = bed.get("resourceclaims", "device")["status"].take();
    assert_eq!(status["allocation"]["devices"]["results"][0]["device"], "gpu-0", "{status}");
    assert!(status["allocation"]["allocationTimestamp"].is_string(), "{status}");
    assert_eq!(status["reservedFor"].as_array().map(Vec::len), Some(1), "{status}");
}

/// Creates claims of both binding modes, groups and queues of both API groups, victims of a
/// preemption, and a pod that stays pending.
fn create_workload(bed: &Bed) {
    create_local_volume(bed, "node-00001");
    for (name, class) in [("local", "local"), ("provisioned", "first-consumer")] {
        bed.apply(&claim(name, class));
        bed.apply(&with_claim(job(name, 1, "1"), name));
    }
    bed.apply(&queue("new", 1));
    let mut old = queue("old", 1);
    old["apiVersion"] = json!("scheduling.incubator.k8s.io/v1alpha1");
    bed.apply(&old);
    let mut local = old_group("local", 1);
    local["spec"]["queue"] = json!("old");
    bed.apply(&local);
    bed.apply(&group("provisioned", 1));
    bed.wait_until_running("local", 1);
    bed.wait_until_running("provisioned", 1);
    create_pod_with_device(bed);
    let mut victims = group("victims", 1);
    victims["spec"]["queue"] = json!("new");
    bed.apply(&victims);
    bed.apply(&job("victims", 3, "1"));
    bed.wait_until_running("victims", 2);
    let mut important = group("important", 1);
    important["spec"] = json!({"minMember": 1, "queue": "new", "priorityClassName": "high"});
    bed.apply(&important);
    bed.apply(&job("important", 1, "1"));
    bed.wait_until_running("important", 1);
    create_groups_of_other_apis(bed);
    bed.eventually("a pending pod reports the reason", || {
        let pods = bed.list("pods");
        let has_reason = |pod: &Value| pod["status"]["conditions"][0]["reason"] == "Unschedulable";
        if pods.iter().any(has_reason) { Ok(()) } else { Err("none does".to_owned()) }
    });
}

/// Creates a PodGroup of each other API, with a pod, and a queue of Volcano.
fn create_groups_of_other_apis(bed: &Bed) {
    bed.apply(&json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "of-volcano"},
        "spec": {"weight": 1},
    }));
    let mut volcano = volcano_group("volcano", 1);
    volcano["spec"]["queue"] = json!("of-volcano");
    bed.apply(&volcano);
    bed.apply(&job("volcano", 1, "1"));
    bed.apply(&coscheduling_group("coscheduling", 1));
    let mut coscheduling = coscheduling_job("coscheduling", 1);
    coscheduling["spec"]["template"]["spec"]["schedulerName"] = json!("kube-batch");
    bed.apply(&coscheduling);
    let mut own = job("own", 1, "1");
    own["spec"]["template"]["metadata"]["annotations"].take();
    bed.apply(&own);
}

#[test]
fn the_role_allows_exactly_the_requests_of_the_scheduler() {
    let mut bed = bed_with_own_groups(true, &nodes(2, "2"));
    bed.install_older_group();
    install_other_definitions(&bed);
    let proxy = Proxy::start(&bed.plane);
    // The proxy rejects streamed lists, so that the scheduler sends list requests, and drops one
    // response to a binding, so that the scheduler gets the pod. It rejects a binding with a device, so that the
    // scheduler releases the claim.
    let (mut n_bindings, mut has_rejected) = (0, false);
    proxy.rule(move |request| {
        if request.uri.query().is_some_and(|query| query.contains("sendInitialEvents=true")) {
            return Handling::Respond(400);
        }
        let path = request.uri.path();
        if request.method == Method::POST && path.contains("sigs.dev") && path.ends_with("/queues")
        {
            return Handling::Respond(404);
        }
        if !path.ends_with("/binding") {
            return Handling::Forward;
        }
        if path.contains("/pods/device-") && !has_rejected {
            has_rejected = true;
            return Handling::Respond(403);
        }
        n_bindings += 1;
        if n_bindings == 1 { Handling::LoseResponse } else { Handling::Forward }
    });
    bed.apply(&priority_class("high", 1000));
    start_schedulers(&mut bed, &proxy);
    create_workload(&bed);

    // The audit log contains a watch only after it has ended.
    proxy.disconnect_all();
    let granted = granted();
    let is_denied = |request: &AuditEvent| request.code == 403 || request.code == 401;
    let denied: Vec<AuditEvent> = requests(&bed).into_iter().filter(is_denied).collect();
    assert!(denied.is_empty(), "{denied:?}");
    bed.eventually("every permission is used", || {
        let used: BTreeSet<Permission> = requests(&bed).iter().map(permission).collect();
        let is_checked_only = |(group, resource, verb): &&Permission| {
            CHECKED_ONLY.contains(&(&**group, &**resource, &**verb))
        };
        let unused = granted.difference(&used);
        let unused: Vec<&Permission> = unused.filter(|own| !is_checked_only(own)).collect();
        if unused.is_empty() { Ok(()) } else { Err(format!("{unused:?}")) }
    });
    let used: BTreeSet<Permission> = requests(&bed).iter().map(permission).collect();
    let not_granted: Vec<&Permission> = used.difference(&granted).collect();
    assert!(not_granted.is_empty(), "{not_granted:?}");
}

/// More pods than the scheduler sends writes concurrently.
const N_PENDING: usize = 60;

#[test]
fn waiting_pods_are_reported_once() {
    let options = Options { audit: true, ..Options::default() };
    let mut bed = Bed::with_options(options, &nodes(2, "2"));
    bed.start_scheduler(&[]);
    bed.apply(&group("too-big", N_PENDING));
    bed.apply(&job("too-big", N_PENDING, "2"));
    // Changes of a node start one cycle after another while the first status writes are sent.
    let nth = Cell::new(0);
    let start_cycle = || {
        nth.set(nth.get() + 1);
        let label = format!("nth={}", nth.get());
        bed.kubectl(["label", "node", "node-00000", "--overwrite", &label]).expect("a label");
    };
    bed.eventually("the condition of the group gives the reason", || {
        start_cycle();
        let status = bed.get("podgroups.scheduling.sigs.dev", "too-big")["status"].to_string();
        if status.contains("never fits") { Ok(()) } else { Err(status) }
    });
    let n_writes = |resource: &str| {
        let is_write =
            |request: &&AuditEvent| request.resource == resource && request.verb != "watch";
        requests(&bed).iter().filter(is_write).count()
    };
    let cycles = || bed.scheduler(0).metric("kube_batch_cycles_total");
    let (before, events, pods, groups) =
        (cycles(), n_writes("events"), n_writes("pods"), n_writes("podgroups"));
    while cycles() < before + 60.0 {
        start_cycle();
    }
    // One write for each pod; a few more are allowed because the first message may still change.
    let limit = |before: usize| before.max(N_PENDING) + 3;
    assert!(n_writes("events") <= limit(events), "{} events", n_writes("events"));
    assert!(n_writes("pods") <= limit(pods), "{} writes to pods", n_writes("pods"));
    assert!(
        n_writes("podgroups") <= groups.max(1) + 1,
        "{} writes to groups",
        n_writes("podgroups")
    );
    let reported: Vec<Value> = bed.list("events");
    let of_pods = reported.iter().filter(|event| event["reason"] == "FailedScheduling").count();
    assert_eq!(of_pods, N_PENDING, "one event for each pod");
    assert_eq!(
        bed.kubectl(["get", "pods", "--namespace", NAMESPACE, "-o", "name"])
            .map(|text| text.lines().count()),
        Ok(N_PENDING)
    );
}
