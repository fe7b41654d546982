//! Who may use what is reserved.

use std::{cell::OnceCell, cmp::Ordering};

use jiff::Timestamp;
use kube_batch_model::{
    cluster::Capacity,
    column::{ClassIdx, JobIdx, NodeIdx, TaskIdx},
    facts::run_time::RunTime,
};

use crate::{
    failure::Failure,
    reservations::{Finds, Reservation, later},
    session::Session,
};

/// How many reserved nodes are looked at to find out whether a job waits because of it. Guessed.
const MAX_LOOKED_AT: usize = 64;

/// How far a cycle has come.
#[derive(PartialEq, Eq)]
struct Progress {
    n_decisions: usize,
    n_kept: usize,
}

impl Session {
    /// Gives a job a turn. Its own reservation does not count then, nor those of jobs that have waited less; if the turn
    /// leads to nothing, it gets another one with those of other jobs that it may use.
    pub fn beside_reservations<T>(
        &mut self,
        job: JobIdx,
        finds: Finds,
        mut turn: impl FnMut(&mut Self) -> T,
    ) -> T {
        if self.reservations.list.is_empty() {
            return turn(self);
        }
        let before = self.progress();
        if let Some(own) = self.reservations.index_of(job) {
            // Those of jobs that have waited less may be on the same nodes, for the time after this job.
            (own..self.reservations.list.len()).for_each(|at| self.set_lifted(at, true));
        }
        let mut answer = turn(self);
        if self.progress() == before {
            if self.lift_usable(job, finds) {
                answer = turn(self);
            } else if finds == Finds::Room {
                self.blame_reservation(job);
            }
        }
        self.put_back_reservations();
        answer
    }

    fn progress(&self) -> Progress {
        let n_kept = self.kept.values().map(Vec::len).sum();
        Progress { n_decisions: self.decisions.len(), n_kept }
    }

    fn set_lifted(&mut self, at: usize, is_lifted: bool) {
        if self.reservations.list[at].is_lifted == is_lifted {
            return;
        }
        self.reservations.list[at].is_lifted = is_lifted;
        let reservation = self.reservations.list[at].clone();
        self.charge_reservation(&reservation, if is_lifted { -1 } else { 1 });
    }

    /// Lifts the reservations that a job may use, if they can help it. Returns whether there are some.
    fn lift_usable(&mut self, job: JobIdx, finds: Finds) -> bool {
        let Some(class) = self.first_class(job) else { return false };
        let older = OnceCell::new();
        let usable: Vec<usize> = (0..self.reservations.list.len())
            .filter(|at| !self.reservations.list[*at].is_lifted)
            .filter(|at| self.may_use(job, &self.reservations.list[*at], &older))
            .collect();
        let helps =
            finds == Finds::Victims || self.node_with_room(class, usable.iter().copied()).is_some();
        if helps {
            usable.iter().for_each(|at| self.set_lifted(*at, true));
        }
        helps && !usable.is_empty()
    }

    /// Keeps everything again that is reserved for jobs without places.
    fn put_back_reservations(&mut self) {
        for at in 0..self.reservations.list.len() {
            let waits = !self.plugins().job_pipelined(self.reservations.list[at].job);
            self.set_lifted(at, !waits);
        }
    }

    /// Whether a job may take the nominated places of another one, as far as that has a reservation.
    pub fn may_take_reserved(&self, job: JobIdx, other: JobIdx) -> bool {
        let reservation = self.reservation_of(other);
        reservation.is_none_or(|reservation| self.may_use(job, reservation, &OnceCell::new()))
    }

    /// Whether a job may use what is reserved for another one. `waits_within_share` is since when it has waited, if its
    /// queue deserves what it needs.
    fn may_use(
        &self,
        job: JobIdx,
        reservation: &Reservation,
        waits_within_share: &OnceCell<Option<Timestamp>>,
    ) -> bool {
        let jobs = &self.cluster.jobs;
        let of_same_queue = jobs.queue[job] == jobs.queue[reservation.job];
        if of_same_queue && self.precedes(job, reservation.job)
            || self.ends_before(job, reservation)
            || !of_same_queue && self.is_owed(job)
        {
            return true;
        }
        let since = || waits_within_share.get_or_init(|| self.waits_within_share(job));
        !of_same_queue && since().is_some_and(|since| since < reservation.since)
    }

