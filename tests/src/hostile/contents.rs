//! What makes objects hostile. Most pods are at their bounds (`api/src/read/limits.rs`), or above.

use serde_json::{Value, json};

use super::{Kind, NAMESPACE};

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// All kinds.
pub fn kinds() -> Vec<Kind> {
    let mut all = vec![Kind::NONE];
    all.extend(requests());
    all.extend(pod_terms());
    all.extend(own_rules());
    all.extend(groups());
    all.extend(unlike_gangs());
    all.extend(device_claims());
    all.extend(volume_claims());
    all.push(Kind {
        name: "composite",
        about: "a composite PodGroup of 5 000 PodGroups of one pod, which needs them all",
        n_pods: 5_000,
        pods_per_group: 1,
        is_composite: true,
        ..Kind::NONE
    });
    all
}

fn volume_claims() -> Vec<Kind> {
    // The most unbound claims that are read.
    const MAX_UNBOUND: usize = 100;
    vec![
        Kind {
            name: "unbound-claims-500",
            about: "20 pods, each with 500 unbound claims",
            n_pods: 20,
            volume_claims: Some(|_, _| (json!({}), json!({}))),
            ..Kind::NONE
        },
        Kind {
            name: "unbound-claims",
            about: "200 pods, each with 100 unbound claims, of which one finds no volume",
            volume_claims: Some(|_, _| (json!({}), json!({}))),
            n_volume_claims: MAX_UNBOUND,
            ..Kind::NONE
        },
        Kind {
            name: "unbound-selectors",
            about: "the same, and each claim has another selector",
            n_volume_claims: MAX_UNBOUND,
            volume_claims: Some(|pod, claim| {
                let none = format!("{pod}-{claim}");
                let other = json!({"key": "number", "operator": "NotIn", "values": [none]});
                (json!({"selector": {"matchExpressions": [other]}}), json!({}))
            }),
            ..Kind::NONE
        },
        Kind {
            name: "selected-nodes",
            about: "200 pods, each with 500 claims for which a user has selected a node",
            volume_claims: Some(|_, _| {
                (json!({}), json!({"volume.kubernetes.io/selected-node": "node-00999"}))
            }),
            ..Kind::NONE
        },
    ]
}

fn device_claims() -> Vec<Kind> {
    vec![
        Kind {
            name: "device-search",
            about: "200 pods, each with another claim whose search for devices is exponential",
            claim: Some(endless_search),
            ..Kind::NONE
        },
        Kind {
            name: "device-selectors",
            about: "200 pods, each with a claim of 32 other selectors that take long",
            claim: Some(costly_selectors),
            ..Kind::NONE
        },
        Kind {
            name: "device-shares",
            about: "200 pods, each with a claim of 32 shares of other sizes",
            claim: Some(shares),
            has_shares: true,
            ..Kind::NONE
        },
        Kind {
            name: "device-requests",
            about: "200 pods, each with 15 claims of 32 requests",
            claim: Some(equal_requests),
            n_claims: 15,
            ..Kind::NONE
        },
        Kind {
            name: "device-requests-8000",
            about: "20 pods, each with 250 claims of 32 requests",
            n_pods: 20,
            claim: Some(equal_requests),
            n_claims: 250,
            ..Kind::NONE
        },
        Kind {
            name: "device-slices",
            about: "a driver that publishes 10 000 slices with eight devices each",
            n_slices: 10_000,
            ..Kind::NONE
        },
    ]
}

/// Ten of sixteen devices can be chosen in 8 008 ways; after each, one is lacking.
fn endless_search(n: usize) -> Value {
    let lacking = format!("device.attributes[\"gpu.example.com\"].at < -{}", n + 1);
    json!({"devices": {"requests": [
        {"name": "many", "exactly": {"deviceClassName": "gpu", "count": 10}},
        {"name": "lacking", "exactly": {
            "deviceClassName": "gpu", "selectors": [{"cel": {"expression": lacking}}],
        }},
    ]}})
}

