//! Claims for devices of a binding, which are allocated and reserved before the pod is bound.

use k8s_openapi::api::{core::v1::Node, resource::v1::ResourceClaim};
use kube_batch_api::{kind::ApplyObject as _, read};
use kube_batch_model::{
    decision::DeviceChoice,
    devices::{DeviceMapping, ExtendedClaim},
    facts::device::claim::{Allocation, Consumer},
};
use serde_json::Map;

use super::*;

/// Kubernetes' own writes, executed.
const WRITES: &str = include_str!("../../../../../devices/tests/cases/writes.yaml");
const BINDING_CONDITIONS: &str =
    include_str!("../../../../../devices/tests/cases/binding-conditions.yaml");

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims";
const C: &str = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c";
/// The claim, but not its status.
const ONLY_C: &str = "/resourceclaims/c?";
const STATUS: &str = "/resourceclaims/c/status";

/// The requests of a binding that allocates and reserves a claim.
const ALLOCATES: [&str; 4] = ["GET c", "PUT c", "PUT status", "POST binding"];

/// A claim in namespace `ns` with this status.
fn resource_claim(name: &str, status: Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("{name}-uid")},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        "status": status,
    })
}

fn user(name: &str) -> Value {
    json!({"resource": "pods", "name": name, "uid": format!("{name}-uid")})
}

/// The pod of [`pod_ref`] as a user of a claim.
fn own_user() -> Value {
    json!({"resource": "pods", "name": "a", "uid": "u"})
}

/// An allocation of a device, as the API has it.
fn allocation_of(device: &str) -> Value {
    json!({"devices": {"results": [
        {"request": "r", "driver": "d", "pool": "p", "device": device},
    ]}})
}

/// An allocation of a device that has to be attached first.
fn attached_later(device: &str) -> Value {
    let mut allocation = allocation_of(device);
    allocation["devices"]["results"][0]["bindingConditions"] = json!(["Attached"]);
    allocation["devices"]["results"][0]["bindingFailureConditions"] = json!(["AttachFailed"]);
    allocation
}

fn allocation(api: &Value) -> Allocation {
    let claim = resource_claim("any", json!({"allocation": api}));
    let claim: ResourceClaim = serde_json::from_value(claim).expect("a claim");
    let facts = read::resource_claim(&claim).expect("facts");
    facts.allocation.expect("it has an allocation")
}

fn choice(claim: &str, api: Option<&Value>) -> DeviceChoice {
    DeviceChoice {
        claim: ObjectKey::new("ns", claim),
        allocation: api.map(allocation),
        new: None,
        group: None,
    }
}

fn bind_with_devices(devices: Vec<DeviceChoice>) -> Decision {
    Decision::Bind {
        minimum: 1,
        protected_until: None,
        queue: "q".into(),
        pod: pod_ref(),
        node: "n".into(),
        claims: vec![],
        devices,
    }
}

/// A binding that gives claim `c` this device.
fn bind_with_device(device: &str) -> Decision {
    bind_with_devices(vec![choice("c", Some(&allocation_of(device)))])
}

impl World {
    /// A world with these claims, which server and cache know.
    fn with_resource_claims(claims: &[Value]) -> Self {
        let world = Self::new();
        claims.iter().for_each(|claim| world.has_claim(claim));
        world
    }

    fn has_claim(&self, claim: &Value) {
        let path = format!("{CLAIMS}/{}", claim["metadata"]["name"].as_str().expect("a name"));
        self.api.put(&path, claim.clone());
        self.shows(&path);
    }

    /// The watch shows a claim as it is.
    fn shows(&self, path: &str) {
        let claim = self.api.object(path).expect("the claim");
        let claim: ResourceClaim = serde_json::from_value(claim).expect("a claim");
        self.cache.lock().apply_resource_claim(&claim).expect("facts");
    }

