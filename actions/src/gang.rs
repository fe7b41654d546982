//! Placing the tasks of one job in one turn: what allocate and backfill have in common.
//!
//! The tasks are placed one after another until the job is ready. A task that fits on no node is
//! skipped as long as the job can reach its minimum without it. A job that is already ready gets one
//! task placed in each turn.

use kube_batch_api::{
    column::{ClassIdx, TaskIdx},
    resource::{Request, ResourceVector},
};
use kube_batch_framework::{
    candidates::Choice,
    plugin::Capacity,
    report::Failure,
    statement::{Savepoint, Statement},
};

/// The resources a turn may use.
#[derive(Debug)]
pub(crate) enum Budget<'a> {
    /// What is idle, and what is being released.
    All,
    /// What is idle, as long as the idle total stays above what is reserved.
    Lent(&'a mut Lending),
}

impl Budget<'_> {
    /// What is left to lend, for [`Budget::restore`].
    pub(crate) fn idle(&self) -> Option<ResourceVector> {
        match self {
            Budget::All => None,
            Budget::Lent(lending) => Some(lending.idle.clone()),
        }
    }

    /// Whether the request fits into what is idle, but not without using reserved resources.
    fn would_use_reserved(&self, request: &Request) -> bool {
        match self {
            Budget::All => false,
            Budget::Lent(lending) => lending.would_use_reserved(request),
        }
    }

    /// Subtracts the request of a task that was given idle resources.
    fn take(&mut self, request: &Request) {
        if let Budget::Lent(lending) = self {
            lending.take(request);
        }
    }

    /// Restores what was left to lend.
    pub(crate) fn restore(&mut self, idle: Option<ResourceVector>) {
        if let (Budget::Lent(lending), Some(idle)) = (self, idle) {
            lending.idle = idle;
        }
    }
}

/// What is left to lend.
#[derive(Debug)]
pub(crate) struct Lending {
    /// What is idle in the whole cluster and not nominated, after the moves of this pass.
    pub(crate) idle: ResourceVector,
    /// What must stay idle, by dimension.
    pub(crate) reserved: ResourceVector,
}

/// The waiting tasks of a job in one action, in task order.
#[derive(Debug)]
pub(crate) struct Waiting {
    tasks: Vec<TaskIdx>,
    /// Position of the next task to try.
    next: usize,
}

/// The point at which the job was pipelined: later moves stay only if the job becomes ready.
struct Enough {
    places: Savepoint,
    /// What was left to lend.
    idle: Option<ResourceVector>,
}

impl Enough {
    fn of(statement: &Statement<'_>, budget: &Budget<'_>) -> Self {
        Self { places: statement.savepoint(), idle: budget.idle() }
    }
}

/// The result of placing one task.
enum Placed {
    Yes(Capacity),
    No(Failure),
}

impl Waiting {
    pub(crate) const fn new(tasks: Vec<TaskIdx>) -> Self {
        Self { tasks, next: 0 }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.next == self.tasks.len()
    }

    /// Places tasks until the job is ready, or one task if it is ready already.
    pub(crate) fn place(&mut self, statement: &mut Statement<'_>, budget: &mut Budget<'_>) {
        let one_task = statement.is_ready();
        let mut unfit: Vec<ClassIdx> = Vec::new();
        // A job that is pipelined already keeps its places, and no more.
        let mut enough =
            (!one_task && statement.is_pipelined()).then(|| Enough::of(statement, budget));
        let start = self.next;
        while let Some(task) = self.tasks.get(self.next).copied() {
            self.next += 1;
            let class = statement.session().cluster().tasks.class[task];
            if unfit.contains(&class) || !statement.session().cluster().is_waiting(task) {
                continue;
            }
            // Only allocated tasks make a job ready, so once it is pipelined, only what is idle
            // helps.
            match place_one(statement, task, class, budget, enough.is_some()) {
                Placed::Yes(capacity) => {
                    let n_unfit = unfit.len();
                    unfit.retain(|class| !statement.session_mut().is_open_to_change(*class));
                    if unfit.len() < n_unfit {
                        self.next = start;
                    }
                    if one_task || (capacity == Capacity::Idle && statement.is_ready()) {
                        return;
                    }
                    if enough.is_none() && statement.is_pipelined() {
                        enough = Some(Enough::of(statement, budget));
                    }
                }
                Placed::No(failure) => {
                    let job = statement.job();
                    statement.session_mut().record_failure(job, |_| failure);
                    unfit.push(class);
                    if !one_task && enough.is_none() && !self.can_reach_minimum(statement, &unfit) {
                        break;
                    }
                }
            }
        }
        if let Some(Enough { places, idle }) = enough {
            statement.rollback_to(places);
            budget.restore(idle);
        }
    }

