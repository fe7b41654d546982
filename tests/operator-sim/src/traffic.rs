//! What is carried between replicas and the server, and what goes wrong with it.

use bytes::Bytes;
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

/// What is wrong with the watches of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchFault {
    /// Two neighbouring changes, of different objects, are shown the wrong way round. An API server does not do that:
    /// it shows the changes of a kind in the order of their versions. A proxy that reads ahead on several connections
    /// might.
    SwapsObjects,
    /// Two neighbouring changes of one object are shown the wrong way round.
    SwapsVersions,
    /// The API server that answers is behind the others, by this many milliseconds at most. Its bookmarks may be of a
    /// version before the one from which the watch was to go on.
    IsStale { millis: u64 },
    /// No bookmarks are sent, except at the end of a list.
    HasNoBookmarks,
}

/// A change that a watch has not sent yet, although it has sent the next one. If the watch breaks now, the watch that
/// resumes after that version begins with this change: no API server skips a change, and a client could not notice it.
#[derive(Clone, Debug)]
pub(crate) struct Overtaken {
    pub(crate) line: Bytes,
    /// The version of the change that was sent instead.
    pub(crate) by: u64,
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
