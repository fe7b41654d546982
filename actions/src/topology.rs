//! The topology domain in which the tasks of a job are placed.
//!
//! Levels are tried from the narrowest to the broadest, and last all nodes, unless a level is required. Of the
//! domains of a level, those come first that hold all waiting tasks, then those that hold most; of these the
//! tightest, so that large domains stay whole; then the one with the best node; then the first by name. How
//! many tasks a domain holds is estimated from sums, so that tasks are placed only where they may fit. A job
//! that has tasks in a domain stays there.
// Parity: new, see docs/parity.md#t2 and docs/parity.md#t3.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use kube_batch_framework::{
    failure::Failure,
    plugin::Capacity,
    session::Session,
    statement::{Savepoint, Statement},
    topology::{Home, JobLevel, Level, Scope},
};
use kube_batch_model::{
    column::{ClassIdx, DomainIdx, TaskIdx},
    gang::Sense,
    name::Name,
    reason::FitReport,
    resource::ResourceVector,
    status::TaskStatus,
    why::{BestDomain, NoDomain},
};

use crate::{
    budget::Budget,
    domain_budget::DomainBudget,
    gang::{reaches_minimum, record_fitting, start_sooner},
    self_affinity::place_tasks_in_some_domain,
    unlike_tasks::SearchBound,
};

/// At most this many classes of waiting tasks are looked at where a look at some of them suffices: a turn for one
/// more task must not cost more the more of them wait.
const MAX_CLASSES: usize = 8;

/// Places tasks as [`place_tasks`](crate::gang::place_tasks), near each other if their job asks for that.
pub(crate) fn place_tasks_by_topology(
    tasks: &mut VecDeque<TaskIdx>,
    statement: &mut Statement<'_>,
    budget: &mut Budget<'_>,
) {
    let levels = levels_of(statement);
    if levels.is_empty() {
        place_tasks_in_some_domain(tasks, statement, budget, &mut SearchBound::default());
    } else {
        Placing::new(tasks, statement, budget).run(&levels);
    }
}

/// Starts tasks that were nominated in an earlier cycle as [`start_sooner`] does, but not apart from each other if
/// their job asks for a topology. Returns whether the whole job was placed again so that it can start now.
// Parity: see docs/parity.md#t3.
pub(crate) fn start_sooner_by_topology(
    tasks: &VecDeque<TaskIdx>,
    statement: &mut Statement<'_>,
    budget: &mut Budget<'_>,
) -> bool {
    let nominated = statement.nominated();
    let levels = levels_of(statement);
    if levels.is_empty() || nominated.is_empty() {
        start_sooner(statement, budget);
        return false;
    }
    let placed = statement.session().cluster().members(statement.job(), Sense::Pipelined);
    if placed.n as usize > statement.n_kept() {
        // Its other tasks decide where it is.
        let home = levels.iter().find_map(UsableLevel::home_scope);
        statement.confine(home);
        start_sooner(statement, budget);
        statement.confine(None);
        return false;
    }
    let idle = budget.idle();
    let places = statement.take_back_kept();
    let levels = levels_of(statement);
    // Tasks that could start where they are may move as well.
    let kept: Vec<TaskIdx> = places.iter().map(|(task, _)| *task).collect();
    let mut waiting: VecDeque<TaskIdx> = kept.iter().chain(tasks).copied().collect();
    let starts = !statement.job_ready()
        && Placing::new(&mut waiting, statement, budget).starts_now(&levels, &kept);
    if !starts {
        budget.restore(idle);
        statement.put_back_kept(places);
    }
    starts
}

/// A level that the job may use, and where its tasks were before the turn.
struct UsableLevel {
    level: Arc<Level>,
    /// Whether all tasks must be in one of its domains.
    is_required: bool,
    home: Home,
    /// The domains in which all tasks could be.
    domains: Vec<DomainIdx>,
    /// How many tasks are in that domain.
    n_there: u32,
}

/// The levels that the job may use, the narrowest first; none if it does not ask for any.
fn levels_of(statement: &Statement<'_>) -> Vec<UsableLevel> {
    let Some(topology) = statement.topology() else { return Vec::new() };
    let last = topology.levels.len().saturating_sub(1);
    let usable = |(at, of_job): (usize, &JobLevel)| {
        let home = of_job.home();
        UsableLevel {
            level: Arc::clone(&of_job.level),
            is_required: topology.is_required && at == last,
            home,
            domains: of_job.domains(),
            n_there: match home {
                Home::Domain(domain) => of_job.n_tasks().get(&Some(domain)).copied().unwrap_or(0),
                Home::Nowhere | Home::Scattered => 0,
            },
        }
    };
    topology.levels.iter().enumerate().map(usable).collect()
}

