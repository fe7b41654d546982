//! The order of queues that form a tree.

use std::cmp::Ordering;

use kube_batch_model::{
    column::{Column, QueueIdx},
    queue_tree::QueueTree,
};

use super::heap::{ABSENT, Heap};
use crate::plugin::OrderScope;

/// The queues that get turns, as a tree of heaps: one of the queues at the top, and one of the children of each queue. The
/// first queue is that leaf to which the first of each heap leads, so siblings alone are compared.
// Parity: see docs/parity.md#q6.
#[derive(Debug)]
pub(super) struct QueueHeaps {
    top: Heap<QueueIdx>,
    below: Column<QueueIdx, Heap<QueueIdx>>,
    at: Column<QueueIdx, u32>,
}

/// How siblings are compared.
#[derive(Clone, Copy)]
pub(super) struct Siblings<'a, F> {
    pub(super) tree: &'a QueueTree,
    pub(super) scope: OrderScope,
    pub(super) cmp: F,
}

impl QueueHeaps {
    /// The heaps of these leaves and all above them. `leaves` are ascending.
    pub(super) fn new<F: Fn(QueueIdx, QueueIdx) -> Ordering>(
        leaves: &[QueueIdx],
        n_queues: usize,
        order: &Siblings<'_, F>,
    ) -> Self {
        let mut is_in = Column::filled(false, n_queues);
        for leaf in leaves {
            order.tree.path(*leaf).for_each(|queue| is_in[queue] = true);
        }
        let mut at = Column::filled(ABSENT, n_queues);
        let mut heap = |members: &[QueueIdx]| {
            let members = members.iter().copied().filter(|queue| is_in[*queue]).collect();
            Heap::new(members, &mut at, &order.cmp)
        };
        let top = heap(order.tree.roots());
        let below = is_in.ids().map(|queue| heap(order.tree.children(queue))).collect();
        Self { top, below, at }
    }

    /// Removes the first leaf.
    pub(super) fn pop<F: Fn(QueueIdx, QueueIdx) -> Ordering>(
        &mut self,
        order: &Siblings<'_, F>,
    ) -> Option<QueueIdx> {
        let mut first = self.top.first(order.scope, &order.cmp)?;
        while let Some(child) = self.below[first].first(order.scope, &order.cmp) {
            first = child;
        }
        let mut gone = first;
        loop {
            let position = self.at[gone] as usize;
            let parent = order.tree.parent(gone);
            let (heap, at) = self.siblings(parent);
            heap.remove(position, at, &order.cmp);
            match parent {
                Some(parent) if self.below[parent].is_empty() => gone = parent,
                _ => return Some(first),
            }
        }
    }

    /// Adds a leaf, and the queues above it that are not there.
    pub(super) fn push<F: Fn(QueueIdx, QueueIdx) -> Ordering>(
        &mut self,
        leaf: QueueIdx,
        order: &Siblings<'_, F>,
    ) {
        for queue in order.tree.path(leaf) {
            if self.at[queue] == ABSENT {
                let (heap, at) = self.siblings(order.tree.parent(queue));
                heap.push(queue, at, &order.cmp);
            }
        }
    }

    /// Moves queues whose order has changed, and those above them, to their new positions.
    pub(super) fn rekey<F: Fn(QueueIdx, QueueIdx) -> Ordering>(
        &mut self,
        leaves: &[QueueIdx],
        order: &Siblings<'_, F>,
    ) {
        let paths = leaves.iter().flat_map(|leaf| order.tree.path(*leaf));
        let present = paths.filter(|queue| self.at[*queue] != ABSENT);
        let mut changed: Vec<(Option<QueueIdx>, QueueIdx)> =
            present.map(|queue| (order.tree.parent(queue), queue)).collect();
        changed.sort_unstable();
        changed.dedup();
        for of_one_parent in changed.chunk_by(|(l, _), (r, _)| l == r) {
            let members: Vec<QueueIdx> = of_one_parent.iter().map(|(_, queue)| *queue).collect();
            let (heap, at) = self.siblings(of_one_parent[0].0);
            heap.rekey(&members, at, &order.cmp);
        }
    }

    /// The heap of the children of a queue, or that at the top, and the positions.
    fn siblings(
        &mut self,
        parent: Option<QueueIdx>,
    ) -> (&mut Heap<QueueIdx>, &mut Column<QueueIdx, u32>) {
        let heap = match parent {
            Some(parent) => &mut self.below[parent],
            None => &mut self.top,
        };
        (heap, &mut self.at)
    }
}
