//! Loads manifests into a simulated cluster and prints every problem.

mod input;
mod trace;

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
};

use kube_batch_api::{dialect, membership::named_groups};
use kube_batch_cache::dump::Dump;
use kube_batch_manifest::{
    diagnostic::{Diagnostic, Severity},
    object::{Kind, Object},
    place::Place,
    pods::{PodPart, pod_parts},
    reader::{Reader, Sink, Summary},
    rejection::{rejections, wants_admin_access},
    source::{Source, collect_sources, unreadable},
    unsimulated::unsimulated_annotations,
};
use kube_batch_model::{
    facts::{FactError, metadata::MetadataPrefixes},
    group_version::GroupVersion,
    name::{Name, ObjectKey},
};
use kube_batch_sim::world::World;
use serde_json::json;

pub(crate) use self::input::{InputRemark, remarks};
use crate::{
    live::{self, Lists},
    table::plural,
    terminal,
};

/// Number of problems printed in full; further ones are only counted.
const MAX_SHOWN: usize = 20;

/// The result of loading manifests.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// One line for each problem, in order.
    pub(crate) warnings: Vec<String>,
    /// Objects that were read.
    pub(crate) n_objects: usize,
    /// Problems because of which an object or a document was ignored.
    pub(crate) n_errors: usize,
    /// Files and directories that cannot be read; if there are some, nothing was loaded.
    pub(crate) n_unreadable: usize,
}

/// Loads the objects of a cluster and manifests into a simulated cluster, and prints the problems.
/// A manifest replaces the object of the cluster that has its name.
pub(crate) fn load(
    paths: &[PathBuf],
    traces: &[PathBuf],
    cluster: Lists,
    world: &mut World,
) -> Loaded {
    let (sources, mut problems) = collect_sources(paths);
    let (traces, unreadable) = collect_sources(traces);
    problems.extend(unreadable);
    if !problems.is_empty() {
        problems.iter().for_each(terminal::diagnostic);
        return Loaded { n_unreadable: problems.len(), ..Loaded::default() };
    }
    let mut sink = WorldSink {
        world,
        shown: Shown::default(),
        groups: HashMap::new(),
        admin_access: vec![],
        pods: vec![],
    };
    let n_from_cluster = load_lists(&cluster, &mut sink);
    let mut reader = Reader::new();
    reader.read_sources(&sources, &mut sink);
    for source in &traces {
        read_trace(source, &mut reader, &mut sink);
    }
    sink.report_dangling_names();
    let summary = reader.into_summary();
    let mut loaded = sink.shown.into_loaded();
    loaded.n_objects = summary.n_objects + n_from_cluster;
    let unread = live::in_simulation(&cluster.problems).into_iter();
    for message in unread.chain(ignored_kinds(&summary)) {
        terminal::warning(&message);
        loaded.warnings.push(message);
    }
    loaded
}

/// Loads the jobs of a trace.
fn read_trace(source: &Source, reader: &mut Reader, sink: &mut WorldSink<'_>) {
    let name = source.to_string();
    let bytes = match source.load() {
        Ok(bytes) => bytes,
        Err(error) => return sink.problem(unreadable(&name, &error)),
    };
    let (objects, problems) = trace::read(&name, &bytes);
    problems.into_iter().for_each(|problem| sink.problem(problem));
    for (line, objects) in objects {
        // So that further problems are reported for the line of the row.
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let text = "\n".repeat((line as usize).saturating_sub(1)) + &list.to_string();
        reader.read(&name, text.as_bytes(), sink);
    }
}

/// Loads what was read from a cluster.
fn load_lists(cluster: &Lists, sink: &mut WorldSink<'_>) -> usize {
    let mut reader = Reader::new();
    let mut sink = ListSink(sink);
    for (name, list) in &cluster.lists {
        reader.read(name, list.as_bytes(), &mut sink);
    }
    reader.into_summary().n_objects
}

/// Loads what was read from a cluster, and returns what could not be used.
pub(crate) fn load_lists_quietly(lists: Lists, world: &mut World) -> Vec<String> {
    let problems = lists.problems.iter().map(ToString::to_string).collect();
    let mut sink = QuietSink { world, problems };
    let mut reader = Reader::new();
    for (name, list) in &lists.lists {
        reader.read(name, list.as_bytes(), &mut sink);
    }
    sink.problems
}

/// Keeps problems instead of showing them with their places: users did not write these objects.
struct QuietSink<'w> {
    world: &'w mut World,
    problems: Vec<String>,
}

impl Sink for QuietSink<'_> {
    fn object(&mut self, object: Object, _: &Place<'_>) -> Result<(), FactError> {
        self.world.apply(object)
    }

    fn dump(&mut self, dump: Dump) {
        self.world.restore(dump);
    }

    fn problem(&mut self, problem: Diagnostic) {
        if problem.severity == Severity::Error {
            self.problems.push(problem.to_string());
        }
    }
}

