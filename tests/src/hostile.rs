//! Hostile objects: what a user who may create pods and PodGroups in one namespace can do to the
//! cycles of everyone else.
//!
//! Every kind of hostile object is measured in the same cluster, against *plain* objects: the same
//! number of pods in the same jobs and on the same nodes, without what makes them hostile. A pod costs
//! something whatever is in it, and quotas limit how many pods a namespace has; the difference is what
//! the contents of the objects cost.
//!
//! Waiting pods of the namespace fit on no node, and running ones fill their nodes, so no rule of
//! Kubernetes lets them affect where the pods of others go.

pub mod contents;

use k8s_openapi::{
    api::{
        core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
        policy::v1::PodDisruptionBudget,
        resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
        scheduling::{v1::PriorityClass, v1alpha3::CompositePodGroup},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube_batch_api::{crd::PodGroupSpec, dialect::RawObject, kind::ApplyObject as _};
use kube_batch_cache::store::Store;
use kube_batch_model::{decision::Decision, group_version::GroupVersion};
use serde_json::{Value, json};

/// The namespace of the hostile objects.
pub const NAMESPACE: &str = "hostile";

/// The cluster of everyone else.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Nodes of 32 CPUs, in ten zones. The last fifth is for pods of the hostile namespace.
    pub nodes: usize,
    /// Jobs of ten pods of 8 CPUs. Half of them run.
    pub jobs: usize,
    /// The numbers of hostile objects are divided by this.
    pub divisor: usize,
}

impl Size {
    /// The cluster for which the bound is stated.
    pub const FULL: Self = Self { nodes: 1_000, jobs: 500, divisor: 1 };
}

/// Whether the objects of the hostile namespace are hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// As many pods and jobs, without what makes them hostile.
    Plain,
    /// The hostile objects.
    Hostile,
}

/// The specification and the annotations of a claim for a volume, by the number of its pod and its own.
type VolumeClaim = fn(usize, usize) -> (Value, Value);

/// A kind of hostile object.
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is hostile about it.
    pub about: &'static str,
    n_pods: usize,
    /// Pods of each PodGroup.
    pods_per_group: usize,
    /// Whether all pods of a PodGroup must start together, plain ones too. They fit on nodes, but the nodes have less
    /// left than all of them need.
    are_gangs: bool,
    /// Whether the PodGroups of the hostile pods are the parts of one composite PodGroup, which needs them all. The pods
    /// fit on nodes then.
    is_composite: bool,
    /// Whether the pods are on nodes, one on each.
    runs: bool,
    pod: fn(&mut Value, usize),
    group: fn(&mut PodGroupSpec, usize),
    budget: fn(usize) -> Option<Value>,
    /// The specification of the claim for devices of each pod; `None` if the cluster has no devices.
    claim: Option<fn(usize) -> Value>,
    /// How many such claims each pod has.
    n_claims: usize,
    /// The claims for volumes of each pod. There are 500 volumes, of which every node can use every one, and the last
    /// claim needs a larger one.
    volume_claims: Option<VolumeClaim>,
    /// How many such claims each pod has.
    n_volume_claims: usize,
    /// Whether several claims can have shares of a device.
    has_shares: bool,
    /// How many slices a driver publishes besides those with the devices of claims.
    n_slices: usize,
}

impl Kind {
    const NONE: Self = Self {
        name: "none",
        about: "plain pods, for the noise of a measurement",
        n_pods: 200,
        pods_per_group: 10,
        are_gangs: false,
        is_composite: false,
        runs: false,
        pod: |_, _| {},
        group: |_, _| {},
        budget: |_| None,
        claim: None,
        n_claims: 1,
        volume_claims: None,
        n_volume_claims: N_VOLUMES,
        has_shares: false,
        n_slices: 0,
    };

