//! What is kept free for queues, in every configuration.
//!
//! What a queue *lacks* is what it is guaranteed less what it holds, or what the queues below it lack together if that is
//! more. The *slack* of the cluster is what is idle less what the queues at the top lack; that of a queue with a capability
//! is what it may still hold less what its children lack. No placement makes a slack negative and smaller than before.
// Parity: new, see docs/parity.md#q4.

use std::collections::BTreeMap;

use kube_batch_model::{
    cluster::Cluster,
    column::{Column, Dim, QueueIdx, TaskIdx},
    division::{Wish, divide},
    resource::{Ledger, Request, ResourceVector},
};

use crate::plugin::Capacity;

/// What is guaranteed to queues, and what of it they lack.
#[derive(Debug, Default)]
pub(crate) struct Guarantees {
    /// What each queue is guaranteed; empty if nothing is guaranteed.
    guaranteed: Ledger<QueueIdx>,
    now: Lacking,
    /// The same if no queue held anything.
    alone: Lacking,
    /// What all queues could hold together.
    all: ResourceVector,
}

/// What queues lack of what they are guaranteed.
#[derive(Clone, Debug, Default)]
struct Lacking {
    lacks: Ledger<QueueIdx>,
    /// What the children of each lack together.
    below: Ledger<QueueIdx>,
    /// What the queues at the top lack together.
    total: ResourceVector,
}

impl Lacking {
    /// A queue lacks something else than before.
    fn set(&mut self, cluster: &Cluster, queue: QueueIdx, dim: Dim, own: i64) {
        let lacks = own.max(self.below[queue][dim]).max(0);
        let change = lacks - std::mem::replace(&mut self.lacks[queue][dim], lacks);
        match cluster.queues.tree.parent(queue) {
            Some(parent) => self.below[parent][dim] += change,
            None => self.total[dim] += change,
        }
    }
}

/// What is kept of a resource, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptFree {
    /// The resource.
    pub dim: Dim,
    /// The queue that lacks most of what is guaranteed to it.
    pub queue: QueueIdx,
    /// How much it lacks.
    pub amount: i64,
}

/// Changes of what queues hold of a resource, and of what their children lack.
#[derive(Debug, Default)]
struct Changes {
    held: BTreeMap<QueueIdx, i64>,
    /// What they lack then.
    lacks: BTreeMap<QueueIdx, i64>,
    below: BTreeMap<QueueIdx, i64>,
    total: i64,
}

impl Guarantees {
    /// `guaranteed` is what a plugin says that queues are guaranteed; otherwise it is divided here.
    pub(crate) fn of(cluster: &Cluster, guaranteed: Option<Ledger<QueueIdx>>) -> Self {
        let queues = &cluster.queues;
        if queues.guarantee.values().all(Vec::is_empty) {
            return Self::default();
        }
        let guaranteed = guaranteed.unwrap_or_else(|| divided(cluster));
        let nothing = Ledger::zero(cluster.dimensions.len(), queues.facts.len());
        let total = ResourceVector::zero(cluster.dimensions.len());
        let nothing = Lacking { lacks: nothing.clone(), below: nothing, total };
        let mut all = Self {
            guaranteed,
            now: nothing.clone(),
            alone: nothing,
            all: cluster.total_to_share(),
        };
        for queue in queues.tree.parents_first().iter().rev() {
            for dim in cluster.dimensions.shared() {
                all.alone.set(cluster, *queue, dim, all.guaranteed[*queue][dim]);
                all.set_lacks(cluster, *queue, dim);
            }
        }
        all
    }

    /// Whether nothing is guaranteed.
    pub(crate) fn is_empty(&self) -> bool {
        self.guaranteed.width() == 0
    }

