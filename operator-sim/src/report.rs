//! What a simulation found.

/// What was simulated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Episodes.
    pub n_episodes: u64,
    /// Requests, events of watches, and actions of users, controllers and faults.
    pub n_steps: u64,
    /// Pods that were bound.
    pub n_bindings: u64,
    /// Pods that were evicted.
    pub n_evictions: u64,
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
