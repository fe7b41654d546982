//! A job that waits in vain is tried again when the answer of a plugin of others changes.

use jiff::{SignedDuration, Timestamp};
use kube_batch_framework::{
    arguments::{ArgumentKind, ArgumentSpec},
    memory::Memory,
    plugin::{
        Dependencies, Dependency, JobShares, NodeQuery, OrderScope, Plugin, Proposal, Provided,
        VictimQuestion, VictimScope, Vote,
    },
    session_cache::SessionCache,
    spec::PluginSpec,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, JobIdx, TaskIdx},
    decision::Decision,
    facts::{group_refs::GroupRefs, metadata::Metadata, pod::TaskFacts},
    name::ObjectKey,
    reason::Unfit,
    resource::Share,
    selector::Labels,
};
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, simulation::Simulation};
use kube_batch_yaml::{Limits, parse};

use super::{cycle, history::wait_in_vain, simulation};

/// Nodes admit no pods before a time.
struct Curfew {
    until: Timestamp,
    now: Timestamp,
}

const UNTIL: ArgumentSpec = ArgumentSpec {
    key: "curfew.until",
    kind: ArgumentKind::Integer { default: 0, range: (0, i64::MAX / 1_000_000_000) },
    about: "before which second of the Unix epoch no pod starts",
};

const CURFEW: PluginSpec = PluginSpec {
    name: "curfew",
    about: "no pod starts before a time",
    arguments: &[UNTIL],
    metadata_prefixes: &[],
    new: |arguments| {
        let until = Timestamp::from_second(arguments.integer(&UNTIL)).expect("a time");
        Box::new(Curfew { until, now: Timestamp::UNIX_EPOCH })
    },
};

impl Plugin for Curfew {
    fn name(&self) -> &'static str {
        "curfew"
    }

    fn on_session_open(&mut self, _: &Cluster, cache: &mut SessionCache<'_>) {
        self.now = cache.now();
    }

    fn next_change(&self, _: &Cluster) -> Option<std::time::Duration> {
        let left = self.until.duration_since(self.now);
        std::time::Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
        Dependencies::only(Dependency::Class)
    }

    fn predicate(&self, _: &Cluster, _: NodeQuery) -> Result<(), Unfit> {
        if self.now < self.until { Err(Unfit::Other("node(s) were closed")) } else { Ok(()) }
    }
}

/// Only pods of PodGroups that say so can be evicted.
struct Consent;

const CONSENT: PluginSpec = PluginSpec {
    name: "consent",
    about: "only pods of PodGroups that say so can be evicted",
    arguments: &[],
    metadata_prefixes: &["example.com/"],
    new: |_| Box::new(Consent),
};

fn consents(metadata: &Metadata) -> bool {
    metadata.annotations.get("example.com/evictable").is_some_and(|value| &**value == "true")
}

impl Plugin for Consent {
    fn name(&self) -> &'static str {
        "consent"
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
        Dependencies::NONE
    }

    fn vote(&self, cluster: &Cluster, proposal: &Proposal<'_>, _: VictimQuestion) -> Vote {
        let job = cluster.tasks.job[proposal.victim];
        let group = job.and_then(|job| cluster.jobs.group[job].as_ref());
        let is_permitted = group.is_some_and(|group| consents(&group.metadata));
        if is_permitted { Vote::Permit } else { Vote::Reject }
    }

    fn victim_scope(&self, _: &Cluster, _: TaskIdx, _: VictimQuestion) -> VictimScope {
        VictimScope::FACTS
    }
}

/// Only pods that say so, or whose PodGroups do, evict others.
struct Urgency;

const URGENCY: PluginSpec = PluginSpec {
    name: "urgency",
    about: "only pods that say so, or whose PodGroups do, evict others",
    arguments: &[],
    metadata_prefixes: &["example.com/"],
    new: |_| Box::new(Urgency),
};

