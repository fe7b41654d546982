//! A gang whose tasks must all be in one domain, as with required pod affinity to their own labels.
//!
//! The first task to be placed chooses the domain for all, by its own score. If that domain does not
//! hold the gang, others are tried, one after another, the one with most free places first.
// Parity: see docs/parity.md#a10.

use std::{cmp::Reverse, collections::VecDeque};

use kube_batch_api::column::{ClassIdx, NodeIdx, TaskIdx};
use kube_batch_framework::{failure::Failure, plugin::Capacity, statement::Statement};

use crate::{
    budget::Budget,
    gang::{minimum_reached, place_tasks, place_within, reaches_minimum, record_fitting},
    unlike_tasks::{SearchBound, are_unlike, place_in_other_orders},
};

/// How many domains are tried after the first, so that a gang which fits in none of many domains costs
/// a bounded number of placements.
const DOMAINS_TO_TRY: usize = 8;

/// Places tasks as [`place_tasks`]. If they do not reach the minimum of the job and could all be in
/// another domain, tries other domains. Returns how many of them had a place in the best try.
pub(crate) fn place_tasks_in_some_domain(
    tasks: &mut VecDeque<TaskIdx>,
    statement: &mut Statement<'_>,
    budget: &mut Budget<'_>,
    bound: &mut SearchBound,
) -> usize {
    let start = statement.savepoint();
    if statement.job_ready() {
        place_tasks(tasks, statement, budget);
        return statement.n_moves_since(start);
    }
    let (waiting, idle) = (tasks.clone(), budget.idle());
    place_tasks(tasks, statement, budget);
    let mut n_placed = statement.n_moves_since(start);
    let reached = minimum_reached(statement, start);
    if reached == Some(Capacity::Idle) {
        return n_placed;
    }
    let are_unlike = are_unlike(statement.session(), &waiting);
    if reached.is_some() && !are_unlike {
        return n_placed;
    }
    if reached.is_none() {
        record_fitting(statement);
    }
    statement.rollback_to(start);
    budget.restore(idle.clone());
    let left = std::mem::replace(tasks, waiting.clone());
    if are_unlike && place_in_other_orders(tasks, statement, budget, Capacity::Idle, bound) {
        return statement.n_moves_since(start);
    }
    if reached.is_some() {
        place_tasks(tasks, statement, budget);
        return n_placed;
    }
    if are_unlike
        && matches!(budget, Budget::All)
        && place_in_other_orders(tasks, statement, budget, Capacity::FutureIdle, bound)
    {
        return statement.n_moves_since(start);
    }
    if bound.was_reached {
        record_undecided(statement);
    }
    // Those that were tried are not tried again.
    *tasks = left;
    let Some((first, domains)) = domains_to_try(statement, &waiting) else {
        return n_placed;
    };
    for domain in domains {
        tasks.clone_from(&waiting);
        tasks.retain(|task| *task != first);
        if place_first(statement, first, &domain, budget) {
            place_tasks(tasks, statement, budget);
            n_placed = n_placed.max(statement.n_moves_since(start));
            if reaches_minimum(statement) {
                return n_placed;
            }
            record_fitting(statement);
        }
        statement.rollback_to(start);
        budget.restore(idle.clone());
    }
    n_placed
}

/// Records that the tasks may fit in an order that was not tried.
fn record_undecided(statement: &mut Statement<'_>) {
    let job = statement.job();
    let session = statement.session_mut();
    if let Some(Failure::Unfit(report)) = session.failure(job).cloned() {
        session.replace_failure(job, Some(Failure::Undecided(report)));
    }
}

/// The first task that chooses a domain for others, and the domains that may hold the minimum, the
/// one with most free places first.
fn domains_to_try(
    statement: &mut Statement<'_>,
    waiting: &VecDeque<TaskIdx>,
) -> Option<(TaskIdx, Vec<Vec<NodeIdx>>)> {
    let mut tried: Vec<ClassIdx> = Vec::new();
    for task in waiting {
        let class = statement.session().cluster().tasks.class[*task];
        if tried.contains(&class) {
            continue;
        }
        tried.push(class);
        if !statement.session_mut().is_open_to_change(class) {
            continue;
        }
        let domains = statement.session().plugins().domains_to_choose(class);
        if !domains.is_empty() {
            let needed = tasks_needed(statement, waiting, class);
            return Some((*task, largest(statement, class, domains, needed)));
        }
    }
    None
}

/// How many tasks of the class the minimum needs at least.
fn tasks_needed(statement: &Statement<'_>, waiting: &VecDeque<TaskIdx>, class: ClassIdx) -> u64 {
    let session = statement.session();
    let class_of = &session.cluster().tasks.class;
    let n_others = waiting.iter().filter(|task| class_of[**task] != class).count() as u64;
    let missing = u64::from(session.plugins().tasks_missing(statement.job()));
    missing.saturating_sub(n_others).max(1)
}

/// The domains with most free places for the class, of those that have at least `needed`. Of equal
/// ones the first. If none has that many, the largest, so that the message reports how many fit there.
fn largest(
    statement: &mut Statement<'_>,
    class: ClassIdx,
    domains: Vec<Vec<NodeIdx>>,
    needed: u64,
) -> Vec<Vec<NodeIdx>> {
    let mut counted: Vec<(Reverse<u64>, Vec<NodeIdx>)> = domains
        .into_iter()
        .map(|nodes| (Reverse(statement.session_mut().count_fitting(class, &nodes)), nodes))
        .collect();
    counted.sort_unstable();
    let n_enough = counted.iter().filter(|(Reverse(n_places), _)| *n_places >= needed).count();
    counted.truncate(n_enough.clamp(1, DOMAINS_TO_TRY));
    counted.into_iter().map(|(_, nodes)| nodes).collect()
}

/// Places the first task on the best node of a domain. Returns whether it has a place.
fn place_first(
    statement: &mut Statement<'_>,
    task: TaskIdx,
    domain: &[NodeIdx],
    budget: &mut Budget<'_>,
) -> bool {
    let session = statement.session_mut();
    let class = session.cluster().tasks.class[task];
    let capacities: &[Capacity] = match budget {
        Budget::All => &[Capacity::Idle, Capacity::FutureIdle],
        Budget::Lent(_) => &[Capacity::Idle],
    };
    let mut choices = capacities.iter().map(|capacity| {
        session.within_capability(task, &[], *capacity).ok()?;
        session.best_node_of(class, domain, *capacity)
    });
    let Some(choice) = choices.find_map(|choice| choice) else { return false };
    place_within(statement, task, choice, budget).is_ok()
}
