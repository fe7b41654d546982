//! A snapshot that follows what changed is equal to one from scratch, whatever changed.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    batch::v1::Job as BatchJob,
    core::v1::{Namespace, Node, PersistentVolumeClaim, Pod},
    policy::v1::PodDisruptionBudget,
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
    scheduling::{v1::PriorityClass, v1alpha3::CompositePodGroup},
};
use kube_batch_api::{
    dialect::{self, RawObject},
    kind::ApplyObject as _,
};
use kube_batch_cache::{
    assumed::Assumed,
    live::LiveSnapshot,
    snapshot::{Snapshot, SnapshotOptions, take_snapshot},
    store::Store,
};
use kube_batch_model::{
    cluster::{Cluster, FormerRow},
    column::{JobIdx, TaskIdx},
    decision::{Decision, DeviceChoice, EvictionCause, JobInQueue, PodRef},
    devices::ExtendedClaim,
    facts::{
        device::{DeviceId, claim::Allocation},
        metadata::MetadataPrefixes,
    },
    group_version::GroupVersion,
    membership::BOUND_QUEUE_ANNOTATION,
    name::{JobKey, Name, ObjectKey},
    problem::JobProblem,
    reason::Reason,
};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A pod. Few names, jobs, nodes and labels, so that most changes meet others.
#[derive(Clone, Debug)]
struct PodStep {
    name: u8,
    /// Of pods with one name, those with another version have another uid.
    version: u8,
    created: u8,
    group: Option<u8>,
    controller: Option<u8>,
    is_ours: bool,
    node: Option<u8>,
    phase: &'static str,
    cpu: u8,
    label: u8,
    /// The label of the pods that it must not be beside, and whether those of some namespaces count.
    anti: Option<(u8, bool)>,
    nominated: Option<u8>,
    is_gated: bool,
    devices: Option<Devices>,
    /// The queue that its annotation names, from which it was bound.
    bound_queue: Option<u8>,
    priority: i32,
    is_deleted: bool,
}

/// What a pod needs of devices.
#[derive(Clone, Copy, Debug)]
enum Devices {
    /// A claim that others may name too.
    Shared(u8),
    /// A claim of its own, which may not have been made yet.
    Own { is_made: bool },
    /// An extended resource.
    Extended,
}

#[derive(Clone, Debug)]
enum Step {
    Pod(PodStep),
    DeletePod(u8),
    /// One of several pods that together have more selectors about other namespaces than are read.
    ManySelectors {
        name: u8,
        created: u8,
        node: Option<u8>,
    },
    DeleteManySelectors(u8),
    Group {
        name: u8,
        created: u8,
        min: u32,
        queue: u8,
        has_class: bool,
        note: u8,
        version: GroupVersion,
        parent: Option<u8>,
    },
    DeleteGroup(u8, GroupVersion),
    Composite {
        name: u8,
        parent: Option<u8>,
        priority: i32,
        queue: Option<u8>,
    },
    DeleteComposite(u8),
    Node {
        name: u8,
        cpu: u8,
        has_gpus: bool,
    },
    DeleteNode(u8),
    Queue {
        name: u8,
        created: u8,
        limit: Option<u8>,
        version: GroupVersion,
        parent: Option<u8>,
        /// The label of the namespaces that it selects.
        selected: Option<u8>,
    },
    DeleteQueue(u8, GroupVersion),
    Class(i32),
    Namespace(u8),
    Budget {
        name: u8,
        owner: Option<u8>,
        allowed: i32,
        min: u8,
    },
    DeleteBudget(u8),
    /// A Job, which may control pods, and whose pods name a PodGroup.
    BatchJob {
        name: u8,
        group: Option<u8>,
        n_failed: u8,
        is_other: bool,
    },
    DeleteBatchJob(u8),
    Claim {
        is_bound: bool,
    },
    /// A claim for devices: a shared one, or that of a pod, or that for its extended resources.
    DeviceClaim {
        of: Result<u8, (u8, bool)>,
        count: u8,
        is_allocated: bool,
    },
    DeleteDeviceClaim(Result<u8, (u8, bool)>),
    DeviceClass {
        is_extended: bool,
    },
    DeleteDeviceClass,
    Slice(u8),
    BindWithDevices(u8, u8),
    Deallocate(u8),
    Bind(u8, u8),
    Evict(u8),
    Nominate(u8, u8),
    Withdraw(u8),
    Reject(u8),
    EndBackOff(u8),
    Settle,
    Readable(GroupVersion, bool),
    /// Takes a snapshot, and gives it back unless a cycle has panicked.
    Take {
        gives_back: bool,
    },
}

