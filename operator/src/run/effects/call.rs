//! One call to the API server: how long it may take, and what an error means.

use std::time::Duration;

use kube::core::Status;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::context::Context;
use crate::run::{
    error,
    metrics::{Metrics, Write, WriteKind, Written},
    permission::missing_rule,
    term::Terms,
};

/// How long one answer may take. client-go's default is longer; here a lease is 15 s, and an answer
/// that takes longer than this counts as lost.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// No answer, or an error that may pass. The API server may have done what was asked all the same.
    Passing {
        why: String,
        /// The pause that the API server asks for.
        retry_after: Duration,
        /// Whether the cause has nothing to do with the object: the connection broke, or the API server as
        /// a whole had no time.
        is_general: bool,
    },
    /// It was not sent, because this replica does not lead any more.
    NotLeading,
}

impl WriteError {
    /// The value of the label `result`.
    pub(crate) const fn result(&self) -> &'static str {
        match self {
            Self::NotFound => "gone",
            Self::Conflict(_) => "conflict",
            Self::Rejected(_) => "refused",
            Self::Forbidden(_) => "forbidden",
            Self::Passing { .. } | Self::NotLeading => "failed",
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
            | Self::Passing { why, .. } => f.write_str(why),
            Self::NotLeading => f.write_str("this replica does not lead any more"),
        }
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            let why = error::chain(&error);
            return Self::Passing { why, retry_after: Duration::ZERO, is_general: true };
        };
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let Status { code, message, .. } = *status;
        match code {
            403 if missing_rule(&message).is_some() => Self::Forbidden(message),
            404 => Self::NotFound,
            409 => Self::Conflict(message),
            429 | 500..=599 => Self::Passing {
                why: message,
                retry_after: Duration::from_secs(seconds.into()),
                is_general: code == 429,
            },
            _ => Self::Rejected(message),
        }
    }
}

impl WriteError {
    /// This error, with the object that it is about.
    pub(super) fn about(self, object: &str) -> Self {
        let with = |why| format!("{object}: {why}");
        match self {
            Self::NotFound => Self::Rejected(with(self.to_string())),
            Self::Conflict(why) => Self::Conflict(with(why)),
            Self::Rejected(why) => Self::Rejected(with(why)),
            Self::Forbidden(why) => Self::Forbidden(with(why)),
            Self::Passing { why, retry_after, is_general } => {
                Self::Passing { why: with(why), retry_after, is_general }
            }
            Self::NotLeading => Self::NotLeading,
        }
    }

    fn unanswered(why: String) -> Self {
        Self::Passing { why, retry_after: Duration::ZERO, is_general: false }
    }
}

/// Makes a call once, if this replica leads. The call ends before the term does.
///
/// # Errors
///
/// [`WriteError`].
pub(crate) async fn call<T>(
    terms: &Terms,
    metrics: &Metrics,
    write: Write,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, WriteError> {
    let time_left = terms.time_left();
    if time_left.is_zero() {
        return Err(WriteError::NotLeading);
    }
    let sent = Instant::now();
    let limit = time_left.min(ANSWER_TIMEOUT);
    let answer = answer_within(limit, request).await;
    match &answer {
        Ok(_) => {
            let latency = metrics.write_latency.get_or_create(&WriteKind { write });
            latency.observe(sent.elapsed().as_secs_f64());
            count(metrics, write, "done");
        }
        Err(WriteError::Passing { why, .. }) => {
            debug!(?write, why, "the call failed");
            metrics.write_retries.get_or_create(&WriteKind { write }).inc();
        }
        Err(error) => {
            let n_before = count(metrics, write, error.result());
            if let WriteError::Forbidden(reason) = error
                && n_before == 0
            {
                let rule = missing_rule(reason);
                warn!(
                    ?write,
                    reason, rule, "missing permission; add the rule to the role kube-batch"
                );
            }
        }
    }
    answer
}

/// The answer to a request, if it comes in time.
///
/// # Errors
///
/// [`WriteError`].
pub(super) async fn answer_within<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, WriteError> {
    match tokio::time::timeout(limit, request).await {
        Ok(answer) => answer.map_err(WriteError::from),
        Err(_) => Err(WriteError::unanswered(format!("no answer for {limit:.1?}"))),
    }
}

/// Counts a write by its result; returns how many there were before.
pub(super) fn count(metrics: &Metrics, write: Write, result: &'static str) -> u64 {
    metrics.writes.get_or_create(&Written { write, result }).inc()
}

impl Context {
    /// Makes a call once, if this replica leads.
    ///
    /// # Errors
    ///
    /// [`WriteError`].
    pub(super) async fn call<T>(
        &self,
        write: Write,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        call(&self.terms, &self.metrics, write, request).await
    }

    /// Reads something, whether this replica leads or not.
    ///
    /// # Errors
    ///
    /// [`WriteError`].
    pub(super) async fn read<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        answer_within(ANSWER_TIMEOUT, request).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::run::{
        clock::Clock,
        term::{Renewed, Term},
    };

    fn error(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, message: "why".into(), ..Status::default() }))
    }

    #[test]
    fn each_error_has_its_meaning() {
        assert_eq!(WriteError::from(error(404)), WriteError::NotFound);
        assert_eq!(WriteError::from(error(409)), WriteError::Conflict("why".into()));
        for code in [400, 403, 410, 422] {
            assert_eq!(WriteError::from(error(code)), WriteError::Rejected("why".into()));
        }
        for code in [429, 500, 503, 504] {
            let is_general = code == 429;
            let expected =
                WriteError::Passing { why: "why".into(), retry_after: Duration::ZERO, is_general };
            assert_eq!(WriteError::from(error(code)), expected);
        }
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_call_ends_before_the_term_does() {
        let (metrics, clock) = (Metrics::new(), Clock::ahead(&Arc::default()));
        let at = clock.moment();
        let term = |seconds| {
            let lease = Some(Renewed { at, lasts: Duration::from_secs(seconds) });
            let terms = Terms::new(clock.clone());
            terms.set(Some(Term { number: 1, lease }));
            terms
        };
        let hang = || std::future::pending::<kube::Result<()>>();
        for (seconds, took) in [(60, 5), (7, 2)] {
            let before = Instant::now();
            let answer = call(&term(seconds), &metrics, Write::Bind, hang()).await;
            let error = WriteError::unanswered(format!("no answer for {took}.0s"));
            assert_eq!((answer, before.elapsed().as_secs()), (Err(error), took));
        }
        let over = call(&term(7), &metrics, Write::Bind, hang()).await;
        assert_eq!(over, Err(WriteError::NotLeading));
        let standby = Terms::default();
        let never = call(&standby, &metrics, Write::Bind, hang()).await;
        assert_eq!(never, Err(WriteError::NotLeading));
    }
}
