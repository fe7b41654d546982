//! The rows of jobs and tasks.

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use kube_batch_model::{
    cluster::{
        Classes, CountsFor, FormerRow, Jobs, Matchers, Nodes, Queues, StatusCounts, TaskRange,
        Tasks,
    },
    column::{ClassIdx, JobIdx, NodeIdx, Ordinal, QueueIdx, TaskIdx},
    facts::{
        device::DeviceId,
        group::{GroupFacts, RoleFacts},
        metadata::Metadata,
        pod::TaskFacts,
    },
    name::{JobKey, Name},
    problem::JobProblem,
    resource::{Dimensions, Ledger},
    status::{Placement, TaskStatus},
};

use super::{
    classes::{ClassRows, Classifier},
    devices::ClaimUsers,
    hints::Hints,
    jobs::{Job, JobMembers},
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

/// What the row of a task depends on besides its pod and its job.
pub(crate) struct RowMaker<'a> {
    pub(crate) store: &'a Store,
    pub(crate) assumed: &'a Assumed,
    pub(crate) options: &'a SnapshotOptions,
    /// The row of a node.
    pub(crate) node_row: &'a dyn Fn(&Name) -> Option<NodeIdx>,
    /// The row of a queue.
    pub(crate) queue_row: &'a dyn Fn(&Name) -> Option<QueueIdx>,
}

/// The columns of a task that come from its pod and the decision in flight about it.
pub(crate) struct TaskRow {
    pub(crate) counts_for: CountsFor,
    pub(crate) class: ClassIdx,
    pub(crate) role: Option<u16>,
    pub(crate) start: Timestamp,
    pub(crate) ours: bool,
    pub(crate) gated: bool,
    pub(crate) placement: Placement,
    pub(crate) nominated: Option<NodeIdx>,
    pub(crate) nominated_devices: Option<Arc<[DeviceId]>>,
}

impl RowMaker<'_> {
    /// Decisions in flight override the facts.
    pub(crate) fn row(
        &self,
        classes: &mut ClassRows<'_>,
        facts: &TaskFacts,
        group: &OfGroup<'_>,
    ) -> TaskRow {
        let in_flight = self.assumed.get(&facts.uid);
        let mut bound_queue = facts.bound_queue.as_ref();
        let (status, node) = match in_flight {
            Some(InFlight::Bind { node, queue, .. }) if facts.status == TaskStatus::Pending => {
                bound_queue = queue.as_ref();
                (TaskStatus::Binding, Some(node))
            }
            Some(InFlight::Evict)
                if matches!(facts.status, TaskStatus::Running | TaskStatus::Bound) =>
            {
                (TaskStatus::Releasing, facts.node.as_ref())
            }
            Some(_) | None => (facts.status, facts.node.as_ref()),
        };
        let mut nominated_devices = None;
        let nominated = match in_flight {
            Some(InFlight::Nominate { node, devices }) => {
                nominated_devices = (!devices.is_empty()).then(|| Arc::clone(devices));
                Some(node)
            }
            Some(
                InFlight::Bind { .. }
                | InFlight::Evict
                | InFlight::Deallocate { .. }
                | InFlight::Rejected { .. },
            )
            | None => facts.nominated_node.as_ref(),
        };
        let waits = status == TaskStatus::Pending;
        TaskRow {
            counts_for: bound_queue.map_or(CountsFor::QueueOfJob, |name| {
                (self.queue_row)(name).map_or(CountsFor::NoQueue, CountsFor::Queue)
            }),
            class: classes.class_of(self.store, facts, &group.metadata),
            role: group.role(facts),
            start: facts.started.or(facts.bound_at).unwrap_or(facts.created),
            ours: self.options.scheduler_names.contains(&facts.scheduler),
            gated: facts.gated && waits,
            placement: Placement { status, node: node.and_then(self.node_row) },
            nominated: nominated.filter(|_| waits).and_then(self.node_row),
            nominated_devices,
        }
    }

    /// Adds a task.
    pub(crate) fn push(
        &self,
        tasks: &mut Tasks,
        classes: &mut ClassRows<'_>,
        facts: &Arc<TaskFacts>,
        job: Option<JobIdx>,
        group: &OfGroup<'_>,
    ) -> TaskIdx {
        let row = self.row(classes, facts, group);
        let TaskRow { counts_for, class, role, start, ours, gated, .. } = row;
        let TaskRow { placement, nominated, nominated_devices, .. } = row;
        tasks.job.push(job);
        tasks.counts_for.push(counts_for);
        tasks.class.push(class);
        tasks.priority.push(facts.priority);
        tasks.role.push(role);
        tasks.start.push(start);
        tasks.ours.push(ours);
        tasks.gated.push(gated);
        tasks.placement.push(placement);
        tasks.nominated.push(nominated);
        tasks.nominated_devices.push(nominated_devices);
        tasks.facts.push(Arc::clone(facts))
    }

    /// The task, if its pod waits and the API server rejected its binding.
    pub(crate) fn rejected(&self, task: TaskIdx, facts: &TaskFacts) -> Option<RejectedTask> {
        let in_flight = self.assumed.get(&facts.uid)?;
        if facts.status != TaskStatus::Pending {
            return None;
        }
        let state = self.assumed.after_rejection(&facts.uid)?;
        let kept = match in_flight {
            InFlight::Rejected { node } => (self.node_row)(node),
            _ => None,
        };
        Some(RejectedTask { task, state, kept })
    }
}

