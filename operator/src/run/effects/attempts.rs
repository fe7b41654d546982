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
    /// Whether an attempt has failed. It may have been done even so.
    pub(super) const fn has_failed(&self) -> bool {
        self.n_failed > 0
    }

    /// Records that an attempt failed that was sent at `sent`, and returns when the next one is due;
    /// `None` if there were enough.
    pub(super) fn failed(
        &mut self,
        sent: Instant,
        now: Instant,
        retry_after: Duration,
        spread: Spread,
    ) -> Option<Instant> {
        let first = *self.first.get_or_insert(sent);
        let pause = self.next_pause(spread);
        (now + pause <= first + RETRY_TIMEOUT)
            .then(|| now + pause.max(retry_after.min(RETRY_TIMEOUT)))
    }

    /// Records a failed attempt of a write that is tried until it succeeds, and returns the pause.
    pub(super) fn next_pause(&mut self, spread: Spread) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.n_failed.min(10)).min(LONGEST_PAUSE);
        self.n_failed += 1;
        pause - spread.part_of(pause / 2)
    }
}

/// By how much the pauses of a write are shorter, up to a half: writes that failed together, because
/// their connection broke, would otherwise be sent together again, and fail together. It follows from the
/// number of the write, so that a simulation can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spread(u64);

impl Spread {
    /// That of the write with this number.
    pub(super) const fn of(number: u64) -> Self {
        Self(number)
    }

    fn part_of(self, pause: Duration) -> Duration {
        // Neighbours are far apart: a multiple of the golden ratio.
        let thousandths = self.0.wrapping_mul(618) % 1000;
        pause * u32::try_from(thousandths).unwrap_or(0) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_attempts_end() {
        let start = Instant::now();
        let (mut attempts, mut now, mut pauses) = (Attempts::default(), start, Vec::new());
        while let Some(due) = attempts.failed(now, now, Duration::ZERO, Spread::of(0)) {
            pauses.push((due - now).as_millis());
            now = due;
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert!(now - start <= RETRY_TIMEOUT);
    }

    #[test]
    fn writes_that_failed_together_are_not_sent_together_again() {
        let pauses = (0..100).map(|n| Attempts::default().next_pause(Spread::of(n)));
        let different: std::collections::BTreeSet<Duration> = pauses.collect();
        assert_eq!(different.len(), 100);
        assert!(different.iter().all(|pause| (FIRST_PAUSE / 2..=FIRST_PAUSE).contains(pause)));
    }

    #[test]
    fn a_longer_pause_that_the_server_asks_for_is_respected() {
        let now = Instant::now();
        let due = |seconds| {
            let after = Duration::from_secs(seconds);
            Attempts::default().failed(now, now, after, Spread::of(0))
        };
        assert_eq!(due(7), Some(now + Duration::from_secs(7)));
        assert_eq!(due(3600), Some(now + RETRY_TIMEOUT));
    }
}
