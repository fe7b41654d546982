//! Clusters for benchmarks; the name of a shape describes it completely.
//!
//! Nodes have 32 CPUs, 128 Gi and 110 pod slots, spread over ten zones; pods request 1 CPU and 2 Gi. For
//! pods with rules about other pods, nodes and pods are those of kube-scheduler's own benchmark: 4 CPUs and
//! 32 Gi in three zones, and 100m and 500Mi.
//! Pending jobs are gangs, round-robin over the queues; running pods are in jobs of 100 with a
//! minimum of 1.

pub mod kinds;

use std::{collections::BTreeMap, mem};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Affinity, Container, Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodAffinity,
        PodAffinityTerm, PodAntiAffinity, PodSpec, PodStatus, ResourceRequirements, Taint,
        Toleration, TopologySpreadConstraint, WeightedPodAffinityTerm,
    },
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus},
    api::scheduling::v1::PriorityClass,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta, Time},
    },
};
use kube_batch_actions::{allocate, backfill, preempt, reclaim};
use kube_batch_api::{
    crd::{ApiVersion, PodGroupSpec, QueueSpec},
    facts::pod::TaskFacts,
    status::TaskStatus,
};
use kube_batch_cache::{
    assumed::Assumed,
    snapshot::{SnapshotOptions, take_snapshot},
    store::Store,
};
use kube_batch_framework::{
    arguments::ArgumentValue,
    candidates::Search,
    memory::Memory,
    report::Cycle,
    spec::{ActionSpec, PluginSpec},
};
use kube_batch_plugins::{
    conformance, drf, gang, nodeorder, pdb, predicates, priority, proportion,
};
use kube_batch_scheduler::conf::{Conf, PluginConf};

use self::kinds::{Kind, parse};

/// A cluster and its scheduler configuration.
pub struct Shape {
    /// The objects.
    pub store: Store,
    /// Actions and tiers.
    pub conf: Conf,
    next: Next,
}

impl Shape {
    /// Takes a snapshot and runs a cycle, as the first of a scheduler.
    // Not inlined, so that the instructions between its start and its end can be counted.
    #[inline(never)]
    pub fn first_cycle(&self) -> Cycle {
        let snapshot = take_snapshot(&self.store, &Assumed::default(), &SnapshotOptions::default());
        let (memory, now) = (&mut Memory::default(), Timestamp::MAX);
        self.conf.run_next_cycle(snapshot.cluster, now, Search::Index, memory, &mut |_| {}).0
    }
}

impl Shape {
    /// What happens between two cycles, for the n-th time: in IDLE a pod in the middle finishes, in STEADY
    /// another gang arrives, and elsewhere nothing.
    ///
    /// # Panics
    ///
    /// If there are too few pods.
    pub fn change(&mut self, n: usize) {
        match self.next {
            Next::Nothing => {}
            Next::PodFinishes => {
                let running = self.store.pods.len() / 2 + n;
                let (key, facts) = self.store.pods.iter().nth(running).expect("there are pods");
                let facts = TaskFacts { status: TaskStatus::Succeeded, ..(**facts).clone() };
                self.store.pods.apply(key.clone(), facts);
            }
            Next::GangArrives => {
                let mut build = Build { store: mem::take(&mut self.store), ..Build::default() };
                let queue = format!("queue-{}", n % 4);
                build.pending_job(1 + n, 100, &queue, "low", &PodKind::default());
                self.store = build.store;
            }
        }
    }
}

/// What happens between two cycles.
#[derive(Clone, Copy, Debug, Default)]
enum Next {
    #[default]
    Nothing,
    PodFinishes,
    GangArrives,
}

/// 2019-07-01T00:00:00Z, in seconds.
const BASE: i64 = 1_561_939_200;
const DAY: i64 = 86_400;

