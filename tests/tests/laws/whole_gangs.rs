//! Compares the victims of a preemptor with the best set, found by trying every set of victims of a small
//! cluster (docs/parity.md#p10).
//!
//! Where all pods request the same, the scheduler must find the best set. Elsewhere it must find a set if
//! there is one, and none of the victims may be able to stay; how often its set is not the best is counted.

use std::{cmp::Reverse, collections::BTreeMap};

use kube_batch_framework::{candidates::Search, report::Cycle};
use kube_batch_model::decision::Decision;
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, world::World};
use kube_batch_tests::{
    checker::problems,
    random_cluster::Rng,
    seeds::{is_often, seeds},
};
use kube_batch_yaml::{Limits, parse};

/// Clusters of each kind.
const N_CLUSTERS: u64 = 300;
const PRIORITIES: [i64; 3] = [10, 20, 30];

#[derive(Debug)]
struct Pod {
    node: usize,
    cpu: u64,
}

#[derive(Debug)]
struct Job {
    priority: i64,
    min: usize,
    /// Seconds.
    start: u64,
    pods: Vec<Pod>,
    /// How many of its pods a disruption budget lets go; `None` without a budget.
    allowed: Option<usize>,
    /// How many of its pods its Job of `batch` may lose without failing; `None` if any number.
    left: Option<usize>,
}

#[derive(Debug)]
struct SmallCluster {
    nodes: Vec<u64>,
    jobs: Vec<Job>,
    n_wanted: usize,
    cpu_wanted: u64,
    /// Whether the victims are of another queue, which has all resources and deserves what is not wanted.
    is_reclaim: bool,
    /// `gang.maxLoss`, 0 if there is no limit.
    max_loss: u64,
}

/// Which small clusters to try.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    /// Whether all pods request the same.
    is_uniform: bool,
    has_budgets: bool,
    /// Whether Jobs of `batch` fail by evictions.
    has_jobs: bool,
    is_reclaim: bool,
    max_loss: u64,
}

/// Runs a cycle of a case.
fn cycle(text: &str) -> (World, Case, Cycle) {
    let document = parse(text, &Limits::default()).expect("YAML");
    let case = Case::read(&document, &Registry::builtin()).expect("a case");
    let mut world =
        World::new(case.environment, case.options.clone(), case.conf.metadata_prefixes());
    for object in &case.objects {
        world.apply(object.value.clone()).expect("objects are valid");
    }
    // So the scheduler knows of Jobs.
    world.run_controllers();
    let (cluster, search) = (world.snapshot().cluster, Search::Index);
    let cycle = case.conf.run_cycle(cluster, world.now(), search, &mut |_| {});
    (world, case, cycle)
}

/// Compared in this order: violations, highest priority, whether the loss is out of proportion or a queue would fall
/// short, Jobs of `batch` that fail, gangs, CPUs, start of the first of the highest
/// priority.
type Cost = (usize, i64, bool, usize, usize, u64, Reverse<u64>);

impl SmallCluster {
    fn new(seed: u64, kind: Kind) -> Self {
        let Kind { is_uniform, has_budgets, has_jobs, is_reclaim, max_loss } = kind;
        let mut rng = Rng::new(seed);
        let n_nodes = 1 + rng.below(3) as usize;
        let mut nodes = vec![0; n_nodes];
        let n_priorities = 1 + rng.below(3);
        let mut jobs = Vec::new();
        let mut n_pods = 0;
        while n_pods < 11 && jobs.len() < 6 {
            let n = 1 + rng.below(4) as usize;
            let min = if rng.percent(60) { n } else { 1 + rng.below(n as u64) as usize };
            let pods: Vec<Pod> = (0..n)
                .map(|_| {
                    let node = rng.below(n_nodes as u64) as usize;
                    let cpu = if is_uniform { 1 } else { 1 + rng.below(3) };
                    nodes[node] += cpu;
                    Pod { node, cpu }
                })
                .collect();
            n_pods += n;
            jobs.push(Job {
                priority: PRIORITIES[rng.below(n_priorities) as usize],
                min,
                start: 1 + rng.below(9),
                pods,
                allowed: (has_budgets && rng.percent(40)).then(|| rng.below(3) as usize),
                left: (has_jobs && rng.percent(60)).then(|| rng.below(3) as usize),
            });
        }
        let cpu_wanted = if is_uniform { 1 } else { 1 + rng.below(4) };
        let total: u64 = nodes.iter().sum();
        // A queue deserves half of the cluster at most.
        let most = if is_reclaim { (total / 2 / cpu_wanted).clamp(1, 6) } else { 6 };
        let n_wanted = 1 + rng.below(most) as usize;
        Self { nodes, jobs, n_wanted, cpu_wanted, is_reclaim, max_loss }
    }

