//! The format of test cases: a scenario in a simulated cluster, and the expected results.
//!
//! A file is read to its end, and every problem is reported with its line. An unknown key is a
//! problem, so that a misspelt expectation cannot pass.

mod expect;
mod names;
mod positioned;

use std::collections::BTreeMap;

use kube_batch_cache::snapshot::{SchedulerNames, SnapshotOptions};
use kube_batch_manifest::object::{Kind, Object, Recognised, TypeMeta};
use kube_batch_model::name::{Name, ObjectKey};
use kube_batch_scheduler::{
    conf::{self, Conf},
    registry::Registry,
};
use kube_batch_yaml::{Cursor, Located, MapReader, Problem, Problems, Value};

pub use self::expect::{
    ConditionMatch, Count, CountOf, EventMatch, Expect, ExpectedNumber, GroupMatch, JobMatch,
    NodeChoice, PodsMatch, QueueMatch, Range,
};
pub(crate) use self::names::Seen;
use self::names::references;
pub use self::{names::Reference, positioned::Positioned};
use crate::{objects::PodPhase, world::Environment};

/// One test case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// The line and the column of the name, from 1.
    pub name_at: (u32, u32),
    /// What it tests, and why this result is expected.
    pub description: String,
    /// Options of the scheduler.
    pub options: SnapshotOptions,
    /// How kubelets behave.
    pub environment: Environment,
    /// The scheduler's configuration.
    pub conf: Conf,
    /// Keys and values without effect in the configuration.
    pub warnings: Vec<Problem>,
    /// The initial objects, each with its line.
    pub objects: Vec<Positioned<Object>>,
    /// Changes, cycles and expectations.
    pub steps: Vec<Step>,
    /// The names in expectations.
    pub references: Vec<Positioned<Reference>>,
}

/// One step; its parts are run in this order.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Its path in the case; empty if it is the only step.
    pub path: String,
    /// Objects to create.
    pub apply: Vec<Positioned<Object>>,
    /// Objects that replace those with the same names.
    pub update: Vec<Positioned<Object>>,
    /// Objects to delete.
    pub delete: Vec<Positioned<(Kind, ObjectKey)>>,
    /// New phases of pods.
    pub set_pod_phase: Vec<Positioned<(ObjectKey, PodPhase)>>,
    /// Number of cycles.
    pub cycles: u32,
    /// Expectations that must be met within a number of cycles.
    pub eventually: Option<Eventually>,
    /// Expectations that must be met now.
    pub expect: Option<Expect>,
}

/// Expectations that must be met after at most `max_cycles` cycles.
#[derive(Clone, Debug)]
pub struct Eventually {
    /// Number of cycles.
    pub max_cycles: u32,
    /// The expectations.
    pub expect: Expect,
}

impl Case {
    /// Reads a case; its configuration names plugins and actions of `registry`.
    ///
    /// # Errors
    ///
    /// Every problem of the document: it is not a valid test case.
    pub fn read(document: &Located<'_>, registry: &Registry) -> Result<Self, Vec<Problem>> {
        let problems = Problems::default();
        let map = Cursor::new(document, &problems).mapping();
        let case = map.and_then(|map| case(map, registry, &problems));
        match case {
            Some(case) if problems.is_empty() => Ok(case),
            Some(_) | None => Err(problems.into_sorted()),
        }
    }

    /// Whether it expects nothing at all.
    pub fn tests_nothing(&self) -> bool {
        let is_empty = |expect: &Expect| *expect == Expect::default();
        self.steps.iter().all(|step| {
            let eventually = step.eventually.as_ref().map(|eventually| &eventually.expect);
            eventually.is_none_or(is_empty) && step.expect.as_ref().is_none_or(is_empty)
        })
    }
}

fn case(mut map: MapReader<'_>, registry: &Registry, problems: &Problems) -> Option<Case> {
    let name = map.require("name").and_then(|name| {
        let text = name.string()?;
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if text.is_empty() || !text.bytes().all(good) {
            name.problem(format!(
                "\"{text}\" may contain only lower-case letters, digits and \"-\""
            ));
        }
        Some((text.to_owned(), (name.node().line, name.node().column)))
    });
    let description = text(&mut map, "description");
    for reporting_only in ["area", "source"] {
        text(&mut map, reporting_only);
    }
    for row in map.get("rows").into_iter().flat_map(Cursor::items) {
        row.string();
    }
    let options = map.get("options").and_then(Cursor::mapping).map(options).unwrap_or_default();
    let environment =
        map.get("environment").and_then(Cursor::mapping).map(environment).unwrap_or_default();
    let conf = match map.get("config") {
        None => Some(conf::Read { conf: Conf::default(), warnings: Vec::new() }),
        Some(config) => read_conf(&config, registry, problems),
    };
    let objects = map.get("objects").map(|list| objects(list, problems)).unwrap_or_default();
    let mut references = Vec::new();
    let steps = steps(&mut map, problems, &mut references);
    map.finish();
    let conf::Read { conf, warnings } = conf?;
    let (name, name_at) = name?;
    Some(Case {
        name,
        name_at,
        description,
        options,
        environment,
        conf,
        warnings,
        objects,
        steps,
        references,
    })
}

