//! How much of a pod is read.
//!
//! Any user may create pods, and the API server accepts a pod of a megabyte. What a pod may contain is
//! therefore bounded, far above what pods contain in practice, so that the pods of one tenant do not
//! make the cycles of all tenants slow. A pod above a bound is not scheduled, and its message says why.
// Parity: new, see docs/parity.md#j11.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Affinity, Container, NodeSelectorTerm, Pod, PodAffinityTerm, PodSpec, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};

use kube_batch_model::{
    facts::size::Bounds,
    membership::BINDING_ANNOTATIONS,
    resource::{CPU, MEMORY, ResourceList, Unit},
};

use super::{affinity::affinity_terms, request::containers};

const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// The largest amount of one resource that a pod may request in all, in the resource's unit: 2^45,
/// which is 32 TiB of memory. The requests of 262 144 such pods still add up in 64 bits.
pub const MAX_POD_AMOUNT: i64 = 1 << 45;

/// The labels of a pod with more are not read.
pub(super) const MAX_LABELS: usize = 1_000;

/// A bound on something that a pod has a number of.
struct Limit {
    /// What is counted, as in `the pod has 5 labels`.
    what: &'static str,
    most: usize,
    count: fn(&Pod, &PodSpec) -> usize,
}

/// Guessed: at least ten times what is known from practice.
const LIMITS: &[Limit] = &[
    Limit { what: "containers", most: 250, count: |_, spec| containers(spec).count() },
    Limit { what: "requested resources", most: 2_000, count: |_, spec| requested(spec) },
    Limit { what: "labels", most: MAX_LABELS, count: |pod, _| len(pod.metadata.labels.as_ref()) },
    Limit { what: "terms of pod affinity", most: 50, count: |_, spec| pod_terms(spec).count() },
    Limit { what: "terms of node affinity", most: 100, count: |_, spec| node_terms(spec).count() },
    Limit {
        what: "topology spread constraints",
        most: 25,
        count: |_, spec| spec.topology_spread_constraints.iter().flatten().count(),
    },
    Limit {
        what: "keys and values in selectors",
        most: 1_000,
        count: |_, spec| selector_parts(spec),
    },
    Limit {
        what: "tolerations",
        most: 250,
        count: |_, spec| spec.tolerations.iter().flatten().count(),
    },
    Limit { what: "host ports", most: 250, count: |_, spec| host_ports(spec) },
    Limit { what: "volumes", most: 500, count: |_, spec| spec.volumes.iter().flatten().count() },
    Limit {
        what: "resource claims",
        most: 250,
        count: |_, spec| spec.resource_claims.iter().flatten().count(),
    },
];

/// The first bound that a pod exceeds.
pub(super) fn excess(pod: &Pod, spec: &PodSpec) -> Option<String> {
    LIMITS.iter().find_map(|Limit { what, most, count }| {
        let found = count(pod, spec);
        (found > *most)
            .then(|| format!("the pod has {found} {what}, kube-batch reads at most {most}"))
    })
}

/// The first amount that is too large, in name order.
pub(super) fn excessive_amount(request: &ResourceList) -> Option<String> {
    let (name, _) = request.iter().find(|(_, amount)| *amount > MAX_POD_AMOUNT)?;
    let most = Unit::of(name).display(MAX_POD_AMOUNT);
    Some(format!("the pod requests more than {most} {name}"))
}

/// The spec with requests for CPU, memory and ephemeral storage alone: what the pod uses of its node, if
/// another scheduler binds it.
pub(super) fn with_common_requests(spec: &PodSpec) -> PodSpec {
    let mut spec = spec.clone();
    let all = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
    let of_containers = all.filter_map(|container| container.resources.as_mut());
    for resources in of_containers.chain(&mut spec.resources) {
        if let Some(requests) = &mut resources.requests {
            requests.retain(|name, _| matches!(name.as_str(), CPU | MEMORY | EPHEMERAL_STORAGE));
        }
    }
    PodSpec { overhead: None, ..spec }
}

/// The pod without everything that a user can make large: what it uses of its node, and what becomes of it, remain.
pub(super) fn smallest(pod: &Pod) -> Pod {
    let short =
        |text: &Option<String>| text.clone().filter(|text| text.len() <= Bounds::USERS.text);
    let annotations = pod.metadata.annotations.iter().flatten();
    let of_binding = annotations.filter(|(key, value)| {
        BINDING_ANNOTATIONS.contains(&key.as_str()) && value.len() <= Bounds::USERS.text
    });
    let metadata = ObjectMeta {
        annotations: Some(of_binding.map(|(key, value)| (key.clone(), value.clone())).collect()),
        labels: None,
        owner_references: None,
        ..pod.metadata.clone()
    };
    let spec = pod.spec.as_ref().map(|spec| PodSpec {
        affinity: None,
        node_name: short(&spec.node_name),
        node_selector: None,
        priority_class_name: short(&spec.priority_class_name),
        resource_claims: None,
        scheduler_name: short(&spec.scheduler_name),
        scheduling_group: None,
        tolerations: None,
        topology_spread_constraints: None,
        volumes: None,
        ..with_common_requests(spec)
    });
    let status = pod.status.as_ref().map(|status| PodStatus {
        extended_resource_claim_status: None,
        nominated_node_name: short(&status.nominated_node_name),
        resource_claim_statuses: None,
        ..status.clone()
    });
    Pod { metadata, spec, status }
}