/// Passes on everything but warnings: fields that are unknown here come from a newer API server, not
/// from a typing mistake, and an empty list is no surprise.
struct ListSink<'s, 'w>(&'s mut WorldSink<'w>);

impl Sink for ListSink<'_, '_> {
    fn object(&mut self, object: Object, place: &Place<'_>) -> Result<(), FactError> {
        self.0.object(object, place)
    }

    fn dump(&mut self, dump: Dump) {
        self.0.dump(dump);
    }

    fn problem(&mut self, problem: Diagnostic) {
        if problem.severity == Severity::Error {
            self.0.problem(problem);
        }
    }
}

/// Kinds in the input that the simulation does not use, and those among them that create pods.
fn ignored_kinds(summary: &Summary) -> Vec<String> {
    let (controllers, others): (Vec<_>, Vec<_>) =
        summary.ignored.iter().partition(|(kind, _)| kind.creates_pods());
    let mut messages: Vec<String> = controllers
        .into_iter()
        .map(|(type_meta, count)| {
            let (kind, are) = match count {
                1 => (type_meta.kind.clone(), "is"),
                _ => (format!("{}s", type_meta.kind), "are"),
            };
            format!(
                "{count} {kind} ({}) {are} not expanded into pods: the simulation does not know \
                 this controller; add the pods that it creates to the input",
                type_meta.api_version
            )
        })
        .collect();
    if !others.is_empty() {
        let kinds = others.into_iter().map(|(kind, count)| format!("{count} {kind}"));
        let list = kinds.collect::<Vec<_>>().join(", ");
        messages.push(format!("ignored, because the scheduler does not use these kinds: {list}"));
    }
    messages
}

/// Problems found so far.
#[derive(Default)]
struct Shown {
    lines: Vec<String>,
    n_errors: usize,
}

impl Shown {
    fn take(&mut self, mut problem: Diagnostic) {
        if problem.document > 0 {
            problem.message.push_str(&format!(" (document {})", problem.document));
        }
        if self.lines.len() < MAX_SHOWN {
            terminal::diagnostic(&problem);
        }
        self.n_errors += usize::from(problem.severity == Severity::Error);
        self.lines.push(problem.to_string());
    }

    fn into_loaded(self) -> Loaded {
        if let Some(more @ 1..) = self.lines.len().checked_sub(MAX_SHOWN) {
            terminal::warning(&format!("{more} more problems are not shown"));
        }
        Loaded { warnings: self.lines, n_errors: self.n_errors, ..Loaded::default() }
    }
}

/// The label of namespaces whose claims may have admin access.
const ADMIN_ACCESS: &str = "resource.kubernetes.io/admin-access";

struct WorldSink<'w> {
    world: &'w mut World,
    shown: Shown,
    /// The problem to report for each group if its queue does not exist.
    groups: HashMap<ObjectKey, (Name, Diagnostic)>,
    /// The problem to report for each claim with admin access if its namespace does not permit it.
    admin_access: Vec<(Name, Diagnostic)>,
    /// The problem to report for the first pod of each group if the group does not exist.
    pods: Vec<((GroupVersion, bool, ObjectKey), Diagnostic)>,
}

impl Sink for WorldSink<'_> {
    fn object(&mut self, object: Object, place: &Place<'_>) -> Result<(), FactError> {
        self.record_names(&object, place);
        let warnings = rejection(&object).into_iter().chain(without_effect(&object));
        let warnings: Vec<Diagnostic> = warnings.map(|error| place.diagnose(&error)).collect();
        self.world.apply(object)?;
        for problem in warnings {
            self.shown.take(Diagnostic { severity: Severity::Warning, ..problem });
        }
        Ok(())
    }

    fn dump(&mut self, dump: Dump) {
        self.world.restore(dump);
    }

    fn problem(&mut self, problem: Diagnostic) {
        self.shown.take(problem);
    }
}

