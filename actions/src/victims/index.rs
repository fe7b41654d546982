//! The best victims of each node, kept from one search to the next.
//!
//! For preemptors of one kind, the cost of the victims on a node is kept until something has changed that it
//! depends on: a task of the node has moved; a task of a job with a victim there has moved, if the votes of
//! plugins depend on it; or the queue of the victims can spare less than was counted on. Nodes on which a
//! vote depends on anything else are searched every time. A node is searched at all only if a bound of its
//! cost, for which no plugin is asked, is the lowest. A property test compares the result with that of
//! searching all nodes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use kube_batch_framework::{
    plugin::{Capacity, VictimScope},
    session::{LogPosition, Session},
    statement::Statement,
    topology::ScopeKey,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Dim, JobIdx, NodeIdx, Ordinal, QueueIdx, TaskIdx},
};

use super::{
    limit::Limit,
    minimal_set::Considered,
    node_tasks::NodeTasks,
    on_node::{Preemptor, VictimCost, lower_bound, select_victims_on_node},
    policy::VictimPolicy,
};

/// What the victims of a preemptor depend on, apart from its own job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PreemptorProfile {
    class: ClassIdx,
    queue: Option<QueueIdx>,
    job_priority: Option<i32>,
    task_priority: i32,
    /// Of the pod itself.
    pod_priority: i32,
    scarce: Option<Dim>,
    limit: Option<Limit>,
    /// The nodes that it may use.
    scope: Option<ScopeKey>,
}

impl PreemptorProfile {
    fn of(session: &Session, preemptor: Preemptor) -> Self {
        let cluster = session.cluster();
        let Preemptor { task, class, scarce, limit, .. } = preemptor;
        let job = cluster.tasks.job[task];
        Self {
            class,
            queue: cluster.queue_of(task),
            job_priority: job.map(|job| cluster.jobs.priority[job]),
            task_priority: cluster.tasks.priority[task],
            pod_priority: cluster.tasks.facts[task].priority,
            scarce,
            limit,
            scope: session.scope_key(),
        }
    }
}

/// A node with victims. The lowest is chosen.
type Candidate = (VictimCost, Reverse<i64>, NodeIdx);

/// What is known of a node. The lowest candidate is the best if it is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Known {
    candidate: Candidate,
    /// Whether the candidate is what a search has found, and not only a lower bound.
    is_exact: bool,
}

/// At most this many indexes are kept. Guessed: jobs of few kinds preempt at the same time.
const MAX_INDEXES: usize = 16;

/// The indexes of an action.
#[derive(Debug, Default)]
pub(crate) struct VictimIndexes {
    by_profile: BTreeMap<PreemptorProfile, VictimIndex>,
}

impl VictimIndexes {
    /// The node with the best victims; `Err` if it cannot be told by an index.
    pub(super) fn best_node(
        &mut self,
        policy: VictimPolicy<'_>,
        statement: &mut Statement<'_>,
        node_tasks: &mut NodeTasks,
        preemptor: Preemptor,
    ) -> Result<Option<NodeIdx>, NotIndexed> {
        let Preemptor { task, class, .. } = preemptor;
        let session = statement.session_mut();
        let is_indexed = policy.is_between_jobs()
            && session.cluster().queues.tree.is_flat()
            && session.uses_index()
            && !session.search().is_open_to_change(class)
            && session.search().scores_are_absolute(class)
            // Then it is also without victims of the queue.
            && session.within_limits(task, &[], Capacity::FutureIdle).is_ok();
        if !is_indexed {
            return Err(NotIndexed);
        }
        let profile = PreemptorProfile::of(session, preemptor);
        if self.by_profile.len() >= MAX_INDEXES && !self.by_profile.contains_key(&profile) {
            self.by_profile.clear();
        }
        let index = self.by_profile.entry(profile).or_insert_with(|| VictimIndex::new(session));
        index.catch_up(statement.session_mut());
        Ok(index.best(policy, statement, node_tasks, preemptor))
    }
}

/// The class has rules or scores that depend on other nodes, or there is no index.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotIndexed;

