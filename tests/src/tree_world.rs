//! Random trees of queues, with jobs for them.

use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::case::Case;
use kube_batch_yaml::{Limits, parse};

use crate::random_cluster::Rng;

/// The resource of devices.
pub const GPU: &str = "example.com/gpu";

/// A queue of a random world.
#[derive(Clone, Debug, Default)]
pub struct RandomQueue {
    /// Its place among the queues is in its name: `q3`.
    pub parent: Option<usize>,
    /// Its fields besides `parent`, as in YAML.
    pub fields: String,
    /// CPUs that it may hold.
    pub cpu_limit: Option<u64>,
    /// Whether others may not take what it holds.
    pub is_fenced: bool,
    /// Whether it starts nothing.
    pub is_closed: bool,
    /// How many of its jobs may hold something.
    pub max_running_jobs: Option<u64>,
}

/// What a random world may have.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Whether there are GPUs beside CPUs.
    pub has_gpus: bool,
    /// Whether pods have one CPU, and jobs no minimum.
    pub has_unit_pods: bool,
    /// Whether queues have limits, fences and states.
    pub has_limits: bool,
    /// Whether pods end after some seconds, and jobs when all their pods have.
    pub has_ends: bool,
}

/// A job of a random world.
#[derive(Clone, Copy, Debug)]
pub struct RandomJob {
    /// The place of its queue.
    pub queue: usize,
    /// How many pods it has.
    pub n_pods: u64,
    /// How many of them start together.
    pub min: u64,
    /// CPUs of each pod.
    pub cpu: u64,
}

/// A random world.
#[derive(Debug)]
pub struct TreeWorld {
    /// Each after its parent.
    pub queues: Vec<RandomQueue>,
    /// The place of a job is in its name: `j3`.
    pub jobs: Vec<RandomJob>,
    /// CPUs of each node.
    pub nodes: Vec<u64>,
    /// The world as a case, and what comes later as another.
    pub cases: [Case; 2],
}

impl TreeWorld {
    /// The world of a seed.
    ///
    /// # Panics
    ///
    /// If the configuration is wrong.
    pub fn new(configuration: &str, seed: u64, kind: Kind) -> Self {
        let mut rng = Rng::new(seed);
        let queues = queues(&mut rng, kind);
        let [mut text, mut later] =
            [(); 2].map(|()| format!("name: tree\n{configuration}objects:\n"));
        text += &objects(&queues);
        for (name, value) in [("low", 10), ("high", 100)] {
            text += &format!(
                "- {{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: {name}}}, value: {value}}}\n"
            );
        }
        let mut nodes = Vec::new();
        for node in 0..1 + rng.below(3) {
            let gpus = if kind.has_gpus { ", example.com/gpu: '8'" } else { "" };
            let cpu = [4, 8, 12][rng.below(3) as usize];
            nodes.push(cpu);
            text += &format!(
                "- {{apiVersion: v1, kind: Node, metadata: {{name: n{node}}}, status: {{allocatable: {{cpu: '{cpu}', pods: '99'{gpus}}}}}}}\n"
            );
        }
        let is_leaf = |queue: &usize| queues.iter().all(|own| own.parent != Some(*queue));
        let leaves: Vec<usize> = (0..queues.len()).filter(is_leaf).collect();
        let mut jobs = Vec::new();
        for job in 0..2 + rng.below(7) {
            // Some name a queue that takes no jobs.
            let queue = match rng.percent(90) {
                true => leaves[rng.below(leaves.len() as u64) as usize],
                false => rng.below(queues.len() as u64) as usize,
            };
            let objects = if rng.percent(50) { &mut text } else { &mut later };
            let (job, of_job) = job_of(&mut rng, kind, job, queue);
            *objects += &of_job;
            jobs.push(job);
        }
        // A case has at least one object.
        later += "- {apiVersion: v1, kind: Namespace, metadata: {name: other}}\n";
        let cases = [text, later].map(case);
        Self { queues, jobs, nodes, cases }
    }

    /// Gives the queues other fields and parents, and returns them as the objects of a case.
    pub fn change_queues(&mut self, configuration: &str, seed: u64, kind: Kind) -> Case {
        let rng = &mut Rng::new(seed);
        let has_numbers = rng.percent(70);
        for at in 0..self.queues.len() {
            if rng.percent(50) {
                self.queues[at] = random_queue(rng, kind, at, has_numbers);
            }
        }
        case(format!("name: tree\n{configuration}objects:\n{}", objects(&self.queues)))
    }

    /// CPUs of all nodes.
    pub fn n_cpus(&self) -> u64 {
        self.nodes.iter().sum()
    }

    /// Whether no queue is below this one.
    pub fn is_leaf(&self, queue: usize) -> bool {
        self.queues.iter().all(|own| own.parent != Some(queue))
    }

    /// A queue and all above it.
    pub fn path(&self, queue: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(queue), |queue| self.queues[*queue].parent)
    }

    /// The queue of a pod, by its name.
    ///
    /// # Panics
    ///
    /// If it is no pod of this world.
    pub fn queue_of(&self, pod: &str) -> usize {
        self.jobs[job_of_pod(pod)].queue
    }
}

