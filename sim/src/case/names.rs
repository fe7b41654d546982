//! The names in the expectations of a case.
//!
//! An expectation about an object that never existed cannot fail, or cannot hold: the name is
//! probably misspelt. Names are checked after the run, because controllers create pods.

use std::{collections::BTreeSet, fmt};

use kube_batch_model::name::ObjectKey;
use kube_batch_yaml::{Cursor, Key, Problem, Value, suggest};

use super::positioned::Positioned;
use crate::world::World;

/// What a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Referent {
    Pod,
    PodGroup,
    /// A PodGroup, a controller, or a pod that has neither.
    Group,
    Queue,
    Node,
}

/// A name in an expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    referent: Referent,
    name: String,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.referent {
            Referent::Pod => "pod",
            Referent::PodGroup => "PodGroup",
            Referent::Group => "PodGroup, controller or pod",
            Referent::Queue => "queue",
            Referent::Node => "node",
        };
        write!(f, "{kind} \"{}\"", self.name)
    }
}

/// The names in an expectation. Malformed names, and negative numbers, are problems.
pub(super) fn references(expect: &Cursor<'_>) -> Vec<Positioned<Reference>> {
    let mut found = Found(Vec::new());
    for (key, value) in entries(expect) {
        reject_negative(&value);
        match &*key.text {
            "binds" | "pipelined" => {
                for (pod, nodes) in entries(&value) {
                    found.key(Referent::Pod, pod, &nodes);
                    found.nodes(&nodes);
                }
            }
            "notScheduled" | "evicts" | "evictsAnyOf" | "evictsNot" => {
                items(&value).iter().for_each(|pod| found.text(Referent::Pod, pod));
            }
            "sameNode" => {
                let names = items(&value).into_iter().flat_map(|list| items(&list));
                names.for_each(|name| found.text(Referent::Group, &name));
            }
            "bindCount" | "evictCount" | "pipelinedCount" => found.counts(&value),
            "events" | "eventsNot" => {
                let events = items(&value).into_iter().flat_map(|event| entries(&event));
                events.filter(|(key, _)| key.text == "object").for_each(|(_, o)| found.object(&o));
            }
            "queues" => found.keys(Referent::Queue, &value),
            "jobs" | "pods" => found.keys(Referent::Group, &value),
            "podGroups" => found.keys(Referent::PodGroup, &value),
            "podConditions" => found.keys(Referent::Pod, &value),
            // Reported as an unknown key.
            _ => {}
        }
    }
    found.0
}

/// The entries of a mapping; none if it is something else, which is reported elsewhere.
fn entries<'n>(cursor: &Cursor<'n>) -> Vec<(&'n Key<'n>, Cursor<'n>)> {
    let map = cursor.node().as_mapping().and_then(|_| cursor.clone().mapping());
    map.map(|mut map| map.rest().collect()).unwrap_or_default()
}

/// The items of a sequence, likewise.
fn items<'n>(cursor: &Cursor<'n>) -> Vec<Cursor<'n>> {
    if cursor.node().as_sequence().is_none() {
        return Vec::new();
    }
    cursor.clone().items().collect()
}

