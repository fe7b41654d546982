//! Random small clusters in which every filter and score applies.

use k8s_openapi::api::core::v1::Pod;
use kube_batch_model::{
    cluster::Cluster,
    column::{NodeIdx, Ordinal, TaskIdx},
    status::{Placement, TaskStatus},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::World;

pub(crate) const N_NODES: usize = 6;
const N_KINDS: usize = 17;

/// A pod: its kind, labels and namespace, and the node it runs on.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    kind: usize,
    app: usize,
    namespace: usize,
    node: Option<usize>,
}

/// One move: which task, where to, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    task: usize,
    node: usize,
    waits: bool,
}

/// Pods of a few kinds, so that their rules concern one another.
pub(crate) fn members() -> impl Strategy<Value = Vec<Member>> {
    prop::collection::vec(0..N_KINDS, 1..4).prop_flat_map(|kinds| {
        let kind = prop::sample::select(kinds);
        let member = (kind, 0..3_usize, 0..2_usize, prop::option::of(0..N_NODES));
        let member =
            member.prop_map(|(kind, app, namespace, node)| Member { kind, app, namespace, node });
        prop::collection::vec(member, 1..16)
    })
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..16_usize, 0..N_NODES, any::<bool>());
    prop::collection::vec(step.prop_map(|(task, node, waits)| Step { task, node, waits }), 1..12)
}

impl Step {
    /// The task and its new placement, if the step is possible.
    pub(crate) fn target(self, cluster: &Cluster) -> Option<(TaskIdx, Placement)> {
        let task = TaskIdx::new(self.task);
        let from = *cluster.tasks.placement.get(task)?;
        let node = Some(NodeIdx::new(self.node));
        match from.status {
            TaskStatus::Pending if self.waits => {
                Some((task, Placement { status: TaskStatus::Pipelined, node }))
            }
            TaskStatus::Pending => Some((task, Placement { status: TaskStatus::Allocated, node })),
            TaskStatus::Allocated if self.waits => {
                Some((task, Placement { status: TaskStatus::Binding, node: from.node }))
            }
            TaskStatus::Running => {
                Some((task, Placement { status: TaskStatus::Releasing, node: from.node }))
            }
            _ => None,
        }
    }
}

/// The snapshot of a random cluster. Unbound claims are optional: which volume such a claim gets
/// depends on the order of placements.
pub(crate) fn snapshot(members: &[Member], with_waiting_claims: bool) -> Cluster {
    let pods = members.iter().enumerate();
    let pods: Vec<Pod> = pods.map(|(at, member)| pod(at, member, with_waiting_claims)).collect();
    world().snapshot(&pods)
}

