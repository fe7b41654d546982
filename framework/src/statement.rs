//! Statements: moves of tasks that take effect together or not at all.
//!
//! A statement applies each move to the session at once, so that plugins see it, and records where
//! the task was before. It ends in one of three ways:
//!
//! - [`Statement::commit`] turns the moves into decisions.
//! - [`Statement::keep`] keeps the moves without deciding anything. They become the first moves of
//!   the next statement of the job.
//! - Dropping the statement rolls its moves back, the last one first, and leaves no trace in the
//!   session. Moves kept by an earlier statement stay; [`Statement::release`] rolls those back too.
//!
//! A move that is still kept when the cycle ends becomes a nomination.
//!
//! Upstream: `framework/statement.go`, used by preempt only; here every action goes through one.

use kube_batch_model::{
    column::{JobIdx, NodeIdx, TaskIdx},
    decision::{Decision, EvictReason, EvictionCause},
    name::Name,
    status::{Placement, TaskStatus},
};

use crate::{
    candidates::{Choice, NodeSearch},
    confinement::Confinement,
    moves::{Intent, Move},
    plugin::Capacity,
    session::{EvictedGang, LogPosition, Session},
    topology::{JobTopology, Scope},
};

/// A point in a statement to roll back to.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    n_moves: usize,
    log: LogPosition,
}

/// A transition that the session does not allow: a bug in an action.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a session may not make a task {to} that is {from}")]
pub struct IllegalMove {
    /// The current status of the task.
    pub from: TaskStatus,
    /// The status it was to get.
    pub to: TaskStatus,
}

/// Moves on behalf of one job.
#[must_use = "a dropped statement rolls its moves back"]
pub struct Statement<'s> {
    session: &'s mut Session,
    job: JobIdx,
    moves: Vec<Move>,
    /// Number of moves kept by an earlier statement of the job. They come first.
    n_inherited: usize,
    start: LogPosition,
    /// To which nodes searches were confined before.
    outer: Confinement,
}

impl Session {
    /// Starts a statement for a job. The moves kept for the job become its first moves.
    pub fn statement(&mut self, job: JobIdx) -> Statement<'_> {
        let moves = self.kept.remove(&job).unwrap_or_default();
        Statement::new(self, job, moves)
    }
}

impl<'s> Statement<'s> {
    pub(crate) fn new(session: &'s mut Session, job: JobIdx, moves: Vec<Move>) -> Self {
        let start = session.log_end();
        let own = Confinement::of_job(&session.cluster, job);
        let outer = std::mem::replace(&mut session.confinement, own);
        Self { session, job, n_inherited: moves.len(), moves, start, outer }
    }

    /// The session with the moves so far.
    pub const fn session(&self) -> &Session {
        self.session
    }

    /// The session, for queries whose answers it caches.
    pub const fn session_mut(&mut self) -> &mut Session {
        self.session
    }

    /// The job the statement is for.
    pub const fn job(&self) -> JobIdx {
        self.job
    }

    /// The topology levels that the job asks for, and where its tasks are.
    pub fn topology(&self) -> Option<&JobTopology> {
        self.session.plugins().topology(self.job)
    }

    /// Confines searches to a domain, or only to what the job requires.
    pub fn confine(&mut self, scope: Option<Scope>) {
        self.session.confinement.set_scope(scope);
    }

    /// Whether the job's allocated tasks may start.
    pub fn job_ready(&self) -> bool {
        self.session.plugins().job_ready(self.job)
    }

    /// Whether the job will be ready once the resources of its pipelined tasks are released.
    pub fn job_pipelined(&self) -> bool {
        self.session.plugins().job_pipelined(self.job)
    }

