//! Law: no text that the owner of a job reads names a job or pod of another namespace, unless the configuration shows them
//! (docs/parity.md#e10).
//!
//! Gangs of three teams, each in its own namespace, come and go in two queues that borrow from each other, preempt and
//! reclaim. Read are the conditions of PodGroups and pods, what is said of evicted pods and gangs, and all events.
//! `KUBE_BATCH_SEEDS=20000 cargo test -p kube-batch-tests --test laws names::` plays more worlds.

use kube_batch_framework::candidates::Search;
use kube_batch_model::job_report::JobReport;
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, simulation::Simulation, world::World};
use kube_batch_tests::{
    random_cluster::Rng,
    seeds::{is_often, seeds},
};
use kube_batch_yaml::{Limits, parse};

const N_TEAMS: u64 = 3;
const N_CYCLES: usize = 12;

fn configuration(rng: &mut Rng, shows_others: bool) -> String {
    let actions = rng.pick(&[
        "reclaim, allocate, backfill, preempt",
        "reclaim, allocate, preempt",
        "allocate, backfill, preempt",
        "allocate",
    ]);
    let whole = rng.percent(50);
    let max_loss = rng.below(3);
    format!(
        "config:
  actions: {actions}
  tiers:
  - plugins: [{{name: priority}}, {{name: gang, arguments: {{gang.evictWholeGangs: {whole}, gang.maxLoss: {max_loss}, \
         gang.showOtherNamespaces: {shows_others}}}}}, {{name: pdb}}]
  - plugins: [{{name: drf}}, {{name: predicates}}, {{name: proportion}}, {{name: nodeorder}}, {{name: reservation, \
         arguments: {{reservation.after: 3s}}}}]
"
    )
}

fn case(objects: &str, configuration: &str) -> Case {
    let text = format!(
        "name: names\nenvironment: {{terminationCycles: 2}}\n{configuration}objects:\n{objects}steps:\n- cycles: 1\n"
    );
    let document = parse(&text, &Limits::default()).expect("YAML");
    Case::read(&document, &Registry::builtin()).expect("a case")
}

/// A gang of a team.
fn gang(rng: &mut Rng, n: usize) -> String {
    let team = format!("team-{}", rng.below(N_TEAMS));
    let queue = rng.pick(&["a", "b", "c"]);
    let (n_pods, cpu, priority) = (1 + rng.below(3), 1 + rng.below(4), 10 * rng.below(3));
    let min = 1 + rng.below(n_pods);
    let mut objects = format!(
        "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {{name: g{n}, namespace: {team}}}, \
         spec: {{minMember: {min}, queue: {queue}}}}}\n"
    );
    for pod in 0..n_pods {
        objects += &format!(
            "- {{apiVersion: v1, kind: Pod, metadata: {{name: g{n}-{pod}, namespace: {team}, annotations: \
             {{scheduling.k8s.io/group-name: g{n}}}}}, spec: {{schedulerName: kube-batch, priority: {priority}, \
             terminationGracePeriodSeconds: 1, containers: [{{name: main, image: app, resources: {{requests: \
             {{cpu: '{cpu}'}}}}}}]}}}}\n"
        );
    }
    objects
}

/// The teams that a text names: it has the name of a job or pod of theirs.
fn teams_in(text: &str) -> impl Iterator<Item = String> {
    (0..N_TEAMS)
        .map(|team| format!("team-{team}"))
        .filter(|team| text.contains(&format!("{team}/")))
}

/// What is written about a job.
fn texts(report: &JobReport) -> impl Iterator<Item = String> {
    let job = report.unschedulable.as_ref().map(|why| why.words().to_owned());
    let pods = report.unplaced_because.as_ref().map(|why| why.words().to_owned());
    let evicted = report.evicted.as_ref().map(ToString::to_string);
    [job, pods, evicted].into_iter().flatten()
}

/// What has been read of others.
#[derive(Default)]
struct Read {
    /// In how many texts another job is meant, but not named.
    n_unnamed: usize,
    /// In how many texts a job of another namespace is named.
    n_named: usize,
}

impl Read {
    fn add(&mut self, namespace: &str, text: &str) {
        self.n_unnamed += usize::from(text.contains("a job of queue"));
        self.n_named += usize::from(teams_in(text).any(|team| team != namespace));
    }
}

fn play(seed: u64, shows_others: bool) -> Read {
    let mut rng = Rng::new(seed);
    let configuration = configuration(&mut rng, shows_others);
    let min_runtime = rng.pick(&["0s", "20s"]);
    let mut objects = String::new();
    for (name, weight) in [("a", 1), ("b", 1 + rng.below(2)), ("c", rng.below(2))] {
        objects += &format!(
            "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {{name: {name}}}, spec: {{weight: \
             {weight}, minRuntime: {min_runtime}}}}}\n"
        );
    }
    for n in 0..1 + rng.below(3) {
        objects += &format!(
            "- {{apiVersion: v1, kind: Node, metadata: {{name: n{n}}}, status: {{allocatable: {{cpu: '4', pods: \
             '99'}}}}}}\n"
        );
    }
    let first = case(&objects, &configuration);
    let world =
        World::new(first.environment, first.options.clone(), first.conf.metadata_prefixes());
    let mut simulation = Simulation::new(world, first.conf.clone(), Search::Index);
    let apply = |simulation: &mut Simulation, case: &Case| {
        for object in &case.objects {
            simulation.world.apply(object.value.clone()).expect("the object is valid");
        }
    };
    apply(&mut simulation, &first);
    let mut read = Read::default();
    for n in 0..N_CYCLES {
        if rng.percent(60) {
            let gang = gang(&mut rng, n);
            apply(&mut simulation, &case(&gang, &configuration));
        }
        let cycle = &simulation.cycle(&mut |_| {}).cycle;
        for report in cycle.jobs.iter() {
            texts(report).for_each(|text| read.add(&report.key.object().namespace, &text));
        }
        for eviction in &simulation.world.record.evictions {
            read.add(&eviction.pod.namespace, &eviction.cause.to_string());
        }
        for event in &simulation.world.record.events {
            // The object of an event is written `Pod ns/name`.
            let namespace = teams_in(&event.object).next().unwrap_or_default();
            read.add(&namespace, &event.message);
        }
        simulation.world.record.clear();
    }
    read
}

#[test]
fn no_text_names_jobs_of_another_namespace_unless_they_are_shown() {
    let seeds = seeds(400);
    let (mut n_unnamed, mut n_named) = (0, 0);
    for seed in &seeds {
        let hidden = play(*seed, false);
        assert_eq!(hidden.n_named, 0, "SEED={seed}: a job of another namespace is named");
        n_unnamed += usize::from(hidden.n_unnamed > 0);
        n_named += usize::from(play(*seed, true).n_named > 0);
    }
    println!("in {n_unnamed} of {} worlds others are meant, in {n_named} named", seeds.len());
    assert!(is_often(n_unnamed, &seeds, 4) && is_often(n_named, &seeds, 4));
}
