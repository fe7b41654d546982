//! Law: queues of equal weight that want the same GPUs end with half of the hardware each, within one task, whether
//! they want whole GPUs, partitions or shares of memory, and whichever class they name (docs/parity.md#v8).
//!
//! `KUBE_BATCH_SEEDS=5000 cargo test -p kube-batch-tests --test laws device_shares::` plays more worlds, and
//! `KUBE_BATCH_SEED=7` one.

use std::fmt::Write;

use kube_batch_framework::candidates::Search;
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, simulation::Simulation, world::World};
use kube_batch_tests::{random_cluster::Rng, seeds::seeds};
use kube_batch_yaml::{Limits, parse};

/// Cycles until the queues must have their halves.
const CYCLES: usize = 30;

/// Memory of a GPU, in GiB.
const MEMORY: u64 = 80;

/// The resource that queues share.
const PHYSICAL: &str = "gpu-a.deviceclass.resource.kubernetes.io/physical-devices";

/// How the pods of a queue use GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Whole,
    /// One of this many equal partitions of a GPU.
    Partition(u64),
    /// A share of a GPU, in GiB.
    Share(u64),
    /// An extended resource: the first device that is free, of any size.
    Extended,
}

impl Use {
    /// The least and the most that a pod takes of a GPU, in GiB.
    fn memory(self) -> (u64, u64) {
        match self {
            Self::Whole => (MEMORY, MEMORY),
            Self::Partition(n) => (MEMORY / n, MEMORY / n),
            Self::Share(memory) => (memory, memory),
            Self::Extended => (MEMORY / 4, MEMORY),
        }
    }
}

struct Shared {
    n_gpus: u64,
    /// How the pods of each queue use GPUs.
    uses: [Use; 2],
    /// Whether the queues name classes of their own.
    has_two_classes: bool,
    /// Whether the pods of the second queue are created once those of the first run.
    is_one_later: bool,
}

