//! When the next cycle may start: a budget of time.
//!
//! Cycles may take half of a core while changes keep coming. Time that they have not used is saved, up to [`SAVED`] of
//! it: so a change after a quiet while leads to a cycle at once, and so do the changes after that, as long as cycles are
//! short. A cycle takes all changes together that came before it, so a burst that is too fast for the budget is taken in
//! few cycles.
//!
//! While decisions wait to be sent, the next ones would wait behind them, and the API server needs the processors for
//! its answers. Cycles take one ninth of a core then.

use std::time::Duration;

use tokio::time::Instant;

/// Cycles take one part in this many of a core.
const SHARE: u32 = 2;
/// How much of the time of cycles is saved up.
const SAVED: Duration = Duration::from_millis(20);
/// The pause after a cycle while decisions wait to be sent, as a multiple of its duration.
const BUSY_REST: u32 = 8;
/// The shortest pause while decisions wait to be sent.
const SHORTEST_BUSY_REST: Duration = Duration::from_millis(10);
/// The longest pause between cycles while changes wait.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The budget of cycles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// When the budget is full again.
    full: Instant,
    /// When the next cycle may start.
    rested: Instant,
}

impl Pace {
    /// A full budget.
    pub(crate) const fn new(now: Instant) -> Self {
        Self { full: now, rested: now }
    }

    /// Records a cycle; `is_busy` says whether decisions wait to be sent.
    pub(crate) fn ran(&mut self, started: Instant, ended: Instant, is_busy: bool) {
        let duration = ended - started;
        self.full = self.full.max(started) + duration * SHARE;
        // While the budget lacks less than what can be saved, there is something left.
        let has_left = self.full.checked_sub(SAVED * SHARE).unwrap_or(ended);
        let not_busy =
            if is_busy { ended + (duration * BUSY_REST).max(SHORTEST_BUSY_REST) } else { ended };
        self.rested = has_left.max(not_busy).clamp(ended, ended + LONGEST_REST);
    }

    /// When the next cycle may start.
    pub(crate) const fn rested(&self) -> Instant {
        self.rested
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    /// How many milliseconds cycles rest that start as soon as they may, each after one of this duration.
    fn rests(pace: &mut Pace, mut now: Instant, duration: Duration, is_busy: bool) -> [u128; 100] {
        std::array::from_fn(|_| {
            let ended = now + duration;
            pace.ran(now, ended, is_busy);
            now = pace.rested();
            (now - ended).as_millis()
        })
    }

    #[test]
    fn short_cycles_start_at_once_until_the_budget_is_used() {
        let now = Instant::now() + Duration::from_secs(60);
        let mut pace = Pace::new(now);
        let rests = rests(&mut pace, now, 2 * MILLI, false);
        assert_eq!(rests[..20], [0; 20], "20 ms were saved, and another 20 ms meanwhile");
        assert_eq!(rests[20..], [2; 80], "half of the time");
    }

    #[test]
    fn a_budget_that_was_used_is_full_again_after_a_while() {
        let now = Instant::now() + Duration::from_secs(60);
        let mut pace = Pace::new(now);
        assert_eq!(rests(&mut pace, now, 5 * MILLI, false)[10..], [5; 90]);
        let later = pace.rested() + 2 * SAVED;
        assert_eq!(rests(&mut pace, later, 5 * MILLI, false)[..8], [0; 8]);
    }

    #[test]
    fn cycles_rest_longer_while_decisions_wait_to_be_sent() {
        let now = Instant::now() + Duration::from_secs(60);
        assert_eq!(rests(&mut Pace::new(now), now, 3 * MILLI, true), [24; 100]);
        assert_eq!(rests(&mut Pace::new(now), now, MILLI / 2, true), [10; 100]);
        assert_eq!(rests(&mut Pace::new(now), now, 500 * MILLI, true), [1000; 100]);
    }
}
