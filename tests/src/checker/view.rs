//! Pods, jobs and nodes, with what was decided about each.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_cache::{snapshot::SnapshotOptions, store::Store};
use kube_batch_framework::arguments::ArgumentValue;
use kube_batch_model::{
    decision::{Decision, DeviceChoice, EvictReason, JobInQueue, PodRef},
    facts::{
        composite::CompositeFacts, group::GroupFacts, node::NodeFacts, pod::TaskFacts,
        policy::HIGHEST_USER_PRIORITY, topology::TopologyLevel,
    },
    group_version::{GroupVersion, Join},
    name::{JobKey, Name, ObjectKey},
    status::TaskStatus,
};
use kube_batch_scheduler::conf::{Conf, PluginConf};

/// A pod.
pub(super) struct Pod<'a> {
    pub(super) facts: &'a TaskFacts,
    pub(super) fate: Fate<'a>,
    /// What its binding writes to claims for devices.
    pub(super) devices: &'a [DeviceChoice],
}

/// What the cycle decided about a pod.
#[derive(Clone, Copy)]
pub(super) enum Fate<'a> {
    Untouched,
    Bound(&'a Name),
    Nominated(&'a Name),
    Evicted(Eviction<'a>),
    Withdrawn,
}

#[derive(Clone, Copy)]
pub(super) struct Eviction<'a> {
    /// Its position among the decisions.
    pub(super) at: usize,
    pub(super) reason: EvictReason,
    pub(super) by: &'a JobKey,
    pub(super) queue: &'a Name,
}

impl<'a> Pod<'a> {
    pub(super) const fn key(&self) -> &'a ObjectKey {
        &self.facts.key
    }

    /// The node on which it holds resources before the decisions. An evicted pod holds them until it has
    /// terminated.
    pub(super) fn present_on(&self) -> Option<&'a Name> {
        let has_ended = matches!(self.facts.status, TaskStatus::Succeeded | TaskStatus::Failed);
        self.facts.node.as_ref().filter(|_| !has_ended)
    }

    pub(super) const fn bound_to(&self) -> Option<&'a Name> {
        match self.fate {
            Fate::Bound(node) => Some(node),
            Fate::Untouched | Fate::Nominated(_) | Fate::Evicted(_) | Fate::Withdrawn => None,
        }
    }

    /// The node for which this cycle nominates it.
    pub(super) const fn newly_nominated_for(&self) -> Option<&'a Name> {
        match self.fate {
            Fate::Nominated(node) => Some(node),
            Fate::Untouched | Fate::Bound(_) | Fate::Evicted(_) | Fate::Withdrawn => None,
        }
    }

    /// The node for which it is nominated, by this cycle or by an earlier one.
    pub(super) fn nominated_for(&self) -> Option<&'a Name> {
        match self.fate {
            Fate::Nominated(node) => Some(node),
            Fate::Untouched if self.is_waiting() => self.facts.nominated_node.as_ref(),
            Fate::Untouched | Fate::Bound(_) | Fate::Evicted(_) | Fate::Withdrawn => None,
        }
    }

    pub(super) const fn eviction(&self) -> Option<Eviction<'a>> {
        match self.fate {
            Fate::Evicted(eviction) => Some(eviction),
            Fate::Untouched | Fate::Bound(_) | Fate::Nominated(_) | Fate::Withdrawn => None,
        }
    }

    /// Whether its resources become free without another decision.
    pub(super) fn leaves(&self) -> bool {
        self.facts.status == TaskStatus::Releasing || self.eviction().is_some()
    }

    fn is_waiting(&self) -> bool {
        self.facts.status == TaskStatus::Pending && self.facts.node.is_none()
    }

    /// Whether it runs, or is about to.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.facts.status, TaskStatus::Running | TaskStatus::Bound)
    }

    /// Whether it counts toward the minimum of its job before the decisions.
    pub(super) fn was_ready(&self) -> bool {
        self.is_running() || self.facts.status == TaskStatus::Succeeded
    }

    /// Whether it counts toward the minimum of its job after the decisions.
    pub(super) fn is_ready(&self) -> bool {
        self.bound_to().is_some() || self.was_ready() && self.eviction().is_none()
    }
}

