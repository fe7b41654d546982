//! Random clusters: all random choices derive from one seed.
//!
//! A random cluster is a test case: a small cluster with any mix of gangs, plain pods, best-effort
//! pods, priorities, taints, ports, affinity, capabilities and terminating pods, and steps that
//! change it between cycles. A cluster that fails is printed as a case file.

mod devices;
mod rng;
mod text;

use std::{collections::BTreeMap, fmt::Write};

pub use self::rng::Rng;
use self::{devices::with_devices, text::between};

/// The parts of a random cluster; a failing cluster is reduced by leaving parts out.
#[derive(Clone, Debug)]
pub struct RandomCluster {
    /// The seed that it was generated from.
    pub seed: u64,
    /// `config`, `environment` and `options`.
    pub head: String,
    /// Manifests, one document line each.
    pub objects: Vec<String>,
    /// Changes, each followed by cycles.
    pub changes: Vec<Vec<String>>,
    /// Number of cycles after the last change, or after the objects if there is none.
    pub last_cycles: u32,
}

impl RandomCluster {
    /// Generates a random cluster.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let head = with_whole_gangs(seed, head(&mut rng));
        // In one cluster some features are off and others frequent: this finds more bugs than an equal
        // mix.
        let features = Features::new(&mut rng);
        let mut objects = Vec::new();
        let n_nodes = 1 + rng.below(5);
        for n in 0..n_nodes {
            objects.push(node(&mut rng, &features, n));
        }
        let n_queues = 1 + rng.below(3);
        for n in 0..n_queues {
            objects.push(queue(&mut rng, &features, n));
        }
        objects.extend(priority_classes());
        let n_groups = 1 + rng.below(5);
        for n in 0..n_groups {
            group(&mut rng, &features, n, n_queues, n_nodes, &mut objects);
        }
        let head = with_protection(seed, head, &mut objects);
        let head = with_topology(seed, head, objects.iter_mut());
        let n_changes = rng.below(4);
        let mut changes: Vec<Vec<String>> =
            (0..n_changes).map(|n| change(&mut rng, &features, n, n_groups)).collect();
        with_other_api(seed, objects.iter_mut().chain(changes.iter_mut().flatten()).collect());
        with_composites(seed, &mut objects, &mut changes);
        with_devices(seed, &mut objects, &mut changes);
        let last_cycles = if n_changes == 0 { 4 } else { 3 };
        Self { seed, head, objects, changes, last_cycles }
    }

    /// Generates a cluster in which jobs arrive one after another and compete for resources: every pod has
    /// a controller that replaces it when it is evicted. At the end nothing changes for enough cycles
    /// to reach a stable state.
    pub fn contended(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let actions =
            rng.pick(&["reclaim, allocate, backfill, preempt", "allocate, backfill, preempt"]);
        let (start, end) = (rng.below(2), rng.below(4));
        let head = head_of(actions, TIERS[rng.below(2) as usize], start, end);
        let head = with_whole_gangs(seed, head);
        let mut features = Features::new(&mut rng);
        // No pod is running yet, and mostly only free resources limit placement.
        (features.running, features.terminating, features.gated, features.taints) = (0, 0, 0, 0);
        // After a nomination, a pod may be evicted that the nominated one needs: by required affinity,
        // or for the minimum of a strict spread constraint.
        features.needs_other_pods = false;
        for percent in [&mut features.selectors, &mut features.ports, &mut features.affinity] {
            *percent /= 3;
        }
        let mut objects: Vec<String> =
            (0..1 + rng.below(3)).map(|n| large_node(&mut rng, n)).collect();
        let n_queues = 1 + rng.below(3);
        objects.extend((0..n_queues).map(|n| queue(&mut rng, &features, n)));
        objects.extend(priority_classes());
        let head = with_protection(seed, head, &mut objects);
        let mut changes: Vec<Vec<String>> = Vec::new();
        for n in 0..3 + rng.below(4) {
            let mut job = Vec::new();
            controlled_group(&mut rng, &features, n, n_queues, &mut job);
            if n == 0 || rng.percent(30) {
                changes.last_mut().unwrap_or(&mut objects).extend(job);
            } else {
                changes.push(job);
            }
        }
        let all = objects.iter_mut().chain(changes.iter_mut().flatten());
        let head = with_topology(seed, head, all);
        with_other_api(seed, objects.iter_mut().chain(changes.iter_mut().flatten()).collect());
        with_composites(seed, &mut objects, &mut changes);
        with_devices(seed, &mut objects, &mut changes);
        Self { seed, head, objects, changes, last_cycles: 40 }
    }

    /// Whether nodes have devices, or could have.
    pub fn has_devices(&self) -> bool {
        self.objects.iter().any(|object| object.contains("kind: DeviceClass"))
    }

    /// The cluster as a test case without expectations.
    pub fn case(&self) -> String {
        let mut text = format!("name: random-{}\n{}objects:\n", self.seed, self.head);
        for object in &self.objects {
            let _ = writeln!(text, "- {object}");
        }
        let cycles = |at: usize, usual: u32| {
            if at == self.changes.len() { self.last_cycles } else { usual }
        };
        let _ = writeln!(text, "steps:\n- cycles: {}", cycles(0, 4));
        for (at, change) in self.changes.iter().enumerate() {
            text.push_str("- apply:\n");
            for object in change {
                let _ = writeln!(text, "  - {object}");
            }
            let _ = writeln!(text, "  cycles: {}", cycles(at + 1, 3));
        }
        text
    }
}

