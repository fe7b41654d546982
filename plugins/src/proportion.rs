//! Proportion: the cluster is divided between queues by weight.
//!
//! A queue deserves its weighted max-min fair share, of each resource separately. With
//! `cap(q) = min(request(q), capability(q))`, a level L rises from 0 and each queue gets
//! `min(cap(q), weight(q) * L)`, until nothing is left or no queue can use more. So a queue never
//! deserves more than it can use, and the rest goes to the other queues. The division is exact: units
//! that do not divide go one each to the largest remainders, ties in queue order.
//!
//! The share of a queue is the largest fraction, over all resources, of what it deserves that it
//! holds; the queue with the smaller share goes first. A queue is overused if that fraction has
//! reached 1 for a resource that its waiting tasks request. What a queue deserves does not change
//! during a cycle; what it holds and requests follows every placement.
//!
//! Upstream: `plugins/proportion/proportion.go`, which divides floats in rounds and considers all
//! resources together.
// Parity: differs, see docs/parity.md#d1, docs/parity.md#a6 and docs/parity.md#c3.

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
    cluster::Cluster,
    column::{ClassIdx, Column, Dim, JobIdx, NodeIdx, QueueIdx, TaskIdx},
    resource::{Ledger, ResourceVector, Share},
    status::TaskStatus,
};

/// The plugin `proportion`.
#[derive(Debug, Default)]
pub struct Proportion {
    /// The resources that shares consider.
    shared: Vec<Dim>,
    /// Whether what pods of other schedulers use is part of what the queues share.
    foreign_pods_count: bool,
    /// Whether a pod is never reclaimed that is larger than what its queue holds above what it deserves.
    protects_large_pods: bool,
    /// What the queues share.
    total: ResourceVector,
    /// The sum of the weights of all queues.
    weights: i128,
    /// What each queue deserves; 0 for queues without jobs.
    deserved: Ledger<QueueIdx>,
    /// What the waiting tasks of each queue request.
    pending: Ledger<QueueIdx>,
    /// What each queue held and requested when the cycle began.
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

    /// What a queue holds of a resource, without the tasks in `evicted`.
    fn held_without(
        &self,
        cluster: &Cluster,
        queue: QueueIdx,
        dim: Dim,
        evicted: &[TaskIdx],
    ) -> i64 {
        let of_queue = evicted.iter().filter(|task| cluster.queue_of(**task) == Some(queue));
        let lost: i64 = of_queue.map(|task| cluster.request(*task).get(dim)).sum();
        cluster.queues.held[queue][dim] - lost
    }

    /// What the queue of a task, with that task, can gain of each resource that the task requests: what its waiting
    /// tasks request, up to what it deserves. `None` if it would then hold more than it deserves, or if large pods are
    /// protected.
    fn gains_within_deserved(&self, cluster: &Cluster, task: TaskIdx) -> Option<ResourceVector> {
        let queue = cluster.queue_of(task).filter(|_| !self.protects_large_pods)?;
        let mut gains = ResourceVector::zero(cluster.dimensions.len());
        for (dim, amount) in cluster.request(task).shared() {
            let missing = self.deserved[queue][dim] - cluster.queues.held[queue][dim];
            if amount > missing {
                return None;
            }
            gains[dim] = missing.min(self.pending[queue][dim]);
        }
        Some(gains)
    }

    /// Whether the task's request counts as demand of its queue.
    // Parity: gated tasks and those of invalid jobs add nothing, see docs/parity.md#d2.
    fn is_demand(cluster: &Cluster, task: TaskIdx, status: TaskStatus) -> bool {
        status == TaskStatus::Pending
            && cluster.tasks.ours[task]
            && !cluster.tasks.gated[task]
            && cluster.tasks.job[task].is_some_and(|job| cluster.is_schedulable(job))
    }

    /// Divides the total of one resource between the queues; writes into `deserved`.
    fn divide(&mut self, dim: Dim, total: i64, cluster: &Cluster) {
        let claims: Vec<Claim> = cluster
            .queues
            .jobs
            .iter()
            .filter(|(_, jobs)| !jobs.is_empty())
            .map(|(queue, _)| {
                let limit = cluster.queues.capability[queue]
                    .iter()
                    .find(|(own, _)| *own == dim)
                    .map_or(i64::MAX, |(_, limit)| *limit);
                let wanted = self.request[queue][dim].min(limit);
                Claim { queue, weight: cluster.queues.facts[queue].weight, wanted }
            })
            .filter(|claim| claim.weight > 0 && claim.wanted > 0)
            .collect();
        for (queue, amount) in fair_shares(claims, total) {
            self.deserved[queue][dim] = amount;
        }
    }
}

