//! A gang whose tasks must be in one domain, as with required pod affinity to their own labels or to those of their
//! leader, or with a claim that all share.
//!
//! The first task to be placed chooses the domain for all, by its own score. If that domain does not
//! hold the gang, others are tried, one after another, the one with most free places first.
// Parity: see docs/parity.md#a10.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, VecDeque},
};

use kube_batch_framework::{
    failure::Failure,
    plugin::Capacity,
    statement::{Savepoint, Statement},
};
use kube_batch_model::{
    column::{ClassIdx, NodeIdx, TaskIdx},
    resource::ResourceVector,
};

use crate::{
    budget::Budget,
    dependent_tasks::{have_claims, place_by_trying},
    gang::{
        could_be_held, minimum_reached, place_tasks, place_within, reaches_minimum, record_fitting,
    },
    unlike_tasks::{SearchBound, are_unlike, place_in_other_orders},
};

/// How many domains are tried after the first, so that a gang which fits in none of many domains costs
/// a bounded number of placements.
const DOMAINS_TO_TRY: usize = 8;

/// Places tasks as [`place_tasks`]. If they do not reach the minimum of the job, tries other orders of unlike tasks, and
/// other domains for tasks that could all be in another one. Returns how many of them had a place in the best try.
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
    let n_placed = statement.n_moves_since(start);
    let reached = minimum_reached(statement, start);
    let are_unlike = reached != Some(Capacity::Idle) && are_unlike(statement.session(), &waiting);
    if reached.is_some() && !are_unlike {
        return n_placed;
    }
    if reached.is_none() {
        record_fitting(statement);
    }
    let mut tries = Tries { tasks, statement, budget, bound, waiting, start, idle, n_placed };
    tries.run(reached, are_unlike);
    tries.n_placed
}

/// The tries after the first, in which the job did not reach its minimum, or only once resources are released.
struct Tries<'a, 's, 'b> {
    tasks: &'a mut VecDeque<TaskIdx>,
    statement: &'a mut Statement<'s>,
    budget: &'a mut Budget<'b>,
    bound: &'a mut SearchBound,
    /// The tasks before the first try.
    waiting: VecDeque<TaskIdx>,
    start: Savepoint,
    idle: Option<ResourceVector>,
    /// How many had a place in the best try.
    n_placed: usize,
}

impl Tries<'_, '_, '_> {
    fn run(&mut self, reached: Option<Capacity>, are_unlike: bool) {
        self.take_back();
        let left = std::mem::take(self.tasks);
        let job = self.statement.job();
        if !could_be_held(self.statement.session_mut(), job) {
            *self.tasks = left;
            return;
        }
        if are_unlike {
            self.tasks.clone_from(&self.waiting);
            if self.in_other_orders(Capacity::Idle) {
                return;
            }
            if reached.is_some() {
                place_tasks(self.tasks, self.statement, self.budget);
                return;
            }
            if matches!(self.budget, Budget::All) && self.in_other_orders(Capacity::FutureIdle) {
                return;
            }
        }
        if self.in_other_domains() {
            return;
        }
        let may_depend = are_unlike || have_claims(self.statement.session(), &self.waiting);
        if may_depend && self.by_trying() {
            return;
        }
        if self.bound.was_reached {
            record_undecided(self.statement);
        }
        // Those that were tried are not tried again.
        *self.tasks = left;
    }

    fn take_back(&mut self) {
        self.statement.rollback_to(self.start);
        self.budget.restore(self.idle.clone());
    }

    fn in_other_orders(&mut self, capacity: Capacity) -> bool {
        let Self { tasks, statement, budget, bound, .. } = self;
        let is_placed = place_in_other_orders(tasks, statement, budget, capacity, bound);
        if is_placed {
            self.n_placed = self.statement.n_moves_since(self.start);
        }
        is_placed
    }

    fn in_other_domains(&mut self) -> bool {
        let Some((firsts, domains)) = domains_to_try(self.statement, &self.waiting) else {
            return false;
        };
        for domain in domains {
            let place =
                |first: &&TaskIdx| place_first(self.statement, **first, &domain, self.budget);
            if let Some(first) = firsts.iter().find(place) {
                self.tasks.clone_from(&self.waiting);
                self.tasks.retain(|task| task != first);
                place_tasks(self.tasks, self.statement, self.budget);
                self.n_placed = self.n_placed.max(self.statement.n_moves_since(self.start));
                if reaches_minimum(self.statement) {
                    return true;
                }
                record_fitting(self.statement);
            }
            self.take_back();
        }
        false
    }

    fn by_trying(&mut self) -> bool {
        self.tasks.clone_from(&self.waiting);
        let capacities: &[Capacity] = match self.budget {
            Budget::All => &[Capacity::Idle, Capacity::FutureIdle],
            Budget::Lent(_) => &[Capacity::Idle],
        };
        let is_placed = capacities.iter().any(|capacity| {
            place_by_trying(self.tasks, self.statement, self.budget, *capacity, self.bound)
        });
        if is_placed {
            self.n_placed = self.statement.n_moves_since(self.start);
        }
        is_placed
    }
}