/// The columns of a job besides its tasks.
pub(crate) struct JobRow {
    pub(crate) queue: Option<QueueIdx>,
    pub(crate) problem: Option<JobProblem>,
}

impl JobRow {
    /// A problem keeps the job from being scheduled. Its tasks that have a node count for its queue all the same.
    // Parity: see docs/parity.md#d6.
    pub(crate) fn of(job: &Job<'_>, queue: Option<QueueIdx>) -> Self {
        let problem = job.problem.clone();
        let problem = problem
            .or_else(|| queue.is_none().then(|| JobProblem::QueueNotFound(job.queue.clone())));
        Self { queue, problem }
    }
}

/// What the row of a task depends on in the PodGroup of its job.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct OfGroup<'a> {
    metadata: Arc<Metadata>,
    roles: &'a [RoleFacts],
}

impl<'a> OfGroup<'a> {
    pub(crate) fn new(group: Option<&'a Arc<GroupFacts>>) -> Self {
        group.map_or_else(Self::default, |group| Self {
            metadata: Arc::clone(&group.metadata),
            roles: &group.roles,
        })
    }

    /// Number of roles.
    pub(crate) const fn n_roles(&self) -> usize {
        self.roles.len()
    }

    /// Whether both groups have the same roles.
    pub(crate) fn has_roles_of(&self, other: &OfGroup<'_>) -> bool {
        self.roles == other.roles
    }

    /// The position of the role of a task.
    pub(crate) fn role(&self, facts: &TaskFacts) -> Option<u16> {
        let name = facts.role.as_ref().filter(|_| !self.roles.is_empty())?;
        let role = self.roles.iter().position(|role| role.name == *name)?;
        u16::try_from(role).ok()
    }
}

/// Whether the tasks of a job are victims only together.
pub(crate) fn leaves_whole(job: &Job<'_>) -> bool {
    let mut above = job.composites.iter().flat_map(|above| above.iter());
    job.group.as_ref().is_some_and(|group| group.leaves_whole) || above.any(|one| one.leaves_whole)
}

/// Whether the PodGroup of a job says what its pods request at least.
pub(crate) fn has_min_resources(job: &Job<'_>) -> bool {
    job.group.as_ref().is_some_and(|group| !group.min_resources.is_empty())
}

