//! Property: a gang of unlike pods starts exactly if there is an assignment of its pods to nodes, and only within the
//! rules (docs/parity.md#a11). All assignments of small clusters are compared, some of them partly used.
//!
//! `KUBE_BATCH_SEEDS=20000 cargo test -p kube-batch-tests --test laws unlike_gangs::` plays more worlds, and
//! `KUBE_BATCH_SEED=7` one, which it prints.

use std::fmt::Write;

use kube_batch_framework::candidates::Search;
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, simulation::Simulation, world::World};
use kube_batch_tests::random_cluster::Rng;
use kube_batch_yaml::{Limits, parse};

use crate::fitting_gangs::{Played, start_exactly_if_they_fit};

const CONFIGURATION: &str = "name: unlike
config:
  actions: reclaim, allocate, backfill, preempt
  tiers:
  - plugins: [{name: priority}, {name: gang}]
  - plugins: [{name: drf}, {name: topology, arguments: {levels: [rack]}}, {name: predicates}, {name: proportion}, {name: nodeorder}]
";

/// What makes the pods of the gang unlike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unlike {
    /// Their requests.
    Sizes,
    /// Their requests and node selectors.
    Selectors,
    /// A small launcher, and workers that take a whole node each.
    Launcher,
    /// Their requests; all must be in one rack.
    Rack,
    /// Their requests, and a minimum for each role.
    Roles,
    /// Their requests; those of each size are a group of a composite PodGroup that needs all.
    Groups,
}

const KINDS: [Unlike; 6] = [
    Unlike::Sizes,
    Unlike::Selectors,
    Unlike::Launcher,
    Unlike::Rack,
    Unlike::Roles,
    Unlike::Groups,
];

#[derive(Clone, Debug)]
struct Node {
    cpu: u64,
    memory: u64,
    disk: &'static str,
    rack: u64,
}

#[derive(Clone, Debug)]
struct Class {
    cpu: u64,
    memory: u64,
    disk: Option<&'static str>,
    n_pods: u64,
    /// How many of them are needed at least.
    min: u64,
}

/// A cluster, and a gang.
struct Setting {
    unlike: Unlike,
    nodes: Vec<Node>,
    /// What other pods use of the CPUs of each node.
    used: Vec<u64>,
    classes: Vec<Class>,
    min_member: u64,
}

