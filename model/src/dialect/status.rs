//! Parts of a status that several APIs have.

use jiff::Timestamp;

use crate::{
    job_report::JobReport,
    object_status::{PodGroupCondition, PodGroupStatus},
};

/// Sets the numbers of tasks.
pub(super) fn write_counts(status: &mut PodGroupStatus, report: &JobReport) {
    let count = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    status.ready = count(report.ready);
    status.running = count(report.running);
    status.succeeded = count(report.succeeded);
    status.failed = count(report.failed);
}

/// The cycle that changes a status.
#[derive(Clone, Copy, Debug)]
pub struct Transition<'a> {
    /// Its id.
    pub cycle_id: &'a str,
    /// Its time.
    pub now: Timestamp,
}

/// Sets a condition to True with a reason and message, or to False if it is there.
pub(super) fn set_condition(
    conditions: &mut Vec<PodGroupCondition>,
    type_: &str,
    holds: Option<(&str, &str)>,
    at: Transition<'_>,
) {
    let (status, (reason, message)) = match holds {
        Some(why) => ("True", why),
        None => ("False", ("", "")),
    };
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        None if status == "False" => {}
        None => conditions.push(PodGroupCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            transition_id: at.cycle_id.to_owned(),
            last_transition_time: Some(at.now),
            reason: reason.to_owned(),
            message: message.to_owned(),
        }),
        Some(condition) => {
            if condition.status != status {
                condition.status = status.to_owned();
                condition.transition_id = at.cycle_id.to_owned();
                condition.last_transition_time = Some(at.now);
            }
            condition.reason = reason.to_owned();
            condition.message = message.to_owned();
        }
    }
}
