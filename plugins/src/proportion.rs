//! Proportion: the cluster is divided between queues.
//!
//! What a queue deserves is divided by [`divide`], of each resource separately, level by level of the tree of queues: what is
//! guaranteed, then what is deserved by number, then the rest by priority and weight. With weights only, it is the weighted
//! max-min fair share.
//!
//! The share of a queue is the largest fraction, over all resources, of what it deserves that it
//! holds; of siblings the queue with the smaller share goes first. A queue is overused if that fraction has
//! reached 1 for a resource that waiting tasks below it request. What a queue deserves does not change
//! during a cycle; what it holds and requests follows every placement.
//!
//! Upstream: `plugins/proportion/proportion.go`, which divides floats in rounds and considers all
//! resources together.
// Parity: differs, see docs/parity.md#d1, docs/parity.md#a6, docs/parity.md#c3 and docs/parity.md#q2.

mod reclaim;
mod usage;

use std::cmp::Ordering;

use kube_batch_framework::{
    arguments::ArgumentSpec,
    plugin::{
        Dependencies, JobProposal, OrderScope, PlacementChange, Plugin, Proposal, Provided,
        QueueShares, Shares, VictimQuestion, VictimScope, Vote,
    },
    session_cache::SessionCache,
    spec::PluginSpec,
};
use kube_batch_model::{
    cluster::{Cluster, Queues},
    column::{ClassIdx, Column, Dim, JobIdx, QueueIdx, TaskIdx},
    division::{Part, Wish, divide},
    fair_share::fair_shares,
    queue_tree::MAX_DEPTH,
    resource::{Ledger, ResourceVector, Share},
    status::TaskStatus,
};

use self::usage::{NOTHING, QueueUsage};

/// The plugin `proportion`.
#[derive(Debug, Default)]
pub struct Proportion {
    /// The resources that shares consider.
    shared: Vec<Dim>,
    /// Whether what pods of other schedulers use is part of what the queues share.
    foreign_pods_count: bool,
    /// Whether a pod is never reclaimed that is larger than what its queue holds above what it deserves.
    protects_large_pods: bool,
    /// Whether queues have weights and capabilities only, and none is below another.
    is_plain: bool,
    /// What the queues share.
    total: ResourceVector,
    /// What each queue deserves; 0 for queues without jobs.
    deserved: Ledger<QueueIdx>,
    /// What of that is guaranteed or deserved by number.
    promised: Ledger<QueueIdx>,
    /// What each queue uses.
    usage: QueueUsage,
    /// What the waiting tasks of each queue and those below it request.
    pending: Ledger<QueueIdx>,
    /// What they held and requested when the cycle began.
    request: Ledger<QueueIdx>,
    /// Computed from what they hold and deserve.
    share: Column<QueueIdx, Share>,
}

impl Proportion {
    fn share_of(&self, cluster: &Cluster, queue: QueueIdx) -> Share {
        let parts = self.shared.iter().map(|dim| self.part(cluster, queue, *dim));
        parts.max().unwrap_or(Share::ZERO)
    }

    /// The fraction of what a queue deserves of a resource that it holds.
    fn part(&self, cluster: &Cluster, queue: QueueIdx, dim: Dim) -> Share {
        Share::of(cluster.queues.held[queue][dim], self.deserved[queue][dim])
    }

    /// What a queue and those below it hold of a resource, without the tasks in `evicted`.
    fn held_without(
        &self,
        cluster: &Cluster,
        queue: QueueIdx,
        dim: Dim,
        evicted: &[TaskIdx],
    ) -> i64 {
        let of_queue = evicted.iter().filter(|task| cluster.counts_below(**task, queue));
        let lost: i64 = of_queue.map(|task| cluster.request(*task).get(dim)).sum();
        cluster.queues.held[queue][dim] - lost
    }

