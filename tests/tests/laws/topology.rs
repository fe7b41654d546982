//! The domain of a gang, compared with one that a model finds by counting (docs/parity.md#t2,
//! docs/parity.md#t3 and docs/parity.md#t6).
//!
//! All pods of a gang request one CPU, so a domain holds as many as it has free CPUs.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use kube_batch_framework::candidates::Search;
use kube_batch_model::decision::Decision;
use kube_batch_tests::{
    random_cluster::Rng,
    seeds::{is_often, seeds},
    small_cluster::first_decisions,
};

/// The names of the labels, the broadest first.
const LEVELS: [&str; 3] = ["zone", "block", "rack"];

#[derive(Debug)]
struct Node {
    cpu: usize,
    /// The value of each label of [`LEVELS`]; `None` if the node has none of them.
    labels: Option<[u64; 3]>,
}

/// A running pod that requests one CPU.
#[derive(Debug)]
struct Other {
    node: usize,
    priority: i64,
    /// Seconds.
    start: u64,
}

#[derive(Debug)]
struct Setting {
    nodes: Vec<Node>,
    others: Vec<Other>,
    /// Whether the configuration declares the levels.
    are_declared: bool,
    required: Option<usize>,
    preferred: Option<usize>,
    min: usize,
    n_waiting: usize,
    /// The nodes of pods of the gang that run already; fewer than its minimum.
    running: Vec<usize>,
    has_preempt: bool,
}

/// The values of the labels that make up a domain.
type Domain = Vec<u64>;

const PRIORITIES: [i64; 3] = [10, 20, 30];

impl Setting {
    fn random(seed: u64, has_preempt: bool) -> Self {
        let mut rng = Rng::new(seed);
        let n_nodes = 1 + rng.below(7) as usize;
        let nodes: Vec<Node> = (0..n_nodes)
            .map(|_| {
                let labels = [rng.below(2), rng.below(2), rng.below(2)];
                Node {
                    cpu: 1 + rng.below(4) as usize,
                    labels: (rng.below(8) > 0).then_some(labels),
                }
            })
            .collect();
        let mut free: Vec<usize> = nodes.iter().map(|node| node.cpu).collect();
        let mut others = Vec::new();
        for _ in 0..rng.below(10) {
            let node = rng.below(n_nodes as u64) as usize;
            if free[node] > 0 {
                free[node] -= 1;
                let priority = PRIORITIES[rng.below(3) as usize];
                others.push(Other { node, priority, start: 1 + rng.below(9) });
            }
        }
        let min = 1 + rng.below(7) as usize;
        let mut running = Vec::new();
        if rng.below(3) == 0 {
            let node = rng.below(n_nodes as u64) as usize;
            running.extend(std::iter::repeat_n(node, free[node].min(min - 1).min(2)));
        }
        let level = |rng: &mut Rng| (rng.below(2) == 0).then(|| rng.below(3) as usize);
        let required = if has_preempt { Some(rng.below(3) as usize) } else { level(&mut rng) };
        let (preferred, are_declared) = (level(&mut rng), rng.below(3) > 0);
        // A job that has its minimum evicts for further pods.
        let n_surplus = if has_preempt { 0 } else { rng.below(4) as usize };
        let n_waiting = min - running.len() + n_surplus;
        Self {
            nodes,
            others,
            are_declared,
            required,
            preferred: preferred.filter(|_| !has_preempt),
            min,
            n_waiting,
            running,
            has_preempt,
        }
    }

    /// The labels of a level, by their positions.
    fn path(&self, level: usize) -> Vec<usize> {
        if self.are_declared { (0..=level).collect() } else { vec![level] }
    }

    /// The levels that the gang may use, the narrowest first, each by the positions of its labels; and
    /// whether it may use all nodes at last.
    fn levels(&self) -> (Vec<Vec<usize>>, bool) {
        let required = self.required.map(|level| self.path(level)).unwrap_or_default();
        let mut levels: Vec<Vec<usize>> = Vec::new();
        if let Some(preferred) = self.preferred {
            let mut own = self.path(preferred);
            while !own.is_empty() {
                let further = own.iter().filter(|key| !required.contains(key));
                levels.push(required.iter().chain(further).copied().collect());
                own.pop();
            }
        }
        if !required.is_empty() {
            levels.push(required);
        }
        levels.dedup();
        (levels, self.required.is_none())
    }