    fn text(&self) -> String {
        let mut objects = vec![
            "{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}, spec: {weight: 1}}".to_owned(),
            "{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: own}, spec: {weight: 1}}".to_owned(),
        ];
        for value in PRIORITIES.into_iter().chain([1000]) {
            objects.push(format!(
                "{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: p{value}}}, value: {value}}}"
            ));
        }
        for (n, cpu) in self.nodes.iter().enumerate() {
            objects.push(format!(
                "{{apiVersion: v1, kind: Node, metadata: {{name: n{n}}}, status: {{allocatable: {{cpu: '{cpu}', memory: 64Gi, pods: '110'}}}}}}"
            ));
        }
        let group = |name: &str, min: usize, priority: i64| {
            let queue = if self.is_reclaim && name == "high" { "own" } else { "default" };
            format!(
                "{{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {{name: {name}, namespace: ns}}, spec: {{minMember: {min}, queue: {queue}, priorityClassName: p{priority}}}}}"
            )
        };
        let pod = |name: &str, job: &str, cpu: u64, rest: &str, status: &str| {
            let owner = match job {
                "high" => "",
                _ => &format!(
                    ", ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: {job}, uid: ns/{job}, controller: true}}]"
                ),
            };
            format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: ns, labels: {{job: {job}}}, annotations: {{scheduling.k8s.io/group-name: {job}}}{owner}}}, spec: {{schedulerName: kube-batch, containers: [{{name: c, resources: {{requests: {{cpu: '{cpu}'}}}}}}]{rest}}}{status}}}"
            )
        };
        for (n, job) in self.jobs.iter().enumerate() {
            let name = format!("j{n}");
            objects.push(group(&name, job.min, job.priority));
            for (at, Pod { node, cpu }) in job.pods.iter().enumerate() {
                let status = format!(
                    ", status: {{phase: Running, startTime: '2025-01-01T00:00:{:02}Z'}}",
                    job.start
                );
                let on_node = format!(", nodeName: n{node}");
                objects.push(pod(&format!("{name}-{at}"), &name, *cpu, &on_node, &status));
            }
            if let Some(left) = job.left {
                let n = job.pods.len();
                objects.push(format!(
                    "{{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}, namespace: ns}}, spec: {{parallelism: {n}, completions: {n}, backoffLimit: {left}, template: {{metadata: {{}}, spec: {{schedulerName: kube-batch, restartPolicy: Never, containers: [{{name: c}}]}}}}}}}}"
                ));
            }
            if let Some(allowed) = job.allowed {
                objects.push(format!(
                    "{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: {name}, namespace: ns}}, spec: {{selector: {{matchLabels: {{job: {name}}}}}}}, status: {{disruptionsAllowed: {allowed}}}}}"
                ));
            }
        }
        objects.push(group("high", self.n_wanted, 1000));
        for at in 0..self.n_wanted {
            objects.push(pod(&format!("high-{at}"), "high", self.cpu_wanted, "", ""));
        }
        let head = format!(
            "name: small\nconfig: {{actions: 'reclaim, allocate, preempt', tiers: [{{plugins: [{{name: priority}}, {{name: gang, arguments: {{gang.evictWholeGangs: 'true', gang.maxLoss: {}}}}}, {{name: pdb}}]}}, {{plugins: [{{name: predicates}}, {{name: proportion}}, {{name: nodeorder}}]}}]}}\nobjects:\n",
            self.max_loss
        );
        let objects: String = objects.iter().map(|object| format!("- {object}\n")).collect();
        format!("{head}{objects}steps:\n- cycles: 1\n")
    }

    /// The pods that the scheduler evicts, by job and position.
    fn evicted(&self) -> Vec<(usize, usize)> {
        let text = self.text();
        let (world, case, cycle) = cycle(&text);
        let decisions = cycle.decisions;
        assert_eq!(problems(&world.store, &case.conf, &decisions), [""; 0], "{text}");
        let place = |name: &str| {
            let (job, at) = name.strip_prefix('j')?.split_once('-')?;
            Some((job.parse().ok()?, at.parse().ok()?))
        };
        let evicted = decisions.iter().filter_map(|decision| match decision {
            Decision::Evict { pod, .. } => Some(place(&pod.key.name).expect("a pod of a job")),
            Decision::Bind { .. }
            | Decision::Nominate { .. }
            | Decision::Withdraw { .. }
            | Decision::Deallocate { .. } => None,
        });
        evicted.collect()
    }

    fn all_pods(&self) -> Vec<(usize, usize)> {
        let jobs = self.jobs.iter().enumerate();
        jobs.flat_map(|(job, of)| (0..of.pods.len()).map(move |at| (job, at))).collect()
    }

    fn victims_of_jobs(&self, victims: &[(usize, usize)]) -> BTreeMap<usize, usize> {
        let mut of_jobs = BTreeMap::new();
        victims.iter().for_each(|(job, _)| *of_jobs.entry(*job).or_default() += 1);
        of_jobs
    }

    /// Whether the queue of the victims holds what it deserves but for the last that leaves: a gang, or a pod with which
    /// the queue falls short by no more than the other queue gains.
    fn leaves_its_part(&self, victims: &[(usize, usize)]) -> bool {
        let cpu = |job: usize, at: usize| self.jobs[job].pods[at].cpu;
        let all: u64 = victims.iter().map(|(job, at)| cpu(*job, *at)).sum();
        // The other queue deserves all that it requests, and so gains that.
        let excess = self.n_wanted as u64 * self.cpu_wanted;
        let may_be_last = |last: u64, short: u64| all - last < excess && all <= excess + short;
        let of_jobs = self.victims_of_jobs(victims);
        let is_gang = |job: usize| {
            let Job { min, pods, .. } = &self.jobs[job];
            *min > 1 && of_jobs[&job] > pods.len() - min
        };
        let mut gangs = of_jobs.keys().filter(|job| is_gang(**job));
        let mut pods = victims.iter().filter(|(job, _)| !is_gang(*job));
        all <= excess
            || gangs.any(|job| {
                let of_gang = (0..of_jobs[job]).map(|at| cpu(*job, at)).sum();
                may_be_last(of_gang, u64::MAX - excess)
            })
            || pods.any(|(job, at)| may_be_last(cpu(*job, *at), excess))
    }

    /// Whether no gang is left with less than its minimum.
    fn is_permitted(&self, victims: &[(usize, usize)]) -> bool {
        let are_whole = self.victims_of_jobs(victims).into_iter().all(|(job, n_victims)| {
            let Job { min, pods, .. } = &self.jobs[job];
            let surplus = if *min <= 1 { pods.len() } else { pods.len() - min };
            n_victims <= surplus || n_victims == pods.len()
        });
        are_whole
            && (!self.is_reclaim
                || (self.leaves_its_part(victims) && !self.exceeds_most(victims, self.max_loss)))
    }

    /// Whether a gang leaves, and more is lost than so many times what is wanted.
    fn exceeds_most(&self, victims: &[(usize, usize)], max_loss: u64) -> bool {
        let of_jobs = self.victims_of_jobs(victims);
        let has_gang = of_jobs.into_iter().any(|(job, n_victims)| {
            let Job { min, pods, .. } = &self.jobs[job];
            *min > 1 && n_victims > pods.len() - min
        });
        let lost: u64 = victims.iter().map(|(job, at)| self.jobs[*job].pods[*at].cpu).sum();
        let wanted = self.n_wanted as u64 * self.cpu_wanted;
        self.max_loss > 0 && has_gang && lost > max_loss * wanted
    }

    fn suffices(&self, victims: &[(usize, usize)]) -> bool {
        let mut free = vec![0; self.nodes.len()];
        for (job, at) in victims {
            let Pod { node, cpu } = self.jobs[*job].pods[*at];
            free[node] += cpu;
        }
        free.iter().map(|cpu| cpu / self.cpu_wanted).sum::<u64>() >= self.n_wanted as u64
    }

    fn cost(&self, victims: &[(usize, usize)]) -> Cost {
        let of_jobs = self.victims_of_jobs(victims);
        let violations = |(job, n): (&usize, &usize)| {
            self.jobs[*job].allowed.map_or(0, |allowed| n.saturating_sub(allowed))
        };
        let highest = of_jobs.keys().map(|job| self.jobs[*job].priority).max().unwrap_or(0);
        let is_gang = |(job, n): &(&usize, &usize)| {
            let Job { min, pods, .. } = &self.jobs[**job];
            *min > 1 && **n > pods.len() - min
        };
        let fails =
            |(job, n): &(&usize, &usize)| self.jobs[**job].left.is_some_and(|left| **n > left);
        let of_highest = of_jobs.keys().filter(|job| self.jobs[**job].priority == highest);
        (
            of_jobs.iter().map(violations).sum(),
            highest,
            // The queue of victims in reclaim holds as much above what it deserves as is wanted.
            self.exceeds_most(victims, if self.is_reclaim { 2 } else { self.max_loss }),
            of_jobs.iter().filter(fails).count(),
            of_jobs.iter().filter(is_gang).count(),
            victims.iter().map(|(job, at)| self.jobs[*job].pods[*at].cpu).sum(),
            Reverse(of_highest.map(|job| self.jobs[*job].start).min().unwrap_or(0)),
        )
    }

    /// The lowest cost of a set of victims.
    fn lowest(&self) -> Option<(Cost, Vec<(usize, usize)>)> {
        let pods = self.all_pods();
        let sets = (0_u32..1 << pods.len()).map(|bits| -> Vec<(usize, usize)> {
            let of_set = pods.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0);
            of_set.map(|(_, pod)| *pod).collect()
        });
        let possible = sets.filter(|set| self.suffices(set) && self.is_permitted(set));
        possible.map(|set| (self.cost(&set), set)).min()
    }

    /// Whether some unit could stay: one task that its job can spare, or a whole gang.
    fn has_needless(&self, victims: &[(usize, usize)]) -> bool {
        let mut units: BTreeMap<(usize, usize), Vec<(usize, usize)>> = BTreeMap::new();
        let of_jobs = self.victims_of_jobs(victims);
        for (job, at) in victims {
            let Job { min, pods, .. } = &self.jobs[*job];
            let is_gang = *min > 1 && of_jobs[job] == pods.len();
            let unit = if is_gang { (*job, usize::MAX) } else { (*job, *at) };
            units.entry(unit).or_default().push((*job, *at));
        }
        units.values().any(|unit| {
            let others: Vec<_> =
                victims.iter().copied().filter(|victim| !unit.contains(victim)).collect();
            self.suffices(&others)
        })
    }
}

