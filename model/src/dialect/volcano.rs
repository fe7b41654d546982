//! PodGroups and queues of Volcano.
//!
//! Controllers of Volcano create the pods of a job only once its PodGroup is in the phase Inqueue.
// Parity: see docs/parity.md#k2.

use super::{
    spec::StatusDialect,
    status::{Transition, set_condition, write_counts},
};
use crate::{
    job_report::{JobReport, Phase},
    object_status::{PodGroupStatus, QueueStatus, UNSCHEDULABLE},
    reason::Reason,
};

/// The phase of a group whose pods may be created.
const INQUEUE: &str = "Inqueue";
/// The condition of a group that has started.
const SCHEDULED: &str = "Scheduled";

pub(super) struct Volcano;

impl StatusDialect for Volcano {
    fn next_status(
        &self,
        stored: &PodGroupStatus,
        report: &JobReport,
        at: Transition<'_>,
    ) -> PodGroupStatus {
        let mut next = stored.clone();
        write_counts(&mut next, report);
        next.ready = 0;
        let may_have_pods = report.n_tasks > 0 || report.is_admitted;
        let is_inqueue = report.phase == Phase::Pending && may_have_pods;
        next.phase = if is_inqueue { INQUEUE.to_owned() } else { report.phase.to_string() };
        let unschedulable = report.unschedulable_in_words().map(|(reason, words)| {
            let lacks_tasks = reason == Reason::NotEnoughTasks;
            (if lacks_tasks { "NotEnoughTasks" } else { "NotEnoughResources" }, words)
        });
        set_condition(&mut next.conditions, UNSCHEDULABLE, unschedulable, at);
        let scheduled = report.has_started.then_some(("Scheduled", "the gang has started"));
        set_condition(&mut next.conditions, SCHEDULED, scheduled, at);
        next
    }

    fn waits_for_admission(&self) -> bool {
        true
    }

    fn is_admitted(&self, status: &PodGroupStatus) -> bool {
        status.phase == INQUEUE
    }

    fn next_queue_status(&self, stored: &QueueStatus, next: QueueStatus) -> QueueStatus {
        let QueueStatus { unknown, pending, running, allocated, .. } = next;
        QueueStatus { unknown, pending, running, allocated, ..stored.clone() }
    }
}
