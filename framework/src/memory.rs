//! What a scheduler remembers from one cycle to the next, so that jobs which find no place take a bounded
//! part of each cycle.
//!
//! - A job that found no place is not tried again while nothing has changed that could help it. Of other
//!   jobs, only PodGroups, waiting pods and claims that were made for such pods may have changed, but not the
//!   minimum, priority or queue of a job that runs. All queues hold and deserve the same, and this cycle has
//!   decided nothing yet. The report of the job is that of its last try.
//! - Turns in vain, which lead to no decision, may take a part of the work of each action, which the
//!   queues with waiting jobs divide equally. A queue that has used its part gets no more turns in this
//!   action. In the next cycle the jobs that had a turn are left out, until each job of the queue had
//!   one: that is a round.
//!
//! It also remembers which gangs were evicted as a whole, until they run again or are gone, how far PodGroups
//! with `minResources` have come, and what decides since when jobs wait for a reservation.
//!
//! Work is counted in evaluations of a node for a class of tasks, which take about 60 ns, and not in time, so that the
//! same snapshots lead to the same decisions. What takes longer counts as several evaluations, and comparing amounts as
//! a part of one.
// Parity: new, see docs/parity.md#o4 and docs/parity.md#o5.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kube_batch_api::{
    column::{Column, JobIdx, QueueIdx},
    decision::EvictReason,
    name::{JobKey, Name},
};

use crate::{
    headroom::HeadroomMemory,
    plugin::QueueShares,
    reservations::ReservationMemory,
    savings::{LargeTurns, Savings},
    tried::Tried,
};

/// The default of [`Memory::with_budget`]: about 25 ms.
pub const DEFAULT_BUDGET: u64 = 400_000;

/// What is remembered. Begin with a new one when the configuration changes.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(crate) budget: u64,
    /// Whether jobs may be left out because nothing has changed.
    pub(crate) recalls: bool,
    pub(crate) generation: Option<u64>,
    /// The jobs that had a turn in a round that is not complete, by action and queue.
    pub(crate) rounds: BTreeMap<(&'static str, Name), BTreeSet<JobKey>>,
    pub(crate) hopeless: Option<Hopeless>,
    /// The gangs that were evicted as a whole and have not run since: their statuses may not be written yet.
    pub(crate) evicted: BTreeMap<JobKey, (EvictReason, String)>,
    /// The PodGroups that have headroom in their queue, or may get it or had it.
    pub(crate) headroom: HeadroomMemory,
    pub(crate) reservations: ReservationMemory,
    pub(crate) savings: Savings,
}

impl Default for Memory {
    fn default() -> Self {
        Self::with_budget(DEFAULT_BUDGET)
    }
}

/// The jobs that found no place in the last cycle, and in what state of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Hopeless {
    pub(crate) seen: Seen,
    /// In the order of their rows.
    pub(crate) jobs: Vec<Arc<Tried>>,
}

/// All that the turn of a job depends on, besides its own pods and PodGroup.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) generation: u64,
    /// Without what the queues request.
    pub(crate) shares: Vec<Option<QueueShares>>,
    /// A hash of what decides which running tasks may be evicted.
    pub(crate) protection: u64,
    /// When the next task may be evicted that may not be now.
    pub(crate) protected_until: Option<Timestamp>,
    /// A hash of the tasks that decisions of earlier cycles have moved, and of their nodes.
    pub(crate) in_flight: u64,
    /// A hash of what is reserved.
    pub(crate) reserved: u64,
}

impl Memory {
    /// Nothing yet. `budget` is how many evaluations of nodes the turns in vain of an action may take in a
    /// cycle.
    pub const fn with_budget(budget: u64) -> Self {
        Self {
            budget,
            recalls: true,
            generation: None,
            rounds: BTreeMap::new(),
            hopeless: None,
            evicted: BTreeMap::new(),
            headroom: HeadroomMemory::new(),
            reservations: ReservationMemory::new(),
            savings: Savings::new(),
        }
    }

    /// No memory: every job is tried in every cycle.
    pub fn none() -> Self {
        Self { recalls: false, ..Self::with_budget(u64::MAX) }
    }

    /// Says which state of the cluster the next snapshot shows: a number that is a new one whenever
    /// anything has changed but waiting pods, claims that were made for them, and PodGroups. Without it, every
    /// job is tried.
    pub const fn set_generation(&mut self, generation: u64) {
        self.generation = if self.recalls { Some(generation) } else { None };
    }
}

