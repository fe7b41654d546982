//! The rules about other pods, asked of the plugin and worked out from the facts.

#[path = "common/crowd.rs"]
mod crowd;
#[path = "common/world.rs"]
#[expect(dead_code, reason = "only part of it is needed here")]
mod world;

use std::collections::BTreeMap;

use crowd::{members, snapshot, steps};
use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx, TaskIdx},
    facts::class::{PodMatcher, PodTemplate, PodTerm, SpreadConstraint},
    name::Name,
    reason::Unfit,
    selector::Labels,
    status::TaskStatus,
};
use kube_batch_framework::plugin::{Change, Plugin, Sensitivity, View};
use kube_batch_plugins::predicates::{Predicates, PredicatesArguments};
use proptest::prelude::*;

/// A pod that waits, and what is asked about it.
#[derive(Clone, Copy)]
struct Question<'a> {
    cluster: &'a Cluster,
    task: TaskIdx,
    node: NodeIdx,
    view: View,
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

impl<'a> Question<'a> {
    fn template(self) -> &'a PodTemplate {
        template(self.cluster, self.task)
    }

    /// Tasks on nodes, as the view sees them.
    fn standing(self, view: View) -> impl Iterator<Item = (TaskIdx, NodeIdx)> + 'a {
        let is_there = move |status: TaskStatus| {
            status.is_on_node() && (view == View::Now || status != TaskStatus::Releasing)
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
            let tasks = self.standing(View::Later).filter(|(_, at)| *at == node);
            let counted = tasks.filter(|(task, _)| matches(cluster, &constraint.matcher, *task));
            *counts.entry(domain).or_default() += counted.count() as i64;
        }
        counts
    }

    fn pod_terms(self) -> Option<Unfit> {
        let (cluster, own) = (self.cluster, &self.template().pod_terms);
        let matches_all =
            |task: TaskIdx| own.required.iter().all(|term| matches(cluster, &term.matcher, task));
        let company: Vec<NodeIdx> = self
            .standing(self.view)
            .filter(|(task, _)| matches_all(*task))
            .map(|(_, node)| node)
            .collect();
        let has_key = |term: &PodTerm| label(cluster, self.node, &term.topology_key).is_some();
        let is_met =
            |term: &PodTerm| company.iter().any(|node| self.shares(&term.topology_key, *node));
        let nobody = !own.required.iter().any(|term| {
            company.iter().any(|node| label(cluster, *node, &term.topology_key).is_some())
        });
        let first = nobody && matches_all(self.task);
        if !own.required.iter().all(has_key) || !(first || own.required.iter().all(is_met)) {
            return Some(Unfit::PodAffinity);
        }
        let repels = |term: &PodTerm, one: TaskIdx, at: NodeIdx| {
            matches(cluster, &term.matcher, one) && self.shares(&term.topology_key, at)
        };
        let mut others = self.standing(self.view);
        if others.any(|(task, at)| own.required_anti.iter().any(|term| repels(term, task, at))) {
            return Some(Unfit::PodAntiAffinity);
        }
        let of_others = |task| template(cluster, task).pod_terms.required_anti.iter();
        let mut others = self.standing(self.view);
        let repelled =
            others.any(|(task, at)| of_others(task).any(|term| repels(term, self.task, at)));
        repelled.then_some(Unfit::ExistingAntiAffinity)
    }
}

fn waiting(cluster: &Cluster) -> Vec<(TaskIdx, ClassIdx)> {
    let tasks = cluster.tasks.facts.ids().filter(|task| cluster.is_waiting(*task));
    tasks.map(|task| (task, cluster.tasks.class[task])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn counting_agrees_with_the_facts(members in members(), steps in steps()) {
        let mut cluster = snapshot(&members, false);
        let mut plugin = Predicates::new(PredicatesArguments::default());
        plugin.on_session_open(&cluster);
        for step in steps {
            let Some((task, to)) = step.target(&cluster) else { continue };
            let from = cluster.set_placement(task, to);
            plugin.on_placement(&cluster, &Change { task, from, to });
        }
        for (task, class) in waiting(&cluster) {
            let rules = plugin.sensitivities(&cluster, class);
            for node in cluster.nodes.facts.ids() {
                for view in [View::Now, View::Later] {
                    let asked = Question { cluster: &cluster, task, node, view };
                    let expected = asked.spread().or_else(|| asked.pod_terms());
                    let rule = Sensitivity::Cluster;
                    let refused = plugin.predicate(&cluster, class, node, rule, view).err();
                    if refused != Some(Unfit::ClaimInUse) {
                        prop_assert_eq!(refused, expected);
                    }
                    prop_assert!(rules.has(rule) || refused.is_none());
                }
            }
        }
    }
}
