//! A model of the API server: objects, versions, preconditions and watches as Kubernetes has them.
//!
//! It knows no network and no time. What the scheduler never asks for is not there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use serde_json::{Value, json};

mod claims;
mod objects;

pub(crate) use self::objects::is_deleted;
use self::objects::{merge, merge_conditions, precondition};

/// A kind of object that the server stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    /// Path of the group and version.
    pub(crate) prefix: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) is_namespaced: bool,
}

macro_rules! kinds {
    ($($name:ident = $prefix:literal $plural:literal $is_namespaced:literal;)*) => {
        $(pub(crate) const $name: Kind =
            Kind { prefix: $prefix, plural: $plural, is_namespaced: $is_namespaced };)*
        pub(crate) const KINDS: &[Kind] = &[$($name),*];
    };
}

kinds! {
    PODS = "/api/v1" "pods" true;
    NODES = "/api/v1" "nodes" false;
    NAMESPACES = "/api/v1" "namespaces" false;
    VOLUMES = "/api/v1" "persistentvolumes" false;
    CLAIMS = "/api/v1" "persistentvolumeclaims" true;
    BUDGETS = "/apis/policy/v1" "poddisruptionbudgets" true;
    BATCH_JOBS = "/apis/batch/v1" "jobs" true;
    PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1" "priorityclasses" false;
    STORAGE_CLASSES = "/apis/storage.k8s.io/v1" "storageclasses" false;
    CSI_NODES = "/apis/storage.k8s.io/v1" "csinodes" false;
    CSI_DRIVERS = "/apis/storage.k8s.io/v1" "csidrivers" false;
    RESOURCE_CLAIMS = "/apis/resource.k8s.io/v1" "resourceclaims" true;
    SLICES = "/apis/resource.k8s.io/v1" "resourceslices" false;
    DEVICE_CLASSES = "/apis/resource.k8s.io/v1" "deviceclasses" false;
    DEVICE_TAINT_RULES = "/apis/resource.k8s.io/v1" "devicetaintrules" false;
    COMPOSITES = "/apis/scheduling.k8s.io/v1alpha3" "compositepodgroups" true;
    GROUPS = "/apis/scheduling.sigs.dev/v1alpha2" "podgroups" true;
    KUBERNETES_GROUPS = "/apis/scheduling.k8s.io/v1beta1" "podgroups" true;
    QUEUES = "/apis/scheduling.sigs.dev/v1alpha2" "queues" false;
    LEASES = "/apis/coordination.k8s.io/v1" "leases" true;
    EVENTS = "/apis/events.k8s.io/v1" "events" true;
}

impl Kind {
    /// The API group; empty for the core one.
    pub(crate) fn group(self) -> &'static str {
        let group = self.prefix.strip_prefix("/apis/").unwrap_or_default();
        group.split('/').next().unwrap_or_default()
    }
}

/// Namespace, empty for objects without, and name.
pub(crate) type Key = (String, String);

/// An answer: the status code and the body.
pub(crate) type Answer = (u16, Value);

/// A change, as watches show it.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: Key,
    /// The line of the stream.
    pub(crate) line: Bytes,
}

/// What a path names.
#[derive(Clone, Debug)]
pub(crate) struct Path<'p> {
    pub(crate) kind: Kind,
    pub(crate) namespace: &'p str,
    pub(crate) name: &'p str,
    pub(crate) subresource: &'p str,
}

impl<'p> Path<'p> {
    pub(crate) fn parse(path: &'p str) -> Option<Self> {
        let is_of =
            |kind: &&Kind| path.strip_prefix(kind.prefix).is_some_and(|rest| rest.starts_with('/'));
        for kind in KINDS.iter().filter(is_of) {
            let mut parts = path[kind.prefix.len() + 1..].split('/').peekable();
            let mut namespace = "";
            if kind.is_namespaced && parts.peek() == Some(&"namespaces") {
                parts.next();
                let Some(name) = parts.next() else { continue };
                namespace = name;
            }
            if parts.next() != Some(kind.plural) {
                continue;
            }
            let (name, subresource) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
            // What is in a namespace is not a part of the object Namespace.
            if *kind != NAMESPACES || subresource.is_empty() {
                return Some(Self { kind: *kind, namespace, name, subresource });
            }
        }
        None
    }