fn pod_step() -> impl Strategy<Value = PodStep> {
    let identity = (0..12_u8, 0..2_u8, 0..3_u8, prop::bool::weighted(0.8));
    let of = (prop::option::of(0..3_u8), prop::option::weighted(0.3, 0..2_u8));
    let at = (prop::option::of(0..4_u8), prop::option::weighted(0.2, 0..4_u8));
    let phase = prop::sample::select(vec!["Pending", "Running", "Running", "Succeeded"]);
    let kind = (1..3_u8, 0..3_u8, prop::option::weighted(0.3, (0..4_u8, any::<bool>())));
    let devices = prop_oneof![
        2 => (0..2_u8).prop_map(Devices::Shared),
        2 => any::<bool>().prop_map(|is_made| Devices::Own { is_made }),
        1 => Just(Devices::Extended),
    ];
    let devices = prop::option::weighted(0.4, devices);
    // The last one never exists.
    let more = (prop::option::weighted(0.3, 0..3_u8), 0..2_i32, prop::bool::weighted(0.1));
    (identity, of, at, phase, kind, prop::bool::weighted(0.1), devices, more).prop_map(
        |(
            identity,
            (group, controller),
            (node, nominated),
            phase,
            kind,
            is_gated,
            devices,
            more,
        )| {
            let (bound_queue, priority, is_deleted) = more;
            let (name, version, created, is_ours) = identity;
            let (cpu, label, anti) = kind;
            PodStep {
                name,
                version,
                created,
                group,
                controller,
                is_ours,
                node,
                phase,
                cpu,
                label,
                anti,
                nominated,
                is_gated,
                devices,
                bound_queue,
                priority,
                is_deleted,
            }
        },
    )
}

/// The queue `q0`, of weight 1 and without limits.
fn first_queue() -> Step {
    let version = GroupVersion::V1Alpha2;
    Step::Queue { name: 0, created: 0, limit: None, version, parent: None, selected: None }
}

fn version() -> impl Strategy<Value = GroupVersion> {
    prop::sample::select(GroupVersion::OWN.to_vec())
}