    fn domain(&self, node: usize, level: &[usize]) -> Option<Domain> {
        let labels = self.nodes[node].labels?;
        Some(level.iter().map(|at| labels[*at]).collect())
    }

    fn free(&self, node: usize) -> usize {
        let others = self.others.iter().filter(|other| other.node == node);
        let own = self.running.iter().filter(|at| **at == node);
        self.nodes[node].cpu - others.count() - own.count()
    }

    /// How many pods each domain of a level holds; only the one with pods of the gang, if there is one.
    fn room(&self, level: &[usize]) -> BTreeMap<Domain, usize> {
        let mut room = BTreeMap::new();
        for node in 0..self.nodes.len() {
            if let Some(domain) = self.domain(node, level) {
                *room.entry(domain).or_insert(0) += self.free(node);
            }
        }
        if let Some(node) = self.running.first() {
            let home = self.domain(*node, level);
            room.retain(|domain, _| Some(domain) == home.as_ref());
        }
        room
    }

    fn n_missing(&self) -> usize {
        self.min - self.running.len()
    }

    /// The domains in which the gang may start, all equally good; `None` if it may start anywhere.
    fn best(&self) -> Option<(Vec<usize>, BTreeSet<Domain>)> {
        let (levels, _) = self.levels();
        for level in levels {
            let room = self.room(&level);
            let enough = room.into_iter().filter(|(_, n_free)| *n_free >= self.n_missing());
            let rank = |n_free: usize| (Reverse(n_free.min(self.n_waiting)), n_free);
            let ranked: Vec<_> = enough.map(|(domain, n_free)| (rank(n_free), domain)).collect();
            if let Some(best) = ranked.iter().map(|(rank, _)| *rank).min() {
                let equal = ranked.into_iter().filter(|(rank, _)| *rank == best);
                return Some((level, equal.map(|(_, domain)| domain).collect()));
            }
        }
        None
    }

