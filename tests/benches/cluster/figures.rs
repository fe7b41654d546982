//! Figures from the audit log.

use std::collections::HashMap;

use jiff::Timestamp;
use kube_batch_testbed::audit::AuditEvent;

/// When the creation of each pod had ended.
pub(crate) fn created(events: &[AuditEvent]) -> HashMap<&str, Timestamp> {
    let is_creation = |event: &&AuditEvent| {
        event.verb == "create" && event.resource == "pods" && event.subresource.is_empty()
    };
    let creations = events.iter().filter(is_creation);
    creations.map(|event| (event.name.as_str(), event.completed)).collect()
}

pub(crate) fn milliseconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}

/// The smallest value that this many in a hundred values do not exceed; they are sorted.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let nth = (values.len() * percent).div_ceil(100).max(1);
    values.get(nth - 1).copied().unwrap_or(f64::NAN)
}
