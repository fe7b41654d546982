//! What queues use of a resource, who borrows it, and what keeps it from being taken back.

use std::cmp::Reverse;

use jiff::Timestamp;
use kube_batch_model::{
    column::{Dim, QueueIdx},
    others::{Borrower, Protection, QueueUse},
    status::TaskStatus,
};

use crate::{reservations::later, session::Session};

/// The queues without others below them that use more of a resource than they deserve.
pub(super) struct Borrowers {
    /// The one with the largest excess first.
    queues: Vec<(QueueIdx, i64)>,
    /// What keeps the excess of the first from being taken back.
    kept_by: Vec<Protection>,
}

impl Borrowers {
    pub(super) fn of(session: &Session, dim: Dim) -> Self {
        let (cluster, plugins) = (session.cluster(), session.plugins());
        let leaves =
            cluster.queues.facts.ids().filter(|q| cluster.queues.tree.children(*q).is_empty());
        let excess = leaves.filter_map(|queue| Some((queue, plugins.spare(queue, dim)?)));
        let mut queues: Vec<(QueueIdx, i64)> = excess.filter(|(_, excess)| *excess > 0).collect();
        queues.sort_by_key(|(queue, excess)| (Reverse(*excess), *queue));
        let kept_by = match queues.first() {
            Some(_) if !session.reclaims() => vec![Protection::NoReclaim],
            Some((first, _)) => protections(session, *first, dim),
            None => Vec::new(),
        };
        Self { queues, kept_by }
    }
}

/// What a queue uses and deserves of a resource, if that explains why its jobs wait.
pub(super) fn queue_use(
    session: &Session,
    queue: QueueIdx,
    dim: Dim,
    borrowers: &Borrowers,
) -> Option<QueueUse> {
    let cluster = session.cluster();
    let spare = session.plugins().spare(queue, dim)?;
    let used = cluster.queues.held[queue][dim];
    let borrower = borrowers.queues.first().filter(|_| spare < 0).map(|(first, excess)| {
        let [_, n_other] = cluster.queues.tree.sides(queue, *first);
        let mut other = cluster.queues.tree.path(*first).take(n_other);
        let fenced = other.find(|queue| cluster.queues.facts[*queue].not_reclaimable);
        Borrower {
            queue: cluster.queues.facts[*first].name.clone(),
            excess: *excess,
            n_more: borrowers.queues.len() - 1,
            kept_by: match fenced.filter(|_| session.reclaims()) {
                Some(fenced) => {
                    let queue = cluster.queues.facts[fenced].name.clone();
                    vec![Protection::NotReclaimable { queue }]
                }
                None => borrowers.kept_by.clone(),
            },
        }
    });
    let deserved = used - spare;
    if borrower.is_none() && used < deserved {
        return None;
    }
    Some(QueueUse {
        queue: cluster.queues.facts[queue].name.clone(),
        resource: cluster.dimensions.name(dim).clone(),
        used,
        deserved,
        borrower,
    })
}

/// An amount that is protected, and when the first part of it is not any more.
#[derive(Default)]
struct Protected {
    amount: i64,
    first_end: Option<Timestamp>,
}

impl Protected {
    fn add(&mut self, amount: i64, end: Timestamp) {
        self.amount = self.amount.saturating_add(amount);
        self.first_end = self.first_end.into_iter().chain([end]).min();
    }
}

/// What keeps the pods of a queue from being evicted for another queue, and for how much of a resource.
fn protections(session: &Session, queue: QueueIdx, dim: Dim) -> Vec<Protection> {
    let (cluster, plugins) = (session.cluster(), session.plugins());
    let min_runtime = cluster.queues.min_runtime(queue);
    let (mut leaving, mut by_budgets) = (0_i64, 0_i64);
    let (mut by_runtime, mut by_reservations) = (Protected::default(), Protected::default());
    let jobs = cluster.queues.jobs[queue].iter();
    let tasks = jobs.flat_map(|job| cluster.jobs.tasks[*job].iter());
    for task in tasks.filter(|task| cluster.queue_of(*task) == Some(queue)) {
        let (amount, status) = (cluster.request(task).get(dim), cluster.status(task));
        if amount <= 0 {
            continue;
        }
        if matches!(status, TaskStatus::Releasing | TaskStatus::Stuck) {
            leaving = leaving.saturating_add(amount);
        }
        if !status.may_be_evicted() {
            continue;
        }
        let end_of_runtime = later(cluster.tasks.start[task], min_runtime);
        let is_future = |end: &Timestamp| *end > session.now;
        if let Some(end) = session.protected_until(task).filter(is_future) {
            by_reservations.add(amount, end);
        } else if !min_runtime.is_zero() && is_future(&end_of_runtime) {
            by_runtime.add(amount, end_of_runtime);
        } else if plugins.may_be_vetoed(task) && plugins.violates_budget(&[task]).contains(&true) {
            by_budgets = by_budgets.saturating_add(amount);
        }
    }
    let with_end = |of: Protected, make: fn(i64, Timestamp) -> Protection| {
        of.first_end.map(|end| make(of.amount, end))
    };
    let leaving = (leaving > 0).then_some(Protection::Leaving { amount: leaving });
    let by_budgets = (by_budgets > 0).then_some(Protection::Budget { amount: by_budgets });
    let by_runtime =
        with_end(by_runtime, |amount, first_end| Protection::MinRuntime { amount, first_end });
    let by_reservations = with_end(by_reservations, |amount, first_end| Protection::Reservation {
        amount,
        first_end,
    });
    [leaving, by_runtime, by_reservations, by_budgets].into_iter().flatten().collect()
}
