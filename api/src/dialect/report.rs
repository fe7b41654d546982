//! What a cycle reports of a PodGroup, from which its dialect makes the status.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    crd::{PodGroupCondition, PodGroupStatus},
    decision::EvictReason,
    facts::group::GroupFacts,
};

/// The phase of a PodGroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Fewer tasks than the minimum are placed.
    Pending,
    /// At least the minimum are placed.
    Running,
    /// Some run, but the minimum cannot be reached.
    Unknown,
    /// All tasks have finished.
    // Parity: new, see docs/parity.md#e4.
    Completed,
}

impl Phase {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Running, Self::Unknown, Self::Completed];

    /// The name in the status of a PodGroup.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Unknown => "Unknown",
            Self::Completed => "Completed",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a cycle reports of a PodGroup.
#[derive(Clone, Debug)]
pub struct GroupReport<'a> {
    /// The PodGroup, with the status as stored.
    pub group: &'a GroupFacts,
    /// Its phase.
    pub phase: Phase,
    /// Its minimum.
    pub min_available: u32,
    /// Number of its tasks.
    pub n_tasks: u32,
    /// Number of tasks that have a place, or had one in the best try of this cycle.
    pub n_fitting: u32,
    /// Number of waiting tasks after the first for which there was no place.
    pub n_remaining: u32,
    /// Whether its minimum, and at least one task, have a place.
    pub has_started: bool,
    /// Whether pods may be created for it: what it requests at least fits into its queue's limits, and into
    /// what is idle or being released.
    pub is_admitted: bool,
    /// Number of tasks that count towards the minimum.
    pub ready: u32,
    /// Number of running tasks.
    pub running: u32,
    /// Number of tasks that succeeded.
    pub succeeded: u32,
    /// Number of tasks that failed.
    pub failed: u32,
    /// Reason and message, if it cannot start.
    pub unschedulable: Option<(&'static str, &'a str)>,
    /// Reason and message of the mistakes in its objects, if there are any.
    pub misconfigured: Option<(&'static str, String)>,
    /// Why it was evicted as a whole, if it was and has not run since.
    pub evicted: Option<(EvictReason, &'a str)>,
}

impl GroupReport<'_> {
    /// Writes the numbers of tasks.
    pub(super) fn write_counts(&self, status: &mut PodGroupStatus) {
        let count = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        status.ready = count(self.ready);
        status.running = count(self.running);
        status.succeeded = count(self.succeeded);
        status.failed = count(self.failed);
    }
}

/// When conditions change that a cycle changes.
#[derive(Clone, Copy, Debug)]
pub struct Transition<'a> {
    /// The id of the cycle.
    pub cycle_id: &'a str,
    /// The time.
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
            last_transition_time: Some(Time(at.now)),
            reason: reason.to_owned(),
            message: message.to_owned(),
        }),
        Some(condition) => {
            if condition.status != status {
                condition.status = status.to_owned();
                condition.transition_id = at.cycle_id.to_owned();
                condition.last_transition_time = Some(Time(at.now));
            }
            condition.reason = reason.to_owned();
            condition.message = message.to_owned();
        }
    }
}
