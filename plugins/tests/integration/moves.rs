//! What `predicates` and `nodeorder` count follows the moves of a session.

use crate::random_cluster::{members, snapshot, steps};
use kube_batch_framework::{
    plugin::{Capacity, Dependency, NodeQuery, PlacementChange, Plugin, Scale, ScoreTerm},
    session_cache::SessionCache,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx},
    name::Name,
    reason::Unfit,
};
use kube_batch_plugins::{
    nodeorder::{NodeOrder, arguments::NodeOrderArguments},
    predicates::{Predicates, arguments::PredicatesArguments},
};
use proptest::prelude::*;

struct Plugins {
    predicates: Predicates,
    nodeorder: NodeOrder,
}

/// All answers of the two plugins about one class.
#[derive(Debug, PartialEq)]
struct Answers {
    class: ClassIdx,
    admitted: Result<(), Name>,
    refusals: Vec<(Dependency, Capacity, Vec<Option<Unfit>>)>,
    scores: Vec<(ScoreTerm, Vec<i64>)>,
}

impl Plugins {
    fn open(cluster: &Cluster) -> Self {
        let weights = NodeOrderArguments {
            mostrequested: 1,
            imagelocality: 1,
            ..NodeOrderArguments::default()
        };
        let mut plugins = Self {
            predicates: Predicates::new(PredicatesArguments::default()),
            nodeorder: NodeOrder::new(weights),
        };
        let mut cache = SessionCache::new(cluster, jiff::Timestamp::MAX);
        plugins.predicates.on_session_open(cluster, &mut cache);
        plugins.nodeorder.on_session_open(cluster, &mut cache);
        plugins
    }

    fn moved(&mut self, cluster: &mut Cluster, change: PlacementChange) {
        cluster.set_placement(change.task, change.to);
        self.predicates.on_placement(cluster, &change);
        self.nodeorder.on_placement(cluster, &change);
    }

    fn answers(&self, cluster: &Cluster, classes: &[ClassIdx]) -> Vec<Answers> {
        classes.iter().map(|class| self.about(cluster, *class)).collect()
    }

    fn about(&self, cluster: &Cluster, class: ClassIdx) -> Answers {
        let nodes: Vec<NodeIdx> = cluster.nodes.facts.ids().collect();
        let dependencies = self.predicates.dependencies(cluster, class);
        let mut refusals = Vec::new();
        for dependency in Dependency::ALL.into_iter().filter(|s| dependencies.has(*s)) {
            for capacity in [Capacity::Idle, Capacity::FutureIdle] {
                let refusal = |node: &NodeIdx| {
                    self.predicates
                        .predicate(cluster, NodeQuery::new(class, *node, dependency, capacity))
                        .err()
                };
                refusals.push((dependency, capacity, nodes.iter().map(refusal).collect()));
            }
        }
        let score = |term: ScoreTerm| {
            let mut scores: Vec<i64> = vec![0; nodes.len()];
            if term.scale == Scale::Joint {
                self.nodeorder.scores(cluster, class, &nodes, term.id, &mut scores);
            } else {
                let raw = |node: &NodeIdx| self.nodeorder.score(cluster, class, *node, term.id);
                scores = nodes.iter().map(raw).collect();
            }
            (term, scores)
        };
        let terms = self.nodeorder.score_terms(cluster, class);
        Answers {
            class,
            admitted: self.predicates.class_admitted(cluster, class).map_err(|why| why.message),
            refusals,
            scores: terms.into_iter().map(score).collect(),
        }
    }
}

fn waiting_classes(cluster: &Cluster) -> Vec<ClassIdx> {
    let tasks = cluster.tasks.facts.ids().filter(|task| cluster.is_waiting(*task));
    let mut classes: Vec<ClassIdx> = tasks.map(|task| cluster.tasks.class[task]).collect();
    classes.sort_unstable();
    classes.dedup();
    classes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_placement_and_its_reverse_leave_no_trace(members in members(), steps in steps()) {
        let mut cluster = snapshot(&members, true);
        let classes = waiting_classes(&cluster);
        let mut plugins = Plugins::open(&cluster);
        let mut taken = Vec::new();
        for step in steps {
            let Some((task, to)) = step.target(&cluster) else { continue };
            taken.push((plugins.answers(&cluster, &classes), task, cluster.tasks.placement[task]));
            let from = cluster.tasks.placement[task];
            plugins.moved(&mut cluster, PlacementChange { task, from, to });
        }
        for (before, task, to) in taken.into_iter().rev() {
            let from = cluster.tasks.placement[task];
            plugins.moved(&mut cluster, PlacementChange { task, from, to });
            prop_assert_eq!(before, plugins.answers(&cluster, &classes));
        }
    }

    #[test]
    fn following_placements_equals_opening_a_new_session(members in members(), steps in steps()) {
        let mut cluster = snapshot(&members, false);
        let classes = waiting_classes(&cluster);
        let mut plugins = Plugins::open(&cluster);
        for step in steps {
            let Some((task, to)) = step.target(&cluster) else { continue };
            let from = cluster.tasks.placement[task];
            plugins.moved(&mut cluster, PlacementChange { task, from, to });
        }
        let opened = Plugins::open(&cluster);
        prop_assert_eq!(plugins.answers(&cluster, &classes), opened.answers(&cluster, &classes));
    }
}
