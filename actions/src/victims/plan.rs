//! The best set of victims where tasks are equal.
//!
//! If the waiting tasks of a job and the tasks that may leave for them request the same, and no rule looks
//! at other pods, each victim makes room for one task. Then the best set follows from what each job can
//! spare and from the sizes of the gangs (docs/parity.md#p10). A plan says which gangs leave; single
//! victims are selected as ever, within the limit of the plan.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube_batch_framework::{plugin::Proposal, session::Session, statement::Statement};
use kube_batch_model::{
    column::{JobIdx, TaskIdx},
    name::Name,
};

use super::{
    cover::{Cost, Item, cover},
    evictable::{Evictable, WantingTasks},
    limit::Limit,
    policy::VictimPolicy,
    whole_jobs::{n_fitting, whole_job},
};

/// Which gangs leave, and which single tasks may.
pub(super) struct Plan {
    pub(super) limit: Limit,
    pub(super) gangs: Vec<Evictable>,
}

/// A job with tasks that may leave.
struct VictimJob {
    priority: i32,
    /// The tasks that it can spare.
    singles: Vec<Single>,
    /// What leaves if it is broken, if it may be.
    gang: Option<Gang>,
}

/// A task that a job can spare.
#[derive(Clone, Copy)]
struct Single {
    start: Timestamp,
    /// Whether its eviction violates a budget.
    violates: bool,
    /// The Job of `batch` that fails by it, or has failed by one before it: a number for each.
    failing: Option<usize>,
}

struct Gang {
    unit: Evictable,
    /// The start of its first task.
    start: Timestamp,
    /// How many tasks fit once it is gone.
    gain: usize,
    n_violating: usize,
    n_failing_jobs: usize,
}

/// Which victims a set may have.
#[derive(Clone, Copy)]
struct PlanLimit {
    limit: Limit,
    /// The earliest start of a victim that has the highest priority.
    since: Timestamp,
}

/// The plan for the wanted tasks; `None` if it cannot be computed, if no gang may leave, or if no victims
/// are needed.
pub(super) fn plan(
    policy: VictimPolicy<'_>,
    statement: &mut Statement<'_>,
    wanted: WantingTasks,
) -> Option<Plan> {
    let n_fitting = n_fitting(statement, wanted);
    let wanted = WantingTasks { n_tasks: wanted.n_tasks - n_fitting, ..wanted };
    if wanted.n_tasks == 0 || !are_apart(statement, wanted) {
        return None;
    }
    let jobs = victim_jobs(policy, statement, wanted)?;
    let Limit { may_violate, priority, bound } = wanted.limit;
    let within = |priority, may_violate| PlanLimit {
        limit: Limit { may_violate, priority, bound },
        since: Timestamp::MIN,
    };
    let cost = |within| best(&jobs, within, wanted.n_tasks).map(|(cost, _)| cost);
    let n_violating = cost(within(priority, may_violate))?.n_violating;
    let may_violate = n_violating > 0;
    let priorities: BTreeSet<i32> = jobs.iter().map(|job| job.priority).collect();
    let priorities: Vec<i32> = priorities.into_iter().collect();
    let too_low = priorities.partition_point(|priority| {
        cost(within(*priority, may_violate)).is_none_or(|cost| cost.n_violating > n_violating)
    });
    let widest = within(*priorities.get(too_low)?, may_violate);
    let lowest = cost(widest)?;
    let starts: Vec<Timestamp> = starts(&jobs, widest.limit.priority).into_iter().collect();
    let n_equal = starts.partition_point(|since| {
        cost(PlanLimit { since: *since, ..widest }).is_some_and(|cost| cost == lowest)
    });
    let since = n_equal.checked_sub(1).map_or(Timestamp::MIN, |last| starts[last]);
    let (_, gangs) = best(&jobs, PlanLimit { since, ..widest }, wanted.n_tasks)?;
    Some(Plan { limit: widest.limit, gangs: gangs.into_iter().cloned().collect() })
}

/// Whether a place of one of the tasks does not depend on the places of the others, free resources aside.
fn are_apart(statement: &mut Statement<'_>, wanted: WantingTasks) -> bool {
    let class = wanted.preemptor.class;
    let session = statement.session_mut();
    !session.search().is_open_to_change(class)
        && session.search().needs_only_resources(class, &[wanted.preemptor.task])
}

