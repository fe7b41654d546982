//! Kubernetes' own PodGroups.
//!
//! Controllers and autoscalers wait for the condition PodGroupInitiallyScheduled, so this scheduler writes it
//! as kube-scheduler does. While the gang cannot start, it is False with the reason Unschedulable; its message
//! begins with the numbers that kube-scheduler reports and ends with our own text. Once the gang has started,
//! it is True and never changes again. Unlike kube-scheduler, this scheduler also writes it when pods are
//! missing.
//!
//! Source: `pkg/scheduler/schedule_one_podgroup.go` and `plugins/gangscheduling` of Kubernetes 1.37.1.
// Parity: see docs/parity.md#k1.

use super::{spec::StatusDialect, status::Transition};
use crate::{
    job_report::JobReport,
    object_status::{PodGroupCondition, PodGroupStatus},
    reason::Reason,
};

/// The condition that reports whether a gang has started.
pub const INITIALLY_SCHEDULED: &str = "PodGroupInitiallyScheduled";
/// The reason of a gang that cannot start.
const UNSCHEDULABLE: &str = "Unschedulable";

pub(super) struct Kubernetes;

impl StatusDialect for Kubernetes {
    fn next_status(
        &self,
        stored: &PodGroupStatus,
        report: &JobReport,
        at: Transition<'_>,
    ) -> PodGroupStatus {
        let mut next = stored.clone();
        let known = next.conditions.iter().find(|condition| condition.type_ == INITIALLY_SCHEDULED);
        if known.is_some_and(|condition| condition.status == "True") {
            return next;
        }
        if report.has_started {
            set(&mut next.conditions, ("True", "Scheduled", String::new()), at);
        } else if let Some((reason, words)) = report.unschedulable_in_words() {
            let (reason, message) = if reason == Reason::SchedulerError {
                (reason.as_str(), words.to_owned())
            } else {
                (UNSCHEDULABLE, not_satisfied(report, words))
            };
            set(&mut next.conditions, ("False", reason, message), at);
        }
        next
    }

    fn reports(&self, status: &PodGroupStatus, _: &str, message: &str) -> bool {
        let mut conditions = status.conditions.iter();
        conditions.any(|own| own.type_ == INITIALLY_SCHEDULED && own.message.contains(message))
    }
}

/// Why a gang waits: the text of kube-scheduler, which programs may parse, and then our own.
fn not_satisfied(report: &JobReport, message: &str) -> String {
    let JobReport { min_available, n_fitting, n_remaining, .. } = report;
    format!(
        "minCount ({min_available}) cannot be satisfied: {n_fitting} scheduled, {n_remaining} \
         remaining, {message}"
    )
}

/// Sets the condition. As kube-scheduler does, the time changes only with the status.
fn set(
    conditions: &mut Vec<PodGroupCondition>,
    (status, reason, message): (&str, &str, String),
    at: Transition<'_>,
) {
    let known = conditions.iter().position(|condition| condition.type_ == INITIALLY_SCHEDULED);
    let known = known.unwrap_or_else(|| {
        let type_ = INITIALLY_SCHEDULED.to_owned();
        conditions.push(PodGroupCondition { type_, ..PodGroupCondition::default() });
        conditions.len() - 1
    });
    let condition = &mut conditions[known];
    if condition.status != status {
        condition.status = status.to_owned();
        condition.last_transition_time = Some(at.now);
    }
    condition.reason = reason.to_owned();
    condition.message = message;
}