impl WorldSink<'_> {
    /// Records the names that an object refers to.
    fn record_names(&mut self, object: &Object, place: &Place<'_>) {
        if wants_admin_access(object) && object.meta().uid.is_none() {
            let message = format!(
                "adminAccess requires the label {ADMIN_ACCESS}=true on the namespace; an API server would reject this {}",
                object.kind()
            );
            let error = FactError::new(named(object), "spec", message);
            let problem = Diagnostic { severity: Severity::Warning, ..place.diagnose(&error) };
            self.admin_access.push((with_default_namespace(object).namespace, problem));
        }
        match object {
            Object::PodGroup(version, group) => {
                let facts = dialect::of(*version).read_group(group, &MetadataPrefixes::default());
                let Some(queue) = facts.ok().and_then(|facts| facts.queue) else { return };
                let field = "spec.queue";
                let error = FactError::new(
                    named(object),
                    field,
                    format!("queue \"{queue}\" does not exist"),
                );
                let problem = Diagnostic { severity: Severity::Warning, ..place.diagnose(&error) };
                self.groups.insert(with_default_namespace(object), (queue, problem));
            }
            // Controllers in a cluster may be older than their PodGroups; their pods are there too.
            _ if object.kind() != Kind::Pod && object.meta().uid.is_some() => {}
            _ => pod_parts(object).iter().for_each(|part| self.record_group(object, part, place)),
        }
    }

    /// Records the PodGroup that a pod or template names.
    fn record_group(&mut self, object: &Object, part: &PodPart<'_>, place: &Place<'_>) {
        let Some(meta) = part.metadata else { return };
        let namespace = with_default_namespace(object).namespace;
        for (field, name) in named_groups(meta, part.spec) {
            let key = ObjectKey::new(namespace.clone(), name.as_str());
            let group = (field.version, field.only_if_served, key);
            // Pods of a group are mostly consecutive; one of them is enough.
            if self.pods.last().is_none_or(|(last, _)| *last != group) {
                let path = format!("{}{}", part.prefix, field.path);
                let error = FactError::new(named(object), path, String::new());
                self.pods.push((group, place.diagnose(&error)));
            }
        }
    }

    /// Reports names of objects that do not exist, after everything is read.
    fn report_dangling_names(&mut self) {
        let store = &self.world.store;
        let mut problems = Vec::new();
        for (queue, problem) in std::mem::take(&mut self.groups).into_values() {
            let key = ObjectKey { namespace: Name::default(), name: queue.clone() };
            if store.queue(&queue).is_none() && !self.world.expects(Kind::Queue, &key) {
                problems.push(problem);
            }
        }
        for (namespace, problem) in std::mem::take(&mut self.admin_access) {
            let labels = store.namespaces.get(&namespace).map(|facts| &facts.labels);
            if labels
                .and_then(|labels| labels.get(ADMIN_ACCESS))
                .is_none_or(|value| **value != *"true")
            {
                problems.push(problem);
            }
        }
        let mut reported = BTreeSet::new();
        for ((version, only_if_served, group), problem) in std::mem::take(&mut self.pods) {
            let counts = !only_if_served || store.served().has(version);
            let join = version.join();
            if !counts
                || store.group(join, &group).is_some()
                || self.world.expects(Kind::PodGroup, &group)
                || !reported.insert((join, group.clone()))
            {
                continue;
            }
            let elsewhere = store.groups.iter().find(|((key, _), _)| key.name == group.name);
            let hint = elsewhere.map(|((key, _), _)| {
                format!(
                    "; the one in namespace {} is not used, as a group must be in the namespace of its pods",
                    key.namespace
                )
            });
            let message = format!("PodGroup {group} does not exist{}", hint.unwrap_or_default());
            problems.push(Diagnostic { message, severity: Severity::Warning, ..problem });
        }
        problems.sort_by(|l, r| (&l.source, l.line).cmp(&(&r.source, r.line)));
        for problem in problems {
            self.shown.take(problem);
        }
    }
}

/// Why an API server would reject the pod or the template of an object. One with a uid was accepted.
fn rejection(object: &Object) -> Option<FactError> {
    if object.meta().uid.is_some() {
        return None;
    }
    let mut problems = rejections(object).into_iter();
    let first = problems.next()?;
    let more = match problems.count() {
        0 => String::new(),
        more => format!(" ({})", plural(more, "further reason")),
    };
    let message =
        format!("{}; an API server would reject this {}{more}", first.message, object.kind());
    Some(FactError::new(named(object), first.path, message))
}

/// The annotations of an object that have an effect in a cluster and none here. Those of an object that another one
/// controls are reported of that, if it is in the input.
fn without_effect(object: &Object) -> Vec<FactError> {
    let owners = object.meta().owner_references.iter().flatten();
    if owners.into_iter().any(|owner| owner.controller == Some(true)) {
        return Vec::new();
    }
    let found = unsimulated_annotations(object).into_iter();
    found.map(|problem| FactError::new(named(object), problem.path, problem.message)).collect()
}

/// Kind, namespace and name.
fn named(object: &Object) -> String {
    format!("{} {}", object.kind(), with_default_namespace(object))
}

fn with_default_namespace(object: &Object) -> ObjectKey {
    let key = object.key();
    if key.namespace.is_empty() && object.kind().is_namespaced() {
        return ObjectKey {
            namespace: Name::from(kube_batch_manifest::defaults::NAMESPACE),
            ..key
        };
    }
    key
}
