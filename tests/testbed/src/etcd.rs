//! A client of etcd, the store behind the API server.
//!
//! etcd serves JSON over HTTP beside gRPC, so no client library is needed. Keys and values are in base64 there.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// Keys of the API server begin with this.
const PREFIX: &str = "/registry/";
/// The first key after those that begin with [`PREFIX`]: `0` follows `/`.
const END: &str = "/registry0";

/// Operations in one transaction; etcd accepts 128.
const N_OPERATIONS: usize = 100;

/// Maximum time until etcd responds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// When an entry was created and last changed: revisions of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Revision {
    pub(crate) created: u64,
    pub(crate) changed: u64,
}

/// A stored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// In base64: no object is decoded here.
    pub(crate) value: String,
    pub(crate) revision: Revision,
}

/// A change of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Delete,
    /// Store this value, in base64.
    Put(String),
    /// Store this value, in base64, after the entry was deleted: clients see that one object goes and another comes.
    Replace(String),
}

/// A client of the etcd that listens on this port of 127.0.0.1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Etcd {
    port: u16,
}

impl Etcd {
    pub(crate) fn new(port: u16) -> Self {
        Self { port }
    }

    /// The revision of every entry of the API server, by key.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if there is no response, or none that can be read.
    pub(crate) fn revisions(&self) -> Result<BTreeMap<String, Revision>> {
        let entries = self.range(true)?;
        Ok(entries.into_iter().map(|(key, entry)| (key, entry.revision)).collect())
    }

    /// Every entry of the API server, by key.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if there is no response, or none that can be read.
    pub(crate) fn entries(&self) -> Result<BTreeMap<String, Entry>> {
        self.range(false)
    }

    fn range(&self, keys_only: bool) -> Result<BTreeMap<String, Entry>> {
        let request = json!({
            "key": BASE64.encode(PREFIX),
            "range_end": BASE64.encode(END),
            "keys_only": keys_only,
        });
        let response: RangeResponse = self.post("range", &request)?;
        response.kvs.into_iter().map(StoredEntry::into_entry).collect()
    }

    /// The entries with these keys that exist.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if there is no response, or none that can be read.
    pub(crate) fn get<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a str>,
    ) -> Result<BTreeMap<String, Entry>> {
        let range = |key: &str| json!({"request_range": {"key": BASE64.encode(key)}});
        let responses = self.transactions(keys.into_iter().map(range).collect())?;
        let found = responses.into_iter().filter_map(|response| response.response_range);
        found.flat_map(|range| range.kvs).map(StoredEntry::into_entry).collect()
    }

    /// Changes entries, a hundred at a time, in this order.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if there is no response, or none that can be read; some may be changed.
    pub(crate) fn change(&self, changes: &[(&str, &Change)]) -> Result<()> {
        let delete = |key: &str| json!({"request_delete_range": {"key": BASE64.encode(key)}});
        let put = |key: &str, value: &str| json!({"request_put": {"key": BASE64.encode(key), "value": value}});
        // A transaction may change a key only once.
        let is_replaced = |change: &Change| matches!(change, Change::Replace(_));
        let replaced = changes.iter().filter(|(_, change)| is_replaced(change));
        self.transactions(replaced.map(|(key, _)| delete(key)).collect())?;
        let operation = |(key, change): &(&str, &Change)| match change {
            Change::Delete => delete(key),
            Change::Put(value) | Change::Replace(value) => put(key, value),
        };
        self.transactions(changes.iter().map(operation).collect()).map(drop)
    }

    fn transactions(&self, operations: Vec<Value>) -> Result<Vec<OperationResponse>> {
        let mut responses = Vec::with_capacity(operations.len());
        for operations in operations.chunks(N_OPERATIONS) {
            let response: TransactionResponse =
                self.post("txn", &json!({"success": operations}))?;
            responses.extend(response.responses);
        }
        Ok(responses)
    }

    fn post<R: DeserializeOwned>(&self, method: &str, request: &Value) -> Result<R> {
        let response = self.try_post(method, request);
        let parsed = response.and_then(|body| {
            serde_json::from_slice(&body).map_err(|error| {
                let body = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
                io::Error::other(format!("{error} in the response {body}"))
            })
        });
        parsed.map_err(Error::io(format!("call {method} of etcd on port {}", self.port)))
    }

    /// Sends a request with a connection of its own and returns the body of the response.
    fn try_post(&self, method: &str, request: &Value) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let body = request.to_string();
        // To HTTP/1.0, Go's server responds with the plain body, and then closes the connection.
        let head = format!(
            "POST /v3/kv/{method} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response)?;
        body_of(response)
    }
}

