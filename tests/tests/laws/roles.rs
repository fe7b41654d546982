//! Jobs whose roles have minimums (docs/parity.md#k6), compared with a model that tries every set of pods.
//!
//! All pods request one CPU.

use std::collections::BTreeMap;

use kube_batch_framework::candidates::Search;
use kube_batch_model::decision::Decision;
use kube_batch_tests::{
    random_cluster::Rng,
    seeds::{is_often, seeds},
    small_cluster::first_decisions,
};

/// Worlds of each law.
const N_CLUSTERS: u64 = 1_000;
/// A pod of the last has a role without a minimum.
const ROLES: [&str; 3] = ["a", "b", "other"];

/// A job, and what is free.
#[derive(Debug)]
struct Setting {
    min_member: usize,
    /// Of the first two roles.
    min_of_roles: [usize; 2],
    /// The role of each pod, by its position.
    running: Vec<usize>,
    waiting: Vec<usize>,
    n_free: usize,
    /// The size of a gang of higher priority.
    n_high: usize,
}

impl Setting {
    /// A job that starts: pods wait, and a few may run.
    fn starting(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut new = Self::new(&mut rng);
        new.running = (0..rng.below(3)).map(|_| rng.below(3) as usize).collect();
        new.waiting = (0..1 + rng.below(7)).map(|_| rng.below(3) as usize).collect();
        new.n_free = rng.below(9) as usize;
        new
    }

    /// A job that runs at least its minimum in a full cluster, and a gang that preempts.
    fn running(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut new = Self::new(&mut rng);
        let min_of_roles = new.checked_roles();
        let needed = (0..2).flat_map(|role| vec![role; min_of_roles[role]]);
        new.running = needed.collect();
        while new.running.len() < new.min_member || rng.percent(60) && new.running.len() < 9 {
            new.running.push(rng.below(3) as usize);
        }
        new.n_high = 1 + rng.below(4) as usize;
        new
    }

    fn new(rng: &mut Rng) -> Self {
        let min_of_roles = [rng.below(3) as usize, rng.below(3) as usize];
        // Roles count only if the job has their minimums too.
        let of_roles: usize = min_of_roles.iter().sum();
        let min_member =
            if rng.percent(70) { of_roles + rng.below(3) as usize } else { rng.below(6) as usize };
        Self {
            min_member,
            min_of_roles,
            running: Vec::new(),
            waiting: Vec::new(),
            n_free: 0,
            n_high: 0,
        }
    }

    /// The minimum of each role that is checked.
    fn checked_roles(&self) -> [usize; 2] {
        let sum: usize = self.min_of_roles.iter().sum();
        if self.min_member < sum { [0, 0] } else { self.min_of_roles }
    }

    /// Whether a job with pods of these roles is ready.
    fn is_ready(&self, roles: &[usize]) -> bool {
        let n_of = |role: usize| roles.iter().filter(|own| **own == role).count();
        let min_of_roles = self.checked_roles();
        roles.len() >= self.min_member && (0..2).all(|role| n_of(role) >= min_of_roles[role])
    }

    /// Whether some set of at most `n_free` waiting pods makes the job ready.
    fn may_start(&self) -> bool {
        subsets(&self.waiting).any(|chosen| {
            let fits = chosen.len() <= self.n_free;
            fits && self.is_ready(&[self.running.clone(), chosen].concat())
        })
    }

    /// Whether some set of `n_high` running pods may leave.
    fn may_lose(&self) -> bool {
        let stays = self.running.len().checked_sub(self.n_high);
        subsets(&self.running).any(|left| Some(left.len()) == stays && self.is_ready(&left))
    }