fn costly_selectors(n: usize) -> Value {
    let selector = |at: usize| {
        let own = n * 32 + at;
        let expression = format!(
            "lists.range(60).all(x, lists.range(60).all(y, \
             x + y + device.attributes[\"gpu.example.com\"].at > -{own}))"
        );
        json!({"cel": {"expression": expression}})
    };
    let selectors: Vec<Value> = (0..32).map(selector).collect();
    json!({"devices": {"requests": [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 17, "selectors": selectors}},
    ]}})
}

fn equal_requests(_: usize) -> Value {
    let request =
        |at: usize| json!({"name": format!("gpu-{at}"), "exactly": {"deviceClassName": "gpu"}});
    let requests: Vec<Value> = (0..32).map(request).collect();
    json!({"devices": {"requests": requests}})
}

/// The last share is larger than any device.
fn shares(n: usize) -> Value {
    let request = |at: usize| {
        let memory = if at == 31 { "81Gi".to_owned() } else { format!("{}Mi", 1 + n * 32 + at) };
        json!({"name": format!("share-{at}"), "exactly": {
            "deviceClassName": "gpu", "capacity": {"requests": {"memory": memory}},
        }})
    };
    let requests: Vec<Value> = (0..32).map(request).collect();
    json!({"devices": {"requests": requests}})
}

fn requests() -> Vec<Kind> {
    vec![
        Kind {
            name: "resource-names",
            about: "one pod that requests 15 000 different resources",
            n_pods: 1,
            pod: |pod, n| request(pod, n, 15_000),
            ..Kind::NONE
        },
        Kind {
            name: "resource-names-200",
            about: "200 pods, each requests 2 000 other resources",
            pod: |pod, n| request(pod, n, 2_000),
            ..Kind::NONE
        },
        Kind {
            name: "huge-requests",
            about: "200 pods of 2 048 containers that request 1Pi each",
            pod: |pod, _| huge(pod, 2_048),
            ..Kind::NONE
        },
        Kind {
            name: "long-texts",
            about: "150 pods, each with the name of a claim of a megabyte",
            n_pods: 150,
            pod: |pod, n| {
                let name = format!("{n}-{}", "x".repeat(1 << 20));
                pod["spec"]["volumes"] =
                    json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
            },
            ..Kind::NONE
        },
        Kind {
            name: "containers",
            about: "200 pods of 250 containers, every image different",
            pod: containers,
            ..Kind::NONE
        },
    ]
}

fn pod_terms() -> Vec<Kind> {
    vec![
        Kind {
            name: "anti-1",
            about: "one running pod, 50 required anti-affinity terms that match every pod",
            n_pods: 1,
            runs: true,
            pod: |pod, n| anti(pod, n, HOST, matches_all),
            ..Kind::NONE
        },
        Kind {
            name: "anti-running",
            about: "200 running pods, each with 50 other required anti-affinity terms that match every pod",
            runs: true,
            pod: |pod, n| anti(pod, n, HOST, matches_all),
            ..Kind::NONE
        },
        Kind {
            name: "anti-equal",
            about: "the same, but all pods have equal terms",
            runs: true,
            pod: |pod, _| anti(pod, 0, HOST, matches_all),
            ..Kind::NONE
        },
        Kind {
            name: "anti-split",
            about: "200 running pods, each with 50 required anti-affinity terms that each match other pods",
            runs: true,
            pod: |pod, n| anti(pod, n, HOST, matches_some),
            ..Kind::NONE
        },
        Kind {
            name: "anti-pending",
            about: "200 waiting pods, each with 50 other required anti-affinity terms that match every pod",
            pod: |pod, n| anti(pod, n, ZONE, matches_all),
            ..Kind::NONE
        },
        Kind {
            name: "anti-pending-split",
            about: "200 waiting pods, each with 50 required anti-affinity terms that each match other pods",
            pod: |pod, n| anti(pod, n, ZONE, matches_most),
            ..Kind::NONE
        },
        Kind {
            name: "affinity-pending",
            about: "200 waiting pods, each with 50 other required affinity terms that match every pod",
            pod: |pod, n| {
                affinity(pod, "podAffinity", (0..50).map(|k| term(matches_all(n, k), ZONE)));
            },
            ..Kind::NONE
        },
        Kind {
            name: "preferred-running",
            about: "200 running pods, each with 50 other preferred anti-affinity terms that match every pod",
            runs: true,
            pod: |pod, n| preferred(pod, n, HOST),
            ..Kind::NONE
        },
        Kind {
            name: "preferred-pending",
            about: "200 waiting pods, each with 50 other preferred anti-affinity terms that match every pod",
            pod: |pod, n| preferred(pod, n, ZONE),
            ..Kind::NONE
        },
        Kind {
            name: "anti-own",
            about: "200 waiting pods, each with 50 other required anti-affinity terms about the own namespace",
            pod: |pod, n| anti_own(pod, n, ZONE),
            ..Kind::NONE
        },
        Kind {
            name: "anti-own-running",
            about: "the same, but the pods run",
            runs: true,
            pod: |pod, n| anti_own(pod, n, HOST),
            ..Kind::NONE
        },
        Kind {
            name: "selector-values",
            about: "200 waiting pods, each with one term of 1 000 values",
            pod: |pod, n| {
                affinity(
                    pod,
                    "podAntiAffinity",
                    [term(values("index", "NotIn", n, 999), ZONE)].into_iter(),
                );
            },
            ..Kind::NONE
        },
    ]
}