/// The pods in the order of their names. `problems` gets the decisions that are wrong in themselves.
pub(super) fn decided_pods<'a>(
    store: &'a Store,
    decisions: &'a [Decision],
    problems: &mut Vec<String>,
) -> Vec<Pod<'a>> {
    let pod = |facts| Pod { facts, fate: Fate::Untouched, devices: &[] };
    let mut pods: Vec<Pod<'a>> = store.pods.values().map(|facts| pod(&**facts)).collect();
    for (at, decision) in decisions.iter().enumerate() {
        let PodRef { uid, key } = decision.pod();
        let found = pods.binary_search_by(|pod| pod.key().cmp(key)).ok();
        let Some(pod) = found.map(|at| &mut pods[at]).filter(|pod| pod.facts.uid == *uid) else {
            problems.push(format!("pod {key} (uid {uid}) does not exist: {decision:?}"));
            continue;
        };
        if matches!(decision, Decision::Deallocate { .. }) {
            if !pod.is_waiting() || pod.bound_to().is_some() {
                problems.push(format!("pod {key} does not wait, but its claim is deallocated"));
            }
            continue;
        }
        match decide(store, pod, decision, at) {
            Ok(fate) => {
                pod.fate = fate;
                if let Decision::Bind { devices, .. } = decision {
                    pod.devices = devices;
                }
            }
            Err(problem) => problems.push(format!("pod {key} {problem}")),
        }
    }
    pods
}

/// What a decision does to its pod; or why it may not.
fn decide<'a>(
    store: &Store,
    pod: &Pod<'a>,
    decision: &'a Decision,
    at: usize,
) -> Result<Fate<'a>, String> {
    if !matches!(pod.fate, Fate::Untouched) {
        return Err("has two decisions".to_owned());
    }
    if !SnapshotOptions::default().scheduler_names.contains(&pod.facts.scheduler) {
        return Err(format!("is decided about, but belongs to {}", pod.facts.scheduler));
    }
    match decision {
        Decision::Bind { node, .. } => {
            expect_placeable(store, pod, node, "bound")?;
            Ok(Fate::Bound(node))
        }
        Decision::Nominate { node, .. } => {
            expect_placeable(store, pod, node, "nominated")?;
            Ok(Fate::Nominated(node))
        }
        Decision::Evict { node, cause, .. } => {
            if !pod.is_running() {
                return Err(format!("is evicted, but is {:?}", pod.facts.status));
            }
            match &pod.facts.node {
                Some(own) if own == node => {}
                own => return Err(format!("is evicted from {node}, but is on {own:?}")),
            }
            let JobInQueue { job: by, queue, .. } = cause.job();
            Ok(Fate::Evicted(Eviction { at, reason: cause.reason(), by, queue }))
        }
        Decision::Withdraw { .. } => Ok(Fate::Withdrawn),
        Decision::Deallocate { .. } => unreachable!("it does not decide about the pod itself"),
    }
}

fn expect_placeable(store: &Store, pod: &Pod<'_>, node: &Name, what: &str) -> Result<(), String> {
    if !pod.is_waiting() {
        return Err(format!("is {what}, but is {:?}", pod.facts.status));
    }
    if pod.facts.gated {
        return Err(format!("is {what}, but has scheduling gates"));
    }
    match store.nodes.get(node) {
        Some(_) => Ok(()),
        None => Err(format!("is {what} to {node}, which does not exist")),
    }
}

/// A job: its PodGroup, or what stands for one.
pub(super) struct Job<'p> {
    pub(super) min: usize,
    pub(super) queue: Name,
    pub(super) priority: i32,
    /// Whether that is the highest priority of its pods.
    pub(super) priority_of_pods: bool,
    /// The level of which all its pods must be in one domain.
    pub(super) required: Option<TopologyLevel>,
    /// The composite PodGroups above it, its parent first.
    pub(super) composites: Vec<Arc<CompositeFacts>>,
    pub(super) pods: Vec<&'p Pod<'p>>,
}