impl UsableLevel {
    /// The domain in which all tasks are.
    fn home_scope(&self) -> Option<Scope> {
        match self.home {
            Home::Domain(domain) => Some(Scope { level: Arc::clone(&self.level), domain }),
            Home::Nowhere | Home::Scattered => None,
        }
    }
}

/// The tasks to be placed, and what was tried.
struct Placing<'a, 's, 'b> {
    tasks: &'a mut VecDeque<TaskIdx>,
    statement: &'a mut Statement<'s>,
    budget: &'a mut Budget<'b>,
    /// The tasks before the first try.
    waiting: VecDeque<TaskIdx>,
    start: Savepoint,
    idle: Option<ResourceVector>,
    /// Whether the job has its minimum and wants one more task.
    one_more_task: bool,
    /// How many tasks have to find a place.
    n_needed: u32,
    /// Of the level that is tried.
    tries: DomainBudget,
    bound: SearchBound,
    /// The try in the required level in which most tasks had a place.
    best: Option<TriedDomain>,
}

/// A domain that holds too few tasks.
struct TriedDomain {
    domain: DomainIdx,
    n_fitting: u32,
    /// Why the next one has no place, if that was recorded.
    failure: Option<Failure>,
}

/// A domain to try; they are ordered as they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    /// How many waiting tasks it holds.
    pub(crate) n_held: Reverse<u64>,
    /// How many places are left in it after all waiting tasks, for the class with the fewest; negative if it
    /// lacks places.
    n_spare: i64,
    pub(crate) domain: DomainIdx,
}

/// Domains of a level by how many waiting tasks they hold, the best first; of equal ones the first by name.
pub(crate) fn sorted_candidates(
    session: &mut Session,
    waiting: &VecDeque<TaskIdx>,
    level: &Level,
    domains: &[DomainIdx],
    capacity: Capacity,
) -> Vec<Candidate> {
    let cluster = session.cluster();
    // Variants of a class fit where it does.
    let mut n_waiting: BTreeMap<ClassIdx, u64> = BTreeMap::new();
    for task in waiting {
        let first = cluster.classes.variant_of[cluster.tasks.class[*task]];
        *n_waiting.entry(first).or_default() += 1;
    }
    let fits: Vec<_> = n_waiting
        .iter()
        .map(|(class, n_tasks)| (*n_tasks, session.search().domain_fits(*class, level, capacity)))
        .collect();
    let candidate = |domain: DomainIdx| Candidate {
        n_held: Reverse(fits.iter().map(|(n_tasks, fits)| fits[domain].min(*n_tasks)).sum()),
        n_spare: fits
            .iter()
            .map(|(n_tasks, fits)| fits[domain].cast_signed() - n_tasks.cast_signed())
            .min()
            .unwrap_or(0),
        domain,
    };
    let mut candidates: Vec<Candidate> = domains.iter().copied().map(candidate).collect();
    candidates.sort_unstable();
    candidates
}

impl<'a, 's, 'b> Placing<'a, 's, 'b> {
    fn new(
        tasks: &'a mut VecDeque<TaskIdx>,
        statement: &'a mut Statement<'s>,
        budget: &'a mut Budget<'b>,
    ) -> Self {
        let n_missing = statement.session().plugins().tasks_missing(statement.job());
        Self {
            waiting: tasks.clone(),
            start: statement.savepoint(),
            idle: budget.idle(),
            one_more_task: statement.job_ready(),
            n_needed: n_missing.max(1),
            tries: DomainBudget::default(),
            bound: SearchBound::default(),
            best: None,
            tasks,
            statement,
            budget,
        }
    }

    fn run(mut self, levels: &[UsableLevel]) {
        let job = self.statement.job();
        let before = self.statement.session_mut().take_failure(job);
        let failure = self.place(levels);
        self.statement.confine(None);
        let session = self.statement.session_mut();
        if let Some(failure) = failure {
            session.replace_failure(job, None);
            session.record_failure(job, |_| failure);
        }
        if let Some(before) = before {
            session.put_back_failure(job, before);
        }
    }

