//! Whole jobs as victims where no job makes room by itself: the jobs, and the tasks of others, without which one task
//! fits on some node.

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::Timestamp;
use kube_batch_framework::{plugin::Capacity, statement::Statement};
use kube_batch_model::{
    cluster::Cluster,
    column::{NodeIdx, TaskIdx},
    decision::EvictReason,
};

use super::{
    cover::Item,
    evictable::{self, Evictable, WantingTasks, evict, future_idle, item, slots},
    node_tasks::NodeTasks,
    on_node::permitted_on_node,
    policy::VictimPolicy,
};
use crate::domain_budget::DomainBudget;

/// The cost of some victims on one node, compared in this order: violations, Jobs that fail, gangs, amount, and then the
/// start of the first, the later the better.
type NodeCost = (usize, usize, usize, i64, Reverse<Option<Timestamp>>, NodeIdx);

/// What may leave, and what is the same on all nodes about it.
struct Candidate<'a> {
    unit: &'a Evictable,
    item: Item,
    /// Its tasks whose eviction changes more for the wanted task than what is free.
    ruling: Vec<TaskIdx>,
}

impl<'a> Candidate<'a> {
    fn new(statement: &mut Statement<'_>, unit: &'a Evictable, wanted: WantingTasks) -> Self {
        let class = wanted.preemptor.class;
        let session = statement.session_mut();
        let is_ruling = |task: &&TaskIdx| !session.search().needs_only_resources(class, &[**task]);
        let ruling = unit.tasks.iter().filter(is_ruling).copied().collect();
        Self { unit, item: item(statement.session(), unit, 1, wanted), ruling }
    }
}

/// A candidate that has tasks on a node.
#[derive(Clone, Copy)]
struct OnNode<'a> {
    candidate: &'a Candidate<'a>,
    here: &'a [TaskIdx],
}

/// The cheapest victims for one of the wanted tasks; none if it fits on no node without candidates.
///
/// Where rules depend on the victims, they are evicted for a try, all tasks of a gang: then the search ends with a
/// bounded number of tries.
// Parity: see docs/parity.md#p10.
pub(super) fn cheapest(
    policy: VictimPolicy<'_>,
    statement: &mut Statement<'_>,
    node_tasks: &mut NodeTasks,
    jobs: &[Evictable],
    wanted: WantingTasks,
) -> Vec<Evictable> {
    let mut candidates: Vec<Candidate<'_>> =
        jobs.iter().map(|unit| Candidate::new(statement, unit, wanted)).collect();
    let session = statement.session();
    let cluster = session.cluster();
    candidates.sort_by_key(|Candidate { unit, item, .. }| evictable::cost(session, unit, item));
    let mut on_nodes: BTreeMap<NodeIdx, BTreeMap<usize, Vec<TaskIdx>>> = BTreeMap::new();
    for (at, candidate) in candidates.iter().enumerate() {
        for task in &candidate.unit.tasks {
            if let Some(node) = cluster.tasks.placement[*task].node {
                on_nodes.entry(node).or_default().entry(at).or_default().push(*task);
            }
        }
    }
    let mut tries = DomainBudget::default();
    let mut lowest: Option<(NodeCost, Vec<Evictable>)> = None;
    for (node, jobs) in on_nodes {
        if tries.is_used_up(false) {
            break;
        }
        let singles = singles(policy, statement, node_tasks, wanted, node);
        let singles: Vec<Candidate<'_>> =
            singles.iter().map(|unit| Candidate::new(statement, unit, wanted)).collect();
        let singles = singles.iter().map(|own| OnNode { candidate: own, here: &own.unit.tasks });
        let jobs = jobs.iter().map(|(at, here)| OnNode { candidate: &candidates[*at], here });
        let leaving: Vec<OnNode<'_>> = singles.chain(jobs).collect();
        let mut trial = Trial::new(statement, wanted, node, policy.reason(), &mut tries);
        let Some(victims) = minimal(&mut trial, &leaving) else { continue };
        let cost = cost(statement.session().cluster(), &victims, node);
        if lowest.as_ref().is_none_or(|(known, _)| cost < *known) {
            let units = victims.iter().map(|victim| victim.candidate.unit.clone()).collect();
            lowest = Some((cost, units));
        }
    }
    lowest.map(|(_, units)| units).unwrap_or_default()
}