impl Shared {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let can_be_shared = rng.percent(30);
        let mut one = || match can_be_shared {
            true => Use::Share(*rng.pick(&[20, 40, 80])),
            false => *rng.pick(&[Use::Whole, Use::Partition(2), Use::Partition(4), Use::Extended]),
        };
        let uses = [one(), one()];
        Self {
            // Each queue can have half in whole GPUs.
            n_gpus: 2 * (1 + rng.below(3)),
            uses,
            has_two_classes: rng.percent(50),
            is_one_later: rng.percent(70),
        }
    }

    fn class(&self, queue: usize) -> &'static str {
        if self.has_two_classes { ["gpu-a", "gpu-b"][queue] } else { "gpu-a" }
    }

    /// The cluster, and the jobs of a queue.
    fn objects(&self) -> [String; 3] {
        let mut cluster = "- {apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: '640', pods: '500'}}}\n".to_owned();
        for name in ["gpu-a", "gpu-b"] {
            let _ = writeln!(
                cluster,
                "- {{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {{name: {name}}}, spec: {{extendedResourceName: example.com/{name}, selectors: [{{cel: {{expression: 'device.driver == \"gpu.example.com\"'}}}}]}}}}"
            );
        }
        let slice = |name: &str, content: &str| {
            format!(
                "- {{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {{name: {name}}}, spec: {{driver: gpu.example.com, nodeName: n, pool: {{name: n, generation: 1, resourceSliceCount: 2}}, {content}}}}}\n"
            )
        };
        let (mut counters, mut devices) = (String::new(), String::new());
        for gpu in 0..self.n_gpus {
            let _ =
                write!(counters, "{{name: g{gpu}, counters: {{memory: {{value: {MEMORY}Gi}}}}}}, ");
            if matches!(self.uses[0], Use::Share(_)) {
                let _ = write!(
                    devices,
                    "{{name: g{gpu}, allowMultipleAllocations: true, capacity: {{memory: {{value: {MEMORY}Gi}}}}}}, "
                );
                continue;
            }
            for n in [1, 2, 4] {
                for at in 0..n {
                    let memory = MEMORY / n;
                    let _ = write!(
                        devices,
                        "{{name: g{gpu}-{n}-{at}, attributes: {{size: {{int: {n}}}}}, consumesCounters: [{{counterSet: g{gpu}, counters: {{memory: {{value: {memory}Gi}}}}}}]}}, "
                    );
                }
            }
        }
        cluster += &slice("counters", &format!("sharedCounters: [{counters}]"));
        cluster += &slice("devices", &format!("devices: [{devices}]"));
        let [a, b] = [0, 1].map(|queue| self.jobs(queue));
        [cluster, a, b]
    }

    fn jobs(&self, queue: usize) -> String {
        let class = self.class(queue);
        let wants = match self.uses[queue] {
            Use::Whole => "selectors: [{cel: {expression: 'device.attributes[\"gpu.example.com\"].size == 1'}}]".to_owned(),
            Use::Partition(n) => format!(
                "selectors: [{{cel: {{expression: 'device.attributes[\"gpu.example.com\"].size == {n}'}}}}]"
            ),
            Use::Share(memory) => format!("capacity: {{requests: {{memory: {memory}Gi}}}}"),
            Use::Extended => "count: 1".to_owned(),
        };
        let (claims, container) = if self.uses[queue] == Use::Extended {
            let amount = format!("{{example.com/{class}: '1'}}");
            (String::new(), format!("requests: {amount}, limits: {amount}"))
        } else {
            let claims =
                format!("resourceClaims: [{{name: g, resourceClaimTemplateName: t{queue}}}], ");
            (claims, "requests: {cpu: 10m}, claims: [{name: g}]".to_owned())
        };
        let n_pods = self.n_gpus * MEMORY / self.uses[queue].memory().0;
        format!(
            "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {{name: q{queue}}}, spec: {{weight: 1}}}}
- {{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {{name: t{queue}}}, spec: {{spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: {class}, {wants}}}}}]}}}}}}}}
- {{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: j{queue}}}, spec: {{replicas: {n_pods}, selector: {{matchLabels: {{job: j{queue}}}}}, template: {{metadata: {{labels: {{job: j{queue}}}, annotations: {{scheduling.sigs.dev/queue: q{queue}}}}}, spec: {{schedulerName: kube-batch, {claims}containers: [{{name: c, resources: {{{container}}}}}]}}}}}}}}\n"
        )
    }

    /// How much memory the pods of each queue have at the end, in GiB, and how many GPUs its report says.
    fn play(&self) -> [(u64, i64); 2] {
        let [cluster, a, b] = self.objects();
        let head = "name: shared\nconfig:\n  actions: reclaim, allocate, backfill, preempt\n  tiers:\n  - plugins: [{name: priority}, {name: gang}, {name: conformance}]\n  - plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]\n";
        let case = |objects: String| {
            let text = format!("{head}objects:\n{objects}steps:\n- cycles: 1\n");
            let document = parse(&text, &Limits::default()).expect("YAML");
            Case::read(&document, &Registry::builtin()).expect("a case")
        };
        let (first, later) = match self.is_one_later {
            true => (cluster + &a, b),
            false => (cluster + &a + &b, String::new()),
        };
        let first = case(first);
        let mut world =
            World::new(first.environment, first.options.clone(), first.conf.metadata_prefixes());
        for object in &first.objects {
            world.apply(object.value.clone()).expect("the object is valid");
        }
        let mut simulation = Simulation::new(world, first.conf.clone(), Search::Index);
        for at in 0..CYCLES {
            if at == 4 && !later.is_empty() {
                for object in &case(later.clone()).objects {
                    simulation.world.apply(object.value.clone()).expect("the object is valid");
                }
            }
            simulation.cycle(&mut |_| {});
        }
        let cycle = simulation.cycle(&mut |_| {}).cycle.clone();
        let world = &simulation.world;
        [0, 1].map(|queue| {
            let prefix = format!("j{queue}-");
            let claims = world.store.resource_claims.values();
            let own = claims.filter(|claim| claim.key.name.starts_with(&prefix));
            let results = own.flat_map(|claim| &claim.allocation).flat_map(|own| &own.results);
            let held = results.map(|result| self.memory_of(queue, &result.id.device)).sum();
            let name = format!("q{queue}");
            let report = cycle.queues.iter().find(|report| *report.queue.name == *name);
            let allocated = report.map(|report| report.allocated.clone()).unwrap_or_default();
            (held, allocated.get(PHYSICAL).copied().unwrap_or(0))
        })
    }

    /// What a pod of a queue takes with a device, in GiB. The name of a partition has the number of its parts.
    fn memory_of(&self, queue: usize, device: &str) -> u64 {
        if let Use::Share(memory) = self.uses[queue] {
            return memory;
        }
        let n_parts = device.split('-').nth(1).and_then(|n| n.parse::<u64>().ok());
        MEMORY / n_parts.expect("a partition")
    }
}

#[test]
fn queues_of_equal_weight_have_half_of_the_hardware_each() {
    let (mut n_shared, mut failed) = (0, Vec::new());
    for seed in seeds(200) {
        let shared = Shared::new(seed);
        let held = shared.play();
        let half = shared.n_gpus * MEMORY / 2;
        let largest = shared.uses.into_iter().map(|own| own.memory().1).max().unwrap_or_default();
        let is_counted =
            |(held, counted): &(u64, i64)| *counted == (held * 1000 / MEMORY).cast_signed();
        if held.iter().any(|(held, _)| held.abs_diff(half) >= largest)
            || !held.iter().all(is_counted)
        {
            failed.push(format!("seed {seed}: {held:?} of {half} each, {:?}", shared.uses));
        }
        n_shared += usize::from(held.iter().all(|(held, _)| *held > 0));
    }
    println!("{n_shared} worlds are shared; {failed:#?}");
    assert!(failed.is_empty(), "{failed:#?}");
}