    /// The driver sets a condition of the device of claim `c`.
    fn sets_condition(&self, condition: &str) {
        let mut claim = self.api.object(C).expect("the claim");
        claim["status"]["devices"] = json!([{
            "driver": "d", "pool": "p", "device": "gpu-0",
            "conditions": [{
                "type": condition, "status": "True", "reason": "Done", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }]);
        self.api.put(C, claim);
        self.shows(C);
    }

    fn status_of(&self, path: &str) -> Value {
        self.api.object(path).expect("the claim")["status"].clone()
    }

    /// The texts of the events about pods that were not bound.
    fn failures(&self) -> Vec<String> {
        let events = self.api.sent_to(&Method::POST, "/events");
        let failures = events.iter().filter(|sent| sent.body["reason"] == "FailedScheduling");
        failures.map(|sent| sent.body["note"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// A request that modifies a claim, as the cases of Kubernetes' writes list it.
fn listed(sent: &crate::run::fake_api::Sent) -> Value {
    let (_, rest) = sent.path.split_once("/resourceclaims/").expect("a claim");
    let (name, resource) = match rest.split_once('/') {
        Some((name, part)) => (name, format!("resourceclaims/{part}")),
        None => (rest, "resourceclaims".to_owned()),
    };
    if sent.method == Method::PATCH {
        return json!({
            "verb": "patch", "resource": resource, "name": name, "type": sent.content_type,
            "patch": sent.body,
        });
    }
    let mut write = json!({"verb": "update", "resource": resource, "name": name});
    if resource == "resourceclaims" {
        write["finalizers"] = sent.body["metadata"]["finalizers"].clone();
        return write;
    }
    let allocation = &sent.body["status"]["allocation"];
    let results = allocation["devices"]["results"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let devices = results
        .map(|result| [&result["driver"], &result["pool"], &result["device"]].map(text).join("/"));
    write["allocation"] = devices.collect();
    write["allocationTimestamp"] = json!(allocation["allocationTimestamp"].is_string());
    write["reservedFor"] = sent.body["status"]["reservedFor"].clone();
    write
}

/// The decision of a case: what is expected of the allocator for the claims that have no devices.
fn decision_of(case: &Value) -> Decision {
    let text = |value: &Value| value.as_str().expect("a name").to_owned();
    let (pod, node) = (text(&case["pod"]["metadata"]["name"]), text(&case["bind"]));
    let entries = case["pod"]["spec"]["resourceClaims"].as_array().expect("claims");
    let devices = entries.iter().map(|entry| {
        let claim = text(&entry["resourceClaimName"]);
        let results = &case["expect"]["allocations"][&node][&claim]["results"];
        let chosen =
            results.is_array().then(|| allocation(&json!({"devices": {"results": results}})));
        DeviceChoice {
            claim: ObjectKey::new("default", claim),
            allocation: chosen,
            new: None,
            group: None,
        }
    });
    let key = ObjectKey::new("default", pod.clone());
    let devices = devices.collect();
    let pod = PodRef { uid: pod.as_str().into(), key };
    Decision::Bind {
        minimum: 1,
        protected_until: None,
        queue: "q".into(),
        pod,
        node: node.as_str().into(),
        claims: vec![],
        devices,
    }
}

/// An object with the defaults of the cases: namespace `default`, and its name as uid.
fn with_defaults(object: &Value) -> Value {
    let mut object = object.clone();
    let meta = object["metadata"].as_object_mut().expect("metadata");
    let name = meta["name"].clone();
    for (field, default) in [("namespace", json!("default")), ("uid", name)] {
        meta.entry(field).or_insert(default);
    }
    object
}

/// Sends the decision of a case.
async fn run_case(case: &Value) -> World {
    let world = World::new();
    let mut pod = with_defaults(&case["pod"]);
    pod["spec"]["schedulerName"] = json!("kube-batch");
    world.stores("/api/v1/namespaces/default/pods/p", &pod);
    for claim in case["resourceClaims"].as_array().into_iter().flatten() {
        let claim = with_defaults(claim);
        let name = claim["metadata"]["name"].as_str().expect("a name");
        let path = format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}");
        world.api.put(&path, claim.clone());
        world.shows(&path);
    }
    for fault in case["faults"].as_array().into_iter().flatten() {
        let code = if fault["error"] == "conflict" { 409 } else { 403 };
        let times = fault["times"].as_u64().expect("a number") as usize;
        // Of two claims, the second one.
        let claim = if case["name"] == "second-claim-fails" { "b?" } else { "" };
        let part = if fault["resource"] == "resourceclaims/status" { "/status?" } else { claim };
        world.api.fail(Method::PUT, part, vec![Fault::Status(code); times]);
    }
    if case["thenUnreserve"] == true {
        world.api.fail(Method::POST, "/binding", [Fault::Status(403)]);
    }
    world.decide(&decision_of(case));
    world.settle().await;
    world
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn the_writes_of_a_binding_are_those_of_kubernetes() {
    let cases = [WRITES, BINDING_CONDITIONS];
    let cases = cases.map(|text| serde_saphyr::from_str::<Vec<Value>>(text).expect("cases"));
    let mut n_cases = 0;
    for case in cases.iter().flatten() {
        let name = case["name"].as_str().expect("a name");
        // Tests of their own: claims that a scheduler makes, and devices that are not ready in time.
        if !case["bind"].is_string() || name.starts_with("extended") || name == "bind-times-out" {
            continue;
        }
        n_cases += 1;
        let world = run_case(case).await;
        let sent = world.api.sent();
        let modifies = |sent: &&crate::run::fake_api::Sent| {
            sent.path.contains("/resourceclaims/") && sent.method != Method::GET
        };
        let sent: Vec<Value> = sent.iter().filter(modifies).map(listed).collect();
        let of = |key: &str| case["expect"][key].as_array().cloned().unwrap_or_default();
        let mut expected = [of("writes"), of("unreserveWrites")].concat();
        if name == "only-reserve" {
            // An API server refuses to add it later.
            expected[0]["allocationTimestamp"] = json!(false);
        }
        assert_eq!(json!(sent), json!(expected), "{name}");
        let is_refused = case["thenUnreserve"] == true;
        let failures = world.failures();
        match case["expect"]["preBindFails"].as_str() {
            Some(why) => {
                let what = why.split_once(": resourceclaims").expect("a cause").0;
                assert_eq!(failures, [format!("{what}: injected")], "{name}");
            }
            None => assert_eq!(failures.len(), usize::from(is_refused), "{name}: {failures:?}"),
        }
        let pod = world.api.object("/api/v1/namespaces/default/pods/p").expect("the pod");
        assert_eq!(pod["spec"]["nodeName"].is_string(), failures.is_empty(), "{name}");
    }
    assert_eq!(n_cases, 10);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_claim_is_sent_back_as_it_was_but_for_what_is_written() {
    let mut claim = resource_claim("c", json!(null));
    claim["metadata"]["annotations"] = json!({"mine": "yes"});
    claim["metadata"]["finalizers"] = json!(["example.com/mine"]);
    let world = World::with_resource_claims(&[claim.clone()]);
    assert_eq!(world.outcome(&bind_with_device("gpu-0")).await.requests, ALLOCATES);
    let mut found = world.api.object(C).expect("the claim");
    let mut status: Map<String, Value> =
        found["status"].take().as_object().expect("a status").clone();
    let allocation = status.get_mut("allocation").expect("an allocation");
    let time = allocation.as_object_mut().expect("an object").remove("allocationTimestamp");
    assert!(time.is_some());
    assert_eq!(status["allocation"], allocation_of("gpu-0"));
    assert_eq!(status["reservedFor"], json!([own_user()]));
    let finalizers = ["example.com/mine", "resource.kubernetes.io/delete-protection"];
    claim["metadata"]["finalizers"] = json!(finalizers);
    claim["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
    assert_eq!(found["metadata"], claim["metadata"]);
    assert_eq!(found["spec"], claim["spec"]);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_write_whose_answer_was_lost_is_not_repeated() {
    for (lost, requests) in [
        (ONLY_C, vec!["GET c", "PUT c", "GET c", "PUT status", "POST binding"]),
        (STATUS, vec!["GET c", "PUT c", "PUT status", "GET c", "POST binding"]),
    ] {
        let world = World::with_resource_claims(&[resource_claim("c", json!(null))]);
        world.api.fail(Method::PUT, lost, [Fault::Lost]);
        assert_eq!(world.outcome(&bind_with_device("gpu-0")).await, bound(&requests));
        assert_eq!(world.status_of(C)["reservedFor"], json!([own_user()]));
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_share_has_an_id_of_its_own() {
    let mut chosen = allocation_of("gpu-0");
    chosen["devices"]["results"][0]["shareID"] = json!("");
    chosen["devices"]["results"][0]["consumedCapacity"] = json!({"memory": "8Gi"});
    let world = World::with_resource_claims(&[resource_claim("c", json!(null))]);
    world.api.fail(Method::PUT, STATUS, [Fault::Lost]);
    world.outcome(&bind_with_devices(vec![choice("c", Some(&chosen))])).await;
    let result = &world.status_of(C)["allocation"]["devices"]["results"][0];
    let share = result["shareID"].as_str().expect("an id");
    assert!(uuid::Uuid::parse_str(share).is_ok(), "{share}");
    assert_eq!(world.seen().n_placed, 1, "the lost write is recognised in spite of its id");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_binding_whose_claim_is_not_as_decided_is_given_up() {
    let deleted = |mut claim: Value| {
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        claim
    };
    let none = resource_claim("c", json!(null));
    let of = |device: &str| resource_claim("c", json!({"allocation": allocation_of(device)}));
    let mut on_other_node = of("gpu-0");
    on_other_node["status"]["allocation"]["nodeSelector"] = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]},
    ]});
    let users: Vec<Value> = (0..256).map(|n| user(&format!("user-{n}"))).collect();
    let status = json!({"allocation": allocation_of("gpu-0"), "reservedFor": users});
    let full = resource_claim("c", status);
    let (allocates, reserves) =
        (bind_with_device("gpu-0"), bind_with_devices(vec![choice("c", None)]));
    for (claim, decision, why) in [
        (deleted(none.clone()), &allocates, "claim ns/c got deleted in the meantime"),
        (of("gpu-1"), &allocates, "claim ns/c got allocated elsewhere in the meantime"),
        (on_other_node, &reserves, "claim ns/c got allocated elsewhere in the meantime"),
        (none, &reserves, "claim ns/c got deallocated in the meantime"),
        (full, &reserves, "claim ns/c is used by 256 already"),
    ] {
        let world = World::with_resource_claims(&[claim]);
        let node = json!({"metadata": {"name": "n"}});
        let node: Node = serde_json::from_value(node).expect("a node");
        world.cache.lock().store.apply(&node).expect("facts");
        let outcome = world.outcome(decision).await;
        assert_eq!(
            outcome,
            Seen { in_flight: true, ..seen(&["GET c"], &["FailedScheduling"], None) }
        );
        assert_eq!(world.failures(), [why]);
    }
    let world = World::new();
    world.outcome(&allocates).await;
    assert_eq!(world.failures(), ["read claim ns/c: it does not exist any more"]);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_claim_that_got_the_same_devices_meanwhile_is_only_reserved() {
    let world = World::with_resource_claims(&[resource_claim("c", json!(null))]);
    let status = json!({"allocation": allocation_of("gpu-0"), "reservedFor": [user("b")]});
    world.api.put(C, resource_claim("c", status));
    let requests = ["GET c", "PUT status", "POST binding"];
    assert_eq!(world.outcome(&bind_with_device("gpu-0")).await, bound(&requests));
    assert_eq!(world.status_of(C)["reservedFor"], json!([user("b"), own_user()]));
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_write_that_conflicts_is_tried_five_times() {
    let world = World::with_resource_claims(&[resource_claim("c", json!(null))]);
    world.api.fail_always(Method::PUT, STATUS, Fault::Status(409));
    let outcome = world.outcome(&bind_with_device("gpu-0")).await;
    assert_eq!(outcome.requests.iter().filter(|request| *request == "PUT status").count(), 5);
    assert_eq!(world.failures(), ["add allocation and reservation to claim ns/c: injected"]);
    assert_eq!(world.api.sent_to(&Method::PATCH, "").len(), 0, "nothing is reserved");
}

/// A binding of another pod of the gang, with these choices.
fn bind_other(world: &World, name: &str, devices: Vec<DeviceChoice>) -> Decision {
    let mut other = pod(&format!("{name}-uid"), None);
    other["metadata"]["name"] = json!(name);
    world.stores(&format!("/api/v1/namespaces/ns/pods/{name}"), &other);
    let pod =
        PodRef { uid: format!("{name}-uid").as_str().into(), key: ObjectKey::new("ns", name) };
    Decision::Bind {
        minimum: 1,
        protected_until: None,
        queue: "q".into(),
        pod,
        node: "n".into(),
        claims: vec![],
        devices,
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn pods_that_share_a_claim_do_not_hinder_one_another() {
    let world = World::with_resource_claims(&[resource_claim("c", json!(null))]);
    let n_pods: usize = 100;
    for n in 0..n_pods {
        let devices = vec![choice("c", Some(&allocation_of("gpu-0")))];
        world.decide(&bind_other(&world, &format!("pod-{n}"), devices));
    }
    world.settle().await;
    assert_eq!(world.failures(), [""; 0]);
    assert_eq!(world.seen().n_placed, n_pods as u64);
    let status = world.status_of(C);
    assert_eq!(status["reservedFor"].as_array().map(Vec::len), Some(n_pods));
    assert_eq!(world.n_writes(Write::ResourceClaim, "conflict"), 0);
    assert_eq!(world.api.sent_to(&Method::PUT, ONLY_C).len(), 1, "the finalizer");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_pod_may_be_first_to_write_the_devices_that_another_one_was_given() {
    let world = World::with_resource_claims(&[resource_claim("c", json!(null))]);
    // That of the first pod fails before it is sent: its other claim cannot be read.
    world.has_claim(&resource_claim("d", json!(null)));
    world.api.fail_always(Method::GET, "/resourceclaims/d", Fault::Hang);
    let first = vec![
        choice("d", Some(&allocation_of("gpu-1"))),
        choice("c", Some(&allocation_of("gpu-0"))),
    ];
    world.decide(&bind_other(&world, "first", first));
    world.decide(&bind_with_devices(vec![choice("c", None)]));
    // There is one worker, which gives the first one up for a while after 5 s.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let status = world.status_of(C);
    assert_eq!(status["allocation"]["devices"], allocation_of("gpu-0")["devices"]);
    assert_eq!(status["reservedFor"], json!([own_user()]));
    assert_eq!(world.seen().n_placed, 1);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn the_devices_of_another_binding_are_not_written_if_another_claim_has_got_them() {
    let status = json!({"allocation": allocation_of("gpu-0")});
    let (free, taken) = (resource_claim("c", json!(null)), resource_claim("other", status));
    let world = World::with_resource_claims(&[free, taken]);
    let first = vec![choice("c", Some(&allocation_of("gpu-0")))];
    world.decide(&bind_other(&world, "first", first));
    tokio::time::sleep(Duration::from_millis(100)).await;
    // The first has failed, and is in flight until its back-off ends.
    world.decide(&bind_with_devices(vec![choice("c", None)]));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.status_of(C), json!(null));
    let why = "claim ns/c cannot get device d/p/gpu-0: claim ns/other has got it";
    assert_eq!(world.failures(), [why, why]);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_refused_binding_takes_its_reservation_back_and_keeps_the_devices() {
    let world = World::with_resource_claims(&[resource_claim("c", json!(null))]);
    world.api.fail(Method::POST, "/binding", [Fault::Status(403)]);
    let outcome = world.outcome(&bind_with_device("gpu-0")).await;
    let requests = [&ALLOCATES[..], &["PATCH status"]].concat();
    assert_eq!(outcome, Seen { in_flight: true, ..seen(&requests, &["FailedScheduling"], None) });
    assert_eq!(world.failures(), ["cannot bind to n: injected"]);
    assert_eq!(world.status_of(C)["reservedFor"], json!([]));
    tokio::time::sleep(Duration::from_millis(1010)).await;
    {
        let state = world.cache.lock();
        let place = state.assumed.get(&pod_ref().uid);
        assert_eq!(place, Some(&InFlight::Rejected { node: "n".into() }), "without devices");
        let facts = state.store.resource_claims.get(&ObjectKey::new("ns", "c")).expect("facts");
        assert!(facts.allocation.is_some(), "known although the watch has not shown it");
        assert!(facts.reserved_for.is_empty());
    }
    // The next attempt finds them.
    let outcome = world.outcome(&bind_with_devices(vec![choice("c", None)])).await;
    assert_eq!(outcome.requests[5..], ["GET c", "PUT status", "POST binding"]);
    assert_eq!(outcome.n_placed, 1);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_pod_that_another_scheduler_has_bound_keeps_its_reservation() {
    let world = World::with_resource_claims(&[resource_claim("c", json!(null))]);
    world.api.put(POD, pod("u", Some("m")));
    for faults in [vec![], vec![Fault::Status(503), Fault::Status(403)]] {
        world.api.fail(Method::POST, "/binding", faults);
        world.outcome(&bind_with_device("gpu-0")).await;
        assert_eq!(world.status_of(C)["reservedFor"], json!([own_user()]));
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_reservation_that_cannot_be_taken_back_holds_up_no_other_pod() {
    let world = World::with_resource_claims(&[resource_claim("c", json!(null))]);
    world.api.fail(Method::POST, "/pods/a/binding", [Fault::Status(403)]);
    world.api.fail(Method::PATCH, STATUS, [Fault::Status(503)]);
    world.outcome(&bind_with_device("gpu-0")).await;
    assert_eq!(world.api.sent_to(&Method::PATCH, STATUS).len(), 2, "it is tried again");
    assert_eq!(world.status_of(C)["reservedFor"], json!([]));
    tokio::time::sleep(Duration::from_millis(1010)).await;

    world.api.fail(Method::POST, "/pods/a/binding", [Fault::Status(403)]);
    world.api.fail_always(Method::PATCH, STATUS, Fault::Hang);
    world.decide(&bind_with_devices(vec![choice("c", None)]));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(world.seen().in_flight, "it is not decided again while the request may be done");
    world.has_claim(&resource_claim("d", json!(null)));
    let devices = vec![choice("d", Some(&allocation_of("gpu-1")))];
    world.decide(&bind_other(&world, "b", devices));
    // There is one worker, which waits 5 s for each answer.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(world.seen().n_placed, 1);
    world.settle().await;
    assert_eq!(world.failures().len(), 2, "it is given up in the end");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_lost_write_of_the_second_claim_is_taken_back_too() {
    let claims = [resource_claim("c", json!(null)), resource_claim("d", json!(null))];
    let world = World::with_resource_claims(&claims);
    world.api.fail(Method::PUT, "/resourceclaims/d/status", [Fault::Lost]);
    world.api.fail_always(Method::GET, "/resourceclaims/d", Fault::Status(503));
    world.api.fail(Method::GET, "/resourceclaims/c", []);
    let devices = vec![
        choice("c", Some(&allocation_of("gpu-0"))),
        choice("d", Some(&allocation_of("gpu-1"))),
    ];
    world.outcome(&bind_with_devices(devices)).await;
    let patched = world.api.sent_to(&Method::PATCH, "/status");
    let paths: Vec<&str> = patched.iter().map(|sent| &sent.path[CLAIMS.len()..]).collect();
    assert_eq!(paths, ["/c/status", "/d/status"]);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_scheduler_without_the_permission_binds_pods_without_claims() {
    let world = World::with_resource_claims(&[resource_claim("c", json!(null))]);
    world.api.fail_always(Method::GET, "/resourceclaims/", Fault::Status(403));
    world.decide(&bind_with_device("gpu-0"));
    world.decide(&bind_other(&world, "b", vec![]));
    world.settle().await;
    assert_eq!(world.failures(), ["read claim ns/c: injected"]);
    assert_eq!(world.seen().n_placed, 1);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn writes_that_were_decided_start_no_cycle() {
    let claims = [resource_claim("c", json!(null)), resource_claim("other", json!(null))];
    let world = World::with_resource_claims(&claims);
    let version = world.cache.lock().version;
    world.outcome(&bind_with_device("gpu-0")).await;
    world.shows(C);
    assert_eq!(world.cache.lock().version, version);
    let state = world.cache.lock();
    let facts = state.store.resource_claims.get(&ObjectKey::new("ns", "c")).expect("facts");
    assert!(facts.is_protected && facts.allocation.is_some() && facts.reserved_for.len() == 1);
}

/// A world with a binding whose device has to be attached, after a second.
async fn attaching() -> World {
    let world = World::with_resource_claims(&[resource_claim("c", json!(null))]);
    world.decide(&bind_with_devices(vec![choice("c", Some(&attached_later("gpu-0")))]));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.seen().requests, ["GET c", "PUT c", "PUT status"]);
    assert_eq!(world.seen().events, ["BindingConditionsPending"]);
    assert_eq!(world.metrics.bindings_waiting_for_claims.get(), 1);
    world
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_pod_is_bound_when_its_devices_are_ready() {
    let world = attaching().await;
    tokio::time::sleep(Duration::from_secs(400)).await;
    world.sets_condition("SomethingElse");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.seen().n_placed, 0);
    world.sets_condition("Attached");
    world.settle().await;
    assert_eq!(world.seen().n_placed, 1);
    assert_eq!(world.seen().events, ["BindingConditionsPending", "Scheduled"]);
    assert_eq!(world.metrics.bindings_waiting_for_claims.get(), 0);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_claim_whose_binding_has_failed_loses_its_devices() {
    let world = attaching().await;
    world.sets_condition("AttachFailed");
    world.settle().await;
    assert_eq!(world.failures(), ["device binding failed: claim=ns/c"]);
    assert_eq!(world.seen().requests[3..], ["GET c", "PUT status"]);
    assert_eq!(world.status_of(C), json!({}));
    assert_eq!(world.seen().n_placed, 0);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_claim_whose_devices_are_not_ready_in_time_loses_them() {
    let world = attaching().await;
    tokio::time::sleep(Duration::from_secs(590)).await;
    assert!(world.failures().is_empty());
    world.settle().await;
    assert_eq!(world.failures(), ["device binding timeout: claim=ns/c"]);
    assert_eq!(world.status_of(C), json!({}));
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_claim_that_others_use_keeps_its_devices_although_they_are_not_ready() {
    let world = attaching().await;
    let mut claim = world.api.object(C).expect("the claim");
    claim["status"]["reservedFor"].as_array_mut().expect("users").push(user("b"));
    world.api.put(C, claim);
    world.sets_condition("AttachFailed");
    world.settle().await;
    assert_eq!(world.seen().requests[3..], ["GET c", "PATCH status"]);
    let status = world.status_of(C);
    assert_eq!(status["reservedFor"], json!([user("b")]));
    assert!(status["allocation"].is_object());
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn the_next_leader_goes_on_with_a_claim_that_was_allocated_long_ago() {
    for (since, bound) in [("2099-01-01T00:00:00Z", true), ("2020-01-01T00:00:00Z", false)] {
        let mut allocation = attached_later("gpu-0");
        allocation["allocationTimestamp"] = json!(since);
        let status = json!({"allocation": allocation, "reservedFor": [own_user()]});
        let world = World::with_resource_claims(&[resource_claim("c", status)]);
        world.decide(&bind_with_devices(vec![choice("c", None)]));
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.sets_condition("Attached");
        world.settle().await;
        assert_eq!(world.seen().n_placed, u64::from(bound), "{since}");
        let why = ["device binding timeout: claim=ns/c"];
        assert_eq!(world.failures(), if bound { &[] } else { &why[..] }, "{since}");
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_device_that_two_claims_hold_is_counted_once() {
    let world = World::new();
    let holds = |name: &str, device: &str| {
        world.has_claim(&resource_claim(name, json!({"allocation": allocation_of(device)})));
    };
    let n_conflicts = || world.metrics.device_conflicts.get();
    holds("c", "gpu-0");
    holds("d", "gpu-1");
    let mut shared = allocation_of("gpu-0");
    shared["devices"]["results"][0]["shareID"] = json!("a-share");
    world.has_claim(&resource_claim("share", json!({"allocation": shared})));
    let mut admin = allocation_of("gpu-0");
    admin["devices"]["results"][0]["adminAccess"] = json!(true);
    world.has_claim(&resource_claim("admin", json!({"allocation": admin})));
    assert_eq!(n_conflicts(), 0);
    holds("e", "gpu-0");
    holds("e", "gpu-0");
    holds("f", "gpu-0");
    assert_eq!(n_conflicts(), 1, "once for each device");
    let delete = |name: &str| {
        world.cache.lock().store.resource_claims.delete(&ObjectKey::new("ns", name));
    };
    delete("d");
    holds("g", "gpu-1");
    assert_eq!(n_conflicts(), 1, "the other claim is gone");
    holds("h", "gpu-1");
    assert_eq!(n_conflicts(), 2);
    delete("e");
    delete("f");
    holds("i", "gpu-0");
    assert_eq!(n_conflicts(), 3, "the first conflict had ended");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn the_devices_of_a_deleted_pod_stay_in_use_while_its_claim_is_being_written() {
    let world = World::with_resource_claims(&[resource_claim("c", json!(null))]);
    world.api.fail(Method::PUT, STATUS, [Fault::Lost]);
    world.decide(&bind_with_device("gpu-0"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.api.remove(POD);
    world.cache.lock().store.pods.delete(&pod_ref().key);
    world.cache.lock().settle_some();
    assert!(world.seen().in_flight, "the write may have been done");
    world.settle().await;
    assert_eq!(world.seen().requests, ["GET c", "PUT c", "PUT status", "GET c"]);
    assert!(!world.seen().in_flight);
    let state = world.cache.lock();
    let facts = state.store.resource_claims.get(&ObjectKey::new("ns", "c")).expect("facts");
    assert!(facts.allocation.is_some(), "it is known now that it was done");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_binding_that_waits_for_devices_is_forgotten_with_its_pod() {
    let world = attaching().await;
    world.cache.lock().store.pods.delete(&pod_ref().key);
    world.cache.lock().settle_some();
    assert!(!world.seen().in_flight);
}

/// The claim for the extended resources of the pod of [`pod_ref`].
const EXTENDED: &str =
    "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/a-extended-resources-u";

/// A binding that makes this claim.
fn bind_with_extended_resource() -> Decision {
    let claim = resource_claim("any", json!(null));
    let claim: ResourceClaim = serde_json::from_value(claim).expect("a claim");
    let spec = read::resource_claim(&claim).expect("facts").spec;
    let mapping = DeviceMapping {
        container: "main".into(),
        resource: "example.com/gpu".into(),
        request: "r".into(),
    };
    let new = ExtendedClaim { spec, mappings: vec![mapping] };
    let key = ExtendedClaim::key(&pod_ref().key, &pod_ref().uid);
    let choice = choice(&key.name, Some(&allocation_of("gpu-0")));
    bind_with_devices(vec![DeviceChoice { new: Some(Arc::new(new)), ..choice }])
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_claim_for_extended_resources_is_made_before_the_binding() {
    let name = "a-extended-resources-u";
    let made =
        [&format!("GET {name}"), "POST resourceclaims", &format!("PUT {name}")].map(str::to_owned);
    let rest = ["PUT status", "PATCH status", "POST binding"].map(str::to_owned);
    for (fault, requests) in [
        (None, [&made[..], &rest[..]].concat()),
        // The answer was lost: the claim is there at the next attempt.
        (Some(Method::POST), [&made[..2], &made[..1], &made[2..], &rest[..]].concat()),
    ] {
        let world = World::new();
        if let Some(method) = fault {
            world.api.fail(method, "/resourceclaims", [Fault::Lost]);
        }
        let seen = world.outcome(&bind_with_extended_resource()).await;
        assert_eq!(seen.requests, requests);
        assert_eq!(seen.n_placed, 1);
        let claim = world.api.object(EXTENDED).expect("the claim");
        let annotation = &claim["metadata"]["annotations"];
        assert_eq!(annotation["resource.kubernetes.io/extended-resource-claim"], "true");
        let owner = &claim["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["uid"], &owner["controller"]), (&json!("u"), &json!(true)));
        let request = &claim["spec"]["devices"]["requests"][0]["exactly"];
        assert_eq!((&request["deviceClassName"], &request["count"]), (&json!("gpu"), &json!(1)));
        assert_eq!(claim["status"]["reservedFor"], json!([own_user()]));
        let pod = world.api.object(POD).expect("the pod");
        assert_eq!(
            pod["status"]["extendedResourceClaimStatus"],
            json!({
                "resourceClaimName": name,
                "requestMappings": [
                    {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "r"},
                ],
            })
        );
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_claim_for_extended_resources_is_deleted_if_the_pod_is_not_bound() {
    let world = World::new();
    world.api.fail(Method::POST, "/binding", [Fault::Status(403)]);
    world.outcome(&bind_with_extended_resource()).await;
    assert_eq!(world.api.object(EXTENDED), None);
    assert_eq!(world.failures().len(), 1);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_claim_of_a_group_is_reserved_for_the_group_and_stays_so() {
    for is_refused in [false, true] {
        let world = World::with_resource_claims(&[resource_claim("c", json!(null))]);
        if is_refused {
            world.api.fail(Method::POST, "/binding", [Fault::Status(403)]);
        }
        let group = Some(Consumer::group(&"g".into(), &"g-uid".into()));
        let choice = choice("c", Some(&allocation_of("gpu-0")));
        world.outcome(&bind_with_devices(vec![DeviceChoice { group, ..choice }])).await;
        let user = json!({
            "apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g-uid",
        });
        assert_eq!(world.status_of(C)["reservedFor"], json!([user]), "{is_refused}");
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_claim_that_is_of_no_use_loses_its_devices_unless_others_use_it() {
    for (users, is_freed) in [(vec![], true), (vec![own_user()], true), (vec![user("b")], false)] {
        let status = json!({"allocation": allocation_of("gpu-0"), "reservedFor": users});
        let world = World::with_resource_claims(&[resource_claim("c", status)]);
        let claim = ObjectKey::new("ns", "c");
        world.decide(&Decision::Deallocate { pod: pod_ref(), claim });
        world.settle().await;
        assert_eq!(world.status_of(C)["allocation"].is_null(), is_freed, "{users:?}");
        assert_eq!(world.cache.lock().assumed.get(&pod_ref().uid), None);
        assert_eq!(world.failures(), [""; 0]);
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_claim_for_extended_resources_that_was_left_behind_is_deleted() {
    let world = World::new();
    world.api.fail(Method::POST, "/binding", [Fault::Status(403)]);
    world.api.fail(Method::DELETE, "/resourceclaims", [Fault::Status(403)]);
    world.outcome(&bind_with_extended_resource()).await;
    let mut claim = world.api.object(EXTENDED).expect("the claim");
    claim["metadata"]["uid"] = json!("claim");
    world.api.put(EXTENDED, claim);
    world.shows(EXTENDED);
    let claim = ExtendedClaim::key(&pod_ref().key, &pod_ref().uid);
    world.decide(&Decision::Deallocate { pod: pod_ref(), claim });
    world.settle().await;
    assert_eq!(world.api.object(EXTENDED), None);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_device_that_another_claim_has_got_meanwhile_is_not_given_away() {
    let status = json!({"allocation": allocation_of("gpu-0")});
    let (free, taken) = (resource_claim("c", json!(null)), resource_claim("other", status));
    let world = World::with_resource_claims(&[free, taken]);
    world.outcome(&bind_with_device("gpu-0")).await;
    assert_eq!(world.status_of(C), json!(null));
    let why = "claim ns/c cannot get device d/p/gpu-0: claim ns/other has got it";
    assert_eq!(world.failures(), [why]);
    // Once the other claim is gone, it is free.
    world.cache.lock().store.resource_claims.delete(&ObjectKey::new("ns", "other"));
    assert_eq!(world.outcome(&bind_with_device("gpu-0")).await.n_placed, 1);
}