/// How often the features of a random cluster occur, in percent.
struct Features {
    taints: u64,
    selectors: u64,
    ports: u64,
    affinity: u64,
    best_effort: u64,
    running: u64,
    terminating: u64,
    capability: u64,
    gpus: u64,
    gated: u64,
    never_preempts: u64,
    /// Whether pods may have rules that need other pods: required affinity, strict spread.
    needs_other_pods: bool,
    small_nodes: bool,
}

impl Features {
    fn new(rng: &mut Rng) -> Self {
        let mut percent = |most| if rng.percent(50) { 0 } else { rng.below(most) };
        Self {
            taints: percent(40),
            selectors: percent(50),
            ports: percent(60),
            affinity: percent(60),
            best_effort: percent(40),
            running: percent(80),
            terminating: percent(40),
            capability: percent(60),
            gpus: percent(50),
            gated: percent(20),
            never_preempts: percent(30),
            needs_other_pods: true,
            small_nodes: rng.percent(60),
        }
    }
}

/// Tiers to choose from, the usual ones first.
const TIERS: [&str; 7] = [
    "[{plugins: [{name: priority}, {name: gang}, {name: conformance}]}, {plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]}]",
    "[{plugins: [{name: priority}, {name: gang}]}, {plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]}]",
    "[{plugins: [{name: gang}, {name: drf}]}, {plugins: [{name: predicates}, {name: proportion}]}]",
    "[{plugins: [{name: drf}, {name: gang}, {name: proportion}]}, {plugins: [{name: predicates}, {name: nodeorder, arguments: {mostrequested.weight: '3', leastrequested.weight: '0'}}]}]",
    "[{plugins: [{name: priority}, {name: gang}, {name: conformance}]}, {plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}, {name: reservation, arguments: {reservation.after: 0s}}]}]",
    "[{plugins: [{name: priority}, {name: gang, arguments: {gang.evictWholeGangs: true}}]}, {plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}, {name: reservation, arguments: {reservation.after: 3s, reservation.patience: 10s, reservation.protection: 5s}}]}]",
    "[{plugins: [{name: priority}, {name: gang}]}, {plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: binpack, arguments: {binpack.weight: 3, binpack.cpu: 2, binpack.resources: 'nvidia.com/gpu, pods', binpack.resources.nvidia.com/gpu: 5}}, {name: nodeorder, arguments: {mostrequested.weight: '2', mostrequested.resources: {nvidia.com/gpu: 5, cpu: 1}, leastrequested.resources: {ephemeral-storage: 1, memory: 3}, balancedresource.resources: {cpu: 1, memory: 1, nvidia.com/gpu: 1}}}]}]",
];

