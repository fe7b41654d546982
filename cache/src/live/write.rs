//! Writes the rows of blocks that have changed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    iter::repeat_n,
    sync::Arc,
};

use jiff::Timestamp;
use kube_batch_model::{
    cluster::{Cluster, FormerRow, StatusCounts, TaskRange},
    column::{JobIdx, NodeIdx, Ordinal, QueueIdx, TaskIdx},
    facts::{group::GroupFacts, pod::TaskFacts},
    name::{JobKey, Name, ObjectKey},
    status::Placement,
};

use super::{
    blocks::{Block, BlockRows, Dirty},
    splice::{JobTail, TaskTail},
};
use crate::snapshot::{
    Reusable,
    classes::ClassRows,
    hints::controllers,
    jobs::{Job, JobMaker, rank},
    rows::{
        JobRow, OfGroup, RowMaker, TaskRow, has_min_resources, leaves_whole, list_jobs, push_job,
    },
};

/// The rows of jobs, and what they have to do with pods of others.
#[derive(Debug, Default)]
pub(super) struct JobIndex {
    rows: HashMap<JobKey, JobIdx>,
    /// The uids of the controllers of the tasks of each job, if there are any.
    controllers: HashMap<JobKey, Vec<Name>>,
    /// The jobs with tasks of each controller.
    of_controller: HashMap<Name, BTreeSet<JobKey>>,
}

impl JobIndex {
    pub(super) fn of(cluster: &Cluster) -> Self {
        let mut index = Self::default();
        for (row, key) in cluster.jobs.key.iter() {
            index.rows.insert(key.clone(), row);
            let tasks = cluster.jobs.tasks[row].iter().map(|task| &cluster.tasks.facts[task]);
            index.set_tasks(key, &tasks.collect::<Vec<_>>());
        }
        index
    }

    pub(super) fn row(&self, key: &JobKey) -> Option<JobIdx> {
        self.rows.get(key).copied()
    }

    /// The jobs with pods of these controllers.
    pub(super) fn with_controllers(&self, uids: &BTreeSet<Name>) -> impl Iterator<Item = &JobKey> {
        uids.iter().filter_map(|uid| self.of_controller.get(uid)).flatten()
    }

    fn set_tasks(&mut self, key: &JobKey, tasks: &[&Arc<TaskFacts>]) {
        let uids: Vec<Name> = controllers(tasks).into_iter().cloned().collect();
        if self.controllers.get(key).is_some_and(|known| *known == uids) {
            return;
        }
        self.forget_tasks(key);
        for uid in &uids {
            self.of_controller.entry(uid.clone()).or_default().insert(key.clone());
        }
        if !uids.is_empty() {
            self.controllers.insert(key.clone(), uids);
        }
    }

    fn forget_tasks(&mut self, key: &JobKey) {
        for uid in self.controllers.remove(key).into_iter().flatten() {
            let Some(jobs) = self.of_controller.get_mut(&uid) else { continue };
            jobs.remove(key);
            if jobs.is_empty() {
                self.of_controller.remove(&uid);
            }
        }
    }

    fn remove(&mut self, key: &JobKey) {
        self.rows.remove(key);
        self.forget_tasks(key);
    }
}

/// Writes rows.
pub(super) struct Writer<'a> {
    /// Without the facts of nodes.
    pub(super) cluster: &'a mut Cluster,
    pub(super) reusable: &'a mut Reusable,
    pub(super) jobs: &'a mut JobIndex,
    pub(super) maker: &'a RowMaker<'a>,
    pub(super) job_maker: JobMaker<'a>,
}

/// A job with rows that are new or have to move, and its pods.
struct Moved {
    created: Timestamp,
    key: JobKey,
    pods: Vec<Arc<TaskFacts>>,
}

impl Moved {
    fn rank(&self) -> (Timestamp, &ObjectKey, &JobKey) {
        rank(self.created, &self.key)
    }
}

/// What to do with rows, from the first that moves on.
#[derive(Default)]
struct Moves {
    /// Jobs that lose the rows they have had.
    gone: HashSet<JobIdx>,
    new: Vec<Moved>,
    /// The pods without a job, if some of them are new or gone.
    jobless: Option<Vec<Arc<TaskFacts>>>,
}

/// The rows that were split off.
struct Old {
    jobs: JobTail,
    tasks: TaskTail,
}

