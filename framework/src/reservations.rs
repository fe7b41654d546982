//! Reservations: room that is kept for a job that has waited long, until it is enough for the job to start.
//!
//! A reservation names nodes and amounts there. They count as nominated, so that a search for other jobs does not find
//! them. For the turn of a job that may use them they are *lifted*: they count as free. The nodes are chosen again in
//! each cycle. Since those are chosen on which least has to become free, and nothing new starts there, that amount never
//! grows from one cycle to the next.
// Parity: new, see docs/parity.md#a12.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube_batch_model::{
    column::{JobIdx, NodeIdx, TaskIdx},
    name::{JobKey, Name},
    pairs,
    resource::ResourceVector,
};
use serde::{Deserialize, Serialize};

use crate::plugin::ReservationTerms;

/// More often it is not doubled: 2^16 hours are years.
const MAX_DOUBLED: u32 = 16;

/// What is kept for a job.
#[derive(Clone, Debug)]
pub struct Reservation {
    /// The job.
    pub job: JobIdx,
    /// Since when the job has waited.
    pub since: Timestamp,
    /// When all of it is free at the latest, if the pods there say how long they run.
    pub start: Option<Timestamp>,
    /// Whether the queue of the job would hold more than it deserves with it.
    pub is_above_share: bool,
    /// The amounts on each node.
    pub amounts: Arc<BTreeMap<NodeIdx, ResourceVector>>,
    /// The amounts on all nodes together.
    pub total: ResourceVector,
    pub(crate) is_lifted: bool,
}

/// The reservations of a cycle.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    pub(crate) terms: Option<ReservationTerms>,
    /// The one that has waited longest first.
    pub(crate) list: Vec<Reservation>,
    /// The tasks that run and started from a reservation above the share of their queue.
    pub(crate) protected: Vec<TaskIdx>,
    /// How many pairs of a node and a class may still be compared for the queue in hand.
    pub(crate) steps_left: usize,
    /// What is remembered of earlier cycles, and then of this one.
    pub(crate) memory: ReservationMemory,
    /// After which time another job may get one.
    pub(crate) next: Option<Duration>,
}

/// What is remembered from cycle to cycle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReservationMemory {
    /// When jobs were last seen that could not be scheduled, until they start or are gone.
    #[serde(with = "pairs")]
    pub(crate) not_ready: BTreeMap<JobKey, Timestamp>,
    /// When a job of a queue was last seen to run that had started from a reservation above the share of the queue.
    pub(crate) above_share: BTreeMap<Name, Timestamp>,
    /// How long jobs have been waited for.
    #[serde(with = "pairs")]
    pub(crate) patience: BTreeMap<JobKey, Patience>,
}

impl ReservationMemory {
    pub(crate) const fn new() -> Self {
        Self { not_ready: BTreeMap::new(), above_share: BTreeMap::new(), patience: BTreeMap::new() }
    }
}

impl Reservations {
    pub(crate) fn index_of(&self, job: JobIdx) -> Option<usize> {
        self.list.iter().position(|reservation| reservation.job == job)
    }
}

/// How long a job has been waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Patience {
    /// The least that had to become free, in millionths of a node, and since when.
    pub(crate) least: i64,
    pub(crate) since: Timestamp,
    /// How often its reservation was given up.
    pub(crate) n_given_up: u32,
    /// When the last one was.
    pub(crate) given_up_at: Option<Timestamp>,
}

impl Patience {
    pub(crate) fn period(self, terms: ReservationTerms) -> Duration {
        terms.patience.saturating_mul(1 << self.n_given_up.min(MAX_DOUBLED))
    }
}

/// How a turn finds places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finds {
    /// Only where there is room.
    Room,
    /// Also by evicting tasks.
    Victims,
}

/// A time after another one; the last there is if it is too far away.
pub(crate) fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}
