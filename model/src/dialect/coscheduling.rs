//! PodGroups of the coscheduling plugin of scheduler-plugins.
//!
//! Their status has no conditions. Why a gang waits is reported in the conditions of its pods and in events.
//! The phases are those that the controller of scheduler-plugins sets; do not run it beside this scheduler.
//!
//! Source: `pkg/controllers/podgroup_controller.go` of scheduler-plugins.
// Parity: see docs/parity.md#k3.

use super::{
    spec::StatusDialect,
    status::{Transition, write_counts},
};
use crate::{
    job_report::{JobReport, Phase},
    object_status::PodGroupStatus,
};

pub(super) struct Coscheduling;

impl StatusDialect for Coscheduling {
    fn next_status(
        &self,
        stored: &PodGroupStatus,
        report: &JobReport,
        _: Transition<'_>,
    ) -> PodGroupStatus {
        let mut next = stored.clone();
        write_counts(&mut next, report);
        next.ready = 0;
        next.phase = phase(report).to_owned();
        next
    }

    fn has_conditions(&self) -> bool {
        false
    }
}

/// The phase as the controller of scheduler-plugins derives it.
fn phase(report: &JobReport) -> &'static str {
    let JobReport { running, succeeded, failed, min_available, n_tasks, ready, .. } = *report;
    let min = min_available.max(1);
    if n_tasks < min {
        "Pending"
    } else if succeeded >= min && report.phase == Phase::Completed {
        "Finished"
    } else if failed > 0 && failed + running + succeeded >= min {
        "Failed"
    } else if running + succeeded >= min {
        "Running"
    } else if ready >= min {
        "Scheduled"
    } else {
        "Scheduling"
    }
}
