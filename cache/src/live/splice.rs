//! New rows between others: the columns of jobs and tasks, copied from the first new or removed row on.

use std::{iter::repeat_n, sync::Arc, time::Duration, vec::IntoIter};

use jiff::Timestamp;
use kube_batch_model::{
    cluster::{CountsFor, FormerRow, Jobs, StatusCounts, TaskRange, Tasks},
    column::{ClassIdx, JobIdx, NodeIdx, Ordinal, QueueIdx, TaskIdx},
    facts::{
        batch_job::BatchJobFacts, composite::CompositeFacts, device::DeviceId, group::GroupFacts,
        pod::TaskFacts, topology::TopologyFacts,
    },
    name::JobKey,
    problem::{JobProblem, JobWarning},
    resource::Ledger,
    status::Placement,
};

/// The last rows of a table, to be copied or left out one after another.
macro_rules! tail {
    ($(#[$doc:meta])* $name:ident of $table:ident by $index:ident:
        $($column:ident: $type:ty),*; $($ledger:ident),* $(,)?) => {
        $(#[$doc])*
        pub(super) struct $name {
            $($column: IntoIter<$type>,)*
            $($ledger: Ledger<$index>,)*
            /// Number of rows that have been copied or left out.
            n_done: usize,
        }

        impl $name {
            /// Removes them from the table.
            pub(super) fn of(table: &mut $table, first: usize) -> Self {
                // Without `..`, so that the compiler reports a missing column.
                let $table { $($column,)* $($ledger,)* } = table;
                let first = $index::new(first);
                Self {
                    $($column: $column.split_off(first).into_iter(),)*
                    $($ledger: $ledger.split_off(first),)*
                    n_done: 0,
                }
            }

            /// Leaves out the next `n` rows.
            pub(super) fn skip(&mut self, n: usize) {
                $(self.$column.by_ref().take(n).for_each(drop);)*
                self.n_done += n;
            }

            /// Copies the next `n` rows.
            fn copy(&mut self, n: usize, table: &mut $table) {
                $(table.$column.extend(self.$column.by_ref().take(n));)*
                $(for row in (self.n_done..self.n_done + n).map($index::new) {
                    table.$ledger.push(&self.$ledger[row]);
                })*
                self.n_done += n;
            }
        }
    };
}

tail! {
    /// The last tasks.
    TaskTail of Tasks by TaskIdx:
    facts: Arc<TaskFacts>,
    job: Option<JobIdx>,
    counts_for: CountsFor,
    class: ClassIdx,
    priority: i32,
    role: Option<u16>,
    start: Timestamp,
    ours: bool,
    gated: bool,
    placement: Placement,
    nominated: Option<NodeIdx>,
    nominated_devices: Option<Arc<[DeviceId]>>;
}

tail! {
    /// The last jobs.
    JobTail of Jobs by JobIdx:
    key: JobKey,
    group: Option<Arc<GroupFacts>>,
    created: Timestamp,
    queue: Option<QueueIdx>,
    min_available: u32,
    priority: i32,
    priority_of_pods: bool,
    leaves_whole: bool,
    has_min_resources: bool,
    topology: Option<Arc<TopologyFacts>>,
    composites: Option<Arc<[Arc<CompositeFacts>]>>,
    tasks: TaskRange,
    problem: Option<JobProblem>,
    warnings: Vec<JobWarning>,
    batch: Vec<Arc<BatchJobFacts>>,
    counts: StatusCounts,
    role_counts: Vec<StatusCounts>,
    incomplete_for: Option<Duration>,
    is_torn: bool,
    former: FormerRow;
    held, waiting
}

impl TaskTail {
    /// Copies the next `n` rows, as tasks of this job.
    pub(super) fn copy_to_job(&mut self, n: usize, job: Option<JobIdx>, tasks: &mut Tasks) {
        let start = tasks.facts.len();
        self.copy(n, tasks);
        let rows = (start..tasks.facts.len()).map(TaskIdx::new);
        rows.zip(repeat_n(job, n)).for_each(|(row, job)| tasks.job[row] = job);
    }
}

impl JobTail {
    /// Copies the next job, whose tasks are these.
    pub(super) fn copy_with(&mut self, range: TaskRange, jobs: &mut Jobs) -> JobIdx {
        self.copy(1, jobs);
        let row = JobIdx::new(jobs.key.len() - 1);
        jobs.tasks[row] = range;
        row
    }

    /// The creation time, the key and the number of tasks of the next job.
    pub(super) fn next(&self) -> Option<(Timestamp, &JobKey, usize)> {
        let key = self.key.as_slice().first()?;
        Some((self.created.as_slice()[0], key, self.tasks.as_slice()[0].len()))
    }
}
