//! Points of a cycle, for those who measure it.

/// A point of a cycle that was reached, for those who measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// Every job has been asked whether it can be scheduled.
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