/// How the scheduler's sets compare with the best ones.
#[derive(Debug, Default)]
struct Totals {
    /// No set of victims suffices.
    none: usize,
    best: usize,
    /// By the first criterion in which they are worse, counted from 0.
    worse: BTreeMap<usize, usize>,
    /// There are victims, and none were found.
    missed: usize,
    /// The CPUs that were lost and would have been lost with the best ones, where that is the difference.
    lost: (u64, u64),
}

impl Totals {
    fn add_worse(&mut self, own: &Cost, best: &Cost) {
        let differs = [
            own.0 != best.0,
            own.1 != best.1,
            own.2 != best.2,
            own.3 != best.3,
            own.4 != best.4,
            own.5 != best.5,
        ];
        let first = differs.into_iter().position(|differs| differs).unwrap_or(differs.len());
        *self.worse.entry(first).or_default() += 1;
        if first == 5 {
            self.lost.0 += own.5;
            self.lost.1 += best.5;
        }
    }
}

/// Compares the scheduler's victims with the best ones in clusters of a kind; `check` gets what differs.
fn compare(kind: Kind, mut check: impl FnMut(u64, &SmallCluster, &str)) -> Totals {
    let mut totals = Totals::default();
    for seed in seeds(N_CLUSTERS) {
        let cluster = SmallCluster::new(seed, kind);
        let evicted = cluster.evicted();
        let Some((lowest, best)) = cluster.lowest() else {
            assert_eq!(evicted, [], "seed {seed}: they do not suffice");
            totals.none += 1;
            continue;
        };
        if evicted.is_empty() {
            totals.missed += 1;
            check(seed, &cluster, &format!("no victims, and not {best:?} of {lowest:?}"));
            continue;
        }
        let is_valid = cluster.suffices(&evicted) && cluster.is_permitted(&evicted);
        assert!(is_valid, "seed {seed}: {evicted:?}\n{}", cluster.text());
        assert!(!cluster.has_needless(&evicted), "seed {seed}: some of {evicted:?} could stay");
        let cost = cluster.cost(&evicted);
        if cost == lowest {
            totals.best += 1;
        } else {
            totals.add_worse(&cost, &lowest);
            check(seed, &cluster, &format!("{evicted:?} of {cost:?}, not {best:?} of {lowest:?}"));
        }
    }
    println!("{kind:?}: {totals:?}");
    totals
}