    /// What each queue lacks of what it is guaranteed, if one task held nothing.
    pub(crate) fn lacking_without<'a>(
        &'a self,
        cluster: &Cluster,
        dim: Dim,
        task: Option<TaskIdx>,
    ) -> impl Fn(QueueIdx) -> i64 + use<'a> {
        let held = task.filter(|task| !self.is_empty() && cluster.status(*task).is_held());
        let own =
            held.and_then(|task| Some((cluster.queue_of(task)?, -cluster.request(task).get(dim))));
        let lacks = self.changes(cluster, dim, own.into_iter()).lacks;
        move |queue| match lacks.get(&queue) {
            Some(lacks) => *lacks,
            None if self.is_empty() => 0,
            None => self.now.lacks[queue][dim],
        }
    }

    /// Counts again what the queues of a path lack, after the lowest holds more or less.
    pub(crate) fn follow(&mut self, cluster: &Cluster, queue: QueueIdx, request: &Request) {
        if self.is_empty() {
            return;
        }
        for (dim, _) in request.shared() {
            for queue in cluster.queues.tree.path(queue) {
                self.set_lacks(cluster, queue, dim);
            }
        }
    }

    fn set_lacks(&mut self, cluster: &Cluster, queue: QueueIdx, dim: Dim) {
        let own = self.guaranteed[queue][dim] - cluster.queues.held[queue][dim];
        self.now.set(cluster, queue, dim, own);
    }

    /// Whether queues lack as much less as a queue then holds more: it takes only what it is guaranteed.
    pub(crate) fn is_owed(
        &self,
        cluster: &Cluster,
        queue: QueueIdx,
        amounts: impl Iterator<Item = (Dim, i64)>,
    ) -> bool {
        let mut amounts = amounts.filter(|(_, amount)| *amount > 0).peekable();
        let takes_something = !self.is_empty() && amounts.peek().is_some();
        let is_owed = |(dim, amount)| {
            self.changes(cluster, dim, [(queue, amount)].into_iter()).total == -amount
        };
        takes_something && amounts.all(is_owed)
    }

    /// Whether a queue could hold an amount if all others held nothing, beside what is kept for them.
    pub(crate) fn fits_alone(
        &self,
        cluster: &Cluster,
        queue: QueueIdx,
        dim: Dim,
        amount: i64,
    ) -> bool {
        let alone = &self.alone;
        let mut change = 0;
        for queue in cluster.queues.tree.path(queue) {
            let below = alone.below[queue][dim] + change;
            let mut limits = cluster.queues.capability[queue].iter().filter(|own| own.0 == dim);
            if below > 0 && limits.any(|(_, limit)| amount.saturating_add(below) > *limit) {
                return false;
            }
            let lacks = below.max(self.guaranteed[queue][dim] - amount).max(0);
            change = lacks - alone.lacks[queue][dim];
        }
        let kept = alone.total[dim] + change;
        kept == 0 || amount.saturating_add(kept) <= self.all[dim]
    }

    /// Whether a task may be placed, with the tasks in `evicted` gone, without taking what is kept for others.
    ///
    /// # Errors
    ///
    /// What it would take.
    pub(crate) fn admit(
        &self,
        cluster: &Cluster,
        task: TaskIdx,
        evicted: &[TaskIdx],
        capacity: Capacity,
    ) -> Result<(), KeptFree> {
        let Some(queue) = cluster.queue_of(task).filter(|_| !self.is_empty()) else {
            return Ok(());
        };
        if cluster.status(task).is_held() {
            return Ok(());
        }
        let mut requests = cluster.request(task).shared().filter(|(_, amount)| *amount > 0);
        let kept = requests
            .find_map(|(dim, amount)| self.taken(cluster, (queue, amount), evicted, capacity, dim));
        kept.map_or(Ok(()), Err)
    }

    fn taken(
        &self,
        cluster: &Cluster,
        (queue, amount): (QueueIdx, i64),
        evicted: &[TaskIdx],
        capacity: Capacity,
        dim: Dim,
    ) -> Option<KeptFree> {
        let queues = &cluster.queues;
        let lost = evicted.iter().filter(|task| cluster.status(**task).is_held());
        let lost = lost.filter_map(|task| Some((cluster.queue_of(*task)?, *task)));
        let lost = lost.map(|(queue, task)| (queue, -cluster.request(task).get(dim)));
        let changes = self.changes(cluster, dim, lost.chain([(queue, amount)]));
        let released = match capacity {
            Capacity::Idle => 0,
            Capacity::FutureIdle => released(cluster, evicted, dim),
        };
        let less = |before: i64, after: i64| after < 0 && after < before;
        let before = cluster.available(dim, capacity) - self.now.total[dim];
        let lacks_something = self.now.total[dim] + changes.total > 0;
        if lacks_something && less(before, before - amount + released - changes.total) {
            return self.kept(cluster, queues.tree.roots(), dim);
        }
        let above = queues.tree.path(queue).find(|queue| {
            let mut limits = queues.capability[*queue].iter();
            let limit = limits.find(|(own, _)| *own == dim);
            limit.is_some_and(|(_, limit)| {
                let of = |changes: &BTreeMap<QueueIdx, i64>| changes.get(queue).copied();
                let before = limit - queues.held[*queue][dim] - self.now.below[*queue][dim];
                let below = of(&changes.below).unwrap_or(0);
                let gone = of(&changes.held).unwrap_or(0) + below;
                self.now.below[*queue][dim] + below > 0 && less(before, before - gone)
            })
        })?;
        self.kept(cluster, queues.tree.children(above), dim)
    }

    /// What changes if queues hold more or less.
    fn changes(
        &self,
        cluster: &Cluster,
        dim: Dim,
        own: impl Iterator<Item = (QueueIdx, i64)>,
    ) -> Changes {
        let tree = &cluster.queues.tree;
        let mut changes = Changes::default();
        for (queue, change) in own {
            for queue in tree.path(queue) {
                *changes.held.entry(queue).or_default() += change;
            }
        }
        let mut queues: Vec<(usize, QueueIdx)> =
            changes.held.keys().map(|queue| (tree.path(*queue).count(), *queue)).collect();
        queues.sort_unstable();
        for (_, queue) in queues.into_iter().rev() {
            let held = cluster.queues.held[queue][dim] + changes.held[&queue];
            let below =
                self.now.below[queue][dim] + changes.below.get(&queue).copied().unwrap_or_default();
            let lacks = (self.guaranteed[queue][dim] - held).max(below).max(0);
            let change = lacks - self.now.lacks[queue][dim];
            changes.lacks.insert(queue, lacks);
            match tree.parent(queue) {
                Some(parent) => *changes.below.entry(parent).or_default() += change,
                None => changes.total += change,
            }
        }
        changes
    }

    /// The queue that lacks most, of some siblings, or of those below it that lack all of that.
    fn kept(&self, cluster: &Cluster, siblings: &[QueueIdx], dim: Dim) -> Option<KeptFree> {
        let lacks = |queue: &QueueIdx| self.now.lacks[*queue][dim];
        // Of several, the first.
        let mut queue = siblings.iter().copied().rev().max_by_key(lacks)?;
        let amount = lacks(&queue);
        while let Some(child) =
            cluster.queues.tree.children(queue).iter().find(|child| lacks(child) == amount)
        {
            queue = *child;
        }
        Some(KeptFree { dim, queue, amount })
    }
}

/// What the tasks in `evicted` leave on nodes that take pods.
fn released(cluster: &Cluster, evicted: &[TaskIdx], dim: Dim) -> i64 {
    let takes_pods = |task: &&TaskIdx| {
        let node = cluster.tasks.placement[**task].node;
        node.is_some_and(|node| cluster.nodes.facts[node].is_usable())
    };
    evicted.iter().filter(takes_pods).map(|task| cluster.request(*task).get(dim)).sum()
}

/// What queues are guaranteed of what kube-batch can give to jobs. It does not depend on what they request.
fn divided(cluster: &Cluster) -> Ledger<QueueIdx> {
    let queues = &cluster.queues;
    let total = cluster.total_to_share();
    let mut guaranteed = Ledger::zero(cluster.dimensions.len(), queues.facts.len());
    for dim in cluster.dimensions.shared() {
        let wishes: Column<QueueIdx, Wish> = queues
            .facts
            .ids()
            .map(|queue| Wish { request: 0, ..queues.wish(queue, dim) })
            .collect();
        for (queue, part) in divide(&queues.tree, &wishes, total[dim]).iter() {
            guaranteed[queue][dim] = part.guaranteed;
        }
    }
    guaranteed
}