fn priority_classes() -> impl Iterator<Item = String> {
    [("low", 10), ("mid", 100), ("high", 1000)].into_iter().map(|(name, value)| {
        format!(
            "{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: {name}}}, value: {value}}}"
        )
    })
}

fn head(rng: &mut Rng) -> String {
    let actions = rng.pick(&[
        "allocate, backfill",
        "reclaim, allocate, backfill, preempt",
        "reclaim, allocate, backfill, preempt",
        "allocate, preempt",
        "reclaim, allocate",
        "preempt, backfill, allocate, reclaim",
    ]);
    let tiers = rng.pick(&TIERS);
    let (start, end) = (rng.below(2), rng.below(3));
    head_of(actions, tiers, start, end)
}

/// In half of the clusters gangs are evicted as a whole, in some of them only if that is not out of proportion.
fn with_whole_gangs(seed: u64, head: String) -> String {
    let mut rng = Rng::new(!seed);
    if rng.percent(50) {
        return head;
    }
    let limit = rng.pick(&["", "", ", gang.maxLoss: 1", ", gang.maxLoss: 2"]);
    let with_arguments =
        format!("{{name: gang, arguments: {{gang.evictWholeGangs: 'true'{limit}}}}}");
    head.replace("{name: gang}", &with_arguments)
}

/// In some clusters disruption budgets protect pods, and in some queues they run for a while.
fn with_protection(seed: u64, head: String, objects: &mut Vec<String>) -> String {
    let mut rng = Rng::new(seed.rotate_left(32));
    for object in objects.iter_mut().filter(|object| object.contains("kind: Queue")) {
        if rng.percent(20) {
            *object = object.replace("{weight:", "{minRuntime: 3s, weight:");
        }
    }
    if rng.percent(60) {
        return head;
    }
    for n in 0..1 + rng.below(2) {
        let (label, allowed) = (rng.below(3), rng.below(3));
        objects.push(format!(
            "{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: b{n}, namespace: ns}}, spec: {{selector: {{matchLabels: {{app: a{label}}}}}}}, status: {{disruptionsAllowed: {allowed}}}}}"
        ));
    }
    let mode = rng.pick(&["prefer", "require"]);
    let with_plugin = format!("{{name: pdb, arguments: {{pdb.mode: {mode}}}}}, {{name: gang");
    head.replacen("{name: gang", &with_plugin, 1)
}

/// In some clusters PodGroups ask for a topology.
fn with_topology<'a>(
    seed: u64,
    head: String,
    objects: impl Iterator<Item = &'a mut String>,
) -> String {
    let mut rng = Rng::new(seed.rotate_left(16));
    if rng.percent(60) {
        return head;
    }
    for object in objects {
        if object.contains("kind: Node") && rng.percent(80) {
            *object = object.replace("labels: {", &format!("labels: {{rack: r{}, ", rng.below(3)));
        } else if object.contains("kind: PodGroup") && rng.percent(50) {
            let level = rng.pick(&["zone", "rack", "disk"]);
            let kind = rng.pick(&["required", "required", "preferred"]);
            let annotations =
                format!("annotations: {{scheduling.sigs.dev/topology-{kind}: {level}}}, name: g");
            *object = object.replacen("name: g", &annotations, 1);
        }
    }
    let levels = rng.pick(&["", "zone", "zone, rack"]);
    let plugin =
        format!("{{name: topology, arguments: {{levels: [{levels}]}}}}, {{name: predicates}}");
    head.replacen("{name: predicates}", &plugin, 1)
}

/// In some clusters the PodGroups are of another API.
fn with_other_api(seed: u64, mut objects: Vec<&mut String>) {
    let mut rng = Rng::new(seed.rotate_left(48));
    if rng.percent(60) {
        return;
    }
    match rng.below(3) {
        0 => objects.iter_mut().for_each(|object| to_volcano(&mut rng, object)),
        1 => objects.iter_mut().for_each(|object| to_coscheduling(object)),
        _ => to_kubernetes(&mut objects),
    }
}

