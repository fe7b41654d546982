//! Rules and scores about other pods and their requests: the answers of the plugins, compared with a
//! plain computation.

use std::collections::{BTreeMap, BTreeSet};

use crate::random_cluster::{N_NODES, members, snapshot, steps};
use kube_batch_framework::{
    plugin::{Capacity, Dependency, Extremes, NodeQuery, PlacementChange, Plugin, Scale},
    session_cache::SessionCache,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx, Ordinal, TaskIdx},
    facts::class::{PodMatcher, PodTemplate, PodTerm, SpreadConstraint},
    name::Name,
    reason::Unfit,
    selector::Labels,
    status::TaskStatus,
};
use kube_batch_plugins::{
    nodeorder::{NodeOrder, arguments::NodeOrderArguments},
    predicates::{Predicates, arguments::PredicatesArguments},
};
use proptest::prelude::*;

/// A waiting task, and a node on which it may be placed.
#[derive(Clone, Copy)]
struct Placing<'a> {
    cluster: &'a Cluster,
    task: TaskIdx,
    node: NodeIdx,
    capacity: Capacity,
}

fn label<'a>(cluster: &'a Cluster, node: NodeIdx, key: &Name) -> Option<&'a Name> {
    cluster.nodes.facts[node].labels.get(key)
}

fn template(cluster: &Cluster, task: TaskIdx) -> &PodTemplate {
    &cluster.classes.template[cluster.tasks.class[task]]
}

/// Whether a selector matches a task. The namespace `ns1` is labelled, `ns0` is not.
fn matches(cluster: &Cluster, matcher: &PodMatcher, task: TaskIdx) -> bool {
    let facts = &cluster.tasks.facts[task];
    let team = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    let labels = Labels::from_map(Some(&team).filter(|_| *facts.key.namespace == *"ns1"));
    matcher.matches(&facts.key.namespace, &labels, &facts.labels)
}

