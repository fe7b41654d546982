//! Whole jobs as victims: which jobs to evict so that several tasks find a place.
//!
//! A gang that has no more than its minimum can lose no single task. If the configuration permits it, all
//! its tasks leave together. Jobs are chosen as a set: the number of tasks that fit once a job is gone is
//! counted for each job by itself, and the set whose counts add up to what is needed is the cheapest by
//! [`cover`]. Where counts do not add up, because two jobs share nodes on which neither leaves enough
//! room, jobs are evicted for one node at a time.
// Parity: new, see docs/parity.md#p10 and docs/parity.md#c7.

use kube_batch_framework::{
    plugin::{Capacity, JobProposal, Proposal},
    session::Session,
    statement::Statement,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, NodeIdx, TaskIdx},
    gang::{Sense, evicted::Evicted},
    status::TaskStatus,
};

use super::{
    cover::{Cost, Item, cover},
    evictable::{Evictable, WantingTasks, evict, future_idle, item, slots},
    in_queue::cheapest_in_queue,
    node_tasks::NodeTasks,
    one_node,
    policy::VictimPolicy,
};

/// The gangs none of whose tasks is left after the evictions of a statement; also those that are gangs only together
/// with other groups of a composite PodGroup.
pub(super) fn broken(statement: &Statement<'_>) -> Vec<JobIdx> {
    let cluster = statement.session().cluster();
    let is_left = |task: TaskIdx| cluster.status(task).may_be_evicted();
    let mut jobs: Vec<JobIdx> =
        statement.evicted().filter_map(|task| cluster.tasks.job[task]).collect();
    jobs.sort_unstable();
    jobs.dedup();
    // The job itself gets the places of its tasks.
    jobs.retain(|job| *job != statement.job());
    jobs.retain(|job| !cluster.jobs.tasks[*job].iter().any(is_left));
    let together = EvictedTogether::new(statement);
    jobs.retain(|job| cluster.is_gang(*job) || together.jobs_with(*job).len() > 1);
    jobs
}

/// Which jobs a statement evicts together, because their composite PodGroup would be incomplete without one of them.
pub(super) struct EvictedTogether<'a> {
    session: &'a Session,
    /// Empty if no job is part of a composite PodGroup.
    evicted: Evicted,
}

impl<'a> EvictedTogether<'a> {
    pub(super) fn new(statement: &'a Statement<'_>) -> Self {
        let session = statement.session();
        let mut evicted = Evicted::default();
        if !session.gangs().is_empty() {
            evicted.add(session.cluster(), statement.evicted());
        }
        Self { session, evicted }
    }

    /// The jobs with evicted tasks that could be evicted only together with this one; includes it.
    pub(super) fn jobs_with(&self, job: JobIdx) -> Vec<JobIdx> {
        let cluster = self.session.cluster();
        if !cluster.is_in_larger_gang(job) {
            return vec![job];
        }
        let was_ready = |job: JobIdx| cluster.is_complete(job, Sense::Before(&self.evicted));
        let gangs = self.session.gangs();
        let mut jobs = gangs.jobs(gangs.leaves_with(job, &was_ready));
        jobs.retain(|other| self.evicted.of_job(*other) > 0);
        jobs
    }
}

/// Evicts jobs until all the wanted tasks fit, or as many as possible.
pub(super) fn evict_jobs(
    policy: VictimPolicy<'_>,
    statement: &mut Statement<'_>,
    node_tasks: &mut NodeTasks,
    wanted: WantingTasks,
) {
    let mut candidates = candidates(policy, statement, wanted);
    loop {
        let n_missing = wanted.n_tasks - n_fitting(statement, wanted);
        let missing = WantingTasks { n_tasks: n_missing, ..wanted };
        if n_missing == 0 {
            return;
        }
        let mut chosen = cheapest_cover(policy, statement, &candidates, missing);
        if chosen.is_empty() {
            chosen = one_node::cheapest(policy, statement, node_tasks, &candidates, missing);
        }
        if chosen.is_empty() {
            chosen = cheapest_in_queue(statement, &candidates, missing);
        }
        if chosen.is_empty() {
            return;
        }
        candidates.retain(|candidate| !chosen.iter().any(|unit| unit.job == candidate.job));
        evict_units(policy, statement, wanted, chosen);
    }
}