const OWN_GROUP: &str = "scheduling.sigs.dev/v1alpha2, kind: PodGroup";
const ANNOTATION: &str = "annotations: {scheduling.k8s.io/group-name: ";

/// The name of the PodGroup in the annotation of a pod or a pod template.
fn group_of(object: &str) -> Option<String> {
    between(object, ANNOTATION, "}").map(str::to_owned)
}

/// In half of the groups the role `a` has a minimum.
fn to_volcano(rng: &mut Rng, object: &mut String) {
    if object.contains(OWN_GROUP) {
        *object = object.replace("scheduling.sigs.dev/v1alpha2", "scheduling.volcano.sh/v1beta1");
        if rng.percent(50) {
            let roles = format!("spec: {{minTaskMember: {{a: {}}}, ", rng.below(3));
            *object = object.replacen("spec: {", &roles, 1);
        }
    } else if rng.percent(70) {
        let with_role = "annotations: {volcano.sh/task-spec: a, scheduling.k8s.io/group-name: ";
        *object = object.replacen(ANNOTATION, with_role, 1);
    }
}

/// Gives a PodGroup its queue in a label, where its API has no field for it.
fn label_queue(object: &mut String) {
    let queue = between(object, "queue: ", ",").expect("the group has a queue").to_owned();
    let labels = format!("labels: {{scheduling.sigs.dev/queue: {queue}}}, creationTimestamp");
    *object = object.replacen("creationTimestamp", &labels, 1);
}

fn to_coscheduling(object: &mut String) {
    if object.contains(OWN_GROUP) {
        label_queue(object);
        let min = between(object, "minMember: ", ",").expect("it has a minimum").to_owned();
        let (metadata, _) = object.split_once(", spec: ").expect("it has a spec");
        let metadata =
            metadata.replace("scheduling.sigs.dev/v1alpha2", "scheduling.x-k8s.io/v1alpha1");
        *object = format!("{metadata}, spec: {{minMember: {min}}}}}");
    } else if let Some(group) = group_of(object) {
        let label = format!(", scheduling.x-k8s.io/pod-group: {group}}}");
        *object = object.replacen(&format!("}}, {ANNOTATION}{group}}}"), &label, 1);
    }
}

/// The pods of a group get its priority, as the API server requires.
fn to_kubernetes(objects: &mut [&mut String]) {
    let mut priorities: BTreeMap<String, u32> = BTreeMap::new();
    for object in objects.iter_mut().filter(|object| object.contains(OWN_GROUP)) {
        let class = between(object, "priorityClassName: ", "}").expect("it has a class");
        let priority = match class {
            "low" => 10,
            "mid" => 100,
            _ => 1000,
        };
        let name = between(object, "name: ", ",").expect("it has a name").to_owned();
        priorities.insert(name, priority);
        label_queue(object);
        let policy = match between(object, "minMember: ", ",").expect("it has a minimum") {
            "0" => "basic: {}".to_owned(),
            min => format!("gang: {{minCount: {min}}}"),
        };
        let (metadata, _) = object.split_once(", spec: ").expect("it has a spec");
        let metadata =
            metadata.replace("scheduling.sigs.dev/v1alpha2", "scheduling.k8s.io/v1beta1");
        let spec = format!("{{schedulingPolicy: {{{policy}}}, priority: {priority}}}");
        **object = format!("{metadata}, spec: {spec}}}");
    }
    for object in objects {
        let Some(group) = group_of(object) else { continue };
        let Some(priority) = priorities.get(&group) else { continue };
        let own = between(object, "priority: ", ",").expect("a pod has a priority").to_owned();
        **object = object
            .replacen(&format!(", {ANNOTATION}{group}}}"), "", 1)
            .replacen(&format!("priority: {own},"), &format!("priority: {priority},"), 1)
            .replacen(
                "schedulerName: kube-batch,",
                &format!("schedulerName: kube-batch, schedulingGroup: {{podGroupName: {group}}},"),
                1,
            );
    }
}