/// Builds the shape with a name such as `FILL-1000-10000-100`.
pub fn shape(name: &str) -> Option<Shape> {
    let (Kind { name: kind, .. }, numbers) = parse(name)?;
    let kind = *kind;
    let mut build = Build::default();
    if let (Some(rule), [nodes]) = (PodRule::of(kind), numbers.as_slice()) {
        build.with_rule(*nodes, rule);
        return Some(Shape { store: build.store, conf: build.conf, next: build.next });
    }
    match (kind, numbers.as_slice()) {
        ("FILL", [nodes, pods, gang]) => {
            build.nodes(*nodes);
            let queues = build.queues(&[1, 2, 3, 4]);
            build.pending(*pods, *gang, &queues, "low", |_| PodKind::default());
        }
        ("FILLMIX", [nodes, pods, gang]) => {
            build.nodes(*nodes);
            let queues = build.queues(&[1, 2, 3, 4]);
            build.pending(*pods, *gang, &queues, "low", |job| PodKind {
                cpu: format!("{}m", 100 + (7 * job) % 997),
                memory: format!("{}Ki", 256 * 1024 + (13 * job) % 4099),
                ..PodKind::default()
            });
        }
        ("FILLTAINT", [nodes, pods, gang]) => {
            build.tainted_every = 100;
            build.nodes(*nodes);
            let queues = build.queues(&[1, 2, 3, 4]);
            build.pending(*pods, *gang, &queues, "low", |job| PodKind {
                tolerates: job % 10 == 0,
                ..PodKind::default()
            });
        }
        ("SAT", [nodes, pods, gang]) => {
            build.saturated(*nodes, 32);
            let queues = build.queues(&[1, 1, 1, 1]);
            build.pending(*pods, *gang, &queues, "low", |_| PodKind::default());
        }
        ("STEADY", [nodes]) => {
            build.saturated(*nodes, 16);
            let queues = build.queues(&[1, 1, 1, 1]);
            build.pending(100, 100, &queues, "low", |_| PodKind::default());
            build.next = Next::GangArrives;
        }
        ("IDLE", [nodes]) => {
            build.saturated(*nodes, 32);
            build.queues(&[1, 1, 1, 1]);
            build.conf = full(&[reclaim::SPEC, allocate::SPEC, backfill::SPEC, preempt::SPEC]);
            build.next = Next::PodFinishes;
        }
        ("PREEMPT", [nodes, gang]) => {
            build.nodes(*nodes);
            let queues = build.queues(&[1]);
            build.running(*nodes, 32, &queues[0]);
            build.pending(*gang, *gang, &queues, "high", |_| PodKind::default());
            build.conf = full(&[allocate::SPEC, preempt::SPEC]);
        }
        ("BUDGETPREEMPT", [nodes, gang]) => {
            build.nodes(*nodes);
            let queues = build.queues(&[1]);
            build.running_with_budgets(*nodes, &queues[0]);
            build.pending(*gang, *gang, &queues, "high", |_| PodKind::default());
            build.conf = full(&[allocate::SPEC, preempt::SPEC]);
            build.conf.tiers[0].push(PluginConf::new(pdb::SPEC));
        }
        ("GANGPREEMPT", [nodes]) => {
            build.nodes(*nodes);
            let queues = build.queues(&[1]);
            build.running_gangs(*nodes, &queues[0]);
            build.pending(512, 512, &queues, "high", |_| PodKind::default());
            build.conf = with_whole_gangs(full(&[allocate::SPEC, preempt::SPEC]));
        }
        ("RECLAIM", [nodes, gang]) => {
            build.nodes(*nodes);
            let queues = build.queues(&[1, 1]);
            build.running(*nodes, 32, &queues[0]);
            build.pending(100, *gang, &queues[1..], "low", |_| PodKind::default());
            build.conf = full(&[reclaim::SPEC]);
        }
        ("SCALE", [nodes]) => {
            build.saturated(*nodes, 10);
            let queues = build.queues(&[1, 1, 1, 1]);
            build.pending(10_000, 100, &queues, "low", |_| PodKind::default());
        }
        ("KAIRECLAIM", [nodes]) => {
            build.gpus = 8;
            build.nodes(*nodes);
            build.queue("queue-0", 0);
            build.queue("queue-1", 1);
            build.gpu_singles(*nodes, "queue-0");
            let kind = || PodKind { gpus: 8, cpu: "8".to_owned(), ..PodKind::default() };
            let gang = (nodes / 10).max(1);
            build.pending(gang, gang, &["queue-1".to_owned()], "low", |_| kind());
            build.conf = full(&[reclaim::SPEC]);
        }
        _ => return None,
    }
    Some(Shape { store: build.store, conf: build.conf, next: build.next })
}