/// The rows of tasks.
#[derive(Default)]
struct TaskRows {
    /// The new row of each old task, if it stays.
    of_old: Vec<Option<TaskIdx>>,
    /// Those of new tasks.
    added: Vec<TaskRange>,
}

impl<'a> Writer<'a> {
    /// Writes what has changed in some blocks.
    pub(super) fn write(mut self, dirty: BTreeMap<Block, Dirty>) {
        let mut moves = Moves::default();
        for (block, dirty) in dirty {
            match block {
                Some(key) => self.write_job(key, &dirty, &mut moves),
                None => self.write_jobless(&dirty, &mut moves),
            }
        }
        if !(moves.gone.is_empty() && moves.new.is_empty() && moves.jobless.is_none()) {
            self.move_rows(moves);
        }
        list_jobs(&mut self.cluster.queues, &self.cluster.jobs);
    }

    fn write_jobless(&mut self, dirty: &Dirty, moves: &mut Moves) {
        let rows = BlockRows::jobless(self.cluster);
        self.write_tasks(&rows, dirty, &OfGroup::default());
        if dirty.moves_rows() {
            moves.jobless = Some(dirty.pods(self.cluster, &rows));
        }
    }

    fn write_job(&mut self, key: JobKey, dirty: &Dirty, moves: &mut Moves) {
        let row = self.jobs.row(&key);
        let group = self.group(&key);
        let rows = BlockRows::of_job(self.cluster, row);
        if let Some(row) = row {
            self.write_roles(row, &OfGroup::new(group));
        }
        self.write_tasks(&rows, dirty, &OfGroup::new(group));
        let pods = dirty.pods(self.cluster, &rows);
        let tasks: Vec<&Arc<TaskFacts>> = pods.iter().collect();
        self.jobs.set_tasks(&key, &tasks);
        let exists = group.is_some() || !tasks.is_empty();
        let job = self.job_maker.job(&key, group, tasks, &self.reusable.hints);
        let created = job.created;
        match row {
            Some(row)
                if exists && !dirty.moves_rows() && self.cluster.jobs.created[row] == created =>
            {
                self.write_job_row(row, job);
            }
            _ => {
                moves.gone.extend(row);
                if exists {
                    moves.new.push(Moved { created, key, pods });
                } else {
                    self.jobs.remove(&key);
                }
            }
        }
    }