/// What the earlier runs of a cycle that is repeated have taken, so that all of them together may take as much work as
/// one.
#[derive(Debug, Default)]
pub(crate) struct EarlierRuns {
    /// See [`TurnLog::spent`].
    spent: BTreeMap<(&'static str, QueueIdx), u64>,
    had_turn: BTreeMap<(&'static str, QueueIdx), BTreeSet<JobIdx>>,
    /// Jobs that get a turn although their queue has used its part: those whose turn led to something, and those for
    /// which others are held.
    with_turn: BTreeSet<JobIdx>,
    /// What turns took that led to something.
    useful: u64,
    large: LargeTurns,
    /// What each queue has taken to foresee the next cycle.
    pub(crate) foreseen: BTreeMap<QueueIdx, u64>,
}

/// What a cycle records of its turns.
#[derive(Debug)]
pub(crate) struct TurnLog {
    pub(crate) earlier: EarlierRuns,
    pub(crate) memory: Memory,
    /// The state when the session opened; `None` if no generation is known.
    pub(crate) seen: Option<Seen>,
    /// The jobs of [`Memory::hopeless`] that are the same and found the same state.
    pub(crate) tried: Column<JobIdx, Option<Arc<Tried>>>,
    /// The budget of each queue.
    pub(crate) part: u64,
    /// What the turns in vain of each queue have taken in each action.
    spent: BTreeMap<(&'static str, QueueIdx), u64>,
    /// What turns took that led to something.
    useful: u64,
    pub(crate) had_turn: BTreeMap<(&'static str, QueueIdx), BTreeSet<JobIdx>>,
    pub(crate) large: LargeTurns,
    /// Where jobs got no turn because the queue had used its part.
    pub(crate) cut: BTreeSet<(&'static str, QueueIdx)>,
    /// Jobs that got no turn, in some action.
    pub(crate) left_out: BTreeSet<JobIdx>,
    /// Whether the last try of each job still holds.
    pub(crate) remembered: Column<JobIdx, bool>,
    /// Whether each job had a turn.
    pub(crate) tried_again: Column<JobIdx, bool>,
    /// Jobs whose turn led to something.
    pub(crate) helped: BTreeSet<JobIdx>,
    /// Number of decisions before the first turn.
    pub(crate) n_decisions: usize,
}

impl TurnLog {
    pub(crate) fn new(memory: Memory, n_jobs: usize) -> Self {
        Self {
            earlier: EarlierRuns::default(),
            memory,
            seen: None,
            tried: Column::filled(None, n_jobs),
            part: u64::MAX,
            spent: BTreeMap::new(),
            useful: 0,
            had_turn: BTreeMap::new(),
            large: LargeTurns::default(),
            cut: BTreeSet::new(),
            left_out: BTreeSet::new(),
            remembered: Column::filled(false, n_jobs),
            tried_again: Column::filled(false, n_jobs),
            helped: BTreeSet::new(),
            n_decisions: 0,
        }
    }

    /// Whether a job got no turn in some action.
    pub(crate) fn is_left_out(&self, job: JobIdx) -> bool {
        self.left_out.contains(&job)
    }

    /// Whether the report of a job is that of an earlier cycle.
    pub(crate) fn is_remembered(&self, job: JobIdx) -> bool {
        self.remembered[job]
    }

    /// Whether another cycle is to continue a round.
    pub(crate) fn is_cut(&self) -> bool {
        !self.cut.is_empty()
    }

    /// Forgets the turns so far, which are no part of an action.
    pub(crate) fn begin(&mut self) {
        self.had_turn.clear();
        self.helped.clear();
        self.spent.clone_from(&self.earlier.spent);
        self.useful = self.earlier.useful;
        self.large = self.earlier.large.clone();
    }

    /// Whether a job gets no turn because its queue has used its part.
    pub(crate) fn is_spent(&self, action: &'static str, queue: QueueIdx, job: JobIdx) -> bool {
        let spent = self.spent.get(&(action, queue));
        spent.is_some_and(|spent| *spent >= self.part) && !self.earlier.with_turn.contains(&job)
    }

    /// Whether the job gets a turn however large it is: an earlier one led to something, or others are held for the job.
    pub(crate) fn has_turn_anyway(&self, job: JobIdx) -> bool {
        self.helped.contains(&job) || self.earlier.with_turn.contains(&job)
    }

    pub(crate) fn count_in_vain(
        &mut self,
        action: &'static str,
        queue: QueueIdx,
        job: JobIdx,
        work: u64,
    ) {
        *self.spent.entry((action, queue)).or_default() += work;
        self.had_turn.entry((action, queue)).or_default().insert(job);
    }

    pub(crate) fn count_useful(&mut self, job: JobIdx, work: u64) {
        self.useful += work;
        self.helped.insert(job);
    }

    /// What turns took so far that led to something, in all runs of the cycle.
    pub(crate) const fn useful(&self) -> u64 {
        self.useful
    }

    /// The jobs of a queue that had a turn in vain in an action, in any run of the cycle.
    pub(crate) fn in_vain(
        &self,
        action: &'static str,
        queue: QueueIdx,
    ) -> impl Iterator<Item = JobIdx> {
        let of = [&self.earlier.had_turn, &self.had_turn].into_iter();
        of.filter_map(move |jobs| jobs.get(&(action, queue))).flatten().copied()
    }

    /// What the next run of the cycle is to know of this one. In it, others are held for some jobs.
    pub(crate) fn into_earlier(self, held_for: impl Iterator<Item = JobIdx>) -> EarlierRuns {
        let Self { mut earlier, had_turn, spent, useful, helped, large, .. } = self;
        for (place, jobs) in had_turn {
            earlier.had_turn.entry(place).or_default().extend(jobs);
        }
        earlier.with_turn.extend(helped.into_iter().chain(held_for));
        EarlierRuns { spent, useful, large: large.of_earlier_run(), ..earlier }
    }

    pub(crate) fn had_turn_in_round(
        &self,
        action: &'static str,
        queue: &Name,
        job: &JobKey,
    ) -> bool {
        let round = self.memory.rounds.get(&(action, queue.clone()));
        round.is_some_and(|jobs| jobs.contains(job))
    }
}