fn group_step() -> impl Strategy<Value = Step> {
    let parent = prop::option::weighted(0.4, 0..2_u8);
    (0..3_u8, 0..3_u8, 0..3_u32, 0..2_u8, any::<bool>(), 0..2_u8, version(), parent).prop_map(
        |(name, created, min, queue, has_class, note, version, parent)| Step::Group {
            name,
            created,
            min,
            queue,
            has_class,
            note,
            version,
            parent,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    // The last of them never exists.
    let parent = prop::option::weighted(0.5, 0..5_u8);
    let selected = prop::option::weighted(0.3, 0..2_u8);
    let queue = (0..4_u8, 0..2_u8, prop::option::of(1..9_u8), version(), parent, selected);
    let parent = prop::option::weighted(0.2, 0..2_u8);
    let composite = (0..2_u8, parent, 0..2_i32, prop::option::weighted(0.5, 0..2_u8));
    let budget = (0..2_u8, prop::option::weighted(0.3, 0..2_u8), 0..3_i32, 1..3_u8);
    let batch_job = (0..2_u8, prop::option::of(0..3_u8), 0..3_u8, prop::bool::weighted(0.2));
    prop_oneof![
        20 => pod_step().prop_map(Step::Pod),
        4 => (0..12_u8).prop_map(Step::DeletePod),
        2 => (0..14_u8, 0..3_u8, prop::option::weighted(0.3, 0..4_u8))
            .prop_map(|(name, created, node)| Step::ManySelectors { name, created, node }),
        1 => (0..14_u8).prop_map(Step::DeleteManySelectors),
        5 => group_step(),
        2 => (0..3_u8, version()).prop_map(|(name, version)| Step::DeleteGroup(name, version)),
        2 => composite.prop_map(|(name, parent, priority, queue)| Step::Composite {
            name, parent, priority, queue,
        }),
        1 => (0..2_u8).prop_map(Step::DeleteComposite),
        3 => (0..4_u8, 1..9_u8, prop::bool::weighted(0.2))
            .prop_map(|(name, cpu, has_gpus)| Step::Node { name, cpu, has_gpus }),
        1 => (0..4_u8).prop_map(Step::DeleteNode),
        2 => queue.prop_map(|(name, created, limit, version, parent, selected)| Step::Queue {
            name, created, limit, version, parent, selected,
        }),
        1 => (0..4_u8, version()).prop_map(|(name, version)| Step::DeleteQueue(name, version)),
        1 => (0..3_i32).prop_map(Step::Class),
        1 => (0..2_u8).prop_map(Step::Namespace),
        2 => budget.prop_map(|(name, owner, allowed, min)| Step::Budget {
            name, owner, allowed, min,
        }),
        1 => (0..2_u8).prop_map(Step::DeleteBudget),
        3 => batch_job.prop_map(|(name, group, n_failed, is_other)| Step::BatchJob {
            name, group, n_failed, is_other,
        }),
        1 => (0..2_u8).prop_map(Step::DeleteBatchJob),
        1 => any::<bool>().prop_map(|is_bound| Step::Claim { is_bound }),
        4 => (device_claim(), 1..3_u8, any::<bool>()).prop_map(|(of, count, is_allocated)| {
            Step::DeviceClaim { of, count, is_allocated }
        }),
        1 => device_claim().prop_map(Step::DeleteDeviceClaim),
        1 => any::<bool>().prop_map(|is_extended| Step::DeviceClass { is_extended }),
        1 => Just(Step::DeleteDeviceClass),
        1 => (0..3_u8).prop_map(Step::Slice),
        3 => (0..12_u8, 0..4_u8).prop_map(|(pod, node)| Step::BindWithDevices(pod, node)),
        1 => (0..12_u8).prop_map(Step::Deallocate),
        5 => (0..12_u8, 0..4_u8).prop_map(|(pod, node)| Step::Bind(pod, node)),
        2 => (0..12_u8).prop_map(Step::Evict),
        2 => (0..12_u8, 0..4_u8).prop_map(|(pod, node)| Step::Nominate(pod, node)),
        1 => (0..12_u8).prop_map(Step::Withdraw),
        2 => (0..12_u8).prop_map(Step::Reject),
        1 => (0..12_u8).prop_map(Step::EndBackOff),
        1 => Just(Step::Settle),
        1 => (version(), any::<bool>()).prop_map(|(version, is)| Step::Readable(version, is)),
        12 => prop::bool::weighted(0.95).prop_map(|gives_back| Step::Take { gives_back }),
    ]
}

/// A shared claim, or that of a pod, and whether it is for its extended resources.
fn device_claim() -> impl Strategy<Value = Result<u8, (u8, bool)>> {
    prop_oneof![(0..2_u8).prop_map(Ok), (0..12_u8, prop::bool::weighted(0.3)).prop_map(Err),]
}

struct World {
    store: Store,
    assumed: Assumed,
    live: LiveSnapshot,
    /// The last snapshot, if it was given back.
    last: Option<Cluster>,
    options: SnapshotOptions,
}

fn time(seconds: u8) -> String {
    (Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds.into())).to_string()
}

/// Names whose order as text is another than as numbers.
fn pod_key(name: u8) -> ObjectKey {
    ObjectKey::new("ns", format!("p-{}", name + 5))
}

fn node_name(name: u8) -> Name {
    format!("n{name}").into()
}

fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn controller(uid: u8) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": format!("r{uid}"),
        "uid": format!("r{uid}"), "controller": true,
    })
}

fn manifest(pod: &PodStep) -> Value {
    let key = pod_key(pod.name);
    let term = pod.anti.map(|(label, has_namespaces)| {
        let of_namespaces = json!({"matchLabels": {"l": "0"}});
        let namespaces = if has_namespaces { of_namespaces } else { Value::Null };
        json!({
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"l": label.to_string()}},
            "namespaceSelector": namespaces,
        })
    });
    let terms: Vec<Value> = term.into_iter().collect();
    let claims = pod.devices.and_then(|devices| match devices {
        Devices::Shared(claim) => {
            Some(json!([{"name": "gpu", "resourceClaimName": format!("d{claim}")}]))
        }
        Devices::Own { .. } => Some(json!([{"name": "gpu", "resourceClaimTemplateName": "t"}])),
        Devices::Extended => None,
    });
    let made = matches!(pod.devices, Some(Devices::Own { is_made: true }))
        .then(|| json!([{"name": "gpu", "resourceClaimName": own_claim(pod.name)}]));
    let mut requests = json!({"cpu": pod.cpu.to_string()});
    if matches!(pod.devices, Some(Devices::Extended)) {
        requests["x.io/gpu"] = json!("1");
    }
    let group = pod.group.map(|group| format!("g{group}"));
    let mut labels = json!({"l": pod.label.to_string()});
    if group.is_none() && pod.created.is_multiple_of(2) {
        // In a label it has no effect.
        labels["scheduling.volcano.sh/group-name"] = json!(format!("g{}", pod.label));
    }
    let queue = pod.bound_queue.map(|queue| format!("q{queue}"));
    let exclusive = pod.created.is_multiple_of(3).then(|| "rack".to_owned());
    let annotations = [
        ("scheduling.k8s.io/group-name", group),
        (BOUND_QUEUE_ANNOTATION, queue),
        ("leaderworkerset.sigs.k8s.io/exclusive-topology", exclusive),
    ];
    let annotations: BTreeMap<&str, String> =
        annotations.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    json!({
        "metadata": {
            "name": key.name, "namespace": key.namespace,
            "uid": format!("{}-{}", pod.name, pod.version),
            "creationTimestamp": time(pod.created), "labels": labels,
            "annotations": annotations,
            "deletionTimestamp": pod.is_deleted.then(|| time(100)),
            "deletionGracePeriodSeconds": pod.is_deleted.then_some(30),
            "ownerReferences": pod.controller.map(|uid| json!([controller(uid)])),
        },
        "spec": {
            "priority": pod.priority,
            "schedulerName": if pod.is_ours { "kube-batch" } else { "other" },
            "containers": [{
                "name": "c", "resources": {"requests": requests},
            }],
            "resourceClaims": claims,
            "nodeName": pod.node.map(node_name),
            "schedulingGates": pod.is_gated.then(|| json!([{"name": "gate"}])),
            "affinity": {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms},
            },
        },
        "status": {
            "phase": pod.phase, "nominatedNodeName": pod.nominated.map(node_name),
            "resourceClaimStatuses": made,
        },
    })
}