/// The number of the job of a pod.
///
/// # Panics
///
/// If it is no pod of a job.
pub fn job_of_pod(pod: &str) -> usize {
    let name = pod.split('-').next().and_then(|job| job.strip_prefix('j'));
    name.and_then(|job| job.parse().ok()).expect("the pod of a job")
}

fn case(objects: String) -> Case {
    let text = objects + "steps:\n- cycles: 1\n";
    let document = parse(&text, &Limits::default()).expect("YAML");
    Case::read(&document, &Registry::builtin()).expect("a case")
}

fn objects(queues: &[RandomQueue]) -> String {
    let object = |(at, queue): (usize, &RandomQueue)| {
        let parent = queue.parent.map(|parent| format!(", parent: q{parent}")).unwrap_or_default();
        format!(
            "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {{name: q{at}}}, spec: {{{}{parent}}}}}\n",
            queue.fields
        )
    };
    queues.iter().enumerate().map(object).collect()
}

fn queues(rng: &mut Rng, kind: Kind) -> Vec<RandomQueue> {
    let has_numbers = rng.percent(70);
    let n_queues = 2 + rng.below(7) as usize;
    (0..n_queues).map(|at| random_queue(rng, kind, at, has_numbers)).collect()
}

/// The queue at a place; its parent is before it.
fn random_queue(rng: &mut Rng, kind: Kind, at: usize, has_numbers: bool) -> RandomQueue {
    let parent = (at > 0 && rng.percent(65)).then(|| rng.below(at as u64) as usize);
    let mut fields = format!("weight: {}", rng.below(4));
    let amounts = |rng: &mut Rng, most: u64| {
        let cpu = format!("cpu: '{}'", rng.below(most));
        let gpu = format!(", {GPU}: '{}'", rng.below(most));
        format!("{{{cpu}{}}}", if kind.has_gpus && rng.percent(50) { &gpu } else { "" })
    };
    if has_numbers && rng.percent(30) {
        fields += &format!(", deserved: {}", amounts(rng, 10));
    }
    if has_numbers && rng.percent(25) {
        fields += &format!(", guarantee: {}", amounts(rng, 5));
    }
    if has_numbers && rng.percent(30) {
        fields += &format!(", priority: {}", rng.below(3));
    }
    let mut queue = RandomQueue { parent, ..RandomQueue::default() };
    if kind.has_limits && rng.percent(25) {
        let limit = 1 + rng.below(12);
        queue.cpu_limit = Some(limit);
        fields += &format!(", capability: {{cpu: '{limit}'}}");
    }
    if kind.has_limits && rng.percent(15) {
        queue.is_fenced = true;
        fields += ", reclaimable: false";
    }
    if kind.has_limits && rng.percent(10) {
        queue.is_closed = true;
        fields += ", state: Closed";
    }
    if kind.has_limits && rng.percent(15) {
        let most = rng.below(4);
        queue.max_running_jobs = Some(most);
        fields += &format!(", maxRunningJobs: {most}");
    }
    if kind.has_limits && rng.percent(20) {
        fields += [", order: Fifo", ", order: StrictFifo"][rng.below(2) as usize];
    }
    queue.fields = fields;
    queue
}

/// A job, and its objects.
fn job_of(rng: &mut Rng, kind: Kind, job: u64, queue: usize) -> (RandomJob, String) {
    let n_pods = 1 + rng.below(8);
    let (min, cpu) = match kind.has_unit_pods {
        true => (1, 1),
        false if rng.percent(60) => (1, 1 + rng.below(4)),
        false => (1 + rng.below(n_pods), 1 + rng.below(4)),
    };
    let class = ["low", "low", "high"][rng.below(3) as usize];
    let gpu = match kind.has_gpus && rng.percent(70) {
        true => format!(", {GPU}: '{}'", [1, 1, 2, 4][rng.below(4) as usize]),
        false => String::new(),
    };
    let (controller, size, ends) = match kind.has_ends {
        true => (
            "batch/v1, kind: Job",
            format!("parallelism: {n_pods}, completions: {n_pods}"),
            format!(", kube-batch.sim/duration-seconds: '{}'", 1 + rng.below(8)),
        ),
        false => (
            "apps/v1, kind: ReplicaSet",
            format!("replicas: {n_pods}, selector: {{matchLabels: {{job: j{job}}}}}"),
            String::new(),
        ),
    };
    let objects = format!(
        "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {{name: j{job}, namespace: ns}}, spec: {{minMember: {min}, queue: q{queue}, priorityClassName: {class}}}}}
- {{apiVersion: {controller}, metadata: {{name: j{job}, namespace: ns}}, spec: {{{size}, template: {{metadata: {{labels: {{job: j{job}}}, annotations: {{scheduling.k8s.io/group-name: j{job}{ends}}}}}, spec: {{schedulerName: kube-batch, priorityClassName: {class}, containers: [{{name: c, resources: {{requests: {{cpu: '{cpu}'{gpu}}}}}}}]}}}}}}}}\n"
    );
    (RandomJob { queue, n_pods, min, cpu }, objects)
}
