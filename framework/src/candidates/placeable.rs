//! How many tasks of a class there could be room for, whatever runs now.

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx},
    reason::Unfit,
    resource::{Ledger, Request},
    status::TaskStatus,
};

use super::{Candidates, inputs::Inputs};
use crate::plugin::{Capacity, Dependency};

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
pub(super) fn left_by_others(cluster: &Cluster) -> Ledger<NodeIdx> {
    let mut left = cluster.nodes.allocatable.clone();
    let tasks = cluster.tasks.placement.iter().filter(|(task, _)| !cluster.tasks.ours[*task]);
    for (task, placement) in tasks {
        if let Some(node) = placement.node
            && placement.status != TaskStatus::Releasing
        {
            cluster.request(task).charge(&mut left[node], -1);
        }
    }
    left
}

impl Candidates {
    /// Whether there could be room for a task of the class: see [`Room::WithoutOwnPods`].
    pub(crate) fn is_placeable(&mut self, inputs: Inputs<'_>, class: ClassIdx) -> bool {
        let nodes = inputs.cluster.nodes.facts.ids();
        self.count_on(inputs, class, nodes, 1, Room::WithoutOwnPods) > 0
    }

    /// How many tasks of the class there could be room for, counted up to `limit`. Tasks that must all
    /// be in one topology domain are counted in the domain that holds most. Other rules that look at
    /// other pods are not considered.
    pub(crate) fn count_placeable(
        &mut self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        limit: u64,
        room: Room,
    ) -> u64 {
        let domains = if self.is_open_to_change(inputs, class) {
            inputs.policy.about(inputs.cluster).domains_to_choose(class)
        } else {
            Vec::new()
        };
        if domains.is_empty() {
            let nodes = inputs.cluster.nodes.facts.ids();
            return self.count_on(inputs, class, nodes, limit, room);
        }
        let counts = domains
            .into_iter()
            .map(|nodes| self.count_on(inputs, class, nodes.into_iter(), limit, room));
        counts.max().unwrap_or(0)
    }

    fn count_on(
        &mut self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        nodes: impl Iterator<Item = NodeIdx> + Clone,
        limit: u64,
        room: Room,
    ) -> u64 {
        self.prepare(inputs, class);
        if !self.rules[class].as_ref().expect("prepared above").admitted() {
            return 0;
        }
        let request = &inputs.cluster.classes.request[class];
        let eligible = self.eligible(inputs.cluster, class);
        let admitted = nodes.clone().filter(|node| eligible.has(*node));
        if room == Room::WithoutOwnPods {
            let left = &self.left_by_others(inputs.cluster);
            return count(request, left, admitted, limit);
        }
        let whole = &inputs.cluster.nodes.allocatable;
        let n_tasks = count(request, whole, admitted, limit);
        if n_tasks == limit {
            return limit;
        }
        let may_admit = self.may_admit_later(inputs, class);
        let others = nodes.filter(|node| may_admit.binary_search(node).is_ok());
        n_tasks + count(request, whole, others, limit - n_tasks)
    }

    fn left_by_others(&self, cluster: &Cluster) -> &Ledger<NodeIdx> {
        self.left_by_others.get_or_init(|| left_by_others(cluster))
    }

    /// The nodes that refuse the class for a reason that may go. Ascending.
    fn may_admit_later(&mut self, inputs: Inputs<'_>, class: ClassIdx) -> &[NodeIdx] {
        let Inputs { cluster, policy, .. } = inputs;
        let constraint_class = cluster.classes.constraint_class[class];
        let eligible = self.eligible[constraint_class].as_ref().expect("the class is prepared");
        let rules = self.rules[class].as_ref().expect("the class is prepared");
        let may_go = |node: &NodeIdx| {
            let (dependency, capacity) = (Dependency::Class, Capacity::Idle);
            let refusal = rules.predicate(policy, cluster, class, *node, dependency, capacity);
            refusal.is_err_and(Unfit::may_go)
        };
        self.may_admit_later[constraint_class].get_or_insert_with(|| {
            let refusing = cluster.nodes.facts.ids().filter(|node| !eligible.has(*node));
            refusing.filter(may_go).collect()
        })
    }
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