    /// The facts of everyone's objects and of those of the hostile namespace. All go through the
    /// methods that store what a watch reports.
    pub fn store(&self, size: Size, variant: Variant) -> Store {
        let mut store = Store::default();
        everyone(&mut store, size);
        if self.claim.is_some() || self.n_slices > 0 {
            add_devices(&mut store, size, self.has_shares);
        }
        if self.volume_claims.is_some() {
            add_volumes(&mut store);
        }
        if variant == Variant::Hostile {
            add_slices(&mut store, size, self.n_slices / size.divisor);
        }
        let n_pods = (self.n_pods / size.divisor).max(1);
        let n_groups = n_pods.div_ceil(self.pods_per_group);
        let is_composite = self.is_composite && variant == Variant::Hostile;
        if is_composite {
            add_composite(&mut store, n_groups);
        }
        for n in 0..n_groups {
            if is_composite {
                add_part(&mut store, n);
                continue;
            }
            let size = self.pods_per_group.min(n_pods) as i32;
            let mut spec = group_spec(if self.are_gangs { size } else { 1 }, NAMESPACE);
            if variant == Variant::Hostile {
                (self.group)(&mut spec, n);
                if let Some(budget) = (self.budget)(n) {
                    apply_budget(&mut store, budget);
                }
            }
            apply_group(&mut store, NAMESPACE, &format!("group-{n}"), &spec);
        }
        let first_node = size.nodes - size.nodes / 5;
        for n in 0..n_pods {
            let node = self.runs.then(|| first_node + n % (size.nodes - first_node));
            let cpu = match (self.runs, self.are_gangs) {
                (true, _) => "32",
                (false, true) => "16",
                (false, false) => "33",
            };
            let group = format!("group-{}", n / self.pods_per_group);
            let mut pod = pod(NAMESPACE, &group, n, cpu, node);
            if is_composite {
                join_part(&mut pod, &group);
            }
            if variant == Variant::Hostile {
                (self.pod)(&mut pod, n);
                if let Some(spec) = self.claim {
                    add_claims(&mut store, &mut pod, n, self.n_claims, spec);
                }
                if let Some(claim) = self.volume_claims {
                    add_volume_claims(&mut store, &mut pod, n, self.n_volume_claims, claim);
                }
            }
            apply_pod(&mut store, pod);
        }
        store
    }
}

/// Decisions about pods of other namespaces, as text.
pub fn decisions_about_others(decisions: &[Decision]) -> Vec<String> {
    let about = |decision: &Decision| match decision {
        Decision::Bind { pod, node, .. } => (pod.key.clone(), format!("bind {} {node}", pod.key)),
        Decision::Evict { pod, .. } => (pod.key.clone(), format!("evict {}", pod.key)),
        Decision::Nominate { pod, node, .. } => {
            (pod.key.clone(), format!("nominate {} {node}", pod.key))
        }
        Decision::Withdraw { pod } => (pod.key.clone(), format!("withdraw {}", pod.key)),
        Decision::Deallocate { pod, claim } => (pod.key.clone(), format!("deallocate {claim}")),
    };
    let all = decisions.iter().map(about);
    all.filter(|(key, _)| *key.namespace != *NAMESPACE).map(|(_, text)| text).collect()
}