/// In some clusters some of Kubernetes' own PodGroups are part of composite ones.
fn with_composites(seed: u64, objects: &mut Vec<String>, changes: &mut [Vec<String>]) {
    const KIND: &str = "apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup";
    let mut rng = Rng::new(seed.rotate_left(24));
    if rng.percent(40) {
        return;
    }
    let mut parents: BTreeMap<String, String> = BTreeMap::new();
    for object in objects.iter_mut().chain(changes.iter_mut().flatten()) {
        if let Some(queue) = between(object, "scheduling.sigs.dev/queue: ", "}")
            && object.contains(KIND)
            && rng.percent(70)
        {
            // Jobs of one priority and queue have the same composite PodGroups.
            let priority = between(object, "priority: ", "}").expect("the group has a priority");
            let name = format!("c-{queue}-{priority}-{}", rng.below(2));
            let parent = format!("parentCompositePodGroupName: {name}, priority: {priority}}}");
            parents.insert(name, format!("{queue} {priority}"));
            *object = object.replacen(&format!("priority: {priority}}}"), &parent, 1);
        }
    }
    for (name, queue_and_priority) in parents {
        let (queue, priority) = queue_and_priority.split_once(' ').expect("two words");
        let outer = name.replacen("c-", "outer-", 1);
        let is_inner = rng.percent(30);
        for (name, parent) in [(&name, is_inner.then_some(&outer)), (&outer, None)] {
            let parent = parent
                .map(|parent| format!("parentCompositePodGroupName: {parent}, "))
                .unwrap_or_default();
            let mode = rng.pick(&["single", "single", "single", "all"]);
            let topology = match rng.percent(15) {
                true => "schedulingConstraints: {topology: [{key: zone}]}, ",
                false => "",
            };
            objects.push(format!(
                "{{apiVersion: scheduling.k8s.io/v1alpha3, kind: CompositePodGroup, metadata: {{name: {name}, namespace: ns, labels: {{scheduling.sigs.dev/queue: {queue}}}}}, spec: {{workloadRef: {{workloadName: w, templateName: t}}, {parent}{topology}disruptionMode: {{{mode}: {{}}}}, schedulingPolicy: {{gang: {{minGroupCount: {}}}}}, priority: {priority}}}}}",
                1 + rng.below(2)
            ));
            if !is_inner {
                break;
            }
        }
    }
}

fn head_of(actions: &str, tiers: &str, start: u64, end: u64) -> String {
    format!(
        "environment: {{startCycles: {start}, terminationCycles: {end}}}\nconfig: {{actions: '{actions}', tiers: {tiers}}}\n"
    )
}

fn node(rng: &mut Rng, features: &Features, n: u64) -> String {
    let cpu = if features.small_nodes { 1 + rng.below(4) } else { 4 + rng.below(12) };
    let memory = 1 + rng.below(16);
    let pods = if rng.percent(15) { 1 + rng.below(4) } else { 110 };
    let gpus = if rng.percent(features.gpus) {
        format!(", nvidia.com/gpu: '{}'", rng.below(5))
    } else {
        String::new()
    };
    let zone = rng.below(3);
    let taint = if rng.percent(features.taints) {
        let effect = rng.pick(&["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        format!(", taints: [{{key: k, value: v, effect: {effect}}}]")
    } else {
        String::new()
    };
    let cordoned = rng.percent(features.taints / 3);
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: n{n}, labels: {{zone: z{zone}, disk: {disk}}}}}, spec: {{unschedulable: {cordoned}{taint}}}, status: {{allocatable: {{cpu: '{cpu}', memory: {memory}Gi, pods: '{pods}'{gpus}}}}}}}",
        disk = rng.pick(&["ssd", "hdd"]),
    )
}

fn large_node(rng: &mut Rng, n: u64) -> String {
    let (cpu, memory, gpus) = (2 + rng.below(5), 4 + rng.below(8), rng.below(4));
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: n{n}, labels: {{zone: z{n}, disk: ssd}}}}, status: {{allocatable: {{cpu: '{cpu}', memory: {memory}Gi, pods: '110', nvidia.com/gpu: '{gpus}'}}}}}}"
    )
}

