//! Law: a pod whose creator named its node, and that no kubelet has admitted, changes no decision about others, except
//! that it takes room on its node (docs/parity.md#d7).
//!
//! `KUBE_BATCH_SEEDS=20000 cargo test -p kube-batch-tests --test laws not_admitted::` plays more clusters.

use kube_batch_framework::{candidates::Search, memory::Memory, report::Cycle};
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{
    case::Case,
    simulation::Simulation,
    world::{Environment, World},
};
use kube_batch_tests::{
    random_cluster::{RandomCluster, Rng},
    seeds::seeds,
};
use kube_batch_yaml::{Limits, parse};
use serde_json::{Value, json};

const N_CYCLES: usize = 6;

/// A node that takes no pods.
fn cordoned() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "cordoned"},
        "spec": {"unschedulable": true},
        "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "20"}},
    })
}

/// Where the pods are that their creator put there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    NoNode,
    CordonedNode,
}

/// A large pod of some scheduler, PodGroup and queue.
fn ghost(rng: &mut Rng, n: u64, place: Place) -> Value {
    let node = if place == Place::NoNode { "no-node" } else { "cordoned" };
    let mut annotations = json!({});
    if rng.percent(60) {
        annotations["scheduling.k8s.io/group-name"] = json!(format!("g{}", rng.below(4)));
    } else if rng.percent(70) {
        annotations["scheduling.sigs.dev/queue"] = json!(format!("q{}", rng.below(3)));
    }
    if rng.percent(30) {
        annotations["scheduling.sigs.dev/bound-queue"] = json!(format!("q{}", rng.below(3)));
    }
    let scheduler = if rng.percent(80) { "kube-batch" } else { "default-scheduler" };
    let cpu = *rng.pick(&["1", "4", "1000"]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("ghost-{n}"), "namespace": "ns", "annotations": annotations,
            "deletionTimestamp": rng.percent(20).then_some("2025-01-01T00:00:00Z"),
        },
        "spec": {
            "schedulerName": scheduler, "nodeName": node, "priority": rng.below(2_000),
            "containers": [{"name": "main", "image": "app", "resources": {"requests": {
                "cpu": cpu, "memory": "1Gi", "nvidia.com/gpu": rng.below(3).to_string(),
            }}}],
        },
    })
}

/// The cycles of a random cluster with these objects, and with kubelets or without.
fn cycles(seed: u64, added: &[Value], kubelet: bool) -> Vec<Cycle> {
    let added: String = added.iter().map(|object| format!("- {object}\n")).collect();
    let text = RandomCluster::new(seed).case();
    let text = text.replacen("objects:\n", &format!("objects:\n{added}"), 1);
    let document = parse(&text, &Limits::default()).expect("YAML");
    let case = Case::read(&document, &Registry::builtin()).expect("a case");
    let environment = Environment { kubelet, ..case.environment };
    let mut world = World::new(environment, case.options.clone(), case.conf.metadata_prefixes());
    for object in &case.objects {
        world.apply(object.value.clone()).expect("objects are valid");
    }
    let mut simulation =
        Simulation::new(world, case.conf, Search::Index).with_memory(Memory::none());
    (0..N_CYCLES).map(|_| simulation.cycle(&mut |_| {}).cycle.clone()).collect()
}

#[test]
fn pods_that_hold_nothing_change_no_decision() {
    let seeds = seeds(1_000);
    let mut n_decisions = 0;
    for seed in &seeds {
        let mut rng = Rng::new(*seed);
        let place = *rng.pick(&[Place::NoNode, Place::CordonedNode]);
        let ghosts = (0..1 + rng.below(4)).map(|n| ghost(&mut rng, n, place));
        let objects: Vec<Value> = [cordoned()].into_iter().chain(ghosts).collect();
        let kubelet = place == Place::NoNode;
        let without = cycles(*seed, &objects[..1], kubelet);
        let with = cycles(*seed, &objects, kubelet);
        for (n, (without, with)) in without.iter().zip(&with).enumerate() {
            assert_eq!(without.decisions, with.decisions, "SEED={seed}, cycle {n}");
            n_decisions += with.decisions.len();
        }
    }
    assert!(n_decisions > 2 * seeds.len() || seeds.len() < 100, "{n_decisions} decisions");
}