/// Nodes, queues, and jobs that need more than there is: of two queues, one holds more than its share.
fn everyone(store: &mut Store, size: Size) {
    for n in 0..size.nodes {
        let node = json!({
            "metadata": {"name": format!("node-{n:05}"), "labels": {
                "kubernetes.io/hostname": format!("node-{n:05}"),
                "topology.kubernetes.io/zone": format!("zone-{}", n % 10),
            }},
            "status": {
                "allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        store.apply::<Node>(&read(node)).expect("the node is valid");
    }
    for (name, weight) in [("large", 3), ("small", 1), (NAMESPACE, 1)] {
        let spec = json!({"weight": weight});
        let meta = meta(None, name);
        store
            .apply_queue(GroupVersion::V1Alpha1, &RawObject::new(&meta, &spec))
            .expect("the queue is valid");
    }
    for (name, value) in [("high", 1_000), ("system-node-critical", 2_000_001_000)] {
        let class = json!({"metadata": {"name": name}, "value": value});
        store.apply::<PriorityClass>(&read(class)).expect("the class is valid");
    }
    for namespace in ["team", NAMESPACE] {
        let labels = json!({"kubernetes.io/metadata.name": namespace});
        let namespace = json!({"metadata": {"name": namespace, "labels": labels}});
        store.apply::<Namespace>(&read(namespace)).expect("the namespace is valid");
    }
    let n_places = (size.nodes - size.nodes / 5) * 4;
    for job in 0..size.jobs {
        let runs = job % 2 == 0;
        let name = format!("job-{job}");
        let queue = if runs || job % 3 == 0 { "small" } else { "large" };
        let mut spec = group_spec(if runs { 5 } else { 10 }, queue);
        if job % 15 == 1 {
            "high".clone_into(&mut spec.priority_class_name);
        }
        apply_group(store, "team", &name, &spec);
        for k in 0..10 {
            let n = job * 10 + k;
            let at = (job / 2 * 10 + k) % n_places;
            let node = runs.then_some(at / 4);
            apply_pod(store, pod("team", &name, n, "8", node));
        }
    }
}

/// Sixteen devices for each node.
fn add_devices(store: &mut Store, size: Size, has_shares: bool) {
    let class = json!({"metadata": {"name": "gpu"}, "spec": {}});
    store.apply::<DeviceClass>(&read(class)).expect("the class is valid");
    for n in 0..size.nodes {
        let device = |at: usize| {
            json!({
                "name": format!("gpu-{at}"), "attributes": {"at": {"int": n * 16 + at}},
                "allowMultipleAllocations": has_shares, "capacity": {"memory": {"value": "80Gi"}},
            })
        };
        let devices: Vec<Value> = (0..16).map(device).collect();
        let node = format!("node-{n:05}");
        let slice = json!({"metadata": {"name": node}, "spec": {
            "driver": "gpu.example.com", "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        }});
        store.apply::<ResourceSlice>(&read(slice)).expect("the slice is valid");
    }
}

/// Slices of another driver, each with eight devices of a node.
fn add_slices(store: &mut Store, size: Size, n_slices: usize) {
    for n in 0..n_slices {
        let (name, node) = (format!("slice-{n:05}"), format!("node-{:05}", n % size.nodes));
        let devices: Vec<Value> = (0..8).map(|at| json!({"name": format!("nic-{at}")})).collect();
        let slice = json!({"metadata": {"name": name}, "spec": {
            "driver": "nic.example.com", "nodeName": node, "devices": devices,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        }});
        store.apply::<ResourceSlice>(&read(slice)).expect("the slice is valid");
    }
}

/// Gives a pod, which fits on nodes otherwise, claims for devices.
fn add_claims(
    store: &mut Store,
    pod: &mut Value,
    n: usize,
    n_claims: usize,
    spec: fn(usize) -> Value,
) {
    let mut entries = Vec::new();
    for at in n * n_claims..(n + 1) * n_claims {
        let name = format!("claim-{at}");
        let claim = json!({"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec(at)});
        store.apply::<ResourceClaim>(&read(claim)).expect("the claim is valid");
        entries.push(json!({"name": format!("gpu-{at}"), "resourceClaimName": name}));
    }
    pod["spec"]["resourceClaims"] = entries.into();
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
}

fn add_composite(store: &mut Store, n_groups: usize) {
    let composite = json!({
        "metadata": {
            "name": "all", "namespace": NAMESPACE, "uid": "all",
            "labels": {"scheduling.sigs.dev/queue": NAMESPACE},
        },
        "spec": {"schedulingPolicy": {"gang": {"minGroupCount": n_groups}}},
    });
    store.apply::<CompositePodGroup>(&read(composite)).expect("the composite PodGroup is valid");
    store.set_served(GroupVersion::Kubernetes, true);
}

fn add_part(store: &mut Store, n: usize) {
    let group = json!({
        "metadata": {"name": format!("group-{n}"), "namespace": NAMESPACE, "uid": n.to_string()},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 1}}, "parentCompositePodGroupName": "all",
        },
    });
    let group = serde_json::from_value(group).expect("an object");
    store.apply_group(GroupVersion::Kubernetes, &group).expect("the PodGroup is valid");
}

fn join_part(pod: &mut Value, group: &str) {
    pod["metadata"]["annotations"] = json!({});
    pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("16");
}

/// The most volumes that a pod may name, and the number that are available.
const N_VOLUMES: usize = 500;

fn add_volumes(store: &mut Store) {
    let class = json!({
        "metadata": {"name": "disks"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    store.apply::<StorageClass>(&read(class)).expect("the class is valid");
    for n in 0..N_VOLUMES {
        let volume = json!({
            "metadata": {"name": format!("volume-{n:03}"), "labels": {"number": n.to_string()}},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": "disks",
            },
            "status": {"phase": "Available"},
        });
        store.apply::<PersistentVolume>(&read(volume)).expect("the volume is valid");
    }
}

fn add_volume_claims(
    store: &mut Store,
    pod: &mut Value,
    n: usize,
    n_claims: usize,
    claim: VolumeClaim,
) {
    let mut volumes = Vec::new();
    for at in 0..n_claims {
        let name = format!("claim-{n}-{at}");
        let size = if at + 1 == n_claims { "2Gi" } else { "1Gi" };
        let (mut spec, annotations) = claim(n, at);
        spec["resources"] = json!({"requests": {"storage": size}});
        spec["storageClassName"] = json!("disks");
        spec["accessModes"] = json!(["ReadWriteOnce"]);
        let meta = json!({
            "name": name, "namespace": NAMESPACE, "uid": name, "annotations": annotations,
        });
        let claim = json!({"metadata": meta, "spec": spec});
        store.apply::<PersistentVolumeClaim>(&read(claim)).expect("the claim is valid");
        volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    }
    pod["spec"]["volumes"] = json!(volumes);
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
}

fn group_spec(min_member: i32, queue: &str) -> PodGroupSpec {
    PodGroupSpec { min_member, queue: queue.to_owned(), ..PodGroupSpec::default() }
}

/// A pod as a Job would create it.
fn pod(namespace: &str, group: &str, n: usize, cpu: &str, node: Option<usize>) -> Value {
    json!({
        "metadata": {
            "name": format!("pod-{n}"), "namespace": namespace, "uid": format!("{namespace}-{n}"),
            "labels": {"job-name": group, "index": n.to_string()},
            "annotations": {"scheduling.k8s.io/group-name": group},
        },
        "spec": {
            "schedulerName": "kube-batch",
            "nodeName": node.map(|node| format!("node-{node:05}")),
            "containers": [{
                "name": "main", "image": "app",
                "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}},
            }],
        },
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" }},
    })
}

fn meta(namespace: Option<&str>, name: &str) -> ObjectMeta {
    read(json!({"name": name, "namespace": namespace, "uid": format!("uid-{name}")}))
}

fn apply_group(store: &mut Store, namespace: &str, name: &str, spec: &PodGroupSpec) {
    let meta = meta(Some(namespace), name);
    store
        .apply_group(GroupVersion::V1Alpha2, &RawObject::new(&meta, spec))
        .expect("the group is valid");
}

fn apply_pod(store: &mut Store, pod: Value) {
    store.apply(&read::<Pod>(pod)).expect("the pod is valid");
}

fn apply_budget(store: &mut Store, budget: Value) {
    store.apply(&read::<PodDisruptionBudget>(budget)).expect("the budget is valid");
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object as the API server sends it")
}