    fn yaml(&self) -> String {
        let n_nodes = 3;
        let n_cpus = self.running.len() + self.n_free;
        let mut text = "name: roles
config:
  actions: allocate, preempt
  tiers:
  - plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]
objects:
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}}
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}
"
        .to_owned();
        // A pod runs on the node of its position, and what is free is on the last.
        for node in 0..n_nodes {
            let running = (0..self.running.len()).filter(|at| at % n_nodes == node).count();
            let cpu = running + if node + 1 == n_nodes { self.n_free } else { 0 };
            text += &format!(
                "- {{apiVersion: v1, kind: Node, metadata: {{name: n{node}}}, status: {{allocatable: {{cpu: '{cpu}', pods: '99'}}}}}}\n"
            );
        }
        assert!(n_cpus < 99, "the nodes have pod slots for all");
        let [a, b] = self.min_of_roles;
        text += &format!(
            "- {{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {{name: g, namespace: ns}}, spec: {{minMember: {}, minTaskMember: {{a: {a}, b: {b}}}}}}}\n",
            self.min_member
        );
        let pod = |name: &str, group: &str, role: &str, node: Option<usize>| {
            let node_name = node.map(|at| format!(", nodeName: n{at}")).unwrap_or_default();
            let phase = if node.is_some() { "Running" } else { "Pending" };
            format!(
                "- {{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: ns, annotations: {{scheduling.k8s.io/group-name: {group}, volcano.sh/task-spec: {role}}}}}, spec: {{schedulerName: kube-batch{node_name}, containers: [{{name: c, resources: {{requests: {{cpu: '1'}}}}}}]}}, status: {{phase: {phase}}}}}\n"
            )
        };
        for (at, role) in self.running.iter().enumerate() {
            text += &pod(&format!("r{at}"), "g", ROLES[*role], Some(at % n_nodes));
        }
        for (at, role) in self.waiting.iter().enumerate() {
            text += &pod(&format!("w{at}"), "g", ROLES[*role], None);
        }
        if self.n_high > 0 {
            text += &format!(
                "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {{name: h, namespace: ns}}, spec: {{minMember: {}, priorityClassName: high}}}}\n",
                self.n_high
            );
            for at in 0..self.n_high {
                text += &pod(&format!("h{at}"), "h", "other", None);
            }
        }
        text + "steps:\n- cycles: 1\n"
    }

    /// The positions of the pods that are bound, and of those that are evicted.
    fn run(&self) -> (Vec<usize>, Vec<usize>) {
        let (mut bound, mut evicted) = (Vec::new(), Vec::new());
        for decision in first_decisions(&self.yaml(), Search::Index) {
            let name = &decision.pod().key.name;
            let at: usize = name[1..].parse().expect("names are numbered");
            match decision {
                Decision::Bind { .. } => bound.push(at),
                Decision::Evict { .. } => evicted.push(at),
                Decision::Nominate { .. }
                | Decision::Withdraw { .. }
                | Decision::Deallocate { .. } => {}
            }
        }
        (bound, evicted)
    }
}

fn subsets(of: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    (0_u32..1 << of.len()).map(|bits| {
        let chosen = of.iter().enumerate().filter(move |(at, _)| bits & (1 << at) != 0);
        chosen.map(|(_, role)| *role).collect()
    })
}

fn count(kinds: &mut BTreeMap<&'static str, usize>, kind: &'static str) {
    *kinds.entry(kind).or_default() += 1;
}

#[test]
fn a_job_starts_exactly_if_some_set_of_its_pods_makes_it_ready() {
    let seeds = seeds(N_CLUSTERS);
    let mut kinds = BTreeMap::new();
    for seed in seeds.iter().copied() {
        let setting = Setting::starting(seed);
        let (bound, evicted) = setting.run();
        assert_eq!(evicted, [0; 0], "seed {seed}");
        if !setting.may_start() {
            assert_eq!(bound, [0; 0], "seed {seed}: {setting:?}");
            count(&mut kinds, "waits");
            continue;
        }
        let roles: Vec<usize> = bound.iter().map(|at| setting.waiting[*at]).collect();
        let all = [setting.running.clone(), roles].concat();
        assert!(setting.is_ready(&all), "seed {seed}: {bound:?} of {setting:?}");
        let n_expected = setting.waiting.len().min(setting.n_free);
        assert_eq!(bound.len(), n_expected, "seed {seed}: {bound:?} of {setting:?}");
        count(&mut kinds, "starts");
    }
    let is_often = |n: &usize| is_often(*n, &seeds, 10);
    assert!(kinds.values().all(is_often) && kinds.len() == 2, "{kinds:?}");
}

#[test]
fn evictions_leave_the_job_and_each_role_their_minimum() {
    let seeds = seeds(N_CLUSTERS);
    let mut kinds = BTreeMap::new();
    for seed in seeds.iter().copied() {
        let setting = Setting::running(seed);
        // A minimum of 0 or 1 protects nothing.
        if setting.min_member < 2 {
            continue;
        }
        let (_, evicted) = setting.run();
        if !setting.may_lose() {
            assert_eq!(evicted, [0; 0], "seed {seed}: {setting:?}");
            count(&mut kinds, "keeps");
            continue;
        }
        assert_eq!(evicted.len(), setting.n_high, "seed {seed}: {evicted:?} of {setting:?}");
        let is_left = |at: &usize| !evicted.contains(at);
        let left: Vec<usize> =
            (0..setting.running.len()).filter(is_left).map(|at| setting.running[at]).collect();
        assert!(setting.is_ready(&left), "seed {seed}: {evicted:?} of {setting:?}");
        count(&mut kinds, "loses");
    }
    let is_often = |n: &usize| is_often(*n, &seeds, 10);
    assert!(kinds.values().all(is_often) && kinds.len() == 2, "{kinds:?}");
}
