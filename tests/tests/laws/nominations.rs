//! How nominations are kept from one cycle to the next.

use std::fmt::Write;

use kube_batch_cache::{assumed::Assumed, snapshot::take_snapshot};
use kube_batch_framework::candidates::Search;
use kube_batch_model::{decision::Decision, name::ObjectKey, status::TaskStatus};
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, simulation::Simulation, world::World};
use kube_batch_tests::{random_cluster::Rng, seeds::seeds};
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
    let mut simulation = simulation_of(CASE);
    simulation.cycle(&mut |_| {});
    simulation
}

fn simulation_of(case: &str) -> Simulation {
    let case = Case::read(&parse(case, &Limits::default()).expect("YAML"), &Registry::builtin())
        .expect("a case");
    let mut world =
        World::new(case.environment, case.options.clone(), case.conf.metadata_prefixes());
    for object in &case.objects {
        world.apply(object.value.clone()).expect("the object is valid");
    }
    Simulation::new(world, case.conf.clone(), Search::Index)
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

/// Pods of low priority fill the nodes; jobs of equal priority and minimum 1 want all of it.
fn equal_jobs(rng: &mut Rng) -> (String, u64) {
    let (n_nodes, n_slots, n_jobs) = (1 + rng.below(3), 2 + rng.below(4), 2 + rng.below(2));
    let mut case = String::from(
        "
name: equal-jobs
environment: {terminationCycles: 1000}
config:
  actions: reclaim, allocate, backfill, preempt
  tiers:
  - plugins: [{name: priority}, {name: gang}, {name: conformance}]
  - plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
objects:
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}, spec: {weight: 1}}
",
    );
    for node in 0..n_nodes {
        writeln!(
            case,
            "- {{apiVersion: v1, kind: Node, metadata: {{name: n{node}}}, status: {{allocatable: {{cpu: '{n_slots}', pods: '99'}}}}}}"
        )
        .expect("a string");
        for slot in 0..n_slots {
            writeln!(
                case,
                "- {{apiVersion: v1, kind: Pod, metadata: {{name: low-{node}-{slot}, namespace: ns}}, spec: {{schedulerName: kube-batch, nodeName: n{node}, containers: [{{name: c, resources: {{requests: {{cpu: '1'}}}}}}]}}, status: {{phase: Running}}}}"
            )
            .expect("a string");
        }
    }
    for job in 0..n_jobs {
        writeln!(
            case,
            "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {{name: job-{job}, namespace: ns, creationTimestamp: '2024-01-01T00:0{job}:00Z'}}, spec: {{minMember: 1}}}}"
        )
        .expect("a string");
        for pod in 0..n_nodes * n_slots {
            writeln!(
                case,
                "- {{apiVersion: v1, kind: Pod, metadata: {{name: job-{job}-{pod}, namespace: ns, annotations: {{scheduling.k8s.io/group-name: job-{job}}}}}, spec: {{schedulerName: kube-batch, priority: 9, containers: [{{name: c, resources: {{requests: {{cpu: '1'}}}}}}]}}}}"
            )
            .expect("a string");
        }
    }
    case.push_str("steps:\n- cycles: 1\n");
    (case, n_jobs)
}

/// Law: jobs of equal priority that preempt end with equally many pods, in whatever order their victims end.
///
/// `KUBE_BATCH_SEEDS=20000 cargo test -p kube-batch-tests --test laws nominations::` plays more worlds.
#[test]
fn jobs_of_equal_priority_share_what_their_victims_leave() {
    for seed in seeds(200) {
        let mut rng = Rng::new(seed);
        let (case, n_jobs) = equal_jobs(&mut rng);
        let mut simulation = simulation_of(&case);
        for cycle in 0..200 {
            simulation.cycle(&mut |_| {});
            let pods = simulation.world.pods();
            let ending = pods.filter(|pod| pod.status == TaskStatus::Releasing);
            let ending: Vec<ObjectKey> = ending.map(|pod| pod.key.clone()).collect();
            if ending.is_empty() && cycle > 1 {
                break;
            }
            for _ in 0..rng.below(3) {
                if !ending.is_empty() {
                    simulation.world.remove_pod(rng.pick(&ending));
                }
            }
        }
        simulation.cycle(&mut |_| {});
        let held = (0..n_jobs).map(|job| {
            let prefix = format!("job-{job}-");
            let has_place = |status| matches!(status, TaskStatus::Bound | TaskStatus::Running);
            let pods = simulation.world.pods();
            pods.filter(|pod| has_place(pod.status) && pod.key.name.starts_with(&prefix)).count()
        });
        let held: Vec<usize> = held.collect();
        let (least, most) = (held.iter().min(), held.iter().max());
        assert!(
            most.zip(least).is_some_and(|(most, least)| most - least <= 1),
            "KUBE_BATCH_SEED={seed}: {held:?}"
        );
    }
}