fn queue(rng: &mut Rng, features: &Features, n: u64) -> String {
    let weight = rng.below(4);
    let capability = if rng.percent(features.capability) {
        format!(", capability: {{cpu: '{}'}}", 1 + rng.below(8))
    } else {
        String::new()
    };
    let version =
        rng.pick(&["scheduling.incubator.k8s.io/v1alpha1", "scheduling.sigs.dev/v1alpha2"]);
    format!(
        "{{apiVersion: {version}, kind: Queue, metadata: {{name: q{n}}}, spec: {{weight: {weight}{capability}}}}}"
    )
}

fn group(
    rng: &mut Rng,
    features: &Features,
    n: u64,
    n_queues: u64,
    n_nodes: u64,
    objects: &mut Vec<String>,
) {
    let n_pods = 1 + rng.below(6);
    let min = rng.below(n_pods + 2);
    objects.push(podgroup(rng, n, min, n_queues));
    let template = Template::new(rng, features);
    for k in 0..n_pods {
        let template =
            if rng.percent(70) { template.clone() } else { Template::new(rng, features) };
        let runs = rng.percent(features.running).then(|| rng.below(n_nodes));
        let terminating = runs.is_some() && rng.percent(features.terminating);
        objects.push(template.pod(&format!("g{n}-{k}"), Some(n), runs, terminating));
    }
}

fn podgroup(rng: &mut Rng, n: u64, min: u64, n_queues: u64) -> String {
    let queue = rng.below(n_queues);
    let class = rng.pick(&["low", "mid", "high"]);
    let second = rng.below(50);
    format!(
        "{{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {{name: g{n}, namespace: ns, creationTimestamp: '2024-01-01T00:00:{second:02}Z'}}, spec: {{minMember: {min}, queue: q{queue}, priorityClassName: {class}}}}}"
    )
}

/// A group whose pods are created by one or two controllers.
fn controlled_group(
    rng: &mut Rng,
    features: &Features,
    n: u64,
    n_queues: u64,
    objects: &mut Vec<String>,
) {
    let parts: Vec<u64> = (0..1 + rng.below(2)).map(|_| 1 + rng.below(4)).collect();
    let n_pods = parts.iter().sum::<u64>();
    let min = if rng.percent(50) { 1 } else { rng.below(n_pods + 1) };
    objects.push(podgroup(rng, n, min, n_queues));
    for (k, n_pods) in parts.into_iter().enumerate() {
        let template = Template::new(rng, features).in_group(n);
        objects.push(format!(
            "{{apiVersion: batch/v1, kind: Job, metadata: {{name: g{n}-{k}, namespace: ns, creationTimestamp: '2024-01-01T00:00:{k:02}Z'}}, spec: {{parallelism: {n_pods}, template: {template}}}}}"
        ));
    }
}

/// The template of the pods of a group.
#[derive(Clone, Debug)]
struct Template {
    requests: String,
    spec: String,
    labels: String,
}

