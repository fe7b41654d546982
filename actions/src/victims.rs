//! Selecting victims: what preempt and reclaim have in common.
//!
//! On each node, candidates are removed one by one in a dry run until the task fits: reclaim starts
//! with the queue of the highest share, and both start with the lowest priority. (kube-scheduler
//! removes all candidates first.) Then each victim that is not needed is reprieved, in the reverse
//! order, so that the set is minimal. The node whose victims have the lowest cost is chosen.
//!
//! A *turn* is one call of [`turn`] for one job; actions give turns to queues and jobs by their order.
// Parity: differs, see docs/parity.md#p4 to docs/parity.md#p6.

mod attempt;
mod cover;
mod domains;
mod dry_run;
mod index;
mod limit;
mod node_tasks;
mod on_node;
mod plan;
mod policy;
mod reprieve;
mod select;
mod whole_jobs;

use std::collections::VecDeque;

use kube_batch_api::column::{JobIdx, TaskIdx};
use kube_batch_framework::{order::NextTurn, session::Session};

use self::{
    attempt::{Attempt, Means, Outcome},
    domains::{Best, cheapest_domain, domains_to_compare},
    limit::Limit,
};
pub(crate) use self::{policy::VictimPolicy, select::VictimSearch};
use crate::waiting::WaitingByJob;

/// Tries to place tasks of one job, in one [`Statement`](kube_batch_framework::statement::Statement).
///
/// Places the tasks of the job in order until the job is pipelined. For a job that is pipelined
/// already, places one more task: the first that can be placed only by evicting victims. Commits only
/// if at least one task is evicted and the job is pipelined; otherwise every move is rolled back.
pub(crate) fn turn<P: VictimPolicy>(
    policy: &P,
    session: &mut Session,
    search: &mut VictimSearch,
    job: JobIdx,
    waiting: &mut WaitingByJob,
) -> NextTurn {
    let tasks = waiting.entry(job).or_insert_with(|| session.waiting_tasks(job).into());
    // A job without tasks in a domain has no victims of its own.
    let domains = if P::OTHER_JOBS { domains_to_compare(session, job) } else { None };
    for means in means(policy, session, tasks) {
        let best = match &domains {
            None => Best::In(None),
            Some(domains) => cheapest_domain(policy, session, search, job, tasks, (means, domains)),
        };
        let scope = match best {
            Best::In(scope) => scope,
            Best::Nowhere => continue,
            Best::NeedsNoVictims => break,
        };
        let mut left = tasks.clone();
        let mut attempt = Attempt::new(policy, session, search, job, scope);
        match attempt.run(means, &mut left) {
            Outcome::Placed if attempt.reprieve() => {
                attempt.commit();
                *tasks = left;
                return if tasks.is_empty() { NextTurn::None } else { NextTurn::Wanted };
            }
            Outcome::Placed | Outcome::Unplaceable => {}
            Outcome::NeedsNoVictims => break,
        }
    }
    NextTurn::None
}

/// What to try, one after another.
fn means<P: VictimPolicy>(policy: &P, session: &Session, tasks: &VecDeque<TaskIdx>) -> Vec<Means> {
    if !session.plugins().evicts_whole_jobs() {
        return vec![Means::SingleTasks];
    }
    let first = tasks.iter().find(|task| session.cluster().is_waiting(**task));
    let limits = first.map(|first| Limit::of(policy, session, *first)).unwrap_or_default();
    [Means::Plan].into_iter().chain(limits.into_iter().map(Means::Within)).collect()
}
