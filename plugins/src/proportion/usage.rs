//! What queues use: what they hold, and what is kept free below them for the guarantees of others.
// Parity: see docs/parity.md#q6.

use std::collections::BTreeMap;

use kube_batch_model::{
    cluster::Cluster,
    column::{Dim, QueueIdx},
    resource::{Ledger, Request},
};

/// What is guaranteed to queues, and what they use.
#[derive(Debug, Default)]
pub(super) struct QueueUsage {
    guaranteed: Ledger<QueueIdx>,
    /// What each uses, as seen from none of those below it; `None` if nothing is guaranteed: that is what it holds.
    uses: Option<Ledger<QueueIdx>>,
}

/// What is lost of one resource, by the queues for which the tasks count: few.
#[derive(Clone, Debug)]
pub(super) struct Lost(Vec<(QueueIdx, i64)>);

/// Nothing is lost.
pub(super) static NOTHING: Lost = Lost::new();

impl Lost {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn add(&mut self, queue: QueueIdx, amount: i64) {
        match self.0.iter_mut().find(|(other, _)| *other == queue) {
            Some((_, lost)) => *lost += amount,
            None => self.0.push((queue, amount)),
        }
    }

    /// What a queue loses and those below it.
    fn below(&self, cluster: &Cluster, queue: QueueIdx) -> i64 {
        let tree = &cluster.queues.tree;
        let below = self.0.iter().filter(|(lowest, _)| tree.path(*lowest).any(|own| own == queue));
        below.map(|(_, lost)| lost).sum()
    }
}

impl QueueUsage {
    pub(super) fn new(cluster: &Cluster, guaranteed: Ledger<QueueIdx>) -> Self {
        let has_any = guaranteed.ids().any(|queue| guaranteed[queue].iter().any(|own| *own > 0));
        let uses = has_any.then(|| {
            let (queues, tree) = (&cluster.queues, &cluster.queues.tree);
            let mut uses = queues.held.clone();
            for queue in tree.parents_first().iter().rev() {
                let Some(parent) = tree.parent(*queue) else { continue };
                for dim in cluster.dimensions.ids() {
                    // What it holds is in what its parent holds already.
                    let kept = uses[*queue][dim].max(guaranteed[*queue][dim]);
                    uses[parent][dim] += kept - queues.held[*queue][dim];
                }
            }
            uses
        });
        Self { guaranteed, uses }
    }

    /// What is guaranteed to each queue.
    pub(super) const fn all_guaranteed(&self) -> &Ledger<QueueIdx> {
        &self.guaranteed
    }

    /// What is guaranteed to a queue.
    pub(super) fn guaranteed(&self, queue: QueueIdx) -> &[i64] {
        &self.guaranteed[queue]
    }

    /// Whether anything is guaranteed.
    pub(super) const fn is_any_guaranteed(&self) -> bool {
        self.uses.is_some()
    }

    /// Follows a change of what a queue itself holds.
    pub(super) fn follow(
        &mut self,
        cluster: &Cluster,
        queue: QueueIdx,
        request: &Request,
        times: i64,
    ) {
        let Some(uses) = &mut self.uses else { return };
        for (dim, amount) in request.amounts() {
            let mut change = amount * times;
            for queue in cluster.queues.tree.path(queue) {
                let before = uses[queue][*dim];
                uses[queue][*dim] += change;
                let guaranteed = self.guaranteed[queue][*dim];
                change = (before + change).max(guaranteed) - before.max(guaranteed);
            }
        }
    }

    /// What each queue of a path uses of a resource, as seen from the lowest, without what is lost.
    pub(super) fn along<'a>(
        &'a self,
        cluster: &'a Cluster,
        lowest: QueueIdx,
        dim: Dim,
        lost: &'a Lost,
    ) -> impl Iterator<Item = (QueueIdx, i64)> + use<'a> {
        let tree = &cluster.queues.tree;
        let known = self.uses.as_ref().map(|uses| (uses, self.without(cluster, uses, dim, lost)));
        let uses = move |queue: QueueIdx| match &known {
            Some((uses, changed)) => changed.get(&queue).copied().unwrap_or(uses[queue][dim]),
            None => cluster.queues.held[queue][dim] - lost.below(cluster, queue),
        };
        let mut below: Option<(QueueIdx, i64)> = None;
        tree.path(lowest).map(move |queue| {
            let seen = below.map_or(uses(queue), |(child, seen)| {
                let kept = uses(child).max(self.guaranteed[child][dim]);
                uses(queue) - kept + seen
            });
            below = Some((queue, seen));
            (queue, seen)
        })
    }

    /// What queues use that lose something, or have queues below them that do.
    fn without(
        &self,
        cluster: &Cluster,
        uses: &Ledger<QueueIdx>,
        dim: Dim,
        lost: &Lost,
    ) -> BTreeMap<QueueIdx, i64> {
        let mut changed = BTreeMap::new();
        for (queue, lost) in &lost.0 {
            let mut change = -lost;
            for queue in cluster.queues.tree.path(*queue) {
                let before = changed.get(&queue).copied().unwrap_or(uses[queue][dim]);
                changed.insert(queue, before + change);
                let guaranteed = self.guaranteed[queue][dim];
                change = (before + change).max(guaranteed) - before.max(guaranteed);
            }
        }
        changed
    }
}
