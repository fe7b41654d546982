//! What the admission policy checks, and what the scheduler reads, in every kind of object that names a queue.

use std::collections::BTreeMap;

use kube_batch_api::{
    dialect::{self, kinds},
    naming::{Class, Naming},
    read,
};
use kube_batch_model::{
    facts::{group::GroupFacts, metadata::MetadataPrefixes, pod::Interner},
    group_version::GroupVersion,
    name::Name,
};
use serde_json::{Deserializer, Value, json};

use crate::{
    bed::{Bed, NAMESPACE, nodes},
    other_groups::{bed_with_own_groups, install_other_definitions},
    users::{bind_in_namespace, let_use},
};

/// What a field may contain; `None`: the field is absent. Everyone here may use the first queue and class that is
/// named, and not the second.
type Text = Option<&'static str>;
const QUEUES: [Text; 4] = [None, Some(""), Some("training"), Some("research")];
const CLASSES: [Text; 4] = [None, Some(""), Some("high"), Some("higher")];
const PRIORITIES: [(&str, i32); 2] = [("high", 1000), ("higher", 2000)];

/// What an object has in each field that may name a queue or a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    label: Text,
    annotation: Text,
    queue: Text,
    class: Text,
}

/// A kind of objects that name a queue.
struct Kind {
    resource: &'static str,
    naming: Naming,
    /// An object without a name.
    plain: Value,
    /// Whether its API has `spec.queue` and `spec.priorityClassName`.
    has_fields: [bool; 2],
}

impl Kind {
    /// A kind of the table.
    fn of((resource, naming): (&'static str, Naming)) -> Self {
        let reference = json!({"workloadName": "w", "templateName": "t"});
        let of_members = || json!({"minMember": 1});
        let (api, kind, spec, has_fields) = match resource {
            "podgroups.scheduling.sigs.dev" => {
                ("scheduling.sigs.dev/v1alpha2", "PodGroup", of_members(), [true, true])
            }
            "podgroups.scheduling.incubator.k8s.io" => {
                ("scheduling.incubator.k8s.io/v1alpha1", "PodGroup", of_members(), [true, true])
            }
            "podgroups.scheduling.volcano.sh" => {
                ("scheduling.volcano.sh/v1beta1", "PodGroup", of_members(), [true, true])
            }
            "podgroups.scheduling.x-k8s.io" => {
                ("scheduling.x-k8s.io/v1alpha1", "PodGroup", of_members(), [false, false])
            }
            "podgroups.scheduling.k8s.io" => {
                let policy = json!({"gang": {"minCount": 1}});
                let spec = json!({"schedulingPolicy": policy, "workloadRef": reference});
                ("scheduling.k8s.io/v1beta1", "PodGroup", spec, [false, true])
            }
            "compositepodgroups.scheduling.k8s.io" => {
                let policy = json!({"gang": {"minGroupCount": 1}});
                let spec = json!({"schedulingPolicy": policy, "workloadRef": reference});
                ("scheduling.k8s.io/v1alpha3", "CompositePodGroup", spec, [false, true])
            }
            // It has a class too, which the policy leaves to ResourceQuotas.
            "pods" => {
                let spec = json!({"containers": [{"name": "c", "image": "i"}]});
                ("v1", "Pod", spec, [false, false])
            }
            _ => panic!("there is no object of {resource} here"),
        };
        let metadata = json!({"namespace": NAMESPACE});
        let plain = json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec});
        Self { resource, naming, plain, has_fields }
    }

    /// Every combination of contents of its fields.
    fn all(&self) -> Vec<Named> {
        let [queues, classes] = [(QUEUES, 0), (CLASSES, 1)]
            .map(|(texts, field)| if self.has_fields[field] { texts.to_vec() } else { vec![None] });
        let mut all = Vec::new();
        for label in QUEUES {
            for annotation in QUEUES {
                for queue in &queues {
                    let of_class =
                        |class: &Text| Named { label, annotation, queue: *queue, class: *class };
                    all.extend(classes.iter().map(of_class));
                }
            }
        }
        all
    }

    /// The combinations between which objects change: those of the fields for the queue, and those of the class
    /// without a queue. The metadata of a kind with `spec.queue`, where they have no effect, name no queue or
    /// the other one.
    fn changed(&self) -> Vec<Named> {
        let [has_queue, _] = self.has_fields;
        let mut all = self.all();
        all.retain(|Named { label, annotation, queue, class }| {
            let is_tried = !has_queue || (label == annotation && [None, QUEUES[3]].contains(label));
            is_tried && (class.is_none() || [label, annotation, queue].iter().all(|t| t.is_none()))
        });
        all
    }

    /// This queue in every field, and no class.
    fn named(&self, queue: Text) -> Named {
        let [has_queue, _] = self.has_fields;
        let of_spec = queue.filter(|_| has_queue);
        Named { label: queue, annotation: queue, queue: of_spec, class: None }
    }

    fn object(&self, name: &str, named: Named) -> Value {
        let mut object = self.plain.clone();
        object["metadata"]["name"] = name.into();
        self.write(&mut object, named);
        object
    }

    /// Replaces what an object names.
    fn write(&self, object: &mut Value, named: Named) {
        const KEY: &str = "scheduling.sigs.dev/queue";
        set(&mut object["metadata"]["labels"], KEY, named.label);
        set(&mut object["metadata"]["annotations"], KEY, named.annotation);
        set(&mut object["spec"], "queue", named.queue);
        set(&mut object["spec"], "priorityClassName", named.class);
    }
}