    /// Whether the job can reach its minimum without the classes that fit on no node.
    // Parity: see docs/parity.md#a2.
    fn can_reach_minimum(&self, statement: &mut Statement<'_>, unfit: &[ClassIdx]) -> bool {
        let mut excluded = unfit.to_vec();
        excluded.retain(|class| !statement.session_mut().is_open_to_change(*class));
        let cluster = statement.session().cluster();
        let remaining = self.tasks.iter().filter(|task| {
            cluster.is_waiting(**task) && !excluded.contains(&cluster.tasks.class[**task])
        });
        let n_remaining = remaining.count();
        let missing = statement.session().tasks_missing(statement.job()) as usize;
        n_remaining >= missing || n_remaining + tasks_for_backfill(statement) >= missing
    }
}

/// Allocates tasks that were nominated in an earlier cycle, if they fit into what is idle now.
// Parity: where a task fits now is preferred to where it must wait, see docs/parity.md#a3.
pub(crate) fn start_sooner(statement: &mut Statement<'_>, budget: &mut Budget<'_>) {
    let mut unfit: Vec<ClassIdx> = Vec::new();
    for task in statement.nominated() {
        let cluster = statement.session().cluster();
        let class = cluster.tasks.class[task];
        if unfit.contains(&class) || budget.would_use_reserved(cluster.request(task)) {
            continue;
        }
        if statement.allocate_nominated(task) {
            budget.take(statement.session().cluster().request(task));
        } else {
            unfit.push(class);
        }
    }
}

/// The number of tasks that a later backfill may place: tasks that fit on a node now, or may fit once
/// another task is placed.
// Parity: see docs/parity.md#b2.
fn tasks_for_backfill(statement: &mut Statement<'_>) -> usize {
    let job = statement.job();
    let session = statement.session_mut();
    if !session.is_still_to_run("backfill") {
        return 0;
    }
    let cluster = session.cluster();
    let tasks = cluster.jobs.tasks[job].iter();
    let best_effort =
        tasks.filter(|task| cluster.is_waiting(*task) && cluster.request(*task).is_best_effort());
    let classes: Vec<ClassIdx> = best_effort.map(|task| cluster.tasks.class[task]).collect();
    let fits = |class: &&ClassIdx| {
        session.best_node(**class).is_some()
            || (session.is_open_to_change(**class) && session.is_placeable(**class))
    };
    classes.iter().filter(fits).count()
}

/// Ends a turn: commits the moves of a job that is ready, keeps those of a job that will be ready,
/// and rolls back all others. Returns whether the moves stay.
pub(crate) fn settle(mut statement: Statement<'_>) -> bool {
    if statement.is_ready() {
        statement.commit();
        return true;
    }
    let missing = statement.session().tasks_missing(statement.job()) as usize;
    let stays = statement.is_pipelined() || missing <= tasks_for_backfill(&mut statement);
    if stays {
        statement.keep();
    } else {
        statement.release();
    }
    stays
}

fn place_one(
    statement: &mut Statement<'_>,
    task: TaskIdx,
    class: ClassIdx,
    budget: &mut Budget<'_>,
    only_now: bool,
) -> Placed {
    let session = statement.session_mut();
    if let Err(dim) = session.within_capability(task, &[]) {
        return Placed::No(Failure::Capability(dim));
    }
    if budget.would_use_reserved(session.cluster().request(task)) {
        return Placed::No(Failure::Reserved);
    }
    let choice = match budget {
        Budget::All if !only_now => session.best_node(class),
        Budget::All | Budget::Lent(_) => session.best_node_in(class, Capacity::Idle),
    };
    let Some(choice @ Choice { capacity, .. }) = choice else {
        return Placed::No(Failure::Unfit(session.explain(class)));
    };
    if capacity == Capacity::FutureIdle {
        let job = statement.job();
        statement.session_mut().record_failure(job, |s| Failure::Unfit(s.explain(class)));
    }
    statement.place(task, choice).expect("a task that waits may be placed");
    budget.take(statement.session().cluster().request(task));
    Placed::Yes(capacity)
}

impl Lending {
    /// Whether the request fits into what is idle, but would use resources that are reserved. A
    /// request for more than is idle in the whole cluster fits on no node and is not refused here.
    fn would_use_reserved(&self, request: &Request) -> bool {
        request.shared().any(|(dim, amount)| {
            let left = self.idle[dim] - amount;
            (0..self.reserved[dim]).contains(&left)
        })
    }

    fn take(&mut self, request: &Request) {
        for (dim, amount) in request.amounts() {
            self.idle[*dim] -= amount;
        }
    }
}