impl Template {
    fn new(rng: &mut Rng, features: &Features) -> Self {
        let mut requests =
            format!("cpu: {}m, memory: {}Mi", 250 * (1 + rng.below(10)), 256 * (1 + rng.below(10)));
        if rng.percent(features.best_effort) {
            requests.clear();
        } else if rng.percent(features.gpus) {
            let _ = write!(requests, ", nvidia.com/gpu: '{}'", 1 + rng.below(2));
        }
        let mut spec = format!("priority: {}", 10 * rng.below(4));
        if rng.percent(features.never_preempts) {
            spec.push_str(", preemptionPolicy: Never");
        }
        if rng.percent(features.gated) {
            spec.push_str(", schedulingGates: [{name: wait}]");
        }
        if rng.percent(features.taints) {
            spec.push_str(", tolerations: [{key: k, operator: Exists}]");
        }
        if rng.percent(features.selectors) {
            let _ = write!(spec, ", nodeSelector: {{disk: {}}}", rng.pick(&["ssd", "hdd"]));
        }
        let label = rng.below(3);
        let mut affinity = Vec::new();
        if rng.percent(features.affinity) {
            let kind = rng.pick(&["podAffinity", "podAntiAffinity"]);
            let key = rng.pick(&["zone", "kubernetes.io/hostname"]);
            let other = rng.below(3);
            let term = format!(
                "{{topologyKey: {key}, labelSelector: {{matchLabels: {{app: a{other}}}}}}}"
            );
            let is_required =
                rng.percent(60) && (features.needs_other_pods || *kind == "podAntiAffinity");
            affinity.push(if is_required {
                format!("{kind}: {{requiredDuringSchedulingIgnoredDuringExecution: [{term}]}}")
            } else {
                format!("{kind}: {{preferredDuringSchedulingIgnoredDuringExecution: [{{weight: 7, podAffinityTerm: {term}}}]}}")
            });
        }
        if rng.percent(features.selectors) {
            affinity.push("nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 5, preference: {matchExpressions: [{key: disk, operator: In, values: [ssd]}]}}]}".to_owned());
        }
        if !affinity.is_empty() {
            let _ = write!(spec, ", affinity: {{{}}}", affinity.join(", "));
        }
        if rng.percent(features.affinity) {
            let strict = *rng.pick(&["DoNotSchedule", "ScheduleAnyway"]);
            let when = if features.needs_other_pods { strict } else { "ScheduleAnyway" };
            let _ = write!(
                spec,
                ", topologySpreadConstraints: [{{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: {when}, labelSelector: {{matchLabels: {{app: a{label}}}}}}}]"
            );
        }
        let mut template = Self { requests, spec, labels: format!("app: a{label}") };
        if rng.percent(features.ports) {
            template.spec.push_str(", PORT");
        }
        template
    }

    fn pod(&self, name: &str, group: Option<u64>, node: Option<u64>, terminating: bool) -> String {
        let node_name = node.map(|n| format!(", nodeName: n{n}")).unwrap_or_default();
        let phase = if node.is_some() { "Running" } else { "Pending" };
        let deleted = if terminating { ", deletionTimestamp: '2025-01-01T00:00:00Z'" } else { "" };
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: ns, {labels}{deleted}}}, spec: {{{spec}{node_name}}}, status: {{phase: {phase}}}}}",
            labels = self.metadata(group),
            spec = self.pod_spec(node.is_some()),
        )
    }

    /// As the template of a controller.
    fn in_group(&self, group: u64) -> String {
        let (metadata, spec) = (self.metadata(Some(group)), self.pod_spec(false));
        format!("{{metadata: {{{metadata}}}, spec: {{{spec}}}}}")
    }

    fn metadata(&self, group: Option<u64>) -> String {
        let group = group
            .map(|n| format!(", annotations: {{scheduling.k8s.io/group-name: g{n}}}"))
            .unwrap_or_default();
        format!("labels: {{{}}}{group}", self.labels)
    }

    fn pod_spec(&self, is_bound: bool) -> String {
        let port = if self.spec.ends_with(", PORT") {
            ", ports: [{containerPort: 80, hostPort: 8080}]"
        } else {
            ""
        };
        let mut spec = self.spec.trim_end_matches(", PORT").to_owned();
        if is_bound {
            // A gate is lifted before a pod is bound.
            spec = spec.replace(", schedulingGates: [{name: wait}]", "");
        }
        format!(
            "schedulerName: kube-batch, {spec}, containers: [{{name: main, image: app, resources: {{requests: {{{}}}}}{port}}}]",
            self.requests
        )
    }
}

fn change(rng: &mut Rng, features: &Features, n: u64, n_groups: u64) -> Vec<String> {
    let mut objects = Vec::new();
    for k in 0..1 + rng.below(3) {
        let template = Template::new(rng, features);
        let group = rng.percent(70).then(|| rng.below(n_groups));
        objects.push(template.pod(&format!("late-{n}-{k}"), group, None, false));
    }
    if rng.percent(40) {
        objects.push(node(rng, features, 10 + n));
    }
    objects
}
