//! The tasks of a job that wait for a place, and those of them that got none in this turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kube_batch_framework::statement::Statement;
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, CompositeIdx, JobIdx, TaskIdx},
};

/// The tasks that each job has still to try in this action, in task order.
pub(crate) type WaitingByJob = BTreeMap<JobIdx, VecDeque<TaskIdx>>;

/// The composite PodGroups whose jobs had their turn in an action.
pub(crate) type TriedGroups = BTreeSet<CompositeIdx>;

/// What an action has still to try.
#[derive(Default)]
pub(crate) struct Waiting {
    pub(crate) tasks: WaitingByJob,
    pub(crate) tried: TriedGroups,
}

/// What two waiting tasks of a job must have in common for the failure of one to hold for the other.
pub(crate) trait TaskKind: PartialEq {
    fn of(cluster: &Cluster, task: TaskIdx) -> Self;

    fn class(&self) -> ClassIdx;
}

impl TaskKind for ClassIdx {
    fn of(cluster: &Cluster, task: TaskIdx) -> Self {
        cluster.tasks.class[task]
    }

    fn class(&self) -> ClassIdx {
        *self
    }
}

/// The tasks of a job for which no place was found, so that equal tasks are not tried in vain.
#[derive(Debug)]
pub(crate) struct Unplaceable<K> {
    kinds: Vec<K>,
    /// Those that may find a place once another task of the job has one, in task order.
    retriable: Vec<TaskIdx>,
}

impl<K> Default for Unplaceable<K> {
    fn default() -> Self {
        Self { kinds: Vec::new(), retriable: Vec::new() }
    }
}

impl<K: TaskKind> Unplaceable<K> {
    /// Removes the next task to be tried. Tasks that no longer wait are dropped, and those of a kind
    /// for which no place was found are skipped.
    pub(crate) fn next(
        &mut self,
        statement: &mut Statement<'_>,
        tasks: &mut VecDeque<TaskIdx>,
    ) -> Option<TaskIdx> {
        while let Some(task) = tasks.pop_front() {
            let cluster = statement.session().cluster();
            if !cluster.is_waiting(task) {
                continue;
            }
            let kind = K::of(cluster, task);
            if !self.kinds.contains(&kind) {
                return Some(task);
            }
            self.keep_if_retriable(statement, task, &kind);
        }
        None
    }

    /// Records that no place was found for the task.
    pub(crate) fn add(&mut self, statement: &mut Statement<'_>, task: TaskIdx) {
        let kind = K::of(statement.session().cluster(), task);
        self.keep_if_retriable(statement, task, &kind);
        self.kinds.push(kind);
    }

    fn keep_if_retriable(&mut self, statement: &mut Statement<'_>, task: TaskIdx, kind: &K) {
        if statement.search().is_open_to_change(kind.class()) {
            self.retriable.push(task);
        }
    }

    /// Number of tasks that may still find a place: those not yet tried, and those that are retried
    /// once another task of the job has a place.
    pub(crate) fn n_hopeful(
        &self,
        statement: &mut Statement<'_>,
        tasks: &VecDeque<TaskIdx>,
    ) -> usize {
        let is_final = |kind: &&K| !statement.search().is_open_to_change(kind.class());
        let hopeless: Vec<&K> = self.kinds.iter().filter(is_final).collect();
        let cluster = statement.session().cluster();
        let hopeful = tasks.iter().filter(|task| {
            cluster.is_waiting(**task) && !hopeless.contains(&&K::of(cluster, **task))
        });
        hopeful.count() + self.retriable.len()
    }

    /// After a task was placed, puts those that may fit now in front of the tasks to be tried.
    // Parity: see docs/parity.md#a2.
    pub(crate) fn retry(&mut self, statement: &mut Statement<'_>, tasks: &mut VecDeque<TaskIdx>) {
        if self.retriable.is_empty() {
            return;
        }
        self.kinds.retain(|kind| !statement.search().is_open_to_change(kind.class()));
        for task in self.retriable.drain(..).rev() {
            tasks.push_front(task);
        }
    }
}