fn own_rules() -> Vec<Kind> {
    vec![
        Kind {
            name: "spread",
            about: "200 waiting pods, each with 25 other topology spread constraints",
            pod: spread_constraints,
            ..Kind::NONE
        },
        Kind {
            name: "tolerations",
            about: "200 waiting pods, each with 250 other tolerations",
            pod: tolerations,
            ..Kind::NONE
        },
        Kind {
            name: "node-affinity",
            about: "200 waiting pods, each with 100 other terms of node affinity",
            pod: node_affinity_terms,
            ..Kind::NONE
        },
        Kind {
            name: "ports",
            about: "200 waiting pods, each with 250 host ports",
            pod: host_ports,
            ..Kind::NONE
        },
        Kind {
            name: "volumes",
            about: "200 waiting pods, each with 500 other claims that do not exist",
            pod: claims,
            ..Kind::NONE
        },
        Kind {
            name: "disks",
            about: "200 running pods, each with 500 other disks",
            runs: true,
            pod: disks,
            ..Kind::NONE
        },
        Kind {
            name: "labels",
            about: "200 waiting pods, each with 1 000 other labels",
            pod: many_labels,
            ..Kind::NONE
        },
        Kind {
            name: "nominated",
            about: "200 waiting pods with a nominatedNodeName that another component wrote",
            pod: nominated,
            ..Kind::NONE
        },
    ]
}

fn spread_constraints(pod: &mut Value, n: usize) {
    let constraint = |k: usize| {
        json!({
            "topologyKey": if k.is_multiple_of(2) { HOST } else { ZONE }, "maxSkew": 1,
            "whenUnsatisfiable": if k.is_multiple_of(3) { "ScheduleAnyway" } else { "DoNotSchedule" },
            "labelSelector": values("index", "NotIn", n * 25 + k, 10),
        })
    };
    pod["spec"]["topologySpreadConstraints"] = (0..25).map(constraint).collect();
}

fn tolerations(pod: &mut Value, n: usize) {
    let toleration = |k| json!({"key": format!("key-{n}-{k}"), "operator": "Exists"});
    pod["spec"]["tolerations"] = (0..250).map(toleration).collect();
}

fn node_affinity_terms(pod: &mut Value, n: usize) {
    let term = |k| {
        json!({"matchExpressions": [
            {"key": HOST, "operator": "NotIn", "values": [format!("x-{n}-{k}")]},
            {"key": format!("key-{n}-{k}"), "operator": "DoesNotExist"},
        ]})
    };
    let terms: Value = (0..100).map(term).collect();
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": terms});
}

fn host_ports(pod: &mut Value, n: usize) {
    let port = |k| {
        json!({
            "containerPort": 80, "hostPort": 1 + (n * 250 + k) % 65_000,
            "hostIP": format!("10.0.{}.{}", n % 256, k % 256),
        })
    };
    pod["spec"]["containers"][0]["ports"] = (0..250).map(port).collect();
}

