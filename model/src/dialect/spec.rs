//! What a dialect says of statuses.

use super::status::Transition;
use crate::{
    job_report::JobReport,
    object_status::{PodGroupCondition, PodGroupStatus, QueueStatus},
};

/// What the status of the objects of one API says.
pub trait StatusDialect: Sync {
    /// Returns the status of a PodGroup after a cycle. It may differ from the stored status only in fields
    /// that the API has: a field that the API server drops would be written again in every cycle.
    fn next_status(
        &self,
        stored: &PodGroupStatus,
        report: &JobReport,
        at: Transition<'_>,
    ) -> PodGroupStatus;

    /// Whether the status of a PodGroup has conditions that say why it waits.
    fn has_conditions(&self) -> bool {
        true
    }

    /// Whether controllers create the pods of a PodGroup only once its phase says that it is admitted.
    fn waits_for_admission(&self) -> bool {
        false
    }

    /// Whether the status of a PodGroup says that its pods may be created, where controllers wait for that.
    fn is_admitted(&self, _status: &PodGroupStatus) -> bool {
        false
    }

    /// Whether a condition of this type in a stored status begins with this message already, numbers aside.
    fn reports(&self, status: &PodGroupStatus, condition: &str, message: &str) -> bool {
        let is_same = |own: &PodGroupCondition| begins_with(&own.message, message);
        let mut conditions = status.conditions.iter().filter(|own| own.type_ == condition);
        conditions.any(|own| own.status == "True" && is_same(own))
    }

    /// Returns the status of a queue after a cycle. `next` has all the fields of our own queues.
    fn next_queue_status(&self, _stored: &QueueStatus, next: QueueStatus) -> QueueStatus {
        next
    }
}

/// Whether a text is the beginning of another, apart from numbers.
fn begins_with(text: &str, beginning: &str) -> bool {
    let words = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    words(text).starts_with(&words(beginning))
}
