//! What a scheduler remembers from one cycle to the next, so that jobs which find no place take a bounded
//! part of each cycle.
//!
//! - A job that found no place is not tried again while nothing has changed that could help it:
//!   `job_input.rs` has what that is. The report of the job is that of its last try, which may be older than what a
//!   later turn of this cycle decides.
//! - Turns in vain, which lead to no decision, may take a part of the work of each action, which the
//!   queues with waiting jobs divide equally. A queue that has used its part gets no more turns in this
//!   action. In the next cycle the jobs that had a turn are left out, until each job of the queue had
//!   one: that is a round.
//!
//! It also remembers which gangs were evicted as a whole, until they run again or are gone, which had Jobs of `batch`, how far PodGroups
//! with `minResources` have come, and what decides since when jobs wait for a reservation.
//!
//! Work is counted in evaluations of a node for a class of tasks, which take about 60 ns, and not in time, so that the
//! same snapshots lead to the same decisions. What takes longer counts as several evaluations, and comparing amounts as
//! a part of one.
// Parity: new, see docs/parity.md#o4 and docs/parity.md#o5.

pub mod written;

use std::collections::{BTreeMap, BTreeSet};

use kube_batch_model::{
    name::{JobKey, Name},
    why::GangEviction,
};

use crate::{
    cluster_input::ClusterInput, credit::Credits, headroom::HeadroomMemory,
    last_reports::LastReports, reservations::ReservationMemory, tried::LastTry,
};

/// The default of [`Memory::with_budget`]: about 25 ms.
pub const DEFAULT_BUDGET: u64 = 400_000;

/// What is remembered. Begin with a new one when the configuration changes.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(crate) budget: u64,
    /// Whether jobs may be left out because nothing has changed.
    pub(crate) recalls: bool,
    pub(crate) generation: Option<u64>,
    /// The jobs that had a turn in a round that is not complete, by action and queue.
    pub(crate) rounds: BTreeMap<(&'static str, Name), BTreeSet<JobKey>>,
    /// What of the cluster the tries of the last cycle depended on; `None` if that is not known.
    pub(crate) input: Option<ClusterInput>,
    /// The jobs that found no place in the last cycle, in the order of their rows.
    pub(crate) tries: Vec<LastTry>,
    /// The gangs that were evicted as a whole and have not run since: their statuses may not be written yet.
    pub(crate) evicted: BTreeMap<JobKey, GangEviction>,
    /// The jobs that had Jobs of `batch`, and no other pods since: if they have neither any more, these were deleted.
    pub(crate) with_batch: BTreeSet<JobKey>,
    /// The PodGroups that have headroom in their queue, or may get it or had it.
    pub(crate) headroom: HeadroomMemory,
    pub(crate) reservations: ReservationMemory,
    pub(crate) credits: Credits,
    pub(crate) reports: LastReports,
}

impl Default for Memory {
    fn default() -> Self {
        Self::with_budget(DEFAULT_BUDGET)
    }
}

impl Memory {
    /// Nothing yet. `budget` is how many evaluations of nodes the turns in vain of an action may take in a
    /// cycle.
    pub fn with_budget(budget: u64) -> Self {
        Self {
            budget,
            recalls: true,
            generation: None,
            rounds: BTreeMap::new(),
            input: None,
            tries: Vec::new(),
            evicted: BTreeMap::new(),
            with_batch: BTreeSet::new(),
            headroom: HeadroomMemory::new(),
            reservations: ReservationMemory::new(),
            credits: Credits::new(),
            reports: LastReports::default(),
        }
    }

    /// No memory: every job is tried in every cycle.
    pub fn none() -> Self {
        Self { recalls: false, ..Self::with_budget(u64::MAX) }
    }

    /// Says which state of the cluster the next snapshot shows: a number that is a new one whenever
    /// anything has changed but waiting pods, claims that were made for them, and PodGroups. Without it, every
    /// job is tried.
    pub const fn set_generation(&mut self, generation: u64) {
        self.generation = if self.recalls { Some(generation) } else { None };
    }
}
