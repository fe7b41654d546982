//! Which node a task gets, and which tasks there it evicts.

use std::cmp::Ordering;

use kube_batch_framework::statement::Statement;
use kube_batch_model::{
    cluster::Cluster,
    column::{NodeIdx, TaskIdx},
};

use super::{
    index::{NotIndexed, VictimIndexes},
    node_tasks::NodeTasks,
    on_node::{Preemptor, VictimCost, select_victims_on_node},
    policy::VictimPolicy,
};

/// What the searches of an action share.
#[derive(Debug)]
pub(crate) struct VictimSearch {
    pub(super) node_tasks: NodeTasks,
    indexes: VictimIndexes,
}

impl VictimSearch {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self { node_tasks: NodeTasks::new(cluster), indexes: VictimIndexes::default() }
    }
}

/// The node with the lowest [`VictimCost`], and its victims. Ties go to the best score, then to the
/// lowest node name.
pub(super) fn select_victims(
    policy: VictimPolicy<'_>,
    statement: &mut Statement<'_>,
    search: &mut VictimSearch,
    preemptor: Preemptor,
) -> Option<(NodeIdx, Vec<TaskIdx>)> {
    let VictimSearch { node_tasks, indexes } = search;
    let node = match indexes.best_node(policy, statement, node_tasks, preemptor) {
        Ok(node) => node?,
        Err(NotIndexed) => best_node(policy, statement, node_tasks, preemptor)?,
    };
    let (victims, _) = select_victims_on_node(policy, statement, node_tasks, preemptor, node);
    Some((node, victims?.tasks))
}

/// Searches every node. [`VictimIndexes::best_node`] returns the
/// same.
fn best_node(
    policy: VictimPolicy<'_>,
    statement: &mut Statement<'_>,
    node_tasks: &mut NodeTasks,
    preemptor: Preemptor,
) -> Option<NodeIdx> {
    let mut lowest: Option<VictimCost> = None;
    let mut tied: Vec<NodeIdx> = Vec::new();
    for node in statement.session().nodes_in_scope() {
        let (victims, _) = select_victims_on_node(policy, statement, node_tasks, preemptor, node);
        let Some(victims) = victims else { continue };
        let cost = VictimCost::of(statement.session(), preemptor, &victims);
        match lowest.map_or(Ordering::Less, |lowest| cost.cmp(&lowest)) {
            Ordering::Less => {
                lowest = Some(cost);
                tied.clear();
                tied.push(node);
            }
            Ordering::Equal => tied.push(node),
            Ordering::Greater => {}
        }
    }
    if tied.len() < 2 {
        return tied.first().copied();
    }
    let scores = statement.session_mut().scores_once_released(preemptor.class, &tied);
    let best = scores.iter().zip(&tied).rev().max_by_key(|(score, _)| **score);
    best.map(|(_, node)| *node)
}
