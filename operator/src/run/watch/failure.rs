//! What a failed watch means.

use kube::runtime::watcher::{self, InitialListStrategy};

use crate::run::error;

/// What a failed watch means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The API server does not serve the kind.
    Absent,
    /// The API server does not stream lists: one that does not know how calls the request invalid.
    CannotStream,
    /// The API server no longer knows what changed since; the watch lists again by itself.
    Expired,
    /// The same, where the watch does not list again by itself.
    ExpiredAtStart,
    /// The API server asks for a pause, as one that has only just learnt of the kind does.
    Busy,
    /// The API server does not permit it, for this reason.
    Forbidden(String),
    /// Anything else, with its text; the watch retries.
    Other(String),
}

impl Failure {
    /// What an error of a watch means that got its list in this way.
    pub(super) fn of(error: &watcher::Error, strategy: &InitialListStrategy) -> Self {
        let Some(status) = status_of(error) else { return Self::Other(error::chain(error)) };
        let streams = *strategy == InitialListStrategy::StreamingList;
        match status.code {
            404 => Self::Absent,
            400 | 422 if streams => Self::CannotStream,
            410 if matches!(error, watcher::Error::WatchStartFailed(_)) => Self::ExpiredAtStart,
            410 => Self::Expired,
            429 => Self::Busy,
            403 => Self::Forbidden(status.message.clone()),
            _ => Self::Other(status.message.clone()),
        }
    }
}

/// What the API server answered, if it did.
fn status_of(error: &watcher::Error) -> Option<&kube::core::Status> {
    use watcher::Error::{
        InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
    };
    match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status))
        | WatchError(status) => Some(status),
        InitialListFailed(_) | WatchStartFailed(_) | WatchFailed(_) | NoResourceVersion => None,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use watcher::Error::{InitialListFailed, NoResourceVersion, WatchError, WatchStartFailed};

    use super::*;

    fn status(code: u16) -> Box<Status> {
        Box::new(Status { code, message: "why".to_owned(), ..Status::default() })
    }

    fn api(code: u16) -> kube::Error {
        kube::Error::Api(status(code))
    }

    #[test]
    fn each_error_has_its_meaning() {
        use InitialListStrategy::{ListWatch, StreamingList};
        let (forbidden, other) =
            (Failure::Forbidden("why".to_owned()), Failure::Other("why".to_owned()));
        for (error, strategy, meaning) in [
            (InitialListFailed(api(404)), ListWatch, Failure::Absent),
            (WatchStartFailed(api(404)), StreamingList, Failure::Absent),
            (WatchStartFailed(api(400)), StreamingList, Failure::CannotStream),
            (WatchStartFailed(api(422)), StreamingList, Failure::CannotStream),
            (WatchStartFailed(api(422)), ListWatch, other.clone()),
            (InitialListFailed(api(400)), ListWatch, other.clone()),
            (WatchError(status(410)), StreamingList, Failure::Expired),
            (InitialListFailed(api(410)), ListWatch, Failure::Expired),
            (WatchStartFailed(api(410)), ListWatch, Failure::ExpiredAtStart),
            (WatchStartFailed(api(429)), StreamingList, Failure::Busy),
            (InitialListFailed(api(403)), ListWatch, forbidden.clone()),
            (WatchStartFailed(api(403)), StreamingList, forbidden),
            (WatchStartFailed(api(401)), StreamingList, other.clone()),
            (WatchError(status(500)), ListWatch, other),
        ] {
            assert_eq!(Failure::of(&error, &strategy), meaning, "{error:?} {strategy:?}");
        }
        let text = NoResourceVersion.to_string();
        assert_eq!(Failure::of(&NoResourceVersion, &ListWatch), Failure::Other(text));
    }
}