    fn yaml(&self) -> String {
        let levels = if self.are_declared { LEVELS.join(", ") } else { String::new() };
        let actions = if self.has_preempt { "allocate, preempt" } else { "allocate" };
        let mut text = format!(
            "name: topology
config:
  actions: {actions}
  tiers:
  - plugins: [{{name: priority}}, {{name: gang}}, {{name: predicates}}, {{name: nodeorder}}, {{name: topology, arguments: {{levels: [{levels}]}}}}]
objects:
- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {{name: default}}}}
"
        );
        for value in PRIORITIES.into_iter().chain([1000]) {
            text += &format!(
                "- {{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: p{value}}}, value: {value}}}\n"
            );
        }
        for (at, node) in self.nodes.iter().enumerate() {
            let labels = node.labels.map_or_else(String::new, |[zone, block, rack]| {
                format!(", labels: {{zone: z{zone}, block: b{block}, rack: r{rack}}}")
            });
            text += &format!(
                "- {{apiVersion: v1, kind: Node, metadata: {{name: n{at}{labels}}}, status: {{allocatable: {{cpu: '{}', pods: '99'}}}}}}\n",
                node.cpu
            );
        }
        let annotation = |key: &str, level: Option<usize>| {
            level.map(|at| format!("scheduling.sigs.dev/topology-{key}: {}, ", LEVELS[at]))
        };
        let annotations = [
            annotation("required", self.required).unwrap_or_default(),
            annotation("preferred", self.preferred).unwrap_or_default(),
        ]
        .concat();
        let group = |name: &str, min: usize, priority: i64, annotations: &str| {
            format!(
                "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {{name: {name}, namespace: ns, annotations: {{{annotations}}}}}, spec: {{minMember: {min}, priorityClassName: p{priority}}}}}\n"
            )
        };
        let pod = |name: &str, group: &str, node: Option<usize>, start: u64| {
            let node_name = node.map(|at| format!(", nodeName: n{at}")).unwrap_or_default();
            let status = if node.is_some() {
                format!("{{phase: Running, startTime: '2024-01-01T00:00:{start:02}Z'}}")
            } else {
                "{phase: Pending}".to_owned()
            };
            format!(
                "- {{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: ns, annotations: {{scheduling.k8s.io/group-name: {group}}}}}, spec: {{schedulerName: kube-batch{node_name}, containers: [{{name: c, resources: {{requests: {{cpu: '1'}}}}}}]}}, status: {status}}}\n"
            )
        };
        text += &group("g", self.min, 1000, &annotations);
        for (at, node) in self.running.iter().enumerate() {
            text += &pod(&format!("r{at}"), "g", Some(*node), 1);
        }
        for at in 0..self.n_waiting {
            text += &pod(&format!("w{at}"), "g", None, 0);
        }
        for (at, other) in self.others.iter().enumerate() {
            text += &group(&format!("o{at}"), 1, other.priority, "");
            text += &pod(&format!("o{at}"), &format!("o{at}"), Some(other.node), other.start);
        }
        text + "steps:\n- cycles: 1\n"
    }

    fn run(&self, search: Search) -> Outcome {
        let mut outcome = Outcome::default();
        let number = |name: &str| name[1..].parse::<usize>().expect("names are numbered");
        for decision in first_decisions(&self.yaml(), search) {
            match decision {
                Decision::Bind { node, .. } => outcome.bound.push(number(&node)),
                Decision::Nominate { node, .. } => outcome.nominated.push(number(&node)),
                Decision::Evict { pod, .. } => outcome.evicted.push(number(&pod.key.name)),
                Decision::Withdraw { .. } | Decision::Deallocate { .. } => {}
            }
        }
        outcome
    }
}

/// The nodes of the pods that got a place, and the pods that were evicted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    bound: Vec<usize>,
    nominated: Vec<usize>,
    evicted: Vec<usize>,
}

#[test]
fn a_gang_starts_in_the_domain_that_a_model_finds() {
    let seeds = seeds(1_000);
    let mut n_by_kind = BTreeMap::<&str, usize>::new();
    for seed in seeds.iter().copied() {
        let setting = Setting::random(seed, false);
        let outcome = setting.run(Search::Index);
        assert_eq!(outcome, setting.run(Search::Naive), "seed {seed}");
        let (levels, may_use_all) = setting.levels();
        let n_bound = outcome.bound.len();
        let total: usize = (0..setting.nodes.len()).map(|node| setting.free(node)).sum();
        let kind = match setting.best() {
            Some((level, domains)) => {
                assert!(n_bound >= setting.n_missing(), "seed {seed}: {outcome:?} of {setting:?}");
                let first = setting.domain(outcome.bound[0], &level);
                let is_best = first.as_ref().is_some_and(|domain| domains.contains(domain));
                assert!(is_best, "seed {seed}: {outcome:?} in {setting:?}, best {domains:?}");
                let minimum = &outcome.bound[..setting.n_missing()];
                let domains: BTreeSet<_> =
                    minimum.iter().map(|node| setting.domain(*node, &level)).collect();
                assert_eq!(domains.len(), 1, "seed {seed}: {outcome:?} in {setting:?}");
                "in a domain"
            }
            None if may_use_all && total >= setting.n_missing() => {
                assert!(n_bound >= setting.n_missing(), "seed {seed}: {outcome:?} of {setting:?}");
                "anywhere"
            }
            None => {
                assert_eq!(n_bound, 0, "seed {seed}: {outcome:?} of {setting:?}");
                "waits"
            }
        };
        if let Some(level) = levels.last().filter(|_| !may_use_all) {
            let nodes = outcome.bound.iter().chain(&setting.running);
            let domains: BTreeSet<_> = nodes.map(|node| setting.domain(*node, level)).collect();
            assert!(n_bound == 0 || domains.len() == 1, "seed {seed}: {outcome:?} in {setting:?}");
        }
        // Of the pods above the minimum, each has the narrowest domain with room.
        let room = match levels.last().filter(|_| !may_use_all) {
            Some(level) => {
                setting.domain(*outcome.bound.first().unwrap_or(&0), level).map_or(0, |domain| {
                    let nodes = (0..setting.nodes.len())
                        .filter(|node| setting.domain(*node, level).as_ref() == Some(&domain));
                    nodes.map(|node| setting.free(node)).sum()
                })
            }
            None => total,
        };
        assert!(
            n_bound == 0 || n_bound == setting.n_waiting.min(room),
            "seed {seed}: {outcome:?} in {setting:?}"
        );
        *n_by_kind.entry(kind).or_default() += 1;
    }
    for kind in ["in a domain", "anywhere", "waits"] {
        let n = n_by_kind.get(kind).copied().unwrap_or_default();
        assert!(is_often(n, &seeds, 20), "{n_by_kind:?}");
    }
}