/// Lets gangs at their minimum be evicted as a whole.
fn with_whole_gangs(mut conf: Conf) -> Conf {
    for plugin in conf.tiers.iter_mut().flatten().filter(|plugin| plugin.spec.name == "gang") {
        let specs = plugin.spec.arguments.iter();
        for spec in specs.filter(|spec| spec.key == "gang.evictWholeGangs") {
            plugin.arguments.set(spec, ArgumentValue::Bool(true));
        }
    }
    conf
}

/// The sample configuration's tiers, with these actions.
pub fn full(actions: &[ActionSpec]) -> Conf {
    let first = [priority::SPEC, gang::SPEC, conformance::SPEC];
    let second = [drf::SPEC, predicates::SPEC, proportion::SPEC, nodeorder::SPEC];
    let tier = |specs: &[PluginSpec]| specs.iter().copied().map(PluginConf::new).collect();
    Conf { actions: actions.to_vec(), tiers: vec![tier(&first), tier(&second)] }
}

struct PodKind {
    cpu: String,
    memory: String,
    gpus: u32,
    tolerates: bool,
    label: Option<(&'static str, String)>,
    rule: Option<PodRule>,
}

impl Default for PodKind {
    fn default() -> Self {
        let (cpu, memory) = ("1".to_owned(), "2Gi".to_owned());
        Self { cpu, memory, gpus: 0, tolerates: false, label: None, rule: None }
    }
}

/// A rule of pods about pods with the same label.
#[derive(Clone, Copy)]
struct PodRule {
    term: PodTerm,
    /// Whether the rule is only a preference.
    is_preferred: bool,
}

#[derive(Clone, Copy)]
enum PodTerm {
    /// In one zone.
    ZoneAffinity,
    /// Each on a node of its own.
    HostAntiAffinity,
    /// Over all zones, with a skew of 5 at most.
    ZoneSpread,
}

/// The label of pods with rules.
const RULE_LABEL: &str = "color";
const RULE_VALUE: &str = "blue";

/// The label of pods with budgets: the name of their job.
const JOB_LABEL: &str = "job";
/// How many pods the budget of a job lets go.
const BUDGET: i32 = 10;

impl PodRule {
    fn of(kind: &str) -> Option<Self> {
        let (kind, is_preferred) = match kind.strip_prefix("PREF-") {
            Some(kind) => (kind, true),
            None => (kind, false),
        };
        let term = match kind {
            "AFF-ZONE" => PodTerm::ZoneAffinity,
            "AFF-HOST" => PodTerm::HostAntiAffinity,
            "SPREAD" => PodTerm::ZoneSpread,
            _ => return None,
        };
        Some(Self { term, is_preferred })
    }

    /// The numbers of pods that run and that wait. For 5 000 nodes they are those of kube-scheduler's own
    /// benchmark.
    const fn n_pods(self, nodes: usize) -> (usize, usize) {
        match self.term {
            PodTerm::ZoneAffinity | PodTerm::ZoneSpread => (nodes, nodes),
            PodTerm::HostAntiAffinity => (nodes / 5, nodes / 5 * 2),
        }
    }

