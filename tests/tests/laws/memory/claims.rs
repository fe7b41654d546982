//! A job that waits in vain for devices is tried again when its claims change, and reported with the claims that exist.

use std::sync::Arc;

use kube_batch_cache::store::Store;
use kube_batch_framework::report::Cycle;
use kube_batch_model::{
    facts::device::claim::{ClaimEntry, ClaimSource, ResourceClaimFacts},
    name::ObjectKey,
};

use super::history::{
    History, WITHOUT_SHARES, change_pod, delete_pod, group, node, pod, queue, what_waits,
};

/// A claim that was made for a pod and requests two devices of a class.
fn claim_of(name: &str, pod: &str) -> String {
    format!(
        "{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {{name: {name}, namespace: ns, ownerReferences: \
         [{{apiVersion: v1, kind: Pod, name: {pod}, uid: {pod}, controller: true}}]}}, spec: {{devices: {{requests: \
         [{{name: gpu, exactly: {{deviceClassName: gpu, count: 2}}}}]}}}}}}"
    )
}

/// A pod that needs devices, with the claim that was made for it.
fn with_claim(name: &str, claim: &str) -> [String; 3] {
    let pod =
        pod(name, name, "1", "resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}], ");
    let status = format!("{{resourceClaimStatuses: [{{name: gpu, resourceClaimName: {claim}}}]}}");
    let pod = format!("{}, status: {status}}}", &pod[..pod.len() - 1]);
    [group(name, "minMember: 1"), claim_of(claim, name), pod]
}

/// A claim that requests more devices than any may have: the message names it.
fn too_many(claim: String) -> String {
    claim.replace("count: 2", "count: 40")
}

/// A node with one device.
fn with_device() -> Vec<String> {
    vec![
        queue("default", "weight: 1"),
        node("n", "2"),
        "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {selectors: []}}".to_owned(),
        "{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: n}, spec: {driver: gpu.example.com, \
         pool: {name: n, generation: 1, resourceSliceCount: 1}, nodeName: n, devices: [{name: gpu-0}]}}".to_owned(),
    ]
}

fn of_devices(objects: Vec<String>) -> History<'static> {
    History { actions: "allocate", plugins: WITHOUT_SHARES, gang: "", objects }
}

fn change_claim(store: &mut Store, name: &str, change: impl FnOnce(&mut ResourceClaimFacts)) {
    let key = ObjectKey::new("ns", name);
    let facts = store.resource_claims.get(&key).expect("the claim");
    let mut facts = ResourceClaimFacts::clone(facts);
    change(&mut facts);
    store.resource_claims.apply(key, facts);
}

/// Its claim is made again.
#[test]
fn of_what_its_claims_request() {
    let mut history = of_devices(with_device());
    history.objects.extend(with_claim("waits", "waits-gpu"));
    history.decides_after(|store| {
        change_claim(store, "waits-gpu", |claim| claim.spec = Arc::default());
    });
}

/// The message about a claim names it, also if it is another one with the same requests.
#[test]
fn of_the_names_of_its_claims() {
    let mut history = of_devices(with_device());
    history.objects.extend(with_claim("waits", "waits-gpu").map(too_many));
    history.objects.push(too_many(claim_of("waits-other", "waits")));
    let cycles = history.cycles(6, |at, store| {
        let claim = if at < 4 { "waits-gpu" } else { "waits-other" };
        let source = ClaimSource::Generated { claim: claim.into(), template: "gpu".into() };
        change_pod(store, "waits", |pod| {
            pod.device_claims = Box::new([ClaimEntry { name: "gpu".into(), source }]);
        });
    });
    assert_ne!(what_waits(&cycles[4]), what_waits(&cycles[3]));
}

/// The message about a claim names that of the first pod with equal claims, which is deleted.
#[test]
fn of_the_names_of_the_claims_of_others() {
    let mut history = of_devices(with_device());
    history.objects.extend(with_claim("other", "other-gpu").map(too_many));
    history.objects.extend(with_claim("waits", "waits-gpu").map(too_many));
    let [before, after] = history.around(|store| {
        delete_pod(store, "other");
    });
    let of_waiting = |cycle: &Cycle| what_waits(cycle).pop();
    assert_ne!(of_waiting(&after), of_waiting(&before));
}

/// The device is reserved for another pod, which waits for a node that does not exist, and is deleted.
#[test]
fn of_a_pod_for_which_a_device_is_reserved() {
    let mut history = of_devices(with_device());
    let reserved = "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: reserved, namespace: ns, \
                    finalizers: [resource.kubernetes.io/delete-protection]}, \
                    spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, count: 1}}]}}, \
                    status: {allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: n, \
                    device: gpu-0}]}}, reservedFor: [{resource: pods, name: other, uid: other}]}}";
    let other =
        "resourceClaims: [{name: gpu, resourceClaimName: reserved}], nodeSelector: {on: m}, ";
    history.objects.extend([group("other", "minMember: 1"), pod("other", "other", "1", other)]);
    history.objects.push(reserved.to_owned());
    let one = |object: String| object.replace("count: 2", "count: 1");
    history.objects.extend(with_claim("waits", "waits-gpu").map(one));
    history.differs_after(|store| delete_pod(store, "other"));
}

/// A claim that was made for another pod is made again.
#[test]
fn of_a_claim_that_it_shares() {
    let mut history = of_devices(with_device());
    let pod =
        pod("waits", "waits", "1", "resourceClaims: [{name: gpu, resourceClaimName: shared}], ");
    let claim = claim_of("shared", "other").replacen("count: 2", "count: 1", 1);
    let large = self::pod("large", "waits", "9", "");
    let owner = self::pod("other", "other", "1", "schedulingGates: [{name: gate}], ");
    history.objects.extend([group("waits", "minMember: 1"), claim, large, pod, owner]);
    let cycles = history.cycles(6, |at, store| {
        change_claim(store, "shared", |claim| claim.deleting = at < 4);
    });
    assert_ne!(cycles[4].decisions, [], "the claim can be used");
}