fn read_conf(config: &Cursor<'_>, registry: &Registry, problems: &Problems) -> Option<conf::Read> {
    match conf::read(config.node(), config.path(), registry) {
        // Keys without effect are warnings in a configuration, and a case may test them.
        Ok(read) => Some(read),
        Err(found) => {
            found.into_iter().for_each(|problem| problems.add(problem));
            None
        }
    }
}

fn text(map: &mut MapReader<'_>, key: &'static str) -> String {
    map.get(key).and_then(|cursor| cursor.string().map(str::to_owned)).unwrap_or_default()
}

fn options(mut map: MapReader<'_>) -> SnapshotOptions {
    let mut options = SnapshotOptions::default();
    let mut name = |key| map.get(key).and_then(|cursor| cursor.string()).map(Name::from);
    let scheduler = name("schedulerName");
    if let Some(queue) = name("defaultQueue") {
        options.default_queue = queue;
    }
    let list = map.get("schedulerNames").into_iter().flat_map(Cursor::items);
    let schedulers: Vec<Name> =
        list.filter_map(|cursor| cursor.string().map(Name::from)).chain(scheduler).collect();
    if let Some(names) = SchedulerNames::new(schedulers) {
        options.scheduler_names = names;
    }
    if let Some(enabled) = map.get("priorityClass").and_then(|cursor| cursor.bool()) {
        options.priority_class = enabled;
    }
    map.finish();
    options
}

fn environment(mut map: MapReader<'_>) -> Environment {
    let mut environment = Environment::default();
    let mut number = |key| map.get(key).and_then(|cursor| cursor.u32());
    if let Some(cycles) = number("startCycles") {
        environment.start_cycles = cycles;
    }
    if let Some(cycles) = number("terminationCycles") {
        environment.termination_cycles = cycles;
    }
    if let Some(present) = map.get("kubelet").and_then(|cursor| cursor.bool()) {
        environment.kubelet = present;
    }
    map.finish();
    environment
}

fn steps(
    map: &mut MapReader<'_>,
    problems: &Problems,
    names: &mut Vec<Positioned<Reference>>,
) -> Vec<Step> {
    let steps = map.get("steps");
    let cycles = map.get("cycles");
    let expect = map.get("expect");
    let Some(steps) = steps else {
        if expect.is_none() {
            map.cursor().problem("needs `expect` or `steps`, otherwise it tests nothing");
        }
        let cycles = cycles.and_then(|cycles| cycles.u32()).unwrap_or(1);
        return vec![Step { cycles, expect: Some(read_expect(expect, names)), ..Step::default() }];
    };
    for beside in [cycles, expect].into_iter().flatten() {
        beside.problem("cannot be combined with `steps`");
    }
    steps.items().filter_map(|cursor| step(cursor, problems, names)).collect()
}

fn step(
    cursor: Cursor<'_>,
    problems: &Problems,
    names: &mut Vec<Positioned<Reference>>,
) -> Option<Step> {
    let path = cursor.path().to_owned();
    let mut map = cursor.mapping()?;
    let mut list = |key| map.get(key).map(|list| objects(list, problems)).unwrap_or_default();
    let (apply, update) = (list("apply"), list("update"));
    let delete = map.get("delete").into_iter().flat_map(Cursor::items);
    let delete = delete.filter_map(target).collect();
    let mut set_pod_phase = Vec::new();
    if let Some(mut phases) = map.get("setPodPhase").and_then(Cursor::mapping) {
        for (pod, phase) in phases.rest() {
            if let Some(value) = phase.one_of(&PodPhase::NAMES) {
                set_pod_phase.push(Positioned::at(&phase, (ObjectKey::parse(&pod.text), value)));
            }
        }
    }
    let cycles = map.get("cycles").and_then(|cycles| cycles.u32()).unwrap_or(0);
    let eventually = map.get("eventually").and_then(Cursor::mapping).map(|mut map| {
        let max_cycles = map.require("maxCycles").and_then(|n| n.u32()).unwrap_or(0);
        let expect = read_expect(map.require("expect"), names);
        map.finish();
        Eventually { max_cycles, expect }
    });
    let expect = map.get("expect").map(|expect| read_expect(Some(expect), names));
    map.finish();
    Some(Step { path, apply, update, delete, set_pod_phase, cycles, eventually, expect })
}

