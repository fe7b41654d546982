//! What a node itself says: conditions, cordon, taints, name and labels.
//!
//! A node that is NotReady or has no network takes no new task, as in kube-batch; Kubernetes sees
//! that as taints only. The pressure conditions are looked at if the arguments say so. The rest is
//! Kubernetes 1.36: `plugins/nodeunschedulable`, `tainttoleration`, `nodeaffinity`.

use std::collections::BTreeSet;

use kube_batch_api::{
    cluster::Cluster,
    column::{Column, NodeIdx},
    facts::class::PodTemplate,
    name::Name,
    reason::Unfit,
    selector::NodeTerm,
};

use super::PredicatesArguments;
use crate::{
    constraint_classes::{ConstraintClassIdx, ConstraintClasses},
    node_labels::NodeLabels,
    node_tests::{Compiler, RequiredNodes},
    taints::{TaintSet, TaintSets, tolerates_cordon},
};

/// The rules about nodes alone.
#[derive(Debug, Default)]
pub(super) struct NodeStates {
    states: Column<NodeIdx, NodeState>,
    /// Of those classes that are asked about.
    rules: Column<ConstraintClassIdx, Option<Rules>>,
}

/// What rules see of a node, in one word.
#[derive(Clone, Copy, Debug)]
struct NodeState {
    /// Why the node takes no new task at all.
    closed: Option<Unfit>,
    cordoned: bool,
    memory_pressure: bool,
    /// Why the node takes no more tasks, pressure on memory aside.
    pressed: Option<Unfit>,
    taints: TaintSet,
}

impl NodeState {
    fn new(
        cluster: &Cluster,
        node: NodeIdx,
        taints: &TaintSets,
        arguments: PredicatesArguments,
    ) -> Self {
        let facts = &cluster.nodes.facts[node];
        let conditions = facts.conditions;
        let first = |reasons: [(bool, Unfit); 2]| {
            reasons.into_iter().find(|(holds, _)| *holds).map(|(_, reason)| reason)
        };
        Self {
            closed: first([
                (conditions.not_ready, Unfit::NotReady),
                (conditions.network_unavailable, Unfit::NetworkUnavailable),
            ]),
            cordoned: facts.unschedulable,
            memory_pressure: arguments.memory_pressure && conditions.memory_pressure,
            pressed: first([
                (arguments.disk_pressure && conditions.disk_pressure, Unfit::DiskPressure),
                (arguments.pid_pressure && conditions.pid_pressure, Unfit::PidPressure),
            ]),
            taints: taints.of(node),
        }
    }
}

/// The rules of a constraint class.
#[derive(Clone, Debug)]
struct Rules {
    /// The only nodes to look at, ascending.
    only: Option<Vec<NodeIdx>>,
    tolerates_cordon: bool,
    is_best_effort: bool,
    tolerated: Column<TaintSet, bool>,
    nodes: RequiredNodes,
}

impl NodeStates {
    pub(super) fn new(
        compiler: &mut Compiler<'_>,
        classes: &ConstraintClasses,
        taints: &TaintSets,
        arguments: PredicatesArguments,
    ) -> Self {
        let cluster = compiler.cluster;
        let nodes = cluster.nodes.facts.ids();
        let mut rules = Column::filled(None, classes.len());
        for constraint_class in classes.to_place() {
            let template = classes.template(cluster, constraint_class);
            rules[constraint_class] = Some(Rules {
                only: listed_names(template).map(|names| rows(cluster, &names)),
                tolerates_cordon: tolerates_cordon(&template.tolerations),
                is_best_effort: template.qos_best_effort,
                tolerated: taints.tolerated(&template.tolerations),
                nodes: compiler.required_nodes(template),
            });
        }
        let state = |node| NodeState::new(cluster, node, taints, arguments);
        Self { states: nodes.map(state).collect(), rules }
    }

    pub(super) fn check(
        &self,
        labels: &NodeLabels,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
    ) -> Result<(), Unfit> {
        let state = &self.states[node];
        let rules = self.rules[constraint_class].as_ref();
        let rules = rules.expect("only classes with tasks to place are asked about");
        if rules.only.as_ref().is_some_and(|only| only.binary_search(&node).is_err()) {
            return Err(Unfit::CutByAffinity);
        }
        if let Some(reason) = state.closed {
            return Err(reason);
        }
        if state.cordoned && !rules.tolerates_cordon {
            return Err(Unfit::Unschedulable);
        }
        if state.memory_pressure && rules.is_best_effort {
            return Err(Unfit::MemoryPressure);
        }
        if let Some(reason) = state.pressed {
            return Err(reason);
        }
        if !rules.tolerated[state.taints] {
            return Err(Unfit::Taint);
        }
        if !rules.nodes.passes(labels, node) {
            return Err(Unfit::NodeAffinity);
        }
        Ok(())
    }
}

/// Why the node affinity of a pod can be met by no node of whatever name.
pub(super) fn refusal(template: &PodTemplate) -> Option<Name> {
    let names = listed_names(template)?;
    names.is_empty().then(|| Name::from("pod affinity terms conflict"))
}

/// The names that the required node affinity lists, if every term lists some: the union over terms
/// of what all lists of a term have in common.
fn listed_names(template: &PodTemplate) -> Option<BTreeSet<&Name>> {
    let terms = template.node_affinity.as_ref().filter(|terms| !terms.is_empty())?;
    terms.iter().map(names_of_term).try_fold(BTreeSet::new(), |mut all, names| {
        all.append(&mut names?);
        Some(all)
    })
}

fn names_of_term(term: &NodeTerm) -> Option<BTreeSet<&Name>> {
    let lists = term.listed_names().iter().map(|names| names.iter().collect::<BTreeSet<&Name>>());
    lists.reduce(|all, names| all.intersection(&names).copied().collect())
}

fn rows(cluster: &Cluster, names: &BTreeSet<&Name>) -> Vec<NodeIdx> {
    let nodes = cluster.nodes.facts.iter().filter(|(_, facts)| names.contains(&facts.name));
    nodes.map(|(node, _)| node).collect()
}
