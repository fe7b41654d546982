//! What is carried between replicas and the server, and what goes wrong with it.

use serde_json::Value;

/// What is wrong with the connections of a replica, as probabilities for each request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// The request does not arrive, and no error is returned.
    pub(crate) loses_request: f64,
    /// The answer does not arrive, and no error is returned.
    pub(crate) loses_answer: f64,
    /// The connection breaks before the request arrives or before the answer does.
    pub(crate) resets: f64,
    /// The server answers that it cannot.
    pub(crate) fails: f64,
    /// The request arrives twice.
    pub(crate) repeats: f64,
    /// The longest time on the way, in milliseconds, in addition to the usual one.
    pub(crate) delay_ms: u64,
    /// The longest time until a watch shows a change, in milliseconds, in addition to the usual one.
    pub(crate) watch_delay_ms: u64,
    /// Nothing passes, in either direction.
    pub(crate) is_silent: bool,
}

/// What the admission webhooks of a namespace do with bindings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Admission {
    #[default]
    Accepts,
    /// They reject those of every second pod.
    RejectsHalf,
    RejectsAll,
    /// They do not answer: the server waits, and then fails.
    IsDead,
}

/// A request as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) process: usize,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) body: Value,
}