impl Plugin for Urgency {
    fn name(&self) -> &'static str {
        "urgency"
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
        Dependencies::NONE
    }

    fn vote(&self, cluster: &Cluster, proposal: &Proposal<'_>, _: VictimQuestion) -> Vote {
        let job = cluster.tasks.job[proposal.preemptor];
        let group = job.and_then(|job| cluster.jobs.group[job].as_ref());
        let of_group = group.and_then(|group| group.metadata.annotations.get("example.com/urgent"));
        let of_pod = cluster.tasks.facts[proposal.preemptor].labels.get("urgent");
        let is_urgent = [of_group, of_pod].into_iter().flatten().any(|value| &**value == "true");
        if is_urgent { Vote::Permit } else { Vote::Reject }
    }

    fn victim_scope(&self, _: &Cluster, _: TaskIdx, _: VictimQuestion) -> VictimScope {
        VictimScope::FACTS
    }
}

/// The share of each job is the number of jobs.
struct JobCount {
    share: Share,
}

const JOB_COUNT: PluginSpec = PluginSpec {
    name: "job-count",
    about: "the share of each job is the number of jobs",
    arguments: &[],
    metadata_prefixes: &[],
    new: |_| Box::new(JobCount { share: Share::ZERO }),
};

impl Plugin for JobCount {
    fn name(&self) -> &'static str {
        "job-count"
    }

    fn provides(&self) -> Provided<'_> {
        Provided { job_shares: Some(self), ..Provided::default() }
    }

    fn on_session_open(&mut self, cluster: &Cluster, _: &mut SessionCache<'_>) {
        self.share = Share::of(cluster.jobs.key.len() as i64, 1);
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
        Dependencies::NONE
    }

    fn victim_scope(&self, _: &Cluster, _: TaskIdx, _: VictimQuestion) -> VictimScope {
        VictimScope::NONE
    }
}

impl JobShares for JobCount {
    fn job_share(&self, _: JobIdx) -> Share {
        self.share
    }
}

/// A simulation of these objects, with these actions and this plugin before all others.
fn simulated(actions: &str, plugin: &str, objects: &str) -> Simulation {
    let text = format!(
        "name: plugins
config:
  actions: {actions}
  tiers:
  - plugins: [{plugin}, {{name: priority}}, {{name: gang}}]
  - plugins: [{{name: predicates}}, {{name: nodeorder}}]
objects:
- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {{name: default}}, spec: {{weight: 1}}}}
- {{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: high}}, value: 100}}
- {{apiVersion: v1, kind: Node, metadata: {{name: n}}, status: {{allocatable: {{cpu: '1', pods: '9'}}}}}}
{objects}steps:
- cycles: 1
"
    );
    let registry = Registry::builtin()
        .with_plugin(CURFEW)
        .with_plugin(CONSENT)
        .with_plugin(URGENCY)
        .with_plugin(JOB_COUNT);
    let document = parse(&text, &Limits::default()).expect("YAML");
    let case = Case::read(&document, &registry).expect("a case");
    simulation(&case, Memory::with_budget(u64::MAX), |_| true)
}

const POD: &str = "- {apiVersion: v1, kind: Pod, metadata: {name: p, namespace: ns}, spec: {schedulerName: kube-batch, \
                   containers: [{name: c, resources: {requests: {cpu: '1'}}}]}}\n";

#[test]
fn a_job_is_tried_again_when_an_answer_changes_with_the_time() {
    let start = simulated("allocate", "{name: curfew}", "").world.now();
    let until = start + SignedDuration::from_secs(10);
    let curfew = format!("{{name: curfew, arguments: {{curfew.until: {}}}}}", until.as_second());
    let mut simulation = simulated("allocate", &curfew, POD);
    wait_in_vain(&mut simulation, 3);
    while simulation.world.now() < until {
        let (cycle, _) = cycle(&mut simulation);
        let is_open = simulation.world.now() >= until;
        assert_eq!(!cycle.decisions.is_empty(), is_open, "{:#?}", cycle.jobs);
    }
}

