//! Whole jobs as victims: which jobs to evict so that several tasks find a place.
//!
//! A gang that has no more than its minimum can lose no single task. If the configuration permits it, all
//! its tasks leave together. Jobs are chosen as a set: the number of tasks that fit once a job is gone is
//! counted for each job by itself, and the set whose counts add up to what is needed is the cheapest by
//! [`cover`]. Where counts do not add up, because two jobs share nodes on which neither leaves enough
//! room, jobs are evicted for one node at a time.
// Parity: new, see docs/parity.md#p10 and docs/parity.md#c7.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;
use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, Column, Dim, JobIdx, NodeIdx, TaskIdx},
    status::TaskStatus,
};
use kube_batch_framework::{
    plugin::{Capacity, JobProposal, Proposal},
    session::Session,
    statement::Statement,
};

use super::{
    cover::{Cost, Item, cover},
    limit::Limit,
    node_tasks::NodeTasks,
    on_node::{Preemptor, permitted_on_node},
    policy::VictimPolicy,
};

/// Some tasks of one class that want a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// The first of them.
    pub(super) preemptor: Preemptor,
    pub(super) limit: Limit,
    /// How many of them.
    pub(super) n_tasks: usize,
}

impl Wanted {
    /// What is lost with some tasks.
    fn amount(self, cluster: &Cluster, tasks: &[TaskIdx]) -> i64 {
        let dim = self.preemptor.scarce.unwrap_or(Dim::PODS);
        tasks.iter().map(|task| cluster.request(*task).get(dim)).sum()
    }

    /// What some jobs cost that make room for a number of tasks: single tasks that were evicted before need
    /// not leave, as far as there is more room than needed.
    fn settle(self, statement: &Statement<'_>) -> impl Fn(usize, Cost) -> Option<Cost> + use<> {
        let cluster = statement.session().cluster();
        let gangs = broken(statement);
        let is_single =
            |task: &TaskIdx| !cluster.tasks.job[*task].is_some_and(|job| gangs.contains(&job));
        let singles: Vec<TaskIdx> = statement.evicted().filter(is_single).collect();
        let amounts = singles.iter().map(|task| self.amount(cluster, &[*task]));
        let (most, largest) = (singles.len(), amounts.max().unwrap_or(0));
        move |gain, cost| {
            let excess = gain.checked_sub(self.n_tasks)?.min(most);
            Some(Cost { amount: cost.amount - excess as i64 * largest, ..cost })
        }
    }
}

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
    /// How many tasks of each job were evicted; empty if no job is part of a composite PodGroup.
    n_evicted: Column<JobIdx, u32>,
}

impl<'a> EvictedTogether<'a> {
    pub(super) fn new(statement: &'a Statement<'_>) -> Self {
        let session = statement.session();
        let jobs = &session.cluster().jobs;
        let mut n_evicted = Column::new();
        if jobs.composites.values().any(Option::is_some) {
            n_evicted = Column::filled(0, jobs.key.len());
            let evicted = statement.evicted();
            for job in evicted.filter_map(|task| session.cluster().tasks.job[task]) {
                n_evicted[job] += 1;
            }
        }
        Self { session, n_evicted }
    }

    /// The jobs with evicted tasks that could be evicted only together with this one; includes it.
    pub(super) fn jobs_with(&self, job: JobIdx) -> Vec<JobIdx> {
        let cluster = self.session.cluster();
        if cluster.jobs.composites[job].is_none() {
            return vec![job];
        }
        // Before the evictions. Roles are not considered: PodGroups of this API have none.
        let was_ready = |job: JobIdx| {
            let n_ready = cluster.jobs.counts[job].ready() + self.n_evicted[job];
            n_ready >= cluster.jobs.min_available[job]
        };
        let composites = self.session.composites();
        let mut jobs = composites.jobs_of(composites.leaves_with(job, &was_ready));
        jobs.retain(|other| self.n_evicted[*other] > 0);
        jobs
    }
}

