//! Reprieves victims that turn out not to be needed, so that none of those that leave could stay.

use std::{cmp::Reverse, collections::BTreeMap};

use kube_batch_api::{
    column::{JobIdx, TaskIdx},
    decision::EvictReason,
    status::{Placement, TaskStatus},
};
use kube_batch_framework::{
    plugin::Capacity,
    session::Session,
    statement::{Savepoint, Statement},
};

use super::{
    node_tasks::job_priority,
    whole_jobs::{EvictedTogether, broken},
};

/// What leaves together: one task, or all tasks of a gang, or of the gangs of a composite PodGroup.
type Unit = Vec<TaskIdx>;

/// Restores the victims evicted since `start` that are not needed for the tasks placed since then, the
/// most expensive first. `may_stay` says of a task that has just been placed whether it may have the place.
pub(super) fn unneeded(
    statement: &mut Statement<'_>,
    start: Savepoint,
    reason: EvictReason,
    may_stay: impl Fn(&Session, TaskIdx) -> bool,
) {
    let moves = statement.moves_since(start);
    let is_pipelined = |(_, at): &&(TaskIdx, Placement)| at.status == TaskStatus::Pipelined;
    let placed: Vec<TaskIdx> = moves.iter().filter(is_pipelined).map(|(task, _)| *task).collect();
    let mut units = units(statement);
    let suffices = |statement: &mut Statement<'_>, units: &[Unit]| {
        statement.rollback_to(start);
        evict(statement, units.iter().rev().flatten(), reason);
        placed.iter().all(|task| place(statement, *task) && may_stay(statement.session(), *task))
    };
    let mut at = 0;
    while at < units.len() && units.len() > 1 {
        let unit = units.remove(at);
        if !suffices(statement, &units) {
            units.insert(at, unit);
            at += 1;
        }
    }
    if !suffices(statement, &units) {
        // A task may need a victim beside it that has left meanwhile.
        statement.rollback_to(start);
        for (task, at) in moves {
            match at.node.filter(|_| at.status == TaskStatus::Pipelined) {
                Some(node) => statement.pipeline(task, node).expect("it was pipelined before"),
                None => evict(statement, [&task], reason),
            }
        }
    }
}

/// The victims of a statement, the most expensive first: of high priority, in whole gangs, old.
fn units(statement: &Statement<'_>) -> Vec<Unit> {
    let cluster = statement.session().cluster();
    let gangs = broken(statement);
    // Jobs that are evicted together share one key: the first of them.
    let together = EvictedTogether::new(statement);
    let first: BTreeMap<JobIdx, Option<JobIdx>> =
        gangs.into_iter().map(|gang| (gang, together.jobs_with(gang).into_iter().min())).collect();
    let gang_of = |task: TaskIdx| *first.get(&cluster.tasks.job[task]?)?;
    let mut units: Vec<(Option<JobIdx>, Unit)> = Vec::new();
    for task in statement.evicted() {
        let gang = gang_of(task);
        match units.iter_mut().find(|(of, _)| gang.is_some() && *of == gang) {
            Some((_, unit)) => unit.push(task),
            None => units.push((gang, vec![task])),
        }
    }
    units.sort_by_key(|(gang, unit)| {
        let start = unit.iter().map(|task| cluster.tasks.start[*task]).min();
        (Reverse((job_priority(cluster, unit[0]), gang.is_some(), unit.len())), start, unit[0])
    });
    units.into_iter().map(|(_, unit)| unit).collect()
}

fn evict<'a>(
    statement: &mut Statement<'_>,
    victims: impl IntoIterator<Item = &'a TaskIdx>,
    reason: EvictReason,
) {
    for victim in victims {
        statement.evict(*victim, reason).expect("a victim is bound or runs");
    }
}

/// Pipelines a task on the best node, if there is one.
fn place(statement: &mut Statement<'_>, task: TaskIdx) -> bool {
    let session = statement.session();
    let class = session.cluster().tasks.class[task];
    if session.within_capability(task, &[], Capacity::FutureIdle).is_err() {
        return false;
    }
    let Some(choice) = statement.best_node(class) else { return false };
    statement.pipeline(task, choice.node).expect("a task that waits may be pipelined");
    true
}
