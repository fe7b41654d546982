//! An API server for tests: in this process, in memory, with faults on request.
//!
//! It stores objects by path and does what the scheduler asks of a real one: binding, deletion with
//! a precondition, optimistic locking, patches, lists and watches. A test says which requests fail
//! and how, then looks at what was sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::body::Body;
use futures::{StreamExt, stream};
use http::{Method, Request, Response};
use kube::Client;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};
use tower::{BoxError, ServiceBuilder};

use super::retry_after::with_retry_after;

/// How a request fails.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// It is answered with this status, and nothing is done.
    Status(u16),
    /// It is answered with this status, and a pause in seconds that the client should make.
    RetryAfter(u16, u32),
    /// It is answered as by a server with too many requests: a text, and a pause in seconds in a header.
    TooManyRequests(u32),
    /// It is never answered, and nothing is done.
    Hang,
    /// It is never answered, but what it asks for is done.
    Lost,
    /// The sender panics.
    Panic,
}

/// Whether a fault happens again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Once,
    Always,
}

#[derive(Debug)]
struct Rule {
    method: Method,
    /// Part of the path and query.
    contains: String,
    fault: Fault,
    times: Times,
}

/// A request as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) content_type: String,
    pub(crate) body: Value,
}

#[derive(Debug, Default)]
struct Model {
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Paths of lists that exist; others get a 404.
    served: BTreeSet<String>,
    rules: Vec<Rule>,
    /// From sending a request to its answer.
    delay: Duration,
    sent: Vec<Sent>,
    watches: Vec<(String, mpsc::UnboundedSender<Value>)>,
    /// What watches were told: version, list, event.
    history: Vec<(u64, String, Value)>,
}

/// The server; clones are of the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeApi(Arc<Mutex<Model>>);

/// What to send back.
enum Answer {
    Json(u16, Value),
    /// Too many requests; the pause in seconds is in a header.
    TooMany(u32),
    /// Events, until a time.
    Watch(mpsc::UnboundedReceiver<Value>, Instant),
    Nothing,
    Panic,
}

