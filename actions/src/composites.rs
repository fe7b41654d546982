//! Composite PodGroups: their jobs start together.
//!
//! The jobs below a composite PodGroup that is not complete have one turn together. Its groups are placed one
//! after another, each as a whole or not at all, until as many as its minimum requires have their places; a
//! group that has none is skipped. If that does not suffice, the smallest groups are tried first, and if their
//! tasks are not alike, the hardest to place, and each group in its turn. Until the composite PodGroup is
//! complete, the places are only kept; a turn that does not suffice leaves none.
// Parity: new, see docs/parity.md#k8.

use std::sync::Arc;

use kube_batch_framework::{
    failure::Failure,
    plugin::Capacity,
    session::Session,
    topology::{Home, Level},
};
use kube_batch_model::{
    column::{ClassIdx, CompositeIdx, DomainIdx, JobIdx, NodeIdx, TaskIdx},
    gang::tree::Gang,
    name::Name,
    resource::ResourceVector,
    why::NotEnoughGroups,
};

use crate::{
    domain_budget::DomainBudget,
    gang::{reaches_minimum, record_fitting},
    topology::{Candidate, sorted_candidates},
    unlike_tasks::{SearchBound, are_unlike, places_of_jobs},
};

/// How the jobs of a composite PodGroup are placed.
pub(crate) trait JobTurns {
    /// Whether tasks are evicted to make room.
    const EVICTS: bool;

    /// Whether tasks may wait for what is being released.
    fn may_wait(&self) -> bool;

    /// Tries to place tasks of a job; keeps the moves if it has its minimum then, and otherwise makes none.
    fn turn(&mut self, session: &mut Session, job: JobIdx);

    /// Places tasks of a job on these nodes, in what is idle; keeps the moves if it has its minimum then, and otherwise
    /// makes none.
    fn turn_at(&mut self, _session: &mut Session, _job: JobIdx, _places: &[(TaskIdx, NodeIdx)]) {}

    /// What is left to lend, to come back to.
    fn idle(&self) -> Option<ResourceVector>;

    /// Comes back to what was left.
    fn restore(&mut self, idle: Option<ResourceVector>);
}

/// What became of a composite PodGroup, or of one of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// It may start.
    Complete,
    /// It may start once the resources that it waits for are released.
    Waits,
    /// It has too few places.
    Incomplete,
}

/// In which order groups are tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GroupOrder {
    /// By the order of their jobs.
    Own,
    /// Those that need the fewest tasks first.
    SmallestFirst,
    /// Those with a task that takes the largest part of a node first.
    HardestFirst,
    /// One first, the others by the order of their jobs.
    First(Gang),
}

/// At most this many groups are tried first. Guessed.
const FIRSTS_TO_TRY: usize = 8;

/// Gives the jobs below an incomplete composite PodGroup their turn.
pub(crate) fn place_groups<T: JobTurns>(
    session: &mut Session,
    row: CompositeIdx,
    turns: &mut T,
) -> Reached {
    let mut orders = vec![GroupOrder::Own, GroupOrder::SmallestFirst];
    if has_unlike_groups(session, row) {
        orders.push(GroupOrder::HardestFirst);
        // The first comes first in its own order.
        let others = session.gangs().get(row).children.iter().skip(1);
        orders.extend(others.take(FIRSTS_TO_TRY).map(|child| GroupOrder::First(*child)));
    }
    let mut most = 0;
    for order in orders {
        let mut placing = Placing { session, turns, order };
        match placing.place_composite(row) {
            Ok(reached) => return reached,
            Err(n_fitting) => most = most.max(n_fitting),
        }
    }
    if !T::EVICTS {
        if let Some(reached) = place_assigned(session, row, turns) {
            return reached;
        }
        record(session, row, most);
    }
    Reached::Incomplete
}

/// Places the tasks of all groups by an assignment of all of them to nodes, if all groups are needed, no topology
/// domain is, and there is such an assignment.
fn place_assigned<T: JobTurns>(
    session: &mut Session,
    row: CompositeIdx,
    turns: &mut T,
) -> Option<Reached> {
    let mut jobs = session.gangs().jobs(row);
    jobs.retain(|job| session.plugins().tasks_missing(*job) > 0);
    let is_free = |job: &JobIdx| {
        session.cluster().is_schedulable(*job)
            && session.plugins().topology(*job).is_none()
            && !session.cluster().has_roles(*job)
    };
    if !needs_all(session, row) || !has_unlike_groups(session, row) || !jobs.iter().all(is_free) {
        return None;
    }
    let places = places_of_jobs(session, &jobs, &mut SearchBound::default())?;
    let idle = turns.idle();
    for (job, places) in &places {
        turns.turn_at(session, *job, places);
    }
    if jobs.iter().all(|job| session.plugins().job_pipelined(*job)) {
        return Some(Reached::Complete);
    }
    release(session, row);
    turns.restore(idle);
    None
}