const RUNNING_AND_WAITING: &str = "- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {name: low, namespace: ns}, spec: {minMember: 1}}
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {name: high, namespace: ns}, spec: {minMember: 1, priorityClassName: high}}
- apiVersion: v1
  kind: Pod
  metadata: {name: low, namespace: ns, annotations: {scheduling.k8s.io/group-name: low}}
  spec:
    schedulerName: kube-batch
    nodeName: n
    containers: [{name: c, resources: {requests: {cpu: '1'}}}]
  status: {phase: Running}
- apiVersion: v1
  kind: Pod
  metadata: {name: high, namespace: ns, annotations: {scheduling.k8s.io/group-name: high}}
  spec:
    schedulerName: kube-batch
    containers: [{name: c, resources: {requests: {cpu: '1'}}}]
";

#[test]
fn a_job_is_tried_again_when_a_vote_changes_with_the_metadata_of_a_victim() {
    let mut simulation = simulated("allocate, preempt", "{name: consent}", RUNNING_AND_WAITING);
    wait_in_vain(&mut simulation, 3);
    annotate(&mut simulation, "low", "example.com/evictable");
    assert_evicts(&mut simulation);
}

/// Gives a PodGroup an annotation with the value `true`.
fn annotate(simulation: &mut Simulation, group: &str, key: &str) {
    let groups = &mut simulation.world.store.groups;
    let found = groups.iter().find(|(_, facts)| &*facts.key.name == group);
    let (key_of_group, mut facts) =
        found.map(|(key, facts)| (key.clone(), (**facts).clone())).expect("the PodGroup");
    facts.metadata = Metadata { annotations: is_true(key), ..Metadata::default() }.into();
    groups.apply(key_of_group, facts);
}

/// Labels or annotations: this key has the value `true`.
fn is_true(key: &str) -> Labels {
    let pair = [(key.to_owned(), "true".to_owned())];
    pair.iter().map(|(key, value)| (key, value)).collect()
}

fn assert_evicts(simulation: &mut Simulation) {
    let (cycle, _) = cycle(simulation);
    let is_eviction = |decision: &Decision| matches!(decision, Decision::Evict { .. });
    assert!(cycle.decisions.iter().any(is_eviction), "{:#?}", cycle.jobs);
}

#[test]
fn a_job_is_tried_again_when_a_vote_changes_with_its_metadata() {
    let mut simulation = simulated("allocate, preempt", "{name: urgency}", RUNNING_AND_WAITING);
    wait_in_vain(&mut simulation, 3);
    annotate(&mut simulation, "high", "example.com/urgent");
    assert_evicts(&mut simulation);
}

#[test]
fn a_job_is_tried_again_when_a_vote_changes_with_the_labels_of_its_pod() {
    let mut simulation = simulated("allocate, preempt", "{name: urgency}", RUNNING_AND_WAITING);
    wait_in_vain(&mut simulation, 3);
    let labels = simulation.world.store.interner_mut().new_labels(is_true("urgent"));
    simulation.world.change_pod(&ObjectKey::new("ns", "high"), |pod| pod.labels = labels);
    assert_evicts(&mut simulation);
}

#[test]
fn the_share_that_is_reported_is_that_of_now() {
    let plugins = "{name: job-count}, {name: consent}";
    let mut simulation = simulated("allocate, preempt", plugins, RUNNING_AND_WAITING);
    wait_in_vain(&mut simulation, 3);
    let shares = |simulation: &mut Simulation| {
        let (cycle, _) = cycle(simulation);
        cycle.jobs.iter().map(|job| job.share).collect::<Vec<_>>()
    };
    assert_eq!(shares(&mut simulation), [Some(Share::of(2, 1)); 2]);
    let pods = &simulation.world.store.pods;
    let high = TaskFacts::clone(pods.get(&ObjectKey::new("ns", "high")).expect("the pod"));
    let key = ObjectKey::new("ns", "third");
    let third = TaskFacts {
        key: key.clone(),
        uid: "third".into(),
        groups: GroupRefs::default(),
        gated: true,
        ..high
    };
    simulation.world.store.pods.apply(key, third);
    assert_eq!(shares(&mut simulation), [Some(Share::of(3, 1)); 3]);
}