#[test]
fn where_all_pods_are_equal_the_victims_are_the_best() {
    let kinds = [(false, false), (true, false), (false, true), (true, true)];
    for (has_budgets, is_reclaim) in kinds {
        let kind = Kind { is_uniform: true, has_budgets, is_reclaim, ..Kind::default() };
        let totals =
            compare(kind, |seed, cluster, why| panic!("seed {seed}: {why}\n{}", cluster.text()));
        assert!(is_often(totals.best, &seeds(N_CLUSTERS), 2), "{totals:?}");
    }
}

/// docs/parity.md#p16.
#[test]
fn where_all_pods_are_equal_the_fewest_jobs_fail() {
    for is_reclaim in [false, true] {
        let kind = Kind { is_uniform: true, has_jobs: true, is_reclaim, ..Kind::default() };
        let totals = compare(kind, |_, _, _| {});
        assert!(totals.missed == 0 && totals.worse.keys().all(|own| *own >= 3), "{totals:?}");
        // Single pods are chosen for one pod that wants a place after another.
        let most = seeds(N_CLUSTERS).len().div_ceil(40);
        assert!(totals.worse.values().sum::<usize>() <= most, "{totals:?}");
    }
}

#[test]
fn elsewhere_none_of_the_victims_could_stay() {
    for is_reclaim in [false, true] {
        let totals = compare(Kind { is_reclaim, ..Kind::default() }, |_, _, _| {});
        assert!(totals.best > 2 * totals.worse.values().sum::<usize>(), "{totals:?}");
        // What another queue can give may suffice only if it is packed well.
        let most = if is_reclaim { seeds(N_CLUSTERS).len().div_ceil(50) } else { 0 };
        assert!(totals.missed <= most, "{totals:?}");
    }
}

