//! Whether the scheduling loop makes progress.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// When the running cycle started, if one is running.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Option<Instant>>);

impl Health {
    /// Records that a cycle started or ended.
    pub(crate) fn set_cycle(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// How long the running cycle has taken.
    pub(crate) fn cycle_runs_for(&self) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }
}
