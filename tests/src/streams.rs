//! Streams of jobs: small jobs come and end, and some large ones come between them.

use kube_batch_framework::candidates::Search;
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, simulation::Simulation, world::World};
use kube_batch_yaml::{Limits, parse};

use crate::random_cluster::Rng;

/// The configuration that is shipped, without `topology` and without the arguments of `nodeorder`, with these
/// arguments of `reservation`; without that plugin if there are none.
pub fn configuration(reservation: Option<&str>) -> String {
    let plugin = reservation.map_or(String::new(), |arguments| {
        format!(", {{name: reservation, arguments: {{{arguments}}}}}")
    });
    format!(
        "config:
  actions: reclaim, allocate, backfill, preempt
  tiers:
  - plugins: [{{name: priority}}, {{name: gang, arguments: {{gang.evictWholeGangs: true, gang.maxLoss: 4}}}}, {{name: conformance}}, {{name: pdb}}]
  - plugins: [{{name: drf}}, {{name: predicates}}, {{name: proportion}}, {{name: nodeorder}}{plugin}]
"
    )
}

/// A job of a stream.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Its name.
    pub name: String,
    /// When it comes, in seconds.
    pub at: u64,
    /// Its queue.
    pub queue: u64,
    /// Number of its pods, all of which start together.
    pub n_pods: u64,
    /// What each requests.
    pub cpus: u64,
    /// How long each runs, in seconds.
    pub seconds: u64,
    /// Whether the pods say how long they run.
    pub is_declared: bool,
}

/// A cluster and the jobs that come, in the order of their times.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The weight of each queue.
    pub weights: Vec<u64>,
    /// The CPUs of each node.
    pub nodes: Vec<u64>,
    /// The jobs.
    pub arrivals: Vec<Arrival>,
}

impl Stream {
    fn case(&self, configuration: &str) -> Case {
        let mut text = format!("name: stream\n{configuration}objects:\n");
        for (queue, weight) in self.weights.iter().enumerate() {
            text += &format!(
                "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {{name: q{queue}}}, spec: {{weight: {weight}}}}}\n"
            );
        }
        for (node, cpus) in self.nodes.iter().enumerate() {
            text += &format!(
                "- {{apiVersion: v1, kind: Node, metadata: {{name: n{node}}}, status: {{allocatable: {{cpu: '{cpus}', pods: '99'}}}}}}\n"
            );
        }
        for Arrival { name, queue, n_pods, cpus, seconds, is_declared, .. } in &self.arrivals {
            let declared = if *is_declared {
                format!(", scheduling.sigs.dev/run-time: {seconds}s")
            } else {
                String::new()
            };
            text += &format!(
                "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {{name: {name}}}, spec: {{minMember: {n_pods}, queue: q{queue}}}}}
- {{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}}}, spec: {{parallelism: {n_pods}, completions: {n_pods}, template: {{metadata: {{annotations: {{scheduling.k8s.io/group-name: {name}, kube-batch.sim/duration-seconds: '{seconds}'{declared}}}}}, spec: {{schedulerName: kube-batch, restartPolicy: Never, containers: [{{name: c, image: i, resources: {{requests: {{cpu: '{cpus}'}}}}}}]}}}}}}}}\n"
            );
        }
        text += "steps:\n- cycles: 1\n";
        let document = parse(&text, &Limits::default()).expect("YAML");
        Case::read(&document, &Registry::builtin()).expect("a case")
    }

    /// Plays the stream, a cycle each second, until the job at this place has started. Returns for each job how long it
    /// has waited for its start, in seconds; `None` if it has not started.
    ///
    /// # Panics
    ///
    /// If the configuration is wrong.
    pub fn play(
        &self,
        configuration: &str,
        n_seconds: u64,
        until: Option<usize>,
    ) -> Vec<Option<u64>> {
        let case = self.case(configuration);
        let before = self.weights.len() + self.nodes.len();
        let mut world =
            World::new(case.environment, case.options.clone(), case.conf.metadata_prefixes());
        for object in &case.objects[..before] {
            world.apply(object.value.clone()).expect("the object is valid");
        }
        let mut simulation = Simulation::new(world, case.conf.clone(), Search::Index);
        let mut waits = vec![None; self.arrivals.len()];
        let mut n_arrived = 0;
        for second in 0..n_seconds {
            while let Some(arrival) = self.arrivals.get(n_arrived).filter(|own| own.at <= second) {
                debug_assert!(arrival.at >= self.arrivals[n_arrived.saturating_sub(1)].at);
                for object in &case.objects[before + 2 * n_arrived..][..2] {
                    simulation.world.apply(object.value.clone()).expect("the object is valid");
                }
                n_arrived += 1;
            }
            simulation.cycle(&mut |_| {});
            let record = std::mem::take(&mut simulation.world.record);
            for (pod, _) in record.binds {
                // Pods of a Job are called by its name and a number.
                let job = pod.name.rsplit_once('-').map_or(&*pod.name, |(job, _)| job);
                let at = self.arrivals.iter().position(|arrival| arrival.name == job);
                let at = at.expect("the pod of a job");
                waits[at].get_or_insert(second - self.arrivals[at].at);
            }
            if until.is_some_and(|at| waits[at].is_some()) {
                break;
            }
        }
        waits
    }
}

/// Small jobs of one queue that together use this part of the cluster, in percent.
pub fn small_jobs(
    rng: &mut Rng,
    queue: u64,
    total_cpus: u64,
    percent: u64,
    n_seconds: u64,
) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    // What should have come and what has, in hundredths of the seconds that a CPU is used for.
    let (mut wanted, mut sum) = (0, 0);
    for at in 0..n_seconds {
        wanted += total_cpus * percent;
        while sum < wanted {
            let (cpus, seconds) = (1 + rng.below(4), 10 + rng.below(50));
            sum += cpus * seconds * 100;
            let name = format!("small{queue}x{}", arrivals.len());
            let is_declared = rng.percent(30);
            arrivals.push(Arrival { name, at, queue, n_pods: 1, cpus, seconds, is_declared });
        }
    }
    arrivals
}
