//! Jobs that are held: they may not place all of their tasks in this cycle.
// Parity: new, see docs/parity.md#p14.

use std::collections::BTreeMap;

use kube_batch_model::column::JobIdx;

/// How many tasks of a job may have a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) limit: u32,
    /// The job that would evict the others.
    pub(crate) by: JobIdx,
}

/// The jobs that are held.
pub(crate) type Holds = BTreeMap<JobIdx, Hold>;
