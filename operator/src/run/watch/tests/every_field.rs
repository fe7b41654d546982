//! Whatever is in an object, and in whichever field, little of it is kept.

use std::{
    fmt::Write as _,
    fs,
    num::NonZero,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use jiff::Timestamp;
use k8s_openapi::api::{core::v1::Pod, scheduling::v1beta1::PodGroupSpec as KubernetesGroupSpec};
use kube_batch_api::{
    crd::{PodGroupSpec, QueueSpec},
    dialect::{self, CoschedulingGroupSpec, VolcanoGroupSpec},
    kind::WatchedKind as _,
};
use kube_batch_cache::{
    dump,
    snapshot::{SnapshotOptions, take_snapshot},
    store::{Change, Store},
};
use kube_batch_framework::candidates::Search;
use kube_batch_model::{
    decision::Decision,
    facts::{fact::Fact, size::Bounds},
    group_version::GroupVersion,
    name::ObjectKey,
    object_status::{PodGroupStatus, QueueStatus},
    text::MAX_MESSAGE,
};
use kube_batch_scheduler::{
    conf::Conf,
    writes::{StatusWrite, eviction_events, eviction_message, remarks, status_writes},
};
use serde_json::{Map, Value, json};

use super::filler::{TIME, every_field};
use crate::run::{
    clock::Clock,
    guard::Guarded,
    metrics::Metrics,
    report_metrics::ReportMetrics,
    scheduler_cache::SchedulerCache,
    watch::{
        handler::Handler,
        kinds::{Visit, Watched, kinds, visit_all},
    },
};

/// More than may be kept of an object, and less than the API server stores of one, so that the test is fast.
fn object_bytes(bounds: Bounds) -> usize {
    8 * bounds.total.min(50 << 10)
}

/// How often what is kept of an object may be written out in all that is looked at. In memory it is mostly one.
const TIMES: usize = 4;

/// An object that stands for a kind.
#[derive(Clone)]
struct Base {
    kind: &'static str,
    object: Value,
    bounds: Bounds,
}

/// Every kind with every field. Pods twice: one waits, and one runs.
fn bases() -> Vec<Base> {
    struct Collect(Vec<String>, Vec<Base>);

    impl Visit for Collect {
        fn visit<K: Watched>(&mut self) {
            let Self(annotations, bases) = self;
            let mut object = every_field::<K>(annotations);
            remove(&mut object, "/metadata/deletionTimestamp");
            remove(&mut object, "/spec/minAvailable");
            if let Some(version) = K::API {
                let is_group = dialect::spec(version).groups == K::RESOURCE;
                let (spec, status) = parts(version, is_group, annotations);
                (object["spec"], object["status"]) = (spec, status);
                if !is_group {
                    object["spec"]["minRuntime"] = json!("1s");
                    let namespaces = &mut object["spec"]["namespaceSelector"];
                    namespaces["matchExpressions"][0]["operator"] = json!("In");
                }
            }
            let (kind, bounds) = (K::RESOURCE, <K::Facts as Fact>::BOUNDS);
            bases.push(Base { kind, object, bounds });
        }
    }

    let mut collect = Collect(keys_in_source(), Vec::new());
    visit_all(&mut collect);
    let Collect(_, mut bases) = collect;
    let pod = bases.iter_mut().find(|base| base.kind == Pod::RESOURCE).expect("pods are watched");
    pod.object["spec"]["schedulerName"] = json!("kube-batch");
    remove(&mut pod.object, "/spec/schedulingGates");
    let mut waiting = pod.clone();
    pod.object["status"]["phase"] = json!("Running");
    remove(&mut waiting.object, "/spec/nodeName");
    waiting.object["status"]["phase"] = json!("Pending");
    for field in ["name", "uid"] {
        waiting.object["metadata"][field] = json!("waiting");
    }
    bases.push(waiting);
    bases
}

/// Spec and status of a PodGroup or queue: what is watched are values of any type.
fn parts(version: GroupVersion, is_group: bool, annotations: &[String]) -> (Value, Value) {
    if !is_group {
        return (every_field::<QueueSpec>(annotations), every_field::<QueueStatus>(annotations));
    }
    let spec = match version {
        GroupVersion::Kubernetes => every_field::<KubernetesGroupSpec>(annotations),
        GroupVersion::Coscheduling => every_field::<CoschedulingGroupSpec>(annotations),
        GroupVersion::Volcano => every_field::<VolcanoGroupSpec>(annotations),
        GroupVersion::V1Alpha1 | GroupVersion::V1Alpha2 => every_field::<PodGroupSpec>(annotations),
    };
    (spec, every_field::<PodGroupStatus>(annotations))
}

fn remove(object: &mut Value, path: &str) {
    let (outer, field) = path.rsplit_once('/').expect("a path");
    if let Some(Value::Object(fields)) = object.pointer_mut(outer) {
        fields.remove(field);
    }
}

/// Everything in the source of `api` and `model` that has the form of a key of labels and annotations.
fn keys_in_source() -> Vec<String> {
    let mut keys = Vec::new();
    let crates = ["../api/src", "../model/src"];
    let mut left = crates.map(|path| Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).to_vec();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(
                fs::read_dir(path)
                    .expect("a directory")
                    .map(|entry| entry.expect("an entry").path()),
            );
        } else {
            let text = fs::read_to_string(path).expect("text");
            keys.extend(text.split('"').filter(|literal| is_key(literal)).map(str::to_owned));
        }
    }
    keys.sort();
    keys.dedup();
    assert!(keys.iter().any(|key| key == "scheduling.sigs.dev/queue"), "{keys:?}");
    keys
}

