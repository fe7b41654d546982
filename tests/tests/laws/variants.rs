//! Classes that differ only in which selectors match them share an index of nodes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube_batch_actions::{allocate, backfill, preempt, reclaim};
use kube_batch_api::{crd::PodGroupSpec, dialect::RawObject, kind::ApplyObject as _};
use kube_batch_cache::{
    assumed::Assumed,
    snapshot::{SnapshotOptions, take_snapshot},
    store::Store,
};
use kube_batch_framework::{candidates::Search, report::Cycle};
use kube_batch_model::group_version::GroupVersion;
use kube_batch_tests::{random_cluster::Rng, seeds::seeds, shapes::full};
use serde_json::{Value, json};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object as the API server sends it")
}

fn node(rng: &mut Rng, n: u64) -> Value {
    json!({
        "metadata": {"name": format!("n{n}"), "labels": {
            "host": format!("n{n}"), "zone": format!("z{}", n % 3), "disk": format!("d{}", rng.below(2)),
        }},
        "status": {
            "allocatable": {"cpu": (2 + rng.below(3)).to_string(), "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn term(rng: &mut Rng) -> Value {
    let operator = ["In", "NotIn", "Exists"][rng.below(3) as usize];
    let values = (operator != "Exists").then(|| json!([rng.below(3).to_string()]));
    let key = ["a", "b"][rng.below(2) as usize];
    let topology = ["host", "zone"][rng.below(2) as usize];
    json!({
        "topologyKey": topology,
        "labelSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]},
    })
}

/// A pod of one of two templates, with labels of its own; some have terms.
fn pod(rng: &mut Rng, n: u64, n_nodes: u64) -> Value {
    let runs = rng.below(3) == 0;
    let mut affinity = json!({});
    if rng.below(4) == 0 {
        affinity["podAntiAffinity"] =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": [term(rng)]});
    }
    if rng.below(8) == 0 {
        let preferred = [json!({"weight": 10, "podAffinityTerm": term(rng)})];
        affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
            json!(preferred);
    }
    if rng.below(2) == 0 {
        let preference =
            json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["d1"]}]});
        affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
            json!([{"weight": 1, "preference": preference}]);
    }
    json!({
        "metadata": {
            "name": format!("p{n}"), "namespace": "ns", "uid": format!("p{n}"),
            "labels": {"a": rng.below(3).to_string(), "b": rng.below(3).to_string()},
            "annotations": {"scheduling.k8s.io/group-name": format!("g{}", n % 6)},
        },
        "spec": {
            "schedulerName": "kube-batch", "affinity": affinity,
            "nodeName": runs.then(|| format!("n{}", rng.below(n_nodes))),
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": if runs { "Running" } else { "Pending" }},
    })
}

fn cluster(seed: u64) -> Store {
    let mut rng = Rng::new(seed);
    let mut store = Store::default();
    let n_nodes = 3 + rng.below(7);
    for n in 0..n_nodes {
        store.apply::<Node>(&read(node(&mut rng, n))).expect("facts");
    }
    let queue = json!({"weight": 1});
    let meta = read(json!({"name": "default", "uid": "default"}));
    store.apply_queue(GroupVersion::V1Alpha2, &RawObject::new(&meta, &queue)).expect("facts");
    for n in 0..6 {
        let meta = read(json!({"name": format!("g{n}"), "namespace": "ns", "uid": n.to_string()}));
        let min_member = 1 + rng.below(3) as i32;
        let spec = PodGroupSpec { min_member, ..PodGroupSpec::default() };
        store.apply_group(GroupVersion::V1Alpha2, &RawObject::new(&meta, &spec)).expect("facts");
    }
    for n in 0..10 + rng.below(20) {
        store.apply::<Pod>(&read(pod(&mut rng, n, n_nodes))).expect("facts");
    }
    store
}

#[test]
fn a_shared_index_finds_the_same_nodes_as_the_naive_search() {
    let conf = full(&[reclaim::SPEC, allocate::SPEC, backfill::SPEC, preempt::SPEC]);
    let seeds = seeds(300);
    let (mut n_variants, mut n_decisions) = (0, 0);
    for seed in seeds.iter().copied() {
        let store = cluster(seed);
        let snapshot = take_snapshot(&store, &Assumed::default(), &SnapshotOptions::default());
        let variant_of = &snapshot.cluster.classes.variant_of;
        n_variants += variant_of.iter().filter(|(class, first)| class != *first).count();
        let run = |search| {
            let cycle =
                conf.run_cycle(snapshot.cluster.clone(), Timestamp::MAX, search, &mut |_| {});
            Cycle { work: 0, ..cycle }
        };
        let (index, naive) = (run(Search::Index), run(Search::Naive));
        assert!(index == naive, "seed {seed}:\n{:?}\n{:?}", index.decisions, naive.decisions);
        n_decisions += index.decisions.len();
    }
    let least = 3 * seeds.len();
    assert!(n_variants > least && n_decisions > least, "{n_variants}, {n_decisions}");
}
