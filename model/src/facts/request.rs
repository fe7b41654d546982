//! The amounts that scores count for a pod.

use serde::{Deserialize, Serialize};

/// Amounts as scores count them: containers that name none count 100 milli-CPU and 200 Mi.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScoringAmounts {
    /// Milli-CPU.
    pub cpu_milli: i64,
    /// Bytes of memory.
    pub memory_bytes: i64,
}
