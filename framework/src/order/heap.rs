//! A heap whose members can be moved.

use std::cmp::Ordering;

use kube_batch_model::column::{Column, Ordinal};

use crate::plugin::OrderScope;

/// The position of a queue or job that is in no heap.
pub(super) const ABSENT: u32 = u32::MAX;

/// A binary heap whose members can be moved when their order changes. The caller stores the
/// positions, so that many heaps over one table share a column.
#[derive(Clone, Debug)]
pub(super) struct Heap<I> {
    pub(super) members: Vec<I>,
}

impl<I: Ordinal> Heap<I> {
    pub(super) fn new(
        members: Vec<I>,
        at: &mut Column<I, u32>,
        cmp: &impl Fn(I, I) -> Ordering,
    ) -> Self {
        let mut heap = Self { members };
        for (position, member) in heap.members.iter().enumerate() {
            at[*member] = position as u32;
        }
        for position in (0..heap.members.len() / 2).rev() {
            heap.sift_down(position, at, cmp);
        }
        heap
    }

    pub(super) fn push(
        &mut self,
        member: I,
        at: &mut Column<I, u32>,
        cmp: &impl Fn(I, I) -> Ordering,
    ) {
        self.members.push(member);
        at[member] = (self.members.len() - 1) as u32;
        self.sift_up(self.members.len() - 1, at, cmp);
    }

    pub(super) fn remove(
        &mut self,
        position: usize,
        at: &mut Column<I, u32>,
        cmp: &impl Fn(I, I) -> Ordering,
    ) -> I {
        let member = self.members.swap_remove(position);
        at[member] = ABSENT;
        if position < self.members.len() {
            at[self.members[position]] = position as u32;
            self.resettle(position, at, cmp);
        }
        member
    }

    /// Moves the members whose order has changed to their new positions.
    pub(super) fn rekey(
        &mut self,
        changed: &[I],
        at: &mut Column<I, u32>,
        cmp: &impl Fn(I, I) -> Ordering,
    ) {
        match changed {
            [] => {}
            [member] => self.resettle(at[*member] as usize, at, cmp),
            // Moving several members one by one may leave them in the wrong order.
            _ => *self = Self::new(std::mem::take(&mut self.members), at, cmp),
        }
    }

    /// Moves a member whose order has changed to its new position.
    fn resettle(
        &mut self,
        position: usize,
        at: &mut Column<I, u32>,
        cmp: &impl Fn(I, I) -> Ordering,
    ) {
        if self.sift_up(position, at, cmp) == position {
            self.sift_down(position, at, cmp);
        }
    }

    fn sift_up(
        &mut self,
        mut position: usize,
        at: &mut Column<I, u32>,
        cmp: &impl Fn(I, I) -> Ordering,
    ) -> usize {
        while position > 0 {
            let parent = (position - 1) / 2;
            if cmp(self.members[position], self.members[parent]).is_ge() {
                break;
            }
            self.swap(position, parent, at);
            position = parent;
        }
        position
    }

    fn sift_down(
        &mut self,
        mut position: usize,
        at: &mut Column<I, u32>,
        cmp: &impl Fn(I, I) -> Ordering,
    ) {
        loop {
            let children = 2 * position + 1..(2 * position + 3).min(self.members.len());
            let Some(least) = children.min_by(|l, r| cmp(self.members[*l], self.members[*r]))
            else {
                return;
            };
            if cmp(self.members[least], self.members[position]).is_ge() {
                return;
            }
            self.swap(position, least, at);
            position = least;
        }
    }

    fn swap(&mut self, l: usize, r: usize, at: &mut Column<I, u32>) {
        self.members.swap(l, r);
        at[self.members[l]] = l as u32;
        at[self.members[r]] = r as u32;
    }

    pub(super) fn pop(
        &mut self,
        scope: OrderScope,
        at: &mut Column<I, u32>,
        cmp: &impl Fn(I, I) -> Ordering,
    ) -> Option<I> {
        let first = self.first(scope, cmp)?;
        Some(self.remove(at[first] as usize, at, cmp))
    }

    /// The first member.
    pub(super) fn first(&self, scope: OrderScope, cmp: &impl Fn(I, I) -> Ordering) -> Option<I> {
        match scope {
            OrderScope::Own => self.members.first().copied(),
            OrderScope::Anything => self.members.iter().copied().min_by(|l, r| cmp(*l, *r)),
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use kube_batch_model::column::JobIdx;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_the_minimum_whatever_changed(
            mut keys in prop::collection::vec(0_u32..20, 1..30),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0_u32..20), 0..60),
        ) {
            let mut at: Column<JobIdx, u32> = Column::filled(ABSENT, keys.len());
            let all: Vec<JobIdx> = at.ids().collect();
            let mut heap = Heap::new(all, &mut at, &|l: JobIdx, r: JobIdx| keys[l.at()].cmp(&keys[r.at()]).then(l.cmp(&r)));
            for (index, key) in changes {
                let row = JobIdx::new(index.index(keys.len()));
                keys[row.at()] = key;
                let cmp = |l: JobIdx, r: JobIdx| keys[l.at()].cmp(&keys[r.at()]).then(l.cmp(&r));
                heap.resettle(at[row] as usize, &mut at, &cmp);
                let least = heap.members.iter().copied().min_by(|l, r| cmp(*l, *r));
                let popped = heap.pop(OrderScope::Own, &mut at, &cmp);
                prop_assert_eq!(popped, least);
                heap.push(popped.expect("never empty"), &mut at, &cmp);
            }
        }
    }
}
