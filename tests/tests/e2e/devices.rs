//! Claims for devices (Dynamic Resource Allocation). Kubernetes' claim controller is real; the tests publish the
//! devices, as drivers do.

mod bindings;
mod extended;
mod gangs;
mod other_schedulers;
mod single_pods;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, group, pods};

/// The driver of the devices.
const DRIVER: &str = "gpu.example.com";
/// The name of the class of its devices, of the template of a claim for one of them, of the request in the claim,
/// and of the claim in the pod.
const GPU: &str = "gpu";
/// The claim controller frees the devices of a claim only if it has this finalizer.
const DELETE_PROTECTION: &str = "resource.kubernetes.io/delete-protection";

fn object(kind: &str, metadata: Value, spec: Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec})
}

/// The class of the driver's devices.
pub(crate) fn class() -> Value {
    let selector = json!({"cel": {"expression": format!("device.driver == \"{DRIVER}\"")}});
    object("DeviceClass", json!({"name": GPU}), json!({"selectors": [selector]}))
}

/// The devices `gpu-0`, `gpu-1` and so on of a node. The slice and its pool are named after the node.
pub(crate) fn slice(node: &str, n_devices: usize) -> Value {
    let devices: Vec<Value> = (0..n_devices).map(|n| json!({"name": format!("gpu-{n}")})).collect();
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices});
    object("ResourceSlice", json!({"name": node}), spec)
}

/// What a claim for one device of a class requests.
fn request(class: &str) -> Value {
    let exactly = json!({"deviceClassName": class});
    json!({"devices": {"requests": [{"name": GPU, "exactly": exactly}]}})
}

/// A claim for one device.
pub(crate) fn claim(name: &str) -> Value {
    object("ResourceClaim", json!({"name": name, "namespace": NAMESPACE}), request(GPU))
}

/// A template of claims for one device of a class.
fn template(name: &str, class: &str) -> Value {
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    object("ResourceClaimTemplate", metadata, json!({"spec": request(class)}))
}

/// The pods `NAME-0`, `NAME-1` and so on, each with a claim from this template.
fn pods_with_template(name: &str, n: usize, template: &str) -> Vec<Value> {
    let mut pods = pods(name, n, "1");
    for pod in &mut pods {
        pod["spec"]["resourceClaims"] =
            json!([{"name": GPU, "resourceClaimTemplateName": template}]);
    }
    pods
}

/// A claim that has devices.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Allocated {
    /// As `POOL/DEVICE`.
    devices: Vec<String>,
    /// When it was allocated.
    since: String,
    /// The names of the pods that it is reserved for.
    pods: Vec<String>,
}

impl Bed {
    /// Creates the class, the template, and nodes' devices.
    fn create_devices(&self, slices: &[Value]) {
        for object in [class(), template(GPU, GPU)].iter().chain(slices) {
            self.apply(object);
        }
    }

    /// Creates a gang whose pods each have a claim from the template.
    fn create_gang(&self, name: &str, n_pods: usize) {
        self.apply(&group(name, n_pods));
        self.plane.create(&pods_with_template(name, n_pods, GPU)).expect("pods are created");
    }

    /// The claims that have devices, by name.
    fn allocated(&self) -> BTreeMap<String, Allocated> {
        let claims = self.list("resourceclaims");
        claims
            .iter()
            .filter_map(|claim| Some((text(&claim["metadata"]["name"]), allocated(claim)?)))
            .collect()
    }

    /// The devices of the claims that are reserved for pods of a gang, in order; each has one claim.
    fn devices_of(&self, gang: &str) -> Vec<String> {
        let is_member = |pod: &String| pod.starts_with(&format!("{gang}-"));
        let claims =
            self.allocated().into_values().filter(|claim| claim.pods.iter().any(is_member));
        let mut devices: Vec<String> = claims.flat_map(|claim| claim.devices).collect();
        devices.sort();
        devices
    }