/// The cost of some victims, compared in this order: the highest priority, the sum of the priorities with
/// 2^31 added, their number, and the start of the first of the highest priority, the later the better.
type Cost = (i64, i64, usize, Reverse<u64>);

impl Setting {
    fn cost<'a>(victims: impl Iterator<Item = &'a Other> + Clone) -> Cost {
        let highest = victims.clone().map(|victim| victim.priority).max().unwrap_or(0);
        let sum = victims.clone().map(|victim| victim.priority + (1 << 31)).sum();
        let first = victims.clone().filter(|victim| victim.priority == highest);
        let first = first.map(|victim| victim.start).min().unwrap_or(0);
        (highest, sum, victims.count(), Reverse(first))
    }

    /// The lowest cost of victims in one domain that make room for the minimum.
    fn lowest_cost(&self, level: &[usize]) -> Option<Cost> {
        let costs = self.room(level).into_iter().filter_map(|(domain, n_free)| {
            let is_there =
                |other: &&Other| self.domain(other.node, level).as_ref() == Some(&domain);
            let mut others: Vec<&Other> = self.others.iter().filter(is_there).collect();
            others.sort_by_key(|other| (other.priority, Reverse(other.start)));
            let n_victims = self.n_missing().checked_sub(n_free).filter(|n| *n > 0)?;
            Some(Self::cost(others.get(..n_victims)?.iter().copied()))
        });
        costs.min()
    }
}

#[test]
fn the_victims_are_those_of_the_cheapest_domain() {
    let seeds = seeds(1_000);
    let (mut n_evicting, mut n_waiting) = (0, 0);
    for seed in seeds.iter().copied() {
        let setting = Setting::random(seed, true);
        if setting.best().is_some() {
            continue;
        }
        let outcome = setting.run(Search::Index);
        assert_eq!(outcome, setting.run(Search::Naive), "seed {seed}");
        let (levels, _) = setting.levels();
        let level = levels.last().expect("a level is required");
        let Some(lowest) = setting.lowest_cost(level) else {
            assert_eq!(outcome, Outcome::default(), "seed {seed}: {setting:?}");
            n_waiting += 1;
            continue;
        };
        let victims = outcome.evicted.iter().map(|at| &setting.others[*at]);
        assert_eq!(Setting::cost(victims), lowest, "seed {seed}: {outcome:?} in {setting:?}");
        let nodes = outcome.nominated.iter().chain(&setting.running);
        let domains: BTreeSet<_> = nodes.map(|node| setting.domain(*node, level)).collect();
        assert_eq!(domains.len(), 1, "seed {seed}: {outcome:?} in {setting:?}");
        assert_eq!(outcome.nominated.len(), setting.n_missing(), "seed {seed}: {outcome:?}");
        n_evicting += 1;
    }
    let is_often = |n| is_often(n, &seeds, 20);
    assert!(is_often(n_evicting) && is_often(n_waiting), "{n_evicting}, {n_waiting}");
}