    /// Places the tasks if the job can start with that now; otherwise takes them back.
    fn starts_now(mut self, levels: &[UsableLevel], kept: &[TaskIdx]) -> bool {
        let job = self.statement.job();
        let before = self.statement.session_mut().take_failure(job);
        let is_required = levels.last().is_some_and(|level| level.is_required);
        let is_in_domain = self.place_in_levels(levels, Capacity::Idle);
        if !is_in_domain && !is_required {
            self.place_anywhere();
        }
        // Otherwise the victims of the others would have been evicted in vain.
        let cluster = self.statement.session().cluster();
        let are_placed = !kept.iter().any(|task| cluster.is_waiting(*task));
        let starts = self.statement.job_ready() && are_placed;
        if !starts {
            self.take_back();
        }
        self.statement.confine(None);
        let session = self.statement.session_mut();
        session.replace_failure(job, None);
        if let Some(before) = before {
            session.put_back_failure(job, before);
        }
        starts
    }

    /// Places the tasks. Returns why they have no place if the job requires a domain.
    fn place(&mut self, levels: &[UsableLevel]) -> Option<Failure> {
        let later = match self.budget {
            Budget::All => Some(Capacity::FutureIdle),
            Budget::Lent(_) => None,
        };
        if self.place_in_levels(levels, Capacity::Idle) {
            return None;
        }
        let Some(required) = levels.last().filter(|level| level.is_required) else {
            self.place_anywhere();
            let is_final = self.is_placed(Capacity::Idle) || !self.is_placed(Capacity::FutureIdle);
            if let Some(later) = later.filter(|_| !is_final) {
                // Tasks that have to wait do so in a domain, if there is one.
                self.take_back();
                if !self.place_in_levels(levels, later) {
                    self.place_anywhere();
                }
            }
            return None;
        };
        if later.is_some_and(|later| self.place_in_levels(levels, later)) {
            return None;
        }
        if self.best.is_none()
            && let Some(most) = self.candidates(required, Capacity::FutureIdle).first()
            // To say how many fit there, and why not more.
            && self.try_domain(required, most.domain, later.unwrap_or(Capacity::Idle))
        {
            return None;
        }
        // All were tried.
        self.tasks.clear();
        Some(self.failure_in(required))
    }

    fn place_anywhere(&mut self) {
        self.statement.confine(None);
        place_tasks_in_some_domain(self.tasks, self.statement, self.budget, &mut self.bound);
    }

    /// Places the tasks in a domain of the first level that has one for them. Returns whether there is one.
    fn place_in_levels(&mut self, levels: &[UsableLevel], capacity: Capacity) -> bool {
        levels.iter().any(|level| self.place_in_level(level, capacity))
    }

    fn place_in_level(&mut self, level: &UsableLevel, capacity: Capacity) -> bool {
        if self.one_more_task
            && let Home::Domain(domain) = level.home
        {
            let may_fit = level.is_required || self.fits_any(level, domain, capacity);
            return may_fit && self.try_domain(level, domain, capacity);
        }
        if level.home == Home::Scattered {
            return false;
        }
        self.tries = DomainBudget::default();
        let is_estimate = self.is_any_open_to_change();
        let mut candidates = self.candidates(level, capacity);
        // The action `backfill` may place the others.
        let needed = u64::from(self.n_needed).min(self.waiting.len() as u64);
        let n_enough = candidates.partition_point(|candidate| candidate.n_held.0 >= needed);
        candidates.truncate(n_enough);
        let is_equal =
            |l: &Candidate, r: &Candidate| (l.n_held, l.n_spare) == (r.n_held, r.n_spare);
        for equal in candidates.chunk_by(is_equal) {
            for domain in self.by_score(level, equal, capacity) {
                if self.try_domain(level, domain, capacity) {
                    return true;
                }
                if self.tries.is_used_up(is_estimate) {
                    return false;
                }
            }
        }
        false
    }

    /// Whether a rule about other pods decides where some of the tasks may be, or many of them differ: then the
    /// sums are far from exact, and each try is expensive.
    fn is_any_open_to_change(&mut self) -> bool {
        let classes = self.classes();
        let session = self.statement.session_mut();
        classes.len() == MAX_CLASSES
            || classes.into_iter().any(|class| session.search().is_open_to_change(class))
    }

    /// The first classes of the waiting tasks, in the order of their tasks.
    fn classes(&self) -> Vec<ClassIdx> {
        let cluster = self.statement.session().cluster();
        let mut classes: Vec<ClassIdx> = Vec::new();
        for task in &self.waiting {
            let class = cluster.tasks.class[*task];
            if classes.last() != Some(&class) && !classes.contains(&class) {
                classes.push(class);
                if classes.len() == MAX_CLASSES {
                    break;
                }
            }
        }
        classes
    }

