//! What the benchmark of cycles measures, as it prints it and as the documents show it.

use std::fs;

use serde::{Deserialize, Serialize};

/// The committed figures, below the root of the repository: one shape a line.
pub const PATH: &str = "tests/figures/cycles.jsonl";

/// The figures of one shape; written as one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// The name of the shape.
    pub shape: String,
    /// The fastest snapshot.
    pub snapshot_ms: f64,
    /// The fastest cycle, without its snapshot.
    pub cycle_min_ms: f64,
    /// The first cycle of a shape with devices, which sorts the devices; the others find them sorted, as in a
    /// scheduler that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ms: Option<f64>,
    /// The median of the cycles.
    pub cycle_median_ms: f64,
    /// The fastest of the cycles after the first, with its snapshot.
    pub next_ms: f64,
    /// Pods bound.
    pub binds: usize,
    /// Pods evicted.
    pub evictions: usize,
    /// Pods nominated.
    pub nominations: usize,
    /// Peak memory of a process that builds the shape and runs the cycles.
    pub peak_mb: f64,
}

impl Figures {
    /// The figures without digits that mean nothing: microseconds, and tenths of a MB.
    #[must_use]
    pub fn rounded(self) -> Self {
        let ms = |ms: f64| (ms * 1e3).round() / 1e3;
        Self {
            snapshot_ms: ms(self.snapshot_ms),
            cycle_min_ms: ms(self.cycle_min_ms),
            first_ms: self.first_ms.map(ms),
            cycle_median_ms: ms(self.cycle_median_ms),
            next_ms: ms(self.next_ms),
            peak_mb: (self.peak_mb * 10.0).round() / 10.0,
            ..self
        }
    }
}

/// Peak memory of this process, in MB.
///
/// # Panics
///
/// If the kernel does not report it.
pub fn peak_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux reports the process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kb.expect("Linux reports the peak") / 1024.0
}
