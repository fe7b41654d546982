//! One call to the API server, with retries.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

use crate::run::{
    error,
    metrics::{Metrics, Write, WriteKind, Written},
    permission::missing_rule,
};

/// How long one answer may take. client-go's default is longer; here a lease is 15 s, and an answer
/// that takes longer than this counts as lost.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a call is retried.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);
/// The first pause between attempts, doubled with each one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause, unless the server asks for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Why a write failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    /// The object does not exist.
    NotFound,
    /// The object is not as the write presupposes.
    Conflict(String),
    /// The API server rejected it; a retry would not help.
    Rejected(String),
    /// RBAC does not permit it, which is logged once for each kind of write.
    Forbidden(String),
    /// No answer, or only errors that pass, until the retries ended.
    Unanswered(String),
}

impl WriteError {
    /// The value of the label `result`.
    pub(crate) const fn result(&self) -> &'static str {
        match self {
            Self::NotFound => "gone",
            Self::Conflict(_) => "conflict",
            Self::Rejected(_) => "refused",
            Self::Forbidden(_) => "forbidden",
            Self::Unanswered(_) => "failed",
        }
    }
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound => f.write_str("it does not exist any more"),
            Self::Conflict(why)
            | Self::Rejected(why)
            | Self::Forbidden(why)
            | Self::Unanswered(why) => f.write_str(why),
        }
    }
}

/// What to do about an error.
#[derive(Debug, PartialEq, Eq)]
enum Reaction {
    Fail(WriteError),
    /// Retry, at the earliest after this pause; and why.
    Retry(Duration, String),
}

fn reaction(error: &kube::Error) -> Reaction {
    let kube::Error::Api(status) = error else {
        return Reaction::Retry(Duration::ZERO, error::chain(error));
    };
    let message = || status.message.clone();
    match status.code {
        403 if missing_rule(&status.message).is_some() => {
            Reaction::Fail(WriteError::Forbidden(message()))
        }
        404 => Reaction::Fail(WriteError::NotFound),
        409 => Reaction::Fail(WriteError::Conflict(message())),
        429 | 500..=599 => {
            let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            Reaction::Retry(Duration::from_secs(seconds.into()), message())
        }
        _ => Reaction::Fail(WriteError::Rejected(message())),
    }
}

/// Makes a call, and retries it while an error may pass.
///
/// # Errors
///
/// [`WriteError`]. After `Unanswered`, and after `Conflict` or `NotFound` of a call that was retried,
/// the API server may have done what was asked all the same.
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
        let (retry_after, why) = match answer {
            Ok(Ok(answer)) => {
                let latency = metrics.write_latency.get_or_create(&WriteKind { write });
                latency.observe(sent.elapsed().as_secs_f64());
                break Ok(answer);
            }
            Ok(Err(error)) => match reaction(&error) {
                Reaction::Fail(error) => break Err(error),
                Reaction::Retry(retry_after, why) => (retry_after, why),
            },
            Err(_) => (Duration::ZERO, format!("no answer for {ANSWER_TIMEOUT:?}")),
        };
        if started.elapsed() + pause > RETRY_TIMEOUT {
            break Err(WriteError::Unanswered(why));
        }
        debug!(?write, why, "retrying");
        metrics.write_retries.get_or_create(&WriteKind { write }).inc();
        tokio::time::sleep(pause.max(retry_after.min(RETRY_TIMEOUT))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    let result = answer.as_ref().err().map_or("done", WriteError::result);
    let n_before = metrics.writes.get_or_create(&Written { write, result }).inc();
    if let Err(WriteError::Forbidden(reason)) = &answer
        && n_before == 0
    {
        let rule = missing_rule(reason);
        warn!(?write, reason, rule, "missing permission; add the rule to the role kube-batch");
    }
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
    fn only_errors_that_may_pass_are_retried() {
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

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_call_is_retried_until_it_is_answered() {
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

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn retries_end() {
        let metrics = Metrics::new();
        let started = Instant::now();
        let answer = call::<(), _>(&metrics, Write::Bind, std::future::pending);
        assert_eq!(answer.await, Err(WriteError::Unanswered("no answer for 5s".into())));
        assert!(started.elapsed() < RETRY_TIMEOUT + ANSWER_TIMEOUT);
    }
}