    /// To search nodes, and to ask about classes of tasks.
    pub fn search(&mut self) -> NodeSearch<'_> {
        self.session.search()
    }

    /// Allocates a waiting task if it fits into what is idle, or pipelines it.
    ///
    /// # Errors
    ///
    /// [`IllegalMove`] if the task is not waiting.
    pub fn place(&mut self, task: TaskIdx, choice: Choice) -> Result<(), IllegalMove> {
        match choice.capacity {
            Capacity::Idle => self.allocate(task, choice.node),
            Capacity::FutureIdle => self.pipeline(task, choice.node),
        }
    }

    /// Gives a waiting task idle resources of a node.
    ///
    /// # Errors
    ///
    /// [`IllegalMove`] if the task is not waiting.
    pub fn allocate(&mut self, task: TaskIdx, node: NodeIdx) -> Result<(), IllegalMove> {
        let to = Placement { status: TaskStatus::Allocated, node: Some(node) };
        self.make(task, to, Intent::Allocate)
    }

    /// Nominates a waiting task for a node on which resources are being released.
    ///
    /// # Errors
    ///
    /// [`IllegalMove`] if the task is not waiting.
    pub fn pipeline(&mut self, task: TaskIdx, node: NodeIdx) -> Result<(), IllegalMove> {
        let to = Placement { status: TaskStatus::Pipelined, node: Some(node) };
        self.make(task, to, Intent::Pipeline)
    }

    /// Evicts a running task for the statement's job.
    ///
    /// # Errors
    ///
    /// [`IllegalMove`] if the task is not running.
    pub fn evict(&mut self, task: TaskIdx, reason: EvictReason) -> Result<(), IllegalMove> {
        let node = self.session.cluster().tasks.placement[task].node;
        self.make(task, Placement { status: TaskStatus::Releasing, node }, Intent::Evict(reason))
    }

    /// Rolls back the move of one task, out of order. The task must not have been moved twice.
    pub fn retract(&mut self, task: TaskIdx) {
        if let Some(at) = self.moves.iter().rposition(|made| made.task == task) {
            let Move { from, .. } = self.moves.remove(at);
            self.session.place(task, from);
        }
    }

    /// Tasks that were nominated in an earlier cycle and are still pipelined.
    pub fn nominated(&self) -> Vec<TaskIdx> {
        let tasks = self.moves[..self.n_inherited].iter().map(|made| made.task);
        tasks.filter(|task| self.session.is_nominated(*task)).collect()
    }

    /// Number of tasks that have their places by moves kept before.
    pub const fn n_kept(&self) -> usize {
        self.n_inherited
    }

    /// Rolls back the moves kept before, and returns the places, to be put back. The statement must have no
    /// other moves.
    pub fn take_back_kept(&mut self) -> Vec<(TaskIdx, Placement)> {
        debug_assert_eq!(self.moves.len(), self.n_inherited, "there are no other moves");
        let placement = &self.session.cluster().tasks.placement;
        let places = self.moves.iter().map(|made| (made.task, placement[made.task])).collect();
        for Move { task, from, .. } in self.moves.drain(..).rev() {
            self.session.place(task, from);
        }
        self.n_inherited = 0;
        places
    }

    /// Gives tasks their places again, as moves kept before.
    pub fn put_back_kept(&mut self, places: Vec<(TaskIdx, Placement)>) {
        for (task, at) in places {
            let node = at.node.expect("a kept task has a node");
            let waits = at.status == TaskStatus::Pipelined;
            let moved = if waits { self.pipeline(task, node) } else { self.allocate(task, node) };
            moved.expect("the task waits, as before");
        }
        self.n_inherited = self.moves.len();
    }

    /// Allocates a nominated task if it fits somewhere now, and `is_allowed` of the session in which it
    /// is allocated. Returns whether it is. The new place is kept as the old one was.
    // Parity: see docs/parity.md#a3.
    pub fn allocate_nominated(
        &mut self,
        task: TaskIdx,
        is_allowed: impl FnOnce(&Session) -> bool,
    ) -> bool {
        let class = self.session.cluster().tasks.class[task];
        let at = self.moves.iter().position(|made| made.task == task);
        let may_start = self.session.within_own_limits(task, &[], Capacity::Idle).is_ok()
            && self.session.search().best_node_in(class, Capacity::Idle).is_some();
        let Some(at) = at.filter(|_| may_start) else { return false };
        let nominated = self.session.place(task, self.moves[at].from);
        // What is idle now may be kept free for others, unlike what the task was nominated for. And the task itself may have
        // been what satisfied a rule, such as affinity to its own labels.
        let may_start = self.session.within_limits(task, &[], Capacity::Idle).is_ok();
        let choice = self.session.search().best_node_in(class, Capacity::Idle);
        let Some(choice) = choice.filter(|_| may_start) else {
            self.session.place(task, nominated);
            return false;
        };
        let to = Placement { status: TaskStatus::Allocated, node: Some(choice.node) };
        self.session.place(task, to);
        if !is_allowed(self.session) {
            // In two steps, so that plugins release what they chose for the task there, such as devices.
            self.session.place(task, self.moves[at].from);
            self.session.place(task, nominated);
            return false;
        }
        self.moves[at].intent = Intent::Allocate;
        true
    }

    /// The current point, to roll back to.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint { n_moves: self.moves.len(), log: self.session.log_end() }
    }

    /// Rolls back every move made since, the last one first.
    pub fn rollback_to(&mut self, to: Savepoint) {
        if self.moves.len() <= to.n_moves {
            return;
        }
        for Move { task, from, .. } in self.moves.drain(to.n_moves..).rev() {
            self.session.place(task, from);
        }
        if to.n_moves >= self.n_inherited {
            self.session.roll_back_log(to.log);
        }
    }

    /// Number of tasks evicted.
    pub fn n_evicted(&self) -> usize {
        self.evicted().count()
    }

    /// The tasks evicted, in order.
    pub fn evicted(&self) -> impl Iterator<Item = TaskIdx> + '_ {
        let evictions = self.moves.iter().filter(|made| matches!(made.intent, Intent::Evict(_)));
        evictions.map(|made| made.task)
    }

    /// The number of tasks moved since a point.
    pub const fn n_moves_since(&self, point: Savepoint) -> usize {
        self.moves.len() - point.n_moves
    }

    /// The tasks moved since a point, in order, and where they are now.
    pub fn moves_since(&self, point: Savepoint) -> Vec<(TaskIdx, Placement)> {
        let tasks = self.moves[point.n_moves..].iter().map(|made| made.task);
        tasks.map(|task| (task, self.session.cluster().tasks.placement[task])).collect()
    }

    /// Turns the moves into decisions, in order. The moves of tasks that wait for resources, or for
    /// the rest of the job, are kept as by [`Statement::keep`].
    /// No task starts while a composite PodGroup above the job is not complete. If this completes one, the kept
    /// moves of its other jobs are committed too.
    pub fn commit(mut self) {
        self.decide();
        self.session.commit_groups_of(self.job);
    }

    /// Commits only the moves of this job.
    pub(crate) fn commit_alone(mut self) {
        self.decide();
    }

    fn decide(&mut self) {
        let is_ready = self.session.may_start(self.job);
        let mut kept = Vec::new();
        for made in std::mem::take(&mut self.moves) {
            let (pod, node) = self.session.place_of(made.task);
            let decision = match made.intent {
                Intent::Allocate if is_ready => {
                    let claims = self.session.claim_choices(made.task);
                    let devices = self.session.device_choices(made.task);
                    let queue = self.queue_name();
                    self.session.bound.push(made.task);
                    let protected_until = self.session.protection_of(made.task);
                    let minimum = self.session.cluster().jobs.min_available[self.job];
                    Decision::Bind { pod, node, queue, minimum, claims, devices, protected_until }
                }
                Intent::Allocate | Intent::Pipeline => {
                    kept.push(made);
                    continue;
                }
                Intent::Evict(reason) => {
                    self.session.evicted.push((made.task, reason));
                    self.session.preemptors.insert(self.job);
                    let job = self.session.named_in(&pod.key.namespace, self.job);
                    let job = job.expect("a scheduled job has a queue");
                    Decision::Evict { pod, node, cause: EvictionCause::new(reason, job) }
                }
            };
            self.session.decide(made.task, decision);
        }
        self.keep_moves(kept);
    }

    fn queue_name(&self) -> Name {
        let cluster = self.session.cluster();
        let queue = cluster.jobs.queue[self.job].expect("a scheduled job has a queue");
        cluster.queues.facts[queue].name.clone()
    }

    /// Commits a statement that evicts all tasks of some gangs: their other tasks are not nominated
    /// any more, and their reports say why they were evicted.
    pub fn commit_breaking(mut self, gangs: &[JobIdx], reason: EvictReason) {
        let evicted: Vec<TaskIdx> = self.evicted().collect();
        self.decide();
        let by = self.job;
        for gang in gangs {
            let cluster = self.session.cluster();
            let is_of_gang = |task: &&TaskIdx| cluster.tasks.job[**task] == Some(*gang);
            let n_tasks = evicted.iter().filter(is_of_gang).count();
            self.session.statement(*gang).release();
            self.session.evicted_gangs.insert(*gang, EvictedGang { reason, by, n_tasks });
        }
    }

    /// Keeps the moves without deciding anything. The next statement of the job begins with them.
    pub fn keep(mut self) {
        let moves = std::mem::take(&mut self.moves);
        self.keep_moves(moves);
    }

    /// Rolls back every move, including those that were kept before.
    pub fn release(mut self) {
        self.rollback_to(Savepoint { n_moves: 0, log: self.start });
    }

    fn keep_moves(&mut self, moves: Vec<Move>) {
        if !moves.is_empty() {
            self.session.kept.insert(self.job, moves);
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
        let kept = std::mem::take(&mut self.moves);
        self.keep_moves(kept);
        self.session.confinement = std::mem::take(&mut self.outer);
    }
}