    fn apply(self, spec: &mut PodSpec) {
        let selector = LabelSelector {
            match_labels: Some(BTreeMap::from([(RULE_LABEL.to_owned(), RULE_VALUE.to_owned())])),
            ..Default::default()
        };
        let topology_key = match self.term {
            PodTerm::ZoneAffinity | PodTerm::ZoneSpread => "topology.kubernetes.io/zone",
            PodTerm::HostAntiAffinity => "kubernetes.io/hostname",
        };
        if let PodTerm::ZoneSpread = self.term {
            let when = if self.is_preferred { "ScheduleAnyway" } else { "DoNotSchedule" };
            spec.topology_spread_constraints = Some(vec![TopologySpreadConstraint {
                label_selector: Some(selector),
                max_skew: 5,
                topology_key: topology_key.to_owned(),
                when_unsatisfiable: when.to_owned(),
                ..Default::default()
            }]);
            return;
        }
        let term = PodAffinityTerm {
            label_selector: Some(selector),
            topology_key: topology_key.to_owned(),
            ..Default::default()
        };
        let weighted = WeightedPodAffinityTerm { pod_affinity_term: term.clone(), weight: 1 };
        let (required, preferred) =
            if self.is_preferred { (None, Some(vec![weighted])) } else { (Some(vec![term]), None) };
        let mut affinity = Affinity::default();
        if let PodTerm::HostAntiAffinity = self.term {
            affinity.pod_anti_affinity = Some(PodAntiAffinity {
                required_during_scheduling_ignored_during_execution: required,
                preferred_during_scheduling_ignored_during_execution: preferred,
            });
        } else {
            affinity.pod_affinity = Some(PodAffinity {
                required_during_scheduling_ignored_during_execution: required,
                preferred_during_scheduling_ignored_during_execution: preferred,
            });
        }
        spec.affinity = Some(affinity);
    }
}

struct Build {
    store: Store,
    conf: Conf,
    next: Next,
    /// CPUs, memory and zones of nodes.
    cpu: &'static str,
    memory: &'static str,
    n_zones: usize,
    gpus: u32,
    tainted_every: usize,
}

impl Default for Build {
    fn default() -> Self {
        let mut build = Self {
            store: Store::default(),
            next: Next::default(),
            conf: Conf::default(),
            cpu: "32",
            memory: "128Gi",
            n_zones: 10,
            gpus: 0,
            tainted_every: 0,
        };
        for (name, value) in [("low", 10), ("middle", 100), ("high", 1000)] {
            let class = PriorityClass {
                metadata: meta(name, None, BASE),
                value: Some(value),
                ..Default::default()
            };
            build.store.apply_priority_class(&class).expect("the class is valid");
        }
        build
    }
}

fn meta(name: &str, namespace: Option<&str>, created: i64) -> ObjectMeta {
    let created = jiff::Timestamp::from_second(created).expect("a time in range");
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        uid: Some(format!("uid-{name}")),
        creation_timestamp: Some(Time(created)),
        ..Default::default()
    }
}

fn amounts(pairs: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    pairs
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())))
        .collect()
}

impl Build {
    fn nodes(&mut self, n_nodes: usize) {
        for i in 0..n_nodes {
            let name = format!("node-{i:05}");
            let gpus = self.gpus.to_string();
            let mut allocatable =
                amounts(&[("cpu", self.cpu), ("memory", self.memory), ("pods", "110")]);
            if self.gpus > 0 {
                allocatable.extend(amounts(&[("nvidia.com/gpu", &gpus), ("memory", "256Gi")]));
            }
            let mut metadata = meta(&name, None, BASE);
            metadata.labels = Some(BTreeMap::from([
                ("kubernetes.io/hostname".to_owned(), name),
                ("topology.kubernetes.io/zone".to_owned(), format!("zone-{}", i % self.n_zones)),
            ]));
            let taint = Taint {
                key: "dedicated".to_owned(),
                value: Some("gpu".to_owned()),
                effect: "NoSchedule".to_owned(),
                time_added: None,
            };
            let tainted = self.tainted_every > 0 && i % self.tainted_every == 0;
            let node = Node {
                metadata,
                spec: Some(NodeSpec { taints: tainted.then(|| vec![taint]), ..Default::default() }),
                status: Some(NodeStatus {
                    allocatable: Some(allocatable),
                    conditions: Some(vec![NodeCondition {
                        type_: "Ready".to_owned(),
                        status: "True".to_owned(),
                        ..Default::default()
                    }]),
                    ..Default::default()
                }),
            };
            self.store.apply_node(&node).expect("the node is valid");
        }
    }

