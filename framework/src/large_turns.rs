//! Turns that are larger than all turns in vain of an action may be, because the tasks of the job are of very many
//! classes.
//!
//! Such a turn needs credit of the queue, as a large packet does in deficit round robin. Each cycle that puts off a large
//! turn adds the work that the turns in vain of an action may take, and the job gets its turn once the credit suffices.
//! If several jobs of a queue need large turns, they get them one after the other.
// Parity: new, see docs/parity.md#o5-turns-in-vain.

use std::collections::BTreeSet;

use kube_batch_model::column::{JobIdx, QueueIdx};

use crate::{
    credit::{Credit, Credits},
    session::Session,
};

/// What becomes of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LargeTurn {
    /// It is not large, or the job gets it in any case.
    No,
    /// The credit of the queue suffices.
    Given,
    /// It does not.
    PutOff,
}

impl Session {
    /// Whether the turn of a job in this action is large, and what becomes of it.
    pub(crate) fn large_turn(&mut self, job: JobIdx, queue: QueueIdx) -> LargeTurn {
        let needed = self.work_of_turn(job);
        if needed <= self.turn_log.memory.budget || self.turn_log.has_turn_anyway(job) {
            return LargeTurn::No;
        }
        let place = (self.action(), queue);
        let key = &self.cluster.jobs.key[job];
        let name = &self.cluster.queues.facts[queue].name;
        let credit = self.turn_log.memory.credits.get(&(place.0, name.clone()));
        let suffices = |credit: &Credit| credit.work >= needed && !credit.had_turn.contains(key);
        let turns = &mut self.turn_log.large;
        // An action may give a job several turns, as when it lends resources after the fair pass.
        let is_given = match turns.given.get(&place) {
            Some(other) => *other == job,
            None => credit.is_some_and(suffices),
        };
        if is_given {
            turns.given.insert(place, job);
            return LargeTurn::Given;
        }
        turns.put_off.entry(place).or_default().insert(job);
        LargeTurn::PutOff
    }

    /// Whether a turn of the job is large, so that most cycles put it off.
    pub fn is_turn_large(&self, job: JobIdx) -> bool {
        self.work_of_turn(job) > self.turn_log.memory.budget
    }

    /// An estimate of the work of a turn of the job: each class of its waiting tasks is compared with each node, for two
    /// capacities.
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

    /// The credit of queues after this cycle.
    pub(crate) fn credits(&self) -> Credits {
        let log = &self.turn_log;
        let after = log.large.put_off.iter().map(|(place, jobs)| {
            let (action, queue) = *place;
            let name = (action, self.cluster.queues.facts[queue].name.clone());
            let before = log.memory.credits.get(&name).cloned().unwrap_or_default();
            let given = log.large.given.get(place);
            let work = if given.is_some() { 0 } else { before.work };
            let key = |job: &JobIdx| &self.cluster.jobs.key[*job];
            let mut had_turn = before.had_turn;
            had_turn.extend(given.map(|job| key(job).clone()));
            if jobs.iter().all(|job| had_turn.contains(key(job))) {
                had_turn.clear();
            }
            (name, Credit { work: work.saturating_add(log.memory.budget), had_turn })
        });
        after.collect()
    }
}
