//! The order of queues and jobs while their shares change.
//!
//! The next queue or job is always the first one under the current order. Queues and jobs are kept in
//! heaps; those whose own state has changed since the last turn are moved to their new position
//! before the first one is taken. If the order of a plugin depends on more than the two queues or
//! jobs compared ([`crate::plugin::OrderScope::Anything`]), all are compared instead, which is slow.
// Parity: upstream leaves its heaps stale, see docs/parity.md#o1.

mod heap;
mod queues;

use std::cmp::Ordering;

use kube_batch_model::column::{Column, JobIdx, QueueIdx};

use self::{
    heap::{ABSENT, Heap},
    queues::{QueueHeaps, Siblings},
};
use crate::{plugin::OrderScope, report::never_fits, session::Session};

/// The jobs of a queue whose next turn recalls the last try.
#[derive(Clone, Debug, Default)]
struct Recalled {
    jobs: Vec<JobIdx>,
    /// Whether they are in order, the first one at the end of the list.
    is_sorted: bool,
}

impl Recalled {
    /// Gives turns to the jobs that come before this one, or to all.
    fn run_before(&mut self, session: &mut Session, before: Option<JobIdx>) {
        let order = |l: JobIdx, r: JobIdx, session: &Session| session.plugins().job_order(l, r);
        if before.is_some() && !self.is_sorted {
            self.jobs.sort_by(|l, r| order(*r, *l, session));
            self.is_sorted = true;
        }
        while let Some(job) = self.jobs.last()
            && before.is_none_or(|before| order(*job, before, session).is_lt())
        {
            session.recall(*job);
            self.jobs.pop();
        }
    }
}

/// Whether a job that had a turn gets another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTurn {
    /// It goes back into the order.
    Wanted,
    /// That was its last turn in this action.
    None,
}

/// The queues and their jobs in their order as it is now: who gets the next turn.
#[derive(Debug)]
pub struct Turns {
    scope: OrderScope,
    queues: QueueHeaps,
    jobs: Column<QueueIdx, Heap<JobIdx>>,
    job_at: Column<JobIdx, u32>,
    /// Jobs that are in no heap, because a turn would only recall the last try. A turn of another job that
    /// leads to something puts those that come after it into the heaps.
    recalled: Column<QueueIdx, Recalled>,
    /// Whether any job may be recalled.
    recalls: bool,
    /// How much of the session's log has been read.
    seen: usize,
}

impl Turns {
    /// The jobs that `include` selects, and their queues. It selects jobs that wait, or that have nominations.
    pub fn new(session: &Session, include: impl Fn(JobIdx) -> bool) -> Self {
        let cluster = session.cluster();
        let mut job_at = Column::filled(ABSENT, cluster.jobs.key.len());
        let job_cmp = |l, r| session.plugins().job_order(l, r);
        let scope = session.order_scope();
        let is_strict =
            |job: &JobIdx| cluster.jobs.queue[*job].is_some_and(|queue| session.is_strict(queue));
        let is_recalled = |job: &JobIdx| {
            scope == OrderScope::Own && session.would_recall(*job) && !is_strict(job)
        };
        let mut jobs: Column<QueueIdx, Heap<JobIdx>> = Column::new();
        let mut recalled: Column<QueueIdx, Recalled> = Column::new();
        let mut with_jobs = Vec::new();
        let mut included: Column<QueueIdx, Vec<JobIdx>> =
            Column::filled(Vec::new(), cluster.queues.facts.len());
        for job in session.active_jobs().iter().copied().filter(|job| include(*job)) {
            // Jobs of other queues are not scheduled.
            let queue = cluster.jobs.queue[job].filter(|queue| cluster.queues.tree.is_leaf(*queue));
            if let Some(queue) = queue {
                included[queue].push(job);
            }
        }
        for (queue, included) in included.iter() {
            let included = included.iter().copied();
            let (of_recalled, members): (Vec<_>, Vec<_>) = included.partition(is_recalled);
            if !of_recalled.is_empty() || !members.is_empty() {
                with_jobs.push(queue);
            }
            jobs.push(Heap::new(members, &mut job_at, &job_cmp));
            recalled.push(Recalled { jobs: of_recalled, is_sorted: false });
        }
        let n_queues = cluster.queues.facts.len();
        let queues = QueueHeaps::new(&with_jobs, n_queues, &siblings(session, scope));
        let seen = session.moves_logged();
        let recalls = recalled.values().any(|recalled| !recalled.jobs.is_empty());
        Self { scope, queues, jobs, job_at, recalled, recalls, seen }
    }

    /// Gives turns until no job is left, each to the first job of the first queue.
    pub fn run(
        &mut self,
        session: &mut Session,
        turn: impl FnMut(&mut Session, JobIdx) -> NextTurn,
    ) {
        self.run_unless(session, |_, _| false, turn);
    }

    /// Gives turns as [`Turns::run`]. A queue that is overused when it comes first gets no more
    /// turns; returns those queues, in the order in which they came.
    pub fn run_unless_overused(
        &mut self,
        session: &mut Session,
        turn: impl FnMut(&mut Session, JobIdx) -> NextTurn,
    ) -> Vec<QueueIdx> {
        self.run_unless(session, |session, queue| session.plugins().overused(queue), turn)
    }

