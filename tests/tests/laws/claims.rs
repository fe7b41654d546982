//! Claims whose pod is bound, before the volume controller confirms the volume.

use jiff::Timestamp;
use kube_batch_cache::{assumed::Assumed, snapshot::take_snapshot};
use kube_batch_framework::candidates::Search;
use kube_batch_model::{
    decision::{ClaimChoice, Decision},
    name::ObjectKey,
    status::TaskStatus,
};
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, world::World};
use kube_batch_yaml::{Limits, parse};

/// Two pods, each with a claim, and one volume.
const CASE: &str = "
name: claims
config:
  actions: allocate
  tiers:
  - plugins: [{name: priority}, {name: gang}, {name: predicates}]
objects:
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}, spec: {weight: 1}}
- {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: '4', pods: '9'}}}
- apiVersion: storage.k8s.io/v1
  kind: StorageClass
  metadata: {name: local}
  provisioner: kubernetes.io/no-provisioner
  volumeBindingMode: WaitForFirstConsumer
- apiVersion: v1
  kind: PersistentVolume
  metadata: {name: pv1}
  spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: local}
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata: {name: c1, namespace: ns}
  spec: {accessModes: [ReadWriteOnce], storageClassName: local, resources: {requests: {storage: 1Gi}}}
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata: {name: c2, namespace: ns}
  spec: {accessModes: [ReadWriteOnce], storageClassName: local, resources: {requests: {storage: 1Gi}}}
- apiVersion: v1
  kind: Pod
  metadata: {name: p1, namespace: ns}
  spec:
    schedulerName: kube-batch
    containers: [{name: c, resources: {requests: {cpu: '1'}}}]
    volumes: [{name: v, persistentVolumeClaim: {claimName: c1}}]
- apiVersion: v1
  kind: Pod
  metadata: {name: p2, namespace: ns}
  spec:
    schedulerName: kube-batch
    containers: [{name: c, resources: {requests: {cpu: '1'}}}]
    volumes: [{name: v, persistentVolumeClaim: {claimName: c2}}]
steps:
- cycles: 1
";

fn case() -> Case {
    let document = parse(CASE, &Limits::default()).expect("YAML");
    Case::read(&document, &Registry::builtin()).expect("a case")
}

fn world(case: &Case) -> World {
    let mut world =
        World::new(case.environment, case.options.clone(), case.conf.metadata_prefixes());
    for object in &case.objects {
        world.apply(object.value.clone()).expect("the object is valid");
    }
    world
}

/// The decisions of a cycle, with these decisions still in flight.
fn decisions(case: &Case, world: &World, assumed: &Assumed) -> Vec<Decision> {
    let cluster = take_snapshot(&world.store, assumed, world.options()).cluster;
    case.conf.run_cycle(cluster, Timestamp::MAX, Search::Index, &mut |_| {}).decisions
}

#[test]
fn a_volume_in_flight_is_not_bound_to_another_claim() {
    let case = case();
    let mut world = world(&case);
    let mut assumed = Assumed::default();
    let first = decisions(&case, &world, &assumed);
    let [Decision::Bind { pod, node, claims, .. }] = first.as_slice() else { panic!("{first:?}") };
    let claim = ObjectKey::new("ns", "c1");
    assert_eq!(
        *claims,
        [ClaimChoice { claim: claim.clone(), volume: Some("pv1".into()), made_for: None }]
    );

    assumed.note(&first[0], world.now());
    assert_eq!(decisions(&case, &world, &assumed), []);

    // The pod is bound, but the claim is not bound yet.
    world.change_pod(&pod.key, |facts| {
        facts.node = Some(node.clone());
        facts.status = TaskStatus::Bound;
    });
    assumed.settle(&world.store);
    assert_eq!(decisions(&case, &world, &assumed), []);

    let mut bound = (**world.store.claims.get(&claim).expect("the claim exists")).clone();
    bound.volume = Some("pv1".into());
    world.store.claims.apply(claim, bound);
    assumed.settle(&world.store);
    assert!(assumed.is_empty());
}
