//! Composite PodGroups (docs/parity.md#k8), compared with a model that tries every set of their groups.
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

/// A composite PodGroup, and what is free.
#[derive(Debug)]
struct Setting {
    /// The first is the outermost; each of the others is part of it.
    composites: Vec<usize>,
    groups: Vec<Group>,
    /// Free CPUs of each rack; there is only one if no domain is required.
    n_free: Vec<usize>,
    /// The size of a gang of higher priority.
    n_high: usize,
}

#[derive(Debug)]
struct Group {
    min: usize,
    n_running: usize,
    n_waiting: usize,
    /// Its composite PodGroup.
    parent: usize,
}

impl Setting {
    /// Groups that wait, some of which may run.
    fn starting(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut new = Self::new(&mut rng);
        for group in &mut new.groups {
            if rng.percent(20) {
                group.n_running = group.min;
            }
            group.n_waiting = rng.below(5) as usize;
        }
        new.n_free = vec![rng.below(12) as usize];
        new
    }

    /// Groups that wait and must all be in one rack.
    fn in_one_rack(seed: u64) -> Self {
        let mut new = Self::starting(seed);
        let mut rng = Rng::new(!seed);
        new.groups.iter_mut().for_each(|group| group.n_running = 0);
        new.n_free = (0..2 + rng.below(2)).map(|_| rng.below(9) as usize).collect();
        new
    }

    /// Groups that run in a full cluster, and a gang that preempts.
    fn running(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut new = Self::new(&mut rng);
        for group in &mut new.groups {
            if rng.percent(80) {
                group.n_running = group.min + rng.below(2) as usize;
            }
        }
        new.n_free = vec![0];
        new.n_high = 1 + rng.below(2) as usize;
        new
    }

    fn new(rng: &mut Rng) -> Self {
        let n_composites = 1 + rng.below(3);
        let composites = (0..n_composites).map(|_| 1 + rng.below(3) as usize).collect();
        let groups = (0..1 + rng.below(5)).map(|_| Group {
            min: 1 + rng.below(3) as usize,
            n_running: 0,
            n_waiting: 0,
            parent: rng.below(n_composites) as usize,
        });
        Self { composites, groups: groups.collect(), n_free: Vec::new(), n_high: 0 }
    }

    /// Which composite PodGroups are complete if the groups have this many pods.
    fn complete(&self, n_pods: &[usize]) -> Vec<bool> {
        let is_ready = |at: usize| n_pods[at] >= self.groups[at].min;
        let n_ready = |composite: usize| {
            let own = (0..self.groups.len()).filter(|at| self.groups[*at].parent == composite);
            own.filter(|at| is_ready(*at)).count()
        };
        let mut complete: Vec<bool> = self
            .composites
            .iter()
            .enumerate()
            .map(|(composite, min)| n_ready(composite) >= *min)
            .collect();
        let n_inner = complete[1..].iter().filter(|is_complete| **is_complete).count();
        complete[0] = n_ready(0) + n_inner >= self.composites[0];
        complete
    }

    fn n_running(&self) -> Vec<usize> {
        self.groups.iter().map(|group| group.n_running).collect()
    }

    /// Whether every group with more pods than before may start with them.
    fn is_legal(&self, n_pods: &[usize]) -> bool {
        let complete = self.complete(n_pods);
        self.groups.iter().zip(n_pods).all(|(group, n_pods)| {
            *n_pods == group.n_running
                || *n_pods >= group.min && complete[0] && complete[group.parent]
        })
    }

    /// Whether some set of groups may start that makes the outermost composite PodGroup complete.
    fn may_start(&self) -> bool {
        let most = self.n_free.iter().copied().max().unwrap_or(0);
        (0_u32..1 << self.groups.len()).any(|bits| {
            let n_pods: Vec<usize> = self
                .groups
                .iter()
                .enumerate()
                .map(|(at, group)| match bits & (1 << at) {
                    0 => group.n_running,
                    _ => group.min.max(group.n_running),
                })
                .collect();
            let exist = self
                .groups
                .iter()
                .zip(&n_pods)
                .all(|(group, n_pods)| *n_pods <= group.n_running + group.n_waiting);
            let n_new: usize =
                n_pods.iter().sum::<usize>() - self.n_running().iter().sum::<usize>();
            exist && n_new <= most && self.is_legal(&n_pods) && self.complete(&n_pods)[0]
        })
    }