/// A pod with 50 selectors, 10 of which the next pod of its kind has too. 13 of them are above the bound.
fn with_selectors(name: u8, created: u8, node: Option<u8>) -> Value {
    let first = 40 * u32::from(name);
    let term = |n: u32| {
        json!({
            "topologyKey": "zone", "namespaceSelector": {},
            "labelSelector": {"matchLabels": {"l": n.to_string()}},
        })
    };
    let terms: Vec<Value> = (first..first + 50).map(term).collect();
    json!({
        "metadata": {
            "name": format!("c{name}"), "namespace": "selectors", "uid": format!("c{name}-{created}"),
            "creationTimestamp": time(created), "labels": {"l": name.to_string()},
        },
        "spec": {
            "schedulerName": "kube-batch", "nodeName": node.map(node_name),
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": terms,
            }},
        },
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" }},
    })
}

fn own_claim(pod: u8) -> String {
    format!("{}-gpu", pod_key(pod).name)
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            store: Store::new(["note"].into_iter().collect()),
            assumed: Assumed::default(),
            live: LiveSnapshot::default(),
            last: None,
            options: SnapshotOptions { default_queue: "q0".into(), ..SnapshotOptions::default() },
        };
        for name in 0..3 {
            world.run(Step::Node { name, cpu: 8, has_gpus: false });
        }
        world.run(first_queue());
        world
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Pod(pod) => drop(self.store.apply::<Pod>(&from(manifest(&pod))).expect("a pod")),
            Step::DeletePod(name) => drop(self.store.pods.delete(&pod_key(name))),
            Step::ManySelectors { name, created, node } => {
                self.store.apply::<Pod>(&from(with_selectors(name, created, node))).expect("a pod");
            }
            Step::DeleteManySelectors(name) => {
                self.store.pods.delete(&ObjectKey::new("selectors", format!("c{name}")));
            }
            Step::Group { name, created, min, queue, has_class, note, version, parent } => {
                let meta = json!({
                    "name": format!("g{name}"), "namespace": "ns",
                    "creationTimestamp": time(created), "annotations": {"note": note.to_string()},
                });
                let class = if has_class { "class" } else { "" };
                let spec = json!({
                    "minMember": min, "queue": format!("q{queue}"), "priorityClassName": class,
                });
                let object = from(json!({"metadata": meta, "spec": spec}));
                let prefixes: MetadataPrefixes = ["note"].into_iter().collect();
                let group = dialect::of(version).read_group(&object, &prefixes);
                let mut group = group.expect("a group");
                group.parent = parent.map(|parent| format!("c{parent}").into());
                self.store.groups.apply((group.key.clone(), version), group);
            }
            Step::DeleteGroup(name, version) => {
                let key = ObjectKey::new("ns", format!("g{name}"));
                self.store.groups.delete(&(key, version));
            }
            Step::Queue { name, created, limit, version, parent, selected } => {
                let meta = json!({"name": format!("q{name}"), "creationTimestamp": time(created)});
                let limit = limit.map(|cpu| json!({"cpu": cpu.to_string()}));
                let mut spec =
                    json!({"weight": 1, "capability": limit.unwrap_or_else(|| json!({}))});
                if let Some(parent) = parent {
                    spec["parent"] = json!(format!("q{parent}"));
                }
                if let Some(label) = selected {
                    let labels = json!({"l": label.to_string()});
                    spec["namespaceSelector"] = json!({"matchLabels": labels});
                }
                let meta = from(meta);
                self.store.apply_queue(version, &RawObject::new(&meta, &spec)).expect("a queue");
            }
            Step::DeleteQueue(name, version) => {
                self.store.queues.delete(&(format!("q{name}").into(), version));
            }
            Step::Bind(pod, node) => self.bind(pod, node, Vec::new()),
            Step::BindWithDevices(pod, node) => {
                let Some(facts) = self.store.pods.get(&pod_key(pod)).cloned() else { return };
                let names = facts.device_claims.iter().filter_map(|entry| entry.claim().cloned());
                let choice = |name| DeviceChoice {
                    claim: ObjectKey::new("ns", name),
                    allocation: Some(Allocation::default()),
                    new: None,
                    group: None,
                };
                let mut devices: Vec<DeviceChoice> = names.map(choice).collect();
                if !facts.template.extended.is_empty() {
                    devices.push(DeviceChoice {
                        claim: ExtendedClaim::key(&facts.key, &facts.uid),
                        allocation: Some(Allocation::default()),
                        new: Some(Arc::default()),
                        group: None,
                    });
                }
                self.bind(pod, node, devices);
            }
            Step::Deallocate(pod) => self
                .decide(pod, |pod| Decision::Deallocate { pod, claim: ObjectKey::new("ns", "d0") }),
            Step::Evict(pod) => self.decide(pod, |pod| Decision::Evict {
                cause: EvictionCause::Preempt(JobInQueue {
                    job: JobKey::annotated(pod.key.clone()),
                    queue: "q0".into(),
                    is_named: true,
                }),
                pod,
                node: node_name(0),
            }),
            Step::Nominate(pod, node) => {
                let device = |n| DeviceId {
                    driver: "d".into(),
                    pool: node_name(node),
                    device: format!("g{n}").into(),
                };
                let devices = (0..pod % 3).map(device).collect();
                let node = node_name(node);
                self.decide(pod, |pod| Decision::Nominate { pod, node, devices });
            }
            Step::Withdraw(pod) => self.decide(pod, |pod| Decision::Withdraw { pod }),
            Step::Reject(pod) => self.answer(pod, |assumed, uid| {
                assumed.id(uid).into_iter().for_each(|id| assumed.reject(uid, id));
            }),
            Step::EndBackOff(pod) => self.answer(pod, |assumed, uid| {
                assumed.id(uid).into_iter().for_each(|id| {
                    assumed.end_back_off(uid, id);
                });
            }),
            Step::Settle => self.assumed.settle(&self.store),
            Step::Readable(version, is_readable) => {
                self.store.set_readable(version, is_readable);
            }
            Step::Take { gives_back } => self.take(gives_back),
            other => self.change_world(other),
        }
    }

    /// Steps about what is neither a pod nor a job.
    fn change_world(&mut self, step: Step) {
        match step {
            Step::Node { name, cpu, has_gpus } => {
                let mut amounts = json!({"cpu": cpu.to_string(), "memory": "8Gi", "pods": "9"});
                if has_gpus {
                    amounts["example.com/gpu"] = json!("1");
                }
                let node = json!({
                    "metadata": {"name": node_name(name)},
                    "status": {"allocatable": amounts, "capacity": amounts},
                });
                self.store.apply::<Node>(&from(node)).expect("a node");
            }
            Step::DeleteNode(name) => drop(self.store.nodes.delete(&node_name(name))),
            Step::Class(value) => {
                let class = json!({"metadata": {"name": "class"}, "value": value});
                self.store.apply::<PriorityClass>(&from(class)).expect("a class");
            }
            Step::Namespace(label) => {
                let meta = json!({"name": "ns", "labels": {"l": label.to_string()}});
                let namespace: Namespace = from(json!({"metadata": meta}));
                self.store.apply(&namespace).expect("a namespace");
            }
            Step::Budget { name, owner, allowed, min } => {
                let owners: Vec<Value> = owner.map(controller).into_iter().collect();
                let budget = json!({
                    "metadata": {
                        "name": format!("b{name}"), "namespace": "ns", "ownerReferences": owners,
                    },
                    "spec": {"minAvailable": min, "selector": {"matchLabels": {"l": "0"}}},
                    "status": {
                        "disruptionsAllowed": allowed, "currentHealthy": 0, "desiredHealthy": 0,
                        "expectedPods": 0,
                    },
                });
                self.store.apply::<PodDisruptionBudget>(&from(budget)).expect("a budget");
            }
            Step::DeleteBudget(name) => {
                self.store.budgets.delete(&ObjectKey::new("ns", format!("b{name}")));
            }
            Step::BatchJob { name, group, n_failed, is_other } => {
                let owner = controller(name);
                let uid = if is_other { json!("other") } else { owner["uid"].clone() };
                let annotations =
                    group.map(|group| json!({"scheduling.k8s.io/group-name": format!("g{group}")}));
                let job = json!({
                    "metadata": {"name": owner["name"], "namespace": "ns", "uid": uid},
                    "spec": {"template": {"metadata": {"annotations": annotations}}},
                    "status": {"failed": n_failed},
                });
                self.store.apply::<BatchJob>(&from(job)).expect("a Job");
            }
            Step::DeleteBatchJob(name) => {
                let name = controller(name)["name"].as_str().expect("a name").to_owned();
                self.store.batch_jobs.delete(&ObjectKey::new("ns", name));
            }
            Step::Composite { name, parent, priority, queue } => {
                let queue = queue.map(|queue| format!("q{queue}"));
                let composite = json!({
                    "metadata": {
                        "name": format!("c{name}"), "namespace": "ns",
                        "labels": {"scheduling.sigs.dev/queue": queue.unwrap_or_default()},
                    },
                    "spec": {
                        "workloadRef": {"workloadName": "w", "templateName": "t"},
                        "schedulingPolicy": {"basic": {}}, "priority": priority,
                        "parentCompositePodGroupName": parent.map(|parent| format!("c{parent}")),
                    },
                });
                self.store
                    .apply::<CompositePodGroup>(&from(composite))
                    .expect("a composite PodGroup");
            }
            Step::DeleteComposite(name) => {
                self.store.composites.delete(&ObjectKey::new("ns", format!("c{name}")));
            }
            Step::Claim { is_bound } => {
                let claim = json!({
                    "metadata": {"name": "c", "namespace": "ns", "uid": "c"},
                    "spec": {"volumeName": is_bound.then_some("v")},
                });
                self.store.apply::<PersistentVolumeClaim>(&from(claim)).expect("a claim");
            }
            other => self.change_devices(other),
        }
    }

    fn change_devices(&mut self, step: Step) {
        match step {
            Step::DeviceClaim { of, count, is_allocated } => {
                let (name, owner, is_extended) = match of {
                    Ok(shared) => (format!("d{shared}"), None, false),
                    Err((pod, is_extended)) => {
                        let uid: Name = format!("{pod}-0").into();
                        let extended = ExtendedClaim::key(&pod_key(pod), &uid).name.to_string();
                        let name = if is_extended { extended } else { own_claim(pod) };
                        let owner = json!([{
                            "apiVersion": "v1", "kind": "Pod", "name": pod_key(pod).name,
                            "uid": uid, "controller": true,
                        }]);
                        (name, Some(owner), is_extended)
                    }
                };
                let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "g"});
                let allocation = json!({"devices": {"results": [result]}});
                let extended = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
                let claim = json!({
                    "metadata": {
                        "name": name, "namespace": "ns", "ownerReferences": owner,
                        "annotations": is_extended.then_some(extended),
                    },
                    "spec": {"devices": {"requests": [
                        {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}},
                    ]}},
                    "status": {"allocation": is_allocated.then_some(allocation)},
                });
                self.store.apply::<ResourceClaim>(&from(claim)).expect("a claim");
            }
            Step::DeleteDeviceClaim(of) => {
                let name = match of {
                    Ok(shared) => format!("d{shared}").into(),
                    Err((pod, false)) => own_claim(pod).into(),
                    Err((pod, true)) => {
                        ExtendedClaim::key(&pod_key(pod), &format!("{pod}-0").into()).name
                    }
                };
                self.store.resource_claims.delete(&ObjectKey::new("ns", name));
            }
            Step::DeviceClass { is_extended } => {
                let class = json!({
                    "metadata": {"name": "gpu"},
                    "spec": {"extendedResourceName": is_extended.then_some("x.io/gpu")},
                });
                self.store.apply::<DeviceClass>(&from(class)).expect("a class");
            }
            Step::DeleteDeviceClass => drop(self.store.device_classes.delete(&"gpu".into())),
            Step::Slice(n_devices) => {
                let devices: Vec<Value> =
                    (0..n_devices).map(|at| json!({"name": format!("g{at}")})).collect();
                let slice = json!({
                    "metadata": {"name": "s"},
                    "spec": {
                        "driver": "d", "nodeName": "n0", "devices": devices,
                        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                    },
                });
                self.store.apply::<ResourceSlice>(&from(slice)).expect("a slice");
            }
            other => unreachable!("{other:?} is not about the world"),
        }
    }

    fn bind(&mut self, pod: u8, node: u8, devices: Vec<DeviceChoice>) {
        let (node, queue) = (node_name(node), format!("q{}", pod % 3).into());
        self.decide(pod, |pod| Decision::Bind {
            minimum: 1,
            protected_until: None,
            queue,
            pod,
            node,
            claims: vec![],
            devices,
        });
    }

    fn decide(&mut self, pod: u8, decision: impl FnOnce(PodRef) -> Decision) {
        if let Some(facts) = self.store.pods.get(&pod_key(pod)) {
            let pod = PodRef { uid: facts.uid.clone(), key: facts.key.clone() };
            self.assumed.note(&decision(pod), Timestamp::UNIX_EPOCH);
        }
    }

    fn answer(&mut self, pod: u8, answer: impl FnOnce(&mut Assumed, &Name)) {
        if let Some(facts) = self.store.pods.get(&pod_key(pod)) {
            answer(&mut self.assumed, &facts.uid);
        }
    }

    fn taken_from_scratch(&self) -> Snapshot {
        take_snapshot(&self.store, &self.assumed, &self.options)
    }

    fn take(&mut self, gives_back: bool) {
        let mut snapshot = self.live.refresh(&mut self.store, &mut self.assumed, &self.options);
        let differences = snapshot.differences(&self.taken_from_scratch());
        assert!(differences.is_empty(), "{differences:?}");
        assert_eq!(snapshot.cluster.audit(), []);
        if let Some(last) = self.last.take() {
            assert_former_rows(&snapshot.cluster, &last);
        }
        // So the places of rejected tasks are kept.
        for rejected in &snapshot.rejected {
            snapshot.cluster.tasks.nominated[rejected.task] = rejected.kept;
        }
        if gives_back {
            self.last = Some(snapshot.cluster.clone());
            self.live.keep(snapshot.cluster);
        }
    }
}