/// Evicts those that are permitted after the others. The last of a queue may leave it with less than it
/// deserves, so the small ones go first.
pub(super) fn evict_units(
    policy: VictimPolicy<'_>,
    statement: &mut Statement<'_>,
    wanted: WantingTasks,
    mut units: Vec<Evictable>,
) {
    let cluster = statement.session().cluster();
    units.sort_by_key(|unit| (unit.is_whole, wanted.amount(cluster, &unit.tasks), unit.job));
    for unit in &units {
        // Those before it may have taken what a budget they share allows.
        let session = statement.session();
        if wanted.limit.admits_violations(session, &unit.tasks)
            && is_permitted(policy, session, wanted, unit)
        {
            evict(statement, &unit.tasks, policy.reason());
        }
    }
}

/// The jobs that may be evicted as a whole, in row order.
pub(super) fn candidates(
    policy: VictimPolicy<'_>,
    statement: &Statement<'_>,
    wanted: WantingTasks,
) -> Vec<Evictable> {
    let session = statement.session();
    let jobs = session.cluster().jobs.key.ids();
    jobs.filter_map(|job| whole_job(policy, session, wanted, job)).collect()
}

/// All tasks of a job that are on nodes, if they may be evicted together.
pub(super) fn whole_job(
    policy: VictimPolicy<'_>,
    session: &Session,
    wanted: WantingTasks,
    job: JobIdx,
) -> Option<Evictable> {
    let cluster = session.cluster();
    let WantingTasks { preemptor, limit, .. } = wanted;
    // What was evicted for it would have been evicted in vain.
    if !limit.admits_priority(cluster.jobs.priority[job]) || session.is_preemptor(job) {
        return None;
    }
    let tasks = tasks_to_evict(session, job)?;
    if !policy.considers_job(cluster, preemptor.task, job, &tasks) {
        return None;
    }
    let may_leave = limit.admits_violations(session, &tasks)
        && session.have_run_enough(preemptor.task, &tasks)
        && preemptor.need.is_none_or(|need| need.admits(policy, session, limit.bound, &tasks));
    let unit = Evictable { job, tasks, is_whole: true };
    (may_leave && is_permitted(policy, session, wanted, &unit)).then_some(unit)
}

/// The tasks that leave with a job; `None` if there are none, if some cannot leave now, or if the job leaves
/// with one of an earlier row.
fn tasks_to_evict(session: &Session, job: JobIdx) -> Option<Vec<TaskIdx>> {
    let gangs = session.gangs();
    let whole = gangs.leaves_with(job, session.complete_groups());
    if gangs.first_job(whole) != Some(job) {
        return None;
    }
    let mut tasks = Vec::new();
    for job in gangs.jobs(whole) {
        collect_tasks(session.cluster(), job, &mut tasks)?;
    }
    (!tasks.is_empty()).then_some(tasks)
}

/// Adds the tasks of a job that are on nodes, pods of other schedulers aside; `None` if some cannot leave now.
fn collect_tasks(cluster: &Cluster, job: JobIdx, tasks: &mut Vec<TaskIdx>) -> Option<()> {
    for task in cluster.jobs.tasks[job].iter() {
        match cluster.status(task) {
            // A pod of another scheduler, or on a node that is gone, must not protect the others.
            TaskStatus::Running | TaskStatus::Bound => {
                if cluster.tasks.ours[task] && cluster.node_of(task).is_some() {
                    tasks.push(task);
                }
            }
            // It is being bound, and would run alone.
            TaskStatus::Allocated | TaskStatus::Binding => return None,
            TaskStatus::Pending
            | TaskStatus::Pipelined
            | TaskStatus::Releasing
            | TaskStatus::Stuck
            | TaskStatus::Succeeded
            | TaskStatus::Failed
            | TaskStatus::Unknown => {}
        }
    }
    Some(())
}

fn is_permitted(
    policy: VictimPolicy<'_>,
    session: &Session,
    wanted: WantingTasks,
    unit: &Evictable,
) -> bool {
    let preemptor = wanted.preemptor.task;
    let Evictable { job, tasks, is_whole } = unit;
    if !is_whole {
        let proposal = Proposal { preemptor, victim: tasks[0], evicted: &[] };
        return policy.allows(session, &proposal);
    }
    let proposal = JobProposal { preemptor, job: *job, victims: tasks };
    policy.allows_job(session, &proposal)
        && !session.plugins().vetoes_job(&proposal)
        && !tasks.iter().any(|task| session.plugins().is_protected(*task))
}