impl<'a> Placing<'a> {
    fn template(self) -> &'a PodTemplate {
        template(self.cluster, self.task)
    }

    /// The tasks on nodes that count for this capacity.
    fn tasks_on_nodes(self, capacity: Capacity) -> impl Iterator<Item = (TaskIdx, NodeIdx)> + 'a {
        let is_there = move |status: TaskStatus| {
            status.is_on_node() && (capacity == Capacity::Idle || status != TaskStatus::Releasing)
        };
        let placements = self.cluster.tasks.placement.iter();
        placements
            .filter(move |(_, at)| is_there(at.status))
            .filter_map(|(task, at)| Some((task, at.node?)))
    }

    fn shares(self, key: &Name, other: NodeIdx) -> bool {
        let own = label(self.cluster, self.node, key);
        own.is_some() && own == label(self.cluster, other, key)
    }

    fn spread(self) -> Option<Unfit> {
        let constraints = self.template().spread.iter().filter(|c| c.do_not_schedule);
        let keys: Vec<&Name> = constraints.clone().map(|c| &c.topology_key).collect();
        constraints.into_iter().find_map(|constraint| {
            let Some(own) = label(self.cluster, self.node, &constraint.topology_key) else {
                return Some(Unfit::SpreadMissingLabel);
            };
            let counts = self.domains(constraint, &keys);
            let few = (counts.len() as i64) < constraint.min_domains;
            let lowest = counts.values().min().filter(|_| !few).copied().unwrap_or(0);
            let itself = i64::from(matches(self.cluster, &constraint.matcher, self.task));
            let count = counts.get(own).copied().unwrap_or(0);
            (count + itself - lowest > constraint.max_skew).then_some(Unfit::Spread)
        })
    }

    fn domains(self, constraint: &SpreadConstraint, keys: &[&Name]) -> BTreeMap<&'a Name, i64> {
        let (cluster, own) = (self.cluster, self.template());
        let is_eligible = |node: &NodeIdx| {
            let facts = &cluster.nodes.facts[*node];
            let selected = own.node_selector.iter().all(|(k, v)| facts.labels.get(k) == Some(v));
            let tainted = facts.taints.iter().any(|taint| *taint.effect == *"NoSchedule");
            keys.iter().all(|key| facts.labels.get(key).is_some())
                && (selected || !constraint.honor_affinity)
                && !(tainted && constraint.honor_taints)
        };
        let mut counts = BTreeMap::new();
        for node in cluster.nodes.facts.ids().filter(is_eligible) {
            let domain = label(cluster, node, &constraint.topology_key).expect("it has all keys");
            let tasks = self.tasks_on_nodes(Capacity::FutureIdle).filter(|(_, at)| *at == node);
            let counted = tasks.filter(|(task, _)| matches(cluster, &constraint.matcher, *task));
            *counts.entry(domain).or_default() += counted.count() as i64;
        }
        counts
    }

    fn pod_terms(self) -> Option<Unfit> {
        let (cluster, own) = (self.cluster, &self.template().pod_terms);
        let matches_all =
            |task: TaskIdx| own.required.iter().all(|term| matches(cluster, &term.matcher, task));
        let matching: Vec<NodeIdx> = self
            .tasks_on_nodes(self.capacity)
            .filter(|(task, _)| matches_all(*task))
            .map(|(_, node)| node)
            .collect();
        let has_key = |term: &PodTerm| label(cluster, self.node, &term.topology_key).is_some();
        let is_met =
            |term: &PodTerm| matching.iter().any(|node| self.shares(&term.topology_key, *node));
        let is_nowhere = !own.required.iter().any(|term| {
            matching.iter().any(|node| label(cluster, *node, &term.topology_key).is_some())
        });
        let first = is_nowhere && matches_all(self.task);
        if !own.required.iter().all(has_key) || !(first || own.required.iter().all(is_met)) {
            return Some(Unfit::PodAffinity);
        }
        let repels = |term: &PodTerm, one: TaskIdx, at: NodeIdx| {
            matches(cluster, &term.matcher, one) && self.shares(&term.topology_key, at)
        };
        let mut others = self.tasks_on_nodes(self.capacity);
        if others.any(|(task, at)| own.required_anti.iter().any(|term| repels(term, task, at))) {
            return Some(Unfit::PodAntiAffinity);
        }
        let of_others = |task| template(cluster, task).pod_terms.required_anti.iter();
        let mut others = self.tasks_on_nodes(self.capacity);
        let repelled =
            others.any(|(task, at)| of_others(task).any(|term| repels(term, self.task, at)));
        repelled.then_some(Unfit::ExistingAntiAffinity)
    }

    /// The sum of the preferences of all pods for the node.
    fn inter_pod_preference(self) -> i64 {
        let own = &self.template().pod_terms;
        let likes = |terms: &[(i64, PodTerm)], one: TaskIdx, at: NodeIdx| {
            let met = terms.iter().filter(|(_, term)| {
                matches(self.cluster, &term.matcher, one) && self.shares(&term.topology_key, at)
            });
            met.map(|(weight, _)| weight).sum::<i64>()
        };
        let preference = |(task, at): (TaskIdx, NodeIdx)| {
            let its = &template(self.cluster, task).pod_terms;
            let required: Vec<(i64, PodTerm)> =
                its.required.iter().map(|term| (1, term.clone())).collect();
            likes(&own.preferred, task, at) - likes(&own.preferred_anti, task, at)
                + likes(&its.preferred, self.task, at)
                - likes(&its.preferred_anti, self.task, at)
                + likes(&required, self.task, at)
        };
        self.tasks_on_nodes(Capacity::Idle).map(preference).sum()
    }
}

fn soft(template: &PodTemplate) -> impl Iterator<Item = &SpreadConstraint> + Clone {
    template.spread.iter().filter(|constraint| !constraint.do_not_schedule)
}

/// The scores of preferred inter-pod affinity, over the candidates.
fn inter_pod_scores(cluster: &Cluster, task: TaskIdx, candidates: &[NodeIdx]) -> Vec<i64> {
    let placing = |node: &NodeIdx| Placing { cluster, task, node: *node, capacity: Capacity::Idle };
    let raw: Vec<i64> =
        candidates.iter().map(|node| placing(node).inter_pod_preference()).collect();
    let least = raw.iter().min().copied().unwrap_or(0);
    let span = raw.iter().max().copied().unwrap_or(0) - least;
    // Floats, as Kubernetes has them: 29 of 100 is 28.
    let part = |raw: &i64| (100.0 * ((raw - least) as f64 / span as f64)) as i64;
    raw.iter().map(|raw| if span == 0 { 0 } else { part(raw) }).collect()
}