/// When the victims of a priority started.
fn starts(jobs: &[VictimJob], priority: i32) -> BTreeSet<Timestamp> {
    let jobs = jobs.iter().filter(|job| job.priority == priority);
    jobs.flat_map(|job| {
        let gang = job.gang.as_ref().map(|gang| gang.start);
        job.singles.iter().map(|single| single.start).chain(gang)
    })
    .collect()
}

/// The jobs with tasks that may leave; `None` if not all of these make room for one task each, or if none
/// may be broken.
fn victim_jobs(
    policy: VictimPolicy<'_>,
    statement: &mut Statement<'_>,
    wanted: WantingTasks,
) -> Option<Vec<VictimJob>> {
    let class = wanted.preemptor.class;
    let all: Vec<JobIdx> = statement.session().cluster().jobs.key.ids().collect();
    let mut jobs = Vec::new();
    for job in all {
        let tasks = running_tasks(policy, statement.session(), wanted, job);
        let gang = whole_job(policy, statement.session(), wanted, job);
        let of_gang = gang.iter().flat_map(|unit| &unit.tasks);
        let leaving: Vec<TaskIdx> = tasks.iter().chain(of_gang).copied().collect();
        if leaving.is_empty() {
            continue;
        }
        let cluster = statement.session().cluster();
        let request = &cluster.classes.request[class];
        let is_equal = |task: &TaskIdx| cluster.request(*task) == request;
        if !leaving.iter().all(is_equal)
            || !statement.search().needs_only_resources(class, &leaving)
        {
            return None;
        }
        let useful = |task: &TaskIdx, statement: &mut Statement<'_>| {
            let node = statement.session().cluster().tasks.placement[*task].node;
            node.is_some_and(|node| statement.search().rules_pass(class, node))
        };
        let mut singles = tasks;
        singles.retain(|task| useful(task, statement));
        let gain = gang
            .as_ref()
            .map(|unit| unit.tasks.iter().filter(|task| useful(task, statement)).count());
        jobs.push(VictimJob::new(
            policy,
            statement.session(),
            wanted,
            job,
            singles,
            gang.zip(gain),
        ));
    }
    jobs.iter().any(|job| job.gang.is_some()).then_some(jobs)
}

/// The bound and running tasks of a job that are candidates, in the order in which they leave.
fn running_tasks(
    policy: VictimPolicy<'_>,
    session: &Session,
    wanted: WantingTasks,
    job: JobIdx,
) -> Vec<TaskIdx> {
    let cluster = session.cluster();
    let preemptor = wanted.preemptor.task;
    let tasks = cluster.jobs.tasks[job].iter();
    tasks
        .filter(|task| cluster.status(*task).may_be_evicted() && cluster.tasks.ours[*task])
        .filter(|task| policy.considers(cluster, preemptor, *task))
        .filter(|task| session.have_run_enough(preemptor, &[*task]))
        .collect()
}

impl VictimJob {
    fn new(
        policy: VictimPolicy<'_>,
        session: &Session,
        wanted: WantingTasks,
        job: JobIdx,
        mut tasks: Vec<TaskIdx>,
        gang: Option<(Evictable, usize)>,
    ) -> Self {
        let cluster = session.cluster();
        tasks.sort_by_key(|task| std::cmp::Reverse(cluster.tasks.start[*task]));
        let mut singles: Vec<TaskIdx> = Vec::new();
        for victim in tasks {
            let proposal = Proposal { preemptor: wanted.preemptor.task, victim, evicted: &singles };
            if singles.len() < wanted.n_tasks && policy.allows(session, &proposal) {
                singles.push(victim);
            }
        }
        let singles = spared(session, &singles);
        let gang = gang.map(|(unit, gain)| {
            let violates = session.plugins().violates_budget(&unit.tasks);
            let starts = unit.tasks.iter().map(|task| cluster.tasks.start[*task]);
            Gang {
                start: starts.min().unwrap_or(Timestamp::MAX),
                gain,
                n_violating: violates.into_iter().filter(|violates| *violates).count(),
                n_failing_jobs: cluster.n_failing_jobs(&unit.tasks),
                unit,
            }
        });
        Self { priority: cluster.jobs.priority[job], singles, gang }
    }

