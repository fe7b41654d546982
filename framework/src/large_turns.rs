//! Large turns: those of jobs with so many classes of tasks that one takes more work than all turns in vain of an action
//! may.
//!
//! A queue saves work up for them. In each cycle in which it puts one off, its savings grow by what the turns in vain of
//! an action may take, and the job has its turn once they suffice. If several such jobs wait in a queue, they have their
//! turns one after the other.
// Parity: new, see docs/parity.md#o5.

use std::collections::BTreeSet;

use kube_batch_api::column::{JobIdx, QueueIdx};

use crate::{
    savings::{Saved, Savings},
    session::Session,
};

/// What becomes of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LargeTurn {
    /// It is not large, or what it takes does not matter.
    No,
    /// Its queue has saved the work.
    Given,
    PutOff,
}

impl Session {
    /// Whether the turn of a job in this action is large, and what becomes of it.
    pub(crate) fn large_turn(&mut self, job: JobIdx, queue: QueueIdx) -> LargeTurn {
        if !self.is_turn_large(job) || self.turn_log.has_turn_anyway(job) {
            return LargeTurn::No;
        }
        let needed = self.work_of_turn(job);
        let place = (self.action(), queue);
        let key = &self.cluster.jobs.key[job];
        let name = &self.cluster.queues.facts[queue].name;
        let saved = self.turn_log.memory.savings.get(&(place.0, name.clone()));
        let suffices = |saved: &Saved| saved.work >= needed && !saved.had_turn.contains(key);
        let turns = &mut self.turn_log.large;
        // An action may give a job several turns, as when it lends resources after the fair pass.
        let is_given = match turns.given.get(&place) {
            Some(other) => *other == job,
            None => saved.is_some_and(suffices),
        };
        if is_given {
            turns.given.insert(place, job);
            return LargeTurn::Given;
        }
        turns.put_off.entry(place).or_default().insert(job);
        LargeTurn::PutOff
    }

    /// Whether a turn of the job is large: it has one in few cycles.
    pub fn is_turn_large(&self, job: JobIdx) -> bool {
        self.work_of_turn(job) > self.turn_log.memory.budget
    }

    /// What a turn of the job takes about: each class of its waiting tasks is compared with each node, as it is and as
    /// it will be.
    fn work_of_turn(&self, job: JobIdx) -> u64 {
        let n_nodes = self.cluster.nodes.facts.len() as u64;
        let work = |n_classes: usize| (n_classes as u64).saturating_mul(2 * n_nodes);
        let tasks = self.cluster.jobs.tasks[job];
        if work(tasks.len()) <= self.turn_log.memory.budget {
            return work(tasks.len());
        }
        let waiting = tasks.iter().filter(|task| self.cluster.is_waiting(*task));
        let classes: BTreeSet<_> = waiting.map(|task| self.cluster.tasks.class[task]).collect();
        work(classes.len())
    }

    /// What queues have saved after this cycle.
    pub(crate) fn savings(&self) -> Savings {
        let log = &self.turn_log;
        let after = log.large.put_off.iter().map(|(place, jobs)| {
            let (action, queue) = *place;
            let name = (action, self.cluster.queues.facts[queue].name.clone());
            let before = log.memory.savings.get(&name).cloned().unwrap_or_default();
            let given = log.large.given.get(place);
            let work = if given.is_some() { 0 } else { before.work };
            let key = |job: &JobIdx| &self.cluster.jobs.key[*job];
            let mut had_turn = before.had_turn;
            had_turn.extend(given.map(|job| key(job).clone()));
            if jobs.iter().all(|job| had_turn.contains(key(job))) {
                had_turn.clear();
            }
            (name, Saved { work: work.saturating_add(log.memory.budget), had_turn })
        });
        after.collect()
    }
}
