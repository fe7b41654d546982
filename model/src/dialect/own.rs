//! The PodGroups and queues of this project.

use super::{
    spec::StatusDialect,
    status::{Transition, set_condition, write_counts},
};
use crate::{
    decision::EvictReason,
    job_report::{JobReport, Phase},
    object_status::{
        GANG_EVICTED, MISCONFIGURED, PREEMPTED, PodGroupStatus, RECLAIMED, UNSCHEDULABLE,
    },
    text::shortened,
};

pub(super) struct Own;

impl StatusDialect for Own {
    /// There is at most one condition of each type. Unschedulable is True with a reason while the group
    /// cannot start, Misconfigured while there are mistakes in its objects, Preempted or Reclaimed from when
    /// the gang was evicted as a whole until it runs again. Each is False once that no longer holds. Time and
    /// transition id change only when the status of the condition does.
    // Parity: differs, see docs/parity.md#e1 and docs/parity.md#e2.
    fn next_status(
        &self,
        stored: &PodGroupStatus,
        report: &JobReport,
        at: Transition<'_>,
    ) -> PodGroupStatus {
        let mut next = stored.clone();
        next.phase = report.phase.to_string();
        write_counts(&mut next, report);
        let unschedulable = report.unschedulable_in_words();
        let unschedulable = unschedulable.as_ref().map(|(reason, words)| (reason.as_str(), *words));
        set_condition(&mut next.conditions, UNSCHEDULABLE, unschedulable, at);
        let misconfigured = report.misconfigured();
        let misconfigured = misconfigured.as_ref().map(|(reason, words)| (*reason, &**words));
        set_condition(&mut next.conditions, MISCONFIGURED, misconfigured, at);
        for (type_, reason) in
            [(PREEMPTED, EvictReason::Preempt), (RECLAIMED, EvictReason::Reclaim)]
        {
            match &report.evicted {
                Some(eviction) if eviction.cause.reason() == reason => {
                    let why = eviction.to_string();
                    let texts = Some((GANG_EVICTED, &*shortened(&why)));
                    set_condition(&mut next.conditions, type_, texts, at);
                }
                // It runs again.
                _ if report.phase == Phase::Running => {
                    set_condition(&mut next.conditions, type_, None, at);
                }
                _ => {}
            }
        }
        next
    }
}
