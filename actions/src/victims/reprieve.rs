//! Reprieves victims that turn out not to be needed, so that none of those that leave could stay.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use kube_batch_framework::{
    plugin::Capacity,
    session::Session,
    statement::{Savepoint, Statement},
};
use kube_batch_model::{
    column::{ClassIdx, JobIdx, NodeIdx, TaskIdx},
    decision::EvictReason,
    status::Placement,
};

use super::{
    evictable::{evict, future_idle, pipelined, slots},
    node_tasks::job_priority,
    whole_jobs::{EvictedTogether, broken},
};

/// After this many evictions and placements, the victims that were not tried yet leave. Guessed: some 100 ms.
const MAX_MOVES: usize = 100_000;

/// What is reprieved together: one task, or all tasks of a gang, or of the gangs of a composite PodGroup.
type Evictable = Vec<TaskIdx>;

/// Restores the victims evicted since `start` that are not needed for the tasks placed since then, the
/// most expensive first. `may_stay` says of a task that has just been placed whether it may have the place.
pub(super) fn unneeded(
    statement: &mut Statement<'_>,
    start: Savepoint,
    reason: EvictReason,
    may_stay: impl Fn(&Session, TaskIdx) -> bool,
) {
    let moves = statement.moves_since(start);
    let is_placed = |(_, at): &&(TaskIdx, Placement)| pipelined(*at).is_some();
    let placed: Vec<TaskIdx> = moves.iter().filter(is_placed).map(|(task, _)| *task).collect();
    let mut units = units(statement);
    statement.rollback_to(start);
    evict(statement, units.iter().flatten(), reason);
    let mut slots = Slots::of(statement, &placed, &units);
    let suffices = |statement: &mut Statement<'_>, units: &[Evictable]| {
        statement.rollback_to(start);
        evict(statement, units.iter().rev().flatten(), reason);
        placed.iter().all(|task| place(statement, *task) && may_stay(statement.session(), *task))
    };
    let (mut at, mut n_moves) = (0, 0);
    while at < units.len() && units.len() > 1 && n_moves < MAX_MOVES {
        let unit = units.remove(at);
        let is_possible = slots.as_ref().is_none_or(|slots| slots.suffice_with(statement, &unit));
        if is_possible {
            n_moves += units.iter().map(Vec::len).sum::<usize>() + placed.len();
        }
        if is_possible && suffices(statement, &units) {
            slots.iter_mut().for_each(|slots| slots.take(statement, &unit));
        } else {
            units.insert(at, unit);
            at += 1;
        }
    }
    if !suffices(statement, &units) {
        // A task may need a victim beside it that has left meanwhile.
        statement.rollback_to(start);
        for (task, at) in moves {
            match pipelined(at) {
                Some(node) => statement.pipeline(task, node).expect("it was pipelined before"),
                None => evict(statement, [&task], reason),
            }
        }
    }
}

/// How many of some tasks with equal requests fit into what is free without all victims: an upper bound that tells at
/// once of most victims that none of them could stay.
struct Slots {
    class: ClassIdx,
    /// What is free on the nodes that victims leave.
    free: BTreeMap<NodeIdx, Vec<i64>>,
    /// How many more than there are tasks.
    n_spare: usize,
}

impl Slots {
    /// `None` if the tasks are not alike, or if more changes for them than what is free. The victims have left, and the
    /// tasks are not placed.
    fn of(statement: &mut Statement<'_>, placed: &[TaskIdx], units: &[Evictable]) -> Option<Self> {
        let cluster = statement.session().cluster();
        let class_of = |task: &TaskIdx| cluster.tasks.class[*task];
        let class = class_of(placed.first()?);
        if !placed.iter().all(|task| class_of(task) == class) {
            return None;
        }
        let victims = units.concat();
        let nodes: BTreeSet<NodeIdx> =
            victims.iter().filter_map(|task| cluster.tasks.placement[*task].node).collect();
        if statement.search().is_open_to_change(class)
            || !statement.search().needs_only_resources(class, &victims)
        {
            return None;
        }
        let mut n_slots = 0;
        let mut free = BTreeMap::new();
        for node in statement.session().nodes_in_scope() {
            if !statement.search().rules_pass(class, node) {
                continue;
            }
            let cluster = statement.session().cluster();
            let amounts = future_idle(cluster, node);
            n_slots += slots(cluster, class, &amounts);
            if nodes.contains(&node) {
                free.insert(node, amounts);
            }
        }
        let n_spare = n_slots.checked_sub(placed.len())?;
        Some(Self { class, free, n_spare })
    }

