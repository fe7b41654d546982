//! Histories in which a job waits in vain, and how they are written.

use std::sync::Arc;

use kube_batch_cache::store::Store;
use kube_batch_framework::{memory::Memory, report::Cycle};
use kube_batch_model::{
    facts::{group::GroupFacts, pod::TaskFacts},
    job_report::JobReport,
    name::ObjectKey,
};
use kube_batch_sim::simulation::Simulation;

use super::{assert_same, cycle, read, simulation};

const QUEUE: &str = "apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue";
const GROUP: &str = "apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup";
pub(super) const WITH_SHARES: &str = "{name: predicates}, {name: proportion}, {name: nodeorder}";
pub(super) const WITHOUT_SHARES: &str = "{name: predicates}, {name: nodeorder}";

pub(super) fn node(name: &str, cpu: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{on: {name}}}}}, \
         status: {{allocatable: {{cpu: '{cpu}', pods: '9'}}}}}}"
    )
}

pub(super) fn queue(name: &str, spec: &str) -> String {
    format!("{{{QUEUE}, metadata: {{name: {name}}}, spec: {{{spec}}}}}")
}

pub(super) fn group(name: &str, spec: &str) -> String {
    format!("{{{GROUP}, metadata: {{name: {name}, namespace: ns}}, spec: {{{spec}}}}}")
}

/// A pod of a group; `spec` is the rest of its specification.
pub(super) fn pod(name: &str, group: &str, cpu: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: ns, uid: {name}, \
         annotations: {{scheduling.k8s.io/group-name: {group}}}}}, spec: {{schedulerName: kube-batch, {spec}\
         containers: [{{name: c, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}}}"
    )
}

pub(super) fn running(name: &str, group: &str, cpu: &str, node: &str) -> String {
    let pod = pod(name, group, cpu, &format!("nodeName: {node}, "));
    format!("{}, status: {{phase: Running}}}}", &pod[..pod.len() - 1])
}

/// A pod that runs and has been asked to end at this time.
pub(super) fn terminating(name: &str, group: &str, node: &str, since: &str) -> String {
    let deletion = format!("{{deletionTimestamp: '{since}', name: ");
    running(name, group, "2", node).replacen("{name: ", &deletion, 1)
}

/// A pod of a PodGroup of Volcano with this role.
pub(super) fn with_role(pod: &str, role: &str) -> String {
    let annotation = format!("annotations: {{volcano.sh/task-spec: {role}, ");
    pod.replacen("annotations: {", &annotation, 1)
}

/// A PodGroup of Volcano.
pub(super) fn group_of_volcano(name: &str, spec: &str) -> String {
    group(name, spec).replace("scheduling.sigs.dev/v1alpha2", "scheduling.volcano.sh/v1beta1")
}

pub(super) fn with_run_time(pod: &str, run_time: &str) -> String {
    let annotation = format!("annotations: {{scheduling.sigs.dev/run-time: {run_time}, ");
    pod.replacen("annotations: {", &annotation, 1)
}

/// A composite PodGroup that needs this number of its groups; `constraints` is the rest of its specification.
pub(super) fn composite(name: &str, min: u32, constraints: &str) -> String {
    format!(
        "{{apiVersion: scheduling.k8s.io/v1alpha3, kind: CompositePodGroup, metadata: {{name: {name}, namespace: ns}}, \
         spec: {{workloadRef: {{workloadName: w, templateName: {name}}}, \
         schedulingPolicy: {{gang: {{minGroupCount: {min}}}}}{constraints}}}}}"
    )
}

/// A history: jobs wait in vain, and one change lets one of them start.
pub(super) struct History<'a> {
    pub(super) actions: &'a str,
    /// The plugins of the second tier.
    pub(super) plugins: &'a str,
    /// The arguments of the plugin `gang`.
    pub(super) gang: &'a str,
    pub(super) objects: Vec<String>,
}