    /// Whether the next tasks of a job take only what its queue is guaranteed.
    // Parity: see docs/parity.md#q4.
    fn is_owed(&self, job: JobIdx) -> bool {
        let Some(queue) = self.cluster.jobs.queue[job].filter(|_| !self.guarantees.is_empty())
        else {
            return false;
        };
        let n_tasks = self.plugins().tasks_missing(job).max(1) as usize;
        let tasks: Vec<TaskIdx> = self.waiting_tasks(job).into_iter().take(n_tasks).collect();
        let amounts =
            self.cluster.dimensions.shared().map(|dim| (dim, self.requested(&tasks, dim)));
        self.guarantees.is_owed(&self.cluster, queue, amounts)
    }

    /// Since when a job has waited, if its queue holds no more than it deserves with it.
    fn waits_within_share(&self, job: JobIdx) -> Option<Timestamp> {
        let queue = self.cluster.jobs.queue[job]?;
        let n_tasks = self.plugins().tasks_missing(job).max(1) as usize;
        let tasks: Vec<TaskIdx> = self.waiting_tasks(job).into_iter().take(n_tasks).collect();
        (!self.exceeds_share(queue, &tasks)).then(|| self.waits_since(job))
    }

    /// Whether a job goes before another one of its queue: by priority, then by age.
    fn precedes(&self, job: JobIdx, other: JobIdx) -> bool {
        let priority = &self.cluster.jobs.priority;
        match priority[job].cmp(&priority[other]) {
            Ordering::Greater => true,
            Ordering::Equal => job < other,
            Ordering::Less => false,
        }
    }

    /// Whether all waiting tasks of the job end before the reserved room could be used, by what they say.
    fn ends_before(&self, job: JobIdx, reservation: &Reservation) -> bool {
        let Some(start) = reservation.start else { return false };
        let ends = |task: TaskIdx| {
            let time = self.cluster.tasks.facts[task].run_time.as_ref().and_then(RunTime::duration);
            time.is_some_and(|time| later(self.now, time) <= start)
        };
        let tasks = self.cluster.jobs.tasks[job].iter();
        tasks.filter(|task| self.cluster.is_waiting(*task)).all(ends)
    }

    /// Whether the job may use what is reserved for another one because it ends before. As time passes, it no longer does.
    pub(crate) fn ends_before_reservation(&self, job: JobIdx) -> bool {
        let mut others = self.reservations.list.iter().filter(|reservation| reservation.job != job);
        others.any(|reservation| self.ends_before(job, reservation))
    }

    fn first_class(&self, job: JobIdx) -> Option<ClassIdx> {
        let first = self.waiting_tasks(job).first().copied()?;
        Some(self.cluster.tasks.class[first])
    }

    /// A reservation, and a node of it that has room now for a task of the class. The number of nodes that are looked at is limited.
    fn node_with_room(
        &mut self,
        class: ClassIdx,
        reservations: impl Iterator<Item = usize>,
    ) -> Option<(usize, NodeIdx)> {
        let list = &self.reservations.list;
        let nodes =
            reservations.flat_map(|at| list[at].amounts.keys().map(move |node| (at, *node)));
        let nodes: Vec<(usize, NodeIdx)> = nodes.take(MAX_LOOKED_AT).collect();
        nodes.into_iter().find(|(at, node)| self.has_room_without(class, *node, *at))
    }

    fn has_room_without(&mut self, class: ClassIdx, node: NodeIdx, at: usize) -> bool {
        if !self.search().is_eligible(class, node) {
            return false;
        }
        let nodes = &self.cluster.nodes;
        let reserved = &self.reservations.list[at].amounts[&node];
        let request = &self.cluster.classes.request[class];
        request.unknown().is_empty()
            && request.amounts().iter().all(|(dim, amount)| {
                let future_idle = nodes.future_idle(node, *dim).saturating_add(reserved[*dim]);
                *amount <= nodes.idle[node][*dim].min(future_idle)
            })
    }

    /// Records that a job waits because of a reservation, if a reserved node has room for its first task.
    fn blame_reservation(&mut self, job: JobIdx) {
        if !matches!(self.failure(job), Some(Failure::Unfit(_) | Failure::NoDomain(_))) {
            return;
        }
        let Some(class) = self.first_class(job) else { return };
        let kept =
            (0..self.reservations.list.len()).filter(|at| !self.reservations.list[*at].is_lifted);
        let kept: Vec<usize> = kept.collect();
        if let Some((at, node)) = self.node_with_room(class, kept.into_iter())
            && !self.cluster.nodes.fits(node, &self.cluster.classes.request[class], Capacity::Idle)
        {
            let holder = self.reservations.list[at].job;
            self.replace_failure(job, Some(Failure::Reserved { node, holder }));
        }
    }
}
