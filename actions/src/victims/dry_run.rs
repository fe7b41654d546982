//! Dry runs: whether a task would fit on a node without some of the tasks there.

use kube_batch_framework::{plugin::Capacity, session::Session, statement::Statement};
use kube_batch_model::{
    column::{NodeIdx, TaskIdx},
    decision::EvictReason,
    resource::ResourceVector,
};

/// A node without some of its tasks.
pub(super) trait DryRun {
    fn session(&self) -> &Session;

    /// The task to be placed.
    fn task(&self) -> TaskIdx;

    /// The victims so far, in the order in which they were evicted.
    fn victims(&self) -> &[TaskIdx];

    /// Those of the victims that the session still shows as running.
    fn not_yet_moved(&self) -> &[TaskIdx];

    /// Whether the task fits on the node without the victims.
    fn fits(&mut self) -> bool;

    /// Adds a victim at a position.
    fn evict(&mut self, at: usize, victim: TaskIdx);

    /// Removes the victim at a position.
    fn restore(&mut self, at: usize);
}

/// For classes whose place depends on free resources alone: adds up requests and moves no task. For a node that has room
/// as it is, the victims may be on other nodes: then only the capability of the queue decides.
pub(super) struct ResourceDryRun<'a> {
    session: &'a Session,
    task: TaskIdx,
    /// What is idle on the node once the victims and the tasks that are being released are gone.
    future_idle: ResourceVector,
    victims: Vec<TaskIdx>,
}

impl<'a> ResourceDryRun<'a> {
    pub(super) fn new(session: &'a Session, task: TaskIdx, node: NodeIdx) -> Self {
        let cluster = session.cluster();
        let mut future_idle = ResourceVector::zero(cluster.dimensions.len());
        future_idle.add(&cluster.nodes.idle[node], 1);
        future_idle.add(&cluster.nodes.releasing[node], 1);
        future_idle.add(&cluster.nodes.pipelined[node], -1);
        Self { session, task, future_idle, victims: Vec::new() }
    }

    /// Whether the request of the task fits once all these tasks are gone.
    pub(super) fn has_room_without(mut self, tasks: &[TaskIdx]) -> bool {
        for task in tasks {
            self.release(*task, 1);
        }
        self.session.cluster().request(self.task).fits_in(&self.future_idle)
    }

    fn release(&mut self, victim: TaskIdx, sign: i64) {
        for (dim, amount) in self.session.cluster().request(victim).amounts() {
            self.future_idle[*dim] += sign * amount;
        }
    }
}

impl DryRun for ResourceDryRun<'_> {
    fn session(&self) -> &Session {
        self.session
    }

    fn task(&self) -> TaskIdx {
        self.task
    }

    fn victims(&self) -> &[TaskIdx] {
        &self.victims
    }

    fn not_yet_moved(&self) -> &[TaskIdx] {
        &self.victims
    }

    fn fits(&mut self) -> bool {
        self.session.cluster().request(self.task).fits_in(&self.future_idle)
            && self.session.within_limits(self.task, &self.victims, Capacity::FutureIdle).is_ok()
    }

    fn evict(&mut self, at: usize, victim: TaskIdx) {
        self.release(victim, 1);
        self.victims.insert(at, victim);
    }

    fn restore(&mut self, at: usize) {
        let victim = self.victims.remove(at);
        self.release(victim, -1);
    }
}

/// For classes with rules about other tasks: evicts the victims in the session, so that every plugin
/// takes their absence into account. The caller rolls the statement back.
pub(super) struct SessionDryRun<'t, 's> {
    statement: &'t mut Statement<'s>,
    reason: EvictReason,
    task: TaskIdx,
    node: NodeIdx,
    victims: Vec<TaskIdx>,
}

impl<'t, 's> SessionDryRun<'t, 's> {
    pub(super) const fn new(
        statement: &'t mut Statement<'s>,
        reason: EvictReason,
        task: TaskIdx,
        node: NodeIdx,
    ) -> Self {
        Self { statement, reason, task, node, victims: Vec::new() }
    }
}

impl DryRun for SessionDryRun<'_, '_> {
    fn session(&self) -> &Session {
        self.statement.session()
    }

    fn task(&self) -> TaskIdx {
        self.task
    }

    fn victims(&self) -> &[TaskIdx] {
        &self.victims
    }

    fn not_yet_moved(&self) -> &[TaskIdx] {
        &[]
    }

    fn fits(&mut self) -> bool {
        let session = self.statement.session_mut();
        let class = session.cluster().tasks.class[self.task];
        session.within_limits(self.task, &[], Capacity::FutureIdle).is_ok()
            && session.search().fits(class, self.node, Capacity::FutureIdle)
    }

    fn evict(&mut self, at: usize, victim: TaskIdx) {
        self.statement.evict(victim, self.reason).expect("a candidate is running");
        self.victims.insert(at, victim);
    }

    fn restore(&mut self, at: usize) {
        let victim = self.victims.remove(at);
        self.statement.retract(victim);
    }
}