/// What may be evicted together.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) job: JobIdx,
    /// All tasks of the job that are on nodes, or one that it can spare.
    pub(super) tasks: Vec<TaskIdx>,
    is_whole: bool,
}

/// Evicts jobs until all the wanted tasks fit, or as many as possible.
pub(super) fn evict_jobs<P: VictimPolicy>(
    policy: &P,
    statement: &mut Statement<'_>,
    node_tasks: &mut NodeTasks,
    wanted: Wanted,
) {
    let mut candidates = candidates(policy, statement, wanted);
    loop {
        let n_missing = wanted.n_tasks - n_fitting(statement, wanted);
        let missing = Wanted { n_tasks: n_missing, ..wanted };
        if n_missing == 0 {
            return;
        }
        let mut chosen = cheapest_cover::<P>(statement, &candidates, missing);
        if chosen.is_empty() {
            chosen = for_one_node(policy, statement, node_tasks, &candidates, missing);
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
pub(super) fn evict_units<P: VictimPolicy>(
    policy: &P,
    statement: &mut Statement<'_>,
    wanted: Wanted,
    mut units: Vec<Unit>,
) {
    let cluster = statement.session().cluster();
    units.sort_by_key(|unit| (unit.is_whole, wanted.amount(cluster, &unit.tasks), unit.job));
    for unit in &units {
        if is_permitted(policy, statement.session(), wanted, unit) {
            evict::<P>(statement, &unit.tasks);
        }
    }
}

fn evict<P: VictimPolicy>(statement: &mut Statement<'_>, tasks: &[TaskIdx]) {
    for task in tasks {
        // A task may have left by itself before its job does.
        if statement.session().cluster().status(*task) != TaskStatus::Releasing {
            statement.evict(*task, P::REASON).expect("a task that is bound or runs may be evicted");
        }
    }
}

/// The jobs that may be evicted as a whole, in row order.
pub(super) fn candidates<P: VictimPolicy>(
    policy: &P,
    statement: &Statement<'_>,
    wanted: Wanted,
) -> Vec<Unit> {
    let session = statement.session();
    let jobs = session.cluster().jobs.key.ids();
    jobs.filter_map(|job| whole_job(policy, session, wanted, job)).collect()
}

/// All tasks of a job that are on nodes, if they may be evicted together.
pub(super) fn whole_job<P: VictimPolicy>(
    policy: &P,
    session: &Session,
    wanted: Wanted,
    job: JobIdx,
) -> Option<Unit> {
    let cluster = session.cluster();
    let Wanted { preemptor, limit, .. } = wanted;
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
        && preemptor.need.is_none_or(|need| need.admits::<P>(session, limit.bound, &tasks));
    let unit = Unit { job, tasks, is_whole: true };
    (may_leave && is_permitted(policy, session, wanted, &unit)).then_some(unit)
}

/// The tasks that leave with a job; `None` if there are none, if some cannot leave now, or if the job leaves
/// with one of an earlier row.
fn tasks_to_evict(session: &Session, job: JobIdx) -> Option<Vec<TaskIdx>> {
    let composites = session.composites();
    let whole = composites.leaves_with(job, session.complete_groups());
    if composites.first_job_of(whole) != Some(job) {
        return None;
    }
    let mut tasks = Vec::new();
    for job in composites.jobs_of(whole) {
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

fn is_permitted<P: VictimPolicy>(
    policy: &P,
    session: &Session,
    wanted: Wanted,
    unit: &Unit,
) -> bool {
    let preemptor = wanted.preemptor.task;
    let Unit { job, tasks, is_whole } = unit;
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
fn cheapest_cover<P: VictimPolicy>(
    statement: &mut Statement<'_>,
    candidates: &[Unit],
    wanted: Wanted,
) -> Vec<Unit> {
    let gains: Vec<usize> =
        candidates.iter().map(|candidate| gain::<P>(statement, &candidate.tasks, wanted)).collect();
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
    let settle = Wanted { n_tasks: need, ..wanted }.settle(statement);
    let (_, taken) = cover(&items, need, settle).expect("all together cover the need");
    taken.into_iter().map(|at| candidates[useful[at]].clone()).collect()
}

fn item(session: &Session, candidate: &Unit, gain: usize, wanted: Wanted) -> Item {
    let cluster = session.cluster();
    let Unit { job, tasks, .. } = candidate;
    let violates = session.plugins().violates_budget(tasks);
    let has_highest = cluster.jobs.priority[*job] == wanted.limit.priority;
    Item {
        gain,
        n_violating: violates.into_iter().filter(|violates| *violates).count(),
        amount: wanted.amount(cluster, tasks),
        start: tasks.iter().map(|task| cluster.tasks.start[*task]).min().filter(|_| has_highest),
    }
}

/// How many more of the wanted tasks fit without these tasks.
fn gain<P: VictimPolicy>(
    statement: &mut Statement<'_>,
    tasks: &[TaskIdx],
    wanted: Wanted,
) -> usize {
    let class = wanted.preemptor.class;
    if !statement.session_mut().needs_only_resources(class, tasks) {
        let start = statement.savepoint();
        evict::<P>(statement, tasks);
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
        if statement.session_mut().rules_pass(class, node) {
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
pub(super) fn n_fitting(statement: &mut Statement<'_>, wanted: Wanted) -> usize {
    let start = statement.savepoint();
    let cluster = statement.session().cluster();
    let class = wanted.preemptor.class;
    let of_class =
        |task: &TaskIdx| cluster.tasks.class[*task] == class && cluster.is_waiting(*task);
    let waiting: Vec<TaskIdx> =
        cluster.jobs.tasks[statement.job()].iter().filter(of_class).take(wanted.n_tasks).collect();
    // Where tasks do not depend on each other, as many fit whichever node is taken first: then one search suffices.
    let is_apart = !statement.session_mut().is_open_to_change(class);
    let mut n_placed = 0;
    for task in waiting {
        if statement.session().within_capability(task, &[], Capacity::FutureIdle).is_err() {
            break;
        }
        let choice = match is_apart {
            true => statement.session_mut().best_node_in(class, Capacity::FutureIdle),
            false => statement.best_node(class),
        };
        let Some(choice) = choice else { break };
        statement.pipeline(task, choice.node).expect("a task that waits may be pipelined");
        n_placed += 1;
    }
    statement.rollback_to(start);
    n_placed
}

/// What is idle on a node once the tasks that are being released are gone.
fn future_idle(cluster: &Cluster, node: NodeIdx) -> Vec<i64> {
    let (idle, releasing, pipelined) =
        (&cluster.nodes.idle[node], &cluster.nodes.releasing[node], &cluster.nodes.pipelined[node]);
    let amounts = idle.iter().zip(releasing).zip(pipelined);
    amounts.map(|((idle, releasing), pipelined)| idle + releasing - pipelined).collect()
}

/// How many tasks of the class fit into some amounts.
fn slots(cluster: &Cluster, class: ClassIdx, free: &[i64]) -> usize {
    usize::try_from(cluster.classes.request[class].times_in(free)).unwrap_or(usize::MAX)
}

/// The cost of some victims on one node, compared in this order: violations, gangs, amount, and then the
/// start of the first, the later the better.
type NodeCost = (usize, usize, i64, Reverse<Option<Timestamp>>, NodeIdx);

/// If no candidate makes room by itself: the jobs, and the tasks of other jobs, without which the wanted
/// task fits on some node.
fn for_one_node<P: VictimPolicy>(
    policy: &P,
    statement: &mut Statement<'_>,
    node_tasks: &mut NodeTasks,
    candidates: &[Unit],
    wanted: Wanted,
) -> Vec<Unit> {
    let cluster = statement.session().cluster();
    let mut on_node: BTreeMap<NodeIdx, Vec<&Unit>> = BTreeMap::new();
    for candidate in candidates {
        let nodes: BTreeSet<NodeIdx> =
            candidate.tasks.iter().filter_map(|task| cluster.tasks.placement[*task].node).collect();
        for node in nodes {
            on_node.entry(node).or_default().push(candidate);
        }
    }
    let mut lowest: Option<(NodeCost, Vec<Unit>)> = None;
    for (node, mut jobs) in on_node {
        jobs.sort_by_key(|candidate| {
            let session = statement.session();
            let Item { n_violating, amount, start, .. } = item(session, candidate, 1, wanted);
            let priority = session.cluster().jobs.priority[candidate.job];
            (n_violating, priority, amount, Reverse(start), candidate.job)
        });
        let singles = permitted_on_node(policy, statement, node_tasks, wanted.preemptor, node);
        let cluster = statement.session().cluster();
        let single = |task: TaskIdx| {
            let job = cluster.tasks.job[task].expect("a task that may be evicted has a job");
            Unit { job, tasks: vec![task], is_whole: false }
        };
        let units: Vec<Unit> =
            singles.into_iter().map(single).chain(jobs.into_iter().cloned()).collect();
        let Some(units) = minimal_on_node::<P>(statement, units, wanted, node) else { continue };
        let session = statement.session();
        let items: Vec<Item> = units.iter().map(|unit| item(session, unit, 1, wanted)).collect();
        let cost = (
            items.iter().map(|item| item.n_violating).sum(),
            units.iter().filter(|unit| unit.is_whole).count(),
            items.iter().map(|item| item.amount).sum(),
            Reverse(items.iter().filter_map(|item| item.start).min()),
            node,
        );
        if lowest.as_ref().is_none_or(|(known, _)| cost < *known) {
            lowest = Some((cost, units));
        }
    }
    lowest.map(|(_, units)| units).unwrap_or_default()
}

/// Those of some candidates, the cheapest first, without which the task fits on a node: none of them can
/// stay.
fn minimal_on_node<P: VictimPolicy>(
    statement: &mut Statement<'_>,
    candidates: Vec<Unit>,
    wanted: Wanted,
    node: NodeIdx,
) -> Option<Vec<Unit>> {
    let mut evicted: Vec<Unit> = Vec::new();
    let mut fits = |evicted: &[Unit]| {
        let mut tasks: Vec<TaskIdx> =
            evicted.iter().flat_map(|unit| unit.tasks.iter().copied()).collect();
        // A task may leave by itself or with its job.
        tasks.sort_unstable();
        tasks.dedup();
        fits_without::<P>(statement, &tasks, wanted, node)
    };
    for unit in candidates {
        evicted.push(unit);
        if fits(&evicted) {
            break;
        }
    }
    if !fits(&evicted) {
        return None;
    }
    for at in (0..evicted.len() - 1).rev() {
        let unit = evicted.remove(at);
        if !fits(&evicted) {
            evicted.insert(at, unit);
        }
    }
    Some(evicted)
}

/// Whether the wanted task fits on a node without these tasks.
fn fits_without<P: VictimPolicy>(
    statement: &mut Statement<'_>,
    tasks: &[TaskIdx],
    wanted: Wanted,
    node: NodeIdx,
) -> bool {
    let class = wanted.preemptor.class;
    let (session, task) = (statement.session(), wanted.preemptor.task);
    if session.within_capability(task, tasks, Capacity::FutureIdle).is_err() {
        return false;
    }
    if statement.session_mut().needs_only_resources(class, tasks) {
        let cluster = statement.session().cluster();
        let mut free = future_idle(cluster, node);
        let here = tasks.iter().filter(|task| cluster.tasks.placement[**task].node == Some(node));
        here.for_each(|task| cluster.request(*task).charge(&mut free, 1));
        return slots(cluster, class, &free) > 0 && statement.session_mut().rules_pass(class, node);
    }
    let start = statement.savepoint();
    evict::<P>(statement, tasks);
    let fits = statement.session_mut().fits(class, node, Capacity::FutureIdle);
    statement.rollback_to(start);
    fits
}
