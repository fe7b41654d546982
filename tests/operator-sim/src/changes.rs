//! What users and administrators change in the cluster.

use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::{
    devices::{device_claim, slice},
    pods::{GROUP_ANNOTATION, RESOURCE, members},
    script::{Action, Hostility, TENANTS},
    server::{
        CLAIMS, GROUPS, KUBERNETES_GROUPS, Key, Kind, NODES, PODS, QUEUES, RESOURCE_CLAIMS, SLICES,
        is_deleted,
    },
    world::{Chore, World},
};

/// When every pod was created.
const CREATED: &str = "2026-01-01T00:00:00Z";

/// Makes a change. `n_created` is a new number, for names.
pub(crate) fn apply(world: &mut World, action: Action, n_created: usize) {
    match action {
        Action::CreateGang { .. }
        | Action::CreatePod { .. }
        | Action::CreatePodWithClaim { .. }
        | Action::CreatePodsWithDevice { .. }
        | Action::CreateRequestingGang { .. }
        | Action::CreateSharingGang { .. }
        | Action::RefillGang(_) => create(world, action, n_created),
        Action::AddNode { .. }
        | Action::DeleteNode(_)
        | Action::RecreateNode(_)
        | Action::DeleteSlice(_)
        | Action::PublishSlice(_)
        | Action::Cordon(_)
        | Action::Uncordon(_)
        | Action::ResizeNode(..)
        | Action::ForeignPod(..) => change_nodes(world, action, n_created),
        Action::Hostile(hostility) => hostile(world, hostility, n_created),
        _ => change_jobs(world, action),
    }
}

/// The key of an object in the namespace of a tenant, by any number.
fn key(n: usize, name: String) -> Key {
    (TENANTS[n % TENANTS.len()].to_owned(), name)
}

/// Creates jobs, or pods of one.
fn create(world: &mut World, action: Action, n_created: usize) {
    match action {
        Action::CreateGang { queue, n, min, cpu, priority } => {
            let name = format!("gang-{n_created}");
            let queue = ["default", "one", "two"][queue];
            let mut spec = json!({"minMember": min, "queue": queue});
            if let Some(class) = [None, Some("low"), Some("high")][priority] {
                spec["priorityClassName"] = json!(class);
            }
            let annotations = json!({"n": n.to_string(), "cpu": cpu.to_string()});
            let group = json!({"metadata": {"annotations": annotations}, "spec": spec});
            create_gang(world, GROUPS, &key(n_created, name), group);
        }
        Action::CreateRequestingGang { n, cpu } => {
            let annotations =
                json!({"n": n.to_string(), "cpu": cpu.to_string(), "device": RESOURCE});
            let group = json!({
                "metadata": {"annotations": annotations},
                "spec": {"minMember": n, "queue": "default"},
            });
            create_gang(world, GROUPS, &key(n_created, format!("gang-{n_created}")), group);
        }
        Action::CreateSharingGang { n, cpu } => {
            let name = format!("sharing-{n_created}");
            world.server.put(RESOURCE_CLAIMS, &key(n_created, name.clone()), device_claim());
            let annotations = json!({"n": n.to_string(), "cpu": cpu.to_string()});
            let group = json!({"metadata": {"annotations": annotations}, "spec": {
                "schedulingPolicy": {"gang": {"minCount": n}},
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            }});
            create_gang(world, KUBERNETES_GROUPS, &key(n_created, name), group);
        }
        Action::CreatePod { cpu } => {
            world.server.put(PODS, &key(n_created, format!("pod-{n_created}")), pod(cpu));
        }
        Action::CreatePodWithClaim { cpu } => {
            let name = format!("claim-{n_created}");
            world.server.put(CLAIMS, &key(n_created, name.clone()), claim());
            let mut pod = pod(cpu);
            pod["spec"]["volumes"] =
                json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);
            world.server.put(PODS, &key(n_created, format!("pod-{n_created}")), pod);
        }
        Action::CreatePodsWithDevice { cpu, n } => {
            let name = format!("device-{n_created}");
            world.server.put(RESOURCE_CLAIMS, &key(n_created, name.clone()), device_claim());
            for n in 0..n {
                let mut pod = pod(cpu);
                pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": name}]);
                world.server.put(PODS, &key(n_created, format!("pod-{n_created}-{n}")), pod);
            }
        }
        Action::RefillGang(n) => {
            if let Some((kind, group)) = nth_group(world, n) {
                refill(world, kind, &group, &format!("again-{n_created}-"));
            }
        }
        other => unreachable!("{other:?} creates nothing"),
    }
}