impl FakeApi {
    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.respond(request).await) }
        });
        let service = ServiceBuilder::new()
            .and_then(with_retry_after)
            .map_err(BoxError::from)
            .service(service);
        Client::new(service, "default")
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores an object, and tells watches of it.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.model().store(path, object);
    }

    /// Stores an object; watches that are open are not told.
    pub(crate) fn put_silently(&self, path: &str, object: Value) {
        let mut model = self.model();
        let watches = std::mem::take(&mut model.watches);
        model.store(path, object);
        model.watches = watches;
    }

    /// Restores a state of this version: no change of a later one has happened.
    pub(crate) fn go_back_to(&self, version: u64) {
        let mut model = self.model();
        model.version = version;
        model.history.retain(|(other, _, _)| *other <= version);
    }

    /// Removes an object, and tells watches of it.
    pub(crate) fn remove(&self, path: &str) {
        self.model().remove(path);
    }

    /// The object at a path.
    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        self.model().objects.get(path).cloned()
    }

    /// Serves lists and watches of a path.
    pub(crate) fn serve(&self, list: &str) {
        self.model().served.insert(list.to_owned());
    }

    /// Sends an event to all watches of a list, whatever is stored.
    pub(crate) fn send_event(&self, list: &str, event: &Value) {
        let model = self.model();
        for (_, watch) in model.watches.iter().filter(|(watched, _)| watched == list) {
            let _ = watch.send(event.clone());
        }
    }

    /// Ends all watches of a list.
    pub(crate) fn end_watches(&self, list: &str) {
        self.model().watches.retain(|(watched, _)| watched != list);
    }

    /// Lets the next requests fail that have this method and this text in their path and query, one
    /// after the other.
    pub(crate) fn fail(
        &self,
        method: Method,
        contains: &str,
        faults: impl IntoIterator<Item = Fault>,
    ) {
        for fault in faults {
            self.add_rule(method.clone(), contains, fault, Times::Once);
        }
    }

    /// Lets all such requests fail from now on.
    pub(crate) fn fail_always(&self, method: Method, contains: &str, fault: Fault) {
        self.add_rule(method, contains, fault, Times::Always);
    }

    /// Lets each answer take this long from now on. A request is done after half of it.
    pub(crate) fn set_delay(&self, delay: Duration) {
        self.model().delay = delay;
    }

    fn add_rule(&self, method: Method, contains: &str, fault: Fault, times: Times) {
        let contains = contains.to_owned();
        self.model().rules.push(Rule { method, contains, fault, times });
    }

    /// Lets requests succeed again.
    pub(crate) fn recover(&self) {
        self.model().rules.clear();
    }

    /// Requests sent so far.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.model().sent.clone()
    }

    /// Requests sent so far with this method and this text in their path and query.
    pub(crate) fn sent_to(&self, method: &Method, contains: &str) -> Vec<Sent> {
        let is_asked = |sent: &Sent| {
            sent.method == *method && format!("{}?{}", sent.path, sent.query).contains(contains)
        };
        self.sent().into_iter().filter(is_asked).collect()
    }

    async fn respond(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.expect("a body in memory");
        let content_type = parts.headers.get(http::header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let sent = Sent {
            method: parts.method,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            content_type: content_type.unwrap_or_default().to_owned(),
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        };
        let half = self.model().delay / 2;
        tokio::time::sleep(half).await;
        let answer = self.model().answer(sent);
        tokio::time::sleep(half).await;
        assert!(!matches!(answer, Answer::Panic), "a panic for a test");
        let response = Response::builder();
        let response = match answer {
            Answer::Nothing | Answer::Panic => std::future::pending().await,
            Answer::Json(code, body) => response.status(code).body(Body::from(body.to_string())),
            Answer::TooMany(seconds) => response
                .status(429)
                .header(http::header::RETRY_AFTER, seconds)
                .body("injected".into()),
            Answer::Watch(events, end) => {
                let lines = stream::unfold((events, end), async |(mut events, end)| {
                    let event = tokio::time::timeout_at(end, events.recv()).await.ok()??;
                    // The type first, as a real server sends it: objects are read as they come.
                    let line =
                        format!("{{\"type\":{},\"object\":{}}}\n", event["type"], event["object"]);
                    Some((Ok::<_, Infallible>(line), (events, end)))
                });
                response.status(200).body(Body::from_stream(lines.boxed()))
            }
        };
        response.expect("a status and a body")
    }
}

impl Model {
    fn answer(&mut self, sent: Sent) -> Answer {
        self.sent.push(sent.clone());
        match self.fault_for(&sent) {
            Some(Fault::Hang) => return Answer::Nothing,
            Some(Fault::Panic) => return Answer::Panic,
            Some(Fault::Status(code)) => return failure(code, "injected", 0),
            Some(Fault::TooManyRequests(seconds)) => return Answer::TooMany(seconds),
            Some(Fault::RetryAfter(code, seconds)) => return failure(code, "injected", seconds),
            Some(Fault::Lost) => {
                self.act(&sent);
                return Answer::Nothing;
            }
            None => {}
        }
        self.act(&sent)
    }

    fn fault_for(&mut self, sent: &Sent) -> Option<Fault> {
        let uri = format!("{}?{}", sent.path, sent.query);
        let is_for = |rule: &Rule| rule.method == sent.method && uri.contains(&rule.contains);
        let row = self.rules.iter().position(is_for)?;
        Some(match self.rules[row].times {
            Times::Once => self.rules.remove(row).fault,
            Times::Always => self.rules[row].fault.clone(),
        })
    }

