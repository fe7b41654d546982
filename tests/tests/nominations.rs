//! How nominations are kept from one cycle to the next.

use kube_batch_api::{decision::Decision, name::ObjectKey};
use kube_batch_cache::{assumed::Assumed, snapshot::take_snapshot};
use kube_batch_framework::candidates::Search;
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, simulation::Simulation, world::World};
use kube_batch_yaml::{Limits, parse};

/// One node, occupied by a pod of lower priority than the pending one.
const CASE: &str = "
name: nomination
environment: {terminationCycles: 3}
config:
  actions: allocate, preempt
  tiers:
  - plugins: [{name: priority}, {name: gang}, {name: predicates}]
objects:
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}, spec: {weight: 1}}
- {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: '1', pods: '9'}}}
- apiVersion: v1
  kind: Pod
  metadata: {name: low, namespace: ns}
  spec: {schedulerName: kube-batch, nodeName: n1, containers: [{name: c, resources: {requests: {cpu: '1'}}}]}
  status: {phase: Running}
- apiVersion: v1
  kind: Pod
  metadata: {name: high, namespace: ns}
  spec: {schedulerName: kube-batch, priority: 9, containers: [{name: c, resources: {requests: {cpu: '1'}}}]}
steps:
- cycles: 1
";

/// The simulation after the cycle in which the pending pod was nominated for the node.
fn simulation() -> Simulation {
    let case = Case::read(&parse(CASE, &Limits::default()).expect("YAML"), &Registry::builtin())
        .expect("a case");
    let mut world =
        World::new(case.environment, case.options.clone(), case.conf.metadata_prefixes());
    for object in &case.objects {
        world.apply(object.value.clone()).expect("the object is valid");
    }
    let mut simulation = Simulation::new(world, case.conf.clone(), Search::Index);
    simulation.cycle(&mut |_| {});
    simulation
}

fn high() -> ObjectKey {
    ObjectKey::new("ns", "high")
}

fn nominated(simulation: &Simulation) -> Option<String> {
    let facts = simulation.world.store.pods.get(&high()).expect("the pod exists");
    facts.nominated_node.as_ref().map(ToString::to_string)
}

#[test]
fn a_nomination_that_cannot_be_renewed_is_withdrawn() {
    let mut simulation = simulation();
    assert_eq!(nominated(&simulation).as_deref(), Some("n1"));
    assert!(simulation.world.store.nodes.delete(&"n1".into()));
    let decisions = &simulation.cycle(&mut |_| {}).cycle.decisions;
    let [Decision::Withdraw { pod }] = decisions.as_slice() else { panic!("{decisions:?}") };
    assert_eq!(pod.key, high());
    assert_eq!(nominated(&simulation), None);
}

#[test]
fn a_nomination_in_flight_is_renewed_like_a_stored_one() {
    let mut simulation = simulation();
    let stored = simulation.world.snapshot().cluster.tasks.nominated;
    let mut assumed = Assumed::default();
    for decision in &simulation.last().expect("one cycle").cycle.decisions {
        if matches!(decision, Decision::Nominate { .. }) {
            assumed.note(decision, simulation.world.now());
        }
    }
    simulation.world.change_pod(&high(), |facts| facts.nominated_node = None);
    let world = &simulation.world;
    let in_flight = take_snapshot(&world.store, &assumed, world.options()).cluster.tasks.nominated;
    assert!(stored.values().any(Option::is_some));
    assert_eq!(stored, in_flight);
}
