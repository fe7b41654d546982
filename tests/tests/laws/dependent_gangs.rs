//! Property: a gang whose pods depend on each other starts exactly if its pods can be placed in some order, each where
//! the rules admit it then (docs/parity.md#a11). All orders and places in small clusters are compared, some of them
//! partly used.
//!
//! `KUBE_BATCH_SEEDS=20000 cargo test -p kube-batch-tests --test laws dependent_gangs::` plays more worlds, and
//! `KUBE_BATCH_SEED=7` one, which it prints.

use std::{collections::BTreeSet, fmt::Write};

use kube_batch_framework::candidates::Search;
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, simulation::Simulation, world::World};
use kube_batch_tests::random_cluster::Rng;
use kube_batch_yaml::{Limits, parse};

use crate::fitting_gangs::{Played, start_exactly_if_they_fit};

const CONFIGURATION: &str = "name: dependent
config:
  actions: reclaim, allocate, backfill, preempt
  tiers:
  - plugins: [{name: priority}, {name: gang}]
  - plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
objects:
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}, spec: {weight: 1}}
";

/// How the pods of the gang depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Workers require the rack of their leader.
    Leader,
    /// Pods of the first class share no node with pods of the second.
    Apart,
    /// The pods of the first two classes use the same host port.
    Ports,
    /// The pods of the first class are spread over racks.
    Spread,
    /// Pods want any device, or one of a model, or one of the first of two models that is free.
    Devices,
    /// Pods want a whole device or else a half, or only one of these.
    Partitions,
    /// All share a claim for a device that one rack can use.
    SharedClaim,
    /// All share a claim for a volume that is made when the first pod is placed.
    SharedVolume,
}

const KINDS: [Kind; 8] = [
    Kind::Leader,
    Kind::Apart,
    Kind::Ports,
    Kind::Spread,
    Kind::Devices,
    Kind::Partitions,
    Kind::SharedClaim,
    Kind::SharedVolume,
];

/// A template of claims, and for each of its alternatives what it takes: a model, or how many halves.
const DEVICES: [(&str, &[u64]); 4] =
    [("any", &[0, 1]), ("model-0", &[0]), ("model-1", &[1]), ("either", &[1, 0])];
const PARTITIONS: [(&str, &[u64]); 3] =
    [("whole", &[2]), ("half", &[1]), ("whole-or-half", &[2, 1])];

/// From where a shared volume can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Anywhere,
    Rack,
    Node,
}

#[derive(Clone, Debug)]
struct Node {
    cpu: u64,
    used: u64,
    rack: u64,
    /// The model of each device, or 2 for each device that has two halves.
    devices: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Class {
    cpu: u64,
    n_pods: u64,
    /// The position of its template of claims.
    wants: usize,
}

/// A cluster, and a gang.
#[derive(Clone, Debug)]
struct Setting {
    kind: Kind,
    nodes: Vec<Node>,
    classes: Vec<Class>,
    min_member: u64,
    reach: Reach,
    /// The racks that have a device for the shared claim.
    channels: Vec<u64>,
}

/// What has been placed: the number of pods of each class on each node, and what is left of each device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    placed: Vec<Vec<u64>>,
    left: Vec<Vec<u64>>,
}