    fn act(&mut self, sent: &Sent) -> Answer {
        let Sent { method, path, query, body, .. } = sent;
        match method.as_str() {
            "GET" if query.contains("watch=true") => self.watch(path, query),
            "GET" if self.served.contains(path) => self.list(path, query),
            "GET" => self.objects.get(path).map_or_else(not_found, |object| ok(object.clone())),
            "POST" => match path.strip_suffix("/binding") {
                Some(pod) => self.bind(pod, body),
                None => self.create(path, body),
            },
            "PUT" => match path.strip_suffix("/status") {
                Some(path) => self.replace_status(path, body),
                None => self.replace(path, body),
            },
            "PATCH" => self.patch(path.strip_suffix("/status").unwrap_or(path), body),
            "DELETE" => self.delete(path, body),
            _ => failure(405, "method not allowed", 0),
        }
    }

    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let known = self.objects.insert(path.to_owned(), object.clone());
        self.publish(path, if known.is_some() { "MODIFIED" } else { "ADDED" }, &object);
        object
    }

    fn remove(&mut self, path: &str) {
        self.version += 1;
        if let Some(mut object) = self.objects.remove(path) {
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.publish(path, "DELETED", &object);
        }
    }

    fn publish(&mut self, path: &str, type_: &str, object: &Value) {
        let (list, event) = (list_of(path), json!({"type": type_, "object": object}));
        for (_, watch) in self.watches.iter().filter(|(watched, _)| *watched == list) {
            let _ = watch.send(event.clone());
        }
        self.history.push((self.version, list, event));
    }

    /// The objects of a list, of one namespace or of all.
    fn listed(&self, list: &str) -> Vec<Value> {
        let is_in = |path: &str| {
            list_of(path) == list || path.rsplit_once('/').is_some_and(|(parent, _)| parent == list)
        };
        let objects = self.objects.iter().filter(|(path, _)| is_in(path));
        objects.map(|(_, object)| object.clone()).collect()
    }

    fn list(&self, path: &str, query: &str) -> Answer {
        let metadata = json!({"resourceVersion": self.version.to_string()});
        let mut items = self.listed(path);
        if let Some((_, name)) = query.split_once("fieldSelector=metadata.name%3D") {
            items.retain(|object| object["metadata"]["name"] == name);
        }
        ok(json!({"metadata": metadata, "items": items}))
    }

    fn watch(&mut self, path: &str, query: &str) -> Answer {
        if !self.served.contains(path) {
            return not_found();
        }
        let (watch, events) = mpsc::unbounded_channel();
        if query.contains("sendInitialEvents=true") {
            for object in self.listed(path) {
                let _ = watch.send(json!({"type": "ADDED", "object": object}));
            }
            let _ = watch.send(self.bookmark(&json!({"k8s.io/initial-events-end": "true"})));
        } else if let Some(from) = number(query, "resourceVersion") {
            let missed = self.history.iter().filter(|(version, _, _)| *version > from);
            for (_, _, event) in missed.filter(|(_, list, _)| list == path) {
                let _ = watch.send(event.clone());
            }
            // A real server sends it two seconds before the end, unless it waits for a version that it has lost.
            if from <= self.version {
                let _ = watch.send(self.bookmark(&json!({})));
            }
        }
        self.watches.push((path.to_owned(), watch));
        let seconds = number(query, "timeoutSeconds").unwrap_or(300);
        Answer::Watch(events, Instant::now() + Duration::from_secs(seconds))
    }

    fn bookmark(&self, annotations: &Value) -> Value {
        let version = self.version.to_string();
        let metadata = json!({"resourceVersion": version, "annotations": annotations});
        json!({"type": "BOOKMARK", "object": {
            "apiVersion": "v1", "kind": "Any", "metadata": metadata,
        }})
    }

    fn bind(&mut self, path: &str, binding: &Value) -> Answer {
        let Some(mut pod) = self.objects.get(path).cloned() else { return not_found() };
        if pod["metadata"]["uid"] != binding["metadata"]["uid"] {
            return failure(409, "the UID in the precondition differs", 0);
        }
        if pod["spec"]["nodeName"].is_string() {
            return failure(409, "pod is already assigned to a node", 0);
        }
        pod["spec"]["nodeName"] = binding["target"]["name"].clone();
        self.store(path, pod);
        Answer::Json(201, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    }

    fn create(&mut self, list: &str, object: &Value) -> Answer {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{list}/{name}");
        if self.objects.contains_key(&path) {
            return failure(409, "it already exists", 0);
        }
        Answer::Json(201, self.store(&path, object.clone()))
    }

    fn replace(&mut self, path: &str, object: &Value) -> Answer {
        let Some(known) = self.objects.get(path) else { return not_found() };
        let wanted = &object["metadata"]["resourceVersion"];
        if wanted.is_string() && *wanted != known["metadata"]["resourceVersion"] {
            return failure(409, "the object has been modified", 0);
        }
        ok(self.store(path, object.clone()))
    }

    fn replace_status(&mut self, path: &str, object: &Value) -> Answer {
        let Some(known) = self.objects.get(path) else { return not_found() };
        if object["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"] {
            return failure(409, "the object has been modified", 0);
        }
        let mut new = known.clone();
        new["status"] = object["status"].clone();
        if let Some(problem) = problem_of_claim(&known["status"], &new["status"]) {
            return failure(422, problem, 0);
        }
        ok(self.store(path, new))
    }

    fn patch(&mut self, path: &str, patch: &Value) -> Answer {
        let Some(mut object) = self.objects.get(path).cloned() else { return not_found() };
        for (field, problem) in [
            ("uid", "the UID in the precondition differs"),
            ("resourceVersion", "the object has been modified"),
        ] {
            let wanted = &patch["metadata"][field];
            if wanted.is_string() && *wanted != object["metadata"][field] {
                return failure(409, problem, 0);
            }
        }
        merge(&mut object, patch);
        ok(self.store(path, object))
    }

    fn delete(&mut self, path: &str, options: &Value) -> Answer {
        let Some(known) = self.objects.get(path) else { return not_found() };
        let wanted = &options["preconditions"]["uid"];
        if wanted.is_string() && *wanted != known["metadata"]["uid"] {
            return failure(409, "the UID in the precondition differs", 0);
        }
        self.remove(path);
        ok(json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    }
}

/// A parameter of a query that is a number.
fn number(query: &str, name: &str) -> Option<u64> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// The path of the list, of all namespaces, in which an object stands.
fn list_of(path: &str) -> String {
    let list = path.rsplit_once('/').map_or(path, |(list, _)| list);
    match list.split_once("/namespaces/") {
        Some((group, rest)) => {
            format!("{group}/{}", rest.split_once('/').map_or("namespaces", |(_, plural)| plural))
        }
        None => list.to_owned(),
    }
}

/// What a real server finds wrong with the new status of a claim for devices.
fn problem_of_claim(known: &Value, new: &Value) -> Option<&'static str> {
    let n_users = new["reservedFor"].as_array().map_or(0, Vec::len);
    match (&known["allocation"], &new["allocation"]) {
        (_, Value::Null) if n_users > 0 => {
            Some("status.reservedFor: may not be specified when `allocated` is not set")
        }
        (Value::Object(known), Value::Object(new)) if known != new => {
            Some("status.allocation: field is immutable")
        }
        _ if n_users > 256 => Some("status.reservedFor: Too many: must have at most 256 items"),
        _ => None,
    }
}

