//! The figures of kube-batch v0.5.0.
//!
//! Measured on two cores with Go 1.19: whole cycles in memory, with the same clusters, and without an API
//! server. The fastest of some runs.

/// A time in seconds.
#[derive(Clone, Copy)]
pub(super) struct Time {
    pub(super) seconds: f64,
    /// Whether the cycle was stopped, and the rest estimated from what it had placed.
    pub(super) is_estimated: bool,
}

/// What v0.5.0 needs for a shape.
pub(super) struct Baseline {
    pub(super) shape: &'static str,
    /// As released.
    pub(super) stock: Option<Time>,
    /// Without the listing of pods for pod affinity: it decides the same here.
    pub(super) without_listing: Option<Time>,
    pub(super) peak_mb: u32,
}

const fn measured(seconds: f64) -> Option<Time> {
    Some(Time { seconds, is_estimated: false })
}

const fn estimated(seconds: f64) -> Option<Time> {
    Some(Time { seconds, is_estimated: true })
}

const fn row(
    shape: &'static str,
    stock: Option<Time>,
    without_listing: Option<Time>,
    peak_mb: u32,
) -> Baseline {
    Baseline { shape, stock, without_listing, peak_mb }
}

const HOUR: f64 = 3600.0;

/// What was measured. An empty time was not measured, or would be days.
pub(super) const BASELINES: [Baseline; 12] = [
    row("FILL-1000-10000-100", estimated(28.0 * HOUR), measured(82.6), 121),
    row("FILL-1000-10000-1", None, measured(95.4), 190),
    row("FILL-5000-10000-100", None, estimated(278.0), 161),
    row("FILL-10000-10000-100", None, estimated(485.0), 208),
    row("FILL-5000-50000-100", None, estimated(1.3 * HOUR), 456),
    row("FILL-10000-100000-100", None, estimated(5.7 * HOUR), 912),
    row("SAT-5000-10000-100", measured(1.13), measured(1.13), 985),
    row("SAT-5000-10000-1", measured(80.1), measured(80.1), 1574),
    row("STEADY-5000", None, measured(12.9), 712),
    row("IDLE-5000", measured(0.322), measured(0.322), 684),
    row("PREEMPT-5000-100", None, measured(22.4), 1343),
    row("RECLAIM-5000-1", None, measured(0.295), 681),
];

/// The figures for a shape.
pub(super) fn baseline(shape: &str) -> Option<&'static Baseline> {
    BASELINES.iter().find(|baseline| baseline.shape == shape)
}
