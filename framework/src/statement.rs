//! Moves that all stay or all go.
//!
//! A statement changes the session at once, so that every question sees its moves, and remembers
//! where each task stood. It ends in one of three ways: [`Statement::commit`] makes decisions of the
//! moves, [`Statement::keep`] lets them stand without deciding anything, and dropping it takes them
//! back, last one first, so that nothing in the session tells it was ever there. Places kept by an
//! earlier statement of the job are its first moves; [`Statement::release`] takes those back too.
//! What is still kept when the cycle ends becomes a promise.
//!
//! Upstream: `framework/statement.go`, used by preempt only; here every action goes through one.

use kube_batch_api::{
    column::{ClassIdx, JobIdx, NodeIdx, TaskIdx},
    decision::{Decision, EvictReason},
    status::{Placement, TaskStatus},
};

use crate::{
    candidates::Choice,
    plugin::Capacity,
    session::{LogPosition, Session},
};

/// One move of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    task: TaskIdx,
    from: Placement,
    intent: Intent,
}

/// What a move means once it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    Allocate,
    Pipeline,
    Evict(EvictReason),
}

/// A point in a statement to come back to.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    n_moves: usize,
    log: LogPosition,
}

/// A move the session's rules do not allow: a bug in an action.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a session may not make a task {to} that is {from}")]
pub struct IllegalMove {
    /// What it is.
    pub from: TaskStatus,
    /// What it was to become.
    pub to: TaskStatus,
}

/// Moves on behalf of one job.
#[must_use = "a dropped statement takes its moves back"]
pub struct Statement<'s> {
    session: &'s mut Session,
    job: JobIdx,
    moves: Vec<Move>,
    /// So many moves were made by an earlier statement, whose places were kept.
    n_inherited: usize,
    start: LogPosition,
}

impl<'s> Statement<'s> {
    pub(crate) fn new(session: &'s mut Session, job: JobIdx, moves: Vec<Move>) -> Self {
        let start = session.log_end();
        Self { session, job, n_inherited: moves.len(), moves, start }
    }

    /// The session with the moves so far.
    pub const fn session(&self) -> &Session {
        self.session
    }

    /// The session, to ask what it remembers the answer of.
    pub const fn session_mut(&mut self) -> &mut Session {
        self.session
    }

    /// The job the statement is for.
    pub const fn job(&self) -> JobIdx {
        self.job
    }

    /// Whether the job's allocated tasks may start.
    pub fn is_ready(&self) -> bool {
        self.session.job_ready(self.job)
    }

    /// Whether the job will be ready once its pipelined tasks have their room.
    pub fn is_pipelined(&self) -> bool {
        self.session.job_pipelined(self.job)
    }

    /// The best node for a task of the class, one where it fits now before one where it must wait.
    pub fn best_node(&mut self, class: ClassIdx) -> Option<Choice> {
        self.session.best_node(class)
    }

    /// Gives a waiting task the room it fits into, or promises it room that is being released.
    ///
    /// # Errors
    ///
    /// [`IllegalMove`] if the task does not wait.
    pub fn place(&mut self, task: TaskIdx, choice: Choice) -> Result<(), IllegalMove> {
        match choice.capacity {
            Capacity::Idle => self.allocate(task, choice.node),
            Capacity::FutureIdle => self.pipeline(task, choice.node),
        }
    }

    /// Gives a waiting task idle room.
    ///
    /// # Errors
    ///
    /// [`IllegalMove`] if the task does not wait.
    pub fn allocate(&mut self, task: TaskIdx, node: NodeIdx) -> Result<(), IllegalMove> {
        let to = Placement { status: TaskStatus::Allocated, node: Some(node) };
        self.make(task, to, Intent::Allocate)
    }

    /// Promises a waiting task room that is being released.
    ///
    /// # Errors
    ///
    /// [`IllegalMove`] if the task does not wait.
    pub fn pipeline(&mut self, task: TaskIdx, node: NodeIdx) -> Result<(), IllegalMove> {
        let to = Placement { status: TaskStatus::Pipelined, node: Some(node) };
        self.make(task, to, Intent::Pipeline)
    }

    /// Takes a running task's room for the statement's job.
    ///
    /// # Errors
    ///
    /// [`IllegalMove`] if the task does not run.
    pub fn evict(&mut self, task: TaskIdx, reason: EvictReason) -> Result<(), IllegalMove> {
        let node = self.session.cluster().tasks.placement[task].node;
        self.make(task, Placement { status: TaskStatus::Releasing, node }, Intent::Evict(reason))
    }

