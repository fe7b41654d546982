//! How the clusters of shapes are built.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Container, Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodSchedulingGroup, PodSpec,
        PodStatus, ResourceRequirements, Taint, Toleration,
    },
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus},
    api::scheduling::v1::PriorityClass,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta, Time},
    },
};
use kube_batch_api::{
    crd::{PodGroupSpec, QueueSpec},
    dialect::RawObject,
    kind::ApplyObject as _,
};
use kube_batch_cache::store::Store;
use kube_batch_model::{facts::topology::TOPOLOGY_PREFERRED, group_version::GroupVersion};
use serde_json::json;

use super::{
    devices::add_claim,
    pods::{PodKind, PodRule, PodTerm, RULE_LABEL, RULE_VALUE},
};

/// 2019-07-01T00:00:00Z, in seconds.
pub(super) const BASE: i64 = 1_561_939_200;
pub(super) const DAY: i64 = 86_400;

/// The label of pods with budgets: the name of their job.
const JOB_LABEL: &str = "job";
/// How many pods the budget of a job lets go.
const BUDGET: i32 = 10;

pub(super) struct Build {
    pub(super) store: Store,
    /// CPUs, memory and zones of nodes.
    pub(super) cpu: &'static str,
    /// CPUs of one node after the other, if they differ.
    pub(super) cpus: &'static [&'static str],
    pub(super) memory: &'static str,
    pub(super) n_zones: usize,
    pub(super) gpus: u32,
    pub(super) tainted_every: usize,
    /// Whether PodGroups are of Kubernetes' own API.
    pub(super) is_native: bool,
    /// The labels of nodes besides host name and zone: how many nodes are in a domain of each.
    pub(super) levels: Vec<(&'static str, usize)>,
    /// The level that PodGroups require, if they are of Kubernetes' own API, or else prefer.
    pub(super) topology: Option<&'static str>,
}

impl Default for Build {
    fn default() -> Self {
        let mut build = Self {
            store: Store::default(),
            cpu: "32",
            cpus: &[],
            memory: "128Gi",
            n_zones: 10,
            gpus: 0,
            tainted_every: 0,
            is_native: false,
            levels: Vec::new(),
            topology: None,
        };
        for (name, value) in [("low", 10), ("middle", 100), ("high", 1000)] {
            let class = PriorityClass {
                metadata: meta(name, None, BASE),
                value: Some(value),
                ..Default::default()
            };
            build.store.apply(&class).expect("the class is valid");
        }
        build
    }
}

pub(super) fn meta(name: &str, namespace: Option<&str>, created: i64) -> ObjectMeta {
    let created = jiff::Timestamp::from_second(created).expect("a time in range");
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        uid: Some(format!("uid-{name}")),
        creation_timestamp: Some(Time(created)),
        ..Default::default()
    }
}

pub(super) fn amounts(pairs: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    pairs
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())))
        .collect()
}

impl Build {
    pub(super) fn nodes(&mut self, n_nodes: usize) {
        for i in 0..n_nodes {
            let name = format!("node-{i:05}");
            let gpus = self.gpus.to_string();
            let cpu = self.cpus.get(i % self.cpus.len().max(1)).unwrap_or(&self.cpu);
            let mut allocatable =
                amounts(&[("cpu", cpu), ("memory", self.memory), ("pods", "110")]);
            if self.gpus > 0 {
                allocatable.extend(amounts(&[("nvidia.com/gpu", &gpus), ("memory", "256Gi")]));
            }
            let mut metadata = meta(&name, None, BASE);
            let mut labels = BTreeMap::from([
                ("kubernetes.io/hostname".to_owned(), name),
                ("topology.kubernetes.io/zone".to_owned(), format!("zone-{}", i % self.n_zones)),
            ]);
            for (key, size) in &self.levels {
                labels.insert((*key).to_owned(), format!("{key}-{}", i / size));
            }
            metadata.labels = Some(labels);
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
            self.store.apply(&node).expect("the node is valid");
        }
    }

    pub(super) fn queue(&mut self, name: &str, weight: i32) {
        self.queue_below(name, weight, None);
    }

    fn queue_below(&mut self, name: &str, weight: i32, parent: Option<String>) {
        let spec = QueueSpec { weight, parent, ..Default::default() };
        let meta = meta(name, None, BASE);
        self.store
            .apply_queue(GroupVersion::V1Alpha1, &RawObject::new(&meta, &spec))
            .expect("the queue is valid");
    }

    pub(super) fn queues(&mut self, weights: &[i32]) -> Vec<String> {
        let names: Vec<String> = (0..weights.len()).map(|n| format!("queue-{n}")).collect();
        for (name, weight) in names.iter().zip(weights) {
            self.queue(name, *weight);
        }
        names
    }

    /// Queues of weights from 1 to 4, and those among them that are the leaves if they form a tree of five levels.
    pub(super) fn many_queues(&mut self, n_queues: usize, form_a_tree: bool) -> Vec<String> {
        let name = |at: usize| format!("queue-{at:05}");
        // Each level has about three times as many as the one above it.
        let mut starts = [0, 8, 32, 100, 300].map(|part| n_queues * part / 1000);
        for level in 1..starts.len() {
            starts[level] = starts[level].max(starts[level - 1] + 1);
        }
        let mut leaves = Vec::new();
        for at in 0..n_queues {
            let level = starts.iter().rposition(|start| *start <= at).unwrap_or(0);
            let above = level.checked_sub(1).map(|above| {
                let (first, next) = (starts[above], starts[level]);
                name(first + at % (next - first))
            });
            self.queue_below(&name(at), 1 + (at % 4) as i32, above.filter(|_| form_a_tree));
            leaves.extend((level == 4).then(|| name(at)));
        }
        leaves
    }

