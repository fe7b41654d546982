//! Which gangs are complete, kept while jobs become ready.
// Parity: see docs/parity.md#k8.

use std::collections::BTreeSet;

use super::{
    Members,
    tree::{Completeness, Gang, GangTree},
};
use crate::column::{Column, CompositeIdx, JobIdx};

/// The numbers of complete children, kept while jobs become ready: a composite PodGroup may have thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompleteGroups {
    ready: BTreeSet<JobIdx>,
    n_complete: Column<CompositeIdx, u32>,
}

impl CompleteGroups {
    /// As these jobs are ready.
    pub fn new(gangs: &GangTree, is_ready: impl Fn(JobIdx) -> bool) -> Self {
        let n_complete = Column::filled(0, gangs.ids().len());
        let mut groups = Self { ready: BTreeSet::new(), n_complete };
        for job in gangs.jobs_with_parents().filter(|job| is_ready(*job)) {
            groups.set_ready(gangs, job, true);
        }
        groups
    }

    /// Sets whether a job is ready.
    pub fn set_ready(&mut self, gangs: &GangTree, job: JobIdx, is_ready: bool) {
        let has_changed = if is_ready { self.ready.insert(job) } else { self.ready.remove(&job) };
        if !has_changed {
            return;
        }
        for row in gangs.above(job) {
            let was_complete = self.members(gangs, row).are_enough();
            let n_complete = &mut self.n_complete[row];
            *n_complete = if is_ready { *n_complete + 1 } else { *n_complete - 1 };
            if was_complete == self.members(gangs, row).are_enough() {
                return;
            }
        }
    }

    /// The outermost of the composite PodGroups above a job that are not complete.
    pub fn incomplete_above(&self, gangs: &GangTree, job: JobIdx) -> Option<CompositeIdx> {
        let is_incomplete = |row: &CompositeIdx| !self.is_complete(gangs, Gang::Composite(*row));
        gangs.above(job).filter(is_incomplete).last()
    }
}

impl Completeness for CompleteGroups {
    fn is_ready(&self, job: JobIdx) -> bool {
        self.ready.contains(&job)
    }

    fn members(&self, gangs: &GangTree, row: CompositeIdx) -> Members {
        gangs.get(row).members(self.n_complete[row])
    }
}
