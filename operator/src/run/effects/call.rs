//! One call to the API server, sent again while that can help.

use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use crate::run::{
    metrics::{Metrics, Write, WriteKind, Written},
    watch::cause,
};

/// How long one answer may take. client-go's default for a scheduler's calls is longer; a lease is
/// 15 s, and an answer that takes longer than this is lost.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a call is sent again.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);
/// The first pause; each one is twice the last.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause, unless the server asks for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Why a call came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    /// The object does not exist.
    NotFound,
    /// The object is not as the call supposes.
    Conflict(String),
    /// The server will not do it, now or later.
    Rejected(String),
    /// No answer, or none that helps, for as long as it was tried.
    Unanswered(String),
}

impl WriteError {
    pub(crate) const fn result(&self) -> &'static str {
        match self {
            Self::NotFound => "gone",
            Self::Conflict(_) => "conflict",
            Self::Rejected(_) => "refused",
            Self::Unanswered(_) => "failed",
        }
    }
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound => f.write_str("it does not exist any more"),
            Self::Conflict(why) | Self::Rejected(why) | Self::Unanswered(why) => f.write_str(why),
        }
    }
}

/// What an error calls for.
#[derive(Debug, PartialEq, Eq)]
enum Reaction {
    Fail(WriteError),
    /// Send it again, at the earliest after this pause.
    Retry(Duration, String),
}

fn reaction(error: &kube::Error) -> Reaction {
    let kube::Error::Api(status) = error else {
        return Reaction::Retry(Duration::ZERO, cause(error));
    };
    let message = || status.message.clone();
    match status.code {
        404 => Reaction::Fail(WriteError::NotFound),
        409 => Reaction::Fail(WriteError::Conflict(message())),
        429 | 500..=599 => {
            let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            Reaction::Retry(Duration::from_secs(asked.into()), message())
        }
        _ => Reaction::Fail(WriteError::Rejected(message())),
    }
}

/// Makes a call, again and again while that can help.
///
/// # Errors
///
/// [`WriteError`]. After `Failed`, and after `Conflict` or `Gone` of a call that was sent again, the
/// server may have done what was asked all the same.
pub(crate) async fn call<T, F: Future<Output = kube::Result<T>>>(
    metrics: &Metrics,
    write: Write,
    mut send: impl FnMut() -> F,
) -> Result<T, WriteError> {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    let answer = loop {
        let sent = Instant::now();
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, send()).await;
        let (asked, why) = match answer {
            Ok(Ok(answer)) => {
                let latency = metrics.write_latency.get_or_create(&WriteKind { write });
                latency.observe(sent.elapsed().as_secs_f64());
                break Ok(answer);
            }
            Ok(Err(error)) => match reaction(&error) {
                Reaction::Fail(error) => break Err(error),
                Reaction::Retry(asked, why) => (asked, why),
            },
            Err(_) => (Duration::ZERO, format!("no answer for {ANSWER_TIMEOUT:?}")),
        };
        if started.elapsed() + pause > RETRY_TIMEOUT {
            break Err(WriteError::Unanswered(why));
        }
        debug!(?write, why, "sending again");
        metrics.write_retries.get_or_create(&WriteKind { write }).inc();
        tokio::time::sleep(pause.max(asked.min(RETRY_TIMEOUT))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    let result = answer.as_ref().err().map_or("done", WriteError::result);
    metrics.writes.get_or_create(&Written { write, result }).inc();
    answer
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn error(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, message: "why".into(), ..Status::default() }))
    }

    #[test]
    fn only_what_may_pass_is_sent_again() {
        assert_eq!(reaction(&error(404)), Reaction::Fail(WriteError::NotFound));
        assert_eq!(reaction(&error(409)), Reaction::Fail(WriteError::Conflict("why".into())));
        for code in [400, 403, 422] {
            let refused = Reaction::Fail(WriteError::Rejected("why".into()));
            assert_eq!(reaction(&error(code)), refused);
        }
        for code in [429, 500, 503, 504] {
            assert_eq!(reaction(&error(code)), Reaction::Retry(Duration::ZERO, "why".into()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_sent_until_it_is_answered() {
        let metrics = Metrics::new();
        let mut n_sent = 0;
        let answer = call(&metrics, Write::Bind, || {
            n_sent += 1;
            let failed = n_sent < 4;
            async move { if failed { Err(error(500)) } else { Ok(7) } }
        });
        assert_eq!(answer.await, Ok(7));
        assert_eq!(n_sent, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends() {
        let metrics = Metrics::new();
        let started = Instant::now();
        let answer = call::<(), _>(&metrics, Write::Bind, std::future::pending);
        assert_eq!(answer.await, Err(WriteError::Unanswered("no answer for 5s".into())));
        assert!(started.elapsed() < RETRY_TIMEOUT + ANSWER_TIMEOUT);
    }
}