/// Removes from a list what a strategic merge patch deletes by uid; returns whether it deletes anything.
fn delete_from_list(list: &mut Value, patch: &Value) -> bool {
    let deleted = patch.as_array().into_iter().flatten();
    let mut deleted = deleted.filter(|item| item["$patch"] == "delete").peekable();
    if deleted.peek().is_none() {
        return false;
    }
    let uids: Vec<&Value> = deleted.map(|item| &item["uid"]).collect();
    if let Some(list) = list.as_array_mut() {
        list.retain(|item| !uids.contains(&&item["uid"]));
    }
    true
}

/// A merge patch, lists of conditions replaced whole.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in fields {
        match value {
            Value::Null => {
                object.as_object_mut().expect("it is an object").remove(key);
            }
            Value::Object(_) => merge(&mut object[key], value),
            _ if delete_from_list(&mut object[key], value) => {}
            _ => object[key] = value.clone(),
        }
    }
}

fn ok(body: Value) -> Answer {
    Answer::Json(200, body)
}

fn not_found() -> Answer {
    failure(404, "not found", 0)
}

/// A `Status` object as the API server sends it.
fn failure(code: u16, message: &str, retry_after: u32) -> Answer {
    let details = json!({"retryAfterSeconds": retry_after});
    let reason = match code {
        400 => "BadRequest",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code, "details": details,
    });
    Answer::Json(code, status)
}