    pub(super) fn group(
        &mut self,
        name: &str,
        created: i64,
        min_member: usize,
        queue: &str,
        class: &str,
    ) {
        let mut meta = meta(name, Some("bench"), created);
        if self.is_native {
            let topology: Vec<_> = self.topology.iter().map(|key| json!({"key": key})).collect();
            let spec = json!({
                "schedulingPolicy": {"gang": {"minCount": min_member}},
                "schedulingConstraints": {"topology": topology},
            });
            let group = RawObject { metadata: meta, spec, status: None };
            let applied = self.store.apply_group(GroupVersion::Kubernetes, &group);
            applied.expect("the group is valid");
            return;
        }
        let preferred = |key: &&str| (TOPOLOGY_PREFERRED.to_owned(), (**key).to_owned());
        meta.annotations = self.topology.as_ref().map(|key| [preferred(key)].into());
        let spec = PodGroupSpec {
            min_member: i32::try_from(min_member).expect("a small gang"),
            queue: queue.to_owned(),
            priority_class_name: class.to_owned(),
        };
        self.store
            .apply_group(GroupVersion::V1Alpha1, &RawObject::new(&meta, &spec))
            .expect("the group is valid");
    }

    pub(super) fn pod(
        &mut self,
        job: &str,
        k: usize,
        created: i64,
        kind: &PodKind,
        node: Option<String>,
    ) {
        let name = format!("{job}-{k:05}");
        let mut metadata = meta(&name, Some("bench"), created);
        let annotation = || ("scheduling.k8s.io/group-name".to_owned(), job.to_owned());
        let is_annotated = kind.is_in_group && !self.is_native;
        metadata.annotations = is_annotated.then(|| BTreeMap::from([annotation()]));
        let own_group = || PodSchedulingGroup { pod_group_name: Some(job.to_owned()) };
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
                scheduling_group: (kind.is_in_group && self.is_native).then(own_group),
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
        if let Some(claim) = kind.claim {
            add_claim(&mut self.store, &mut pod, claim);
        }
        self.store.apply(&pod).expect("the pod is valid");
    }

    pub(super) fn pending(
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

    pub(super) fn pending_job(
        &mut self,
        job: usize,
        gang: usize,
        queue: &str,
        class: &str,
        kind: &PodKind,
    ) {
        self.pending_job_of(job, queue, class, &vec![kind; gang]);
    }

    /// A pod without a PodGroup.
    pub(super) fn single_pod(&mut self, name: &str, created: i64, node: Option<String>) {
        let kind = PodKind {
            cpu: "100m".to_owned(),
            memory: "64Mi".to_owned(),
            is_in_group: false,
            ..PodKind::default()
        };
        self.pod(name, 0, created, &kind, node);
    }

    /// A gang with a pod of each of these kinds.
    pub(super) fn pending_job_of(
        &mut self,
        job: usize,
        queue: &str,
        class: &str,
        kinds: &[&PodKind],
    ) {
        let name = format!("job-{job:05}");
        let created = BASE + DAY + job as i64;
        self.group(&name, created, kinds.len(), queue, class);
        for (k, kind) in kinds.iter().enumerate() {
            self.pod(&name, k, created, kind, None);
        }
    }

    /// Pods with a rule: some run already, of which those with zone affinity are all in the first zone, and
    /// gangs of 100 wait, or a smaller one.
    pub(super) fn with_rule(&mut self, nodes: usize, rule: PodRule) {
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

    pub(super) fn saturated(&mut self, nodes: usize, pods_per_node: usize) {
        self.nodes(nodes);
        self.queue("running", 1);
        self.running(nodes, pods_per_node, "running");
    }

    pub(super) fn running(&mut self, nodes: usize, pods_per_node: usize, queue: &str) {
        self.running_pods(nodes, pods_per_node, queue, |_| PodKind::default());
    }

    /// As [`Self::running`]; a budget protects the pods of every second job.
    pub(super) fn running_with_budgets(&mut self, nodes: usize, queue: &str) {
        let label = |job: &str| Some((JOB_LABEL, job.to_owned()));
        self.running_pods(nodes, 32, queue, |job| PodKind {
            label: label(job),
            ..PodKind::default()
        });
        for job in (0..nodes * 32).step_by(200) {
            self.budget(&format!("run-{:05}", job / 100));
        }
    }

    pub(super) fn budget(&mut self, job: &str) {
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
        self.store.apply(&budget).expect("the budget is valid");
    }

    pub(super) fn running_pods(
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
    pub(super) fn running_gangs(&mut self, nodes: usize, queue: &str) {
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

    /// Fills the nodes with gangs of the class low that run their minimum, a pod a node.
    pub(super) fn running_gangs_of(
        &mut self,
        nodes: usize,
        gang: usize,
        queue: &str,
        kind: &PodKind,
    ) {
        for node in 0..nodes {
            let job = node / gang;
            let (name, created) = (format!("run-{job:05}"), BASE + job as i64);
            if node % gang == 0 {
                self.group(&name, created, gang.min(nodes - node), queue, "low");
            }
            self.pod(&name, node % gang, created, kind, Some(format!("node-{node:05}")));
        }
    }

    pub(super) fn gpu_singles(&mut self, nodes: usize, queue: &str) {
        let kind = PodKind { gpus: 1, ..PodKind::default() };
        for r in 0..nodes * 8 {
            let name = format!("run-{r:05}");
            self.group(&name, BASE + r as i64, 1, queue, "low");
            self.pod(&name, 0, BASE + r as i64, &kind, Some(format!("node-{:05}", r / 8)));
        }
    }
}