    fn group(&self, key: &JobKey) -> Option<&'a Arc<GroupFacts>> {
        match key {
            JobKey::Group(join, group) => self.maker.store.group(*join, group),
            JobKey::Shadow { .. } | JobKey::Pod { .. } => None,
        }
    }

    /// Counts the tasks of a job by the roles that its PodGroup has now.
    fn write_roles(&mut self, row: JobIdx, group: &OfGroup<'_>) {
        let before = self.cluster.jobs.group[row].clone();
        if group.has_roles_of(&OfGroup::new(before.as_ref())) {
            return;
        }
        let tasks = self.cluster.jobs.tasks[row];
        tasks.iter().for_each(|task| self.cluster.unbook(task));
        self.cluster.jobs.role_counts[row] = vec![StatusCounts::default(); group.n_roles()];
        for task in tasks.iter() {
            let facts = &self.cluster.tasks.facts[task];
            self.cluster.tasks.role[task] = group.role(facts);
            self.cluster.book(task);
        }
    }

    fn write_job_row(&mut self, row: JobIdx, job: Job<'_>) {
        let JobRow { queue, problem } = JobRow::of(&job, (self.maker.queue_row)(&job.queue));
        self.set_queue(row, queue);
        let jobs = &mut self.cluster.jobs;
        jobs.former[row] = FormerRow(None);
        jobs.leaves_whole[row] = leaves_whole(&job);
        jobs.has_min_resources[row] = has_min_resources(&job);
        jobs.topology[row] = job.topology;
        jobs.composites[row] = job.composites;
        jobs.group[row] = job.group;
        jobs.min_available[row] = job.min_available;
        (jobs.priority[row], jobs.priority_of_pods[row]) = job.priority.into();
        jobs.problem[row] = problem;
        jobs.warnings[row] = job.warnings;
        jobs.batch[row] = job.batch;
    }

    /// Sets the queue of a job. Its tasks count for it, unless they were bound from another one.
    fn set_queue(&mut self, row: JobIdx, queue: Option<QueueIdx>) {
        if self.cluster.jobs.queue[row] == queue {
            return;
        }
        let tasks = self.cluster.jobs.tasks[row];
        tasks.iter().for_each(|task| self.cluster.unbook(task));
        self.cluster.jobs.queue[row] = queue;
        tasks.iter().for_each(|task| self.cluster.book(task));
    }

    /// Writes the tasks of a block that have changed and keep their rows.
    fn write_tasks(&mut self, rows: &BlockRows, dirty: &Dirty, group: &OfGroup<'_>) {
        for facts in &dirty.changed {
            let task = rows.row_of(self.cluster, facts);
            self.write_task(task, facts, group);
        }
    }

    fn write_task(&mut self, task: TaskIdx, facts: &Arc<TaskFacts>, group: &OfGroup<'_>) {
        self.cluster.unbook(task);
        let mut class_rows = ClassRows {
            classifier: &mut self.reusable.classifier,
            claim_users: &self.reusable.claim_users,
            classes: &mut self.cluster.classes,
            matchers: &self.cluster.matchers,
        };
        let row = self.maker.row(&mut class_rows, facts, group);
        let TaskRow { counts_for, class, role, start, ours, gated, .. } = row;
        let TaskRow { placement, nominated, nominated_devices, .. } = row;
        let tasks = &mut self.cluster.tasks;
        let before = std::mem::replace(&mut tasks.placement[task], placement);
        tasks.facts[task] = Arc::clone(facts);
        tasks.counts_for[task] = counts_for;
        tasks.class[task] = class;
        tasks.priority[task] = facts.priority;
        tasks.role[task] = role;
        tasks.start[task] = start;
        tasks.ours[task] = ours;
        tasks.gated[task] = gated;
        tasks.nominated[task] = nominated;
        tasks.nominated_devices[task] = nominated_devices;
        self.cluster.book(task);
        let (from, to) = (place(before), place(placement));
        if from != to {
            if let Some(from) = from {
                self.cluster.nodes.tasks[from].retain(|other| *other != task);
            }
            self.add_to_node(task);
        }
    }

    /// Adds a task to those of its node.
    fn add_to_node(&mut self, task: TaskIdx) {
        if let Some(node) = place(self.cluster.tasks.placement[task]) {
            let tasks = &mut self.cluster.nodes.tasks[node];
            let at = tasks.partition_point(|other| *other < task);
            tasks.insert(at, task);
        }
    }

    /// Adds tasks at the end.
    fn push_tasks(
        &mut self,
        pods: &[Arc<TaskFacts>],
        job: Option<JobIdx>,
        group: &OfGroup<'_>,
    ) -> TaskRange {
        let start = self.cluster.tasks.facts.len();
        let mut class_rows = ClassRows {
            classifier: &mut self.reusable.classifier,
            claim_users: &self.reusable.claim_users,
            classes: &mut self.cluster.classes,
            matchers: &self.cluster.matchers,
        };
        for facts in pods {
            self.maker.push(&mut self.cluster.tasks, &mut class_rows, facts, job, group);
        }
        TaskRange::new(start..self.cluster.tasks.facts.len())
    }

    /// Gives jobs and tasks their new rows, from the first that is new or gone on.
    fn move_rows(&mut self, Moves { gone, mut new, jobless }: Moves) {
        new.sort_by(|l, r| l.rank().cmp(&r.rank()));
        let first = self.first_to_move(&gone, &new);
        let old_jobless = BlockRows::jobless(self.cluster).range;
        for row in &gone {
            self.cluster.jobs.tasks[*row].iter().for_each(|task| self.cluster.unbook(task));
        }
        if jobless.is_some() {
            old_jobless.clone().map(TaskIdx::new).for_each(|task| self.cluster.unbook(task));
        }
        let tasks_before = self.cluster.jobs.tasks.values().take(first);
        let first_task: usize = tasks_before.map(|tasks| tasks.len()).sum();
        let mut old = Old {
            jobs: JobTail::of(&mut self.cluster.jobs, first),
            tasks: TaskTail::of(&mut self.cluster.tasks, first_task),
        };
        let mut rows = TaskRows::default();
        self.move_jobs(first, &gone, new, &mut old, &mut rows);
        self.move_jobless(old_jobless.len(), jobless, &mut old, &mut rows);
        self.renumber_on_nodes(first_task, &rows.of_old);
        for task in rows.added.into_iter().flat_map(TaskRange::iter) {
            self.cluster.book(task);
            self.add_to_node(task);
        }
        for row in (first..self.cluster.jobs.key.len()).map(JobIdx::new) {
            self.jobs.rows.insert(self.cluster.jobs.key[row].clone(), row);
        }
    }

    /// The first row of a job that is new or gone. The new ones are in order.
    fn first_to_move(&self, gone: &HashSet<JobIdx>, new: &[Moved]) -> usize {
        let before_new = new.first().map(|job| self.n_jobs_before(job));
        let first_gone = gone.iter().map(|row| row.at());
        first_gone.chain(before_new).min().unwrap_or(self.cluster.jobs.key.len())
    }

    /// Merges the old jobs that stay and the new ones, and copies or writes their tasks.
    fn move_jobs(
        &mut self,
        first: usize,
        gone: &HashSet<JobIdx>,
        new: Vec<Moved>,
        old: &mut Old,
        rows: &mut TaskRows,
    ) {
        let mut new = new.into_iter().peekable();
        for row in (first..).map(JobIdx::new) {
            let next_old = old.jobs.next().map(|(at, key, n_tasks)| (at, key.clone(), n_tasks));
            while let Some(job) = new.next_if(|job| {
                next_old.as_ref().is_none_or(|(created, key, _)| job.rank() < rank(*created, key))
            }) {
                rows.added.push(self.push_job(job));
            }
            let Some((_, _, n_tasks)) = next_old else { return };
            if gone.contains(&row) {
                old.jobs.skip(1);
                old.tasks.skip(n_tasks);
                rows.of_old.extend(repeat_n(None, n_tasks));
                continue;
            }
            let start = self.cluster.tasks.facts.len();
            let range = TaskRange::new(start..start + n_tasks);
            let row = old.jobs.copy_with(range, &mut self.cluster.jobs);
            old.tasks.copy_to_job(n_tasks, Some(row), &mut self.cluster.tasks);
            rows.of_old.extend(range.iter().map(Some));
        }
    }

    /// Copies the tasks without a job, or writes them if some are new or gone.
    fn move_jobless(
        &mut self,
        n_old: usize,
        new: Option<Vec<Arc<TaskFacts>>>,
        old: &mut Old,
        rows: &mut TaskRows,
    ) {
        if let Some(pods) = new {
            rows.of_old.extend(repeat_n(None, n_old));
            rows.added.push(self.push_tasks(&pods, None, &OfGroup::default()));
        } else {
            let start = self.cluster.tasks.facts.len();
            old.tasks.copy_to_job(n_old, None, &mut self.cluster.tasks);
            rows.of_old.extend((start..start + n_old).map(|task| Some(TaskIdx::new(task))));
        }
    }

    /// The number of jobs that are before another.
    fn n_jobs_before(&self, other: &Moved) -> usize {
        let jobs = &self.cluster.jobs;
        let (mut least, mut most) = (0, jobs.key.len());
        while least < most {
            let middle = usize::midpoint(least, most);
            let row = JobIdx::new(middle);
            if rank(jobs.created[row], &jobs.key[row]) < other.rank() {
                least = middle + 1;
            } else {
                most = middle;
            }
        }
        least
    }

    /// Adds a job at the end; returns its tasks.
    fn push_job(&mut self, Moved { key, pods, .. }: Moved) -> TaskRange {
        let row = JobIdx::new(self.cluster.jobs.key.len());
        let group = self.group(&key).cloned();
        let tasks = self.push_tasks(&pods, Some(row), &OfGroup::new(group.as_ref()));
        let job =
            self.job_maker.job(&key, group.as_ref(), pods.iter().collect(), &self.reusable.hints);
        let queue = (self.maker.queue_row)(&job.queue);
        push_job(&mut self.cluster.jobs, key, job, queue, tasks);
        tasks
    }

    /// Gives the tasks of nodes, from the first on that is renumbered, their new rows.
    fn renumber_on_nodes(&mut self, first: usize, renumbered: &[Option<TaskIdx>]) {
        for tasks in self.cluster.nodes.tasks.values_mut() {
            let n_kept = tasks.partition_point(|task| task.at() < first);
            let mut at = n_kept;
            for from in n_kept..tasks.len() {
                if let Some(row) = renumbered[tasks[from].at() - first] {
                    tasks[at] = row;
                    at += 1;
                }
            }
            tasks.truncate(at);
        }
    }
}

/// The node that a task is on.
fn place(at: Placement) -> Option<NodeIdx> {
    at.node.filter(|_| at.status.is_on_node())
}
