//! What a cycle records of its turns: see [`crate::memory`].

use std::collections::{BTreeMap, BTreeSet};

use kube_batch_model::{
    column::{Column, JobIdx, QueueIdx},
    name::{JobKey, Name},
};

use crate::{
    cluster_input::ClusterInput, credit::LargeTurns, job_input::Decided, memory::Memory,
    tried::LastTry,
};

/// What earlier runs of the same cycle have taken: the bounds hold for all runs together.
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
    pub(crate) state: Option<ClusterInput>,
    /// The tries of [`Memory::tries`] that may hold: the jobs have the same inputs.
    pub(crate) tried: Column<JobIdx, Option<LastTry>>,
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
    /// Whether each job had a turn after another one had led to something.
    pub(crate) tried_late: Column<JobIdx, bool>,
    /// Jobs whose turn led to something.
    pub(crate) helped: BTreeSet<JobIdx>,
    /// What was decided before the first turn.
    pub(crate) at_start: Decided,
}

impl TurnLog {
    pub(crate) fn new(memory: Memory, n_jobs: usize) -> Self {
        Self {
            earlier: EarlierRuns::default(),
            memory,
            state: None,
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
            tried_late: Column::filled(false, n_jobs),
            helped: BTreeSet::new(),
            at_start: Decided::default(),
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

    /// The same, and the cluster has not changed since for the tries of all jobs.
    pub(crate) fn is_remembered_with_input(&self, job: JobIdx) -> bool {
        self.remembered[job]
            && self.tried[job].as_ref().is_some_and(|last| last.holds.with_cluster_input)
    }

    /// Whether another cycle is to continue a round.
    pub(crate) fn is_cut(&self) -> bool {
        !self.cut.is_empty()
    }

    /// Begins the first action: turns before it, which renew nominations, are part of none.
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

    /// Whether the job gets a turn however large it is: an earlier turn led to something, or other jobs are held for it.
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