/// What the queues share: what the nodes that take new pods have, what pods use on the others, and devices; all
/// without what pods of other schedulers use, unless they count.
// Parity: see docs/parity.md#d2.
fn shared_total(cluster: &Cluster, foreign_pods_count: bool) -> ResourceVector {
    let subtract_unused = |node: NodeIdx, left: &mut [i64]| {
        if !cluster.nodes.facts[node].is_usable() {
            for (all, idle) in left.iter_mut().zip(idle_of(cluster, node)) {
                *all -= idle.clamp(0, (*all).max(0));
            }
        }
    };
    if foreign_pods_count {
        let mut total = cluster.device_totals.clone();
        for node in cluster.nodes.facts.ids() {
            let mut all = cluster.nodes.allocatable[node].to_vec();
            subtract_unused(node, &mut all);
            total.add(&all, 1);
        }
        return total;
    }
    cluster.sum_for_jobs(subtract_unused)
}

/// What is idle on a node if pods that are not admitted use nothing.
// Parity: see docs/parity.md#d7.
fn idle_of(cluster: &Cluster, node: NodeIdx) -> Vec<i64> {
    let mut idle = cluster.nodes.idle[node].to_vec();
    let not_admitted = |task: &&TaskIdx| cluster.tasks.facts[**task].not_admitted;
    for task in cluster.nodes.tasks[node].iter().filter(not_admitted) {
        cluster.request(*task).charge(&mut idle, 1);
    }
    idle
}

fn add(sums: &mut [i64], amounts: &[i64]) {
    for (sum, amount) in sums.iter_mut().zip(amounts) {
        *sum = sum.wrapping_add(*amount);
    }
}

/// What one queue can use of a resource.
#[derive(Clone, Copy, Debug)]
struct Claim {
    queue: QueueIdx,
    weight: u32,
    wanted: i64,
}

