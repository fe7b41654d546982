//! Selecting victims: what preempt and reclaim have in common.
//!
//! On each node, candidates are removed one by one in a dry run until the task fits: reclaim starts
//! with the queue of the highest share, and both start with the lowest priority. (kube-scheduler
//! removes all candidates first.) Then each victim that is not needed is reprieved, in the reverse
//! order, so that the set is minimal. The node whose victims have the lowest cost is chosen.
//!
//! A *turn* is one call of [`turn`] for one job; actions give turns to queues and jobs by their order.
// Parity: differs, see docs/parity.md#p4 to docs/parity.md#p6.

mod attempt;
mod cover;
mod domains;
mod dry_run;
mod evictable;
mod in_queue;
mod index;
mod limit;
mod loss;
mod minimal_set;
mod node_tasks;
mod on_node;
mod one_node;
mod plan;
mod policy;
mod reprieve;
mod select;
mod whole_jobs;

use std::collections::VecDeque;

use kube_batch_framework::{
    foresight::{Foreseen, NextCycle},
    order::NextTurn,
    reservations::Finds,
    session::Session,
    topology::Scope,
};
use kube_batch_model::{
    column::{CompositeIdx, JobIdx, TaskIdx},
    resource::ResourceVector,
};

use self::{
    attempt::{Attempt, Attempted, Means},
    domains::{Best, cheapest_domain, domains_to_compare},
    limit::Limit,
    loss::Bound,
    whole_jobs::broken,
};
pub(crate) use self::{policy::VictimPolicy, select::VictimSearch};
use crate::{
    budget::Budget,
    composites::{JobTurns, Reached, place_groups, release},
    gang::reaches_minimum,
    topology::place_tasks_by_topology,
    unlike_tasks::other_orders,
    waiting::{Waiting, WaitingByJob},
};

/// A turn of a job, or of all jobs of a composite PodGroup.
pub(crate) fn turn(
    policy: VictimPolicy<'_>,
    session: &mut Session,
    search: &mut VictimSearch,
    job: JobIdx,
    waiting: &mut Waiting,
) -> NextTurn {
    let row = session.incomplete_above(job);
    if let Some(row) = row
        && !(policy.is_between_jobs() && waiting.tried.insert(row) && !session.is_pipelined(row))
    {
        return NextTurn::None;
    }
    session.beside_reservations(job, Finds::Victims, |session| match row {
        None => turn_of_job(policy, session, search, job, &mut waiting.tasks),
        Some(row) => {
            turn_of_groups(policy, session, search, row);
            NextTurn::None
        }
    })
}

/// Tries to place tasks of one job, in one [`Statement`](kube_batch_framework::statement::Statement).
///
/// Places the tasks of the job in order until the job is pipelined. For a job that is pipelined
/// already, places one more task: the first that can be placed only by evicting victims. Commits only
/// if at least one task is evicted and the job is pipelined; otherwise every move is rolled back.
fn turn_of_job(
    policy: VictimPolicy<'_>,
    session: &mut Session,
    search: &mut VictimSearch,
    job: JobIdx,
    waiting: &mut WaitingByJob,
) -> NextTurn {
    let tasks = waiting.entry(job).or_insert_with(|| session.waiting_tasks(job).into());
    let mut left = None;
    find_places(policy, session, search, job, tasks, &mut |attempt, untried| {
        attempt.commit();
        left = Some(untried);
    });
    let Some(left) = left else { return NextTurn::None };
    *tasks = left;
    if tasks.is_empty() { NextTurn::None } else { NextTurn::Wanted }
}

/// As long as the job would evict tasks in the next cycle, takes back placements that lead to that.
pub(crate) fn foresee(
    policy: VictimPolicy<'_>,
    session: &mut Session,
    search: &mut VictimSearch,
    job: JobIdx,
    next: &mut NextCycle,
) {
    if session.incomplete_above(job).is_some() || session.is_turn_large(job) {
        return;
    }
    while !next.is_spent(session, job) {
        let work = session.work();
        let tasks = session.waiting_tasks(job).into();
        let mut foreseen = None;
        session.beside_reservations(job, Finds::Victims, |session| {
            if foreseen.is_none() {
                find_places(policy, session, search, job, &tasks, &mut |attempt, _| {
                    let (victims, _) = attempt.victims();
                    foreseen = Some(Foreseen { by: job, victims });
                });
            }
        });
        next.count_since(session, job, work);
        if !foreseen.is_some_and(|foreseen| next.take_back(session, &foreseen)) {
            return;
        }
    }
}

/// Places the jobs below a composite PodGroup, each as [`turn_of_job`]. Commits only if enough of them find
/// their places and at least one task is evicted.
fn turn_of_groups(
    policy: VictimPolicy<'_>,
    session: &mut Session,
    search: &mut VictimSearch,
    row: CompositeIdx,
) {
    let reached = place_groups(session, row, &mut Evicting { policy, search });
    let jobs = session.gangs().jobs(row);
    let is_evicting = |job: &JobIdx| session.statement(*job).n_evicted() > 0;
    let evicting: Vec<JobIdx> = jobs.into_iter().filter(is_evicting).collect();
    if reached == Reached::Incomplete || evicting.is_empty() {
        return release(session, row);
    }
    for job in evicting {
        let statement = session.statement(job);
        let broken = broken(&statement);
        statement.commit_breaking(&broken, policy.reason());
    }
}