fn is_key(text: &str) -> bool {
    let is_word = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
    };
    text.split_once('/').is_some_and(|(domain, name)| {
        domain.contains('.') && is_word(domain) && is_word(name) && name != "v1"
    })
}

/// A scheduler that knows one object of each kind.
struct World {
    handler: Handler,
    /// Why objects cannot be read.
    problems: Vec<String>,
}

impl World {
    fn new(bases: &[Base]) -> Self {
        let (all, metrics) = (kinds().collect::<Vec<_>>(), Arc::new(Metrics::new()));
        let cache = Arc::new(SchedulerCache::new(Store::default(), &all, Arc::clone(&metrics)));
        let handler = Handler { cache, metrics, clock: Clock::system() };
        let mut world = Self { handler, problems: Vec::new() };
        for base in bases {
            world.show(base.kind, &base.object);
        }
        world
    }

    /// Shows an object, and returns whether anything is stored that was not before.
    fn show(&mut self, kind: &'static str, object: &Value) -> bool {
        struct Show<'a>(&'a mut World, &'static str, String, bool);

        impl Visit for Show<'_> {
            fn visit<K: Watched>(&mut self) {
                let Self(world, kind, text, has_changed) = self;
                if K::RESOURCE == *kind {
                    world.handler.set_served::<K>();
                    let object: Guarded<K> = serde_json::from_str(text).expect("metadata");
                    match world.handler.store(&object) {
                        Ok(change) => *has_changed = change != Change::Nothing,
                        Err(problem) => world.problems.push(problem),
                    }
                }
            }
        }

        let mut show = Show(self, kind, object.to_string(), false);
        visit_all(&mut show);
        show.3
    }

    /// Everything that is kept and written in a cycle, as text; and the messages of it.
    fn everything(&self) -> (String, Vec<String>) {
        let now = Timestamp::UNIX_EPOCH;
        let state = self.handler.cache.lock();
        let (store, assumed) = (&state.store, &state.assumed);
        let mut bytes = Vec::new();
        dump::write(store, assumed, now, &mut bytes).expect("facts can be dumped");
        let read = dump::read(&bytes).expect("a dump can be read");
        let mut again = Vec::new();
        dump::write(&read.store, &read.assumed, now, &mut again).expect("facts can be dumped");
        assert!(bytes == again, "a dump that was read is as before");

        let snapshot = take_snapshot(store, assumed, &SnapshotOptions::default());
        let mut all = String::from_utf8(bytes).expect("text");
        write!(all, "{:?}", snapshot.cluster).expect("memory");
        let cycle = Conf::default().run_cycle(snapshot.cluster, now, Search::Index, &mut |_| {});
        let events = eviction_events(&cycle.decisions, store);
        let statuses = status_writes(&cycle, store, assumed, "1", now);
        let remarks = remarks(&snapshot.ignored, &cycle, store);
        write!(all, "{:?}{events:?}{statuses:?}{remarks:?}", cycle.decisions).expect("memory");
        let metrics = Arc::new(Metrics::new());
        let mut report = ReportMetrics::new(Arc::clone(&metrics), 100);
        report.count(&cycle, now);
        report.record_later(cycle.clone());
        all.push_str(&metrics.text());

        let mut messages: Vec<String> = remarks.into_iter().map(|remark| remark.text).collect();
        for decision in &cycle.decisions {
            if let Decision::Evict { cause, .. } = decision {
                messages.push(eviction_message(cause));
            }
        }
        for write in statuses {
            match write {
                StatusWrite::Pod { waits, .. } => {
                    messages.extend(waits.map(|waits| waits.message));
                }
                StatusWrite::Group { next, .. } => {
                    messages.extend(next.conditions.into_iter().map(|own| own.message));
                }
                StatusWrite::Queue { .. } => {}
            }
        }
        messages.extend(self.problems.iter().cloned());
        (all, messages)
    }
}