/// The body of a successful HTTP response.
fn body_of(mut response: Vec<u8>) -> io::Result<Vec<u8>> {
    let end = response.windows(4).position(|window| window == b"\r\n\r\n");
    let head = String::from_utf8_lossy(&response[..end.unwrap_or(response.len())]).into_owned();
    let is_ok = head.split(' ').nth(1) == Some("200");
    match end {
        Some(end) if is_ok => Ok(response.split_off(end + 4)),
        _ => Err(io::Error::other(format!("the response begins with {:?}", head.lines().next()))),
    }
}

/// Fields that are zero or empty are left out of a response.
#[derive(Deserialize)]
struct RangeResponse {
    #[serde(default)]
    kvs: Vec<StoredEntry>,
}

#[derive(Deserialize)]
struct TransactionResponse {
    responses: Vec<OperationResponse>,
}

#[derive(Deserialize)]
struct OperationResponse {
    response_range: Option<RangeResponse>,
}

#[derive(Deserialize)]
struct StoredEntry {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(deserialize_with = "number")]
    create_revision: u64,
    #[serde(deserialize_with = "number")]
    mod_revision: u64,
}

impl StoredEntry {
    fn into_entry(self) -> Result<(String, Entry)> {
        let key = BASE64.decode(&self.key).ok().and_then(|key| String::from_utf8(key).ok());
        let key = key.ok_or_else(|| {
            Error::io("read a key of etcd")(io::Error::other(format!("it is {}", self.key)))
        })?;
        let revision = Revision { created: self.create_revision, changed: self.mod_revision };
        Ok((key, Entry { value: self.value, revision }))
    }
}

/// A 64-bit number, which is a text in the JSON of protobuf.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_successful_responses_have_a_body() {
        let body =
            |response: &str| body_of(response.as_bytes().to_vec()).map_err(|e| e.to_string());
        assert_eq!(body("HTTP/1.0 200 OK\r\nDate: x\r\n\r\n{}"), Ok(b"{}".to_vec()));
        // An error is JSON too, and without the status it would be read as an empty list.
        let error = body("HTTP/1.0 503 Unavailable\r\nDate: x\r\n\r\n{\"code\":14}").unwrap_err();
        assert!(error.contains("503"), "{error}");
        body("HTTP/1.0 200 OK\r\n").unwrap_err();
        body("").unwrap_err();
    }

    #[test]
    fn entries_are_read_from_json() {
        let json = r#"{"header":{"revision":"9"},"kvs":[
            {"key":"L3JlZ2lzdHJ5L2E=","create_revision":"2","mod_revision":"7","version":"3","value":"eA=="},
            {"key":"L3JlZ2lzdHJ5L2I=","create_revision":"8","mod_revision":"8","version":"1"}],"count":"2"}"#;
        let response: RangeResponse = serde_json::from_str(json).unwrap();
        let entries: Result<Vec<_>> =
            response.kvs.into_iter().map(StoredEntry::into_entry).collect();
        let entry = |key: &str, value: &str, created, changed| {
            let revision = Revision { created, changed };
            (key.to_owned(), Entry { value: value.to_owned(), revision })
        };
        assert_eq!(
            entries.unwrap(),
            [entry("/registry/a", "eA==", 2, 7), entry("/registry/b", "", 8, 8)]
        );
        let empty: RangeResponse = serde_json::from_str(r#"{"header":{}}"#).unwrap();
        assert!(empty.kvs.is_empty());
    }
}
