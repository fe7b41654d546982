//! Times in whole seconds.

use jiff::Timestamp;
use serde::{Serialize, Serializer};

/// A time as Kubernetes writes it.
pub(crate) fn in_seconds<S: Serializer>(
    time: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).serialize(serializer)
}
