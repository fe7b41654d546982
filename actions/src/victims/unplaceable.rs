//! Waiting tasks that cannot be placed, so that equal tasks are not tried in vain.

use std::collections::VecDeque;

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, TaskIdx},
};
use kube_batch_framework::statement::Statement;

/// What two waiting tasks of a job must have in common for the failure of one to hold for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    class: ClassIdx,
    priority: i32,
    never_preempts: bool,
}

impl Kind {
    fn of(cluster: &Cluster, task: TaskIdx) -> Self {
        Self {
            class: cluster.tasks.class[task],
            priority: cluster.tasks.priority[task],
            never_preempts: cluster.tasks.facts[task].never_preempts,
        }
    }
}

/// The tasks of a job for which no place was found.
#[derive(Debug, Default)]
pub(super) struct Unplaceable {
    kinds: Vec<Kind>,
    /// Those that may find a place once another task of the job has one, in task order.
    retriable: Vec<TaskIdx>,
}

impl Unplaceable {
    /// Records that no place was found for the task.
    pub(super) fn add(&mut self, statement: &mut Statement<'_>, task: TaskIdx) {
        let kind = Kind::of(statement.session().cluster(), task);
        self.kinds.push(kind);
        if statement.session_mut().is_open_to_change(kind.class) {
            self.retriable.push(task);
        }
    }

    /// Whether the task can be skipped, because no place was found for one of its kind.
    pub(super) fn skips(&mut self, statement: &mut Statement<'_>, task: TaskIdx) -> bool {
        let kind = Kind::of(statement.session().cluster(), task);
        let is_known = self.kinds.contains(&kind);
        if is_known && statement.session_mut().is_open_to_change(kind.class) {
            self.retriable.push(task);
        }
        is_known
    }

    /// Whether the job can reach its minimum with the tasks not yet tried and those that are retried.
    pub(super) fn can_reach_minimum(
        &self,
        statement: &Statement<'_>,
        tasks: &VecDeque<TaskIdx>,
    ) -> bool {
        let cluster = statement.session().cluster();
        let missing = statement.session().plugins().tasks_missing(statement.job()) as usize;
        let untried = tasks.iter().filter(|task| !self.kinds.contains(&Kind::of(cluster, **task)));
        untried.count() + self.retriable.len() >= missing
    }

    /// After a task was placed, puts those that may fit now in front of the tasks to be tried.
    // Parity: as in allocate, see docs/parity.md#a2.
    pub(super) fn retry(&mut self, statement: &mut Statement<'_>, tasks: &mut VecDeque<TaskIdx>) {
        self.kinds.retain(|kind| !statement.session_mut().is_open_to_change(kind.class));
        for task in self.retriable.drain(..).rev() {
            tasks.push_front(task);
        }
    }
}
