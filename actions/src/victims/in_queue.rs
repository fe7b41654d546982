//! Victims for a task that a node has room for, but not a capability of the path of its queue: they may be on any node.

use kube_batch_framework::{plugin::Capacity, statement::Statement};
use kube_batch_model::column::{NodeIdx, QueueIdx, TaskIdx};

use super::{
    dry_run::ResourceDryRun,
    evictable::{Evictable, WantingTasks, cost, item},
    minimal_set::{Candidates, Considered, select_minimal_set},
    node_tasks::by_victim_cost,
    on_node::{Preemptor, TASKS_LOOKED_AT, is_candidate},
    policy::VictimPolicy,
};

/// At most this many tasks below the queue are looked at, the first victims first.
const MAX_CANDIDATES: usize = 1_000;

/// The best node for the task as nodes are, and a minimal set of victims below a queue without which it stays within its
/// capability.
// Parity: see docs/parity.md#capability and docs/parity.md#q5.
pub(super) fn select_victims_below(
    queue: QueueIdx,
    policy: VictimPolicy<'_>,
    statement: &mut Statement<'_>,
    preemptor: Preemptor,
) -> Option<(NodeIdx, Vec<TaskIdx>)> {
    let Preemptor { task, class, limit, .. } = preemptor;
    let choice = statement.search().best_node(class)?;
    let n_tasks = statement.session().cluster().tasks.facts.len();
    statement.session_mut().count_work(n_tasks.div_ceil(TASKS_LOOKED_AT) as u64);
    let session = statement.session();
    let cluster = session.cluster();
    let may_leave = |victim: &TaskIdx| {
        cluster.tasks.ours[*victim]
            && cluster.counts_below(*victim, queue)
            && is_candidate(policy, session, preemptor, *victim)
    };
    let mut all: Vec<TaskIdx> = cluster.tasks.facts.ids().filter(may_leave).collect();
    all.sort_by(|l, r| by_victim_cost(cluster, *l, *r));
    all.truncate(MAX_CANDIDATES);
    let mut candidates = Candidates::new(session, all);
    if limit.is_some_and(|limit| !limit.may_violate) {
        candidates.protected.clear();
    }
    let mut dry_run = ResourceDryRun::new(session, task, choice.node);
    let victims =
        select_minimal_set(policy, &mut dry_run, &candidates, &mut Considered::default())?;
    Some((choice.node, victims.tasks))
}

/// The cheapest of some jobs without which the queue stays within its capability, for a task that a node has room for;
/// none if the capability is not what it lacks.
// Parity: see docs/parity.md#capability.
pub(super) fn cheapest_in_queue(
    statement: &mut Statement<'_>,
    jobs: &[Evictable],
    wanted: WantingTasks,
) -> Vec<Evictable> {
    let Preemptor { task, class, .. } = wanted.preemptor;
    if statement.session().within_limits(task, &[], Capacity::FutureIdle).is_ok()
        || statement.search().best_node(class).is_none()
    {
        return Vec::new();
    }
    statement.session_mut().count_work(jobs.len() as u64);
    let session = statement.session();
    let is_within = |units: &[&Evictable]| {
        let tasks: Vec<TaskIdx> = units.iter().flat_map(|unit| &unit.tasks).copied().collect();
        session.within_limits(task, &tasks, Capacity::FutureIdle).is_ok()
    };
    let mut units: Vec<&Evictable> = jobs.iter().collect();
    units.sort_by_cached_key(|unit| cost(session, unit, &item(session, unit, 1, wanted)));
    if !is_within(&units) {
        return Vec::new();
    }
    // With more of them, no more is exceeded.
    let numbers: Vec<usize> = (1..units.len()).collect();
    let n_enough = 1 + numbers.partition_point(|n| !is_within(&units[..*n]));
    units.truncate(n_enough);
    for at in (0..n_enough - 1).rev() {
        let unit = units.remove(at);
        if !is_within(&units) {
            units.insert(at, unit);
        }
    }
    units.into_iter().cloned().collect()
}
