//! What queues may take back from each other.
// Parity: see docs/parity.md#c3, docs/parity.md#c7, docs/parity.md#c8 and docs/parity.md#q7.

use kube_batch_framework::plugin::{JobProposal, Proposal, Vote};
use kube_batch_model::{
    cluster::Cluster,
    column::{Dim, QueueIdx, TaskIdx},
};

use super::{
    Proportion,
    usage::{Lost, NOTHING, QueueUsage},
};

/// The side of a queue: the queues of its path up to the lowest that is above the other queue too, without it.
#[derive(Clone, Copy)]
struct Side<'a> {
    cluster: &'a Cluster,
    usage: &'a QueueUsage,
    lowest: QueueIdx,
    n: usize,
}

impl<'a> Side<'a> {
    fn queues(self) -> impl Iterator<Item = QueueIdx> + 'a {
        self.cluster.queues.tree.path(self.lowest).take(self.n)
    }

    /// What each queue uses of a resource, as seen from the lowest, without what is lost.
    fn uses(self, dim: Dim, lost: &'a Lost) -> impl Iterator<Item = (QueueIdx, i64)> + use<'a> {
        self.usage.along(self.cluster, self.lowest, dim, lost).take(self.n)
    }
}

/// What tasks request of a resource, by the queues for which they count.
fn lost_with(cluster: &Cluster, dim: Dim, tasks: impl Iterator<Item = TaskIdx>) -> Lost {
    let mut lost = Lost::new();
    for task in tasks {
        let amount = cluster.request(task).get(dim);
        if amount != 0
            && let Some(queue) = cluster.queue_of(task)
        {
            lost.add(queue, amount);
        }
    }
    lost
}

impl Proportion {
    pub(super) fn vote_on_reclaim(&self, cluster: &Cluster, proposal: &Proposal<'_>) -> Vote {
        let Proposal { preemptor, victim, evicted } = *proposal;
        // Without a queue, it deserves nothing.
        let Some([mine, other]) = self.sides(cluster, preemptor, victim) else {
            return Vote::Permit;
        };
        if other.queues().any(|queue| cluster.queues.facts[queue].not_reclaimable) {
            return Vote::Reject;
        }
        let keeps_guarantees = || {
            cluster.request(victim).shared().all(|(dim, _)| {
                let after = lost_with(cluster, dim, evicted.iter().copied().chain([victim]));
                let mut uses = other.uses(dim, &after);
                uses.all(|(queue, used)| used >= self.usage.guaranteed(queue)[dim])
            })
        };
        if self.usage.is_any_guaranteed() && !keeps_guarantees() {
            return Vote::Reject;
        }
        let wanted = cluster.request(preemptor);
        let mut amounts = cluster
            .request(victim)
            .shared()
            .filter(|(dim, amount)| wanted.get(*dim) > 0 && *amount > 0);
        let gains =
            (!self.protects_large_pods).then(|| self.gains(cluster, preemptor, mine)).flatten();
        let is_permitted = amounts.any(|(dim, _)| {
            let before = lost_with(cluster, dim, evicted.iter().copied());
            let mut after = before.clone();
            if let Some(queue) = cluster.queue_of(victim) {
                after.add(queue, cluster.request(victim).get(dim));
            }
            let falls_short =
                |(queue, used): (QueueIdx, i64)| (self.deserved[queue][dim] - used).max(0);
            let short: i64 = other.uses(dim, &after).map(falls_short).sum();
            let holds_more =
                || other.uses(dim, &before).all(|(queue, used)| used > self.deserved[queue][dim]);
            short == 0
                || holds_more()
                    && (gains.as_ref().is_some_and(|gains| short <= gain_of(gains, dim))
                        || self.is_promised(cluster, preemptor, [mine, other], dim, &after))
        });
        if is_permitted { Vote::Permit } else { Vote::Reject }
    }

