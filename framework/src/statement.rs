//! Moves that all stay or all go.
//!
//! A statement changes the session at once, so that every question sees its moves, and remembers
//! where each task stood. It ends in one of three ways: [`Statement::commit`] makes decisions of the
//! moves, [`Statement::keep`] lets them stand for this cycle without deciding anything, and dropping
//! it takes them back, last one first, so that nothing in the session tells it was ever there.
//! Places kept by an earlier statement of the job are its first moves; [`Statement::release`] takes
//! those back too.
//!
//! Upstream: `framework/statement.go`, used by preempt only; here every action goes through one.

use kube_batch_api::{
    column::{ClassIdx, JobIdx, NodeIdx, TaskIdx},
    decision::{Decision, EvictReason},
    status::{Placement, TaskStatus},
};

use crate::{
    candidates::Choice,
    plugin::View,
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
        match choice.view {
            View::Now => self.allocate(task, choice.node),
            View::Later => self.pipeline(task, choice.node),
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

    /// Makes decisions of the moves, in order. Places that were held before are decided with them
    /// if the job is ready, and stay held if it is not.
    pub fn commit(mut self) {
        let mut moves = std::mem::take(&mut self.moves);
        if !self.is_ready() {
            let own = moves.split_off(self.n_inherited);
            self.hold(std::mem::replace(&mut moves, own));
        }
        for made in moves {
            let decision = decide(self.session, self.job, made);
            self.session.decisions.push(decision);
        }
    }

    /// Lets the moves stand for this cycle without deciding anything; the next statement of the job
    /// begins with them.
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

/// What a move means, by name.
pub(crate) fn decide(session: &Session, job: JobIdx, made: Move) -> Decision {
    let cluster = session.cluster();
    let pod = cluster.pod(made.task);
    let node = cluster.tasks.placement[made.task].node;
    let node = cluster.node_name(node.expect("a task that was moved is on a node")).clone();
    match made.intent {
        Intent::Allocate => Decision::Bind { pod, node },
        Intent::Pipeline => Decision::Nominate { pod, node },
        Intent::Evict(reason) => {
            let by = cluster.jobs.key[job].clone();
            Decision::Evict { pod, node, reason, by }
        }
    }
}

impl Move {
    /// Whether the move promises room that is being released.
    pub(crate) const fn is_promise(&self) -> bool {
        matches!(self.intent, Intent::Pipeline)
    }

    /// Whether the move is one of this task.
    pub(crate) fn is_of(&self, task: TaskIdx) -> bool {
        self.task == task
    }
}
