//! Requests of one sort that the API server rejects, leaves without an answer, or answers slowly.
//!
//! In a real cluster this is one resource in etcd that is overloaded, an aggregated API server that is down, a role
//! that was changed, or a flow schema that matches only some requests.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::time::Duration;

use crate::{
    server::{Answer, Kind, Path, failure, not_found},
    traffic::Sent,
};

/// Requests about one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Requests {
    pub(crate) kind: Kind,
    pub(crate) verb: Verb,
}

/// What requests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    /// Get, list or watch.
    Read,
    /// Anything but reading.
    Write,
    /// Create a Binding of a pod.
    Bind,
    PatchStatus,
    Delete,
}

/// What becomes of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The server does nothing and answers with this code. With 429 it may name the seconds after which to try again,
    /// or it is a server that has too many requests, whose answer is plain text.
    Rejects { code: u16, retry_after: Option<u32> },
    /// The server does what was requested, and answers with this code: it did not learn in time that etcd had
    /// written it.
    FailsLate { code: u16 },
    /// The request is lost.
    Hangs,
    /// The server does what was requested, and the answer is lost.
    HangsLate,
    /// It takes this long.
    IsSlow { millis: u64 },
}

/// How long after it was sent a write is done at the latest, even if its answer is later. A process that writes at
/// the end of its term ends it 5 s before another can begin one, and nothing in Kubernetes keeps a request from being
/// done later than that.
const DONE_AFTER: Duration = Duration::from_millis(4_900);

/// Everything of this sort that happens at a time.
#[derive(Debug, Default)]
pub(crate) struct Outages(BTreeMap<Requests, Effect>);

impl Requests {
    fn include(self, method: &str, path: &Path<'_>) -> bool {
        self.kind == path.kind
            && match self.verb {
                Verb::Read => method == "GET",
                Verb::Write => method != "GET",
                Verb::Bind => method == "POST" && path.subresource == "binding",
                Verb::PatchStatus => method == "PATCH" && path.subresource == "status",
                Verb::Delete => method == "DELETE",
            }
    }
}

impl Outages {
    pub(crate) fn begin(&mut self, requests: Requests, effect: Effect) {
        self.0.insert(requests, effect);
    }

    pub(crate) fn end(&mut self, requests: Requests) {
        self.0.remove(&requests);
    }

    /// What becomes of a request.
    pub(crate) fn effect_on(&self, sent: &Sent) -> Option<Effect> {
        let path = Path::parse(&sent.path)?;
        self.0.iter().find(|(requests, _)| requests.include(&sent.method, &path)).map(|(_, e)| *e)
    }

    /// What becomes of a watch.
    pub(crate) fn effect_on_watch(&self, kind: Kind) -> Option<Effect> {
        self.0.get(&Requests { kind, verb: Verb::Read }).copied()
    }
}

impl Effect {
    /// The answer, if the server does nothing.
    pub(crate) fn rejection(self, sent: &Sent) -> Option<Answer> {
        match self {
            Self::Rejects { code, retry_after } => Some(rejection(code, retry_after, sent)),
            // A read has no effect that could be done.
            Self::FailsLate { code } if sent.method == "GET" => Some(rejection(code, None, sent)),
            Self::FailsLate { .. } | Self::Hangs | Self::HangsLate | Self::IsSlow { .. } => None,
        }
    }

    /// How long it takes until a request is done that was sent this long ago, and from then until it is answered.
    pub(crate) fn pauses(self, sent: &Sent, sent_ago: Duration) -> (Duration, Duration) {
        let Self::IsSlow { millis } = self else { return (Duration::ZERO, Duration::ZERO) };
        let all = Duration::from_millis(millis);
        let before = if sent.method == "GET" {
            all / 2
        } else {
            all.min(DONE_AFTER.saturating_sub(sent_ago))
        };
        (before, all - before)
    }
}

/// An answer with this code, as the real server words it where that matters.
fn rejection(code: u16, retry_after: Option<u32>, sent: &Sent) -> Answer {
    match (code, retry_after) {
        (403, _) => failure(403, &forbidden(sent)),
        (404, _) => not_found(),
        // Source: `pkg/server/filters/priority-and-fairness.go` of the API server.
        (429, None) => (429, Value::from("Too many requests, please try again later.")),
        (code, Some(seconds)) => {
            let (code, mut status) = failure(code, "injected");
            status["details"] = json!({"retryAfterSeconds": seconds});
            (code, status)
        }
        (code, None) => failure(code, "injected"),
    }
}

/// What the server answers if no role permits a request.
fn forbidden(sent: &Sent) -> String {
    let verb = match sent.method.as_str() {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ if sent.query.contains("watch=true") => "watch",
        _ => "list",
    };
    let Some(path) = Path::parse(&sent.path) else { return String::new() };
    let plural = path.kind.plural;
    let resource = match path.subresource {
        "" => plural.to_owned(),
        subresource => format!("{plural}/{subresource}"),
    };
    format!(
        "{plural} is forbidden: User \"scheduler\" cannot {verb} resource \"{resource}\" in API group \"{}\" at the \
         cluster scope",
        path.kind.group(),
    )
}