fn claims(pod: &mut Value, n: usize) {
    let volume = |k| {
        json!({
            "name": format!("v-{k}"),
            "persistentVolumeClaim": {"claimName": format!("claim-{n}-{k}")},
        })
    };
    pod["spec"]["volumes"] = (0..500).map(volume).collect();
}

fn disks(pod: &mut Value, n: usize) {
    let volume = |k| {
        json!({
            "name": format!("v-{k}"),
            "gcePersistentDisk": {"pdName": format!("disk-{n}-{k}")},
        })
    };
    pod["spec"]["volumes"] = (0..500).map(volume).collect();
}

fn many_labels(pod: &mut Value, n: usize) {
    for k in 0..990 {
        pod["metadata"]["labels"][format!("label-{n}-{k}")] = json!("v");
    }
}

fn nominated(pod: &mut Value, n: usize) {
    pod["status"]["nominatedNodeName"] = json!(format!("node-{n:05}"));
    pod["metadata"]["managedFields"] = json!([{
        "manager": "kubectl", "operation": "Update", "subresource": "status",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}},
    }]);
}

fn groups() -> Vec<Kind> {
    vec![
        Kind {
            name: "group-annotation",
            about: "200 pods whose group annotation has 200 kB, every one different",
            pods_per_group: 1,
            pod: |pod, n| {
                let name = format!("{n}{}", "x".repeat(200_000));
                pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = json!(name);
            },
            ..Kind::NONE
        },
        Kind {
            name: "largest-minimum",
            about: "a PodGroup with the largest minimum",
            n_pods: 1,
            group: |group, _| group.min_member = i32::MAX,
            ..Kind::NONE
        },
        Kind {
            name: "system-priority",
            about: "20 PodGroups that name system-node-critical",
            group: |group, _| "system-node-critical".clone_into(&mut group.priority_class_name),
            ..Kind::NONE
        },
        Kind {
            name: "forged-budget",
            about: "20 PodDisruptionBudgets with the uid of a controller of another namespace",
            budget: |n| {
                Some(json!({
                    "metadata": {
                        "name": format!("budget-{n}"), "namespace": NAMESPACE,
                        "ownerReferences": [{
                            "apiVersion": "batch/v1", "kind": "Job", "controller": true,
                            "name": format!("job-{n}"), "uid": format!("uid-job-{n}"),
                        }],
                    },
                    "spec": {"minAvailable": 1_000_000},
                }))
            },
            ..Kind::NONE
        },
        Kind {
            name: "gangs-10000",
            about: "10 000 PodGroups of two pods that can never start",
            n_pods: 20_000,
            pods_per_group: 2,
            group: |group, _| group.min_member = 2,
            ..Kind::NONE
        },
        Kind {
            name: "templates-10000",
            about: "a gang of 10 000 waiting pods, every template different",
            n_pods: 10_000,
            pods_per_group: 10_000,
            pod: unlike,
            group: |group, _| group.min_member = 10_000,
            ..Kind::NONE
        },
        Kind {
            name: "gang-10000",
            about: "a gang of 10 000 equal waiting pods",
            n_pods: 10_000,
            pods_per_group: 10_000,
            group: |group, _| group.min_member = 10_000,
            ..Kind::NONE
        },
    ]
}

/// Gangs of 2 000 pods that fit one by one, but not together.
fn unlike_gangs() -> Vec<Kind> {
    let kind = |name, about, pod| Kind {
        name,
        about,
        n_pods: 2_000,
        pods_per_group: 2_000,
        are_gangs: true,
        pod,
        ..Kind::NONE
    };
    vec![
        kind(
            "unlike-gang",
            "a gang of 2 000 pods that fit one by one, every template different",
            unlike,
        ),
        kind("unlike-apart", "the same, with required anti-affinity to each other", |pod, n| {
            unlike(pod, n);
            affinity(pod, "podAntiAffinity", [own_term(own_gang(), HOST)].into_iter());
        }),
        kind("unlike-in-a-zone", "the same, with required affinity to each other", |pod, n| {
            unlike(pod, n);
            affinity(pod, "podAffinity", [own_term(own_gang(), ZONE)].into_iter());
        }),
        kind("unlike-terms", "the same, each with anti-affinity to most others", |pod, n| {
            unlike(pod, n);
            affinity(pod, "podAntiAffinity", [own_term(matches_most(n, 0), HOST)].into_iter());
        }),
    ]
}

