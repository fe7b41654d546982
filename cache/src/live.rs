//! The snapshot that follows what changed.
//!
//! [`take_snapshot`](crate::snapshot::take_snapshot) is the definition: it reads every fact. A
//! [`LiveSnapshot`] keeps the last snapshot and applies what has changed since. Rows have the same order as in a
//! snapshot that is taken from scratch, so decisions are the same:
//!
//! - A pod that is new, is deleted or changes its job moves the rows behind it. Columns are copied from the first
//!   such row on, which costs a few nanoseconds for each row.
//! - Any other change of a pod, or of the decision in flight about it, is written to its row. The ledgers and
//!   counts follow by the same charges as the placements of a cycle.
//! - Classes of tasks get new rows at the end, and stay when their last task is gone. When more than half are
//!   unused, the next snapshot is taken from scratch.
//!
//! What seldom happens also leads to a snapshot from scratch: a node or a queue is new, is deleted or has other
//! resources, a PriorityClass changes, or a new selector matches pods that are there already.

mod blocks;
mod changed;
mod differences;
mod follow;
mod splice;
mod world;
mod write;

use kube_batch_model::cluster::Cluster;

use self::{changed::Changed, follow::Kept};
use crate::{
    assumed::Assumed,
    snapshot::{Snapshot, SnapshotOptions},
    store::Store,
};

/// The last snapshot, from which the next one is made.
#[derive(Debug, Default)]
pub struct LiveSnapshot {
    kept: Option<Kept>,
    n_from_scratch: u64,
}

impl LiveSnapshot {
    /// The snapshot of facts and decisions that have no other reader of their changes. It has the cluster that
    /// was kept, if one was, with what has changed since.
    pub fn refresh(
        &mut self,
        store: &mut Store,
        assumed: &mut Assumed,
        options: &SnapshotOptions,
    ) -> Snapshot {
        let changed = Changed::take(store, assumed);
        let kept = self.kept.take().filter(|kept| kept.is_for(options));
        let followed = kept.zip(changed).and_then(|(mut kept, changed)| {
            let snapshot = kept.follow(store, assumed, &changed)?;
            Some((kept, snapshot))
        });
        let (kept, snapshot) = followed.unwrap_or_else(|| {
            self.n_from_scratch += 1;
            Kept::from_scratch(store, assumed, options)
        });
        self.kept = Some(kept);
        snapshot
    }

    /// Keeps the cluster of the last snapshot for the next one. Only its nominations of rejected tasks,
    /// and what is known of durations, may have changed.
    pub fn keep(&mut self, cluster: Cluster) {
        if let Some(kept) = &mut self.kept {
            kept.keep(cluster);
        }
    }

    /// How many snapshots were taken from scratch.
    pub const fn n_from_scratch(&self) -> u64 {
        self.n_from_scratch
    }
}
