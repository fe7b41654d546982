//! How long a pod runs at most, as its manifest says.
// Parity: new, see docs/parity.md#a12.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::name::Name;

/// Annotation of a pod: how long it runs at most, such as `2h`.
pub const RUN_TIME: &str = "scheduling.sigs.dev/run-time";

/// How long a pod runs at most after its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunTime {
    /// The shorter of `spec.activeDeadlineSeconds` and the annotation [`RUN_TIME`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// The value of the annotation, if that is no duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<Name>,
}

impl RunTime {
    /// As a duration.
    pub fn duration(&self) -> Option<Duration> {
        self.seconds.map(Duration::from_secs)
    }
}
