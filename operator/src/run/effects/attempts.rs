//! When a write that failed is tried again, and for how long.

use std::time::Duration;

use tokio::time::Instant;

/// How long a write is tried again.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);
/// The first pause between attempts, doubled with each one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause, unless the server asks for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The attempts to send one write that have failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    n_failed: u32,
    /// When the first was made.
    first: Option<Instant>,
}

impl Attempts {
    /// Records that an attempt failed that was sent at `sent`, and returns when the next one is due;
    /// `None` if there were enough.
    pub(super) fn failed(
        &mut self,
        sent: Instant,
        now: Instant,
        retry_after: Duration,
    ) -> Option<Instant> {
        let first = *self.first.get_or_insert(sent);
        let pause = self.next_pause();
        (now + pause <= first + RETRY_TIMEOUT)
            .then(|| now + pause.max(retry_after.min(RETRY_TIMEOUT)))
    }

    /// Records a failed attempt of a write that is tried until it succeeds, and returns the pause.
    pub(super) fn next_pause(&mut self) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.n_failed.min(10)).min(LONGEST_PAUSE);
        self.n_failed += 1;
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_attempts_end() {
        let start = Instant::now();
        let (mut attempts, mut now, mut pauses) = (Attempts::default(), start, Vec::new());
        while let Some(due) = attempts.failed(now, now, Duration::ZERO) {
            pauses.push((due - now).as_millis());
            now = due;
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert!(now - start <= RETRY_TIMEOUT);
    }

    #[test]
    fn a_longer_pause_that_the_server_asks_for_is_respected() {
        let now = Instant::now();
        let due = |seconds| Attempts::default().failed(now, now, Duration::from_secs(seconds));
        assert_eq!(due(7), Some(now + Duration::from_secs(7)));
        assert_eq!(due(3600), Some(now + RETRY_TIMEOUT));
    }
}