/// The cheapest candidates that make room for the wanted tasks, or for as many as possible; none if no job
/// makes room.
fn cheapest_cover(
    policy: VictimPolicy<'_>,
    statement: &mut Statement<'_>,
    candidates: &[Evictable],
    wanted: WantingTasks,
) -> Vec<Evictable> {
    let gains: Vec<usize> = candidates
        .iter()
        .map(|candidate| gain(policy, statement, &candidate.tasks, wanted))
        .collect();
    let total: usize = gains.iter().sum();
    if total == 0 {
        return Vec::new();
    }
    let useful: Vec<usize> = (0..candidates.len()).filter(|at| gains[*at] > 0).collect();
    let items: Vec<Item> = useful
        .iter()
        .map(|at| item(statement.session(), &candidates[*at], gains[*at], wanted))
        .collect();
    let need = wanted.n_tasks.min(total);
    let settle = settle(WantingTasks { n_tasks: need, ..wanted }, statement);
    let (_, taken) = cover(&items, need, settle).expect("all together cover the need");
    taken.into_iter().map(|at| candidates[useful[at]].clone()).collect()
}

/// What some jobs cost that make room for a number of tasks: single tasks that were evicted before need
/// not leave, as far as there is more room than needed.
fn settle(
    wanted: WantingTasks,
    statement: &Statement<'_>,
) -> impl Fn(usize, Cost) -> Option<Cost> + use<> {
    let cluster = statement.session().cluster();
    let gangs = broken(statement);
    let is_single =
        |task: &TaskIdx| !cluster.tasks.job[*task].is_some_and(|job| gangs.contains(&job));
    let singles: Vec<TaskIdx> = statement.evicted().filter(is_single).collect();
    let amounts = singles.iter().map(|task| wanted.amount(cluster, &[*task]));
    let (most, largest) = (singles.len(), amounts.max().unwrap_or(0));
    move |gain, cost| {
        let excess = gain.checked_sub(wanted.n_tasks)?.min(most);
        Some(Cost { amount: cost.amount - excess as i64 * largest, ..cost })
    }
}

/// How many more of the wanted tasks fit without these tasks.
fn gain(
    policy: VictimPolicy<'_>,
    statement: &mut Statement<'_>,
    tasks: &[TaskIdx],
    wanted: WantingTasks,
) -> usize {
    let class = wanted.preemptor.class;
    if !statement.search().needs_only_resources(class, tasks) {
        let start = statement.savepoint();
        evict(statement, tasks, policy.reason());
        let gain = n_fitting(statement, wanted);
        statement.rollback_to(start);
        return gain;
    }
    let mut by_node: Vec<(NodeIdx, TaskIdx)> = Vec::with_capacity(tasks.len());
    let cluster = statement.session().cluster();
    by_node.extend(
        tasks.iter().filter_map(|task| Some((cluster.tasks.placement[*task].node?, *task))),
    );
    by_node.sort_unstable();
    let mut gain = 0;
    for of_node in by_node.chunk_by(|l, r| l.0 == r.0) {
        let node = of_node[0].0;
        if statement.search().rules_pass(class, node) {
            let cluster = statement.session().cluster();
            let mut free = future_idle(cluster, node);
            let before = slots(cluster, class, &free);
            for (_, task) in of_node {
                cluster.request(*task).charge(&mut free, 1);
            }
            gain += slots(cluster, class, &free) - before;
        }
    }
    gain.min(wanted.n_tasks)
}

/// How many of the wanted tasks find a place now.
pub(super) fn n_fitting(statement: &mut Statement<'_>, wanted: WantingTasks) -> usize {
    let start = statement.savepoint();
    let cluster = statement.session().cluster();
    let class = wanted.preemptor.class;
    let of_class =
        |task: &TaskIdx| cluster.tasks.class[*task] == class && cluster.is_waiting(*task);
    let waiting: Vec<TaskIdx> =
        cluster.jobs.tasks[statement.job()].iter().filter(of_class).take(wanted.n_tasks).collect();
    // Where tasks do not depend on each other, as many fit whichever node is taken first: then one search suffices.
    let is_apart = !statement.search().is_open_to_change(class);
    let mut n_placed = 0;
    for task in waiting {
        if statement.session().within_limits(task, &[], Capacity::FutureIdle).is_err() {
            break;
        }
        let choice = match is_apart {
            true => statement.search().best_node_in(class, Capacity::FutureIdle),
            false => statement.search().best_node(class),
        };
        let Some(choice) = choice else { break };
        statement.pipeline(task, choice.node).expect("a task that waits may be pipelined");
        n_placed += 1;
    }
    statement.rollback_to(start);
    n_placed
}