    /// Takes one move back, out of order. The task must not have been moved twice.
    pub fn retract(&mut self, task: TaskIdx) {
        if let Some(at) = self.moves.iter().rposition(|made| made.task == task) {
            let Move { from, .. } = self.moves.remove(at);
            self.session.place(task, from);
        }
    }

    /// Tasks that were promised room in an earlier cycle and still wait for it.
    pub fn promised(&self) -> Vec<TaskIdx> {
        let tasks = self.moves[..self.n_inherited].iter().map(|made| made.task);
        tasks.filter(|task| self.session.is_promised(*task)).collect()
    }

    /// Gives a task that was promised room idle room instead, if it fits somewhere now; says whether
    /// it does. The new place is kept as the old one was.
    // Parity: see docs/parity.md#a3.
    pub fn allocate_promised(&mut self, task: TaskIdx) -> bool {
        let class = self.session.cluster().tasks.class[task];
        let at = self.moves.iter().position(|made| made.task == task);
        let Some(at) = at.filter(|_| self.session.best_node_in(class, Capacity::Idle).is_some())
        else {
            return false;
        };
        let promised = self.session.place(task, self.moves[at].from);
        // Its own place may have been what let it go there.
        let Some(choice) = self.session.best_node_in(class, Capacity::Idle) else {
            self.session.place(task, promised);
            return false;
        };
        let to = Placement { status: TaskStatus::Allocated, node: Some(choice.node) };
        self.session.place(task, to);
        self.moves[at].intent = Intent::Allocate;
        true
    }

    /// A point to come back to.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint { n_moves: self.moves.len(), log: self.session.log_end() }
    }

    /// Takes back every move made since, last one first.
    pub fn rollback_to(&mut self, to: Savepoint) {
        if self.moves.len() <= to.n_moves {
            return;
        }
        for Move { task, from, .. } in self.moves.drain(to.n_moves..).rev() {
            self.session.place(task, from);
        }
        if to.n_moves >= self.n_inherited {
            self.session.take_back_log(to.log);
        }
    }

    /// Number of tasks evicted.
    pub fn n_evicted(&self) -> usize {
        self.moves.iter().filter(|made| matches!(made.intent, Intent::Evict(_))).count()
    }

    /// Makes decisions of the moves, in order. Whoever waits for room, or for the rest of the job,
    /// keeps the place as [`Statement::keep`] has it.
    pub fn commit(mut self) {
        let is_ready = self.is_ready();
        let mut held = Vec::new();
        for made in std::mem::take(&mut self.moves) {
            let (pod, node) = self.session.place_of(made.task);
            let decision = match made.intent {
                Intent::Allocate if is_ready => {
                    let claims = self.session.claim_choices(made.task);
                    Decision::Bind { pod, node, claims }
                }
                Intent::Allocate | Intent::Pipeline => {
                    held.push(made);
                    continue;
                }
                Intent::Evict(reason) => {
                    let by = self.session.cluster().jobs.key[self.job].clone();
                    Decision::Evict { pod, node, reason, by }
                }
            };
            self.session.decisions.push(decision);
        }
        self.hold(held);
    }

    /// Lets the moves stand without deciding anything; the next statement of the job begins with
    /// them.
    pub fn keep(mut self) {
        let moves = std::mem::take(&mut self.moves);
        self.hold(moves);
    }

    /// Takes everything back, places that were held before included.
    pub fn release(mut self) {
        self.rollback_to(Savepoint { n_moves: 0, log: self.start });
    }

    fn hold(&mut self, moves: Vec<Move>) {
        if !moves.is_empty() {
            self.session.held.insert(self.job, moves);
        }
    }

    fn make(&mut self, task: TaskIdx, to: Placement, intent: Intent) -> Result<(), IllegalMove> {
        let from = self.session.cluster().status(task);
        if !from.may_become(to.status) {
            return Err(IllegalMove { from, to: to.status });
        }
        let from = self.session.place(task, to);
        self.moves.push(Move { task, from, intent });
        Ok(())
    }
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        let n_inherited = self.n_inherited.min(self.moves.len());
        self.rollback_to(Savepoint { n_moves: n_inherited, log: self.start });
        let held = std::mem::take(&mut self.moves);
        self.hold(held);
    }
}

impl Move {
    /// The task that was moved.
    pub(crate) const fn task(&self) -> TaskIdx {
        self.task
    }

    /// Whether the move promises room that is being released.
    pub(crate) const fn is_promise(&self) -> bool {
        matches!(self.intent, Intent::Pipeline)
    }
}