/// The request with amounts that can be added up.
pub(super) fn bounded(request: &ResourceList) -> ResourceList {
    let mut bounded = ResourceList::default();
    for (name, amount) in request.iter().filter(|(_, amount)| *amount > 0) {
        bounded.set(name, amount.min(MAX_POD_AMOUNT));
    }
    bounded
}

fn len<K, V>(map: Option<&BTreeMap<K, V>>) -> usize {
    map.map_or(0, BTreeMap::len)
}

fn requested(spec: &PodSpec) -> usize {
    let of_containers = containers(spec).filter_map(|container| container.resources.as_ref());
    let lists =
        of_containers.chain(&spec.resources).map(|resources| len(resources.requests.as_ref()));
    lists.sum::<usize>() + len(spec.overhead.as_ref())
}

fn host_ports(spec: &PodSpec) -> usize {
    let ports = containers(spec).flat_map(|container: &Container| container.ports.iter().flatten());
    ports.filter(|port| port.host_port.is_some_and(|number| number > 0)).count()
}

fn pod_terms(spec: &PodSpec) -> impl Iterator<Item = &PodAffinityTerm> {
    spec.affinity.iter().flat_map(affinity_terms).map(|found| found.term)
}

fn node_terms(spec: &PodSpec) -> impl Iterator<Item = &NodeSelectorTerm> {
    let affinity = spec.affinity.as_ref();
    let of_nodes = affinity.and_then(|affinity: &Affinity| affinity.node_affinity.as_ref());
    of_nodes.into_iter().flat_map(|terms| {
        let required = terms.required_during_scheduling_ignored_during_execution.iter();
        let required = required.flat_map(|selector| &selector.node_selector_terms);
        let preferred = terms.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        required.chain(preferred.map(|preferred| &preferred.preference))
    })
}

/// The number of keys and values that selectors of the pod compare.
fn selector_parts(spec: &PodSpec) -> usize {
    let of_nodes = node_terms(spec).flat_map(|term| {
        let expressions = term.match_expressions.iter().flatten();
        expressions.chain(term.match_fields.iter().flatten())
    });
    let of_nodes = of_nodes.map(|expression| 1 + expression.values.as_ref().map_or(0, Vec::len));
    let of_pods = pod_terms(spec).map(|term| {
        let selectors = [&term.label_selector, &term.namespace_selector];
        let n_keys = term.match_label_keys.iter().flatten().count()
            + term.mismatch_label_keys.iter().flatten().count();
        let n_namespaces = term.namespaces.iter().flatten().count();
        n_keys + n_namespaces + selectors.into_iter().flatten().map(parts_of).sum::<usize>()
    });
    let of_spread = spec.topology_spread_constraints.iter().flatten().map(|constraint| {
        let n_keys = constraint.match_label_keys.iter().flatten().count();
        n_keys + constraint.label_selector.as_ref().map_or(0, parts_of)
    });
    len(spec.node_selector.as_ref()) + of_nodes.chain(of_pods).chain(of_spread).sum::<usize>()
}