    fn yaml(&self) -> String {
        let mut text = "name: composites
config:
  actions: allocate, preempt
  tiers:
  - plugins: [{name: priority}, {name: gang}, {name: topology}, {name: predicates}, {name: nodeorder}]
objects:
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}}
"
        .to_owned();
        let n_running: usize = self.n_running().iter().sum();
        let is_free = self.n_free.len() == 1;
        for (rack, n_free) in self.n_free.iter().enumerate() {
            // Each rack has two nodes, so that its pods do not fit on one.
            for (node, n_free) in [n_free / 2, n_free - n_free / 2].into_iter().enumerate() {
                let cpu = n_free + if rack + node == 0 { n_running } else { 0 };
                text += &format!(
                    "- {{apiVersion: v1, kind: Node, metadata: {{name: n{rack}{node}, labels: {{rack: r{rack}}}}}, status: {{allocatable: {{cpu: '{cpu}', pods: '99'}}}}}}\n"
                );
            }
        }
        let parent_of = |name: &str| {
            format!(
                "workloadRef: {{workloadName: w, templateName: t}}, parentCompositePodGroupName: {name}"
            )
        };
        for (at, min) in self.composites.iter().enumerate() {
            let parent = if at == 0 { String::new() } else { format!(", {}", parent_of("c0")) };
            let rack = if at == 0 && !is_free {
                ", schedulingConstraints: {topology: [{key: rack}]}"
            } else {
                ""
            };
            text += &format!(
                "- {{apiVersion: scheduling.k8s.io/v1alpha3, kind: CompositePodGroup, metadata: {{name: c{at}, namespace: ns}}, spec: {{schedulingPolicy: {{gang: {{minGroupCount: {min}}}}}{rack}{parent}}}}}\n"
            );
        }
        let group = |name: &str, min: usize, priority: i32, parent: &str| {
            format!(
                "- {{apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, metadata: {{name: {name}, namespace: ns}}, spec: {{schedulingPolicy: {{gang: {{minCount: {min}}}}}, priority: {priority}{parent}}}}}\n"
            )
        };
        let pod = |name: &str, group: &str, priority: i32, runs: bool| {
            let node = if runs { ", nodeName: n00" } else { "" };
            let phase = if runs { "Running" } else { "Pending" };
            format!(
                "- {{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: ns}}, spec: {{schedulerName: kube-batch, priority: {priority}, schedulingGroup: {{podGroupName: {group}}}{node}, containers: [{{name: c, resources: {{requests: {{cpu: '1'}}}}}}]}}, status: {{phase: {phase}}}}}\n"
            )
        };
        for (at, Group { min, n_running, n_waiting, parent }) in self.groups.iter().enumerate() {
            let name = format!("g{at}");
            text += &group(&name, *min, 0, &format!(", {}", parent_of(&format!("c{parent}"))));
            for n in 0..n_running + n_waiting {
                text += &pod(&format!("p{at}-{n}"), &name, 0, n < *n_running);
            }
        }
        if self.n_high > 0 {
            text += &group("h", self.n_high, 9, "");
            for n in 0..self.n_high {
                text += &pod(&format!("h-{n}"), "h", 9, false);
            }
        }
        text + "steps:\n- cycles: 1\n"
    }

    /// How many pods of each group are bound, and evicted; and the racks of those that are bound.
    fn run(&self) -> (Vec<usize>, Vec<usize>, Vec<String>) {
        let mut bound = vec![0; self.groups.len()];
        let (mut evicted, mut racks) = (bound.clone(), Vec::new());
        let decisions = first_decisions(&self.yaml(), Search::Index);
        assert_eq!(decisions, first_decisions(&self.yaml(), Search::Naive), "{}", self.yaml());
        for decision in decisions {
            let name = decision.pod().key.name.to_string();
            let Some((group, _)) = name.strip_prefix('p').and_then(|name| name.split_once('-'))
            else {
                continue;
            };
            let group: usize = group.parse().expect("groups are numbered");
            match decision {
                Decision::Bind { node, .. } => {
                    bound[group] += 1;
                    racks.push(node.as_str()[..2].to_owned());
                }
                Decision::Evict { .. } => evicted[group] += 1,
                Decision::Nominate { .. }
                | Decision::Withdraw { .. }
                | Decision::Deallocate { .. } => {}
            }
        }
        racks.sort_unstable();
        racks.dedup();
        (bound, evicted, racks)
    }

    /// Checks the bindings of a cluster without a gang of higher priority.
    fn check_start(&self, seed: u64, kinds: &mut BTreeMap<&'static str, usize>) {
        let (bound, evicted, racks) = self.run();
        assert!(evicted.iter().all(|n| *n == 0), "seed {seed}: {self:?}");
        let n_pods: Vec<usize> = self.n_running().iter().zip(&bound).map(|(l, r)| l + r).collect();
        assert!(self.is_legal(&n_pods), "seed {seed}: {bound:?} of {self:?}");
        assert!(self.n_free.len() == 1 || racks.len() < 2, "seed {seed}: {racks:?} of {self:?}");
        if self.complete(&self.n_running())[0] {
            return;
        }
        let starts = bound.iter().any(|n| *n > 0);
        assert_eq!(starts, self.may_start(), "seed {seed}: {bound:?} of {self:?}");
        *kinds.entry(if starts { "starts" } else { "waits" }).or_default() += 1;
    }
}