    /// Asserts that each pod of a gang is on the node of its device.
    fn expect_devices_beside_pods(&self, gang: &str) {
        let claims = self.allocated();
        for pod in self.pods_in(gang, "Running") {
            let name = text(&pod["metadata"]["name"]);
            let mut own = claims.values().filter(|claim| claim.pods == [&*name]);
            let node = text(&pod["spec"]["nodeName"]);
            let is_beside = |claim: &Allocated| {
                claim.devices.iter().all(|device| device.starts_with(&format!("{node}/")))
            };
            assert!(own.next().is_some_and(is_beside), "{name} on {node}: {claims:?}");
        }
    }

    /// The devices that several claims hold, and their claims.
    fn conflicts(&self) -> BTreeMap<String, Vec<String>> {
        let mut holders: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, claim) in self.allocated() {
            for device in claim.devices {
                holders.entry(device).or_default().push(name.clone());
            }
        }
        holders.retain(|_, claims| claims.len() > 1);
        holders
    }

    /// Asserts that the scheduler has never seen a device in two claims.
    fn expect_no_conflicts(&self) {
        assert_eq!(self.conflicts(), BTreeMap::new());
        assert_eq!(self.n_conflicts(), 0);
    }

    fn n_conflicts(&self) -> usize {
        self.scheduler(0).metric("kube_batch_device_conflicts_total") as usize
    }

    /// Waits until the condition of a pod and an event about it report the same reason why it waits.
    fn wait_until_reported(&self, pod: &str, reason: &str) {
        self.eventually(&format!("the condition of pod {pod} contains {reason:?}"), || {
            let conditions = self.get("pods", pod)["status"]["conditions"].take();
            let mut scheduled = conditions.as_array().into_iter().flatten();
            let scheduled = scheduled.find(|condition| condition["type"] == "PodScheduled");
            let message = scheduled.map(|condition| text(&condition["message"]));
            let is_reported = message.is_some_and(|message| message.contains(reason));
            if is_reported { Ok(()) } else { Err(conditions.to_string()) }
        });
        self.wait_for_event(pod, "FailedScheduling", reason);
    }

    /// Waits for an event about a pod whose message contains a text.
    fn wait_for_event(&self, pod: &str, reason: &str, message: &str) {
        self.eventually(&format!("pod {pod} has the event {reason}: {message}"), || {
            let events = self.list("events");
            let mut of_pod = events.iter().filter(|event| event["involvedObject"]["name"] == pod);
            let is_it = |event: &Value| {
                event["reason"] == reason && text(&event["message"]).contains(message)
            };
            if of_pod.any(is_it) { Ok(()) } else { Err(json!(events).to_string()) }
        });
    }

    /// Changes the status of a claim by a merge patch.
    fn patch_status(&self, claim: &str, status: &Value) {
        self.patch_status_of(["resourceclaim", claim], status);
    }

    /// Changes the status of an object by a merge patch.
    fn patch_status_of(&self, [kind, name]: [&str; 2], status: &Value) {
        let patch = json!({"status": status}).to_string();
        let namespace = format!("--namespace={NAMESPACE}");
        let patched = self.kubectl([
            "patch",
            kind,
            name,
            &namespace,
            "--subresource=status",
            "--type=merge",
            "--patch",
            &patch,
        ]);
        patched.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// What a claim holds; `None` without an allocation.
fn allocated(claim: &Value) -> Option<Allocated> {
    let status = &claim["status"];
    let results = status["allocation"]["devices"]["results"].as_array()?;
    let device = |result: &Value| format!("{}/{}", text(&result["pool"]), text(&result["device"]));
    let users = status["reservedFor"].as_array().into_iter().flatten();
    Some(Allocated {
        devices: results.iter().map(device).collect(),
        since: text(&status["allocation"]["allocationTimestamp"]),
        pods: users.map(|user| text(&user["name"])).collect(),
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
