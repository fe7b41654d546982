//! The rows of jobs and tasks.

use std::{collections::HashMap, sync::Arc};

use kube_batch_api::{
    cluster::{Jobs, Nodes, Queues, StatusCounts, TaskRange, Tasks},
    column::{JobIdx, NodeIdx, Ordinal, QueueIdx, TaskIdx},
    facts::{metadata::Metadata, pod::TaskFacts},
    name::{JobKey, Name},
    reason::JobProblem,
    resource::Dimensions,
    status::{Placement, TaskStatus},
};

use super::{
    classes::Classifier,
    jobs::{Job, Members},
    options::SnapshotOptions,
};
use crate::{
    assumed::{AfterRejection, Assumed, InFlight},
    store::Store,
};

/// A waiting task whose binding the API server rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectedTask {
    /// The task.
    pub task: TaskIdx,
    /// What its pod does now.
    pub state: AfterRejection,
    /// After its back-off, the node it was to be bound to, if that still exists.
    pub kept: Option<NodeIdx>,
}

/// Jobs and tasks while they get their rows.
pub(super) struct Rows<'a> {
    pub(super) classifier: Classifier<'a>,
    node_rows: HashMap<&'a Name, NodeIdx>,
    assumed: &'a Assumed,
    options: &'a SnapshotOptions,
    pub(super) tasks: Tasks,
    pub(super) jobs: Jobs,
    pub(super) queues: Queues,
    pub(super) rejected: Vec<RejectedTask>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(
        store: &'a Store,
        members: Members<'_>,
        dimensions: &'a Dimensions,
        nodes: &'a Nodes,
        queues: Queues,
        assumed: &'a Assumed,
        options: &'a SnapshotOptions,
    ) -> Self {
        let queue_rows: HashMap<Name, QueueIdx> =
            queues.facts.iter().map(|(row, facts)| (facts.name.clone(), row)).collect();
        let mut rows = Self {
            classifier: Classifier::new(store, &members, dimensions),
            node_rows: nodes.facts.iter().map(|(row, facts)| (&facts.name, row)).collect(),
            assumed,
            options,
            tasks: Tasks::default(),
            jobs: Jobs::default(),
            queues,
            rejected: Vec::new(),
        };
        let no_group = Arc::default();
        for (key, job) in members.jobs {
            let queue = queue_rows.get(&job.queue).copied();
            rows.push_job(key, job, queue);
        }
        for facts in members.jobless {
            rows.push_task(facts, None, &no_group);
        }
        rows
    }

    fn push_job(&mut self, key: JobKey, job: Job<'_>, queue: Option<QueueIdx>) {
        let start = self.tasks.facts.len();
        let row = self.jobs.key.push(key);
        let metadata = job.group.as_ref().map(|group| Arc::clone(&group.metadata));
        let metadata = metadata.unwrap_or_default();
        for facts in job.tasks {
            self.push_task(facts, Some(row), &metadata);
        }
        let problem = job
            .problem
            .or_else(|| queue.is_none().then(|| JobProblem::QueueNotFound(job.queue.clone())));
        let queue = queue.filter(|_| problem.is_none());
        if let Some(queue) = queue {
            self.queues.jobs[queue].push(row);
        }
        self.jobs.group.push(job.group);
        self.jobs.created.push(job.created);
        self.jobs.queue.push(queue);
        self.jobs.min_available.push(job.min_available);
        self.jobs.priority.push(job.priority);
        self.jobs.tasks.push(TaskRange::new(start..self.tasks.facts.len()));
        self.jobs.problem.push(problem);
        self.jobs.warnings.push(job.warnings);
        self.jobs.counts.push(StatusCounts::default());
        self.jobs.incomplete_for.push(None);
    }

    /// Decisions in flight override the facts.
    fn push_task(&mut self, facts: &Arc<TaskFacts>, job: Option<JobIdx>, group: &Arc<Metadata>) {
        let in_flight = self.assumed.get(&facts.uid);
        let (status, node) = match in_flight {
            Some(InFlight::Bind { node, .. }) if facts.status == TaskStatus::Pending => {
                (TaskStatus::Binding, Some(node))
            }
            Some(InFlight::Evict)
                if matches!(facts.status, TaskStatus::Running | TaskStatus::Bound) =>
            {
                (TaskStatus::Releasing, facts.node.as_ref())
            }
            Some(_) | None => (facts.status, facts.node.as_ref()),
        };
        let nominated = match in_flight {
            Some(InFlight::Nominate { node }) => Some(node),
            Some(InFlight::Bind { .. } | InFlight::Evict | InFlight::Rejected { .. }) | None => {
                facts.nominated_node.as_ref()
            }
        };
        let row = |node: &Name| self.node_rows.get(node).copied();
        let waits = status == TaskStatus::Pending;
        if in_flight.is_some() && facts.status == TaskStatus::Pending {
            self.rejected.extend(self.assumed.after_rejection(&facts.uid).map(|state| {
                let kept = match in_flight {
                    Some(InFlight::Rejected { node }) => row(node),
                    _ => None,
                };
                RejectedTask { task: TaskIdx::new(self.tasks.facts.len()), state, kept }
            }));
        }
        let tasks = &mut self.tasks;
        tasks.job.push(job);
        tasks.class.push(self.classifier.class_of(facts, group));
        tasks.priority.push(facts.priority);
        tasks.start.push(facts.started.unwrap_or(facts.created));
        tasks.ours.push(facts.scheduler == self.options.scheduler_name);
        tasks.gated.push(facts.gated && waits);
        tasks.placement.push(Placement { status, node: node.and_then(row) });
        tasks.nominated.push(nominated.filter(|_| waits).and_then(row));
        tasks.facts.push(Arc::clone(facts));
    }
}