/// The scores of soft spread constraints, over the candidates.
fn spread_scores(cluster: &Cluster, task: TaskIdx, candidates: &[NodeIdx]) -> Vec<i64> {
    let constraints = soft(template(cluster, task));
    let keys: Vec<&Name> = constraints.clone().map(|c| &c.topology_key).collect();
    let takes_part = |node: &NodeIdx| keys.iter().all(|key| label(cluster, *node, key).is_some());
    let raw_score = |node: &NodeIdx| {
        let placing = Placing { cluster, task, node: *node, capacity: Capacity::FutureIdle };
        let parts = constraints.clone().map(|constraint| {
            let key = &constraint.topology_key;
            let own = label(cluster, *node, key).expect("it takes part");
            let by_node = **key == *"kubernetes.io/hostname";
            let count = if by_node {
                let there =
                    placing.tasks_on_nodes(Capacity::FutureIdle).filter(|(_, at)| at == node);
                there.filter(|(task, _)| matches(cluster, &constraint.matcher, *task)).count()
                    as i64
            } else {
                placing.domains(constraint, &keys).get(own).copied().unwrap_or(0)
            };
            let domains: BTreeSet<Option<&Name>> = candidates
                .iter()
                .filter(|node| takes_part(node))
                .map(|node| label(cluster, *node, key))
                .collect();
            let weight = (domains.len() as f64 + 2.0).ln();
            count as f64 * weight + (constraint.max_skew - 1) as f64
        });
        parts.sum::<f64>().round() as i64
    };
    let raw: Vec<Option<i64>> =
        candidates.iter().map(|node| takes_part(node).then(|| raw_score(node))).collect();
    let least = raw.iter().flatten().min().copied().unwrap_or(0);
    let most = raw.iter().flatten().max().copied().unwrap_or(0);
    let score = |raw: &Option<i64>| match raw {
        None => 0,
        Some(_) if most == 0 => 100,
        Some(raw) => 100 * (most + least - raw) / most,
    };
    raw.iter().map(score).collect()
}

/// A score that counts resources.
#[derive(Clone, Copy, Debug)]
enum ResourceScore {
    Least,
    Most,
    Balanced,
}

impl ResourceScore {
    const ALL: [Self; 3] = [Self::Least, Self::Most, Self::Balanced];

    fn arguments(self, resources: &[(Name, i64)]) -> NodeOrderArguments {
        let (none, resources) = (NodeOrderArguments::no_weights(), resources.to_vec());
        match self {
            Self::Least => NodeOrderArguments {
                leastrequested: 1,
                leastrequested_resources: resources,
                ..none
            },
            Self::Most => {
                NodeOrderArguments { mostrequested: 1, mostrequested_resources: resources, ..none }
            }
            Self::Balanced => NodeOrderArguments {
                balancedresource: 1,
                balancedresource_resources: resources,
                ..none
            },
        }
    }

    /// What a task counts: with defaults, except for the balance score.
    fn amount(self, template: &PodTemplate, name: &Name) -> i64 {
        match (self, name.as_str()) {
            (Self::Least | Self::Most, "cpu") => template.scoring.cpu_milli,
            (Self::Least | Self::Most, "memory") => template.scoring.memory_bytes,
            _ => template.request.get(name),
        }
    }

    /// The score of a node, from the tasks on it; 0 if no resource counts.
    fn score(self, placing: Placing<'_>, resources: &[(Name, i64)]) -> i64 {
        let there = placing.tasks_on_nodes(Capacity::Idle).filter(|(_, at)| *at == placing.node);
        let there: Vec<TaskIdx> = there.map(|(task, _)| task).collect();
        let counted = resources.iter().filter_map(|(name, weight)| {
            let dim = placing.cluster.dimensions.get(name)?;
            let allocatable = placing.cluster.nodes.allocatable[placing.node][dim];
            let own = self.amount(placing.template(), name);
            let is_native = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
            if allocatable == 0 || (own == 0 && !is_native) {
                return None;
            }
            let amounts = there.iter().map(|t| self.amount(template(placing.cluster, *t), name));
            Some((amounts.sum::<i64>(), own, allocatable, *weight))
        });
        let counted: Vec<(i64, i64, i64, i64)> = counted.collect();
        let weights: i64 = counted.iter().map(|(.., weight)| weight).sum();
        let mean = |part: fn(i64, i64) -> i64| {
            let parts =
                counted.iter().map(|(used, own, all, weight)| part(used + own, *all) * weight);
            if weights == 0 { 0 } else { parts.sum::<i64>() / weights }
        };
        match self {
            Self::Least => mean(|requested, all| (100 * (all - requested) / all).max(0)),
            Self::Most => mean(|requested, all| 100 * requested.min(all) / all),
            Self::Balanced => {
                let without = counted.iter().map(|(used, _, all, _)| (*used, *all)).collect();
                let with = counted.iter().map(|(used, own, all, _)| (used + own, *all)).collect();
                50 + (50 + balance(with) - balance(without)) / 2
            }
        }
    }
}