fn parts_of(selector: &LabelSelector) -> usize {
    let expressions = selector.match_expressions.iter().flatten();
    let of_expressions =
        expressions.map(|expression| 1 + expression.values.as_ref().map_or(0, Vec::len));
    len(selector.match_labels.as_ref()) + of_expressions.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use kube_batch_model::{facts::pod::Interner, resource::PODS};

    use crate::read;

    /// Why a pod with this spec and `n_labels` labels is refused, and its request.
    fn read(spec: Value, n_labels: usize) -> (Option<String>, ResourceList) {
        let labels: serde_json::Map<String, Value> =
            (0..n_labels).map(|n| (format!("l{n}"), json!(""))).collect();
        let pod = json!({"metadata": {"name": "p", "uid": "u", "labels": labels}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let facts = read::pod(&pod, &mut Interner::default()).expect("facts");
        let template = facts.template.share();
        (template.refused.as_ref().map(ToString::to_string), template.request.clone())
    }

    /// Returns a spec with this number of something.
    type MakeSpec<'a> = &'a dyn Fn(usize) -> Value;

    fn many(n: usize, one: impl Fn(usize) -> Value) -> Value {
        (0..n).map(one).collect()
    }

    #[test]
    fn a_pod_that_is_larger_than_any_is_refused() {
        let container = |n: usize| json!({"name": format!("c{n}")});
        let app = |rest: Value| {
            let mut container = json!({"name": "c"});
            container
                .as_object_mut()
                .expect("an object")
                .extend(rest.as_object().expect("an object").clone());
            json!([container])
        };
        let requests = |n: usize| {
            let containers = (0..n.div_ceil(16)).map(|at| {
                let requests: serde_json::Map<String, Value> = (at * 16..n.min(at * 16 + 16))
                    .map(|n| (format!("hugepages-{}Mi", 1 + n % 16), json!("1")))
                    .collect();
                json!({"name": format!("c{at}"), "resources": {"requests": requests}})
            });
            json!({"containers": containers.collect::<Value>()})
        };
        let with = |field: &str, value: Value| {
            let mut spec = json!({"containers": app(json!({}))});
            spec[field] = value;
            spec
        };
        let anti = |n: usize| {
            let terms = many(n, |_| json!({"topologyKey": "k"}));
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
        };
        let nodes = |n: usize, n_values: usize| {
            let values = many(n_values, |n| json!(n.to_string()));
            let expression = json!({"key": "k", "operator": "NotIn", "values": values});
            let terms = many(n, |_| json!({"matchExpressions": [expression]}));
            let required = json!({"nodeSelectorTerms": terms});
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
        };
        let spread = |n: usize| {
            many(n, |n| {
                let key = format!("k{n}");
                json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"})
            })
        };
        let specs: [(&str, usize, MakeSpec<'_>); 10] = [
            ("containers", 250, &|n| json!({"containers": many(n, container)})),
            ("requested resources", 2_000, &requests),
            ("terms of pod affinity", 50, &|n| with("affinity", anti(n))),
            ("terms of node affinity", 100, &|n| with("affinity", nodes(n, 1))),
            ("keys and values in selectors", 1_000, &|n| with("affinity", nodes(1, n - 1))),
            ("topology spread constraints", 25, &|n| with("topologySpreadConstraints", spread(n))),
            ("tolerations", 250, &|n| with("tolerations", many(n, |_| json!({"key": "k"})))),
            ("volumes", 500, &|n| with("volumes", many(n, |n| json!({"name": n.to_string()})))),
            ("resource claims", 250, &|n| {
                with("resourceClaims", many(n, |n| json!({"name": n.to_string()})))
            }),
            ("host ports", 250, &|n| {
                let ports = many(n, |n| json!({"containerPort": n, "hostPort": 1 + n}));
                json!({"containers": app(json!({"ports": ports}))})
            }),
        ];
        for (what, most, spec) in specs {
            assert_eq!(read(spec(most), 0).0, None, "{most} {what}");
            let found = most + 1;
            let why = format!("the pod has {found} {what}, kube-batch reads at most {most}");
            assert_eq!(read(spec(found), 0).0, Some(why));
        }
        assert_eq!(read(json!({"containers": []}), 1_000).0, None);
        assert!(read(json!({"containers": []}), 1_001).0.is_some());
        assert_eq!(LIMITS.len(), specs.len() + 1, "each limit is tested");
    }

    #[test]
    fn what_a_refused_pod_uses_of_its_node_counts() {
        let container = |n: usize| {
            let requests = json!({"cpu": "1", "memory": "1Pi", (format!("example.com/r{n}")): "1"});
            json!({"name": format!("c{n}"), "resources": {"requests": requests}})
        };
        let (refused, request) = read(json!({"containers": many(251, container)}), 0);
        assert!(refused.is_some());
        let amounts: Vec<(&str, i64)> =
            request.iter().map(|(name, amount)| (name.as_str(), amount)).collect();
        assert_eq!(amounts, [(CPU, 251_000), (MEMORY, MAX_POD_AMOUNT), (PODS, 1)]);
    }

    #[test]
    fn a_request_that_could_not_be_added_up_is_refused() {
        let memory = |amount: &str| {
            let resources = json!({"requests": {"memory": amount}});
            json!({"containers": [{"name": "c", "resources": resources}]})
        };
        assert_eq!(read(memory("32Ti"), 0).0, None);
        for amount in ["33Ti", "1Pi", "9Ei", "100000000000000000000"] {
            let (refused, request) = read(memory(amount), 0);
            assert_eq!(
                refused.as_deref(),
                Some("the pod requests more than 32Ti memory"),
                "{amount}"
            );
            assert_eq!(request.get(MEMORY), MAX_POD_AMOUNT);
        }
    }
}