    /// Whether there are as many as tasks if some victims stay.
    fn suffice_with(&self, statement: &Statement<'_>, unit: &[TaskIdx]) -> bool {
        self.lost_with(statement, unit).0 <= self.n_spare
    }

    /// Takes what victims that stay hold.
    fn take(&mut self, statement: &Statement<'_>, unit: &[TaskIdx]) {
        let (n_lost, left) = self.lost_with(statement, unit);
        self.n_spare = self.n_spare.saturating_sub(n_lost);
        self.free.extend(left);
    }

    /// How many there are less if some victims stay, and what is free then on their nodes.
    fn lost_with(
        &self,
        statement: &Statement<'_>,
        unit: &[TaskIdx],
    ) -> (usize, BTreeMap<NodeIdx, Vec<i64>>) {
        let cluster = statement.session().cluster();
        let mut left: BTreeMap<NodeIdx, Vec<i64>> = BTreeMap::new();
        for task in unit {
            let Some(node) = cluster.tasks.placement[*task].node else { continue };
            let Some(free) = self.free.get(&node) else { continue };
            cluster.request(*task).charge(left.entry(node).or_insert_with(|| free.clone()), -1);
        }
        let n_slots = |free: &[i64]| slots(cluster, self.class, free);
        let lost = left.iter().map(|(node, left)| n_slots(&self.free[node]) - n_slots(left));
        (lost.sum(), left)
    }
}

/// The victims of a statement, the most expensive first: of high priority, whose Job fails, in whole gangs, old.
fn units(statement: &Statement<'_>) -> Vec<Evictable> {
    let cluster = statement.session().cluster();
    let gangs = broken(statement);
    // Jobs that are evicted together share one key: the first of them.
    let together = EvictedTogether::new(statement);
    let first: BTreeMap<JobIdx, Option<JobIdx>> =
        gangs.into_iter().map(|gang| (gang, together.jobs_with(gang).into_iter().min())).collect();
    let gang_of = |task: TaskIdx| *first.get(&cluster.tasks.job[task]?)?;
    let mut units: Vec<(Option<JobIdx>, Evictable)> = Vec::new();
    for task in statement.evicted() {
        let gang = gang_of(task);
        match units.iter_mut().find(|(of, _)| gang.is_some() && *of == gang) {
            Some((_, unit)) => unit.push(task),
            None => units.push((gang, vec![task])),
        }
    }
    units.sort_by_key(|(gang, unit)| {
        let start = unit.iter().map(|task| cluster.tasks.start[*task]).min();
        let (priority, is_gang) = (job_priority(cluster, unit[0]), gang.is_some());
        let fails_job = unit.iter().any(|task| cluster.is_job_failing(*task));
        (Reverse((priority, fails_job, is_gang, unit.len())), start, unit[0])
    });
    units.into_iter().map(|(_, unit)| unit).collect()
}

/// Pipelines a task on the best node, if there is one.
fn place(statement: &mut Statement<'_>, task: TaskIdx) -> bool {
    let session = statement.session();
    let class = session.cluster().tasks.class[task];
    if session.within_limits(task, &[], Capacity::FutureIdle).is_err() {
        return false;
    }
    let Some(choice) = statement.search().best_node(class) else { return false };
    statement.pipeline(task, choice.node).expect("a task that waits may be pipelined");
    true
}