    fn singles_in(&self, within: PlanLimit) -> impl Iterator<Item = Single> + '_ {
        let admits = move |single: &&Single| {
            within.admits(self.priority, single.start)
                && (within.limit.may_violate || !single.violates)
        };
        self.singles.iter().filter(admits).copied()
    }

    fn gang_in(&self, within: PlanLimit) -> Option<&Gang> {
        let gang = self.gang.as_ref()?;
        let admitted = within.admits(self.priority, gang.start)
            && (within.limit.may_violate || gang.n_violating == 0);
        admitted.then_some(gang)
    }

    /// The gang as one item of a set of victims.
    fn item(&self, within: PlanLimit) -> Option<(&Evictable, Item)> {
        let gang = self.gang_in(within)?;
        // What it could spare is counted already.
        let n_counted = self.singles_in(within).filter(|single| single.is_free()).count();
        let gain = gang.gain.checked_sub(n_counted).filter(|gain| *gain > 0)?;
        let amount = gang.unit.tasks.len() as i64;
        let Gang { unit, n_violating, n_failing_jobs, .. } = gang;
        let (n_violating, n_failing_jobs) = (*n_violating, *n_failing_jobs);
        Some((unit, Item { gain, n_violating, n_failing_jobs, amount, start: None }))
    }
}

impl Single {
    /// Whether its eviction violates nothing, and no Job fails by it.
    const fn is_free(self) -> bool {
        !self.violates && self.failing.is_none()
    }
}

/// What the eviction of some tasks, in this order, leads to.
fn spared(session: &Session, tasks: &[TaskIdx]) -> Vec<Single> {
    let cluster = session.cluster();
    let violates = session.plugins().violates_budget(tasks);
    let mut failing: Vec<&Name> = Vec::new();
    let mut singles = Vec::with_capacity(tasks.len());
    for (at, task) in tasks.iter().enumerate() {
        let controller = cluster.tasks.facts[*task].controller.as_ref();
        let uid = controller.map(|controller| &controller.uid);
        if cluster.fails_job(*task, &tasks[..at]) {
            failing.extend(uid);
        }
        singles.push(Single {
            start: cluster.tasks.start[*task],
            violates: violates.get(at) == Some(&true),
            failing: failing.iter().position(|own| Some(*own) == uid),
        });
    }
    singles
}

impl PlanLimit {
    fn admits(self, priority: i32, start: Timestamp) -> bool {
        self.limit.admits_priority(priority)
            && (priority < self.limit.priority || start >= self.since)
    }
}

/// The cheapest set of victims within a limit: its cost, and the gangs in it.
fn best(jobs: &[VictimJob], within: PlanLimit, n_tasks: usize) -> Option<(Cost, Vec<&Evictable>)> {
    let singles = || jobs.iter().flat_map(|job| job.singles_in(within));
    let need = n_tasks.saturating_sub(singles().filter(|single| single.is_free()).count());
    let n_last_resort = singles().filter(|single| single.violates).count();
    let failing = singles_of_failing_jobs(jobs, within);
    let settle = |gain: usize, cost: Cost| {
        let (n_failing, missing) = n_failing_for(&failing, need.saturating_sub(gain));
        let n_failing_jobs = cost.n_failing_jobs + n_failing;
        let (n_violating, amount) = (cost.n_violating + missing, cost.amount.max(n_tasks as i64));
        let is_enough = missing <= n_last_resort;
        is_enough.then_some(Cost { n_violating, n_failing_jobs, amount, ..cost })
    };
    let (units, items): (Vec<&Evictable>, Vec<Item>) =
        jobs.iter().filter_map(|job| job.item(within)).unzip();
    let (cost, taken) = cover(&items, need, settle)?;
    Some((cost, taken.into_iter().map(|at| units[at]).collect()))
}

/// How many tasks could leave beside the free ones once a Job fails by them, for each of these Jobs; the most first.
fn singles_of_failing_jobs(jobs: &[VictimJob], within: PlanLimit) -> Vec<usize> {
    let mut numbers = Vec::new();
    for job in jobs {
        let mut of_job: BTreeMap<usize, usize> = BTreeMap::new();
        let singles = job.singles_in(within).filter(|single| !single.violates);
        for failing in singles.filter_map(|single| single.failing) {
            *of_job.entry(failing).or_default() += 1;
        }
        numbers.extend(of_job.into_values());
    }
    numbers.sort_unstable_by(|l, r| r.cmp(l));
    numbers
}

/// How many Jobs fail so that this number of tasks more can leave, and how many are missing after that.
fn n_failing_for(failing: &[usize], n_tasks: usize) -> (usize, usize) {
    let mut missing = n_tasks;
    let mut n_failing = 0;
    for n in failing {
        if missing == 0 {
            break;
        }
        missing = missing.saturating_sub(*n);
        n_failing += 1;
    }
    (n_failing, missing)
}