impl History<'_> {
    pub(super) fn text(&self) -> String {
        let Self { actions, plugins, gang, objects } = self;
        let objects: String = objects.iter().map(|object| format!("- {object}\n")).collect();
        format!(
            "name: fields\nenvironment: {{terminationCycles: 9}}\nconfig:\n  actions: {actions}\n  tiers:\n  \
             - plugins: [{{name: priority}}, {{name: gang, arguments: {{{gang}}}}}]\n  - plugins: [{plugins}]\n\
             objects:\n- {{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: high}}, value: 100}}\n\
             {objects}steps:\n- cycles: 1\n"
        )
    }

    /// Checks that the job is not tried while nothing changes, and that a cycle after the change decides something.
    pub(super) fn decides_after(&self, change: impl FnOnce(&mut Store)) {
        let mut simulation = self.in_vain();
        change(&mut simulation.world.store);
        let (cycle, _) = cycle(&mut simulation);
        assert!(!cycle.decisions.is_empty(), "the job is not tried again: {:#?}", cycle.jobs);
    }

    /// Checks that the job is not tried while nothing changes, and that the cycle after the change is another one, and the
    /// same as without a memory.
    pub(super) fn differs_after(&self, change: impl Fn(&mut Store)) {
        self.in_vain();
        let [before, after] = self.around(change);
        assert_ne!(what_waits(&before), what_waits(&after), "the change changes nothing");
    }

    /// The last cycle before a change, when nothing has changed for long, and the first one after it. They are the same
    /// with a memory and without.
    pub(super) fn around(&self, change: impl Fn(&mut Store)) -> [Cycle; 2] {
        let cycles = self.cycles(6, |at, store| {
            if at == 4 {
                change(store);
            }
        });
        let [_, _, _, before, after, _]: [Cycle; 6] = cycles.try_into().expect("six cycles");
        [before, after]
    }

    /// Plays some cycles with a memory and without, and checks that they are the same. `change` is called before each
    /// cycle, with its number.
    pub(super) fn cycles(&self, n: usize, change: impl Fn(usize, &mut Store)) -> Vec<Cycle> {
        let case = read(&self.text());
        let memories = [Memory::with_budget(u64::MAX), Memory::none()];
        let mut simulations = memories.map(|memory| simulation(&case, memory, |_| true));
        let one = |at: usize| {
            let [with, without] = simulations.each_mut().map(|simulation| {
                change(at, &mut simulation.world.store);
                cycle(simulation).0
            });
            assert_same(&with, &without, || format!("cycle {at}: "));
            with
        };
        (0..n).map(one).collect()
    }

    /// The simulation after some cycles in which nothing is decided, and the last try is remembered.
    pub(super) fn in_vain(&self) -> Simulation {
        let case = read(&self.text());
        let mut simulation = simulation(&case, Memory::with_budget(u64::MAX), |_| true);
        wait_in_vain(&mut simulation, 4);
        simulation
    }
}

/// Runs some cycles in which nothing is decided, and the last try is remembered.
pub(super) fn wait_in_vain(simulation: &mut Simulation, n: usize) {
    let mut works = Vec::new();
    for _ in 0..n {
        let (cycle, work) = cycle(simulation);
        assert_eq!(cycle.decisions, [], "the job waits in vain");
        works.push(work);
    }
    assert!(works.last() < works.first(), "the try is not remembered: {works:?}");
}

/// How many pods of each job have a place, and why the others wait.
pub(super) fn what_waits(cycle: &Cycle) -> Vec<(u32, Option<String>)> {
    let why =
        |job: &Arc<JobReport>| job.unplaced_because.as_ref().map(|why| why.words().to_string());
    cycle.jobs.iter().map(|job| (job.n_fitting, why(job))).collect()
}

pub(super) fn change_group(store: &mut Store, name: &str, change: impl FnOnce(&mut GroupFacts)) {
    let found = store.groups.iter().find(|(_, facts)| *facts.key.name == *name);
    let (key, mut facts) =
        found.map(|(key, facts)| (key.clone(), GroupFacts::clone(facts))).expect("the PodGroup");
    change(&mut facts);
    store.groups.apply(key, facts);
}

pub(super) fn change_pod(store: &mut Store, name: &str, change: impl FnOnce(&mut TaskFacts)) {
    let key = ObjectKey::new("ns", name);
    let mut facts = TaskFacts::clone(store.pods.get(&key).expect("the pod"));
    change(&mut facts);
    store.pods.apply(key, facts);
}

pub(super) fn delete_pod(store: &mut Store, name: &str) {
    store.pods.delete(&ObjectKey::new("ns", name));
}
