//! Whether the scheduler goes on.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Since when a cycle has been running, if one is.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Option<Instant>>);

impl Health {
    /// A cycle begins or ends.
    pub(crate) fn set_cycle(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// How long the cycle that is running has been.
    pub(crate) fn cycle_runs_for(&self) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }
}
