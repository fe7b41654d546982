//! How many tasks of a class there could be room for, whatever runs now.

use std::cell::OnceCell;

use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, ConstraintClassIdx, NodeIdx},
    node_set::NodeSet,
    resource::{Ledger, Request},
    status::TaskStatus,
};

use super::{inputs::Inputs, rules::ClassRules};
use crate::plugin::{Capacity, Dependency, NodesByDomain};

/// Which nodes are counted, and how much of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The nodes that the fixed rules of the class admit now, without what pods of other schedulers
    /// use: what there could be if only kube-batch's own pods left.
    // Parity: see docs/parity.md#a9.
    WithoutOwnPods,
    /// Every node that could admit the class, whole: all pods may end, and taints, cordons and node
    /// conditions may go.
    // Parity: see docs/parity.md#e2.
    Ever,
}

/// What nodes have, less what pods of other schedulers use.
fn left_by_others(cluster: &Cluster) -> Ledger<NodeIdx> {
    let mut left = cluster.idle_if_empty();
    let others = cluster.tasks.ours.iter().filter(|(_, is_ours)| !**is_ours);
    for (task, _) in others {
        let placement = cluster.tasks.placement[task];
        if let Some(node) = placement.node
            && placement.status != TaskStatus::Releasing
        {
            cluster.request(task).charge(&mut left[node], -1);
        }
    }
    left
}

/// What is counted with, computed when it is first needed.
#[derive(Debug)]
pub(super) struct Placeable {
    /// What nodes have, less what pods of other schedulers use.
    left_by_others: OnceCell<Ledger<NodeIdx>>,
    /// What nodes have.
    whole: OnceCell<Ledger<NodeIdx>>,
    /// Nodes that refuse a constraint class for a reason that may go; ascending.
    may_admit_later: Column<ConstraintClassIdx, OnceCell<Vec<NodeIdx>>>,
}

/// What is counted.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) class: ClassIdx,
    pub(super) rules: &'a ClassRules,
    pub(super) eligible: &'a NodeSet,
    pub(super) room: Room,
    /// Counting ends here.
    pub(super) limit: u64,
}

impl Placeable {
    pub(super) fn new(n_constraint_classes: usize) -> Self {
        let cells = (0..n_constraint_classes).map(|_| OnceCell::new());
        let (left_by_others, whole) = (OnceCell::new(), OnceCell::new());
        Self { left_by_others, whole, may_admit_later: cells.collect() }
    }

    /// What nodes have, less what pods of other schedulers use.
    pub(super) fn left_by_others(&self, cluster: &Cluster) -> &Ledger<NodeIdx> {
        self.left_by_others.get_or_init(|| left_by_others(cluster))
    }

    /// How many tasks of a class there could be room for. Tasks that must all be in one topology
    /// domain are counted in the domain that holds most. Other rules that look at other pods are not
    /// considered.
    pub(super) fn count(&self, inputs: Inputs<'_>, question: Question<'_>) -> u64 {
        // In a topology domain, all of it is an upper bound.
        let domains = if question.rules.depend_on_other_nodes() && inputs.scope.is_none() {
            inputs.policy.about(inputs.cluster).domains_to_choose(question.class)
        } else {
            NodesByDomain::default()
        };
        if domains.is_empty() {
            return match inputs.scope {
                None => self.count_on(inputs, question, inputs.cluster.nodes.facts.ids()),
                Some(_) => self.count_on(inputs, question, inputs.nodes().into_iter()),
            };
        }
        let counts =
            domains.iter().map(|nodes| self.count_on(inputs, question, nodes.iter().copied()));
        counts.max().unwrap_or(0)
    }

    fn count_on(
        &self,
        inputs: Inputs<'_>,
        question: Question<'_>,
        nodes: impl Iterator<Item = NodeIdx> + Clone,
    ) -> u64 {
        let Question { class, rules, eligible, room, limit } = question;
        if !rules.admitted() {
            return 0;
        }
        let request = &inputs.cluster.classes.request[class];
        let admitted = nodes.clone().filter(|node| eligible.contains(*node));
        if room == Room::WithoutOwnPods {
            return count(request, self.left_by_others(inputs.cluster), admitted, limit);
        }
        let whole = self.whole.get_or_init(|| inputs.cluster.idle_if_empty());
        let n_tasks = count(request, whole, admitted, limit);
        if n_tasks == limit {
            return limit;
        }
        let constraint_class = inputs.cluster.classes.constraint_class[class];
        let may_admit = self.may_admit_later[constraint_class]
            .get_or_init(|| may_admit_later(inputs, class, rules, eligible));
        let others = nodes.filter(|node| may_admit.binary_search(node).is_ok());
        n_tasks + count(request, whole, others, limit - n_tasks)
    }
}

/// The nodes that refuse the class for a reason that may go.
fn may_admit_later(
    inputs: Inputs<'_>,
    class: ClassIdx,
    rules: &ClassRules,
    eligible: &NodeSet,
) -> Vec<NodeIdx> {
    let Inputs { cluster, policy, .. } = inputs;
    let may_go = |node: &NodeIdx| {
        let (dependency, capacity) = (Dependency::Class, Capacity::Idle);
        let refusal = rules.predicate(policy, cluster, class, *node, dependency, capacity);
        refusal.is_err_and(|reason| reason.may_go())
    };
    let refusing = cluster.nodes.facts.ids().filter(|node| !eligible.contains(*node));
    refusing.filter(may_go).collect()
}

/// How often a request fits into the amounts of these nodes, counted up to `limit`.
fn count(
    request: &Request,
    amounts: &Ledger<NodeIdx>,
    nodes: impl Iterator<Item = NodeIdx>,
    limit: u64,
) -> u64 {
    let mut n_tasks = 0_u64;
    for node in nodes {
        n_tasks = n_tasks.saturating_add(request.times_in(&amounts[node]));
        if n_tasks >= limit {
            return limit;
        }
    }
    n_tasks
}
