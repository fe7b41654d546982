//! How many topology domains are tried before the job waits.
// Parity: see docs/parity.md#t2.

/// At least this many.
const MIN_TRIES: usize = 8;

/// Further ones are tried until this many placements have failed, so that a gang costs a bounded number of them.
/// Guessed: some milliseconds.
const MAX_PLACEMENTS: usize = 10_000;

/// What a try counts for besides its placements.
const LEAST_COST: usize = 10;

/// The domains tried so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DomainBudget {
    n_tries: usize,
    n_placements: usize,
}

impl DomainBudget {
    /// Counts a try that placed this many tasks.
    pub(crate) const fn count(&mut self, n_placements: usize) {
        self.n_tries += 1;
        self.n_placements += LEAST_COST + n_placements;
    }

    /// Whether no further domain is to be tried. `is_expensive` says that a try costs far more than its
    /// placements.
    pub(crate) const fn is_used_up(self, is_expensive: bool) -> bool {
        self.n_tries >= MIN_TRIES && (is_expensive || self.n_placements >= MAX_PLACEMENTS)
    }
}