/// Whether a composite PodGroup needs all groups below it, and no topology domain.
fn needs_all(session: &Session, row: CompositeIdx) -> bool {
    let composite = session.gangs().get(row);
    composite.members(composite.children.len() as u32).n_spare() == 0
        && session.plugins().level_of_composite(row).is_none()
        && composite.children.iter().all(|child| match child {
            Gang::Job(_) => true,
            Gang::Composite(row) => needs_all(session, *row),
        })
}

/// Whether some of the tasks below differ in where they fit.
fn has_unlike_groups(session: &Session, row: CompositeIdx) -> bool {
    let jobs = session.gangs().jobs(row).into_iter();
    let tasks = jobs.flat_map(|job| session.waiting_tasks(job)).collect();
    are_unlike(session, &tasks)
}

/// Records why the jobs wait that have found places themselves, or were not tried.
fn record(session: &mut Session, row: CompositeIdx, n_fitting: u32) {
    let facts = &session.gangs().get(row).facts;
    let (composite, min) = (facts.key.clone(), facts.min_groups);
    let level = session.plugins().level_of_composite(row);
    let domain = level.map(|level| Name::from(level.level.noun()));
    for job in session.gangs().jobs(row) {
        if session.has_waiting_tasks(job) {
            session.record_turn(job);
            let (composite, domain) = (composite.clone(), domain.clone());
            let failure = NotEnoughGroups { composite, n_fitting, min, domain };
            session.record_failure(job, |_| Failure::NotEnoughGroups(Box::new(failure)));
        }
    }
}

/// Rolls back the places of composite PodGroups that have too few: the last action that could have added some
/// has run.
pub(crate) fn release_incomplete(session: &mut Session) {
    for job in session.jobs_with_kept_moves() {
        // Those below the same composite PodGroup are released together.
        if session.keeps_moves(job)
            && let Some(row) = session.incomplete_above(job)
            && !session.is_pipelined(row)
        {
            release(session, row);
        }
    }
}

/// Rolls back the places that the jobs of a gang hold only in this cycle.
pub(crate) fn release(session: &mut Session, gang: impl Into<Gang>) {
    for job in session.gangs().jobs(gang) {
        if session.keeps_moves(job) {
            session.statement(job).release();
        }
    }
}

struct Placing<'s, 't, T> {
    session: &'s mut Session,
    turns: &'t mut T,
    order: GroupOrder,
}

impl<T: JobTurns> Placing<'_, '_, T> {
    /// Places groups until there are enough: in one topology domain, if the composite PodGroup requires that.
    ///
    /// # Errors
    ///
    /// How many groups had a place at the same time, if these were too few: none is left then.
    fn place_composite(&mut self, row: CompositeIdx) -> Result<Reached, u32> {
        let level = self.session.plugins().level_of_composite(row);
        let Some(level) = level.filter(|level| level.home() == Home::Nowhere) else {
            return self.place_children(row);
        };
        let (level, domains) = (Arc::clone(&level.level), level.domains());
        let placed = self.place_in_domains(row, &level, &domains);
        if placed.is_err() {
            self.session.choose_domain(row, None);
        }
        placed
    }

    /// Places the children in the first domain that has enough room: now, or else once what is being released is.
    fn place_in_domains(
        &mut self,
        row: CompositeIdx,
        level: &Level,
        domains: &[DomainIdx],
    ) -> Result<Reached, u32> {
        let idle = self.turns.idle();
        let n_needed = self.n_missing(Gang::Composite(row));
        let mut most = None;
        let capacities: &[Capacity] = match self.turns.may_wait() {
            // Victims have to leave first.
            true if T::EVICTS => &[Capacity::FutureIdle],
            true => &[Capacity::Idle, Capacity::FutureIdle],
            false => &[Capacity::Idle],
        };
        for capacity in capacities.iter().copied() {
            let tasks_may_wait = capacity == Capacity::FutureIdle;
            let mut tries = DomainBudget::default();
            for Candidate { n_held, domain, .. } in self.candidates(row, level, domains, capacity) {
                if tries.is_used_up(false) || !T::EVICTS && n_held.0 < n_needed {
                    break;
                }
                self.session.choose_domain(row, Some(domain));
                match self.place_children(row) {
                    Ok(reached) if reached == Reached::Complete || tasks_may_wait => {
                        return Ok(reached);
                    }
                    Ok(_) => {
                        release(self.session, row);
                        self.turns.restore(idle.clone());
                    }
                    Err(n_fitting) => most = most.max(Some(n_fitting)),
                }
                tries.count(usize::try_from(n_needed).unwrap_or(usize::MAX / 2));
            }
        }
        if let Some(most) = most {
            return Err(most);
        }
        // To say how many groups fit into the best one.
        let candidates = self.candidates(row, level, domains, Capacity::Idle);
        let Some(best) = candidates.first() else { return Err(0) };
        self.session.choose_domain(row, Some(best.domain));
        self.place_children(row)
    }

