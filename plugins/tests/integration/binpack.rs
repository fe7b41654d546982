//! The scores of `binpack` are those of Volcano's formula.

use std::collections::BTreeMap;

use crate::world::World;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube_batch_framework::{plugin::Plugin, session_cache::SessionCache};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx, TaskIdx},
};
use kube_batch_plugins::binpack::{Binpack, BinpackArguments};
use proptest::prelude::*;
use serde_json::json;

/// Amounts by resource, in the units of quantities.
type Amounts = BTreeMap<&'static str, i64>;

const GPU: &str = "example.com/gpu";

/// What a node has, and what its tasks use.
type TestNode = (Amounts, Amounts);

fn node_manifest((n, (allocatable, _)): (usize, &TestNode)) -> Node {
    let manifest = json!({
        "metadata": {"name": format!("n{n}")}, "status": {"allocatable": quantities(allocatable)},
    });
    serde_json::from_value(manifest).expect("the node can be read")
}

fn quantities(amounts: &Amounts) -> BTreeMap<&str, String> {
    let positive = amounts.iter().filter(|(_, amount)| **amount > 0);
    positive.map(|(name, amount)| (*name, amount.to_string())).collect()
}

fn pod_manifest(name: &str, requests: &Amounts, node: Option<String>) -> Pod {
    let resources = json!({"requests": quantities(requests)});
    let containers = json!([{"name": "c", "resources": resources}]);
    let spec = json!({"containers": containers, "nodeName": node});
    let manifest = json!({"metadata": {"name": name}, "spec": spec});
    serde_json::from_value(manifest).expect("the pod can be read")
}

/// A cluster of these nodes, with a pod on each that uses what is used, and a waiting pod.
fn snapshot(nodes: &[TestNode], request: &Amounts) -> (Cluster, ClassIdx) {
    let users = nodes
        .iter()
        .enumerate()
        .map(|(n, (_, used))| pod_manifest(&format!("user-{n}"), used, Some(format!("n{n}"))));
    let world = World {
        nodes: nodes.iter().enumerate().map(node_manifest).collect(),
        existing_pods: users.collect(),
        ..World::default()
    };
    let cluster = world.snapshot(&[pod_manifest("new", request, None)]);
    let is_new = |task: &TaskIdx| *cluster.tasks.facts[*task].key.name == *"new";
    let task = cluster.tasks.facts.ids().find(is_new).expect("the pod exists");
    let class = cluster.tasks.class[task];
    (cluster, class)
}

/// Volcano's formula in floats, before it is multiplied by the weight of the plugin.
fn volcano((allocatable, used): &TestNode, request: &Amounts, weights: &Amounts) -> f64 {
    let amount = |amounts: &Amounts, name: &str| *amounts.get(name).unwrap_or(&0) as f64;
    let (mut score, mut weight_sum) = (0.0, 0.0);
    for name in request.keys().filter(|name| amount(request, name) > 0.0) {
        let Some(weight) = weights.get(name) else { continue };
        let weight = *weight as f64;
        let (capacity, wanted) =
            (amount(allocatable, name), amount(used, name) + amount(request, name));
        if capacity != 0.0 && weight != 0.0 {
            if wanted > capacity {
                return 0.0;
            }
            score += wanted * weight / capacity;
        }
        weight_sum += weight;
    }
    if weight_sum > 0.0 { 100.0 * score / weight_sum } else { 0.0 }
}

fn amounts(largest: i64) -> impl Strategy<Value = Amounts> {
    let amount = move || prop_oneof![1 => Just(0), 4 => 0..=largest];
    (amount(), amount(), amount())
        .prop_map(|(cpu, memory, gpus)| [("cpu", cpu), ("memory", memory), (GPU, gpus)].into())
}

/// Nodes, of which the first has something of each resource: a resource that no node has is left out.
fn nodes() -> impl Strategy<Value = Vec<TestNode>> {
    some_nodes().prop_map(|mut nodes| {
        nodes[0].0.values_mut().for_each(|amount| *amount += 1);
        nodes
    })
}

fn some_nodes() -> impl Strategy<Value = Vec<TestNode>> {
    prop_oneof![
        prop::collection::vec((amounts(20), amounts(12)), 1..60),
        // No resource is absent, so that many nodes are scored at once.
        prop::collection::vec((amounts(20), amounts(3)), 8..60).prop_map(|mut nodes| {
            for (allocatable, _) in &mut nodes {
                allocatable.values_mut().for_each(|amount| *amount += 1);
            }
            nodes
        }),
    ]
}

fn opened(cluster: &Cluster, arguments: BinpackArguments) -> Binpack {
    let mut plugin = Binpack::new(arguments);
    plugin.on_session_open(cluster, &mut SessionCache::new(cluster, jiff::Timestamp::MAX));
    plugin
}