/// Matches the pods of the only gang.
fn own_gang() -> Value {
    json!({"matchLabels": {"job-name": "group-0"}})
}

/// A template that no other pod has.
fn unlike(pod: &mut Value, n: usize) {
    pod["spec"]["containers"][0]["resources"]["requests"]["memory"] =
        json!(format!("{}Mi", 1_024 + n));
    pod["spec"]["tolerations"] = json!([{"key": format!("key-{n}"), "operator": "Exists"}]);
}

/// Requests for this many resources that no other pod requests, over 15 containers.
fn request(pod: &mut Value, n: usize, n_resources: usize) {
    let mut main = pod["spec"]["containers"][0].clone();
    for k in 0..n_resources {
        main["resources"]["requests"][format!("example.com/r-{n}-{k}")] = json!("1");
    }
    pod["spec"]["containers"][0] = main;
}

fn huge(pod: &mut Value, n_containers: usize) {
    let requests = json!({"cpu": "1Pi", "memory": "1Pi", "ephemeral-storage": "1Pi"});
    let container = |k| json!({"name": format!("c-{k}"), "resources": {"requests": requests}});
    pod["spec"]["containers"] = (0..n_containers).map(container).collect();
}

fn containers(pod: &mut Value, n: usize) {
    let container = |k| {
        json!({
            "name": format!("c-{k}"), "image": format!("example.com/image-{n}-{k}:v1"),
            "resources": {"requests": {"cpu": "1", "memory": format!("{}", n * 250 + k)}},
        })
    };
    pod["spec"]["containers"] = (0..250).map(container).collect();
}

/// A term about the pods of all namespaces.
fn term(selector: Value, key: &str) -> Value {
    json!({"labelSelector": selector, "namespaceSelector": {}, "topologyKey": key})
}

/// A term about the pods of the own namespace.
fn own_term(selector: Value, key: &str) -> Value {
    json!({"labelSelector": selector, "topologyKey": key})
}

/// A selector of its own for each pod and term; it matches every pod.
fn matches_all(n: usize, k: usize) -> Value {
    json!({"matchExpressions": [{"key": format!("x-{n}-{k}"), "operator": "DoesNotExist"}]})
}

/// A selector of its own for each pod and term; each matches some other pods.
fn matches_some(n: usize, k: usize) -> Value {
    some("In", n, k)
}

/// A selector of its own for each pod and term; each matches all pods except some other ones.
fn matches_most(n: usize, k: usize) -> Value {
    some("NotIn", n, k)
}

fn some(operator: &str, n: usize, k: usize) -> Value {
    let seed = n * 50 + k;
    let some: Vec<String> =
        (0..18).map(|i| ((i * 7_919 + seed * 31) % 5_000).to_string()).collect();
    json!({"matchExpressions": [{"key": "index", "operator": operator, "values": some}]})
}

fn values(key: &str, operator: &str, n: usize, n_values: usize) -> Value {
    let values: Vec<String> = (0..n_values).map(|k| format!("x-{n}-{k}")).collect();
    json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
}

fn affinity(pod: &mut Value, field: &str, terms: impl Iterator<Item = Value>) {
    pod["spec"]["affinity"][field]["requiredDuringSchedulingIgnoredDuringExecution"] =
        terms.collect();
}

fn anti(pod: &mut Value, n: usize, key: &str, selector: fn(usize, usize) -> Value) {
    affinity(pod, "podAntiAffinity", (0..50).map(|k| term(selector(n, k), key)));
}

/// Required anti-affinity to most pods of the own namespace.
fn anti_own(pod: &mut Value, n: usize, key: &str) {
    affinity(pod, "podAntiAffinity", (0..50).map(|k| own_term(matches_most(n, k), key)));
}

fn preferred(pod: &mut Value, n: usize, key: &str) {
    let weighted =
        |k| json!({"weight": 1 + k % 100, "podAffinityTerm": term(matches_all(n, k), key)});
    pod["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
        (0..50).map(weighted).collect();
}
