//! Devices of shapes, and claims for them.

use k8s_openapi::api::{
    core::v1::{Pod, PodResourceClaim},
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
};
use kube_batch_api::kind::ApplyObject as _;
use kube_batch_cache::store::Store;
use serde_json::{Value, json};

const DRIVER: &str = "gpu.example.com";

/// The claims of pods.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClaimKind {
    /// One device.
    Plain,
    /// Eight devices.
    WholeNode,
    /// Four devices, selected by three attributes, of one NVLink domain.
    Matching,
    /// A partition: a whole device, a half or a quarter.
    Partition(usize),
}

/// The partitions of a device: name and memory in Gi.
const PARTITIONS: [(&str, usize); 7] = [
    ("whole", 80),
    ("half-0", 40),
    ("half-1", 40),
    ("quarter-0", 20),
    ("quarter-1", 20),
    ("quarter-2", 20),
    ("quarter-3", 20),
];

fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the object is valid")
}

/// Adds a class of all devices.
pub(super) fn add_class(store: &mut Store) {
    let class: DeviceClass = parsed(json!({
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == \"{DRIVER}\"")}}]},
    }));
    store.apply(&class).expect("the class is valid");
}

/// Adds slices with 8 devices for each node: in two NVLink domains, of the same model.
pub(super) fn add_devices(store: &mut Store, n_nodes: usize) {
    for n in 0..n_nodes {
        let device = |at: usize| {
            json!({"name": format!("gpu-{at}"), "attributes": {
                "model": {"string": "h100"},
                "generation": {"int": 9},
                "driverVersion": {"version": "570.86.10"},
                "nvlink": {"string": format!("{n}-{}", at / 4)},
                "uuid": {"string": format!("GPU-{n}-{at}")},
            }})
        };
        add_slice(
            store,
            n,
            "devices",
            1,
            json!({"devices": (0..8).map(device).collect::<Vec<_>>()}),
        );
    }
}

/// Adds slices with 8 devices for each node, each with the partitions that it can be divided into.
pub(super) fn add_partitions(store: &mut Store, n_nodes: usize) {
    for n in 0..n_nodes {
        let counter = |at: usize| json!({"name": format!("gpu-{at}"), "counters": {"memory": {"value": "80Gi"}}});
        let counters: Vec<Value> = (0..8).map(counter).collect();
        add_slice(store, n, "counters", 2, json!({"sharedCounters": counters}));
        let devices = (0..8).flat_map(|at| {
            PARTITIONS.iter().map(move |(name, memory)| {
                let memory = format!("{memory}Gi");
                json!({
                    "name": format!("gpu-{at}-{name}"),
                    "attributes": {"profile": {"string": name.split('-').next()}},
                    "consumesCounters": [{"counterSet": format!("gpu-{at}"), "counters": {"memory": {"value": memory}}}],
                })
            })
        });
        add_slice(store, n, "devices", 2, json!({"devices": devices.collect::<Vec<_>>()}));
    }
}

fn add_slice(store: &mut Store, node: usize, part: &str, n_slices: usize, mut spec: Value) {
    let node = format!("node-{node:05}");
    spec["driver"] = json!(DRIVER);
    spec["nodeName"] = json!(node);
    spec["pool"] = json!({"name": node, "generation": 1, "resourceSliceCount": n_slices});
    let slice: ResourceSlice =
        parsed(json!({"metadata": {"name": format!("{node}-{part}")}, "spec": spec}));
    store.apply(&slice).expect("the slice is valid");
}

impl ClaimKind {
    fn spec(self) -> Value {
        let with = |request: Value| json!({"devices": {"requests": [{"name": "gpu", "exactly": request}]}});
        let attribute = |name: &str| format!("device.attributes[\"{DRIVER}\"].{name}");
        match self {
            Self::Plain => with(json!({"deviceClassName": "gpu"})),
            Self::WholeNode => with(json!({"deviceClassName": "gpu", "count": 8})),
            Self::Matching => {
                let expression = format!(
                    "{} == \"h100\" && {} >= 8 && {}.isGreaterThan(semver(\"550.0.0\"))",
                    attribute("model"),
                    attribute("generation"),
                    attribute("driverVersion"),
                );
                let selectors = json!([{"cel": {"expression": expression}}]);
                let mut spec =
                    with(json!({"deviceClassName": "gpu", "count": 4, "selectors": selectors}));
                spec["devices"]["constraints"] =
                    json!([{"matchAttribute": format!("{DRIVER}/nvlink")}]);
                spec
            }
            Self::Partition(size) => {
                let profile = ["whole", "half", "quarter"][size % 3];
                let expression = format!("{} == \"{profile}\"", attribute("profile"));
                let selectors = json!([{"cel": {"expression": expression}}]);
                with(json!({"deviceClassName": "gpu", "selectors": selectors}))
            }
        }
    }
}

/// Gives a pod a claim of its own, as one that was made from a template. If the pod runs, it has the 8 devices
/// of its node.
pub(super) fn add_claim(store: &mut Store, pod: &mut Pod, kind: ClaimKind) {
    let meta = &pod.metadata;
    let (name, uid) = (meta.name.clone().expect("a name"), meta.uid.clone().expect("a uid"));
    let claim = format!("{name}-gpu");
    let spec = pod.spec.get_or_insert_default();
    spec.resource_claims = Some(vec![PodResourceClaim {
        name: "gpu".to_owned(),
        resource_claim_template_name: Some("gpu".to_owned()),
        ..PodResourceClaim::default()
    }]);
    let node = spec.node_name.clone();
    let status = json!([{"name": "gpu", "resourceClaimName": claim}]);
    pod.status.get_or_insert_default().resource_claim_statuses = Some(parsed(status));
    let owner =
        json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": true});
    let mut object = json!({
        "metadata": {"name": claim, "namespace": "bench", "uid": format!("uid-{claim}"), "ownerReferences": [owner]},
        "spec": kind.spec(),
    });
    if let Some(node) = node {
        let result = |at: usize| json!({"request": "gpu", "driver": DRIVER, "pool": node, "device": format!("gpu-{at}")});
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        object["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
        object["status"] = json!({
            "allocation": {
                "devices": {"results": (0..8).map(result).collect::<Vec<_>>()},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            },
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
        });
    }
    let claim: ResourceClaim = parsed(object);
    store.apply(&claim).expect("the claim is valid");
}