impl Setting {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let kind = *rng.pick(&KINDS);
        let n_nodes = 2 + rng.below(3);
        let mut nodes = Vec::new();
        for _ in 0..n_nodes {
            let cpu = *rng.pick(&[2, 4, 4]);
            let used = if rng.percent(30) { 1 + rng.below(cpu) } else { 0 };
            let devices = match kind {
                Kind::Devices => (0..rng.below(3)).map(|_| rng.below(2)).collect(),
                Kind::Partitions => vec![2; rng.below(3) as usize],
                _ => Vec::new(),
            };
            nodes.push(Node { cpu, used, rack: rng.below(3), devices });
        }
        let n_classes = match kind {
            Kind::SharedClaim | Kind::SharedVolume | Kind::Partitions => 1 + rng.below(2),
            _ => 2,
        };
        let n_templates = if kind == Kind::Partitions { PARTITIONS.len() } else { DEVICES.len() };
        let mut classes: Vec<Class> = (0..n_classes)
            .map(|_| Class {
                cpu: 1 + rng.below(3),
                n_pods: 1 + rng.below(3),
                wants: rng.below(n_templates as u64) as usize,
            })
            .collect();
        if kind == Kind::Leader {
            classes[0].n_pods = 1;
        }
        let n_pods: u64 = classes.iter().map(|class| class.n_pods).sum();
        let min_member = if rng.percent(60) { n_pods } else { 1 + rng.below(n_pods) };
        let reach = *rng.pick(&[Reach::Anywhere, Reach::Rack, Reach::Node]);
        let channels = (0..3).filter(|_| rng.percent(60)).collect();
        Self { kind, nodes, classes, min_member, reach, channels }
    }

    fn case(&self) -> String {
        let mut text = CONFIGURATION.to_owned();
        let mut add = |object: String| {
            let _ = writeln!(text, "- {object}");
        };
        for (at, Node { cpu, used, rack, .. }) in self.nodes.iter().enumerate() {
            add(format!(
                "{{apiVersion: v1, kind: Node, metadata: {{name: n{at}, labels: {{rack: r{rack}, kubernetes.io/hostname: n{at}}}}}, status: {{allocatable: {{cpu: '{cpu}', memory: 64Gi, pods: '99'}}}}}}"
            ));
            if *used > 0 {
                add(format!(
                    "{{apiVersion: v1, kind: Pod, metadata: {{name: other-{at}, namespace: ns}}, spec: {{schedulerName: other, nodeName: n{at}, containers: [{{name: c, resources: {{requests: {{cpu: '{used}'}}}}}}]}}, status: {{phase: Running}}}}"
                ));
            }
        }
        match self.kind {
            Kind::Devices | Kind::Partitions | Kind::SharedClaim => self.add_devices(&mut add),
            Kind::SharedVolume => self.add_volume(&mut add),
            Kind::Leader | Kind::Apart | Kind::Ports | Kind::Spread => {}
        }
        let minimum = self.min_member;
        add(format!(
            "{{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {{name: g, namespace: ns}}, spec: {{minMember: {minimum}, queue: default}}}}"
        ));
        for (at, class) in self.classes.iter().enumerate() {
            let cpu = class.cpu;
            let (spec, container) = self.rules(at);
            for pod in 0..class.n_pods {
                add(format!(
                    "{{apiVersion: v1, kind: Pod, metadata: {{name: g-{at}-{pod}, namespace: ns, labels: {{class: c{at}}}, annotations: {{scheduling.k8s.io/group-name: g}}}}, spec: {{schedulerName: kube-batch, {spec}containers: [{{name: c, resources: {{requests: {{cpu: '{cpu}'}}}}{container}}}]}}}}"
                ));
            }
        }
        text + "steps:\n- cycles: 1\n"
    }

    /// What is special in the pods of a class, and in their container.
    fn rules(&self, class: usize) -> (String, String) {
        let near = "requiredDuringSchedulingIgnoredDuringExecution";
        let template = match self.kind {
            Kind::Partitions => PARTITIONS[self.classes[class].wants].0,
            _ => DEVICES[self.classes[class].wants].0,
        };
        match (self.kind, class) {
            (Kind::Leader, 1) => (
                format!(
                    "affinity: {{podAffinity: {{{near}: [{{labelSelector: {{matchLabels: {{class: c0}}}}, topologyKey: rack}}]}}}}, "
                ),
                String::new(),
            ),
            (Kind::Apart, 0) => (
                format!(
                    "affinity: {{podAntiAffinity: {{{near}: [{{labelSelector: {{matchLabels: {{class: c1}}}}, topologyKey: kubernetes.io/hostname}}]}}}}, "
                ),
                String::new(),
            ),
            (Kind::Ports, _) => {
                (String::new(), ", ports: [{containerPort: 80, hostPort: 80}]".to_owned())
            }
            (Kind::Spread, 0) => (
                "topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {class: c0}}}], ".to_owned(),
                String::new(),
            ),
            (Kind::Devices | Kind::Partitions, _) => (
                format!("resourceClaims: [{{name: d, resourceClaimTemplateName: {template}}}], "),
                String::new(),
            ),
            (Kind::SharedClaim, _) => {
                ("resourceClaims: [{name: d, resourceClaimName: channel}], ".to_owned(), String::new())
            }
            (Kind::SharedVolume, _) => (
                "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}], ".to_owned(),
                String::new(),
            ),
            (Kind::Leader | Kind::Apart | Kind::Spread, _) => (String::new(), String::new()),
        }
    }

    fn add_devices(&self, add: &mut impl FnMut(String)) {
        add("{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {selectors: [{cel: {expression: device.driver == \"gpu\"}}]}}".to_owned());
        let exactly = |kind: &str| {
            format!(
                "deviceClassName: gpu, selectors: [{{cel: {{expression: \"device.attributes['gpu'].kind == '{kind}'\"}}}}]"
            )
        };
        let first = |kinds: &[&str]| {
            let list: Vec<String> =
                kinds.iter().map(|kind| format!("{{name: {kind}, {}}}", exactly(kind))).collect();
            format!("firstAvailable: [{}]", list.join(", "))
        };
        let templates = [
            ("any", "exactly: {deviceClassName: gpu}".to_owned()),
            ("model-0", format!("exactly: {{{}}}", exactly("m0"))),
            ("model-1", format!("exactly: {{{}}}", exactly("m1"))),
            ("either", first(&["m1", "m0"])),
            ("whole", format!("exactly: {{{}}}", exactly("whole"))),
            ("half", format!("exactly: {{{}}}", exactly("half"))),
            ("whole-or-half", first(&["whole", "half"])),
        ];
        for (name, request) in templates {
            add(format!(
                "{{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {{name: {name}, namespace: ns}}, spec: {{spec: {{devices: {{requests: [{{name: r, {request}}}]}}}}}}}}"
            ));
        }
        if self.kind == Kind::SharedClaim {
            add("{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: channel, namespace: ns}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}".to_owned());
            for rack in &self.channels {
                add(format!(
                    "{{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {{name: r{rack}}}, spec: {{driver: gpu, nodeSelector: {{nodeSelectorTerms: [{{matchExpressions: [{{key: rack, operator: In, values: [r{rack}]}}]}}]}}, pool: {{name: r{rack}, generation: 1, resourceSliceCount: 1}}, devices: [{{name: ch}}]}}}}"
                ));
            }
        }
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| !node.devices.is_empty())
        {
            if self.kind == Kind::Devices {
                let devices = node.devices.iter().enumerate().map(|(device, model)| {
                    format!("{{name: d{device}, attributes: {{kind: {{string: m{model}}}}}}}")
                });
                let devices: Vec<String> = devices.collect();
                add(format!(
                    "{{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {{name: n{at}}}, spec: {{driver: gpu, nodeName: n{at}, pool: {{name: n{at}, generation: 1, resourceSliceCount: 1}}, devices: [{}]}}}}",
                    devices.join(", ")
                ));
                continue;
            }
            let counters = (0..node.devices.len())
                .map(|device| format!("{{name: c{device}, counters: {{w: {{value: '2'}}}}}}"));
            add(format!(
                "{{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {{name: n{at}-c}}, spec: {{driver: gpu, nodeName: n{at}, pool: {{name: n{at}, generation: 1, resourceSliceCount: 2}}, sharedCounters: [{}]}}}}",
                counters.collect::<Vec<_>>().join(", ")
            ));
            let devices = (0..node.devices.len()).flat_map(|device| {
                let part = |name: String, kind: &str, n: u64| {
                    format!(
                        "{{name: {name}, attributes: {{kind: {{string: {kind}}}}}, consumesCounters: [{{counterSet: c{device}, counters: {{w: {{value: '{n}'}}}}}}]}}"
                    )
                };
                [
                    part(format!("d{device}"), "whole", 2),
                    part(format!("d{device}-0"), "half", 1),
                    part(format!("d{device}-1"), "half", 1),
                ]
            });
            add(format!(
                "{{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {{name: n{at}-d}}, spec: {{driver: gpu, nodeName: n{at}, pool: {{name: n{at}, generation: 1, resourceSliceCount: 2}}, devices: [{}]}}}}",
                devices.collect::<Vec<_>>().join(", ")
            ));
        }
    }

    fn add_volume(&self, add: &mut impl FnMut(String)) {
        let mode = match self.reach {
            Reach::Node => "ReadWriteOnce",
            Reach::Anywhere | Reach::Rack => "ReadWriteMany",
        };
        add("{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: shared}, provisioner: files, volumeBindingMode: WaitForFirstConsumer}".to_owned());
        add(format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: data, namespace: ns}}, spec: {{storageClassName: shared, accessModes: [{mode}], resources: {{requests: {{storage: 1Gi}}}}}}}}"
        ));
        if self.reach == Reach::Rack {
            for at in 0..self.nodes.len() {
                add(format!(
                    "{{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {{name: n{at}}}, spec: {{drivers: [{{name: files, nodeID: n{at}, topologyKeys: [rack]}}]}}}}"
                ));
            }
        }
    }

    /// How many pods of each class are on each node after some cycles.
    fn play(&self) -> Vec<Vec<u64>> {
        let text = self.case();
        let document = parse(&text, &Limits::default()).expect("YAML");
        let case = Case::read(&document, &Registry::builtin()).expect("a case");
        let mut world =
            World::new(case.environment, case.options.clone(), case.conf.metadata_prefixes());
        for object in &case.objects {
            world.apply(object.value.clone()).expect("the object is valid");
        }
        let mut simulation = Simulation::new(world, case.conf.clone(), Search::Index);
        for _ in 0..4 {
            simulation.cycle(&mut |_| {});
        }
        let mut placed = vec![vec![0; self.nodes.len()]; self.classes.len()];
        for (key, facts) in simulation.world.store.pods.iter() {
            let mut parts = key.name.split('-');
            let (Some("g"), Some(class)) = (parts.next(), parts.next()) else { continue };
            let node = facts.node.as_ref().and_then(|node| node[1..].parse::<usize>().ok());
            if let (Some(node), Ok(class)) = (node, class.parse::<usize>()) {
                placed[class][node] += 1;
            }
        }
        placed
    }

    fn start(&self) -> State {
        let units = |node: &Node| {
            let units = |model: &u64| if self.kind == Kind::Partitions { *model } else { 1 };
            node.devices.iter().map(units).collect()
        };
        State {
            placed: vec![vec![0; self.nodes.len()]; self.classes.len()],
            left: self.nodes.iter().map(units).collect(),
        }
    }

    fn is_enough(&self, state: &State) -> bool {
        state.placed.iter().flatten().sum::<u64>() >= self.min_member
    }

    /// Whether the pods of the gang can be placed so that it has its minimum.
    fn fits(&self) -> bool {
        let most: Vec<Vec<u64>> =
            self.classes.iter().map(|class| vec![class.n_pods; self.nodes.len()]).collect();
        self.reaches(&most, &|state| self.is_enough(state))
    }

    /// Whether some order of placements, on each node at most these numbers of each class, leads to a state.
    fn reaches(&self, most: &[Vec<u64>], is_wanted: &dyn Fn(&State) -> bool) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = vec![self.start()];
        while let Some(state) = open.pop() {
            if is_wanted(&state) {
                return true;
            }
            for (class, node) in (0..self.classes.len())
                .flat_map(|class| (0..self.nodes.len()).map(move |node| (class, node)))
            {
                if state.placed[class][node] < most[class][node] {
                    for next in self.next(&state, class, node) {
                        if seen.insert(next.clone()) {
                            open.push(next);
                        }
                    }
                }
            }
        }
        false
    }

    /// The states after one more pod of a class was placed on a node.
    fn next(&self, state: &State, class: usize, node: usize) -> Vec<State> {
        let own = &self.classes[class];
        let placed = &state.placed;
        let used: u64 =
            self.classes.iter().zip(placed).map(|(class, on)| class.cpu * on[node]).sum();
        let is_full = self.nodes[node].used + used + own.cpu > self.nodes[node].cpu
            || placed[class].iter().sum::<u64>() >= own.n_pods;
        if is_full || !self.admits(state, class, node) {
            return Vec::new();
        }
        let mut next = state.clone();
        next.placed[class][node] += 1;
        let take = |(device, amount): (usize, u64)| {
            let mut next = next.clone();
            next.left[node][device] -= amount;
            next
        };
        let left = state.left[node].iter().enumerate();
        match self.kind {
            Kind::Devices => {
                let models = DEVICES[own.wants].1;
                let devices = left.filter(|(device, left)| {
                    **left > 0 && models.contains(&self.nodes[node].devices[*device])
                });
                devices.map(|(device, _)| take((device, 1))).collect()
            }
            Kind::Partitions => {
                let amounts = PARTITIONS[own.wants].1.iter();
                let devices = amounts.flat_map(|amount| {
                    let left = state.left[node].iter().enumerate();
                    let left = left.filter(move |(_, left)| *left >= amount);
                    left.map(move |(device, _)| (device, *amount))
                });
                devices.map(take).collect()
            }
            _ => vec![next],
        }
    }

    /// Whether the rules admit one more pod of a class to a node.
    fn admits(&self, state: &State, class: usize, node: usize) -> bool {
        let placed = &state.placed;
        let rack = self.nodes[node].rack;
        let in_rack = |class: usize, rack: u64| -> u64 {
            let nodes = self.nodes.iter().zip(&placed[class]);
            nodes.filter(|(node, _)| node.rack == rack).map(|(_, n)| n).sum()
        };
        let used: Vec<usize> =
            (0..self.nodes.len()).filter(|node| placed.iter().any(|on| on[*node] > 0)).collect();
        match self.kind {
            Kind::Leader => class == 0 || in_rack(0, rack) > 0,
            Kind::Apart => placed[1 - class][node] == 0,
            Kind::Ports => placed.iter().all(|on| on[node] == 0),
            Kind::Spread => {
                let least = self.nodes.iter().map(|node| in_rack(0, node.rack)).min();
                class != 0 || in_rack(0, rack) + 1 - least.unwrap_or(0) <= 1
            }
            Kind::Devices | Kind::Partitions => true,
            Kind::SharedClaim => {
                self.channels.contains(&rack)
                    && used.iter().all(|other| self.nodes[*other].rack == rack)
            }
            Kind::SharedVolume => used.iter().all(|other| match self.reach {
                Reach::Anywhere => true,
                Reach::Rack => self.nodes[*other].rack == rack,
                Reach::Node => *other == node,
            }),
        }
    }

    /// What the places break.
    fn broken_rule(&self, placed: &[Vec<u64>]) -> Option<String> {
        if placed.iter().flatten().all(|n_placed| *n_placed == 0) {
            return None;
        }
        // Once a volume for one node is made, Kubernetes admits further pods to other nodes, where it is not attached.
        let reach = if self.reach == Reach::Node { Reach::Anywhere } else { self.reach };
        let bound = Self { reach, ..self.clone() };
        let is_it = |state: &State| state.placed == placed && self.is_enough(state);
        (!bound.reaches(placed, &is_it)).then(|| format!("the places are wrong: {placed:?}"))
    }
}

#[test]
fn gangs_start_exactly_if_their_pods_can_be_placed() {
    start_exactly_if_they_fit(&KINDS, |seed, is_shown| {
        let setting = Setting::new(seed);
        if is_shown {
            println!("{}", setting.case());
        }
        let places = setting.play();
        Played {
            kind: setting.kind,
            fits: setting.fits(),
            starts: places.iter().flatten().any(|n_placed| *n_placed > 0),
            broken_rule: setting.broken_rule(&places),
        }
    });
}
