//! Minimal sets of victims on one node.

use kube_batch_framework::{plugin::Proposal, session::Session};
use kube_batch_model::{
    cluster::Cluster,
    column::{QueueIdx, TaskIdx},
};

use super::{dry_run::DryRun, node_tasks::job_priority, policy::VictimPolicy};

/// Victims on one node.
pub(super) struct Victims {
    pub(super) tasks: Vec<TaskIdx>,
    /// How many of them a disruption budget protects.
    pub(super) n_violating: usize,
}

impl Victims {
    pub(super) fn new(tasks: Vec<TaskIdx>, protected: &[TaskIdx]) -> Self {
        let n_violating = tasks.iter().filter(|task| protected.contains(task)).count();
        Self { tasks, n_violating }
    }
}

/// What decided about the victims on a node.
#[derive(Debug, Default)]
pub(super) struct Considered {
    /// The tasks about which plugins were asked, and whether each may be evicted.
    pub(super) tasks: Vec<(TaskIdx, bool)>,
    /// Whether it depended on more than the votes and the tasks of the node.
    pub(super) is_volatile: bool,
}

/// The tasks that may be evicted on a node.
pub(super) struct Candidates {
    pub(super) all: Vec<TaskIdx>,
    /// Those that no disruption budget protects, the first victim first.
    pub(super) free: Vec<TaskIdx>,
    /// Those that one protects, in the same order: the last resort.
    pub(super) protected: Vec<TaskIdx>,
}

impl Candidates {
    /// Sorts candidates, the first victim first. What budgets allow goes to the most important ones, as
    /// in kube-scheduler.
    // Parity: see docs/parity.md#p11.
    pub(super) fn new(session: &Session, all: Vec<TaskIdx>) -> Self {
        let most_important_first: Vec<TaskIdx> = all.iter().rev().copied().collect();
        let violates = session.plugins().violates_budget(&most_important_first);
        let (mut free, mut protected) = (Vec::new(), Vec::new());
        for (at, task) in all.iter().rev().enumerate() {
            let is_protected = violates.get(at) == Some(&true);
            if is_protected { &mut protected } else { &mut free }.push(*task);
        }
        free.reverse();
        protected.reverse();
        Self { all, free, protected }
    }

    /// Whether what is chosen of them may change although no vote does: the order of queues by their share,
    /// or what budgets allow.
    pub(super) fn are_volatile(&self, policy: VictimPolicy<'_>, session: &Session) -> bool {
        let queue_of = |task: &TaskIdx| session.cluster().queue_of(*task);
        let mut others = self.all.iter().skip(1);
        let has_budgets = !session.cluster().budgets.is_empty();
        (!policy.is_in_queue() && others.any(|task| queue_of(task) != queue_of(&self.all[0])))
            || (has_budgets && self.all.iter().any(|task| session.plugins().may_be_vetoed(*task)))
    }
}

/// Evicts candidates in their order until the task fits, then restores, in the reverse order, those
/// that turn out not to be needed.
pub(super) fn select_minimal_set(
    policy: VictimPolicy<'_>,
    dry_run: &mut impl DryRun,
    candidates: &Candidates,
    considered: &mut Considered,
) -> Option<Victims> {
    let Candidates { free, protected, .. } = candidates;
    let fits = evict_until_fit(policy, dry_run, free.clone(), considered)
        || evict_until_fit(policy, dry_run, protected.clone(), considered);
    if !fits {
        return None;
    }
    // The last victim is needed: the task did not fit without its eviction.
    restore_unneeded(dry_run, dry_run.victims().len() - 1);
    Some(Victims::new(dry_run.victims().to_vec(), &candidates.protected))
}