fn world() -> World {
    let node = |at: usize| {
        let mut labels = json!({"kubernetes.io/hostname": format!("n{at}")});
        if at != 5 {
            labels["zone"] = json!(format!("z{}", at % 3));
        }
        if at != 4 {
            labels["rack"] = json!(format!("r{}", at % 2));
        }
        let taints = match at {
            2 => json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]),
            3 => json!([{"key": "k", "value": "v", "effect": "PreferNoSchedule"}]),
            _ => json!([]),
        };
        let mut allocatable = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
        if at < 4 {
            allocatable["example.com/gpu"] = json!((4 * at).to_string());
        }
        json!({
            "metadata": {"name": format!("n{at}"), "labels": labels},
            "spec": {"taints": taints},
            "status": {
                "allocatable": allocatable,
                "images": [{"names": [format!("i{}", at % 2)], "sizeBytes": 500_000_000 + at}],
            },
        })
    };
    let volume = |name: String, class: &str, claim: Value, zone: usize| {
        json!({
            "metadata": {"name": name, "labels": {}},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": class, "claimRef": claim,
                "csi": {"driver": "x.csi", "volumeHandle": name},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "zone", "operator": "In", "values": [format!("z{zone}")]}
                ]}]}},
            },
            "status": {"phase": "Available"},
        })
    };
    let mut volumes: Vec<Value> =
        (0..3).map(|at| volume(format!("free{at}"), "wait", Value::Null, at)).collect();
    let mut claims = Vec::new();
    for (namespace, at) in (0..2).flat_map(|namespace| (0..3).map(move |at| (namespace, at))) {
        let namespace = format!("ns{namespace}");
        let bound = format!("{namespace}-bound{at}");
        volumes.push(volume(bound.clone(), "", json!({"namespace": namespace, "name": bound}), at));
        let mode = if at == 0 { "ReadWriteOncePod" } else { "ReadWriteOnce" };
        let request = json!({"requests": {"storage": "1Gi"}});
        claims.push(json!({
            "metadata": {
                "namespace": namespace, "name": format!("bound{at}"),
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {"accessModes": [mode], "volumeName": bound, "resources": request},
        }));
        claims.push(json!({
            "metadata": {"namespace": namespace, "name": format!("waits{at}")},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "wait", "resources": request,
            },
        }));
    }
    let limits = |at: usize| {
        json!({
            "metadata": {"name": format!("n{at}")},
            "spec": {"drivers": [
                {"name": "x.csi", "nodeID": "", "allocatable": {"count": 1 + at % 2}}
            ]},
        })
    };
    let world = json!({
        "nodes": (0..N_NODES).map(node).collect::<Vec<_>>(),
        "namespaces": [{"metadata": {"name": "ns1", "labels": {"team": "a"}}}],
        "storageClasses": [{
            "metadata": {"name": "wait"}, "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }],
        "persistentVolumes": volumes,
        "persistentVolumeClaims": claims,
        "csiNodes": (0..N_NODES).map(limits).collect::<Vec<_>>(),
    });
    serde_json::from_value(world).expect("the manifests can be read")
}

fn pod(at: usize, member: &Member, with_waiting_claims: bool) -> Pod {
    let mut spec = spec(member, with_waiting_claims);
    spec["containers"] = json!([{
        "name": "c", "image": format!("i{}", member.kind % 3),
        "resources": {"requests": {
            "cpu": format!("{}m", 100 * (member.app + 1)),
            "example.com/gpu": member.app.to_string(),
        }},
        "ports": spec["ports"].take(),
    }]);
    let phase = if let Some(node) = member.node {
        spec["nodeName"] = json!(format!("n{node}"));
        "Running"
    } else {
        "Pending"
    };
    let pod = json!({
        "metadata": {
            "name": format!("p{at}"), "namespace": format!("ns{}", member.namespace),
            "labels": {"app": format!("a{}", member.app)},
        },
        "spec": spec,
        "status": {"phase": phase},
    });
    serde_json::from_value(pod).expect("the pod can be read")
}

fn spec(member: &Member, with_waiting_claims: bool) -> Value {
    let app = |at: usize| json!({"matchLabels": {"app": format!("a{at}")}});
    let any_app = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
    let own = app(member.app);
    let term = |key: &str, selector: &Value| json!({"topologyKey": key, "labelSelector": selector});
    let anti = |terms: Value| {
        json!({"affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": terms
        }}})
    };
    let affinity = |terms: Value| {
        json!({"affinity": {"podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": terms
        }}})
    };
    let spread = |key: &str, when: &str, selector: &Value| {
        json!({
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector,
        })
    };
    let claim = |kind: &str| {
        let name = format!("{kind}{}", member.app);
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]})
    };
    let disk = |read_only: bool| {
        json!({"volumes": [
            {"name": "v", "gcePersistentDisk": {"pdName": "d", "readOnly": read_only}}
        ]})
    };
    match member.kind {
        0 => json!({}),
        1 => json!({"ports": [{"containerPort": 1, "hostPort": 80}]}),
        2 => json!({"ports": [{"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1"}]}),
        3 => disk(false),
        4 => disk(true),
        5 => affinity(json!([term("zone", &app(0))])),
        6 => affinity(json!([term("zone", &own), term("rack", &any_app)])),
        7 => anti(json!([term("kubernetes.io/hostname", &own)])),
        8 => {
            let mut wide = term("rack", &app(1));
            wide["namespaceSelector"] = json!({"matchLabels": {"team": "a"}});
            anti(json!([wide]))
        }
        9 => json!({"affinity": {
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 7, "podAffinityTerm": term("zone", &own)}
            ]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 5, "podAffinityTerm": term("rack", &any_app)}
            ]},
        }}),
        10 => json!({"topologySpreadConstraints": [spread("zone", "DoNotSchedule", &own)]}),
        11 => {
            let mut rack = spread("rack", "DoNotSchedule", &any_app);
            rack["minDomains"] = json!(3);
            rack["nodeTaintsPolicy"] = json!("Honor");
            let zone = spread("zone", "DoNotSchedule", &own);
            let soft = spread("zone", "ScheduleAnyway", &own);
            json!({
                "nodeSelector": {"rack": "r0"},
                "topologySpreadConstraints": [rack, zone, soft],
            })
        }
        12 => json!({"topologySpreadConstraints": [
            spread("kubernetes.io/hostname", "ScheduleAnyway", &own),
            spread("zone", "ScheduleAnyway", &any_app),
        ]}),
        13 | 14 => claim("bound"),
        15 if with_waiting_claims => claim("waits"),
        _ => json!({"tolerations": [{"operator": "Exists"}]}),
    }
}
