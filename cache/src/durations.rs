//! How long states last that no API object dates.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{incomplete::IncompleteJobs, snapshot::Snapshot, terminating::TerminatingPods};

/// What the snapshots so far have shown.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Durations {
    incomplete: IncompleteJobs,
    terminating: TerminatingPods,
}

impl Durations {
    /// Compares a snapshot with those before it, and completes it. `now` is the time since a fixed moment, and `date`
    /// what clocks show.
    pub fn observe(&mut self, snapshot: &mut Snapshot, now: Duration, date: Timestamp) {
        self.terminating.observe(&mut snapshot.cluster, now, date);
        self.incomplete.observe(snapshot, now);
    }
}
