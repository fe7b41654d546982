//! Queues of Volcano as queues of this project, and what is wrong with how they share.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_api::dialect::{self, RawObject};
use kube_batch_cache::dump::Dump;
use kube_batch_manifest::{
    diagnostic::{Diagnostic, Severity},
    object::Object,
    place::Place,
    reader::{Reader, Sink},
};
use kube_batch_model::{
    facts::{FactError, queue::QueueFacts},
    group_version::GroupVersion,
    name::Name,
    people,
    problem::PathProblem,
    resource::ResourceList,
};
use serde_json::{Map, Value, json};

use super::{table::Effect, volcano::Note};
use crate::queue::view::{QueueView, QueueViews};

/// The queue above all others, which Volcano makes.
const ROOT: &str = "root";

/// How Volcano names the devices of a class in amounts.
const DEVICE_CLASS: &str = "deviceclass/";

/// The queues of a file, and what is to be said about them.
#[derive(Default)]
pub(super) struct QueueFile {
    queues: Vec<FoundQueue>,
    /// Why objects cannot be used.
    pub(super) problems: Vec<Diagnostic>,
}

struct FoundQueue {
    version: GroupVersion,
    object: RawObject,
    facts: Arc<QueueFacts>,
    line: u32,
}

impl Sink for QueueFile {
    fn object(&mut self, object: Object, place: &Place<'_>) -> Result<(), FactError> {
        let Object::Queue(version, object) = object else { return Ok(()) };
        let facts = Arc::new(dialect::of(version).read_queue(&object)?);
        let line = place.diagnose(&FactError::new("", "", "")).line;
        self.queues.push(FoundQueue { version, object: *object, facts, line });
        Ok(())
    }

    fn dump(&mut self, _: Dump) {}

    fn problem(&mut self, problem: Diagnostic) {
        if problem.severity == Severity::Error {
            self.problems.push(problem);
        }
    }
}

/// The queues of manifests; `None` if there are none.
pub(super) fn read(name: &str, text: &str) -> Option<QueueFile> {
    let mut file = QueueFile::default();
    Reader::new().read(name, text.as_bytes(), &mut file);
    (!file.queues.is_empty()).then_some(file)
}

impl QueueFile {
    /// The queues as manifests of this project.
    pub(super) fn to_yaml(&self) -> String {
        let documents =
            self.queues.iter().filter(|queue| *queue.facts.name != *ROOT).map(|queue| {
                let manifest = json!({
                    "apiVersion": GroupVersion::V1Alpha2.to_string(),
                    "kind": "Queue",
                    "metadata": metadata(&queue.object),
                    "spec": spec(queue),
                });
                serde_saphyr::to_string(&manifest).expect("every key is text")
            });
        documents.collect::<Vec<_>>().join("---\n")
    }

    /// What was left out, and what is promised beyond what there is.
    pub(super) fn notes(&self) -> Vec<Note> {
        let mut notes: Vec<Note> = self.queues.iter().flat_map(FoundQueue::notes).collect();
        let queues = QueueViews::new(
            self.queues.iter().map(|queue| (Arc::clone(&queue.facts), queue.facts.status.clone())),
        );
        for queue in queues.all.ids() {
            let line = self.line_of(&queues.all[queue]);
            let note = |message| Note { line, column: 1, effect: Effect::Differs, message };
            let name_of = |queue| queues.all[queue].facts.name.clone();
            let not_served = queues.tree.not_served(queue);
            let why = not_served.and_then(|why| PathProblem::new(queue, why, name_of));
            if let Some(why) = why {
                let name = queues.all[queue].name();
                notes.push(note(format!("queue \"{name}\" serves nothing: {why}")));
            }
            let below: Vec<&QueueView> =
                queues.tree.children(queue).iter().map(|child| &queues.all[*child]).collect();
            notes.extend(beyond(&queues.all[queue], &below).into_iter().map(note));
        }
        notes.sort_by_key(|note| note.line);
        notes
    }

    fn line_of(&self, queue: &QueueView) -> u32 {
        let found = self.queues.iter().find(|own| own.facts.name == queue.facts.name);
        found.map_or(0, |own| own.line)
    }
}

impl FoundQueue {
    fn notes(&self) -> Vec<Note> {
        let name = &self.facts.name;
        let mut notes = Vec::new();
        let mut note =
            |effect, message| notes.push(Note { line: self.line, column: 1, effect, message });
        if **name == *ROOT {
            note(Effect::Same, "queue \"root\" is the top here, and no queue: left out".to_owned());
            return notes;
        }
        for field in &self.facts.not_honoured {
            note(
                Effect::Differs,
                format!("spec.{field} of queue \"{name}\" has no equivalent: left out"),
            );
        }
        let is_of_volcano = self.version == GroupVersion::Volcano;
        if is_of_volcano && !self.facts.deserved.is_empty() && self.facts.weight > 0 {
            note(
                Effect::Differs,
                format!(
                    "queue \"{name}\" has deserved and weight {}: Volcano's plugin capacity ignores the weight, and its \
                     plugin proportion the amounts; here the weight divides what the amounts leave",
                    self.facts.weight
                ),
            );
        }
        if is_of_volcano && self.facts.closed {
            note(
                Effect::Same,
                format!(
                    "queue \"{name}\" is closed: spec.state says so here, and vcctl does not change it"
                ),
            );
        }
        for field in ["capability", "deserved", "guarantee"] {
            for resource in dropped(&self.amounts(field)) {
                note(
                    Effect::Differs,
                    format!(
                        "{field} of {resource} of queue \"{name}\" has no equivalent: only whole devices of a class are \
                         counted; left out"
                    ),
                );
            }
        }
        notes
    }

