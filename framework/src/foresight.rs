//! What the next cycle would evict of what this one starts: nothing starts only to be evicted.
//!
//! Once all actions have run, the session is moved on to where the next cycle would find it: what was placed runs, and
//! what was evicted is gone and waits again. The actions that evict then say what they would evict. If that is a task
//! that this cycle placed, its job is *held*, and the cycle is run again from the same snapshot.
// Parity: new, see docs/parity.md#p14.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, NodeIdx, QueueIdx, TaskIdx},
    gang::Sense,
    status::{Placement, TaskStatus},
};

use crate::{
    failure::Failure,
    holds::{Hold, Holds},
    memory::Memory,
    moves::Move,
    session::Session,
    turn_log::{EarlierRuns, TurnLog},
};

/// Tasks that an action would evict in the next cycle.
#[derive(Clone, Debug)]
pub struct Foreseen {
    /// The job that would evict them.
    pub by: JobIdx,
    /// All tasks that it would evict.
    pub victims: Vec<TaskIdx>,
}

/// The tasks that wait for a place that they have, then those that start, in order.
fn placed_tasks(session: &Session) -> Vec<TaskIdx> {
    let kept = session.kept.values().flatten().map(Move::task);
    kept.chain(session.bound.iter().copied()).collect()
}

/// The session as the next cycle would find it.
#[derive(Debug)]
pub struct NextCycle {
    /// The first placed task of each job. Only their queues and jobs can lose more than before.
    first_placed: Vec<TaskIdx>,
    /// How much work the simulation may do for the jobs of each queue, see [`Session::work`].
    part: u64,
    /// What it has done for them, in earlier runs of the cycle too.
    spent: BTreeMap<QueueIdx, u64>,
    /// The tasks that this cycle has placed and that are not taken back, in order. Those that were nominated before are
    /// not among them, because pods were evicted for them.
    fresh: Vec<TaskIdx>,
    holds: Holds,
    /// How to restore the session.
    placements: Vec<(TaskIdx, Placement)>,
    starts: Vec<(TaskIdx, Timestamp)>,
    on_nodes: Vec<(NodeIdx, TaskIdx)>,
    held_so_far: Holds,
}

impl NextCycle {
    /// Moves the session on to the next cycle; `None` if nothing was placed or no job waits.
    pub(crate) fn of(session: &mut Session) -> Option<Self> {
        let placed = placed_tasks(session);
        if placed.is_empty() {
            return None;
        }
        // Held jobs wait as well.
        let held_so_far = std::mem::take(&mut session.holds);
        if session.waiting_jobs().next().is_some() {
            return Some(Self::new(session, placed, held_so_far));
        }
        session.holds = held_so_far;
        None
    }

    fn new(session: &mut Session, placed: Vec<TaskIdx>, held_so_far: Holds) -> Self {
        let mut first_placed = placed.clone();
        first_placed.sort_unstable();
        first_placed.dedup_by_key(|task| session.cluster.tasks.job[*task]);
        let mut next = Self {
            first_placed,
            part: session.turn_log.part,
            spent: std::mem::take(&mut session.turn_log.earlier.foreseen),
            fresh: Vec::new(),
            holds: Holds::new(),
            placements: Vec::new(),
            starts: Vec::new(),
            on_nodes: Vec::new(),
            held_so_far,
        };
        let evicted: Vec<TaskIdx> = session.evicted.iter().map(|(task, _)| *task).collect();
        for task in evicted {
            next.let_wait(session, task);
        }
        let now = session.now;
        for task in &placed {
            let node = session.cluster.tasks.placement[*task].node;
            let runs = Placement { status: TaskStatus::Bound, node };
            next.placements.push((*task, session.place(*task, runs)));
            let start = &mut session.cluster.tasks.start[*task];
            next.starts.push((*task, std::mem::replace(start, now)));
            if let Some(node) = node {
                session.cluster.nodes.tasks[node].push(*task);
                next.on_nodes.push((node, *task));
            }
        }
        next.fresh = placed;
        next.fresh.retain(|task| session.cluster.tasks.nominated[*task].is_none());
        next
    }

    /// Whether the queue of the job has used its part of the work.
    pub fn is_spent(&self, session: &Session, job: JobIdx) -> bool {
        let queue = session.cluster().jobs.queue[job];
        queue.and_then(|queue| self.spent.get(&queue)).is_some_and(|spent| *spent >= self.part)
    }

    /// Counts what the session has done for the queue of the job since its work was `work`.
    pub fn count_since(&mut self, session: &Session, job: JobIdx, work: u64) {
        if let Some(queue) = session.cluster().jobs.queue[job] {
            *self.spent.entry(queue).or_default() += session.work() - work;
        }
    }

    /// The first task of each job that was placed: only its queue, or its job, can lose more than before.
    pub fn first_placed(&self) -> &[TaskIdx] {
        &self.first_placed
    }