/// Checks that nothing differs about the jobs that name a row of the last snapshot.
fn assert_former_rows(cluster: &Cluster, last: &Cluster) {
    let mut rows = Vec::new();
    for (job, FormerRow(former)) in cluster.jobs.former.iter() {
        let Some(former) = *former else { continue };
        rows.push(former);
        assert_eq!(about(cluster, job), about(last, former));
    }
    assert!(rows.is_sorted_by(|l, r| l < r), "{rows:?}");
}

/// All that a snapshot shows of a job and its tasks, apart from the numbers of rows.
fn about(cluster: &Cluster, job: JobIdx) -> String {
    let (jobs, tasks) = (&cluster.jobs, &cluster.tasks);
    let of_task = |task: TaskIdx| {
        let own = (&tasks.facts[task], tasks.priority[task], tasks.role[task], tasks.start[task]);
        let state = (tasks.ours[task], tasks.gated[task], tasks.placement[task]);
        (own, state, tasks.nominated[task], &tasks.nominated_devices[task])
    };
    let spec = (jobs.min_available[job], jobs.priority[job], jobs.priority_of_pods[job]);
    let switches = (jobs.leaves_whole[job], jobs.has_min_resources[job]);
    let objects = (&jobs.key[job], &jobs.group[job], jobs.created[job], jobs.queue[job]);
    let others = (&jobs.topology[job], &jobs.composites[job], &jobs.problem[job]);
    let counts = (jobs.counts[job], &jobs.role_counts[job], &jobs.warnings[job]);
    let counts = (counts, &jobs.batch[job]);
    let amounts = (jobs.held[job].to_vec(), jobs.waiting[job].to_vec());
    let tasks: Vec<_> = jobs.tasks[job].iter().map(of_task).collect();
    format!("{:?}", (objects, spec, switches, others, counts, amounts, tasks))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_that_follows_is_equal_to_one_from_scratch(
        steps in prop::collection::vec(step(), 0..150),
        n_with_selectors in prop_oneof![3 => Just(0), 1 => 11..14_u8],
    ) {
        let mut world = World::new();
        for name in 0..n_with_selectors {
            world.run(Step::ManySelectors { name, created: 1, node: None });
        }
        for step in steps {
            world.run(step);
        }
        world.take(true);
    }
}