    pub(crate) fn key(&self) -> Key {
        (self.namespace.to_owned(), self.name.to_owned())
    }
}

#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<Key, Arc<Value>>,
    changes: Vec<Change>,
    /// Changes that are no longer known, of the first ones.
    n_forgotten: usize,
    /// The version at which the kind was served again, and how often that was.
    served_since: u64,
    n_times_served: u64,
}

/// The server.
#[derive(Debug, Default)]
pub(crate) struct Server {
    version: u64,
    /// Changes up to this version are not known any more.
    compacted: u64,
    tables: BTreeMap<Kind, Table>,
    n_uids: u64,
    /// Kinds that are not served.
    absent: BTreeSet<Kind>,
}

impl Server {
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn get(&self, kind: Kind, key: &Key) -> Option<&Arc<Value>> {
        self.tables.get(&kind)?.objects.get(key)
    }

    /// All objects of a kind, in order of their keys.
    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.tables.get(&kind).into_iter().flat_map(|table| &table.objects)
    }

    /// Changes of a kind after a version, with the position to go on from; `None` if they are not all
    /// known any more.
    pub(crate) fn changes(&self, kind: Kind, after: u64) -> Option<usize> {
        if after < self.compacted {
            return None;
        }
        let Some(table) = self.tables.get(&kind) else { return Some(0) };
        if after < table.served_since {
            return None;
        }
        let first = table.changes.partition_point(|change| change.version <= after);
        Some(table.n_forgotten + first)
    }

    /// The position after the last change of a kind.
    pub(crate) fn end_of_changes(&self, kind: Kind) -> usize {
        self.tables.get(&kind).map_or(0, |table| table.n_forgotten + table.changes.len())
    }

    /// The change of a kind at a position.
    pub(crate) fn change(&self, kind: Kind, position: usize) -> Option<&Change> {
        let table = self.tables.get(&kind)?;
        table.changes.get(position.checked_sub(table.n_forgotten)?)
    }

    /// Changes of a kind at positions below are not known any more.
    pub(crate) fn n_forgotten(&self, kind: Kind) -> usize {
        self.tables.get(&kind).map_or(0, |table| table.n_forgotten)
    }

    /// Forgets the changes up to a version: watches that have not shown them must list again.
    pub(crate) fn compact(&mut self, version: u64) {
        self.compacted = self.compacted.max(version.min(self.version));
        for table in self.tables.values_mut() {
            let n = table.changes.partition_point(|change| change.version <= self.compacted);
            table.changes.drain(..n);
            table.n_forgotten += n;
        }
    }

    /// Whether a kind is not served.
    pub(crate) fn is_absent(&self, kind: Kind) -> bool {
        self.absent.contains(&kind)
    }

    /// Does not serve a kind any more. Open watches of it end.
    pub(crate) fn stop_serving(&mut self, kind: Kind) {
        self.absent.insert(kind);
        self.tables.entry(kind).or_default().n_times_served += 1;
    }

    /// Serves a kind again. What was before is not known.
    pub(crate) fn serve_again(&mut self, kind: Kind) {
        self.absent.remove(&kind);
        self.version += 1;
        let table = self.tables.entry(kind).or_default();
        table.n_forgotten += table.changes.len();
        table.changes.clear();
        table.served_since = self.version;
    }

    /// How often a kind was deleted and served again.
    pub(crate) fn n_times_served(&self, kind: Kind) -> u64 {
        self.tables.get(&kind).map_or(0, |table| table.n_times_served)
    }

    /// Stores an object as it is, new or changed. A claim that is being deleted is removed with its last finalizer.
    pub(crate) fn put(&mut self, kind: Kind, key: &Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        let known = self.get(kind, key).cloned();
        let meta = object["metadata"].as_object_mut().expect("metadata");
        meta.insert("name".to_owned(), json!(key.1));
        if kind.is_namespaced {
            meta.insert("namespace".to_owned(), json!(key.0));
        }
        match &known {
            Some(known) => meta.insert("uid".to_owned(), known["metadata"]["uid"].clone()),
            None => {
                self.n_uids += 1;
                meta.insert("uid".to_owned(), json!(format!("uid-{}", self.n_uids)))
            }
        };
        meta.insert("resourceVersion".to_owned(), json!(self.version.to_string()));
        if kind == RESOURCE_CLAIMS && is_deleted(&object) && !claims::is_protected(&object) {
            self.remove(kind, key);
            return Arc::new(object);
        }
        let object = Arc::new(object);
        let table = self.tables.entry(kind).or_default();
        table.objects.insert(key.clone(), Arc::clone(&object));
        self.show((kind, key), if known.is_some() { "MODIFIED" } else { "ADDED" }, &object);
        object
    }

    /// Removes an object; returns it.
    pub(crate) fn remove(&mut self, kind: Kind, key: &Key) -> Option<Value> {
        let known = self.tables.get_mut(&kind)?.objects.remove(key)?;
        self.version += 1;
        let mut object = Arc::unwrap_or_clone(known);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.show((kind, key), "DELETED", &object);
        Some(object)
    }

    fn show(&mut self, (kind, key): (Kind, &Key), type_: &str, object: &Value) {
        if kind == EVENTS || kind == LEASES {
            return;
        }
        let line = Bytes::from(format!("{{\"type\":\"{type_}\",\"object\":{object}}}\n"));
        let change = Change { version: self.version, key: key.clone(), line };
        self.tables.entry(kind).or_default().changes.push(change);
    }

    /// Changes an object, if it exists.
    pub(crate) fn change_object(
        &mut self,
        kind: Kind,
        key: &Key,
        change: impl FnOnce(&mut Value),
    ) -> Option<Arc<Value>> {
        let mut object = (**self.get(kind, key)?).clone();
        change(&mut object);
        Some(self.put(kind, key, object))
    }

    /// Answers a request that is no watch.
    pub(crate) fn answer(
        &mut self,
        method: &str,
        path: &Path<'_>,
        query: &str,
        body: &Value,
    ) -> Answer {
        if self.absent.contains(&path.kind) {
            return not_found();
        }
        match (method, path.name, path.subresource) {
            ("GET", "", _) => self.list(path, query),
            ("GET", _, _) => {
                self.get(path.kind, &path.key()).map_or_else(not_found, |o| (200, (**o).clone()))
            }
            ("POST", "", _) => self.create(path, body),
            ("POST", _, "binding") => self.bind(&path.key(), body),
            ("PUT", _, _) => self.replace(path, body),
            ("PATCH", _, _) => self.patch(path, body),
            ("DELETE", _, _) => self.delete(path, body),
            _ => failure(405, "method not allowed"),
        }
    }

    /// The objects of a list, as lines of a stream that lists them.
    pub(crate) fn listed(&self, kind: Kind) -> Vec<Bytes> {
        let line =
            |object: &Value| Bytes::from(format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n"));
        self.all(kind).map(|(_, object)| line(object)).collect()
    }

    fn list(&self, path: &Path<'_>, query: &str) -> Answer {
        let name = query.split('&').find_map(|p| p.strip_prefix("fieldSelector=metadata.name%3D"));
        let limit = query.split('&').find_map(|p| p.strip_prefix("limit=")?.parse().ok());
        let items: Vec<Value> = self
            .all(path.kind)
            .filter(|(key, _)| path.namespace.is_empty() || key.0 == path.namespace)
            .filter(|(key, _)| name.is_none_or(|name| key.1 == name))
            .map(|(_, object)| (**object).clone())
            .take(limit.unwrap_or(usize::MAX))
            .collect();
        (200, json!({"metadata": {"resourceVersion": self.version.to_string()}, "items": items}))
    }

    fn create(&mut self, path: &Path<'_>, object: &Value) -> Answer {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let key = (path.namespace.to_owned(), name.to_owned());
        if self.get(path.kind, &key).is_some() {
            return failure(409, "it already exists");
        }
        let mut new = object.clone();
        if path.kind == RESOURCE_CLAIMS {
            new["status"] = json!({});
        }
        (201, (*self.put(path.kind, &key, new)).clone())
    }

    fn bind(&mut self, key: &Key, binding: &Value) -> Answer {
        let Some(pod) = self.get(PODS, key) else { return not_found() };
        if let Some(problem) = precondition(pod, &binding["metadata"]) {
            return failure(409, problem);
        }
        if is_deleted(pod) {
            return failure(409, "pod is being deleted, cannot be assigned to a host");
        }
        if pod["spec"]["nodeName"].is_string() {
            return failure(409, "pod is already assigned to a node");
        }
        self.change_object(PODS, key, |pod| {
            pod["spec"]["nodeName"] = binding["target"]["name"].clone();
            let annotations = binding["metadata"]["annotations"].as_object();
            for (name, value) in annotations.into_iter().flatten() {
                pod["metadata"]["annotations"][name] = value.clone();
            }
            let conditions = json!([{"type": "PodScheduled", "status": "True"}]);
            merge_conditions(&mut pod["status"], &conditions);
        });
        (201, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    }

    fn replace(&mut self, path: &Path<'_>, object: &Value) -> Answer {
        let Some(known) = self.get(path.kind, &path.key()) else { return not_found() };
        if let Some(problem) = precondition(known, &object["metadata"]) {
            return failure(409, problem);
        }
        let new = match path.kind {
            RESOURCE_CLAIMS if path.subresource == "status" => claims::with_status(known, object),
            RESOURCE_CLAIMS => claims::with_spec(known, object),
            _ => Ok(object.clone()),
        };
        match new {
            Ok(new) if new == **known => (200, new),
            Ok(new) => (200, (*self.put(path.kind, &path.key(), new)).clone()),
            Err(problem) => failure(422, problem),
        }
    }

    fn patch(&mut self, path: &Path<'_>, patch: &Value) -> Answer {
        let Some(known) = self.get(path.kind, &path.key()) else { return not_found() };
        if let Some(problem) = precondition(known, &patch["metadata"]) {
            return failure(409, problem);
        }
        let mut object = (**known).clone();
        let mut patch = patch.clone();
        // Kubernetes' own kinds are patched strategically: conditions are merged by their type.
        if matches!(path.kind, PODS | KUBERNETES_GROUPS)
            && let Some(conditions) =
                patch["status"].as_object_mut().and_then(|s| s.remove("conditions"))
        {
            merge_conditions(&mut object["status"], &conditions);
        }
        if path.kind == RESOURCE_CLAIMS
            && let Some(users) =
                patch["status"].as_object_mut().and_then(|s| s.remove("reservedFor"))
        {
            claims::delete_users(&mut object["status"]["reservedFor"], &users);
        }
        merge(&mut object, &patch);
        if object == **known {
            return (200, object);
        }
        (200, (*self.put(path.kind, &path.key(), object)).clone())
    }

    fn delete(&mut self, path: &Path<'_>, options: &Value) -> Answer {
        let Some(known) = self.get(path.kind, &path.key()) else { return not_found() };
        if let Some(problem) = precondition(known, &options["preconditions"]) {
            return failure(409, problem);
        }
        self.delete_object(path.kind, &path.key());
        (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    }

    /// Deletes an object: a pod with a node only when its kubelet has stopped it, and a claim for devices with its
    /// last finalizer.
    pub(crate) fn delete_object(&mut self, kind: Kind, key: &Key) {
        let has_kubelet = |pod: &Value| {
            let phase = pod["status"]["phase"].as_str().unwrap_or_default();
            pod["spec"]["nodeName"].is_string() && !matches!(phase, "Succeeded" | "Failed")
        };
        let Some(object) = self.get(kind, key) else { return };
        let stays = match kind {
            PODS => has_kubelet(object),
            RESOURCE_CLAIMS => claims::is_protected(object),
            _ => false,
        };
        if !stays {
            self.remove(kind, key);
        } else if !is_deleted(object) {
            self.change_object(kind, key, |object| {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            });
        }
    }
}

pub(crate) fn not_found() -> Answer {
    failure(404, "not found")
}

/// A `Status` as the API server answers with.
pub(crate) fn failure(code: u16, message: &str) -> Answer {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    (code, status)
}

#[cfg(test)]
mod tests {
    use kube_batch_api::kind;

    use super::*;

    #[test]
    fn every_kind_that_is_watched_is_served() {
        for kind in kind::Kind::ALL.iter().filter(|kind| kind.is_watched()) {
            for version in kind.api_versions() {
                let root = if version.contains('/') { "apis" } else { "api" };
                let prefix = format!("/{root}/{version}");
                // Of PodGroups and queues, those of other projects are not installed.
                let is_dialect = kind.versions().next().is_some();
                let is_served =
                    KINDS.iter().any(|own| own.prefix == prefix && own.plural == kind.plural());
                assert!(is_served || is_dialect, "{kind} of {version}");
            }
        }
    }
}
