//! Which reservations there are in a cycle, and what follows from them: see [`crate::reservations`].
// Parity: new, see docs/parity.md#a12.

mod candidates;
mod patience;
mod places;
mod use_of;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use jiff::Timestamp;
use kube_batch_model::{
    audit::Violation,
    column::{Dim, JobIdx, QueueIdx, TaskIdx},
    facts::run_time::RunTime,
};

use self::places::Steps;
use crate::{
    reservations::{Reservation, ReservationMemory, later},
    session::Session,
};

impl Session {
    /// Chooses the reservations of this cycle.
    pub(crate) fn reserve(&mut self) {
        let Some(terms) = self.policy.settings().reservation_terms else { return };
        self.reservations.terms = Some(terms);
        self.reservations.memory = self.turn_log.memory.reservations.clone();
        self.reservations.protected = self.protected_tasks();
        self.note_what_does_not_wait();
        let candidates = self.reservation_candidates(terms);
        let mut steps = Steps::new(candidates.len());
        for candidate in candidates {
            let found = steps.share(self, |session| session.reservation_for(candidate, terms));
            if let Some(reservation) = found {
                self.charge_reservation(&reservation, 1);
                self.reservations.list.push(reservation);
            }
        }
        self.forget_patience();
    }

    fn protected_tasks(&self) -> Vec<TaskIdx> {
        let tasks = self.cluster.tasks.facts.iter();
        let protected =
            tasks.filter(|(_, facts)| facts.protected_until.is_some() && facts.node.is_some());
        let protected = protected.map(|(task, _)| task);
        protected.filter(|task| self.cluster.status(*task).is_held()).collect()
    }

    /// The reservations of this cycle: those whose jobs have no places yet, or got them in this cycle.
    pub fn reservations(&self) -> &[Reservation] {
        &self.reservations.list
    }

    /// What is reserved for a job.
    pub fn reservation_of(&self, job: JobIdx) -> Option<&Reservation> {
        self.reservations.index_of(job).map(|at| &self.reservations.list[at])
    }

    /// Whether the job has waited for a reservation in vain so far: it has one, and no places.
    pub(crate) fn waits_for_reservation(&self, job: JobIdx) -> bool {
        self.reservation_of(job).is_some() && !self.plugins().job_pipelined(job)
    }

    /// What is reserved for other jobs of a queue, and of those below it, than the one whose turn it is, in one dimension.
    pub(crate) fn reserved_in_queue(&self, queue: QueueIdx, dim: Dim) -> i64 {
        let reserved = self.reservations.list.iter().filter(|reservation| {
            let of = self.cluster.jobs.queue[reservation.job];
            let is_below = |of| self.cluster.queues.tree.is_on_path(queue, of);
            !reservation.is_lifted && of.is_some_and(is_below)
        });
        reserved.map(|reservation| reservation.total[dim]).sum()
    }

    /// After which time another job may get a reservation, or pods on nodes should have ended by what they say: then
    /// another node may be the one that is free first.
    pub(crate) fn next_reservation(&self) -> Option<Duration> {
        let next_end = || {
            let tasks = self.cluster.jobs.tasks.values().flat_map(|tasks| tasks.iter());
            let ends = tasks.filter_map(|task| self.declared_end(task));
            let next = ends.filter(|end| *end > self.now).min()?;
            Some(Duration::try_from(next.duration_since(self.now)).unwrap_or_default())
        };
        let waits = self.reservations.list.iter().any(|own| self.waits_for_reservation(own.job));
        let next_end = if waits { next_end() } else { None };
        self.reservations.next.into_iter().chain(next_end).min()
    }

    /// A hash of what is reserved, and for whom.
    pub(crate) fn hash_of_reservations(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for Reservation { job, since, start, is_above_share, amounts, .. } in
            &self.reservations.list
        {
            (&self.cluster.jobs.key[*job], since, start, is_above_share).hash(&mut hasher);
            for (node, amounts) in &**amounts {
                (self.cluster.node_name(*node), amounts.to_vec()).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// What to remember for the next cycle.
    pub(crate) fn remember_reservations(&mut self) -> ReservationMemory {
        std::mem::take(&mut self.reservations.memory)
    }

    /// Until when a task that starts in this cycle may not be reclaimed: if its job starts from a reservation that
    /// brings the queue above what it deserves.
    pub(crate) fn protection_of(&self, task: TaskIdx) -> Option<Timestamp> {
        let terms = self.reservations.terms?;
        let job = self.cluster.tasks.job[task]?;
        self.reservation_of(job).filter(|own| own.is_above_share)?;
        let queue = self.cluster.jobs.queue[job]?;
        let declared = self.cluster.tasks.facts[task].run_time.as_ref();
        let time = declared.and_then(RunTime::duration);
        let time = time.unwrap_or_else(|| {
            let of_queue = self.cluster.queues.min_runtime(queue);
            terms.protection.max(terms.after).max(of_queue)
        });
        Some(later(self.now, time.min(terms.max_protection)))
    }

    /// Until when a task may not be reclaimed.
    pub(crate) fn protected_until(&self, task: TaskIdx) -> Option<Timestamp> {
        if self.cluster.tasks.facts[task].node.is_none() {
            // It has got its place in this cycle.
            return self.protection_of(task);
        }
        let terms = self.reservations.terms?;
        // Even if a user wrote the annotation, it protects no longer than the configuration allows.
        let longest = later(self.cluster.tasks.start[task], terms.max_protection);
        Some(self.cluster.tasks.facts[task].protected_until?.min(longest))
    }

    /// When the protection of tasks ends.
    pub(crate) fn ends_of_protection(&self) -> impl Iterator<Item = Timestamp> {
        let protected = self.reservations.protected.iter();
        protected.filter_map(|task| self.protected_until(*task))
    }

    /// The ledgers and counts that do not follow from the placements, reservations aside.
    pub(crate) fn audit(&mut self) -> Vec<Violation> {
        debug_assert!(self.has_counted_groups(), "the numbers of complete groups");
        let charged: Vec<Reservation> = self.charged_reservations();
        charged.iter().for_each(|reservation| self.charge_amounts(reservation, -1));
        let violations = self.cluster.audit();
        charged.iter().for_each(|reservation| self.charge_amounts(reservation, 1));
        violations
    }

    /// Ends all reservations: the cluster is as it was.
    pub(crate) fn end_reservations(&mut self) {
        for reservation in self.charged_reservations() {
            self.charge_amounts(&reservation, -1);
        }
        self.reservations.list.clear();
    }

    fn charged_reservations(&self) -> Vec<Reservation> {
        let list = self.reservations.list.iter();
        list.filter(|reservation| !reservation.is_lifted).cloned().collect()
    }

    fn charge_amounts(&mut self, reservation: &Reservation, sign: i64) {
        for (node, amounts) in &*reservation.amounts {
            let pipelined = &mut self.cluster.nodes.pipelined[*node];
            for (sum, amount) in pipelined.iter_mut().zip(amounts.iter()) {
                *sum = sum.wrapping_add(amount.wrapping_mul(sign));
            }
            self.cluster.nodes.amounts_changed(*node);
        }
    }

    /// Charges the amounts of a reservation, so that searches notice.
    fn charge_reservation(&mut self, reservation: &Reservation, sign: i64) {
        self.charge_amounts(reservation, sign);
        self.count_work(reservation.amounts.len() as u64);
        self.log_nodes(reservation.amounts.keys().copied());
    }
}