    /// What each queue of a path uses of a resource above what it deserves, as seen from the lowest.
    fn above_deserved<'a>(
        &'a self,
        cluster: &'a Cluster,
        lowest: QueueIdx,
        dim: Dim,
    ) -> impl Iterator<Item = i64> + use<'a> {
        let path = self.usage.along(cluster, lowest, dim, &NOTHING);
        path.map(move |(queue, used)| used - self.deserved[queue][dim])
    }

    /// Whether the task's request counts as demand of its queue.
    // Parity: gated tasks and those of invalid jobs add nothing, see docs/parity.md#d2.
    fn is_demand(cluster: &Cluster, task: TaskIdx, status: TaskStatus) -> bool {
        status == TaskStatus::Pending
            && cluster.tasks.ours[task]
            && !cluster.tasks.gated[task]
            && cluster.tasks.job[task].is_some_and(|job| cluster.is_schedulable(job))
    }

    /// What is known of each queue and one resource before the division.
    fn wishes(&self, queues: &Queues, dim: Dim) -> Column<QueueIdx, Wish> {
        let wishes = queues.facts.ids().map(|queue| {
            let has_jobs = !queues.jobs[queue].is_empty();
            let request = if has_jobs { self.request[queue][dim] } else { 0 };
            Wish { request, ..queues.wish(queue, dim) }
        });
        wishes.collect()
    }
}

/// What waiting tasks of a leaf can get of a queue of its path.
#[derive(Clone, Copy, Default)]
struct OnPath {
    /// Whether it uses what it deserves of something that they request.
    is_over: bool,
    deserves_something: bool,
}

/// Whether queues have weights and capabilities only, and none is below another.
fn is_plain(queues: &Queues) -> bool {
    let has_amounts = |amounts: &Column<QueueIdx, Vec<(Dim, i64)>>| {
        amounts.values().any(|amounts| !amounts.is_empty())
    };
    let mut facts = queues.facts.values();
    facts.all(|facts| facts.parent.is_none() && facts.priority == 0 && !facts.not_reclaimable)
        && !has_amounts(&queues.deserved)
        && !has_amounts(&queues.guarantee)
}

fn add(sums: &mut [i64], amounts: &[i64]) {
    for (sum, amount) in sums.iter_mut().zip(amounts) {
        *sum = sum.wrapping_add(*amount);
    }
}

const LARGE_PODS: ArgumentSpec = ArgumentSpec::switch(
    "proportion.protectLargePods",
    "a pod larger than what its queue holds above what it deserves is not reclaimed",
);

const FOREIGN_PODS: ArgumentSpec = ArgumentSpec::switch(
    "proportion.shareForeignPods",
    "queues share all of the cluster, also what pods of other schedulers use",
);

/// How a configuration names the plugin.
pub const SPEC: PluginSpec = PluginSpec {
    name: "proportion",
    about: "queues share the cluster by weight",
    arguments: &[LARGE_PODS, FOREIGN_PODS],
    metadata_prefixes: &[],
    new: |arguments| {
        Box::new(Proportion {
            foreign_pods_count: arguments.bool(&FOREIGN_PODS),
            protects_large_pods: arguments.bool(&LARGE_PODS),
            ..Proportion::default()
        })
    },
};