const POD: PodStep = PodStep {
    name: 0,
    version: 0,
    created: 0,
    group: Some(0),
    controller: Some(0),
    is_ours: true,
    node: None,
    phase: "Pending",
    cpu: 1,
    label: 1,
    anti: Some((1, false)),
    nominated: None,
    is_gated: false,
    devices: None,
    bound_queue: None,
    priority: 0,
    is_deleted: false,
};

const fn group(name: u8) -> Step {
    Step::Group {
        name,
        created: 1,
        min: 1,
        queue: 0,
        has_class: false,
        note: 0,
        version: GroupVersion::V1Alpha2,
        parent: None,
    }
}

#[test]
fn only_jobs_of_an_api_that_cannot_be_read_wait_for_it() {
    let mut world = World::new();
    world.run(first_queue());
    world.run(group(0));
    // In a PodGroup that is known, in one that is not, and in none.
    for (name, group) in [(0, Some(0)), (1, Some(1)), (2, None)] {
        world.run(Step::Pod(PodStep { name, group, controller: None, ..POD.clone() }));
    }
    let problems = |world: &World| -> Vec<Option<Reason>> {
        let jobs = world.taken_from_scratch().cluster.jobs;
        let mut problems: Vec<_> = jobs
            .key
            .iter()
            .map(|(job, key)| (key.clone(), jobs.problem[job].as_ref().map(JobProblem::reason)))
            .collect();
        problems.sort();
        problems.into_iter().map(|(_, problem)| problem).collect()
    };
    let [unreadable, not_found] = [Reason::PodGroupUnreadable, Reason::PodGroupNotFound].map(Some);
    for (api, expected) in [
        (None, [None, not_found.clone(), None]),
        (Some(GroupVersion::V1Alpha2), [unreadable.clone(), unreadable.clone(), None]),
        // Its PodGroups would be named in the same annotation.
        (Some(GroupVersion::Volcano), [None, unreadable, None]),
        (Some(GroupVersion::Coscheduling), [None, not_found, None]),
    ] {
        if let Some(api) = api {
            world.run(Step::Readable(api, false));
        }
        assert_eq!(problems(&world), expected, "{api:?}");
        if let Some(api) = api {
            world.run(Step::Readable(api, true));
        }
    }
}