    fn queue(&mut self, name: &str, weight: i32) {
        let spec = QueueSpec { weight, ..Default::default() };
        let meta = meta(name, None, BASE);
        self.store
            .apply_queue(ApiVersion::V1Alpha1, &meta, &spec, None)
            .expect("the queue is valid");
    }

    fn queues(&mut self, weights: &[i32]) -> Vec<String> {
        let names: Vec<String> = (0..weights.len()).map(|n| format!("queue-{n}")).collect();
        for (name, weight) in names.iter().zip(weights) {
            self.queue(name, *weight);
        }
        names
    }

    fn group(&mut self, name: &str, created: i64, min_member: usize, queue: &str, class: &str) {
        let spec = PodGroupSpec {
            min_member: i32::try_from(min_member).expect("a small gang"),
            queue: queue.to_owned(),
            priority_class_name: class.to_owned(),
        };
        let meta = meta(name, Some("bench"), created);
        self.store
            .apply_group(ApiVersion::V1Alpha1, &meta, &spec, None)
            .expect("the group is valid");
    }

    fn pod(&mut self, job: &str, k: usize, created: i64, kind: &PodKind, node: Option<String>) {
        let name = format!("{job}-{k:05}");
        let mut metadata = meta(&name, Some("bench"), created);
        metadata.annotations =
            Some(BTreeMap::from([("scheduling.k8s.io/group-name".to_owned(), job.to_owned())]));
        let label = kind.label.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        metadata.labels = kind.label.is_some().then(|| label.collect());
        let mut requests = amounts(&[("cpu", &kind.cpu), ("memory", &kind.memory)]);
        if kind.gpus > 0 {
            requests.extend(amounts(&[("nvidia.com/gpu", &kind.gpus.to_string())]));
        }
        let toleration = Toleration {
            key: Some("dedicated".to_owned()),
            operator: Some("Exists".to_owned()),
            ..Default::default()
        };
        let mut pod = Pod {
            metadata,
            spec: Some(PodSpec {
                scheduler_name: Some("kube-batch".to_owned()),
                tolerations: kind.tolerates.then(|| vec![toleration]),
                containers: vec![Container {
                    name: "main".to_owned(),
                    resources: Some(ResourceRequirements {
                        requests: Some(requests),
                        ..Default::default()
                    }),
                    ..Default::default()
                }],
                node_name: node.clone(),
                ..Default::default()
            }),
            status: node
                .map(|_| PodStatus { phase: Some("Running".to_owned()), ..Default::default() }),
        };
        if let (Some(rule), Some(spec)) = (kind.rule, &mut pod.spec) {
            rule.apply(spec);
        }
        self.store.apply_pod(&pod).expect("the pod is valid");
    }

    fn pending(
        &mut self,
        pods: usize,
        gang: usize,
        queues: &[String],
        class: &str,
        kind: impl Fn(usize) -> PodKind,
    ) {
        for job in 0..pods / gang {
            self.pending_job(job, gang, &queues[job % queues.len()], class, &kind(job));
        }
    }

    fn pending_job(&mut self, job: usize, gang: usize, queue: &str, class: &str, kind: &PodKind) {
        let name = format!("job-{job:05}");
        let created = BASE + DAY + job as i64;
        self.group(&name, created, gang, queue, class);
        for k in 0..gang {
            self.pod(&name, k, created, kind, None);
        }
    }

