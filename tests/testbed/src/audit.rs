//! The audit log of the API server: the client, time and result of each request.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::PathBuf,
};

use jiff::Timestamp;
use serde::Deserialize;

use crate::error::{Error, Result};

/// The policy of the audit log: every request without its body, except for noise.
pub(crate) const POLICY: &str = include_str!("../audit-policy.yaml");

/// A completed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// The user: `system:serviceaccount:NAMESPACE:NAME` for a service account.
    pub user: String,
    /// The user agent of the client.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verb: String,
    /// The path and its query.
    pub uri: String,
    /// Plural, lower case; empty for a request that is not about a resource.
    pub resource: String,
    /// Such as `binding` or `status`; empty for the object itself.
    pub subresource: String,
    /// The object's namespace; empty if it has none.
    pub namespace: String,
    /// The object's name; empty for a list, and where the server chose it.
    pub name: String,
    /// The HTTP status of the response.
    pub code: u16,
    /// When the request arrived.
    pub received: Timestamp,
    /// When the response was complete; for a watch, when it ended.
    pub completed: Timestamp,
}

/// Reads an audit log while it is being written; each read returns the new events.
#[derive(Clone, Debug)]
pub struct AuditReader {
    log: PathBuf,
    /// Bytes and lines that have been read.
    offset: u64,
    n_lines: usize,
    /// Requests that arrived earlier are left out.
    since: Timestamp,
}

impl AuditReader {
    /// A reader at the beginning of the log, which need not exist yet.
    pub fn new(log: PathBuf) -> Self {
        Self { log, offset: 0, n_lines: 0, since: Timestamp::MIN }
    }

    /// Leaves out all requests that have arrived so far, also if they are not complete yet.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the log cannot be read.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.since = Timestamp::now();
        self.lines(|_, _| Ok(()))
    }

    /// Returns the events since the last call, in the order in which the requests were completed.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the log cannot be read, [`Error::Audit`] if a complete line is not an
    /// event. An incomplete last line is still being written, and is left for the next call.
    pub fn read(&mut self) -> Result<Vec<AuditEvent>> {
        let since = self.since;
        let mut events = Vec::new();
        self.lines(|line, bytes| {
            let event: Event =
                serde_json::from_slice(bytes).map_err(|source| Error::Audit { line, source })?;
            if event.request_received_timestamp >= since {
                events.push(event.into());
            }
            Ok(())
        })?;
        Ok(events)
    }

    /// Calls `read` with each new line that is complete, and its number.
    fn lines(&mut self, mut read: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        let bytes = self.new_bytes().map_err(Error::io(format!("read {}", self.log.display())))?;
        for line in
            bytes.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n"))
        {
            self.offset += line.len() as u64;
            self.n_lines += 1;
            read(self.n_lines, line)?;
        }
        Ok(())
    }

    fn new_bytes(&self) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.log)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// The fields of an `audit.k8s.io/v1` Event that [`AuditEvent`] needs.
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
            completed: event.stage_timestamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A line of the log, about a pod of this name.
    fn line(name: &str) -> String {
        let line = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete",
            "requestURI":"/api/v1/namespaces/ns/pods/NAME/binding","verb":"create",
            "user":{"username":"system:serviceaccount:kube-batch-system:kube-batch"},
            "userAgent":"kube-batch","objectRef":{"resource":"pods","namespace":"ns","name":"NAME",
            "apiVersion":"v1","subresource":"binding"},"responseStatus":{"metadata":{},"code":201},
            "requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z",
            "stageTimestamp":"2026-01-02T03:04:05.001006Z"}"#;
        line.replace('\n', "").replace("NAME", name) + "\n"
    }

    #[test]
    fn each_line_is_read_once_and_only_when_complete() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit.log");
        let (first, second) = (line("p"), line("q"));
        fs::write(&log, format!("{first}{}", &second[..40])).unwrap();
        let mut reader = AuditReader::new(log.clone());
        let events = reader.read().unwrap();
        assert_eq!(events.len(), 1);
        let event = &events[0];
        assert_eq!((event.verb.as_str(), event.subresource.as_str()), ("create", "binding"));
        assert_eq!((event.namespace.as_str(), event.name.as_str()), ("ns", "p"));
        assert_eq!(event.code, 201);
        assert_eq!(
            (event.completed - event.received).total(jiff::Unit::Microsecond).unwrap(),
            1000.0
        );
        fs::write(&log, format!("{first}{second}")).unwrap();
        let names: Vec<String> =
            reader.read().unwrap().into_iter().map(|event| event.name).collect();
        assert_eq!(names, ["q"]);
        assert_eq!(reader.read().unwrap(), []);
    }

    /// A watch of the test before is logged when it ends, which may be after the next test has begun.
    #[test]
    fn requests_that_arrived_before_the_beginning_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit.log");
        fs::write(&log, line("before")).unwrap();
        let mut reader = AuditReader::new(log.clone());
        reader.begin().unwrap();
        let late = line("late");
        let next = line("next").replace("2026-01-02", "9998-01-02");
        fs::write(&log, [line("before"), late, next].concat()).unwrap();
        let names: Vec<String> =
            reader.read().unwrap().into_iter().map(|event| event.name).collect();
        assert_eq!(names, ["next"]);
    }
}
