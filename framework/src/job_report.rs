//! The result of a cycle for a job.

use std::sync::Arc;

use jiff::Timestamp;
use kube_batch_api::{
    decision::{EvictReason, PodRef},
    dialect::{GroupReport, Phase},
    facts::group::GroupFacts,
    name::{JobKey, Name},
    reason::JobWarning,
    resource::Share,
};

/// The result of a cycle for a job.
#[derive(Clone, Debug, PartialEq)]
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
    /// Whether pods may be created for it: what it requests at least fits into its queue's limits, and into
    /// what is idle or being released.
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
    /// Reason and message, if it cannot start.
    pub unschedulable: Option<(&'static str, String)>,
    /// Its first pod, if it has no PodGroup on which mistakes could be reported.
    pub first_pod: Option<PodRef>,
    /// Mistakes in its objects.
    pub warnings: Vec<JobWarning>,
    /// Whether it had a turn.
    pub tried: bool,
    /// Why it was evicted as a whole, if it was and has not run since.
    pub evicted: Option<(EvictReason, String)>,
    /// Tasks that wait although the job had a turn. All waiting tasks, if the job is skipped because its
    /// queue or its PodGroup does not exist.
    pub unplaced: Vec<PodRef>,
    /// Why they wait; empty if there are none.
    pub unplaced_because: String,
    /// The reason of their condition.
    pub unplaced_reason: &'static str,
    /// The share by which it is ordered, when the cycle began.
    pub share: Option<Share>,
    /// If it started in this cycle, when it began to wait: the creation of the oldest task that was
    /// placed for it. It started if at least one task, and its minimum, have a place now and had not
    /// when the cycle began.
    pub waited_since: Option<Timestamp>,
}

impl JobReport {
    /// Reason and message of the condition [`MISCONFIGURED`]: the reason of the first mistake, and all
    /// messages.
    ///
    /// [`MISCONFIGURED`]: kube_batch_api::crd::MISCONFIGURED
    pub fn misconfigured(&self) -> Option<(&'static str, String)> {
        let messages: Vec<String> = self.warnings.iter().map(ToString::to_string).collect();
        Some((self.warnings.first()?.reason(), messages.join("; ")))
    }

    /// What is reported of its PodGroup, if it has one.
    pub fn of_group(&self) -> Option<GroupReport<'_>> {
        let evicted = self.evicted.as_ref();
        let unschedulable = self.unschedulable.as_ref();
        Some(GroupReport {
            group: self.group.as_deref()?,
            phase: self.phase,
            min_available: self.min_available,
            n_tasks: self.n_tasks,
            n_fitting: self.n_fitting,
            n_remaining: self.n_remaining,
            has_started: self.has_started,
            is_admitted: self.is_admitted,
            ready: self.ready,
            running: self.running,
            succeeded: self.succeeded,
            failed: self.failed,
            unschedulable: unschedulable.map(|(reason, message)| (*reason, message.as_str())),
            misconfigured: self.misconfigured(),
            evicted: evicted.map(|(reason, message)| (*reason, message.as_str())),
        })
    }
}
