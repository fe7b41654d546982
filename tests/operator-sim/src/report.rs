//! What a simulation found.

use std::ops::AddAssign;

/// What was simulated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Episodes.
    pub n_episodes: u64,
    /// Requests, events of watches, and actions of users, controllers and faults.
    pub n_steps: u64,
    /// What the replicas did.
    pub counts: Counts,
}

/// What the replicas did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Pods that were bound.
    pub n_bindings: u64,
    /// Pods that were evicted.
    pub n_evictions: u64,
    /// Claims that were made for extended resources.
    pub n_claims: u64,
    /// Claims that were deallocated or deleted.
    pub n_deallocations: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.n_bindings += other.n_bindings;
        self.n_evictions += other.n_evictions;
        self.n_claims += other.n_claims;
        self.n_deallocations += other.n_deallocations;
    }
}

/// An episode in which a rule was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the episode: `--episode` runs it again.
    pub seed: u64,
    /// The rule.
    pub broken: String,
    /// What happened, after everything was left out that the failure does not need.
    pub script: String,
    /// The last lines of the trace.
    pub lines: Vec<String>,
}