    /// Whether a domain holds one of the first tasks that differ.
    fn fits_any(&mut self, level: &UsableLevel, domain: DomainIdx, capacity: Capacity) -> bool {
        let classes = self.classes();
        let session = self.statement.session_mut();
        classes
            .into_iter()
            .any(|class| session.search().domain_fits(class, &level.level, capacity)[domain] > 0)
    }

    /// The domains that the job may use, the best first; of equal ones the first by name.
    fn candidates(&mut self, level: &UsableLevel, capacity: Capacity) -> Vec<Candidate> {
        let session = self.statement.session_mut();
        sorted_candidates(session, &self.waiting, &level.level, &level.domains, capacity)
    }

    /// The domains of equal candidates, the one with the best node for the first task first.
    fn by_score(
        &mut self,
        level: &UsableLevel,
        equal: &[Candidate],
        capacity: Capacity,
    ) -> Vec<DomainIdx> {
        let domains: Vec<DomainIdx> = equal.iter().map(|candidate| candidate.domain).collect();
        let Some(first) = self.waiting.front().filter(|_| domains.len() > 1) else {
            return domains;
        };
        let session = self.statement.session_mut();
        let class = session.cluster().tasks.class[*first];
        let scores = session.search().domain_scores(class, &level.level, &domains, capacity);
        let mut scored: Vec<_> = scores.into_iter().map(Reverse).zip(domains).collect();
        scored.sort_unstable();
        scored.into_iter().map(|(_, domain)| domain).collect()
    }

    /// Places the tasks in a domain, or takes them back. Returns whether they have their places.
    fn try_domain(&mut self, level: &UsableLevel, domain: DomainIdx, capacity: Capacity) -> bool {
        self.statement.confine(Some(Scope { level: level.level.clone(), domain }));
        let n_fitting =
            place_tasks_in_some_domain(self.tasks, self.statement, self.budget, &mut self.bound);
        if self.is_placed(capacity) {
            if !level.is_required {
                // Those that were skipped may fit elsewhere; those that have a place are dropped later.
                self.tasks.clone_from(&self.waiting);
            }
            return true;
        }
        record_fitting(self.statement);
        self.tries.count(n_fitting);
        let n_fitting = n_fitting as u32;
        if level.is_required && self.best.as_ref().is_none_or(|best| n_fitting > best.n_fitting) {
            let failure = self.statement.session().failure(self.statement.job()).cloned();
            self.best = Some(TriedDomain { domain, n_fitting, failure });
        }
        self.take_back();
        false
    }

    /// Whether enough tasks have a place: now, or once tasks that are being terminated are gone.
    fn is_placed(&mut self, capacity: Capacity) -> bool {
        let moves = self.statement.moves_since(self.start);
        let waits = moves.iter().any(|(_, at)| at.status == TaskStatus::Pipelined);
        if self.one_more_task {
            !moves.is_empty() && (!waits || capacity == Capacity::FutureIdle)
        } else if waits && capacity == Capacity::Idle {
            self.statement.job_ready()
        } else {
            reaches_minimum(self.statement)
        }
    }

    fn take_back(&mut self) {
        self.statement.rollback_to(self.start);
        self.budget.restore(self.idle.clone());
        self.tasks.clone_from(&self.waiting);
        let job = self.statement.job();
        self.statement.session_mut().replace_failure(job, None);
    }

    /// Why no domain of the required level holds the tasks.
    fn failure_in(&mut self, level: &UsableLevel) -> Failure {
        let best = match self.best.take() {
            // That is the reason in the best domain, and not how large it is.
            Some(TriedDomain {
                failure: Some(failure @ (Failure::QueueLimit(_) | Failure::Withheld(_))),
                ..
            }) => return failure,
            Some(TriedDomain { domain, n_fitting, failure }) => Some(BestDomain {
                name: level.level.name(domain).clone(),
                n_there: level.n_there,
                n_fitting,
                report: match failure {
                    Some(Failure::Unfit(report) | Failure::Undecided(report)) => report,
                    None
                    | Some(
                        Failure::NoDomain(_)
                        | Failure::NeverFits(_)
                        | Failure::NotEnoughGroups(_)
                        | Failure::QueueLimit(_)
                        | Failure::Withheld(_)
                        | Failure::Held(_)
                        | Failure::Reserved { .. },
                    ) => FitReport::new(level.level.nodes(domain).len()),
                },
            }),
            None => None,
        };
        Failure::NoDomain(Box::new(NoDomain {
            key: level.level.key().clone(),
            noun: Name::from(level.level.noun()),
            n_tasks: self.n_needed,
            best,
        }))
    }
}