impl Plugin for Proportion {
    fn name(&self) -> &'static str {
        "proportion"
    }

    fn provides(&self) -> Provided<'_> {
        Provided { shares: Some(self), ..Provided::default() }
    }

    fn on_session_open(&mut self, cluster: &Cluster, _: &mut SessionCache<'_>) {
        let width = cluster.dimensions.len();
        let queues = &cluster.queues;
        let n_queues = queues.facts.len();
        self.shared = cluster.dimensions.shared().collect();
        self.deserved = Ledger::zero(width, n_queues);
        self.promised = Ledger::zero(width, n_queues);
        self.pending = Ledger::zero(width, n_queues);
        // Of most jobs nothing waits.
        let waits = |job: &JobIdx| cluster.jobs.waiting[*job].iter().any(|amount| *amount != 0);
        for job in cluster.jobs.waiting.ids().filter(waits) {
            if let Some(queue) = cluster.jobs.queue[job].filter(|_| cluster.is_schedulable(job)) {
                for queue in queues.tree.path(queue) {
                    add(&mut self.pending[queue], &cluster.jobs.waiting[job]);
                }
            }
        }
        self.request = queues.held.clone();
        for queue in self.request.ids() {
            add(&mut self.request[queue], &self.pending[queue]);
        }
        self.total = match self.foreign_pods_count {
            true => cluster.total_to_share_with_foreign(),
            false => cluster.total_to_share(),
        };
        self.is_plain = is_plain(queues);
        let mut guaranteed = Ledger::zero(width, n_queues);
        for dim in self.shared.clone() {
            let parts = divide(&queues.tree, &self.wishes(queues, dim), self.total[dim]);
            for (queue, part) in parts.iter() {
                let Part { deserved, promised, guaranteed: kept, .. } = *part;
                self.deserved[queue][dim] = deserved;
                self.promised[queue][dim] = promised;
                guaranteed[queue][dim] = kept;
            }
        }
        self.usage = QueueUsage::new(cluster, guaranteed);
        self.share = self.deserved.ids().map(|queue| self.share_of(cluster, queue)).collect();
    }

    fn on_placement(&mut self, cluster: &Cluster, change: &PlacementChange) {
        let Some(queue) = cluster.queue_of(change.task) else { return };
        let request = cluster.request(change.task);
        let is_demand = |status| i64::from(Self::is_demand(cluster, change.task, status));
        let demand = is_demand(change.to.status) - is_demand(change.from.status);
        if change.held() != 0 {
            self.usage.follow(cluster, queue, request, change.held());
        }
        for queue in cluster.queues.tree.path(queue) {
            if demand != 0 {
                request.charge(&mut self.pending[queue], demand);
            }
            if change.held() != 0 {
                self.share[queue] = self.share_of(cluster, queue);
            }
        }
    }

    /// Of siblings, that of higher priority, then that of smaller share.
    // Parity: see docs/parity.md#q6 and docs/parity.md#q8.
    fn queue_order(&self, cluster: &Cluster, l: QueueIdx, r: QueueIdx) -> Ordering {
        let priority = |queue: QueueIdx| cluster.queues.facts[queue].priority;
        priority(r).cmp(&priority(l)).then_with(|| self.share[l].cmp(&self.share[r]))
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
        Dependencies::NONE
    }

    fn vote(&self, cluster: &Cluster, proposal: &Proposal<'_>, question: VictimQuestion) -> Vote {
        if question == VictimQuestion::Preemptable {
            return Vote::Abstain;
        }
        self.vote_on_reclaim(cluster, proposal)
    }

    /// The last job that is evicted may leave its queue with less than it deserves.
    // Parity: new, see docs/parity.md#c7.
    fn vote_on_job(
        &self,
        cluster: &Cluster,
        proposal: &JobProposal<'_>,
        question: VictimQuestion,
    ) -> Vote {
        if question == VictimQuestion::Preemptable {
            return Vote::Abstain;
        }
        self.vote_on_reclaim_of_job(cluster, proposal)
    }

    fn victim_scope(
        &self,
        cluster: &Cluster,
        victim: TaskIdx,
        question: VictimQuestion,
    ) -> VictimScope {
        // Whether the queue of a large pod may fall short depends on what the reclaimer's queue gains.
        let is_larger = |queue: QueueIdx| {
            let spare = |dim: Dim| cluster.queues.held[queue][dim] - self.deserved[queue][dim];
            let mut amounts = cluster.request(victim).shared();
            amounts.any(|(dim, amount)| (1..amount).contains(&spare(dim)))
        };
        match question {
            // What queues above the two of a tree use depends on more than what these hold.
            VictimQuestion::Reclaimable if !self.is_plain => VictimScope::ANYTHING,
            VictimQuestion::Reclaimable
                if !self.protects_large_pods && cluster.queue_of(victim).is_some_and(is_larger) =>
            {
                VictimScope::ANYTHING
            }
            VictimQuestion::Reclaimable => VictimScope::QUEUE,
            VictimQuestion::Preemptable => VictimScope::NONE,
        }
    }
}

impl Shares for Proportion {
    fn overused(&self, cluster: &Cluster, queue: QueueIdx) -> Option<QueueIdx> {
        let mut found = [OnPath::default(); MAX_DEPTH];
        let mut wants_something = false;
        for dim in self.shared.iter().filter(|dim| self.pending[queue][**dim] > 0) {
            wants_something = true;
            let uses = self.usage.along(cluster, queue, *dim, &NOTHING);
            for ((queue, used), on_path) in uses.zip(&mut found) {
                let deserved = self.deserved[queue][*dim];
                on_path.is_over |= Share::of(used, deserved) >= Share::ONE;
                on_path.deserves_something |= deserved > 0;
            }
        }
        let is_overused = |on_path: &OnPath| on_path.is_over || !on_path.deserves_something;
        let mut path = cluster.queues.tree.path(queue).zip(&found);
        let overused = path.find(|(_, on_path)| is_overused(on_path)).map(|(queue, _)| queue);
        overused.filter(|_| wants_something)
    }

    fn guaranteed(&self) -> &Ledger<QueueIdx> {
        self.usage.all_guaranteed()
    }