    /// The amounts of a field as they are written.
    fn amounts(&self, field: &str) -> Value {
        let spec = &self.object.spec;
        match (self.version, field) {
            (GroupVersion::Volcano, "guarantee") => spec[field]["resource"].clone(),
            _ => spec[field].clone(),
        }
    }
}

/// The resources of which no amount can be given here: capacities of devices, `DIMENSION.deviceclass/CLASS`.
fn dropped(amounts: &Value) -> Vec<String> {
    let names = amounts.as_object().into_iter().flatten().map(|(name, _)| name);
    names.filter(|name| name.contains(&format!(".{DEVICE_CLASS}"))).cloned().collect()
}

/// Amounts with the names of resources here.
fn renamed(amounts: &Value) -> Option<Value> {
    let dropped = dropped(amounts);
    let renamed: Map<String, Value> = amounts
        .as_object()?
        .iter()
        .filter(|(name, _)| !dropped.contains(name))
        .map(|(name, amount)| {
            let class = name.strip_prefix(DEVICE_CLASS);
            let own =
                class.map(|class| kube_batch_model::devices::devices_of_class(class).to_string());
            (own.unwrap_or_else(|| name.clone()), amount.clone())
        })
        .collect();
    (!renamed.is_empty()).then_some(Value::Object(renamed))
}

fn metadata(object: &RawObject) -> Value {
    let mut metadata = json!({"name": object.metadata.name});
    for (key, map) in
        [("labels", &object.metadata.labels), ("annotations", &object.metadata.annotations)]
    {
        let kept: BTreeMap<&String, &String> = map
            .iter()
            .flatten()
            .filter(|(name, _)| !name.starts_with("kubectl.kubernetes.io/"))
            .collect();
        if !kept.is_empty() {
            metadata[key] = json!(kept);
        }
    }
    metadata
}

/// The spec of a queue with the fields of this project.
fn spec(queue: &FoundQueue) -> Value {
    let own = &queue.object.spec;
    if queue.version != GroupVersion::Volcano {
        return own.clone();
    }
    let mut spec = Map::new();
    spec.insert("weight".to_owned(), json!(queue.facts.weight));
    for field in ["parent", "priority", "reclaimable"] {
        let value = &own[field];
        if !value.is_null() && *value != json!(ROOT) {
            spec.insert(field.to_owned(), value.clone());
        }
    }
    for field in ["deserved", "guarantee", "capability"] {
        spec.extend(renamed(&queue.amounts(field)).map(|amounts| (field.to_owned(), amounts)));
    }
    if queue.facts.closed {
        spec.insert("state".to_owned(), json!("Closed"));
    }
    Value::Object(spec)
}

/// What is promised below a queue beyond what it is promised or limited to, in sentences.
fn beyond(queue: &QueueView, below: &[&QueueView]) -> Vec<String> {
    let name = queue.name();
    let mut found = Vec::new();
    let sum = |of: &dyn Fn(&QueueView) -> &ResourceList, resource: &Name| -> i64 {
        below.iter().fold(0, |sum: i64, child| sum.saturating_add(of(child).get(resource)))
    };
    type Amounts = (&'static str, fn(&QueueView) -> &ResourceList);
    let deserved: Amounts = ("deserved", |queue| &queue.facts.deserved);
    let guarantee: Amounts = ("guarantee", |queue| &queue.facts.guarantee);
    let capability: Amounts = ("capability", |queue| &queue.facts.capability);
    for ((of_children, children), (of_queue, own)) in
        [(deserved, deserved), (guarantee, capability), (deserved, capability)]
    {
        for (resource, limit) in own(queue).iter() {
            let promised = sum(&children, resource);
            if promised > limit {
                found.push(format!(
                    "the queues below \"{name}\" have {of_children} of {} together, and its own {of_queue} is {}: each gets \
                     its part",
                    people::named(resource, promised),
                    people::amount(resource, limit)
                ));
            }
        }
    }
    for (resource, limit) in queue.facts.capability.iter() {
        for (field, own) in [deserved, guarantee] {
            let own = own(queue).get(resource);
            if own > limit {
                found.push(format!(
                    "{field} of queue \"{name}\" is {}, and its capability {}: the capability counts",
                    people::named(resource, own),
                    people::amount(resource, limit)
                ));
            }
        }
    }
    found
}