/// Reads an expectation, and adds the names in it.
fn read_expect(cursor: Option<Cursor<'_>>, names: &mut Vec<Positioned<Reference>>) -> Expect {
    let Some(cursor) = cursor else { return Expect::default() };
    names.extend(references(&cursor));
    cursor.typed().unwrap_or_default()
}

fn target(cursor: Cursor<'_>) -> Option<Positioned<(Kind, ObjectKey)>> {
    let here = cursor.clone();
    let mut map = cursor.mapping()?;
    let kind = map.require("kind").and_then(|kind| {
        let names: BTreeMap<&str, Kind> =
            Kind::ALL.iter().map(|kind| (kind.name(), *kind)).collect();
        let names: Vec<(&str, Kind)> = names.into_iter().collect();
        kind.one_of(&names)
    });
    let namespace = map.get("namespace").and_then(|cursor| cursor.string());
    let name = map.require("name").and_then(|cursor| cursor.string());
    map.finish();
    let (kind, name) = (kind?, name?);
    let namespace = if kind.is_namespaced() { namespace.unwrap_or("default") } else { "" };
    Some(Positioned::at(&here, (kind, ObjectKey::new(namespace, name))))
}

fn objects(list: Cursor<'_>, problems: &Problems) -> Vec<Positioned<Object>> {
    list.items().flat_map(|item| copies(&item, problems)).collect()
}

/// The largest `count` of an object. Guessed: a case that needs more is a benchmark.
const MAX_COUNT: u32 = 10_000;

/// The objects of an item: with `count: N` there are N, and the number at the end of the name is
/// incremented.
fn copies(item: &Cursor<'_>, problems: &Problems) -> Vec<Positioned<Object>> {
    let Some(count) = item.node().get("count") else {
        return object(item, problems).into_iter().collect();
    };
    let number = match &count.value {
        Value::Number(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
        Value::Null
        | Value::Bool(_)
        | Value::String(_)
        | Value::Sequence(_)
        | Value::Mapping(_) => None,
    };
    let Some(count) = number.filter(|number| (1..=MAX_COUNT).contains(number)) else {
        let found = count.describe();
        let message = format!("expected an integer from 1 to {MAX_COUNT}, found {found}");
        problems.add(count.problem(format!("{}.count", item.path()), message));
        return Vec::new();
    };
    let Some(first) = object(item, problems) else { return Vec::new() };
    let name = first.value.meta().name.clone().unwrap_or_default();
    let named = (0..count).map(|step| {
        let mut copy = first.clone();
        copy.value.meta_mut().name = Some(counted(&name, step)?);
        Some(copy)
    });
    let copies: Option<Vec<_>> = named.collect();
    copies.unwrap_or_else(|| {
        item.problem("an object with a count needs a name that ends in a number, such as p0");
        Vec::new()
    })
}

/// A name whose last number is larger by `step`; leading zeros keep its width.
pub fn counted(name: &str, step: u32) -> Option<String> {
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let digits = &name[stem.len()..];
    let number = digits.parse::<u32>().ok()?.checked_add(step)?;
    Some(format!("{stem}{number:0width$}", width = digits.len()))
}

fn object(item: &Cursor<'_>, problems: &Problems) -> Option<Positioned<Object>> {
    let text = |key: &str| item.node().get(key).and_then(Located::as_str).unwrap_or_default();
    let type_meta =
        TypeMeta { api_version: text("apiVersion").to_owned(), kind: text("kind").to_owned() };
    let unknown = Problems::default();
    let read = match type_meta.recognise() {
        Recognised::Kind(kind, served) => Object::read(kind, served, item.node(), &unknown),
        Recognised::Misspelt(message) => {
            item.problem(message);
            return None;
        }
        Recognised::List | Recognised::Other => {
            item.problem(format!("\"{type_meta}\" is not a kind that test cases support"));
            return None;
        }
    };
    let place = |problem: Problem| Problem {
        path: if problem.path.is_empty() {
            item.path().to_owned()
        } else {
            format!("{}.{}", item.path(), problem.path)
        },
        ..problem
    };
    // `count` belongs to the case format and not to the object.
    let unknown = unknown.into_sorted().into_iter().filter(|problem| problem.path != "count");
    unknown.for_each(|problem| problems.add(place(problem)));
    match read {
        Ok(object) => Some(Positioned::at(item, object)),
        Err(problem) => {
            problems.add(place(problem));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_at_the_end_of_a_name_is_incremented() {
        for (name, step, expected) in [
            ("p0", 2, Some("p2")),
            ("node-9", 1, Some("node-10")),
            ("a00", 3, Some("a03")),
            ("a", 1, None),
            ("a1-b", 1, None),
            ("a4294967295", 1, None),
        ] {
            assert_eq!(counted(name, step).as_deref(), expected, "{name}");
        }
    }
}