impl<'p> Job<'p> {
    fn new(store: &Store, key: &JobKey, pods: Vec<&'p Pod<'p>>) -> Self {
        let group = match key {
            JobKey::Group(join, key) => newest_group(store, *join, key),
            JobKey::Shadow { .. } | JobKey::Pod { .. } => None,
        };
        let queue = group.and_then(|group| group.queue.clone());
        let highest = pods.iter().map(|pod| pod.facts.priority).max().unwrap_or(0);
        let is_active = |facts: &TaskFacts| match facts.status {
            TaskStatus::Pending => !facts.gated,
            status => !matches!(status, TaskStatus::Succeeded | TaskStatus::Failed),
        };
        let active = pods.iter().filter(|pod| is_active(pod.facts));
        let of_pods = active.map(|pod| pod.facts.priority).max();
        let given = group
            .filter(|group| group.priority.or(group.priority_class.as_ref().map(|_| 0)).is_some());
        Self {
            min: group.map_or(1, |group| group.min_member as usize),
            queue: queue.unwrap_or_else(|| SnapshotOptions::default().default_queue),
            priority: match given {
                Some(group) => group_priority(store, Some(group), highest),
                None => of_pods.unwrap_or_else(|| group_priority(store, None, highest)),
            },
            priority_of_pods: given.is_none(),
            required: group.and_then(|group| group.topology.as_ref()?.required.clone()),
            composites: group.map(|group| composites_above(store, group)).unwrap_or_default(),
            pods,
        }
    }

    pub(super) fn n_ready(&self) -> usize {
        self.pods.iter().filter(|pod| pod.is_ready()).count()
    }

    pub(super) fn evicted(&self) -> impl Iterator<Item = &'p Pod<'p>> {
        self.pods.iter().copied().filter(|pod| pod.eviction().is_some())
    }

    /// Whether the job has a minimum or is part of a composite PodGroup, and none of its pods stays.
    pub(super) fn leaves_whole(&self) -> bool {
        (self.min > 1 || !self.composites.is_empty())
            && !self.pods.iter().any(|pod| pod.is_running() && pod.is_ready())
    }
}

fn composites_above(store: &Store, group: &GroupFacts) -> Vec<Arc<CompositeFacts>> {
    let mut above: Vec<Arc<CompositeFacts>> = Vec::new();
    let mut parent = group.parent.clone();
    while let Some(name) = parent {
        let key = ObjectKey { namespace: group.key.namespace.clone(), name };
        let Some(facts) = store.composites.get(&key) else { return above };
        above.push(Arc::clone(facts));
        parent = facts.parent.clone();
    }
    above
}

/// The PodGroup of a name: of several APIs that pods name in the annotation, the newer own one counts, then the
/// older.
fn newest_group<'a>(store: &'a Store, join: Join, key: &ObjectKey) -> Option<&'a GroupFacts> {
    let version = |version| store.groups.get(&(key.clone(), version)).map(|facts| &**facts);
    match join {
        Join::SchedulingGroup => version(GroupVersion::Kubernetes),
        Join::Label => version(GroupVersion::Coscheduling),
        Join::Annotation => version(GroupVersion::V1Alpha2)
            .or_else(|| version(GroupVersion::V1Alpha1))
            .or_else(|| version(GroupVersion::Volcano)),
    }
}

/// The priority of a PodGroup's class. A system class needs a pod of its priority.
fn group_priority(store: &Store, group: Option<&GroupFacts>, highest: i32) -> i32 {
    if let Some(priority) = group.and_then(|group| group.priority) {
        return priority;
    }
    let class = group.and_then(|group| group.priority_class.as_ref());
    let value = class.and_then(|class| store.priority_classes.get(class)).map(|class| class.value);
    let defaults = store.priority_classes.values().filter(|class| class.global_default);
    let default = defaults.map(|class| class.value).min().unwrap_or(0);
    value.filter(|value| *value <= HIGHEST_USER_PRIORITY || highest >= *value).unwrap_or(default)
}