/// As in kube-scheduler: evicts all candidates, restores each that is not needed, the first victim last, and returns
/// the rest if they may be evicted together. [`select_minimal_set`] can fail where this succeeds: victims that are
/// taken in order may be spread over devices, and free none.
// Parity: see docs/parity.md#p4-which-victims.
pub(super) fn select_by_restoring(
    policy: VictimPolicy<'_>,
    dry_run: &mut impl DryRun,
    candidates: &Candidates,
) -> Option<Victims> {
    let n_tried = dry_run.victims().len();
    restore_all(dry_run);
    let Candidates { free, protected, .. } = candidates;
    let task = dry_run.task();
    let session = dry_run.session();
    let may_leave = |victim: &&TaskIdx| {
        policy.allows(session, &Proposal { preemptor: task, victim: **victim, evicted: &[] })
    };
    let parts: [Vec<TaskIdx>; 2] =
        [free, protected].map(|part| part.iter().filter(may_leave).copied().collect());
    if parts.concat().len() <= n_tried {
        // The task did not fit when all of these were evicted.
        return None;
    }
    for mut left in parts {
        while !left.is_empty() {
            let at = first(policy, dry_run, &left);
            dry_run.evict(dry_run.victims().len(), left.remove(at));
        }
    }
    if !dry_run.fits() {
        return None;
    }
    restore_unneeded(dry_run, dry_run.victims().len());
    let tasks = dry_run.victims().to_vec();
    restore_all(dry_run);
    for victim in &tasks {
        let proposal =
            Proposal { preemptor: task, victim: *victim, evicted: dry_run.not_yet_moved() };
        if !policy.allows(dry_run.session(), &proposal) {
            return None;
        }
        dry_run.evict(dry_run.victims().len(), *victim);
    }
    Some(Victims::new(tasks, protected))
}

fn restore_all(dry_run: &mut impl DryRun) {
    for at in (0..dry_run.victims().len()).rev() {
        dry_run.restore(at);
    }
}

/// Restores, in the reverse order, those of the first `n_victims` victims that are not needed.
fn restore_unneeded(dry_run: &mut impl DryRun, n_victims: usize) {
    for at in (0..n_victims).rev() {
        let victim = dry_run.victims()[at];
        dry_run.restore(at);
        if !dry_run.fits() {
            dry_run.evict(at, victim);
        }
    }
}

/// The position of the candidate that is evicted first.
fn first(policy: VictimPolicy<'_>, dry_run: &impl DryRun, candidates: &[TaskIdx]) -> usize {
    let first = match policy.is_in_queue() {
        true => 0,
        false => first_by_queue_share(dry_run.session(), candidates, dry_run.not_yet_moved()),
    };
    first_by_jobs(dry_run.session().cluster(), candidates, first, dry_run.not_yet_moved())
}

/// Of the candidates from `first` on that differ from it in age alone, the first whose Job goes on; if none does, the
/// first of the Job with most of them: once it fails, they cost no further Job.
// Parity: see docs/parity.md#p16.
fn first_by_jobs(
    cluster: &Cluster,
    candidates: &[TaskIdx],
    first: usize,
    evicted: &[TaskIdx],
) -> usize {
    if !cluster.fails_job(candidates[first], evicted) {
        return first;
    }
    let rank = |task: TaskIdx| {
        (cluster.queue_of(task), job_priority(cluster, task), cluster.tasks.priority[task])
    };
    let rank_of_first = rank(candidates[first]);
    let all = candidates.iter().copied().enumerate().skip(first);
    let alike: Vec<(usize, TaskIdx)> =
        all.filter(|(_, task)| rank(*task) == rank_of_first).collect();
    let goes_on = |(_, task): &&(usize, TaskIdx)| !cluster.fails_job(*task, evicted);
    if let Some((at, _)) = alike.iter().find(goes_on) {
        return *at;
    }
    let controller = |task: TaskIdx| cluster.tasks.facts[task].controller.as_ref();
    let n_with = |task: TaskIdx| {
        alike.iter().filter(|(_, other)| controller(*other) == controller(task)).count()
    };
    // Of equal ones, the last is the maximum.
    let of_largest = alike.iter().rev().max_by_key(|(_, task)| n_with(*task));
    of_largest.map_or(first, |(at, _)| *at)
}

/// Evicts candidates in their order until the task fits. Returns whether it does.
fn evict_until_fit(
    policy: VictimPolicy<'_>,
    dry_run: &mut impl DryRun,
    mut candidates: Vec<TaskIdx>,
    considered: &mut Considered,
) -> bool {
    let preemptor = dry_run.task();
    while !candidates.is_empty() {
        let victim = candidates.remove(first(policy, dry_run, &candidates));
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

/// The position of the first candidate of the queue that would be served last, as shares are now.
// Parity: see docs/parity.md#c5.
fn first_by_queue_share(session: &Session, candidates: &[TaskIdx], evicted: &[TaskIdx]) -> usize {
    let cluster = session.cluster();
    let mut last: Option<Option<QueueIdx>> = None;
    let mut first = 0;
    for (at, task) in candidates.iter().enumerate() {
        let queue = cluster.queue_of(*task);
        let is_later = |last| session.plugins().served_later(queue, last, evicted).is_gt();
        if last.is_none_or(|last| last != queue && is_later(last)) {
            last = Some(queue);
            first = at;
        }
    }
    first
}