#[test]
fn losses_are_in_proportion() {
    for (is_uniform, is_reclaim) in [(true, false), (false, false), (true, true), (false, true)] {
        let kind = Kind { is_uniform, is_reclaim, max_loss: 2, ..Kind::default() };
        let totals = compare(kind, |_, _, _| ());
        let n_out_of_proportion = totals.worse.get(&2).copied().unwrap_or_default();
        // With pods of different sizes, it looks only at sets of the fewest gangs.
        let most = if is_uniform { 0 } else { seeds(N_CLUSTERS).len().div_ceil(6) };
        assert!(n_out_of_proportion <= most, "{totals:?}");
        assert!(totals.missed <= seeds(N_CLUSTERS).len().div_ceil(30), "{totals:?}");
    }
}

/// The work of a cycle in which a pod needs both pods on some node to leave. Each is of a gang with a pod on every node,
/// and it must not be beside those of the first.
fn work_for_one_of(n_nodes: usize, cpu_wanted: u64) -> u64 {
    let job = |priority| Job {
        priority,
        min: n_nodes,
        start: 0,
        pods: (0..n_nodes).map(|node| Pod { node, cpu: 2 }).collect(),
        allowed: None,
        left: None,
    };
    let cluster = SmallCluster {
        nodes: vec![5; n_nodes],
        jobs: vec![job(10), job(20)],
        n_wanted: 1,
        cpu_wanted,
        is_reclaim: false,
        max_loss: 0,
    };
    let term = "{labelSelector: {matchLabels: {job: j0}}, topologyKey: kubernetes.io/hostname}";
    let rule = format!(
        "spec: {{affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{term}]}}}}, "
    );
    let (others, own) = {
        let text = cluster.text();
        let (others, own) = text.split_once("name: high-0").expect("the pod");
        (others.to_owned(), own.to_owned())
    };
    let text = format!("{others}name: high-0{}", own.replacen("spec: {", &rule, 1));
    let hostname = |n: usize| format!("{{name: n{n}, labels: {{kubernetes.io/hostname: n{n}}}}}");
    let text = (0..n_nodes)
        .fold(text, |text, n| text.replacen(&format!("{{name: n{n}}}"), &hostname(n), 1));
    let (.., cycle) = cycle(&text);
    let n_evicted = cycle.decisions.iter().filter(|own| matches!(own, Decision::Evict { .. }));
    assert_eq!(n_evicted.count(), if cpu_wanted <= 5 { 2 * n_nodes } else { 0 });
    cycle.work
}

#[test]
fn the_search_for_gangs_that_share_nodes_takes_work_that_grows_with_the_cluster() {
    for cpu_wanted in [5, 6] {
        let (small, large) = (work_for_one_of(50, cpu_wanted), work_for_one_of(400, cpu_wanted));
        // It was 40 times as much, and more with more nodes.
        assert!(large < 12 * small, "{small} {large}");
    }
}
