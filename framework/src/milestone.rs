//! Milestones of a cycle, for measuring how long its parts take.

/// A point that a cycle has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// Jobs that cannot be scheduled are marked.
    Validated,
    /// A plugin has opened the session.
    PluginOpened(&'static str),
    /// The session is open, and nominations are renewed.
    Opened,
    /// An action has run.
    Acted(&'static str),
    /// The report is written.
    Closed,
}