    /// Gives turns as [`Turns::run`]. A queue that `skips` picks when it comes first gets no more turns; returns those
    /// queues, in the order in which they came.
    pub fn run_unless(
        &mut self,
        session: &mut Session,
        skips: impl Fn(&Session, QueueIdx) -> bool,
        mut turn: impl FnMut(&mut Session, JobIdx) -> NextTurn,
    ) -> Vec<QueueIdx> {
        let mut skipped = Vec::new();
        while let Some(queue) = self.next_queue(session) {
            if skips(session, queue) {
                skipped.push(queue);
            } else if let Some(job) = self.next_job(session, queue) {
                if give_turn(session, job, &mut turn) == NextTurn::Wanted {
                    self.put_back_job(session, queue, job);
                }
                self.put_back_queue(session, queue);
            }
        }
        skipped
    }

    /// Gives turns to the jobs of one queue, the first one first, until none is left.
    pub fn run_queue(
        &mut self,
        session: &mut Session,
        queue: QueueIdx,
        mut turn: impl FnMut(&mut Session, JobIdx) -> NextTurn,
    ) {
        while let Some(job) = self.next_job(session, queue) {
            if give_turn(session, job, &mut turn) == NextTurn::Wanted {
                self.put_back_job(session, queue, job);
            }
        }
    }

    /// Removes the first queue.
    pub fn next_queue(&mut self, session: &mut Session) -> Option<QueueIdx> {
        self.catch_up(session);
        self.queues.pop(&siblings(session, self.scope))
    }

    /// Adds a queue that was removed.
    pub fn put_back_queue(&mut self, session: &Session, queue: QueueIdx) {
        self.queues.push(queue, &siblings(session, self.scope));
    }

    /// Removes the first job of a queue.
    pub fn next_job(&mut self, session: &mut Session, queue: QueueIdx) -> Option<JobIdx> {
        self.catch_up(session);
        let first = self.jobs[queue].members.first().copied();
        self.recalled[queue].run_before(session, first);
        self.jobs[queue]
            .pop(self.scope, &mut self.job_at, &|l, r| session.plugins().job_order(l, r))
    }

    /// Adds a job that was removed.
    pub fn put_back_job(&mut self, session: &Session, queue: QueueIdx, job: JobIdx) {
        self.jobs[queue].push(job, &mut self.job_at, &|l, r| session.plugins().job_order(l, r));
    }

    /// Puts the jobs that would have been recalled into the heaps, once a turn has led to something.
    fn end_recalls(&mut self, session: &Session) {
        if !self.recalls || session.nothing_is_decided() {
            return;
        }
        self.recalls = false;
        for queue in self.jobs.ids() {
            for job in self.recalled[queue].jobs.drain(..) {
                self.jobs[queue]
                    .push(job, &mut self.job_at, &|l, r| session.plugins().job_order(l, r));
            }
        }
    }

    /// Moves the queues and jobs that have changed since the last turn to their new positions.
    fn catch_up(&mut self, session: &mut Session) {
        if self.scope == OrderScope::Anything {
            return;
        }
        let moved = session.jobs_moved_since(self.seen);
        self.seen += moved.len();
        let mut moved = moved.to_vec();
        moved.sort_unstable();
        moved.dedup();
        let session = &*session;
        let queue_of = |job: &JobIdx| session.cluster().jobs.queue[*job];
        let mut queues: Vec<QueueIdx> = moved.iter().filter_map(queue_of).collect();
        queues.sort_unstable();
        queues.dedup();
        moved.retain(|job| self.job_at[*job] != ABSENT);
        moved.sort_by_key(queue_of);
        for of_one_queue in moved.chunk_by(|l, r| queue_of(l) == queue_of(r)) {
            if let Some(queue) = queue_of(&of_one_queue[0]) {
                let job_cmp = |l, r| session.plugins().job_order(l, r);
                self.jobs[queue].rekey(of_one_queue, &mut self.job_at, &job_cmp);
            }
        }
        self.queues.rekey(&queues, &siblings(session, self.scope));
        self.end_recalls(session);
    }
}

fn siblings(
    session: &Session,
    scope: OrderScope,
) -> Siblings<'_, impl Fn(QueueIdx, QueueIdx) -> Ordering> {
    let cmp = |l, r| session.plugins().queue_order(l, r);
    Siblings { tree: &session.cluster().queues.tree, scope, cmp }
}

/// Gives a job a turn, unless it gets none: see [`crate::memory`].
pub fn give_turn(
    session: &mut Session,
    job: JobIdx,
    turn: &mut impl FnMut(&mut Session, JobIdx) -> NextTurn,
) -> NextTurn {
    if session.is_held_up(job) {
        return NextTurn::None;
    }
    let mut next = NextTurn::None;
    if let Some(begun) = session.begin_turn(job) {
        next = turn(session, job);
        session.end_turn(&begun);
    }
    hold_up_others(session, job);
    next
}

/// Has a job that has had a turn hold up those behind it, if its queue is strict and it waits on.
// Parity: see docs/parity.md#q12.
fn hold_up_others(session: &mut Session, job: JobIdx) {
    let places = ["allocate", "reclaim"].contains(&session.action());
    let Some(queue) = session.cluster().jobs.queue[job].filter(|_| places) else { return };
    if !session.is_strict(queue)
        || session.ready(job).are_enough()
        || session.plugins().job_pipelined(job)
        || session.has_nominations(job)
        || never_fits(session, job)
    {
        return;
    }
    let n_started = session.n_started;
    session.strict_order.hold_up(n_started, queue, job);
}
