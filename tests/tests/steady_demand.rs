//! Law: with steady demand, evictions cease. Pods that are evicted come again, nothing ends, and lending is on
//! (docs/parity.md#c7, docs/parity.md#c8).
//!
//! Random queues, single pods and gangs of one or two resources, played with the plugins of the shipped configuration.
//! `KUBE_BATCH_SEEDS=20000 cargo test -p kube-batch-tests --test steady_demand` plays more worlds, and
//! `KUBE_BATCH_SEED=7` one, whose evictions it prints.

use kube_batch_framework::candidates::Search;
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, simulation::Simulation, world::World};
use kube_batch_tests::random_cluster::Rng;
use kube_batch_yaml::{Limits, parse};

/// Cycles until evictions must have ceased, and cycles without any.
const CYCLES: (usize, usize) = (60, 20);

/// Half of the jobs come at this cycle.
const LATER: usize = 5;

const CONFIGURATION: &str = "config:
  actions: reclaim, allocate, backfill, preempt
  tiers:
  - plugins: [{name: priority}, {name: gang, arguments: {gang.evictWholeGangs: true}}, {name: conformance}, {name: pdb}]
  - plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
";

#[test]
fn evictions_cease() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds: Vec<u64> = match number("KUBE_BATCH_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("KUBE_BATCH_SEEDS").unwrap_or(500)).collect(),
    };
    let (mut n_evictions, mut failed) = (0, Vec::new());
    for seed in &seeds {
        let by_cycle = play(*seed);
        n_evictions += by_cycle.iter().map(Vec::len).sum::<usize>();
        if seeds.len() == 1 {
            by_cycle.iter().enumerate().for_each(|(at, evicted)| println!("{at}: {evicted:?}"));
        }
        if by_cycle[CYCLES.0..].iter().any(|evicted| !evicted.is_empty()) {
            failed.push(*seed);
        }
    }
    println!("{n_evictions} evictions in {} worlds", seeds.len());
    assert!(failed.is_empty(), "evictions do not cease with {} seeds: {failed:?}", failed.len());
    assert!(seeds.len() < 100 || n_evictions > seeds.len(), "nothing is evicted");
}

/// What each cycle evicts, in words.
fn play(seed: u64) -> Vec<Vec<String>> {
    let [first, later] = cases(&mut Rng::new(seed));
    let mut world =
        World::new(first.environment, first.options.clone(), first.conf.metadata_prefixes());
    let apply = |world: &mut World, case: &Case| {
        for object in &case.objects {
            world.apply(object.value.clone()).expect("the object is valid");
        }
    };
    apply(&mut world, &first);
    let mut simulation = Simulation::new(world, first.conf.clone(), Search::Index);
    let mut evicted = Vec::new();
    for at in 0..CYCLES.0 + CYCLES.1 {
        if at == LATER {
            simulation.world.tick();
            apply(&mut simulation.world, &later);
        }
        simulation.cycle(&mut |_| {});
        let record = &mut simulation.world.record;
        let in_words = record.evictions.drain(..);
        let in_words = in_words.map(|of| format!("{} {} for {}", of.reason, of.pod.name, of.by));
        evicted.push(in_words.collect());
        simulation.world.record.clear();
    }
    evicted
}

/// A cluster with jobs, and the jobs that come later.
fn cases(rng: &mut Rng) -> [Case; 2] {
    let [mut text, mut later] =
        [(); 2].map(|()| format!("name: steady\n{CONFIGURATION}objects:\n"));
    let n_queues = 2 + rng.below(3);
    let has_gpus = rng.percent(60);
    for queue in 0..n_queues {
        let weight = 1 + rng.below(3);
        text += &format!(
            "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {{name: q{queue}}}, spec: {{weight: {weight}}}}}\n"
        );
    }
    for (name, value) in [("low", 10), ("high", 100)] {
        text += &format!(
            "- {{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: {name}}}, value: {value}}}\n"
        );
    }
    for node in 0..1 + rng.below(5) {
        let gpus = if has_gpus { ", example.com/gpu: '8'" } else { "" };
        let cpu = [8, 8, 16][rng.below(3) as usize];
        text += &format!(
            "- {{apiVersion: v1, kind: Node, metadata: {{name: n{node}}}, status: {{allocatable: {{cpu: '{cpu}', pods: '99'{gpus}}}}}}}\n"
        );
    }
    for job in 0..3 + rng.below(6) {
        let n_pods = 1 + rng.below(6);
        let min = if rng.percent(50) { 1 } else { 1 + rng.below(n_pods) };
        let class = ["low", "low", "high"][rng.below(3) as usize];
        let cpu = 1 + rng.below(8);
        let gpu = if has_gpus && rng.percent(70) {
            format!(", example.com/gpu: '{}'", [1, 1, 2, 4, 8][rng.below(5) as usize])
        } else {
            String::new()
        };
        let jobs = if rng.percent(50) { &mut text } else { &mut later };
        *jobs += &format!(
            "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {{name: j{job}, namespace: ns}}, spec: {{minMember: {min}, queue: q{}, priorityClassName: {class}}}}}
- {{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: j{job}, namespace: ns}}, spec: {{replicas: {n_pods}, selector: {{matchLabels: {{job: j{job}}}}}, template: {{metadata: {{labels: {{job: j{job}}}, annotations: {{scheduling.k8s.io/group-name: j{job}}}}}, spec: {{schedulerName: kube-batch, priorityClassName: {class}, containers: [{{name: c, resources: {{requests: {{cpu: '{cpu}'{gpu}}}}}}}]}}}}}}}}\n",
            rng.below(n_queues)
        );
    }
    // A case has at least one object.
    later += "- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: other}}\n";
    [text, later].map(|text| {
        let text = text + "steps:\n- cycles: 1\n";
        let document = parse(&text, &Limits::default()).expect("YAML");
        Case::read(&document, &Registry::builtin()).expect("a case")
    })
}