/// Creates a group and its pods.
fn create_gang(world: &mut World, kind: Kind, key: &Key, group: Value) {
    // The server does not take what it does not serve.
    if world.server.is_absent(kind) {
        return;
    }
    world.server.put(kind, key, group);
    refill(world, kind, key, "");
}

fn claim() -> Value {
    json!({
        "metadata": {"annotations": {}},
        "spec": {
            "storageClassName": "slow", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    })
}

/// Changes or deletes jobs, pods or queues.
fn change_jobs(world: &mut World, action: Action) {
    match action {
        Action::DeletePod(n) => {
            if let Some(key) = nth(world, PODS, n) {
                delete_pod(world, &key);
            }
        }
        Action::RecreatePod(n) => {
            if let Some(key) = nth(world, PODS, n) {
                recreate_pod(world, &key);
            }
        }
        Action::RecreateSent(way) => world.recreates = Some(way),
        Action::DeleteGang(n) => {
            if let Some((kind, key)) = nth_group(world, n) {
                delete_gang(world, kind, &key);
            }
        }
        Action::DeleteDeviceClaim(n) => {
            if let Some(key) = nth(world, RESOURCE_CLAIMS, n) {
                world.server.delete_object(RESOURCE_CLAIMS, &key);
                world.review_later(&key);
            }
        }
        Action::ChangeMinimum(n, min) => {
            if let Some(key) = nth(world, GROUPS, n) {
                world.server.change_object(GROUPS, &key, |group| {
                    group["spec"]["minMember"] = json!(min);
                });
            }
        }
        Action::ChangeWeight(n, weight) => {
            if let Some(key) = nth(world, QUEUES, n) {
                world.server.change_object(QUEUES, &key, |queue| {
                    queue["spec"]["weight"] = json!(weight);
                });
            }
        }
        Action::FinishPod(n) => {
            let runs = |pod: &Value| pod["status"]["phase"] == "Running";
            let running = nth(world, PODS, n)
                .filter(|key| world.server.get(PODS, key).is_some_and(|pod| runs(pod)));
            if let Some(key) = running {
                world.server.change_object(PODS, &key, |pod| {
                    pod["status"]["phase"] = json!("Succeeded");
                });
            }
        }
        other => unreachable!("{other:?} changes no job"),
    }
}

fn change_nodes(world: &mut World, action: Action, n_created: usize) {
    match action {
        Action::AddNode { cpu, has_plugin } => {
            // Not the name of a node that exists: its pods would be on a smaller one.
            let key = (String::new(), format!("added-{n_created}"));
            let mut node = node(cpu);
            if has_plugin {
                node["status"]["allocatable"][RESOURCE] = json!("2");
                node["status"]["capacity"][RESOURCE] = json!("2");
            } else {
                world.server.put(SLICES, &key, slice(&key.1));
            }
            world.server.put(NODES, &key, node);
        }
        Action::DeleteSlice(n) => {
            if let Some(key) = nth(world, SLICES, n) {
                world.server.remove(SLICES, &key);
            }
        }
        Action::PublishSlice(n) => {
            let has_plugin = |node: &Value| node["status"]["allocatable"][RESOURCE].is_string();
            let key = nth(world, NODES, n)
                .filter(|key| world.server.get(NODES, key).is_some_and(|node| !has_plugin(node)));
            if let Some(key) = key {
                world.server.put(SLICES, &key, slice(&key.1));
            }
        }
        Action::DeleteNode(n) => {
            let n_nodes = world.server.all(NODES).count();
            if let Some(key) = nth(world, NODES, n).filter(|_| n_nodes > 1) {
                world.disturb(&key.1);
                world.server.remove(NODES, &key);
                world.server.remove(SLICES, &key);
                world.later(2_000, 20_000, Chore::Collect(key.1));
            }
        }
        Action::RecreateNode(n) => {
            if let Some(key) = nth(world, NODES, n) {
                recreate_node(world, &key);
            }
        }
        Action::Cordon(n) | Action::Uncordon(n) => {
            let is_cordon = matches!(action, Action::Cordon(_));
            if let Some(key) = nth(world, NODES, n) {
                world.server.change_object(NODES, &key, |node| {
                    node["spec"]["unschedulable"] = json!(is_cordon);
                });
            }
        }
        Action::ResizeNode(n, cpu) => {
            if let Some(key) = nth(world, NODES, n) {
                world.disturb(&key.1);
                world.server.change_object(NODES, &key, |known| {
                    known["status"]["allocatable"]["cpu"] = json!(cpu.to_string());
                });
            }
        }
        Action::ForeignPod(n, cpu) => {
            if let Some(node) = nth(world, NODES, n) {
                world.disturb(&node.1);
                let mut foreign = pod(cpu);
                foreign["spec"]["schedulerName"] = json!("default-scheduler");
                foreign["spec"]["nodeName"] = json!(node.1);
                foreign["status"]["phase"] = json!("Running");
                world.server.put(PODS, &key(n_created, format!("foreign-{n_created}")), foreign);
            }
        }
        other => unreachable!("{other:?} changes no node"),
    }
}

/// Lets a node be ready and not ready in turns.
pub(crate) fn flap(world: &mut World, n: usize, lasts: Duration) {
    if let Some(node) = nth(world, NODES, n) {
        world.later(0, 1_000, Chore::Flap { node, until: Instant::now() + lasts });
    }
}

fn hostile(world: &mut World, hostility: Hostility, n: usize) {
    let key = key(n, format!("hostile-{n}"));
    let mut pod = pod(1);
    match hostility {
        Hostility::ManyResources => {
            let requests = &mut pod["spec"]["containers"][0]["resources"]["requests"];
            for n in 0..50 {
                requests[format!("hostile.example/r{n}")] = json!("1");
            }
        }
        Hostility::BadAnnotation => {
            pod["metadata"]["annotations"][GROUP_ANNOTATION] = json!("Not A Name");
        }
        Hostility::ForeignNomination(n) => {
            let Some(node) = nth(world, NODES, n) else { return };
            pod["status"]["nominatedNodeName"] = json!(node.1);
            pod["metadata"]["managedFields"] = json!([{
                "manager": "other", "operation": "Update", "subresource": "status",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}},
            }]);
        }
        Hostility::HugeMinimum if world.server.is_absent(GROUPS) => return,
        Hostility::HugeMinimum => {
            let group = json!({"metadata": {}, "spec": {"minMember": i32::MAX, "queue": "one"}});
            world.server.put(GROUPS, &key, group);
            pod["metadata"]["annotations"][GROUP_ANNOTATION] = json!(key.1);
        }
    }
    world.server.put(PODS, &key, pod);
}