    /// Pods with a rule: some run already, of which those with zone affinity are all in the first zone, and
    /// gangs of 100 wait, or a smaller one.
    fn with_rule(&mut self, nodes: usize, rule: PodRule) {
        let kind = || PodKind {
            cpu: "100m".to_owned(),
            memory: "500Mi".to_owned(),
            label: Some((RULE_LABEL, RULE_VALUE.to_owned())),
            rule: Some(rule),
            ..PodKind::default()
        };
        (self.cpu, self.memory, self.n_zones) = ("4", "32Gi", 3);
        self.nodes(nodes);
        let queues = self.queues(&[1]);
        let (running, pending) = rule.n_pods(nodes);
        self.group("run", BASE, 1, &queues[0], "low");
        let step = if matches!(rule.term, PodTerm::ZoneAffinity) { self.n_zones } else { 1 };
        for k in 0..running {
            let node = format!("node-{:05}", k * step % nodes);
            self.pod("run", k, BASE, &kind(), Some(node));
        }
        self.pending(pending, pending.clamp(1, 100), &queues, "low", |_| kind());
    }

    fn saturated(&mut self, nodes: usize, pods_per_node: usize) {
        self.nodes(nodes);
        self.queue("running", 1);
        self.running(nodes, pods_per_node, "running");
    }

    fn running(&mut self, nodes: usize, pods_per_node: usize, queue: &str) {
        self.running_pods(nodes, pods_per_node, queue, |_| PodKind::default());
    }

    /// As [`Self::running`]; a budget protects the pods of every second job.
    fn running_with_budgets(&mut self, nodes: usize, queue: &str) {
        let label = |job: &str| Some((JOB_LABEL, job.to_owned()));
        self.running_pods(nodes, 32, queue, |job| PodKind {
            label: label(job),
            ..PodKind::default()
        });
        for job in (0..nodes * 32).step_by(200) {
            self.budget(&format!("run-{:05}", job / 100));
        }
    }

    fn budget(&mut self, job: &str) {
        let labels = BTreeMap::from([(JOB_LABEL.to_owned(), job.to_owned())]);
        let selector = LabelSelector { match_labels: Some(labels), ..Default::default() };
        let budget = PodDisruptionBudget {
            metadata: meta(job, Some("bench"), BASE),
            spec: Some(PodDisruptionBudgetSpec { selector: Some(selector), ..Default::default() }),
            status: Some(PodDisruptionBudgetStatus {
                disruptions_allowed: Some(BUDGET),
                ..Default::default()
            }),
        };
        self.store.apply_budget(&budget).expect("the budget is valid");
    }

    fn running_pods(
        &mut self,
        nodes: usize,
        pods_per_node: usize,
        queue: &str,
        kind: impl Fn(&str) -> PodKind,
    ) {
        for r in 0..nodes * pods_per_node {
            let job = r / 100;
            let name = format!("run-{job:05}");
            let created = BASE + job as i64;
            if r % 100 == 0 {
                self.group(&name, created, 1, queue, "low");
            }
            let node = format!("node-{:05}", r / pods_per_node);
            self.pod(&name, r % 100, created, &kind(&name), Some(node));
        }
    }

    /// Fills the nodes with gangs of 8, 64 and 512 pods in turn that run their minimum, of the classes low
    /// and middle and of none, in turn.
    fn running_gangs(&mut self, nodes: usize, queue: &str) {
        let kind = PodKind::default();
        let (mut gang, mut left) = (0, 0);
        let mut name = String::new();
        for r in 0..nodes * 32 {
            if left == 0 {
                name = format!("run-{gang:05}");
                left = [8, 64, 512][gang % 3].min(nodes * 32 - r);
                let class = ["", "low", "middle"][gang / 3 % 3];
                self.group(&name, BASE + gang as i64, left, queue, class);
                gang += 1;
            }
            left -= 1;
            let node = format!("node-{:05}", r / 32);
            self.pod(&name, left, BASE + gang as i64, &kind, Some(node));
        }
    }

    fn gpu_singles(&mut self, nodes: usize, queue: &str) {
        let kind = PodKind { gpus: 1, ..PodKind::default() };
        for r in 0..nodes * 8 {
            let name = format!("run-{r:05}");
            self.group(&name, BASE + r as i64, 1, queue, "low");
            self.pod(&name, 0, BASE + r as i64, &kind, Some(format!("node-{:05}", r / 8)));
        }
    }
}
