//! Minimal sets of victims on one node.

use kube_batch_api::{
    column::{QueueIdx, TaskIdx},
    resource::Share,
};
use kube_batch_framework::{plugin::Proposal, session::Session};

use super::{
    dry_run::DryRun,
    on_node::{Candidates, Considered, Victims},
    policy::VictimPolicy,
};

/// Evicts candidates in their order until the task fits, then restores, in the reverse order, those
/// that turn out not to be needed.
pub(super) fn select_minimal_set<P: VictimPolicy>(
    policy: &P,
    dry_run: &mut impl DryRun,
    candidates: Candidates,
    considered: &mut Considered,
) -> Option<Victims> {
    let Candidates { free, protected, .. } = candidates;
    let violating = protected.clone();
    let fits = evict_until_fit(policy, dry_run, free, considered)
        || evict_until_fit(policy, dry_run, protected, considered);
    if !fits {
        return None;
    }
    // The last victim is needed: the task did not fit without its eviction.
    for at in (0..dry_run.victims().len() - 1).rev() {
        let victim = dry_run.victims()[at];
        dry_run.restore(at);
        if !dry_run.fits() {
            dry_run.evict(at, victim);
        }
    }
    let tasks = dry_run.victims().to_vec();
    let n_violating = tasks.iter().filter(|task| violating.contains(task)).count();
    Some(Victims { tasks, n_violating })
}

/// Evicts candidates in their order until the task fits. Returns whether it does.
fn evict_until_fit<P: VictimPolicy>(
    policy: &P,
    dry_run: &mut impl DryRun,
    mut candidates: Vec<TaskIdx>,
    considered: &mut Considered,
) -> bool {
    let preemptor = dry_run.task();
    while !candidates.is_empty() {
        let at = if P::SAME_QUEUE {
            0
        } else {
            first_by_queue_share(dry_run.session(), &candidates, dry_run.not_yet_moved())
        };
        let victim = candidates.remove(at);
        let proposal = Proposal { preemptor, victim, evicted: dry_run.not_yet_moved() };
        let is_allowed = policy.allows(dry_run.session(), &proposal);
        considered.tasks.push((victim, is_allowed));
        if is_allowed {
            dry_run.evict(dry_run.victims().len(), victim);
            if dry_run.fits() {
                return true;
            }
        }
    }
    false
}

/// The position of the first candidate of the queue with the highest share, as shares are now. Of
/// queues with equal shares, the one that would be served last.
// Parity: see docs/parity.md#c5.
fn first_by_queue_share(session: &Session, candidates: &[TaskIdx], evicted: &[TaskIdx]) -> usize {
    let cluster = session.cluster();
    let mut highest: Option<(Share, bool, Option<QueueIdx>)> = None;
    let mut first = 0;
    for (at, task) in candidates.iter().enumerate() {
        let queue = cluster.queue_of(*task);
        if highest.is_some_and(|(_, _, highest)| highest == queue) {
            continue;
        }
        // Those of a queue that does not exist hold something and deserve nothing.
        let share = queue.map_or(Share::ONE, |queue| session.plugins().queue_share(queue, evicted));
        let rank = (share, queue.is_none(), queue);
        if highest.is_none_or(|highest| rank > highest) {
            highest = Some(rank);
            first = at;
        }
    }
    first
}