/// The tasks on a node that may leave by themselves.
fn singles(
    policy: VictimPolicy<'_>,
    statement: &Statement<'_>,
    node_tasks: &mut NodeTasks,
    wanted: WantingTasks,
    node: NodeIdx,
) -> Vec<Evictable> {
    let singles = permitted_on_node(policy, statement, node_tasks, wanted.preemptor, node);
    let cluster = statement.session().cluster();
    let single = |task: TaskIdx| {
        let job = cluster.tasks.job[task].expect("a task that may be evicted has a job");
        Evictable { job, tasks: vec![task], is_whole: false }
    };
    singles.into_iter().map(single).collect()
}

fn cost(cluster: &Cluster, victims: &[OnNode<'_>], node: NodeIdx) -> NodeCost {
    let leaving = tasks(victims.iter().map(|victim| &*victim.candidate.unit.tasks));
    let items = victims.iter().map(|victim| &victim.candidate.item);
    (
        items.clone().map(|item| item.n_violating).sum(),
        cluster.n_failing_jobs(&leaving),
        victims.iter().filter(|victim| victim.candidate.unit.is_whole).count(),
        items.clone().map(|item| item.amount).sum(),
        Reverse(items.filter_map(|item| item.start).min()),
        node,
    )
}

/// Those of some candidates, the cheapest first, without which the task fits on a node: none of them can
/// stay.
fn minimal<'a>(trial: &mut Trial<'_, '_>, candidates: &[OnNode<'a>]) -> Option<Vec<OnNode<'a>>> {
    let enough = (1..=candidates.len()).find(|n| trial.fits_without(&candidates[..*n]))?;
    let mut victims = candidates[..enough].to_vec();
    for at in (0..victims.len() - 1).rev() {
        let victim = victims.remove(at);
        if !trial.fits_without(&victims) {
            victims.insert(at, victim);
        }
    }
    Some(victims)
}

/// Tries whether the wanted task fits on a node.
struct Trial<'a, 's> {
    statement: &'a mut Statement<'s>,
    wanted: WantingTasks,
    node: NodeIdx,
    /// Whether the capability of its queue admits it although no victim has left.
    is_within_limits: bool,
    reason: EvictReason,
    tries: &'a mut DomainBudget,
}

impl<'a, 's> Trial<'a, 's> {
    fn new(
        statement: &'a mut Statement<'s>,
        wanted: WantingTasks,
        node: NodeIdx,
        reason: EvictReason,
        tries: &'a mut DomainBudget,
    ) -> Self {
        let task = wanted.preemptor.task;
        let answer = statement.session().within_limits(task, &[], Capacity::FutureIdle);
        let is_within_limits = answer.is_ok();
        Self { statement, wanted, node, is_within_limits, reason, tries }
    }

    /// Whether the task fits without these victims. What costs least is asked first.
    fn fits_without(&mut self, victims: &[OnNode<'_>]) -> bool {
        let class = self.wanted.preemptor.class;
        if !self.has_room_without(victims) || !self.may_use_without(victims) {
            return false;
        }
        if victims.iter().all(|victim| victim.candidate.ruling.is_empty()) {
            return self.statement.search().rules_pass(class, self.node);
        }
        let start = self.statement.savepoint();
        let mut n_evicted = 0;
        for OnNode { candidate, here } in victims {
            evict(self.statement, here.iter().chain(&candidate.ruling), self.reason);
            n_evicted += here.len() + candidate.ruling.len();
        }
        self.tries.count(n_evicted);
        let fits = self.statement.search().fits(class, self.node, Capacity::FutureIdle);
        self.statement.rollback_to(start);
        fits
    }

    fn has_room_without(&self, victims: &[OnNode<'_>]) -> bool {
        let cluster = self.statement.session().cluster();
        let mut free = future_idle(cluster, self.node);
        for task in tasks(victims.iter().map(|victim| victim.here)) {
            cluster.request(task).charge(&mut free, 1);
        }
        slots(cluster, self.wanted.preemptor.class, &free) > 0
    }

    fn may_use_without(&self, victims: &[OnNode<'_>]) -> bool {
        let tasks = || tasks(victims.iter().map(|victim| &*victim.candidate.unit.tasks));
        let (session, task) = (self.statement.session(), self.wanted.preemptor.task);
        self.is_within_limits || session.within_limits(task, &tasks(), Capacity::FutureIdle).is_ok()
    }
}

/// The tasks of several victims: one may leave by itself or with its job.
fn tasks<'a>(victims: impl Iterator<Item = &'a [TaskIdx]>) -> Vec<TaskIdx> {
    let mut tasks: Vec<TaskIdx> = victims.flatten().copied().collect();
    tasks.sort_unstable();
    tasks.dedup();
    tasks
}