/// The weighted max-min fair division of `total` among claims, in whole units.
fn fair_shares(mut claims: Vec<Claim>, total: i64) -> Vec<(QueueIdx, i64)> {
    let mut left = i128::from(total.max(0));
    let mut weights: i128 = claims.iter().map(|claim| i128::from(claim.weight)).sum();
    // The claim that is satisfied at the lowest level comes first.
    claims.sort_by(|l, r| {
        let (level_l, level_r) = (
            i128::from(l.wanted) * i128::from(r.weight),
            i128::from(r.wanted) * i128::from(l.weight),
        );
        level_l.cmp(&level_r).then(l.queue.cmp(&r.queue))
    });
    let mut shares = Vec::with_capacity(claims.len());
    let mut unmet = claims.as_slice();
    while let [claim, rest @ ..] = unmet {
        let (weight, wanted) = (i128::from(claim.weight), i128::from(claim.wanted));
        if wanted * weights > left * weight {
            break;
        }
        shares.push((claim.queue, claim.wanted));
        left -= wanted;
        weights -= weight;
        unmet = rest;
    }
    // The rest is divided by weight: none of the remaining queues gets all it can use.
    let mut rounded: Vec<(QueueIdx, i128, i128)> = unmet
        .iter()
        .map(|claim| {
            let exact = left * i128::from(claim.weight);
            (claim.queue, exact / weights, exact % weights)
        })
        .collect();
    let given: i128 = rounded.iter().map(|(_, amount, _)| amount).sum();
    rounded.sort_by(|l, r| r.2.cmp(&l.2).then(l.0.cmp(&r.0)));
    let spare = usize::try_from(left - given).unwrap_or(0).min(rounded.len());
    for (at, (queue, amount, _)) in rounded.into_iter().enumerate() {
        let amount = amount + i128::from(at < spare);
        shares.push((queue, i64::try_from(amount).unwrap_or(i64::MAX)));
    }
    shares
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
        let n_queues = cluster.queues.facts.len();
        self.shared = cluster.dimensions.shared().collect();
        self.deserved = Ledger::zero(width, n_queues);
        self.pending = Ledger::zero(width, n_queues);
        // Of most jobs nothing waits.
        let waits = |job: &JobIdx| cluster.jobs.waiting[*job].iter().any(|amount| *amount != 0);
        for job in cluster.jobs.waiting.ids().filter(waits) {
            if let Some(queue) = cluster.jobs.queue[job].filter(|_| cluster.is_schedulable(job)) {
                add(&mut self.pending[queue], &cluster.jobs.waiting[job]);
            }
        }
        self.request = cluster.queues.held.clone();
        for queue in self.request.ids() {
            add(&mut self.request[queue], &self.pending[queue]);
        }
        self.total = shared_total(cluster, self.foreign_pods_count);
        let weights = cluster.queues.facts.values().map(|queue| i128::from(queue.weight));
        self.weights = weights.sum();
        let total = self.total.clone();
        for dim in self.shared.clone() {
            self.divide(dim, total[dim], cluster);
        }
        self.share = self.deserved.ids().map(|queue| self.share_of(cluster, queue)).collect();
    }

    fn on_placement(&mut self, cluster: &Cluster, change: &PlacementChange) {
        let Some(queue) = cluster.queue_of(change.task) else { return };
        let request = cluster.request(change.task);
        let is_demand = |status| i64::from(Self::is_demand(cluster, change.task, status));
        let demand = is_demand(change.to.status) - is_demand(change.from.status);
        if demand != 0 {
            request.charge(&mut self.pending[queue], demand);
        }
        if change.held() != 0 {
            self.share[queue] = self.share_of(cluster, queue);
        }
    }

    fn queue_order(&self, _: &Cluster, l: QueueIdx, r: QueueIdx) -> Ordering {
        self.share[l].cmp(&self.share[r])
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
        let Proposal { preemptor, victim, evicted } = *proposal;
        // Without a queue, it deserves nothing.
        let Some(queue) = cluster.queue_of(victim) else { return Vote::Permit };
        let wanted = cluster.request(preemptor);
        let permits = |rule: &dyn Fn(Dim, i64, i64) -> bool| {
            cluster.request(victim).shared().any(|(dim, amount)| {
                let held = self.held_without(cluster, queue, dim, evicted);
                wanted.get(dim) > 0 && rule(dim, held, self.deserved[queue][dim]) && amount > 0
            })
        };
        let request = cluster.request(victim);
        let keeps_its_part = permits(&|dim, held, deserved| held - request.get(dim) >= deserved);
        if keeps_its_part {
            return Vote::Permit;
        }
        // Parity: new, see docs/parity.md#c8.
        let Some(gains) = self.gains_within_deserved(cluster, preemptor) else {
            return Vote::Reject;
        };
        let is_owed = permits(&|dim, held, deserved| {
            held > deserved && deserved - (held - request.get(dim)) <= gains[dim]
        });
        if is_owed { Vote::Permit } else { Vote::Reject }
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
        let queue = cluster.queue_of_most(proposal.victims);
        let wanted = cluster.request(proposal.preemptor);
        let mut amounts = proposal.victims.iter().flat_map(|task| cluster.request(*task).shared());
        let holds_more = amounts.any(|(dim, _)| {
            let exceeds =
                |queue: QueueIdx| cluster.queues.held[queue][dim] > self.deserved[queue][dim];
            wanted.get(dim) > 0 && queue.is_none_or(exceeds)
        });
        if holds_more { Vote::Permit } else { Vote::Reject }
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
    fn overused(&self, cluster: &Cluster, queue: QueueIdx) -> bool {
        let wanted = self.shared.iter().filter(|dim| self.pending[queue][**dim] > 0);
        let mut wants_something = false;
        let mut deserves_something = false;
        for dim in wanted {
            wants_something = true;
            deserves_something |= self.deserved[queue][*dim] > 0;
            if self.part(cluster, queue, *dim) >= Share::ONE {
                return true;
            }
        }
        wants_something && !deserves_something
    }

    fn exceeds_deserved(&self, cluster: &Cluster, queue: QueueIdx, job: JobIdx) -> bool {
        let mut requests =
            cluster.jobs.tasks[job].iter().flat_map(|task| cluster.request(task).shared());
        requests.any(|(dim, amount)| {
            amount > 0 && cluster.queues.held[queue][dim] > self.deserved[queue][dim]
        })
    }

    fn spare(&self, cluster: &Cluster, queue: QueueIdx, dim: Dim) -> i64 {
        cluster.queues.held[queue][dim] - self.deserved[queue][dim]
    }

    fn withheld(
        &self,
        cluster: &Cluster,
        placeable: &Column<QueueIdx, ResourceVector>,
    ) -> ResourceVector {
        let mut withheld = ResourceVector::zero(cluster.dimensions.len());
        for queue in self.deserved.ids().filter(|queue| !self.overused(cluster, *queue)) {
            for dim in &self.shared {
                let missing = self.deserved[queue][*dim] - cluster.queues.held[queue][*dim];
                withheld[*dim] += missing.min(placeable[queue][*dim]).max(0);
            }
        }
        withheld
    }

    fn queue_share(&self, cluster: &Cluster, queue: QueueIdx, evicted: &[TaskIdx]) -> Share {
        if !evicted.iter().any(|task| cluster.queue_of(*task) == Some(queue)) {
            return self.share[queue];
        }
        let parts = self.shared.iter().map(|dim| {
            let held = self.held_without(cluster, queue, *dim, evicted);
            Share::of(held, self.deserved[queue][*dim])
        });
        parts.max().unwrap_or(Share::ZERO)
    }

    fn queue_shares(&self, cluster: &Cluster, queue: QueueIdx) -> QueueShares {
        let vector = |ledger: &Ledger<QueueIdx>| {
            let mut vector = ResourceVector::zero(cluster.dimensions.len());
            vector.add(&ledger[queue], 1);
            vector
        };
        let weight = i128::from(cluster.queues.facts[queue].weight);
        let part = |total: &i64| (i128::from(*total) * weight / self.weights.max(1)) as i64;
        let mut fair_share: ResourceVector = self.total.iter().map(part).collect();
        for dim in cluster.dimensions.of_devices() {
            // Classes have several names for their devices; most queues use none of them.
            let is_unused = self.request[queue][dim] == 0;
            if is_unused && self.total[dim] == cluster.device_totals[dim]
                || !self.shared.contains(&dim)
            {
                fair_share[dim] = 0;
            }
        }
        QueueShares {
            fair_share,
            deserved: vector(&self.deserved),
            allocated: vector(&cluster.queues.held),
            request: vector(&self.request),
            pending: vector(&self.pending),
            share: self.share[queue],
            overused: self.overused(cluster, queue),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_batch_model::column::Ordinal;
    use proptest::prelude::*;

    fn divide(claims: &[(u32, i64)], total: i64) -> Vec<i64> {
        let all = claims.iter().enumerate().map(|(at, (weight, wanted))| Claim {
            queue: QueueIdx::new(at),
            weight: *weight,
            wanted: *wanted,
        });
        let mut shares = fair_shares(all.collect(), total);
        shares.sort_unstable();
        shares.into_iter().map(|(_, amount)| amount).collect()
    }

    #[test]
    fn what_one_queue_cannot_use_goes_to_the_others() {
        assert_eq!(divide(&[(1, 10), (1, 200)], 100), [10, 90]);
        assert_eq!(divide(&[(1, 10), (1, 40), (2, 200)], 100), [10, 30, 60]);
        assert_eq!(divide(&[(3, 90), (1, 200)], 100), [75, 25]);
        assert_eq!(divide(&[(1, 5), (1, 5)], 100), [5, 5]);
    }

    #[test]
    fn units_that_do_not_divide_go_to_the_largest_remainders() {
        assert_eq!(divide(&[(1, 50), (1, 50), (1, 50)], 100), [34, 33, 33]);
        assert_eq!(divide(&[(1, 9), (2, 9)], 5), [2, 3]);
    }

    proptest! {
        /// The definition of max-min fairness: nothing is left while a queue can use more, and a
        /// queue that can use more has at least as much for its weight as any other, to the unit.
        #[test]
        fn division_is_max_min_fair(
            claims in prop::collection::vec((1_u32..6, 1_i64..500), 1..7),
            total in 0_i64..1500,
        ) {
            let shares = divide(&claims, total);
            let wanted: i64 = claims.iter().map(|(_, wanted)| wanted).sum();
            prop_assert_eq!(shares.iter().sum::<i64>(), total.min(wanted));
            for (own, (weight, wanted)) in shares.iter().zip(&claims) {
                prop_assert!(own <= wanted);
                if own < wanted {
                    for (other, (other_weight, _)) in shares.iter().zip(&claims) {
                        let (own_level, other_level) =
                            ((own + 1) * i64::from(*other_weight), (other - 1) * i64::from(*weight));
                        prop_assert!(own_level >= other_level);
                    }
                }
            }
        }
    }
}
