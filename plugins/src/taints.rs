//! Taints and tolerations.
//!
//! Many nodes have the same set of taints, so tolerations are compared with each set once.
//!
//! The numeric operators `Gt` and `Lt` compare numbers; a value that is none matches nothing. In
//! Kubernetes they need the gate TaintTolerationComparisonOperators, without which the API server
//! accepts no new pod that has them, so they are always compared here.
//!
//! Source: Kubernetes 1.37, `component-helpers/scheduling/corev1`, `api/core/v1/toleration.go`.

use std::collections::BTreeMap;

use kube_batch_model::{
    cluster::Cluster,
    column::{Column, NodeIdx},
    facts::{
        class::{Toleration, TolerationOperator, decimal_integer},
        node::Taint,
    },
    node_set::NodeSet,
};

kube_batch_model::row_type! {
    /// Row of a set of taints that some node carries.
    pub(crate) TaintSet,
}

/// Taint of a cordoned node, there or not: a pod that tolerates it may go to such a node.
const CORDONED: &str = "node.kubernetes.io/unschedulable";
const NO_SCHEDULE: &str = "NoSchedule";
const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// The sets of taints that nodes carry.
#[derive(Debug, Default)]
pub(crate) struct TaintSets {
    sets: Column<TaintSet, Vec<Taint>>,
    of_node: Column<NodeIdx, TaintSet>,
    nodes: Column<TaintSet, NodeSet>,
}

impl TaintSets {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let mut rows = BTreeMap::<&[Taint], TaintSet>::new();
        let mut sets = Column::new();
        let of_node: Column<NodeIdx, TaintSet> = cluster
            .nodes
            .facts
            .values()
            .map(|facts| {
                *rows.entry(&facts.taints).or_insert_with(|| sets.push(facts.taints.clone()))
            })
            .collect();
        let mut nodes = Column::filled(NodeSet::none(of_node.len()), sets.len());
        for (node, set) in of_node.iter() {
            nodes[*set].insert(node);
        }
        Self { sets, of_node, nodes }
    }

    /// The set of a node.
    pub(crate) fn of(&self, node: NodeIdx) -> TaintSet {
        self.of_node[node]
    }

    /// The nodes that carry a set.
    pub(crate) fn nodes_with(&self, set: TaintSet) -> &NodeSet {
        &self.nodes[set]
    }

    /// For each set, whether every taint that keeps pods away is tolerated.
    pub(crate) fn tolerated(&self, tolerations: &[Toleration]) -> Column<TaintSet, bool> {
        let keeps_away = |taint: &&Taint| matches!(&*taint.effect, NO_SCHEDULE | NO_EXECUTE);
        let is_tolerated = |taint: &Taint| tolerations.iter().any(|t| tolerates(t, taint));
        self.sets.values().map(|set| set.iter().filter(keeps_away).all(is_tolerated)).collect()
    }

    /// For each set, the number of taints that make pods prefer other nodes and are not tolerated.
    /// Only tolerations of that effect, or of every effect, count.
    pub(crate) fn intolerable(&self, tolerations: &[Toleration]) -> Column<TaintSet, i64> {
        let is_intolerable = |taint: &&Taint| {
            *taint.effect == *PREFER_NO_SCHEDULE && !tolerations.iter().any(|t| tolerates(t, taint))
        };
        let count = |set: &Vec<Taint>| i64::try_from(set.iter().filter(is_intolerable).count());
        self.sets.values().map(|set| count(set).unwrap_or(i64::MAX)).collect()
    }
}

/// Whether cordoned nodes are tolerated.
pub(crate) fn tolerates_cordon(tolerations: &[Toleration]) -> bool {
    let taint = Taint { key: CORDONED.into(), value: "".into(), effect: NO_SCHEDULE.into() };
    tolerations.iter().any(|toleration| tolerates(toleration, &taint))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    toleration.effect.as_ref().is_none_or(|effect| *effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match toleration.operator {
            TolerationOperator::Equal => toleration.value == taint.value,
            TolerationOperator::Exists => true,
            TolerationOperator::Lt(than) => decimal_integer(&taint.value).is_some_and(|n| n < than),
            TolerationOperator::Gt(than) => decimal_integer(&taint.value).is_some_and(|n| n > than),
            TolerationOperator::Never => false,
        }
}