/// The paths of all texts, and of all lists and maps with contents.
fn places(value: &Value, path: &str, texts: &mut Vec<String>, many: &mut Vec<String>) {
    match value {
        // The API server stores no time that is none.
        Value::String(text) if text == TIME => {}
        Value::String(_) => texts.push(path.to_owned()),
        Value::Array(items) => {
            many.push(path.to_owned());
            for (at, item) in items.iter().enumerate() {
                places(item, &format!("{path}/{at}"), texts, many);
            }
        }
        Value::Object(fields) => {
            many.push(path.to_owned());
            for (key, value) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(value, &format!("{path}/{key}"), texts, many);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The object with a text that is as long as an object may be. Amounts are numbers still.
fn with_long_text(Base { object, bounds, .. }: &Base, path: &str) -> Value {
    let mut object = object.clone();
    let text = object.pointer_mut(path).expect("a place");
    *text = json!(text.as_str().expect("a text").repeat(object_bytes(*bounds)));
    object
}

/// The object with as many copies of an item as there may be, each with other texts.
fn with_many(Base { object, bounds, .. }: &Base, path: &str) -> Value {
    let mut object = object.clone();
    let place = object.pointer_mut(path).expect("a place");
    let n_copies = object_bytes(*bounds) / (1 + place.to_string().len());
    match place {
        Value::Array(items) => {
            let copies = (0..n_copies).flat_map(|n| items.iter().map(move |item| renamed(item, n)));
            *items = copies.collect();
        }
        Value::Object(fields) => {
            let copies = (0..n_copies).flat_map(|n| {
                fields.iter().map(move |(key, value)| (format!("{key}{n}"), renamed(value, n)))
            });
            let copies: Map<String, Value> = copies.collect();
            fields.extend(copies);
        }
        _ => unreachable!("only lists and maps have items"),
    }
    object
}

fn renamed(value: &Value, n: usize) -> Value {
    match value {
        Value::String(text) if text != TIME => json!(format!("{text}{n}")),
        Value::Array(items) => items.iter().map(|item| renamed(item, n)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), renamed(value, n))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[test]
fn every_field_of_every_kind_is_read_and_dumped() {
    let bases = bases();
    let world = World::new(&bases);
    assert_eq!(world.problems, Vec::<String>::new());
    world.everything();
    let state = world.handler.cache.lock();
    for name in ["x", "waiting"] {
        let facts = state.store.pods.get(&ObjectKey::new("x", name)).expect("a pod");
        assert_eq!(facts.template.refused, None);
        assert!(!facts.template.claims.is_empty() && facts.controller.is_some());
    }
}

#[test]
fn of_an_object_of_any_size_little_is_kept_and_less_is_said() {
    let bases = bases();
    let next = AtomicUsize::new(0);
    let check_kinds = || {
        let mut world = World::new(&bases);
        let (before, _) = world.everything();
        while let Some(base) = bases.get(next.fetch_add(1, Ordering::Relaxed)) {
            little_is_kept(&mut world, base, before.len());
        }
    };
    // Most of the time goes into writing and reading the objects.
    thread::scope(|scope| {
        let n_threads = thread::available_parallelism().map_or(1, NonZero::get);
        (0..n_threads).for_each(|_| drop(scope.spawn(check_kinds)));
    });
}

/// Whatever is made larger in an object, little of it is kept and written.
fn little_is_kept(world: &mut World, base: &Base, before: usize) {
    let allowed = TIMES * base.bounds.total.min(Bounds::WITH_PARAMETERS.total);
    let mut most = (0, String::new());
    let (mut texts, mut many) = (Vec::new(), Vec::new());
    places(&base.object, "", &mut texts, &mut many);
    let long = texts.iter().map(|path| (path, with_long_text(base, path)));
    // Who writes objects without a namespace is trusted with their number.
    many.retain(|_| base.bounds != Bounds::ADMINISTRATORS);
    let many = many.iter().map(|path| (path, with_many(base, path)));
    for (path, object) in long.chain(many) {
        let has_changed = world.show(base.kind, &object);
        for problem in std::mem::take(&mut world.problems) {
            assert!(problem.len() <= MAX_MESSAGE, "{} {path}: {problem}", base.kind);
        }
        if !has_changed {
            continue;
        }
        let (all, messages) = world.everything();
        world.show(base.kind, &base.object);
        let more = all.len().saturating_sub(before);
        assert!(more <= allowed, "{} {path}: {more} bytes more", base.kind);
        for message in messages {
            assert!(message.len() <= MAX_MESSAGE, "{} {path}: {message}", base.kind);
        }
        most = most.max((more, path.clone()));
    }
    println!("{}: at most {} bytes more, with {}", base.kind, most.0, most.1);
}