impl Setting {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let unlike = *rng.pick(&KINDS);
        let nodes: Vec<Node> = (0..1 + rng.below(5))
            .map(|_| Node {
                cpu: *rng.pick(&[2, 4, 4, 8]),
                memory: *rng.pick(&[4, 8]),
                disk: if rng.percent(50) { "ssd" } else { "hdd" },
                rack: rng.below(2),
            })
            .collect();
        let used = nodes
            .iter()
            .map(|node| if rng.percent(30) { 1 + rng.below(node.cpu) } else { 0 })
            .collect();
        let mut classes: Vec<Class> = (0..2 + rng.below(2))
            .map(|_| Class {
                cpu: 1 + rng.below(5),
                memory: 1 + rng.below(3),
                disk: None,
                n_pods: 1 + rng.below(3),
                min: 0,
            })
            .collect();
        match unlike {
            Unlike::Selectors => {
                for class in &mut classes {
                    class.disk = *rng.pick(&[None, Some("ssd"), Some("hdd")]);
                }
            }
            Unlike::Launcher => {
                let whole = rng.pick(&nodes).cpu;
                classes.truncate(2);
                (classes[0].cpu, classes[0].n_pods, classes[0].memory) = (1, 1, 1);
                (classes[1].cpu, classes[1].memory) = (whole, 1);
            }
            Unlike::Roles => {
                for class in &mut classes {
                    class.min = rng.below(class.n_pods + 1);
                }
            }
            Unlike::Groups => {
                for class in &mut classes {
                    class.min = class.n_pods;
                }
            }
            Unlike::Sizes | Unlike::Rack => {}
        }
        let n_pods: u64 = classes.iter().map(|class| class.n_pods).sum();
        let of_roles: u64 = classes.iter().map(|class| class.min).sum();
        // Roles are not checked where the minimum of the gang is less than their sum.
        let least = of_roles.max(1);
        let min_member =
            if rng.percent(60) { n_pods } else { least + rng.below(n_pods - least + 1) };
        Self { unlike, nodes, used, classes, min_member }
    }

    fn case(&self) -> String {
        let mut text = format!("{CONFIGURATION}objects:\n");
        text += "- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}, spec: {weight: 1}}\n";
        for (at, Node { cpu, memory, disk, rack }) in self.nodes.iter().enumerate() {
            let _ = writeln!(
                text,
                "- {{apiVersion: v1, kind: Node, metadata: {{name: n{at}, labels: {{disk: {disk}, rack: r{rack}}}}}, status: {{allocatable: {{cpu: '{cpu}', memory: {memory}Gi, pods: '99'}}}}}}"
            );
        }
        for (at, used) in self.used.iter().enumerate().filter(|(_, used)| **used > 0) {
            let _ = writeln!(
                text,
                "- {{apiVersion: v1, kind: Pod, metadata: {{name: other-{at}, namespace: ns}}, spec: {{schedulerName: other, nodeName: n{at}, containers: [{{name: c, resources: {{requests: {{cpu: '{used}'}}}}}}]}}, status: {{phase: Running}}}}"
            );
        }
        let minimum = self.min_member;
        if self.unlike == Unlike::Groups {
            let _ = writeln!(
                text,
                "- {{apiVersion: scheduling.k8s.io/v1alpha3, kind: CompositePodGroup, metadata: {{name: g, namespace: ns}}, spec: {{workloadRef: {{workloadName: w, templateName: g}}, schedulingPolicy: {{gang: {{minGroupCount: {}}}}}}}}}",
                self.classes.len()
            );
            for (at, class) in self.classes.iter().enumerate() {
                let _ = writeln!(
                    text,
                    "- {{apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, metadata: {{name: g{at}, namespace: ns}}, spec: {{workloadRef: {{workloadName: w, templateName: g{at}}}, schedulingPolicy: {{gang: {{minCount: {}}}}}, parentCompositePodGroupName: g}}}}",
                    class.n_pods
                );
            }
        } else if self.unlike == Unlike::Roles {
            let roles: Vec<String> = self
                .classes
                .iter()
                .enumerate()
                .map(|(at, class)| format!("role{at}: {}", class.min))
                .collect();
            let _ = writeln!(
                text,
                "- {{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {{name: g, namespace: ns}}, spec: {{minMember: {minimum}, queue: default, minTaskMember: {{{}}}}}}}",
                roles.join(", ")
            );
        } else {
            let required = match self.unlike {
                Unlike::Rack => ", annotations: {scheduling.sigs.dev/topology-required: rack}",
                _ => "",
            };
            let _ = writeln!(
                text,
                "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {{name: g, namespace: ns{required}}}, spec: {{minMember: {minimum}, queue: default}}}}"
            );
        }
        for (at, class) in self.classes.iter().enumerate() {
            let Class { cpu, memory, disk, n_pods, .. } = class;
            let selector =
                disk.map(|disk| format!("nodeSelector: {{disk: {disk}}}, ")).unwrap_or_default();
            let task = match self.unlike {
                Unlike::Roles => format!(", volcano.sh/task-spec: role{at}"),
                _ => String::new(),
            };
            let (annotation, field) = match self.unlike {
                Unlike::Groups => {
                    (String::new(), format!("schedulingGroup: {{podGroupName: g{at}}}, "))
                }
                _ => (format!("scheduling.k8s.io/group-name: g{task}"), String::new()),
            };
            for pod in 0..*n_pods {
                let _ = writeln!(
                    text,
                    "- {{apiVersion: v1, kind: Pod, metadata: {{name: g-{at}-{pod}, namespace: ns, annotations: {{{annotation}}}}}, spec: {{schedulerName: kube-batch, {field}{selector}containers: [{{name: c, resources: {{requests: {{cpu: '{cpu}', memory: {memory}Gi}}}}}}]}}}}"
                );
            }
        }
        text + "steps:\n- cycles: 1\n"
    }

    /// How many pods of each class are on nodes after some cycles, and on which.
    fn play(&self) -> Vec<Vec<usize>> {
        let text = self.case();
        let document = parse(&text, &Limits::default()).expect("YAML");
        let case = Case::read(&document, &Registry::builtin()).expect("a case");
        let mut world =
            World::new(case.environment, case.options.clone(), case.conf.metadata_prefixes());
        for object in &case.objects {
            world.apply(object.value.clone()).expect("the object is valid");
        }
        let mut simulation = Simulation::new(world, case.conf.clone(), Search::Index);
        for _ in 0..3 {
            simulation.cycle(&mut |_| {});
        }
        let mut places = vec![Vec::new(); self.classes.len()];
        for (key, facts) in simulation.world.store.pods.iter() {
            let mut parts = key.name.split('-');
            let (Some("g"), Some(class)) = (parts.next(), parts.next()) else { continue };
            let node = facts.node.as_ref().and_then(|node| node[1..].parse().ok());
            if let (Some(node), Ok(class)) = (node, class.parse::<usize>()) {
                places[class].push(node);
            }
        }
        places
    }

    fn is_enough(&self, n_placed: &[u64]) -> bool {
        let mut of_classes = self.classes.iter().zip(n_placed);
        n_placed.iter().sum::<u64>() >= self.min_member
            && of_classes.all(|(class, n_placed)| *n_placed >= class.min)
    }

    /// Whether there is an assignment, in one rack if the gang requires one.
    fn fits(&self) -> bool {
        let racks: &[Option<u64>] = match self.unlike {
            Unlike::Rack => &[Some(0), Some(1)],
            _ => &[None],
        };
        racks.iter().any(|rack| {
            let mut free = self.free();
            let mut n_placed = vec![0; self.classes.len()];
            self.place_rest(*rack, &mut free, &mut n_placed, (0, 0))
        })
    }

    fn free(&self) -> Vec<(i64, i64)> {
        let free = |(node, used): (&Node, &u64)| {
            (node.cpu.cast_signed() - used.cast_signed(), node.memory.cast_signed())
        };
        self.nodes.iter().zip(&self.used).map(free).collect()
    }

    /// Tries all nodes from one on for the next pod of a class, and to leave the rest of the class out.
    fn place_rest(
        &self,
        rack: Option<u64>,
        free: &mut [(i64, i64)],
        n_placed: &mut [u64],
        (class, first): (usize, usize),
    ) -> bool {
        if self.is_enough(n_placed) {
            return true;
        }
        let Some(Class { cpu, memory, disk, n_pods, .. }) = self.classes.get(class) else {
            return false;
        };
        let (cpu, memory) = (cpu.cast_signed(), memory.cast_signed());
        if n_placed[class] < *n_pods {
            for node in first..self.nodes.len() {
                let Node { disk: own, rack: of_node, .. } = &self.nodes[node];
                let is_admitted = disk.is_none_or(|disk| disk == *own)
                    && rack.is_none_or(|rack| rack == *of_node);
                if !is_admitted || free[node].0 < cpu || free[node].1 < memory {
                    continue;
                }
                free[node].0 -= cpu;
                free[node].1 -= memory;
                n_placed[class] += 1;
                let fits = self.place_rest(rack, free, n_placed, (class, node));
                free[node].0 += cpu;
                free[node].1 += memory;
                n_placed[class] -= 1;
                if fits {
                    return true;
                }
            }
        }
        self.place_rest(rack, free, n_placed, (class + 1, 0))
    }

    /// What the places break.
    fn broken_rule(&self, places: &[Vec<usize>]) -> Option<String> {
        let n_placed: Vec<u64> = places.iter().map(|nodes| nodes.len() as u64).collect();
        if n_placed.iter().all(|n_placed| *n_placed == 0) {
            return None;
        }
        if !self.is_enough(&n_placed) {
            return Some(format!("only a part starts: {n_placed:?}"));
        }
        let mut free = self.free();
        for (class, nodes) in self.classes.iter().zip(places) {
            for node in nodes {
                free[*node].0 -= class.cpu.cast_signed();
                free[*node].1 -= class.memory.cast_signed();
                if class.disk.is_some_and(|disk| disk != self.nodes[*node].disk) {
                    return Some(format!("n{node} is not selected"));
                }
            }
        }
        let mut racks: Vec<u64> =
            places.iter().flatten().map(|node| self.nodes[*node].rack).collect();
        racks.sort_unstable();
        racks.dedup();
        let is_scattered = self.unlike == Unlike::Rack && racks.len() > 1;
        let is_full = free.iter().any(|(cpu, memory)| *cpu < 0 || *memory < 0);
        (is_scattered || is_full).then(|| format!("the places are wrong: {places:?}"))
    }
}

#[test]
fn gangs_start_exactly_if_they_fit() {
    start_exactly_if_they_fit(&KINDS, |seed, is_shown| {
        let setting = Setting::new(seed);
        if is_shown {
            println!("{}", setting.case());
        }
        let places = setting.play();
        Played {
            kind: setting.unlike,
            fits: setting.fits(),
            starts: places.iter().any(|nodes| !nodes.is_empty()),
            broken_rule: setting.broken_rule(&places),
        }
    });
}