#[test]
fn groups_start_exactly_if_some_set_of_them_makes_their_composite_complete() {
    let seeds = seeds(N_CLUSTERS);
    let mut kinds = BTreeMap::new();
    for seed in seeds.iter().copied() {
        Setting::starting(seed).check_start(seed, &mut kinds);
    }
    let is_often = |n: &usize| is_often(*n, &seeds, 10);
    assert!(kinds.values().all(is_often) && kinds.len() == 2, "{kinds:?}");
}

#[test]
fn groups_start_exactly_if_one_domain_holds_such_a_set() {
    let seeds = seeds(N_CLUSTERS);
    let mut kinds = BTreeMap::new();
    for seed in seeds.iter().copied() {
        Setting::in_one_rack(seed).check_start(seed, &mut kinds);
    }
    let is_often = |n: &usize| is_often(*n, &seeds, 10);
    assert!(kinds.values().all(is_often) && kinds.len() == 2, "{kinds:?}");
}

#[test]
fn evictions_leave_groups_and_composites_complete() {
    let seeds = seeds(N_CLUSTERS);
    let mut n_evicting = 0;
    for seed in seeds.iter().copied() {
        let setting = Setting::running(seed);
        let (_, evicted, _) = setting.run();
        let n_left: Vec<usize> =
            setting.n_running().iter().zip(&evicted).map(|(all, gone)| all - gone).collect();
        let (before, after) = (setting.complete(&setting.n_running()), setting.complete(&n_left));
        for at in 0..before.len() {
            // One of a single pod is gone with it.
            let is_below = |group: &&Group| at == 0 || group.parent == at;
            let groups = setting.groups.iter().zip(&n_left).filter(|(group, _)| is_below(group));
            let is_gone = groups.clone().all(|(group, left)| *left < group.min);
            assert!(!before[at] || after[at] || is_gone, "seed {seed}: {evicted:?} of {setting:?}");
        }
        for (group, left) in setting.groups.iter().zip(&n_left) {
            let is_met = group.min < 2 || group.n_running < group.min || *left >= group.min;
            assert!(is_met, "seed {seed}: {evicted:?} of {setting:?}");
        }
        n_evicting += usize::from(evicted.iter().any(|n| *n > 0));
    }
    assert!(is_often(n_evicting, &seeds, 10), "{n_evicting}");
}