/// A node, and the pods that are or will be on it.
pub(super) struct Node<'p> {
    pub(super) facts: &'p NodeFacts,
    pub(super) present: Vec<&'p Pod<'p>>,
    pub(super) bound: Vec<&'p Pod<'p>>,
    pub(super) nominated: Vec<&'p Pod<'p>>,
}

/// The cluster with the decisions of a cycle.
pub(super) struct View<'p> {
    pub(super) store: &'p Store,
    pub(super) pods: &'p [Pod<'p>],
    pub(super) jobs: BTreeMap<JobKey, Job<'p>>,
    pub(super) nodes: BTreeMap<&'p Name, Node<'p>>,
    conf: &'p Conf,
}

impl<'p> View<'p> {
    pub(super) fn new(store: &'p Store, conf: &'p Conf, pods: &'p [Pod<'p>]) -> Self {
        Self { store, pods, jobs: jobs(store, pods), nodes: nodes(store, pods), conf }
    }

    /// Whether a plugin is configured.
    pub(super) fn has_plugin(&self, name: &str) -> bool {
        self.conf.tiers.iter().flatten().any(|plugin| plugin.spec.name == name)
    }

    /// Whether a victim must have a lower priority: whether the tier that decides first compares them.
    pub(super) fn compares_priorities(&self) -> bool {
        let first = self.conf.tiers.first();
        first.is_some_and(|tier| tier.iter().any(|plugin| plugin.spec.name == "priority"))
    }

    /// Whether gangs may be evicted as a whole.
    pub(super) fn evicts_whole_gangs(&self) -> bool {
        self.argument("gang", "gang.evictWholeGangs") == Some(ArgumentValue::Bool(true))
    }

    /// Whether budgets are never violated.
    pub(super) fn requires_budgets(&self) -> bool {
        self.argument("pdb", "pdb.mode") == Some(ArgumentValue::Text("require".to_owned()))
    }

    fn argument(&self, plugin: &str, key: &str) -> Option<ArgumentValue> {
        let named = |conf: &&PluginConf| conf.spec.name == plugin;
        let conf = self.conf.tiers.iter().flatten().find(named)?;
        let spec = conf.spec.arguments.iter().find(|spec| spec.key == key)?;
        Some(conf.arguments.get(spec))
    }
}

fn jobs<'p>(store: &Store, pods: &'p [Pod<'p>]) -> BTreeMap<JobKey, Job<'p>> {
    let mut members: BTreeMap<JobKey, Vec<&Pod<'p>>> = BTreeMap::new();
    for pod in pods {
        members.entry(pod.facts.job_key(store.served())).or_default().push(pod);
    }
    let job = |(key, pods)| {
        let job = Job::new(store, &key, pods);
        (key, job)
    };
    members.into_iter().map(job).collect()
}

fn nodes<'p>(store: &'p Store, pods: &'p [Pod<'p>]) -> BTreeMap<&'p Name, Node<'p>> {
    let empty = |facts| Node { facts, present: vec![], bound: vec![], nominated: vec![] };
    let mut nodes: BTreeMap<&Name, Node<'p>> =
        store.nodes.values().map(|facts| (&facts.name, empty(&**facts))).collect();
    for pod in pods {
        if let Some(node) = pod.present_on().and_then(|node| nodes.get_mut(node)) {
            node.present.push(pod);
        }
        if let Some(node) = pod.bound_to().and_then(|node| nodes.get_mut(node)) {
            node.bound.push(pod);
        }
        if let Some(node) = pod.nominated_for().and_then(|node| nodes.get_mut(node)) {
            node.nominated.push(pod);
        }
    }
    nodes
}