fn set(map: &mut Value, key: &str, text: Text) {
    if let Some(text) = text {
        map[key] = text.into();
    } else if let Some(map) = map.as_object_mut() {
        map.remove(key);
    }
}

/// The queue and the class that the scheduler reads in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reading {
    queue: Option<String>,
    class: Option<String>,
}

impl Reading {
    /// Reads an object as the API server has stored it.
    fn of(object: &Value) -> Self {
        let (kind, api) = (object["kind"].as_str(), object["apiVersion"].as_str());
        let (queue, class) = match (kind, GroupVersion::parse(api.expect("an apiVersion"))) {
            (Some("PodGroup"), Some(version)) => {
                let object = serde_json::from_value(object.clone()).expect("an object");
                let prefixes = MetadataPrefixes::default();
                let facts = dialect::of(version).read_group(&object, &prefixes).expect("facts");
                let GroupFacts { queue, priority_class, priority, .. } = facts;
                (queue, priority_class.or_else(|| class_of_priority(priority?)))
            }
            (Some("CompositePodGroup"), _) => {
                let object = serde_json::from_value(object.clone()).expect("an object");
                let facts = read::composite(&object).expect("facts");
                (facts.queue, class_of_priority(facts.priority))
            }
            _ => {
                let pod = serde_json::from_value(object.clone()).expect("a pod");
                let facts = read::pod(&pod, &mut Interner::default()).expect("facts");
                (facts.annotations.as_ref().and_then(|own| own.queue.clone()), None)
            }
        };
        let text = |name: Option<Name>| name.map(|name| name.to_string());
        Self { queue: text(queue), class: text(class) }
    }

    /// Why the policy refuses what an object names after a request; `before` is what it named before.
    fn refusal(&self, before: &Self) -> Option<&'static str> {
        let is_refused = |old: &Option<String>, new: &Option<String>, allowed: Text| {
            new.is_some() && new != old && new.as_deref() != allowed
        };
        if is_refused(&before.queue, &self.queue, QUEUES[2]) {
            Some("may not use the queue")
        } else if is_refused(&before.class, &self.class, CLASSES[2]) {
            Some("may not use the PriorityClass")
        } else {
            None
        }
    }
}

/// The PriorityClass from which the API server took a priority.
fn class_of_priority(priority: i32) -> Option<Name> {
    let class = PRIORITIES.into_iter().find(|(_, value)| *value == priority)?;
    Some(Name::from(class.0))
}

/// Creates objects, or tries to, as an administrator, and returns them as stored.
fn created(bed: &Bed, options: &[&str], objects: &[Value]) -> Vec<Value> {
    let args = [&["create", "--output=json", "--filename=-"], options].concat();
    let printed = bed.plane.kubectl_stdin(args, &list(objects));
    let printed = printed.unwrap_or_else(|error| panic!("{error}"));
    let stored: Result<Vec<Value>, _> = Deserializer::from_str(&printed).into_iter().collect();
    stored.expect("kubectl writes JSON")
}

/// Tries a request for each object as a user, and returns the error of each.
fn errors_of(bed: &Bed, verb: &str, objects: &[Value]) -> Vec<Option<String>> {
    let args = ["--as=alice", "--as-group=team", verb, "--dry-run=server", "--filename=-"];
    let errors = bed.plane.kubectl_stdin(args, &list(objects)).err();
    let errors = errors.map(|error| error.to_string()).unwrap_or_default();
    let error_of = |object: &Value| {
        let name = object["metadata"]["name"].to_string();
        errors.lines().find(|line| line.contains(&name)).map(str::to_owned)
    };
    let errors_of_objects: Vec<_> = objects.iter().map(error_of).collect();
    let is_known = errors.is_empty() || errors_of_objects.iter().any(Option::is_some);
    assert!(is_known, "{errors}");
    errors_of_objects
}

