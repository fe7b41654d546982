//! Random worlds with steady demand: evicted pods are created again, no pod finishes, and lending is on.
//!
//! Random queues, single pods and gangs of one or two resources. Nothing runs at first; half of the jobs come
//! later. Apart from that, no object is changed by anyone else than the scheduler and the controllers.

use std::ops::ControlFlow;

use kube_batch_framework::candidates::Search;
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{
    case::Case,
    simulation::Simulation,
    world::{Eviction, World},
};
use kube_batch_yaml::{Limits, parse};

use crate::random_cluster::Rng;

/// The cycle before which the other half of the jobs comes.
pub const LATER: usize = 5;

/// The configuration that is shipped, without `topology` and without the arguments of `nodeorder`.
pub const CONFIGURATION: &str = "config:
  actions: reclaim, allocate, backfill, preempt
  tiers:
  - plugins: [{name: priority}, {name: gang, arguments: {gang.evictWholeGangs: true, gang.maxLoss: 4}}, {name: conformance}, {name: pdb}]
  - plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
";

/// What happened in a cycle.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// Whether pods have come or gone since the cycle before.
    pub has_changed: bool,
    /// The names of the pods that were bound.
    pub bound: Vec<String>,
    /// The pods that were evicted.
    pub evicted: Vec<Eviction>,
}

/// Plays a world for a number of cycles.
///
/// # Panics
///
/// If the configuration is wrong.
pub fn play(configuration: &str, seed: u64, n_cycles: usize) -> Vec<Played> {
    let cases = cases(configuration, &mut Rng::new(seed));
    play_cases(&cases, n_cycles, &mut |_| {})
}

/// Plays a world, and the objects of another case that come [`LATER`]; `after` sees the simulation after each cycle.
///
/// # Panics
///
/// If an object is not valid.
pub fn play_cases(
    cases: &[Case; 2],
    n_cycles: usize,
    after: &mut dyn FnMut(&mut Simulation),
) -> Vec<Played> {
    play_until(cases, n_cycles, &mut |simulation| {
        after(simulation);
        ControlFlow::Continue(())
    })
}

/// The same, until `after` breaks.
///
/// # Panics
///
/// If an object is not valid.
pub fn play_until(
    [first, later]: &[Case; 2],
    n_cycles: usize,
    after: &mut dyn FnMut(&mut Simulation) -> ControlFlow<()>,
) -> Vec<Played> {
    let mut world =
        World::new(first.environment, first.options.clone(), first.conf.metadata_prefixes());
    let apply = |world: &mut World, case: &Case| {
        for object in &case.objects {
            world.apply(object.value.clone()).expect("the object is valid");
        }
    };
    apply(&mut world, first);
    let mut simulation = Simulation::new(world, first.conf.clone(), Search::Index);
    let (mut played, mut known) = (Vec::new(), None);
    for at in 0..n_cycles {
        if at == LATER {
            simulation.world.tick();
            apply(&mut simulation.world, later);
        }
        let pods: Vec<String> =
            simulation.world.store.pods.iter().map(|(pod, _)| pod.name.to_string()).collect();
        let has_changed = known.replace(pods.clone()) != Some(pods);
        simulation.cycle(&mut |_| {});
        let flow = after(&mut simulation);
        let record = std::mem::take(&mut simulation.world.record);
        let bound = record.binds.iter().map(|(pod, _)| pod.name.to_string()).collect();
        played.push(Played { has_changed, bound, evicted: record.evictions });
        if flow.is_break() {
            break;
        }
    }
    played
}

/// A world as a case, and the jobs that come later as another.
fn cases(configuration: &str, rng: &mut Rng) -> [Case; 2] {
    let [mut text, mut later] =
        [(); 2].map(|()| format!("name: steady\n{configuration}objects:\n"));
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
