//! What a session knows of the actions of its cycle.

/// What a session knows of an action.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownAction {
    pub(crate) name: &'static str,
    /// Whether it may evict tasks.
    pub(crate) evicts: bool,
    /// Whether it evicts tasks of one queue for waiting tasks of another.
    pub(crate) reclaims: bool,
    /// Whether it places tasks that request nothing.
    pub(crate) places_best_effort: bool,
}
