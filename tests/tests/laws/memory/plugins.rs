//! A job that waits in vain is tried again when the answer of a plugin of others changes.

use jiff::{SignedDuration, Timestamp};
use kube_batch_framework::{
    arguments::{ArgumentKind, ArgumentSpec},
    memory::Memory,
    plugin::{
        Dependencies, Dependency, NodeQuery, OrderScope, Plugin, Proposal, VictimQuestion,
        VictimScope, Vote,
    },
    session_cache::SessionCache,
    spec::PluginSpec,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, TaskIdx},
    decision::Decision,
    facts::metadata::Metadata,
    reason::Unfit,
};
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, simulation::Simulation};
use kube_batch_yaml::{Limits, parse};

use super::{cycle, simulation};

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
    let registry = Registry::builtin().with_plugin(CURFEW).with_plugin(CONSENT);
    let document = parse(&text, &Limits::default()).expect("YAML");
    let case = Case::read(&document, &registry).expect("a case");
    simulation(&case, Memory::with_budget(u64::MAX), |_| true)
}

/// Runs some cycles in which nothing is decided, and the last try is remembered.
fn wait_in_vain(simulation: &mut Simulation) {
    let works: Vec<u64> = (0..3)
        .map(|_| {
            let (cycle, work) = cycle(simulation);
            assert_eq!(cycle.decisions, [], "the job waits in vain");
            work
        })
        .collect();
    assert!(works[2] < works[0], "the try is not remembered: {works:?}");
}

const POD: &str = "- {apiVersion: v1, kind: Pod, metadata: {name: p, namespace: ns}, spec: {schedulerName: kube-batch, \
                   containers: [{name: c, resources: {requests: {cpu: '1'}}}]}}\n";

#[test]
fn a_job_is_tried_again_when_an_answer_changes_with_the_time() {
    let start = simulated("allocate", "{name: curfew}", "").world.now();
    let until = start + SignedDuration::from_secs(10);
    let curfew = format!("{{name: curfew, arguments: {{curfew.until: {}}}}}", until.as_second());
    let mut simulation = simulated("allocate", &curfew, POD);
    wait_in_vain(&mut simulation);
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
    wait_in_vain(&mut simulation);
    let groups = &mut simulation.world.store.groups;
    let low = groups.iter().find(|(_, facts)| &*facts.key.name == "low");
    let (key, mut facts) = low.map(|(key, facts)| (key.clone(), (**facts).clone())).expect("it");
    let annotation = [("example.com/evictable".to_owned(), "true".to_owned())];
    let metadata = Metadata {
        annotations: annotation.iter().map(|(k, v)| (k, v)).collect(),
        ..Metadata::default()
    };
    facts.metadata = metadata.into();
    groups.apply(key, facts);
    let (cycle, _) = cycle(&mut simulation);
    let is_eviction = |decision: &Decision| matches!(decision, Decision::Evict { .. });
    assert!(cycle.decisions.iter().any(is_eviction), "{:#?}", cycle.jobs);
}
