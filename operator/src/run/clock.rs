//! The time of day.
//!
//! It is written into objects and compared with times in them. Durations are measured with
//! [`tokio::time::Instant`], because the time of day may be set. Where too little must never be measured,
//! they are measured with both, as [`Moment`] does: the monotonic clock of a virtual machine stands still
//! while that is suspended.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

/// A source of the time of day, which a simulation replaces.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The clock of this machine.
    pub fn system() -> Self {
        Self::new(Timestamp::now)
    }

    /// A clock that shows what a function returns.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// This moment.
    pub(crate) fn moment(&self) -> Moment {
        Moment { wall: self.now(), monotonic: Instant::now() }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

#[cfg(test)]
impl Clock {
    /// A clock for tests on simulated time, which is set this many seconds ahead.
    pub(crate) fn ahead(seconds: &Arc<std::sync::atomic::AtomicI64>) -> Self {
        let (start, seconds) = (Instant::now(), Arc::clone(seconds));
        Self::new(move || {
            let ahead = seconds.load(std::sync::atomic::Ordering::Relaxed);
            Timestamp::from_second(1_800_000_000 + ahead).expect("a time") + start.elapsed()
        })
    }
}

/// A moment, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) monotonic: Instant,
    /// The time of day.
    pub(crate) wall: Timestamp,
}

impl Moment {
    /// How much time has passed since `earlier`, by the clock that shows more.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        let wall = self.wall.duration_since(earlier.wall);
        let monotonic = self.monotonic.saturating_duration_since(earlier.monotonic);
        // It may have been set back.
        Duration::try_from(wall).unwrap_or_default().max(monotonic)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}