/// Everything that is counted in an expectation is at least 0.
fn reject_negative(cursor: &Cursor<'_>) {
    match &cursor.node().value {
        Value::Number(number) if number.as_f64() < 0.0 => {
            cursor.problem(format!("{} is negative", number.text()));
        }
        Value::Mapping(_) => entries(cursor).iter().for_each(|(_, value)| reject_negative(value)),
        Value::Sequence(_) => items(cursor).iter().for_each(reject_negative),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

struct Found(Vec<Positioned<Reference>>);

impl Found {
    fn add(&mut self, referent: Referent, name: &str, at: &Cursor<'_>, position: (u32, u32)) {
        let is_namespaced = match referent {
            Referent::Pod | Referent::PodGroup | Referent::Group => true,
            Referent::Queue | Referent::Node => false,
        };
        let is_pair = name.split_once('/').is_some_and(|(namespace, name)| {
            !namespace.is_empty() && !name.is_empty() && !name.contains('/')
        });
        let (line, column) = position;
        if is_namespaced && !is_pair {
            at.problem(format!("{name:?} is not of the form namespace/name"));
            return;
        }
        let value = Reference { referent, name: name.to_owned() };
        self.0.push(Positioned { value, path: at.path().to_owned(), line, column });
    }

    /// The name that a key is.
    fn key(&mut self, referent: Referent, key: &Key<'_>, at: &Cursor<'_>) {
        self.add(referent, &key.text, at, (key.line, key.column));
    }

    fn keys(&mut self, referent: Referent, map: &Cursor<'_>) {
        entries(map).iter().for_each(|(key, value)| self.key(referent, key, value));
    }

    /// The name that a value is.
    fn text(&mut self, referent: Referent, value: &Cursor<'_>) {
        if let Some(name) = value.node().as_str() {
            self.add(referent, name, value, (value.node().line, value.node().column));
        }
    }

    /// A node, several, or any.
    fn nodes(&mut self, choice: &Cursor<'_>) {
        if choice.node().as_str() != Some("*") {
            self.text(Referent::Node, choice);
        }
        items(choice).iter().for_each(|node| self.text(Referent::Node, node));
    }

    fn counts(&mut self, count: &Cursor<'_>) {
        for (key, value) in entries(count) {
            match &*key.text {
                "groups" => self.keys(Referent::Group, &value),
                "queues" => self.keys(Referent::Queue, &value),
                "nodes" => self.keys(Referent::Node, &value),
                _ => {}
            }
        }
    }

    /// The object of an event: `Pod ns/name`.
    fn object(&mut self, object: &Cursor<'_>) {
        let Some(text) = object.node().as_str() else { return };
        let referent = |kind| match kind {
            "Pod" => Some(Referent::Pod),
            "PodGroup" => Some(Referent::PodGroup),
            "Queue" => Some(Referent::Queue),
            _ => None,
        };
        let parts = text.split_once(' ').and_then(|(kind, name)| Some((referent(kind)?, name)));
        match parts {
            Some((referent, name)) => {
                self.add(referent, name, object, (object.node().line, object.node().column));
            }
            None => object.problem(format!(
                "{text:?} is not of the form Pod namespace/name, PodGroup namespace/name or Queue \
                 name"
            )),
        }
    }
}

/// The objects that have existed during a run.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pods: BTreeSet<ObjectKey>,
    pod_groups: BTreeSet<ObjectKey>,
    /// What the pods belong to.
    groups: BTreeSet<ObjectKey>,
    controllers: BTreeSet<ObjectKey>,
    queues: BTreeSet<String>,
    nodes: BTreeSet<String>,
}

impl Seen {
    /// Records the objects that exist now.
    pub(crate) fn record(&mut self, world: &World) {
        for facts in world.pods() {
            if !self.pods.contains(&facts.key) {
                self.pods.insert(facts.key.clone());
                self.groups.insert(world.group_of(&facts.key));
            }
        }
        let store = &world.store;
        self.pod_groups.extend(store.groups.iter().map(|((key, _), _)| key.clone()));
        self.controllers.extend(world.controllers.keys().cloned());
        self.queues.extend(store.queues.values().map(|queue| queue.name.to_string()));
        // Pods of jobs that name no queue are counted here, even if it does not exist.
        self.queues.insert(world.options().default_queue.to_string());
        self.nodes.extend(store.nodes.values().map(|node| node.name.to_string()));
    }

    /// The names of objects that have never existed.
    pub(crate) fn unknown(&self, names: &[Positioned<Reference>]) -> Vec<Problem> {
        let unknown = names.iter().filter(|name| !self.has(&name.value));
        unknown.map(|name| name.problem(self.message(&name.value))).collect()
    }

    fn has(&self, Reference { referent, name }: &Reference) -> bool {
        let key = ObjectKey::parse(name);
        match referent {
            Referent::Pod => self.pods.contains(&key) || self.may_become_pod(&key),
            Referent::PodGroup => self.pod_groups.contains(&key),
            Referent::Group => {
                [&self.pod_groups, &self.groups, &self.controllers, &self.pods]
                    .iter()
                    .any(|known| known.contains(&key))
                    || self.may_become_pod(&key)
            }
            Referent::Queue => self.queues.contains(name),
            Referent::Node => self.nodes.contains(name),
        }
    }

    /// Whether a controller names its pods like this: it may not have come to create this one.
    fn may_become_pod(&self, pod: &ObjectKey) -> bool {
        let is_number = |text: &str| {
            !text.is_empty() && text.split('-').all(|part| part.parse::<usize>().is_ok())
        };
        self.controllers.iter().any(|controller| {
            let rest = pod.name.strip_prefix(&*controller.name);
            let number = rest.and_then(|rest| rest.strip_prefix('-'));
            controller.namespace == pod.namespace && number.is_some_and(is_number)
        })
    }

    fn message(&self, reference: &Reference) -> String {
        let texts = |keys: &BTreeSet<ObjectKey>| keys.iter().map(ToString::to_string).collect();
        let known: Vec<String> = match reference.referent {
            Referent::Pod => texts(&self.pods),
            Referent::PodGroup => texts(&self.pod_groups),
            Referent::Group => texts(&self.groups),
            Referent::Queue => self.queues.iter().cloned().collect(),
            Referent::Node => self.nodes.iter().cloned().collect(),
        };
        let meant = suggest(&reference.name, known.iter().map(String::as_str));
        let hint = meant.map(|meant| format!(", did you mean {meant}")).unwrap_or_default();
        format!("{reference} never exists in this case{hint}")
    }
}
