//! What a failed list or watch means.

use std::time::Duration;

use kube::core::Status;
use kube_batch_cache::history::Version;

use crate::run::error;

/// What was asked of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskedFor {
    /// A list as a stream.
    Stream,
    /// A list, or a page of one.
    List,
    /// A watch that continues from a version.
    Watch,
}

/// A list or watch that failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// The API server answered that it cannot.
    Status(AskedFor, Box<Status>),
    /// There was no connection, or it broke.
    Transport(kube::Error),
    /// There was no answer for this time.
    Silent(Duration),
    /// The stream ended before the list was complete.
    Incomplete,
    /// The list or bookmark has no version, or one that is no number.
    NoVersion,
    /// What the API server shows is older than what it has shown before.
    Old { version: Version, seen: Version },
}

impl Failed {
    /// From an error of a client.
    pub(super) fn of(phase: AskedFor, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Status(phase, status),
            error => Self::Transport(error),
        }
    }
}

/// What a failure means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WatchFailure {
    /// The API server does not serve the kind.
    Absent,
    /// The API server does not stream lists: one that does not know how calls the request invalid.
    CannotStream,
    /// The API server no longer knows what changed since.
    Expired,
    /// The API server asks for a pause, as one that has only just learnt of the kind does.
    Busy,
    /// The API server does not permit it, for this reason.
    Forbidden(String),
    /// The API server has an older state than it has shown, as after it was restored from a backup.
    Old(String),
    /// Anything else, with its text.
    Other(String),
}

impl WatchFailure {
    pub(super) fn of(failed: Failed) -> Self {
        match failed {
            Failed::Status(phase, status) => match (status.code, phase) {
                (404, _) => Self::Absent,
                (400 | 422, AskedFor::Stream) => Self::CannotStream,
                (410, _) => Self::Expired,
                (429, _) => Self::Busy,
                (403, _) => Self::Forbidden(status.message),
                _ => Self::Other(status.message),
            },
            Failed::Transport(error) => Self::Other(error::chain(&error)),
            Failed::Silent(limit) => Self::Other(format!("no answer for {limit:?}")),
            Failed::Incomplete => Self::Other("the list ended before it was complete".to_owned()),
            Failed::NoVersion => {
                Self::Other("an answer without a resource version that is a number".to_owned())
            }
            Failed::Old { version, seen } => Self::Old(format!(
                "the API server has an old state, version {version}; it has shown {seen} before"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_meaning() {
        use AskedFor::{List, Stream, Watch};
        let text = || "why".to_owned();
        for (code, phase, meaning) in [
            (404, List, WatchFailure::Absent),
            (404, Stream, WatchFailure::Absent),
            (400, Stream, WatchFailure::CannotStream),
            (422, Stream, WatchFailure::CannotStream),
            (422, Watch, WatchFailure::Other(text())),
            (400, List, WatchFailure::Other(text())),
            (410, Watch, WatchFailure::Expired),
            (410, List, WatchFailure::Expired),
            (429, Stream, WatchFailure::Busy),
            (403, List, WatchFailure::Forbidden(text())),
            (403, Stream, WatchFailure::Forbidden(text())),
            (401, Stream, WatchFailure::Other(text())),
            (500, Watch, WatchFailure::Other(text())),
        ] {
            let status = Status { code, message: text(), ..Status::default() };
            let failed = Failed::of(phase, kube::Error::Api(Box::new(status)));
            assert_eq!(WatchFailure::of(failed), meaning, "{code} {phase:?}");
        }
        let silent = WatchFailure::of(Failed::Silent(Duration::from_secs(30)));
        assert_eq!(silent, WatchFailure::Other("no answer for 30s".to_owned()));
    }
}