    /// Domains in the order in which they are tried.
    fn candidates(
        &mut self,
        row: CompositeIdx,
        level: &Level,
        domains: &[DomainIdx],
        capacity: Capacity,
    ) -> Vec<Candidate> {
        let jobs = self.session.gangs().jobs(row);
        let waiting = jobs.into_iter().flat_map(|job| self.session.waiting_tasks(job)).collect();
        sorted_candidates(self.session, &waiting, level, domains, capacity)
    }

    fn place_children(&mut self, row: CompositeIdx) -> Result<Reached, u32> {
        let idle = self.turns.idle();
        let (mut n_complete, mut n_waiting) = (0, 0);
        for child in self.children(row) {
            if self.are_enough(row, n_complete) {
                break;
            }
            match self.place(child) {
                Reached::Complete => n_complete += 1,
                Reached::Waits => n_waiting += 1,
                Reached::Incomplete => {}
            }
        }
        if self.are_enough(row, n_complete) {
            Ok(Reached::Complete)
        } else if self.are_enough(row, n_complete + n_waiting) {
            Ok(Reached::Waits)
        } else {
            release(self.session, row);
            self.turns.restore(idle);
            Err(n_complete + n_waiting)
        }
    }

    /// Whether a composite PodGroup is complete with this number of complete children.
    fn are_enough(&self, row: CompositeIdx, n_complete: u32) -> bool {
        self.session.gangs().get(row).members(n_complete).are_enough()
    }

    fn place(&mut self, child: Gang) -> Reached {
        match child {
            Gang::Job(job) => self.place_job(job),
            Gang::Composite(row) => self.place_composite(row).unwrap_or(Reached::Incomplete),
        }
    }

    fn place_job(&mut self, job: JobIdx) -> Reached {
        if self.session.plugins().job_ready(job) {
            return Reached::Complete;
        }
        if !self.session.cluster().is_schedulable(job) {
            return Reached::Incomplete;
        }
        self.turns.turn(self.session, job);
        let mut statement = self.session.statement(job);
        if !T::EVICTS {
            // In case its places are taken back.
            record_fitting(&mut statement);
        }
        if statement.job_ready() {
            Reached::Complete
        } else if reaches_minimum(&mut statement) {
            Reached::Waits
        } else {
            Reached::Incomplete
        }
    }

    /// The groups of a composite PodGroup in the order in which they are tried: those that need no place first.
    fn children(&self, row: CompositeIdx) -> Vec<Gang> {
        let mut children = self.session.gangs().get(row).children.clone();
        children.sort_by_cached_key(|child| {
            let n_missing = self.n_missing(*child);
            let rank = match self.order {
                GroupOrder::Own => 0,
                GroupOrder::SmallestFirst => n_missing,
                GroupOrder::HardestFirst => u64::MAX - self.largest_part(*child),
                GroupOrder::First(first) => u64::from(first != *child),
            };
            (n_missing > 0, rank)
        });
        children
    }

    /// What part of the largest node a waiting task of a group takes at most, in thousandths.
    fn largest_part(&self, child: Gang) -> u64 {
        let jobs = self.session.gangs().jobs(child);
        let cluster = self.session.cluster();
        let tasks = jobs.into_iter().flat_map(|job| self.session.waiting_tasks(job));
        let mut classes: Vec<ClassIdx> = tasks.map(|task| cluster.tasks.class[task]).collect();
        classes.sort_unstable();
        classes.dedup();
        let amounts = classes.iter().flat_map(|class| cluster.classes.request[*class].amounts());
        let parts = amounts.into_iter().map(|(dim, amount)| {
            let of_nodes =
                cluster.nodes.facts.ids().map(|node| cluster.nodes.allocatable[node][*dim]);
            i128::from(*amount) * 1_000 / i128::from(of_nodes.max().unwrap_or(0).max(1))
        });
        u64::try_from(parts.max().unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// How many tasks must find a place for a group to be complete, if its smallest ones are.
    fn n_missing(&self, gang: Gang) -> u64 {
        let plugins = self.session.plugins();
        self.session.gangs().n_missing(gang, &|job| {
            if self.session.cluster().is_schedulable(job) {
                u64::from(plugins.tasks_missing(job))
            } else if plugins.job_ready(job) {
                0
            } else {
                u64::from(u32::MAX)
            }
        })
    }
}