/// Adds a job with these tasks.
pub(crate) fn push_job(
    jobs: &mut Jobs,
    key: JobKey,
    job: Job<'_>,
    queue: Option<QueueIdx>,
    tasks: TaskRange,
) -> JobIdx {
    let JobRow { queue, problem } = JobRow::of(&job, queue);
    let n_roles = job.group.as_ref().map_or(0, |group| group.roles.len());
    jobs.leaves_whole.push(leaves_whole(&job));
    jobs.has_min_resources.push(has_min_resources(&job));
    jobs.topology.push(job.topology);
    jobs.composites.push(job.composites);
    jobs.group.push(job.group);
    jobs.created.push(job.created);
    jobs.queue.push(queue);
    jobs.min_available.push(job.min_available);
    let (priority, is_of_pods) = job.priority.into();
    jobs.priority.push(priority);
    jobs.priority_of_pods.push(is_of_pods);
    jobs.tasks.push(tasks);
    jobs.problem.push(problem);
    jobs.warnings.push(job.warnings);
    jobs.batch.push(job.batch);
    jobs.counts.push(StatusCounts::default());
    jobs.role_counts.push(vec![StatusCounts::default(); n_roles]);
    jobs.held.push_zero();
    jobs.waiting.push_zero();
    jobs.incomplete_for.push(None);
    jobs.is_torn.push(false);
    jobs.former.push(FormerRow(None));
    jobs.key.push(key)
}

/// Jobs and tasks with their rows.
pub(crate) struct SnapshotRows {
    pub(crate) classifier: Classifier,
    pub(crate) classes: Classes,
    pub(crate) matchers: Matchers,
    pub(crate) claim_users: ClaimUsers,
    pub(crate) hints: Hints,
    pub(crate) tasks: Tasks,
    pub(crate) jobs: Jobs,
    pub(crate) queues: Queues,
    pub(crate) rejected: Vec<RejectedTask>,
}

impl SnapshotRows {
    pub(crate) fn new(
        members: JobMembers<'_>,
        dimensions: &Dimensions,
        nodes: &Nodes,
        mut queues: Queues,
        (store, assumed, options): (&Store, &Assumed, &SnapshotOptions),
    ) -> Self {
        let queue_rows: HashMap<&Name, QueueIdx> =
            queues.facts.iter().map(|(row, facts)| (&facts.name, row)).collect();
        let node_rows: HashMap<&Name, NodeIdx> =
            nodes.facts.iter().map(|(row, facts)| (&facts.name, row)).collect();
        let node_row = |name: &Name| node_rows.get(name).copied();
        let queue_row = |name: &Name| queue_rows.get(name).copied();
        let maker =
            RowMaker { store, assumed, options, node_row: &node_row, queue_row: &queue_row };
        let (mut classifier, matchers) = Classifier::new(&members, dimensions);
        let claim_users = ClaimUsers::of(store);
        let mut classes = Classes::default();
        let mut class_rows = ClassRows {
            classifier: &mut classifier,
            classes: &mut classes,
            matchers: &matchers,
            claim_users: &claim_users,
        };
        let mut tasks = Tasks::default();
        let no_jobs = Ledger::zero(dimensions.len(), 0);
        let mut jobs = Jobs { held: no_jobs.clone(), waiting: no_jobs, ..Jobs::default() };
        let mut rejected = Vec::new();
        for (key, job) in members.jobs {
            let start = tasks.facts.len();
            let row = JobIdx::new(jobs.key.len());
            let group = OfGroup::new(job.group.as_ref());
            for facts in &job.tasks {
                let task = maker.push(&mut tasks, &mut class_rows, facts, Some(row), &group);
                rejected.extend(maker.rejected(task, facts));
            }
            let range = TaskRange::new(start..tasks.facts.len());
            let queue = queue_rows.get(&job.queue).copied();
            push_job(&mut jobs, key, job, queue, range);
        }
        let no_group = OfGroup::default();
        for facts in members.jobless {
            let task = maker.push(&mut tasks, &mut class_rows, facts, None, &no_group);
            rejected.extend(maker.rejected(task, facts));
        }
        list_jobs(&mut queues, &jobs);
        let hints = members.hints;
        Self { classifier, classes, matchers, claim_users, hints, tasks, jobs, queues, rejected }
    }
}

/// Lists the jobs of each queue.
pub(crate) fn list_jobs(queues: &mut Queues, jobs: &Jobs) {
    queues.jobs.values_mut().for_each(Vec::clear);
    for (job, queue) in jobs.queue.iter() {
        if let Some(queue) = queue {
            queues.jobs[*queue].push(job);
        }
    }
}