/// Places the jobs of composite PodGroups by evicting tasks.
struct Evicting<'a> {
    policy: VictimPolicy<'a>,
    search: &'a mut VictimSearch,
}

impl JobTurns for Evicting<'_> {
    const EVICTS: bool = true;

    fn may_wait(&self) -> bool {
        true
    }

    fn turn(&mut self, session: &mut Session, job: JobIdx) {
        let tasks = session.waiting_tasks(job).into();
        let Self { policy, search } = self;
        let outcome =
            find_places(*policy, session, search, job, &tasks, &mut |attempt, _| attempt.keep());
        if outcome == Attempted::NeedsNoVictims {
            // Its places are to be left for it.
            let mut tasks = tasks;
            let mut statement = session.statement(job);
            place_tasks_by_topology(&mut tasks, &mut statement, &mut Budget::All);
            if reaches_minimum(&mut statement) {
                statement.keep();
            }
        }
    }

    fn idle(&self) -> Option<ResourceVector> {
        None
    }

    fn restore(&mut self, _: Option<ResourceVector>) {}
}

/// Finds places for tasks of a job by evicting others. If there are some, `found` gets the attempt, and the
/// tasks that it did not try.
fn find_places(
    policy: VictimPolicy<'_>,
    session: &mut Session,
    search: &mut VictimSearch,
    job: JobIdx,
    tasks: &VecDeque<TaskIdx>,
    found: &mut dyn FnMut(Attempt<'_, '_>, VecDeque<TaskIdx>),
) -> Attempted {
    // A job without tasks in a domain has no victims of its own.
    let domains = if policy.is_between_jobs() { domains_to_compare(session, job) } else { None };
    let (mut bounds, mut refused) = (vec![Bound::Widest], None);
    if session.plugins().max_loss().is_some() {
        (bounds, refused) = Attempt::new(policy, session, search, job, None).bounds(tasks);
    }
    // One more task of a job that has its minimum depends on no order.
    let mut orders = session.plugins().job_pipelined(job).then(Vec::new);
    for means in means(policy, session, tasks, &bounds) {
        let domains = domains.as_deref();
        let mut place =
            |session: &mut Session, search: &mut VictimSearch, tasks: &VecDeque<TaskIdx>| {
                place_by(policy, session, search, job, tasks, (means, domains), &mut *found)
            };
        let mut outcome = place(session, search, tasks);
        if outcome == Attempted::Unplaceable {
            let orders = orders.get_or_insert_with(|| other_orders(session, job, tasks));
            for tasks in orders.iter() {
                outcome = place(session, search, tasks);
                if outcome != Attempted::Unplaceable {
                    break;
                }
            }
        }
        if outcome != Attempted::Unplaceable {
            return outcome;
        }
    }
    if let Some(refused) = refused {
        session.record_refused_gang(job, refused);
    }
    Attempted::Unplaceable
}

/// Finds places by some means, in the order of the tasks.
fn place_by(
    policy: VictimPolicy<'_>,
    session: &mut Session,
    search: &mut VictimSearch,
    job: JobIdx,
    tasks: &VecDeque<TaskIdx>,
    (means, domains): (Means, Option<&[Scope]>),
    found: &mut dyn FnMut(Attempt<'_, '_>, VecDeque<TaskIdx>),
) -> Attempted {
    let best = match domains {
        None => Best::In(None),
        Some(domains) => cheapest_domain(policy, session, search, job, tasks, (means, domains)),
    };
    let scope = match best {
        Best::In(scope) => scope,
        Best::Nowhere => return Attempted::Unplaceable,
        Best::NeedsNoVictims => return Attempted::NeedsNoVictims,
    };
    let mut left = tasks.clone();
    let mut attempt = Attempt::new(policy, session, search, job, scope);
    match attempt.run(means, &mut left) {
        Attempted::Placed if attempt.reprieve() => {
            found(attempt, left);
            Attempted::Placed
        }
        Attempted::Placed | Attempted::Unplaceable => Attempted::Unplaceable,
        Attempted::NeedsNoVictims => Attempted::NeedsNoVictims,
    }
}

/// What to try, one after another.
fn means(
    policy: VictimPolicy<'_>,
    session: &Session,
    tasks: &VecDeque<TaskIdx>,
    bounds: &[Bound],
) -> Vec<Means> {
    if !session.plugins().evicts_whole_jobs() {
        return vec![Means::SingleTasks];
    }
    let first = tasks.iter().find(|task| session.cluster().is_waiting(**task));
    let limits = first.map(|first| Limit::of(policy, session, *first, bounds)).unwrap_or_default();
    let plans = bounds.iter().copied().map(Means::Plan);
    plans.chain(limits.into_iter().map(Means::Within)).collect()
}