#[test]
fn what_happens_often_is_followed() {
    let pod = POD;
    let mut world = World::new();
    world.run(Step::Namespace(0));
    world.run(group(0));
    world.run(Step::Pod(pod.clone()));
    world.take(true);
    world.take(true);
    let formers = world.last.as_ref().expect("it was given back").jobs.former.values();
    assert!(formers.len() > 0 && formers.clone().all(|FormerRow(former)| former.is_some()));
    // Its selector matches its own pods only.
    let other =
        PodStep { name: 1, group: Some(1), label: 2, anti: Some((2, false)), ..pod.clone() };
    let often = [
        group(1),
        Step::Pod(other.clone()),
        Step::Bind(1, 0),
        Step::Pod(PodStep { phase: "Running", node: Some(0), ..other }),
        Step::Settle,
        Step::Pod(PodStep { name: 2, cpu: 2, created: 2, group: None, ..pod.clone() }),
        Step::DeletePod(1),
        Step::DeleteGroup(1, GroupVersion::V1Alpha2),
        Step::Node { name: 0, cpu: 7, has_gpus: false },
        first_queue(),
        Step::Budget { name: 0, owner: None, allowed: 1, min: 1 },
        Step::BatchJob { name: 0, group: Some(0), n_failed: 0, is_other: false },
        Step::BatchJob { name: 0, group: Some(0), n_failed: 1, is_other: false },
        Step::DeleteBatchJob(0),
        Step::Claim { is_bound: false },
        Step::Slice(2),
        Step::DeviceClaim { of: Ok(0), count: 1, is_allocated: false },
        Step::Pod(PodStep {
            name: 4,
            devices: Some(Devices::Shared(0)),
            group: None,
            ..pod.clone()
        }),
        Step::BindWithDevices(4, 0),
        Step::DeviceClaim { of: Ok(0), count: 1, is_allocated: true },
    ];
    for step in often {
        world.run(step.clone());
        world.take(true);
        assert_eq!(world.live.n_from_scratch(), 1, "{step:?}");
    }
    // A new selector that matches a pod that is there already.
    world.run(Step::Pod(PodStep { name: 3, label: 3, anti: Some((1, true)), ..pod }));
    world.take(true);
    assert_eq!(world.live.n_from_scratch(), 2);
}

#[test]
fn a_namespace_above_the_bound_on_selectors_costs_only_itself() {
    let mut world = World::new();
    world.run(group(0));
    world.run(Step::Pod(PodStep { anti: None, ..POD }));
    for name in 0..13 {
        world.run(Step::ManySelectors { name, created: 1, node: None });
    }
    world.take(true);
    let snapshot = world.taken_from_scratch();
    let templates = snapshot.cluster.classes.template.values();
    let refused: Vec<_> = templates.filter_map(|template| template.refused.clone()).collect();
    assert!(refused[0].contains("different selectors"), "{refused:?}");
    let of_others = [
        Step::Pod(PodStep { name: 1, anti: None, ..POD }),
        Step::Bind(1, 0),
        Step::Pod(PodStep { name: 1, anti: None, node: Some(0), phase: "Running", ..POD }),
        Step::DeletePod(1),
    ];
    for step in of_others {
        world.run(step.clone());
        world.take(true);
        assert_eq!(world.live.n_from_scratch(), 1, "{step:?}");
    }
    world.run(Step::DeleteManySelectors(0));
    world.take(true);
    assert_eq!(world.live.n_from_scratch(), 2, "there is room for another");
}