/// The victims of preemptors of one kind.
#[derive(Debug)]
struct VictimIndex {
    /// Nodes that may have victims.
    candidates: BTreeSet<Known>,
    /// The entry of each node in `candidates`.
    of_node: Vec<Option<Known>>,
    /// Nodes of which nothing is known.
    outdated: BTreeSet<NodeIdx>,
    /// Nodes to search for every answer.
    volatile: BTreeSet<NodeIdx>,
    /// Nodes to search again once a task of the job has moved.
    by_job: BTreeMap<JobIdx, BTreeSet<NodeIdx>>,
    /// What queues must be able to spare for the victims of some nodes to be permitted.
    needed: BTreeMap<(QueueIdx, Dim), i64>,
    /// What queues could spare when a victim was refused.
    refused_at: BTreeMap<(QueueIdx, Dim), i64>,
    seen: LogPosition,
}

impl VictimIndex {
    fn new(session: &mut Session) -> Self {
        // All its nodes are outdated, whatever has moved.
        let (_, _, seen) = session.moved_since(LogPosition::default());
        Self {
            candidates: BTreeSet::new(),
            of_node: vec![None; session.cluster().nodes.facts.len()],
            outdated: session.nodes_in_scope().into_iter().collect(),
            volatile: BTreeSet::new(),
            by_job: BTreeMap::new(),
            needed: BTreeMap::new(),
            refused_at: BTreeMap::new(),
            seen,
        }
    }

    /// Marks the nodes to search again after what has changed.
    fn catch_up(&mut self, session: &mut Session) {
        let (nodes, jobs, now) = session.moved_since(self.seen);
        self.seen = now;
        self.outdated.extend(nodes);
        for job in jobs {
            self.outdated.extend(self.by_job.remove(job).unwrap_or_default());
        }
        let spare = |(queue, dim): &(QueueIdx, Dim)| session.plugins().spare(*queue, *dim);
        if self.needed.iter().any(|(of, needed)| spare(of).is_none_or(|spare| spare < *needed))
            || self.refused_at.iter().any(|(of, at)| spare(of).is_none_or(|spare| spare > *at))
        {
            *self = Self { seen: now, ..Self::new(session) };
        }
    }

    /// The node with the best victims.
    fn best(
        &mut self,
        policy: VictimPolicy<'_>,
        statement: &mut Statement<'_>,
        node_tasks: &mut NodeTasks,
        preemptor: Preemptor,
    ) -> Option<NodeIdx> {
        let own = own_nodes(policy, statement.session().cluster(), preemptor.task);
        for node in self.outdated.difference(&own).copied().collect::<Vec<_>>() {
            self.outdated.remove(&node);
            self.volatile.remove(&node);
            let bound = lower_bound(policy, statement.session_mut(), preemptor, node);
            let candidate = bound.map(|cost| candidate(statement, preemptor, node, cost));
            self.set(node, candidate.map(|candidate| Known { candidate, is_exact: false }));
        }
        let mut best: Option<Candidate> = None;
        let searched: Vec<NodeIdx> = self.volatile.union(&own).copied().collect();
        for node in searched {
            let (found, _) = search_node(policy, statement, node_tasks, preemptor, node);
            best = best.into_iter().chain(found).min();
        }
        loop {
            let known =
                self.candidates.iter().find(|known| !own.contains(&known.candidate.2)).copied();
            let known = known.filter(|known| best.is_none_or(|best| known.candidate < best));
            let Some(Known { candidate, is_exact }) = known else { break };
            if is_exact {
                return Some(candidate.2);
            }
            let node = candidate.2;
            let (found, considered) = search_node(policy, statement, node_tasks, preemptor, node);
            debug_assert!(found.is_none_or(|found| candidate <= found), "it is a lower bound");
            if self.depend_on(policy, statement.session(), preemptor.task, node, &considered) {
                self.set(node, found.map(|candidate| Known { candidate, is_exact: true }));
            } else {
                self.set(node, None);
                self.volatile.insert(node);
                best = best.into_iter().chain(found).min();
            }
        }
        best.map(|(_, _, node)| node)
    }

    fn set(&mut self, node: NodeIdx, known: Option<Known>) {
        let before = std::mem::replace(&mut self.of_node[node.at()], known);
        if let Some(before) = before {
            self.candidates.remove(&before);
        }
        self.candidates.extend(known);
    }

