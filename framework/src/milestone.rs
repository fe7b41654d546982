//! Milestones of a cycle, for measuring how long its parts take.

use kube_batch_model::decision::Decision;

/// A point that a cycle has reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Milestone<'a> {
    /// Jobs that cannot be scheduled are marked.
    Validated,
    /// A plugin has opened the session.
    PluginOpened(&'static str),
    /// The session is open, and nominations are renewed.
    Opened,
    /// An action has run.
    Acted(&'static str),
    /// These are all decisions of the cycle, in order. Its report is not written yet.
    Decided(&'a [Decision]),
    /// The report is written.
    Closed,
}