    // Parity: see docs/parity.md#q6.
    fn gets_loans_only(&self, cluster: &Cluster, job: JobIdx) -> bool {
        let Some(queue) = cluster.jobs.queue[job].filter(|_| !self.is_plain) else { return false };
        let waiting = &cluster.jobs.waiting[job];
        let mut wanted =
            self.shared.iter().filter(|dim| waiting[**dim] > 0 && self.total[**dim] > 0);
        let mut path = cluster.queues.tree.path(queue);
        path.any(|queue| wanted.clone().any(|dim| self.deserved[queue][*dim] == 0))
            && wanted.next().is_some()
    }

    fn exceeds_deserved(
        &self,
        cluster: &Cluster,
        queue: QueueIdx,
        job: JobIdx,
        other: Option<QueueIdx>,
    ) -> bool {
        let n = other.map_or(usize::MAX, |other| cluster.queues.tree.sides(queue, other)[0]);
        let mut requests =
            cluster.jobs.tasks[job].iter().flat_map(|task| cluster.request(task).shared());
        requests.any(|(dim, amount)| {
            amount > 0 && self.above_deserved(cluster, queue, dim).take(n).any(|above| above > 0)
        })
    }

    fn excess(&self, cluster: &Cluster, queue: QueueIdx, dim: Dim) -> i64 {
        self.above_deserved(cluster, queue, dim).max().unwrap_or(0)
    }

    fn spare(&self, cluster: &Cluster, queue: QueueIdx, dim: Dim) -> i64 {
        cluster.queues.held[queue][dim] - self.deserved[queue][dim]
    }

    fn withheld(
        &self,
        cluster: &Cluster,
        placeable: &Column<QueueIdx, ResourceVector>,
    ) -> Ledger<QueueIdx> {
        let tree = &cluster.queues.tree;
        let mut withheld = Ledger::zero(cluster.dimensions.len(), placeable.len());
        for queue in tree.parents_first() {
            let is_leaf = tree.is_leaf(*queue);
            if is_leaf && self.overused(cluster, *queue).is_some() {
                continue;
            }
            for dim in &self.shared {
                let missing = self.deserved[*queue][*dim] - cluster.queues.held[*queue][*dim];
                let most = if is_leaf { placeable[*queue][*dim] } else { i64::MAX };
                withheld[*queue][*dim] = missing.min(most).max(0);
            }
        }
        withheld
    }

    fn queue_share(&self, cluster: &Cluster, queue: QueueIdx, evicted: &[TaskIdx]) -> Share {
        if !evicted.iter().any(|task| cluster.counts_below(*task, queue)) {
            return self.share[queue];
        }
        let parts = self.shared.iter().map(|dim| {
            let held = self.held_without(cluster, queue, *dim, evicted);
            Share::of(held, self.deserved[queue][*dim])
        });
        parts.max().unwrap_or(Share::ZERO)
    }

    fn fair_shares(&self, cluster: &Cluster) -> Ledger<QueueIdx> {
        let queues = &cluster.queues;
        let mut shares = Ledger::zero(cluster.dimensions.len(), queues.facts.len());
        let has_jobs = |queue: QueueIdx| !queues.jobs[queue].is_empty();
        for dim in self.shared.iter().copied() {
            let wishes = queues.facts.ids().map(|queue| queues.wish(queue, dim)).collect();
            // Classes have several names for their devices; most queues use none of them.
            let is_own = cluster.dimensions.is_of_devices(dim)
                && self.total[dim] == cluster.device_totals[dim];
            let all = fair_shares(&queues.tree, wishes, has_jobs, self.total[dim]);
            for (queue, share) in all.iter() {
                if !is_own || self.request[queue][dim] != 0 {
                    shares[queue][dim] = *share;
                }
            }
        }
        shares
    }

    fn queue_shares(&self, cluster: &Cluster, queue: QueueIdx) -> QueueShares {
        let vector = |ledger: &Ledger<QueueIdx>| {
            let mut vector = ResourceVector::zero(cluster.dimensions.len());
            vector.add(&ledger[queue], 1);
            vector
        };
        QueueShares {
            deserved: vector(&self.deserved),
            guaranteed: vector(self.usage.all_guaranteed()),
            allocated: vector(&cluster.queues.held),
            request: vector(&self.request),
            pending: vector(&self.pending),
            share: self.share[queue],
            overused: self.overused(cluster, queue).is_some(),
        }
    }
}