    /// Records what the votes about the victims of a node depend on; returns `false` if that cannot be
    /// recorded.
    fn depend_on(
        &mut self,
        policy: VictimPolicy<'_>,
        session: &Session,
        preemptor: TaskIdx,
        node: NodeIdx,
        considered: &Considered,
    ) -> bool {
        if considered.is_volatile {
            return false;
        }
        let cluster = session.cluster();
        // How many pods their Jobs may lose changes when others of them leave.
        for task in cluster.nodes.tasks[node].iter().filter(|task| cluster.may_fail_job(**task)) {
            if let Some(job) = cluster.tasks.job[*task] {
                self.by_job.entry(job).or_default().insert(node);
            }
        }
        let mut of_queue: Vec<(TaskIdx, bool)> = Vec::new();
        for (victim, is_allowed) in &considered.tasks {
            let scope = if policy.is_in_queue() {
                session.plugins().preemptable_scope(*victim)
            } else {
                session.plugins().reclaimable_scope(*victim)
            };
            if scope.has(VictimScope::ANYTHING) {
                return false;
            }
            if scope.has(VictimScope::JOB)
                && let Some(job) = cluster.tasks.job[*victim]
            {
                self.by_job.entry(job).or_default().insert(node);
            }
            if scope.has(VictimScope::QUEUE) {
                of_queue.push((*victim, *is_allowed));
            }
        }
        let Some((first, _)) = of_queue.first() else { return true };
        // All are of one queue: otherwise the node is volatile.
        let Some(queue) = cluster.queue_of(*first) else { return false };
        let wanted: Vec<Dim> = cluster.request(preemptor).shared().map(|(dim, _)| dim).collect();
        let spare = |dim: Dim| session.plugins().spare(queue, dim);
        if of_queue.iter().any(|(_, is_allowed)| !is_allowed) {
            for dim in &wanted {
                let Some(spare) = spare(*dim) else { return false };
                let at = self.refused_at.entry((queue, *dim)).or_insert(spare);
                *at = spare.min(*at);
            }
        }
        let allowed: Vec<TaskIdx> =
            of_queue.iter().filter(|(_, is_allowed)| *is_allowed).map(|(task, _)| *task).collect();
        if allowed.is_empty() {
            return true;
        }
        // Of one resource the queue can spare all of them: so it may lose each.
        let needed = wanted.into_iter().find_map(|dim| {
            let amounts = || allowed.iter().map(|task| cluster.request(*task).get(dim));
            let sum: i64 = amounts().sum();
            let suffices = amounts().all(|amount| amount > 0) && spare(dim)? >= sum;
            suffices.then_some((dim, sum))
        });
        let Some((dim, sum)) = needed else { return false };
        let needed = self.needed.entry((queue, dim)).or_insert(sum);
        *needed = sum.max(*needed);
        true
    }
}

/// The nodes on which the preemptor's own job has tasks, which are no victims.
fn own_nodes(policy: VictimPolicy<'_>, cluster: &Cluster, preemptor: TaskIdx) -> BTreeSet<NodeIdx> {
    let job = cluster.tasks.job[preemptor].filter(|_| policy.is_in_queue());
    let tasks = job.into_iter().flat_map(|job| cluster.jobs.tasks[job].iter());
    let victims = tasks.filter(|task| cluster.status(*task).may_be_evicted());
    victims.filter_map(|task| cluster.tasks.placement[task].node).collect()
}

fn search_node(
    policy: VictimPolicy<'_>,
    statement: &mut Statement<'_>,
    node_tasks: &mut NodeTasks,
    preemptor: Preemptor,
    node: NodeIdx,
) -> (Option<Candidate>, Considered) {
    let (victims, considered) =
        select_victims_on_node(policy, statement, node_tasks, preemptor, node);
    let found = victims.map(|victims| {
        let cost = VictimCost::of(statement.session(), preemptor, &victims);
        candidate(statement, preemptor, node, cost)
    });
    (found, considered)
}

fn candidate(
    statement: &mut Statement<'_>,
    preemptor: Preemptor,
    node: NodeIdx,
    cost: VictimCost,
) -> Candidate {
    let scores = statement.session_mut().scores_once_released(preemptor.class, &[node]);
    (cost, Reverse(scores[0]), node)
}