fn balance(amounts: Vec<(i64, i64)>) -> i64 {
    let fractions: Vec<f64> =
        amounts.iter().map(|(used, all)| (*used as f64 / *all as f64).min(1.0)).collect();
    let deviation = match fractions.as_slice() {
        [] | [_] => 0.0,
        [left, right] => ((left - right) / 2.0).abs(),
        all => {
            let n = all.len() as f64;
            let mean = all.iter().sum::<f64>() / n;
            (all.iter().map(|f| (f - mean) * (f - mean)).sum::<f64>() / n).sqrt()
        }
    };
    ((1.0 - deviation) * 100.0) as i64
}

/// The raw scores of some nodes, one by one and all at once.
fn raw_scores(
    plugin: &NodeOrder,
    cluster: &Cluster,
    class: ClassIdx,
    nodes: &[NodeIdx],
    term: u8,
) -> Vec<i64> {
    let one = |node: &NodeIdx| plugin.score(cluster, class, *node, term);
    let raw: Vec<i64> = nodes.iter().map(one).collect();
    let many = nodes.repeat(MANY);
    let mut of_many = vec![0; many.len()];
    plugin.scores(cluster, class, &many, term, &mut of_many);
    assert_eq!(of_many, raw.repeat(MANY), "as one by one");
    let with_columns = cluster.clone();
    with_columns.nodes.keep_columns();
    plugin.scores(&with_columns, class, &many, term, &mut of_many);
    assert_eq!(of_many, raw.repeat(MANY), "as without columns");
    raw
}

/// With this many times the nodes of a small cluster, a plugin answers for many at once.
const MANY: usize = 9;

/// The scores of a plugin with one term only; 0 for all if it leaves the term out.
fn scores(
    plugin: &NodeOrder,
    cluster: &Cluster,
    class: ClassIdx,
    candidates: &[NodeIdx],
) -> Vec<i64> {
    let mut scores = vec![0; candidates.len()];
    for term in plugin.score_terms(cluster, class) {
        if term.scale == Scale::Joint {
            plugin.scores(cluster, class, candidates, term.id, &mut scores);
        } else {
            let raw = raw_scores(plugin, cluster, class, candidates, term.id);
            let among = Extremes::of(raw.iter().copied());
            scores = raw.into_iter().map(|raw| term.scale.apply(raw, among)).collect();
        }
    }
    scores
}

/// The answers about a class on each node, which the framework may keep while nothing reports a change.
fn answers(plugin: &dyn Plugin, cluster: &Cluster, class: ClassIdx) -> Vec<Vec<Answer>> {
    answers_of(plugin, cluster, class, &[Dependency::Node, Dependency::Domain])
}

fn answers_of(
    plugin: &dyn Plugin,
    cluster: &Cluster,
    class: ClassIdx,
    rules: &[Dependency],
) -> Vec<Vec<Answer>> {
    let nodes = cluster.nodes.facts.ids();
    let on_node = |node: NodeIdx| {
        let rules =
            rules.iter().copied().filter(|rule| plugin.dependencies(cluster, class).has(*rule));
        let refusals = rules.flat_map(move |rule| {
            let capacities = [Capacity::Idle, Capacity::FutureIdle];
            capacities.map(|capacity| {
                Answer::Refusal(
                    plugin.predicate(cluster, NodeQuery::new(class, node, rule, capacity)).err(),
                )
            })
        });
        let terms = plugin.score_terms(cluster, class).into_iter();
        let raw = terms.filter(|term| term.scale == Scale::FromLeast);
        let scores = raw.map(|term| Answer::Raw(plugin.score(cluster, class, node, term.id)));
        refusals.chain(scores).collect()
    };
    nodes.map(on_node).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Refusal(Option<Unfit>),
    Raw(i64),
}

