//! What the API server notes about requests: who asked for what, when, and what came of it.

use std::{fs, path::Path};

use jiff::Timestamp;
use serde::Deserialize;

use crate::error::{Error, Result};

/// The policy of the audit log: every request without its body, except for noise.
pub(crate) const POLICY: &str = include_str!("../audit-policy.yaml");

/// A request that has been answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// Who asked: `system:serviceaccount:NAMESPACE:NAME` for a service account.
    pub user: String,
    /// The program that asked, as it calls itself.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verb: String,
    /// The path and its query.
    pub uri: String,
    /// Plural, lower case; empty for a request about no object.
    pub resource: String,
    /// Such as `binding` or `status`; empty for the object itself.
    pub subresource: String,
    /// The object's namespace; empty if it has none.
    pub namespace: String,
    /// The object's name; empty for a list, and where the server chose it.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// When the request arrived.
    pub received: Timestamp,
    /// When it had been answered; for a watch, when it ended.
    pub answered: Timestamp,
}

/// The events of an audit log, in the order in which they were answered.
///
/// # Errors
///
/// [`Error::Io`] if it cannot be read, [`Error::Audit`] if a whole line of it is no event.
/// A last line without its end is still being written, and is left out.
pub fn read(log: &Path) -> Result<Vec<AuditEvent>> {
    let text = fs::read_to_string(log).map_err(Error::io(format!("read {}", log.display())))?;
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let events = whole.enumerate().map(|(nth, line)| {
        let event = serde_json::from_str::<Event>(line);
        event.map(AuditEvent::from).map_err(|source| Error::Audit { line: nth + 1, source })
    });
    events.collect()
}

/// The part of `audit.k8s.io/v1` Event that is of interest.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

impl From<Event> for AuditEvent {
    fn from(event: Event) -> Self {
        Self {
            user: event.user.username,
            user_agent: event.user_agent,
            verb: event.verb,
            uri: event.uri,
            resource: event.object_ref.resource,
            subresource: event.object_ref.subresource,
            namespace: event.object_ref.namespace,
            name: event.object_ref.name,
            code: event.response_status.code,
            received: event.request_received_timestamp,
            answered: event.stage_timestamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_still_being_written_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("audit.log");
        let line = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete",
            "requestURI":"/api/v1/namespaces/ns/pods/p/binding","verb":"create",
            "user":{"username":"system:serviceaccount:kube-batch-system:kube-batch"},
            "userAgent":"kube-batch","objectRef":{"resource":"pods","namespace":"ns","name":"p",
            "apiVersion":"v1","subresource":"binding"},"responseStatus":{"metadata":{},"code":201},
            "requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z",
            "stageTimestamp":"2026-01-02T03:04:05.001006Z"}"#
            .replace('\n', "");
        fs::write(&log, format!("{line}\n{}", &line[..40])).unwrap();
        let events = read(&log).unwrap();
        assert_eq!(events.len(), 1);
        let event = &events[0];
        assert_eq!((event.verb.as_str(), event.subresource.as_str()), ("create", "binding"));
        assert_eq!((event.namespace.as_str(), event.name.as_str()), ("ns", "p"));
        assert_eq!(event.code, 201);
        assert_eq!(
            (event.answered - event.received).total(jiff::Unit::Microsecond).unwrap(),
            1000.0
        );
    }
}
