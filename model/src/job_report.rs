//! The result of a cycle for a job.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    decision::PodRef,
    facts::group::GroupFacts,
    name::{JobKey, Name},
    others::Others,
    problem::JobWarning,
    reason::Reason,
    resource::Share,
    text::shortened,
    why::{GangEviction, Why, Worded},
};

/// The phase of a PodGroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// The result of a cycle for a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobReport {
    /// Its key.
    pub key: JobKey,
    /// Its PodGroup, if it has one.
    pub group: Option<Arc<GroupFacts>>,
    /// Its queue, if that exists.
    pub queue: Option<Name>,
    /// Its phase after the cycle.
    pub phase: Phase,
    /// Number of tasks that must be placed before any of them starts.
    pub min_available: u32,
    /// Number of tasks.
    pub n_tasks: u32,
    /// Tasks that have a place, or had one in the best try of this cycle.
    pub n_fitting: u32,
    /// Waiting tasks after the first for which there was no place.
    pub n_remaining: u32,
    /// Whether its minimum, and at least one task, have a place.
    pub has_started: bool,
    /// Whether pods may be created for it: it has some, or its queue serves it and has room for what it requests at
    /// least.
    pub is_admitted: bool,
    /// Tasks that count towards the minimum: those that have a node, and those that succeeded.
    pub ready: u32,
    /// Running tasks.
    pub running: u32,
    /// Tasks that succeeded.
    pub succeeded: u32,
    /// Tasks that failed.
    pub failed: u32,
    /// Waiting tasks, without those that have scheduling gates.
    pub pending: u32,
    /// Number of tasks missing to its minimum. Tasks whose moves are only kept count as missing.
    pub lacking: u32,
    /// Why it cannot start, if it cannot.
    pub unschedulable: Option<Worded<Why>>,
    /// Its first pod, if it has no PodGroup on which mistakes could be reported.
    pub first_pod: Option<PodRef>,
    /// Mistakes in its objects.
    pub warnings: Vec<JobWarning>,
    /// Whether it had a turn.
    pub tried: bool,
    /// Why it was evicted as a whole, if it was and has not run since.
    pub evicted: Option<GangEviction>,
    /// Tasks that wait although the job had a turn. All waiting tasks, if the job is skipped because its
    /// queue or its PodGroup does not exist.
    pub unplaced: Vec<PodRef>,
    /// Why they wait; `None` if there are none.
    pub unplaced_because: Option<Worded<Why>>,
    /// The share by which it is ordered, when the cycle began.
    pub share: Option<Share>,
    /// If it started in this cycle, when it began to wait: the creation of the oldest task that was
    /// placed for it. It started if at least one task, and its minimum, have a place now and had not
    /// when the cycle began.
    pub waited_since: Option<Timestamp>,
}

impl JobReport {
    /// The reason and the words of why it cannot start, if it cannot.
    pub fn unschedulable_in_words(&self) -> Option<(Reason, &str)> {
        let why = self.unschedulable.as_ref()?;
        Some((why.reason(), why.words()))
    }

    /// How other jobs and queues keep it, or its pods, waiting; `None` if they do not.
    pub fn others(&self) -> Option<&Arc<Others>> {
        let whys = [&self.unschedulable, &self.unplaced_because].into_iter().flatten();
        let mut others = whys.filter_map(|why| match &**why {
            Why::NoPlace(why) => why.others.as_ref(),
            Why::Invalid(_) | Why::NotAdmitted(_) | Why::NotTried(_) => None,
        });
        others.next()
    }

    /// Reason and message of the condition [`MISCONFIGURED`]: the reason of the first mistake, and all
    /// messages.
    ///
    /// [`MISCONFIGURED`]: crate::object_status::MISCONFIGURED
    pub fn misconfigured(&self) -> Option<(&'static str, String)> {
        let messages: Vec<String> = self.warnings.iter().map(ToString::to_string).collect();
        let message = shortened(&messages.join("; ")).into_owned();
        Some((self.warnings.first()?.reason(), message))
    }
}