/// The arguments with these weights of resources.
fn arguments(weights: &Amounts) -> BinpackArguments {
    let resources = vec![(GPU.to_owned(), weights[GPU]), ("absent".to_owned(), 7)];
    BinpackArguments { weight: 1, cpu: weights["cpu"], memory: weights["memory"], resources }
}

proptest! {
    #[test]
    fn scores_are_those_of_volcano_rounded_down_by_less_than_two(
        nodes in nodes(), request in amounts(8), weights in amounts(5),
    ) {
        let (cluster, class) = snapshot(&nodes, &request);
        let plugin = opened(&cluster, arguments(&weights));
        for node in cluster.nodes.facts.ids() {
            let of_volcano = volcano(&node_of(&cluster, &nodes, node), &request, &weights);
            let score = plugin.score(&cluster, class, node, 0) as f64;
            prop_assert!(score < of_volcano + 1e-9, "{score} and {of_volcano}");
            prop_assert!(of_volcano < score + 2.0, "{score} and {of_volcano}");
        }
    }

    #[test]
    fn scores_of_many_nodes_are_those_one_by_one(
        nodes in nodes(), request in amounts(8), weights in amounts(5),
    ) {
        let (cluster, class) = snapshot(&nodes, &request);
        let plugin = opened(&cluster, arguments(&weights));
        let nodes: Vec<NodeIdx> = cluster.nodes.facts.ids().collect();
        let one_by_one: Vec<i64> =
            nodes.iter().map(|node| plugin.score(&cluster, class, *node, 0)).collect();
        let mut together = vec![0; nodes.len()];
        let mut with_columns = together.clone();
        if !plugin.score_terms(&cluster, class).is_empty() {
            plugin.scores(&cluster, class, &nodes, 0, &mut together);
            cluster.nodes.keep_columns();
            plugin.scores(&cluster, class, &nodes, 0, &mut with_columns);
        }
        prop_assert_eq!(&together, &one_by_one);
        prop_assert_eq!(with_columns, one_by_one);
    }
}

/// The generated node of a row.
fn node_of(cluster: &Cluster, nodes: &[TestNode], node: NodeIdx) -> TestNode {
    let name = &*cluster.nodes.facts[node].name;
    let n: usize = name[1..].parse().expect("n and a number");
    nodes[n].clone()
}

/// The score of a node with 10 of each resource, of which `used` is used.
fn score_on_ten(used: [i64; 3], request: [i64; 3], arguments: BinpackArguments) -> Option<i64> {
    let amounts = |[cpu, memory, gpus]: [i64; 3]| -> Amounts {
        [("cpu", cpu), ("memory", memory), (GPU, gpus)].into()
    };
    let (cluster, class) = snapshot(&[(amounts([10; 3]), amounts(used))], &amounts(request));
    let plugin = opened(&cluster, arguments);
    let node = cluster.nodes.facts.ids().next().expect("a node");
    let terms = plugin.score_terms(&cluster, class);
    terms.first().map(|term| plugin.score(&cluster, class, node, term.id))
}

#[test]
fn defaults_are_those_of_volcano() {
    let default = BinpackArguments::default();
    let expected = BinpackArguments { weight: 1, cpu: 1, memory: 1, resources: vec![] };
    assert_eq!(default, expected);
    assert_eq!(score_on_ten([1, 3, 0], [1, 1, 5], default), Some(30));
}

#[test]
fn a_resource_counts_if_it_has_a_weight_and_the_pod_requests_it() {
    let packed = |gpu| BinpackArguments {
        resources: vec![(GPU.to_owned(), gpu)],
        ..BinpackArguments::default()
    };
    assert_eq!(score_on_ten([0, 0, 5], [1, 1, 1], packed(2)), Some(35));
    assert_eq!(score_on_ten([0, 0, 5], [1, 1, 1], packed(0)), Some(10));
    assert_eq!(score_on_ten([0, 9, 9], [1, 0, 0], packed(2)), Some(10));
    assert_eq!(score_on_ten([0, 9, 9], [0, 0, 0], packed(2)), None);
    let off = BinpackArguments { weight: 0, ..packed(2) };
    assert_eq!(score_on_ten([0, 0, 5], [1, 1, 1], off), None);
}

#[test]
fn a_node_with_less_than_a_counted_resource_scores_nothing() {
    let without_memory = BinpackArguments { memory: 0, ..BinpackArguments::default() };
    assert_eq!(score_on_ten([5, 9, 0], [1, 2, 0], BinpackArguments::default()), Some(0));
    assert_eq!(score_on_ten([5, 9, 0], [1, 2, 0], without_memory), Some(60));
}

#[test]
fn the_first_weight_of_a_resource_counts() {
    let twice = BinpackArguments {
        resources: vec![(GPU.to_owned(), 1), (GPU.to_owned(), 9)],
        ..BinpackArguments::default()
    };
    assert_eq!(score_on_ten([0, 0, 2], [1, 0, 1], twice), Some(20));
}