/// Records that the tasks may fit in an order that was not tried.
fn record_undecided(statement: &mut Statement<'_>) {
    let job = statement.job();
    let session = statement.session_mut();
    if let Some(Failure::Unfit(report)) = session.failure(job).cloned() {
        session.replace_failure(job, Some(Failure::Undecided(report)));
    }
}

/// The tasks of which one chooses a domain for others, and the domains that may hold the minimum, the
/// one with most free places first.
fn domains_to_try(
    statement: &mut Statement<'_>,
    waiting: &VecDeque<TaskIdx>,
) -> Option<(Vec<TaskIdx>, Vec<Vec<NodeIdx>>)> {
    let mut tried: BTreeSet<ClassIdx> = BTreeSet::new();
    for task in waiting {
        let class = statement.session().cluster().tasks.class[*task];
        if !tried.insert(class) || !statement.search().is_open_to_change(class) {
            continue;
        }
        let domains = statement.session().plugins().domains_to_choose(class);
        if !domains.is_empty() {
            let needed = tasks_needed(statement, waiting, class);
            let firsts = firsts(statement, waiting, class);
            return Some((firsts, largest(statement, class, &domains, needed)));
        }
    }
    None
}

/// The first task of each class on which a class depends: of these, the first that fits chooses the domain.
fn firsts(
    statement: &mut Statement<'_>,
    waiting: &VecDeque<TaskIdx>,
    class: ClassIdx,
) -> Vec<TaskIdx> {
    let session = statement.session_mut();
    let mut known: BTreeSet<ClassIdx> = BTreeSet::new();
    let mut firsts = Vec::new();
    for task in waiting {
        let other = session.cluster().tasks.class[*task];
        if known.insert(other) && !session.search().needs_only_resources(class, &[*task]) {
            firsts.push(*task);
        }
    }
    // Those of the class itself may choose for all.
    firsts.sort_by_key(|task| session.cluster().tasks.class[*task] != class);
    firsts
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
    domains: &[Vec<NodeIdx>],
    needed: u64,
) -> Vec<Vec<NodeIdx>> {
    let mut counted: Vec<(Reverse<u64>, &Vec<NodeIdx>)> = domains
        .iter()
        .map(|nodes| (Reverse(statement.search().count_fitting(class, nodes)), nodes))
        .collect();
    counted.sort_unstable();
    let n_enough = counted.iter().filter(|(Reverse(n_places), _)| *n_places >= needed).count();
    counted.truncate(n_enough.clamp(1, DOMAINS_TO_TRY));
    counted.into_iter().map(|(_, nodes)| nodes.clone()).collect()
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
        session.within_limits(task, &[], *capacity).ok()?;
        session.search().best_node_of(class, domain, *capacity)
    });
    let Some(choice) = choices.find_map(|choice| choice) else { return false };
    place_within(statement, task, choice, budget).is_ok()
}