/// The key of an object of a kind, by any number.
fn nth(world: &World, kind: Kind, n: usize) -> Option<Key> {
    let n_objects = world.server.all(kind).count();
    let n = n.checked_rem(n_objects)?;
    world.server.all(kind).nth(n).map(|(key, _)| key.clone())
}

/// A group of any kind, by any number.
fn nth_group(world: &World, n: usize) -> Option<(Kind, Key)> {
    let of_kind = |kind| world.server.all(kind).map(move |(key, _)| (kind, key.clone()));
    let groups: Vec<(Kind, Key)> = of_kind(GROUPS).chain(of_kind(KUBERNETES_GROUPS)).collect();
    groups.get(n.checked_rem(groups.len())?).cloned()
}

/// Deletes a group and its pods. Kubernetes keeps a PodGroup of its own until its pods are gone.
fn delete_gang(world: &mut World, kind: Kind, key: &Key) {
    for pod in members(&world.server, kind, key) {
        delete_pod(world, &pod);
    }
    if kind == KUBERNETES_GROUPS {
        world.server.change_object(kind, key, |group| {
            group["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        });
        world.later(1_000, 5_000, Chore::RemoveGroup(key.clone()));
    } else {
        world.server.remove(kind, key);
    }
}

fn delete_pod(world: &mut World, key: &Key) {
    let Some(pod) = world.server.get(PODS, key) else { return };
    let uid = pod["metadata"]["uid"].clone();
    world.server.delete_object(PODS, key);
    world.stops(key, &uid);
}

/// Deletes a pod of this scheduler by force, and makes it again.
pub(crate) fn recreate_pod(world: &mut World, key: &Key) {
    let is_ours = |pod: &Value| pod["spec"]["schedulerName"] == "kube-batch";
    if !world.server.get(PODS, key).is_some_and(|pod| is_ours(pod)) {
        return;
    }
    let mut pod = world.server.remove(PODS, key).expect("it is there");
    world.log(&format!("{}/{} is made again", key.0, key.1));
    let group = pod["metadata"]["annotations"][GROUP_ANNOTATION].take();
    pod["metadata"] = json!({"annotations": {}, "creationTimestamp": CREATED});
    if group.is_string() {
        pod["metadata"]["annotations"][GROUP_ANNOTATION] = group;
    }
    pod["spec"].as_object_mut().expect("a spec").remove("nodeName");
    pod["status"] = json!({"phase": "Pending"});
    world.server.put(PODS, key, pod);
}

/// Deletes a node and makes it again, as large as before.
fn recreate_node(world: &mut World, key: &Key) {
    let Some(known) = world.server.remove(NODES, key) else { return };
    world.disturb(&key.1);
    let mut node = node(0);
    for field in ["allocatable", "capacity"] {
        node["status"][field] = known["status"][field].clone();
    }
    world.server.put(NODES, key, node);
    if world.server.remove(SLICES, key).is_some() {
        world.later(100, 5_000, Chore::Publish(key.clone()));
    }
}

/// Creates the pods that a gang lacks. `infix` is a part of their names.
fn refill(world: &mut World, kind: Kind, group: &Key, infix: &str) {
    let Some(object) = world.server.get(kind, group).cloned() else { return };
    let number = |name: &str| -> u32 {
        let text = object["metadata"]["annotations"][name].as_str();
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    if is_deleted(&object) {
        return;
    }
    let n_known = members(&world.server, kind, group).len();
    for n in n_known..number("n") as usize {
        let key = (group.0.clone(), format!("{}-{infix}{n}", group.1));
        world.server.put(PODS, &key, member_of(kind, &object, number("cpu")));
    }
}

/// A pod of a group.
fn member_of(kind: Kind, group: &Value, cpu: u32) -> Value {
    let name = &group["metadata"]["name"];
    let mut pod = pod(cpu);
    if kind == KUBERNETES_GROUPS {
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": name});
        pod["spec"]["resourceClaims"] = group["spec"]["resourceClaims"].clone();
    } else {
        pod["metadata"]["annotations"][GROUP_ANNOTATION] = name.clone();
    }
    if let Some(resource) = group["metadata"]["annotations"]["device"].as_str() {
        let resources = &mut pod["spec"]["containers"][0]["resources"];
        resources["requests"][resource] = json!("1");
        resources["limits"] = json!({resource: "1"});
    }
    pod
}

pub(crate) fn node(cpu: u32) -> Value {
    let resources = json!({"cpu": cpu.to_string(), "memory": "64Gi", "pods": "20"});
    json!({
        "metadata": {}, "spec": {},
        "status": {
            "allocatable": resources, "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn pod(cpu: u32) -> Value {
    let mut pod = json!({
        "metadata": {"annotations": {}, "creationTimestamp": CREATED},
        "spec": {
            "schedulerName": "kube-batch",
            "containers": [{"name": "c", "resources": {"requests": {}}}],
        },
        "status": {"phase": "Pending"},
    });
    if cpu > 0 {
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu.to_string());
    }
    pod
}