    fn let_wait(&mut self, session: &mut Session, task: TaskIdx) {
        let waits = Placement { status: TaskStatus::Pending, node: None };
        self.placements.push((task, session.place(task, waits)));
    }

    /// Takes back a placement of this cycle that leads to an eviction: the last one in a queue that reclaim would take
    /// from, otherwise the last one of the tasks that would be preempted. Returns `false` if there is none.
    pub fn take_back(&mut self, session: &mut Session, foreseen: &Foreseen) -> bool {
        let Foreseen { by, victims } = foreseen;
        let cluster = session.cluster();
        let own = cluster.jobs.queue[*by];
        let queues: Vec<_> = victims.iter().map(|task| cluster.queue_of(*task)).collect();
        let is_victim = |task: &&TaskIdx| victims.contains(*task);
        // In reclaim any placement in the queue of a victim counts: it raises what the queue holds. A job that starts from
        // a reservation above the share has waited for that, and the others of its queue make room.
        let is_of_queue = |task: &&TaskIdx| {
            let queue = cluster.queue_of(**task);
            queue != own && queues.contains(&queue) && session.protection_of(**task).is_none()
        };
        let mut last_first = self.fresh.iter().rev();
        let last = last_first.clone().find(is_of_queue).or_else(|| last_first.find(is_victim));
        let Some(last) = last.copied() else { return false };
        self.take_back_task(session, last, *by);
        true
    }

    fn take_back_task(&mut self, session: &mut Session, task: TaskIdx, by: JobIdx) {
        let Some(at) = self.fresh.iter().position(|fresh| *fresh == task) else { return };
        self.fresh.remove(at);
        self.let_wait(session, task);
        let Some(job) = session.cluster.tasks.job[task] else { return };
        let is_of_job = |task: &TaskIdx| session.cluster.tasks.job[*task] == Some(job);
        let others: Vec<TaskIdx> = self.fresh.iter().copied().filter(is_of_job).collect();
        if !session.plugins().job_pipelined(job) {
            // A gang is placed as a whole.
            self.fresh.retain(|task| !others.contains(task));
            for other in others {
                self.let_wait(session, other);
            }
        }
        self.holds.insert(job, Hold { limit: session.n_placed(job), by });
    }

    /// Restores the session. Returns the jobs to hold.
    pub(crate) fn restore(self, session: &mut Session) -> Holds {
        session.holds = self.held_so_far;
        session.turn_log.earlier.foreseen = self.spent;
        for (node, task) in self.on_nodes.into_iter().rev() {
            let last = session.cluster.nodes.tasks[node].pop();
            debug_assert_eq!(last, Some(task), "it was the last one");
        }
        for (task, start) in self.starts {
            session.cluster.tasks.start[task] = start;
        }
        for (task, placement) in self.placements.into_iter().rev() {
            session.place(task, placement);
        }
        self.holds
    }
}

/// The input of a cycle, also when it is repeated.
pub(crate) struct Start {
    pub(crate) cluster: Cluster,
    pub(crate) memory: Memory,
    pub(crate) holds: Holds,
    /// The work done so far, see [`Session::work`].
    pub(crate) work: u64,
    pub(crate) earlier: EarlierRuns,
}

impl Start {
    /// The first run of a cycle.
    pub(crate) fn new(cluster: Cluster, memory: Memory) -> Self {
        let earlier = EarlierRuns::default();
        Self { cluster, memory, holds: Holds::new(), work: 0, earlier }
    }
}

impl Session {
    /// Begins the cycle again, with more jobs held.
    pub(crate) fn into_start(mut self, held: Holds) -> Start {
        let mut holds = std::mem::take(&mut self.holds);
        for (job, hold) in held {
            let known = holds.entry(job).or_insert(hold);
            known.limit = hold.limit.min(known.limit);
        }
        let work = self.work();
        let mut log = std::mem::replace(&mut self.turn_log, TurnLog::new(Memory::none(), 0));
        let mut memory = std::mem::replace(&mut log.memory, Memory::none());
        memory.generation = log.state.as_ref().map(|state| state.generation);
        let earlier = log.into_earlier(holds.values().map(|hold| hold.by));
        Start { cluster: self.into_cluster(), memory, holds, work, earlier }
    }

    /// Records why the held jobs wait.
    pub(crate) fn record_holds(&mut self) {
        for (job, Hold { by, .. }) in self.holds.clone() {
            self.record_failure(job, |_| Failure::Held(by));
        }
    }

    /// How many tasks of the job have a place.
    fn n_placed(&self, job: JobIdx) -> u32 {
        self.cluster.members(job, Sense::Pipelined).n
    }

    /// How many more tasks of the job may be placed in this cycle.
    pub(crate) fn n_placeable(&self, job: JobIdx) -> Option<u32> {
        let hold = self.holds.get(&job)?;
        Some(hold.limit.saturating_sub(self.n_placed(job)))
    }
}