fn waiting(cluster: &Cluster) -> Vec<(TaskIdx, ClassIdx)> {
    let tasks = cluster.tasks.facts.ids().filter(|task| cluster.is_waiting(*task));
    tasks.map(|task| (task, cluster.tasks.class[task])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn filters_agree_with_a_plain_computation(members in members(), steps in steps()) {
        let mut cluster = snapshot(&members, false);
        let mut plugin = Predicates::new(PredicatesArguments::default());
        plugin.on_session_open(&cluster, &mut SessionCache::new(&cluster, jiff::Timestamp::MAX));
        for step in steps {
            let Some((task, to)) = step.target(&cluster) else { continue };
            let from = cluster.set_placement(task, to);
            plugin.on_placement(&cluster, &PlacementChange { task, from, to });
        }
        for (task, class) in waiting(&cluster) {
            let rules = plugin.dependencies(&cluster, class);
            for node in cluster.nodes.facts.ids() {
                for capacity in [Capacity::Idle, Capacity::FutureIdle] {
                    let placing = Placing { cluster: &cluster, task, node, capacity };
                    let expected = placing.spread().or_else(|| placing.pod_terms());
                    let mut refusals = Vec::new();
                    for rule in [Dependency::Domain, Dependency::Cluster] {
                        let refused = plugin.predicate(&cluster, NodeQuery::new(class, node, rule, capacity)).err();
                        prop_assert!(rules.has(rule) || refused.is_none());
                        refusals.extend(refused);
                    }
                    let refused = refusals.into_iter().min();
                    if refused != Some(Unfit::ClaimInUse) {
                        prop_assert_eq!(refused, expected);
                    }
                }
            }
        }
    }

    #[test]
    fn changes_of_answers_are_reported(members in members(), steps in steps()) {
        let mut cluster = snapshot(&members, false);
        let mut predicates = Predicates::new(PredicatesArguments::default());
        predicates.on_session_open(&cluster, &mut SessionCache::new(&cluster, jiff::Timestamp::MAX));
        let weights = NodeOrderArguments { podaffinity: 1, ..NodeOrderArguments::no_weights() };
        let mut nodeorder = NodeOrder::new(weights);
        nodeorder.on_session_open(&cluster, &mut SessionCache::new(&cluster, jiff::Timestamp::MAX));
        let classes = waiting(&cluster);
        for step in steps {
            let Some((task, to)) = step.target(&cluster) else { continue };
            let seen = |cluster: &Cluster, plugin: &dyn Plugin| -> Vec<_> {
                let about = |class| {
                    (plugin.version(cluster, class), answers(plugin, cluster, class))
                };
                classes.iter().map(|(_, class)| about(*class)).collect()
            };
            let before = [seen(&cluster, &predicates), seen(&cluster, &nodeorder)];
            let from = cluster.set_placement(task, to);
            predicates.on_placement(&cluster, &PlacementChange { task, from, to });
            nodeorder.on_placement(&cluster, &PlacementChange { task, from, to });
            let after = [seen(&cluster, &predicates), seen(&cluster, &nodeorder)];
            for (at, (_, class)) in classes.iter().enumerate() {
                for (before, after) in before.iter().zip(&after) {
                    let ((old, before), (new, after)) = (&before[at], &after[at]);
                    for (node, (before, after)) in before.iter().zip(after).enumerate() {
                        let is_own = [from.node, to.node].contains(&Some(NodeIdx::new(node)));
                        prop_assert!(before == after || old != new || is_own);
                    }
                }
                let ((_, before), (_, after)) = (&before[0][at], &after[0][at]);
                prop_assert!(before == after || predicates.depends_on(&cluster, *class, task));
            }
        }
    }

    #[test]
    fn nodes_of_one_domain_get_equal_answers(members in members(), steps in steps()) {
        let mut cluster = snapshot(&members, false);
        let mut predicates = Predicates::new(PredicatesArguments::default());
        let weights = NodeOrderArguments { podaffinity: 1, ..NodeOrderArguments::no_weights() };
        let mut nodeorder = NodeOrder::new(weights);
        predicates.on_session_open(&cluster, &mut SessionCache::new(&cluster, jiff::Timestamp::MAX));
        nodeorder.on_session_open(&cluster, &mut SessionCache::new(&cluster, jiff::Timestamp::MAX));
        for step in steps {
            let Some((task, to)) = step.target(&cluster) else { continue };
            let from = cluster.set_placement(task, to);
            predicates.on_placement(&cluster, &PlacementChange { task, from, to });
            nodeorder.on_placement(&cluster, &PlacementChange { task, from, to });
        }
        for (_, class) in waiting(&cluster) {
            for plugin in [&predicates as &dyn Plugin, &nodeorder] {
                let Some(columns) = plugin.domains(&cluster, class) else { continue };
                let answers = answers_of(plugin, &cluster, class, &[Dependency::Domain]);
                let mut of_domains = BTreeMap::new();
                for (node, answers) in cluster.nodes.facts.ids().zip(answers) {
                    let domain: Vec<u32> = columns.iter().map(|column| column[node]).collect();
                    let first = of_domains.entry(domain).or_insert_with(|| answers.clone());
                    prop_assert_eq!(&answers, first);
                }
            }
        }
    }

    #[test]
    fn scores_agree_with_a_plain_computation(
        members in members(),
        steps in steps(),
        candidates in prop::sample::subsequence((0..N_NODES).collect::<Vec<_>>(), 1..=N_NODES),
    ) {
        let mut cluster = snapshot(&members, false);
        let none = NodeOrderArguments::no_weights();
        let mut affinity = NodeOrder::new(NodeOrderArguments { podaffinity: 1, ..none.clone() });
        let mut spread = NodeOrder::new(NodeOrderArguments { podtopologyspread: 1, ..none });
        affinity.on_session_open(&cluster, &mut SessionCache::new(&cluster, jiff::Timestamp::MAX));
        spread.on_session_open(&cluster, &mut SessionCache::new(&cluster, jiff::Timestamp::MAX));
        for step in steps {
            let Some((task, to)) = step.target(&cluster) else { continue };
            let from = cluster.set_placement(task, to);
            affinity.on_placement(&cluster, &PlacementChange { task, from, to });
            spread.on_placement(&cluster, &PlacementChange { task, from, to });
        }
        let candidates: Vec<NodeIdx> = candidates.into_iter().map(NodeIdx::new).collect();
        for (task, class) in waiting(&cluster) {
            prop_assert_eq!(
                scores(&affinity, &cluster, class, &candidates),
                inter_pod_scores(&cluster, task, &candidates)
            );
            if soft(template(&cluster, task)).next().is_some() {
                prop_assert_eq!(
                    scores(&spread, &cluster, class, &candidates),
                    spread_scores(&cluster, task, &candidates)
                );
            }
        }
    }

    #[test]
    fn resource_scores_agree_with_a_plain_computation(
        members in members(),
        steps in steps(),
        resources in prop::sample::subsequence(
            vec!["cpu", "example.com/gpu", "memory", "ephemeral-storage", "example.com/other"], 1..5,
        ),
        weights in prop::collection::vec(1..=100_i64, 5),
    ) {
        let resources: Vec<(Name, i64)> =
            resources.into_iter().map(Name::from).zip(weights).collect();
        for score in ResourceScore::ALL {
            let mut cluster = snapshot(&members, false);
            let mut plugin = NodeOrder::new(score.arguments(&resources));
            plugin.on_session_open(&cluster, &mut SessionCache::new(&cluster, jiff::Timestamp::MAX));
            for step in &steps {
                let Some((task, to)) = step.target(&cluster) else { continue };
                let from = cluster.set_placement(task, to);
                plugin.on_placement(&cluster, &PlacementChange { task, from, to });
            }
            for (task, class) in waiting(&cluster) {
                let expected = cluster.nodes.facts.ids().map(|node| {
                    let placing =
                        Placing { cluster: &cluster, task, node, capacity: Capacity::Idle };
                    score.score(placing, &resources)
                });
                let expected: Vec<i64> = expected.collect();
                let terms = plugin.score_terms(&cluster, class);
                let Some(term) = terms.first() else {
                    prop_assert_eq!(expected.iter().min(), expected.iter().max(), "{:?}", score);
                    continue;
                };
                let nodes: Vec<NodeIdx> = cluster.nodes.facts.ids().collect();
                prop_assert_eq!(raw_scores(&plugin, &cluster, class, &nodes, term.id), expected);
            }
        }
    }
}