fn list(objects: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

/// Lets a user create and change objects of all kinds, and use one queue and one class.
fn let_submit(bed: &Bed, kinds: &[Kind]) {
    bind_in_namespace(bed, "alice", "edit");
    let_use(bed, "alice", "training", "high");
    let_use(bed, &format!("system:serviceaccount:{NAMESPACE}:default"), "training", "high");
    let resources: Vec<&str> = kinds.iter().map(|kind| kind.resource).collect();
    let resources = format!("--resource={}", resources.join(","));
    bed.kubectl(["create", "clusterrole", "others", "--verb=get,create,patch,update", &resources])
        .expect("a role");
    bed.kubectl(["create", "clusterrolebinding", "others", "--clusterrole=others", "--group=team"])
        .expect("a binding");
}

/// A kind, what the scheduler reads in its objects, and objects to change.
struct Prepared {
    kind: Kind,
    readings: BTreeMap<Named, Reading>,
    existing: Vec<(Named, Value)>,
}

impl Prepared {
    /// Lets the API server complete an object of each combination, and store some, without the policy.
    fn new(bed: &Bed, kind: Kind) -> Self {
        let objects = |prefix: &str, all: &[Named]| -> Vec<Value> {
            let numbered = all.iter().enumerate();
            numbered.map(|(n, named)| kind.object(&format!("{prefix}{n}"), *named)).collect()
        };
        let (all, changed) = (kind.all(), kind.changed());
        let completed = created(bed, &["--dry-run=server"], &objects("try", &all));
        let stored = created(bed, &[], &objects("old", &changed));
        let readings = all.into_iter().zip(completed.iter().map(Reading::of)).collect();
        let existing = changed.into_iter().zip(stored).collect();
        Self { kind, readings, existing }
    }

    /// Waits until the user may create objects, and the policy is enforced.
    fn wait_for_the_policy(&self, bed: &Bed) {
        let objects = [("allowed", QUEUES[2]), ("refused", QUEUES[3])]
            .map(|(name, queue)| self.kind.object(name, self.kind.named(queue)));
        bed.eventually(
            "the policy is enforced",
            || match &errors_of(bed, "create", &objects)[..] {
                [None, Some(error)] if error.contains("may not use the queue") => Ok(()),
                other => Err(format!("{other:?}")),
            },
        );
    }

    fn check_creations(&self, bed: &Bed) {
        let before = Reading::default();
        let objects: Vec<Value> = (self.readings.keys().enumerate())
            .map(|(n, named)| self.kind.object(&format!("new{n}"), *named))
            .collect();
        let errors = errors_of(bed, "create", &objects);
        for ((named, after), error) in self.readings.iter().zip(errors) {
            self.check(error, after.refusal(&before), &format!("{named:?}"));
        }
    }

    fn check_updates(&self, bed: &Bed) {
        for to in self.kind.changed() {
            let objects: Vec<Value> = (self.existing.iter())
                .map(|(_, stored)| {
                    let mut object = stored.clone();
                    self.kind.write(&mut object, to);
                    // Controllers may have changed it.
                    set(&mut object["metadata"], "resourceVersion", None);
                    object
                })
                .collect();
            let errors = errors_of(bed, "replace", &objects);
            for ((from, _), error) in self.existing.iter().zip(errors) {
                let (before, after) = (&self.readings[from], &self.readings[&to]);
                let is_fixed = self.has_resolved_class() && before.class != after.class;
                let refusal =
                    if is_fixed { Some("field is immutable") } else { after.refusal(before) };
                self.check(error, refusal, &format!("{from:?} to {to:?}"));
            }
        }
    }

    /// The API server writes the global default class into an object whose class it looks up.
    fn check_the_default_class(&self, bed: &Bed) {
        let refusal = self.has_resolved_class().then_some("may not use the PriorityClass");
        // The definition of Volcano has a default queue.
        let object = self.kind.object("default", self.kind.named(QUEUES[2]));
        bed.eventually("the default class is known", || {
            match (&errors_of(bed, "create", std::slice::from_ref(&object))[0], refusal) {
                (None, None) => Ok(()),
                (Some(error), Some(refusal)) if error.contains(refusal) => Ok(()),
                (error, _) => Err(format!("{}: {error:?}", self.kind.resource)),
            }
        });
    }

    /// Whether the API server looks up the class of its objects, which is then fixed.
    fn has_resolved_class(&self) -> bool {
        matches!(self.kind.naming.class, Class::Resolved(_))
    }

    fn check(&self, error: Option<String>, refusal: Option<&str>, what: &str) {
        let is_expected = match (&error, refusal) {
            (Some(error), Some(refusal)) => error.contains(refusal),
            (error, refusal) => error.is_none() && refusal.is_none(),
        };
        let resource = self.kind.resource;
        assert!(is_expected, "{resource}: {what}: expected {refusal:?}, but it is {error:?}");
    }
}

#[test]
fn the_policy_checks_the_queue_that_the_scheduler_uses() {
    let bed = bed_with_own_groups(false, &nodes(1, "1"));
    bed.install_older_group();
    install_other_definitions(&bed);
    let class = |name: &str, value: i32, is_default: bool| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value, "globalDefault": is_default,
        })
    };
    PRIORITIES.into_iter().for_each(|(name, value)| bed.apply(&class(name, value, false)));
    let kinds: Vec<Kind> = kinds().map(Kind::of).collect();
    let_submit(&bed, &kinds);
    let prepared: Vec<_> = kinds.into_iter().map(|kind| Prepared::new(&bed, kind)).collect();
    bed.install_component("admission");
    for prepared in &prepared {
        prepared.wait_for_the_policy(&bed);
        prepared.check_creations(&bed);
        prepared.check_updates(&bed);
    }
    bed.apply(&class("ordinary", 10, true));
    prepared.iter().for_each(|prepared| prepared.check_the_default_class(&bed));
}