    /// The sides of the reclaimer and of a victim; `None` if the victim counts for no queue.
    fn sides<'a>(
        &'a self,
        cluster: &'a Cluster,
        preemptor: TaskIdx,
        victim: TaskIdx,
    ) -> Option<[Side<'a>; 2]> {
        let of_victim = cluster.queue_of(victim)?;
        let own = cluster.queue_of(preemptor)?;
        Some(self.sides_of(cluster, own, of_victim))
    }

    fn sides_of<'a>(
        &'a self,
        cluster: &'a Cluster,
        own: QueueIdx,
        other: QueueIdx,
    ) -> [Side<'a>; 2] {
        let [n_own, n_other] = cluster.queues.tree.sides(own, other);
        let side = |lowest, n| Side { cluster, usage: &self.usage, lowest, n };
        [side(own, n_own), side(other, n_other)]
    }

    /// What the queues of the side of a task can gain together, of each resource that the task requests: what waiting
    /// tasks below them request, up to what they deserve. `None` if one of them would use more than it deserves with the
    /// task.
    // Parity: see docs/parity.md#c8.
    fn gains(&self, cluster: &Cluster, task: TaskIdx, side: Side<'_>) -> Option<Vec<(Dim, i64)>> {
        let mut gains = Vec::new();
        for (dim, amount) in cluster.request(task).shared() {
            let mut gain: i64 = 0;
            for (queue, used) in side.uses(dim, &NOTHING) {
                let missing = self.deserved[queue][dim] - used;
                if amount > missing {
                    return None;
                }
                gain = gain.saturating_add(missing.min(self.pending[queue][dim]));
            }
            gains.push((dim, gain));
        }
        Some(gains)
    }

    /// Whether the reclaimer's side uses no more than it is promised with the task, and the other still uses what it is
    /// promised.
    fn is_promised(
        &self,
        cluster: &Cluster,
        task: TaskIdx,
        [mine, other]: [Side<'_>; 2],
        dim: Dim,
        after: &Lost,
    ) -> bool {
        let amount = cluster.request(task).get(dim);
        mine.uses(dim, &NOTHING).all(|(queue, used)| used + amount <= self.promised[queue][dim])
            && other.uses(dim, after).all(|(queue, used)| used >= self.promised[queue][dim])
    }

    pub(super) fn vote_on_reclaim_of_job(
        &self,
        cluster: &Cluster,
        proposal: &JobProposal<'_>,
    ) -> Vote {
        let queue = cluster.queue_of_most(proposal.victims);
        let own = cluster.queue_of(proposal.preemptor);
        let wanted = cluster.request(proposal.preemptor);
        let amounts = || proposal.victims.iter().flat_map(|task| cluster.request(*task).shared());
        let Some((own, queue)) = own.zip(queue) else {
            let permits = amounts().any(|(dim, _)| wanted.get(dim) > 0);
            return if permits { Vote::Permit } else { Vote::Reject };
        };
        let [_, other] = self.sides_of(cluster, own, queue);
        if other.queues().any(|queue| cluster.queues.facts[queue].not_reclaimable) {
            return Vote::Reject;
        }
        let holds_more = amounts().any(|(dim, _)| {
            let mut uses = other.uses(dim, &NOTHING);
            wanted.get(dim) > 0 && uses.all(|(queue, used)| used > self.deserved[queue][dim])
        });
        let keeps_guarantees = || {
            amounts().all(|(dim, _)| {
                let after = lost_with(cluster, dim, proposal.victims.iter().copied());
                let mut uses = other.uses(dim, &after);
                uses.all(|(queue, used)| used >= self.usage.guaranteed(queue)[dim])
            })
        };
        let permits = holds_more && (!self.usage.is_any_guaranteed() || keeps_guarantees());
        if permits { Vote::Permit } else { Vote::Reject }
    }
}

fn gain_of(gains: &[(Dim, i64)], dim: Dim) -> i64 {
    gains.iter().find(|(own, _)| *own == dim).map_or(0, |(_, gain)| *gain)
}
