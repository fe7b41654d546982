//! How long room is kept for a job while nothing there becomes free.
//!
//! Pods without a run time may never end. A reservation that waits for such pods is given up once nothing has become
//! free for a time, and others may use the room for as long. Then the job gets a reservation again, with twice the
//! patience: at most half of the time the room is idle in vain, and a job whose pods do end starts at last.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube_batch_model::{column::JobIdx, name::JobKey};

use crate::{
    plugin::ReservationTerms,
    reservations::{Patience, later},
    session::Session,
};

impl Session {
    /// Whether a job gets no reservation for now, because one was given up.
    pub(super) fn is_given_up(
        &mut self,
        job: JobIdx,
        since: Timestamp,
        terms: ReservationTerms,
    ) -> bool {
        let key = &self.cluster.jobs.key[job];
        let patience = &mut self.reservations.memory.patience;
        let Some(known) = patience.get(key).copied() else { return false };
        let Some(at) = known.given_up_at else { return false };
        if at < since {
            patience.remove(key);
            return false;
        }
        // As long as it was waited for in vain, before it is waited for longer.
        let before = Patience { n_given_up: known.n_given_up - 1, ..known };
        let end = later(at, before.period(terms));
        if end > self.now {
            // No cycle runs only for that: it would decide nothing.
            return true;
        }
        let again = Patience { least: i64::MAX, since: self.now, given_up_at: None, ..known };
        self.reservations.memory.patience.insert(key.clone(), again);
        false
    }

    /// Whether a reservation for a job is still waited for, if this much has to become free and it is not known when.
    pub(super) fn is_waited_for(
        &mut self,
        job: JobIdx,
        missing: i64,
        terms: ReservationTerms,
    ) -> bool {
        let key = self.cluster.jobs.key[job].clone();
        let first = Patience { least: i64::MAX, since: self.now, n_given_up: 0, given_up_at: None };
        let mut own = self.reservations.memory.patience.get(&key).copied().unwrap_or(first);
        if missing < own.least {
            (own.least, own.since) = (missing, self.now);
        }
        let end = later(own.since, own.period(terms));
        let is_over = end <= self.now;
        if is_over {
            own.given_up_at = Some(self.now);
            own.n_given_up += 1;
        } else if self.others_wait(job) {
            self.choose_again_at(end);
        }
        self.reservations.memory.patience.insert(key, own);
        !is_over
    }

    /// Whether other jobs wait, so that giving up may help one.
    fn others_wait(&self, job: JobIdx) -> bool {
        self.waiting_jobs().any(|other| other != job)
    }

    /// Forgets jobs that do not wait any more.
    pub(super) fn forget_patience(&mut self) {
        if self.reservations.memory.patience.is_empty() {
            return;
        }
        let waits = |job: &JobIdx| self.plugins().tasks_missing(*job) > 0;
        let jobs = self.cluster.jobs.key.ids().filter(waits);
        let waiting: BTreeSet<&JobKey> = jobs.map(|job| &self.cluster.jobs.key[job]).collect();
        self.reservations.memory.patience.retain(|key, _| waiting.contains(key));
    }
}
