//! Compares the expectations of a case with the results.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use kube_batch_framework::report::{Phase, next_queue_status};
use kube_batch_model::{
    dialect::Transition,
    facts::pod::TaskFacts,
    name::{Name, ObjectKey},
    object_status::PodGroupStatus,
    quantity::Quantity as Amount,
    resource::{ResourceVector, Share, Unit},
    status::TaskStatus,
};

use crate::{
    case::{
        ConditionMatch, Count, CountOf, EventMatch, Expect, ExpectedNumber, GroupMatch, NodeChoice,
        PodsMatch, QueueMatch, Range,
    },
    simulation::LastCycle,
    world::{RecordedEvent, World},
};

/// An expectation that is not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The key of the expectation.
    pub key: String,
    /// The expected value.
    pub wanted: String,
    /// The actual value.
    pub got: String,
}

impl Mismatch {
    /// This mismatch with its key below `part` of the case.
    pub(crate) fn under(self, part: &str) -> Self {
        if part.is_empty() {
            return self;
        }
        Self { key: format!("{part}.{}", self.key), ..self }
    }
}

/// The expectations that are not met.
pub fn check(expect: &Expect, world: &World, last: Option<&LastCycle>) -> Vec<Mismatch> {
    let mut checker = Checker { world, last, found: Vec::new() };
    checker.happened(expect);
    checker.decided(expect);
    checker.present(expect);
    checker.found
}

struct Checker<'a> {
    world: &'a World,
    last: Option<&'a LastCycle>,
    found: Vec<Mismatch>,
}

impl Checker<'_> {
    fn expect(&mut self, key: String, is_met: bool, wanted: impl ToString, got: impl ToString) {
        if !is_met {
            self.found.push(Mismatch { key, wanted: wanted.to_string(), got: got.to_string() });
        }
    }

    fn happened(&mut self, expect: &Expect) {
        let binds: BTreeMap<String, Name> = self
            .world
            .record
            .binds
            .iter()
            .map(|(pod, node)| (pod.to_string(), node.clone()))
            .collect();
        self.placed("binds", &expect.binds, &binds);
        let places: Vec<(ObjectKey, Name)> = self.world.record.binds.clone();
        self.count("bindCount", expect.bind_count.as_ref(), &places);
        for pod in &expect.not_scheduled {
            let got = binds.get(pod);
            self.expect(format!("notScheduled.{pod}"), got.is_none(), "not bound", show(got));
        }
        for (at, group) in expect.same_node.iter().enumerate() {
            let nodes: std::collections::BTreeSet<&Name> = self
                .world
                .record
                .binds
                .iter()
                .filter(|(pod, _)| {
                    group.contains(&pod.to_string())
                        || group.contains(&self.world.group_of(pod).to_string())
                })
                .map(|(_, node)| node)
                .collect();
            let got = format!("{nodes:?}");
            self.expect(format!("sameNode[{at}]"), nodes.len() <= 1, "one node", got);
        }
        self.evicted(expect);
        let events = &self.world.record.events;
        for (at, wanted) in expect.events.iter().enumerate() {
            let is_met = events.iter().any(|event| event_matches(wanted, event));
            self.expect(
                format!("events[{at}]"),
                is_met,
                describe_event(wanted),
                show_events(events),
            );
        }
        for (at, unwanted) in expect.events_not.iter().enumerate() {
            let found = events.iter().find(|event| event_matches(unwanted, event));
            let wanted = format!("no {}", describe_event(unwanted));
            let got = found.map(|event| event.message.clone()).unwrap_or_default();
            self.expect(format!("eventsNot[{at}]"), found.is_none(), wanted, got);
        }
    }

    fn evicted(&mut self, expect: &Expect) {
        let evictions = &self.world.record.evictions;
        let places: Vec<(ObjectKey, Name)> =
            evictions.iter().map(|e| (e.pod.clone(), e.node.clone())).collect();
        let evicted: Vec<String> = places.iter().map(|(pod, _)| pod.to_string()).collect();
        for pod in &expect.evicts {
            let is_met = evicted.contains(pod);
            self.expect(format!("evicts.{pod}"), is_met, "evicted", evicted.join(", "));
        }
        self.count("evictCount", expect.evict_count.as_ref(), &places);
        if let Some(allowed) = &expect.evicts_any_of {
            for pod in evicted.iter().filter(|pod| !allowed.contains(pod)) {
                self.expect("evictsAnyOf".to_owned(), false, allowed.join(", "), pod);
            }
        }
        for pod in &expect.evicts_not {
            let is_met = !evicted.contains(pod);
            self.expect(format!("evictsNot.{pod}"), is_met, "not evicted", "evicted");
        }
    }

    fn decided(&mut self, expect: &Expect) {
        let pipelined = &self.world.pipelined;
        let places: BTreeMap<String, Name> =
            pipelined.iter().map(|(pod, node)| (pod.to_string(), node.clone())).collect();
        self.placed("pipelined", &expect.pipelined, &places);
        self.count("pipelinedCount", expect.pipelined_count.as_ref(), pipelined);
        for (name, wanted) in &expect.queues {
            self.queue(name, wanted);
        }
        for (group, wanted) in &expect.jobs {
            let jobs = self.last.iter().flat_map(|last| last.cycle.jobs.iter());
            let mut of_group = jobs.filter(|job| job.key.to_string() == *group);
            let share = of_group.next().and_then(|job| job.share).map(Share::as_f64);
            let is_met = share.is_some_and(|share| (share - wanted.share).abs() <= 1e-6);
            self.expect(format!("jobs.{group}.share"), is_met, wanted.share, show(share));
        }
    }

    fn queue(&mut self, name: &str, wanted: &QueueMatch) {
        let queues = self.last.iter().flat_map(|last| &last.cycle.queues);
        let found = queues.into_iter().find(|report| &*report.queue.name == name);
        let Some(report) = found else {
            self.expect(format!("queues.{name}"), false, "present", "absent");
            return;
        };
        let opening = report.opening.as_ref();
        for (field, amounts, row) in [
            ("deserved", &wanted.deserved, opening.map(|shares| &shares.deserved)),
            ("guaranteed", &wanted.guaranteed, opening.map(|shares| &shares.guaranteed)),
            ("allocated", &wanted.allocated, opening.map(|shares| &shares.allocated)),
            ("request", &wanted.request, opening.map(|shares| &shares.request)),
        ] {
            for (resource, amount) in amounts {
                self.amount(&format!("queues.{name}.{field}.{resource}"), resource, amount, row);
            }
        }
        if let Some(share) = wanted.share {
            let got = opening.map_or(0.0, |shares| shares.share.as_f64());
            let is_met = (got - share).abs() <= 1e-6;
            self.expect(format!("queues.{name}.share"), is_met, share, got);
        }
        if let Some(overused) = wanted.overused {
            let got = opening.is_some_and(|shares| shares.overused);
            self.expect(format!("queues.{name}.overused"), got == overused, overused, got);
        }
        if let Some(state) = &wanted.state {
            let got = report.state.to_string();
            self.expect(format!("queues.{name}.state"), got == *state, state, got);
        }
        let at = Transition { cycle_id: "", now: Timestamp::MIN };
        let stored = &report.queue.status;
        let status = next_queue_status(report, at).unwrap_or_else(|| stored.clone());
        let conditions: Vec<Condition> = status
            .conditions
            .into_iter()
            .map(|own| Condition {
                type_: own.type_,
                status: own.status,
                reason: own.reason,
                message: own.message,
            })
            .collect();
        for (index, wanted) in wanted.conditions.iter().enumerate() {
            self.condition(format!("queues.{name}.conditions[{index}]"), wanted, &conditions);
        }
        for (field, wanted, phase) in [
            ("pending", wanted.pending, Phase::Pending),
            ("running", wanted.running, Phase::Running),
            ("unknown", wanted.unknown, Phase::Unknown),
        ] {
            let got = report.groups.get(&phase).copied().unwrap_or(0);
            self.quantity(format!("queues.{name}.{field}"), wanted, got.into());
        }
    }

    fn amount(
        &mut self,
        key: &str,
        resource: &str,
        wanted: &ApiQuantity,
        amounts: Option<&ResourceVector>,
    ) {
        let dimensions = self.last.map(|last| &last.dimensions);
        let dim = dimensions.and_then(|dimensions| dimensions.get(resource));
        let got = dim.zip(amounts).map_or(0, |(dim, amounts)| amounts[dim]);
        let unit = Unit::of(resource);
        let is_met = wanted.0.parse::<Amount>().is_ok_and(|wanted| unit.amount(wanted) == got);
        self.expect(key.to_owned(), is_met, &wanted.0, unit.display(got));
    }

    fn present(&mut self, expect: &Expect) {
        for (name, wanted) in &expect.pod_groups {
            let key = ObjectKey::parse(name);
            match self.world.store.group_of_any_api(&key).map(|facts| facts.status.clone()) {
                Some(status) => self.group(name, wanted, &status),
                None if *wanted == GroupMatch::default() => {}
                None => self.expect(format!("podGroups.{name}"), false, "present", "absent"),
            }
        }
        for (pod, wanted) in &expect.pod_conditions {
            let facts = self.world.store.pods.get(&ObjectKey::parse(pod)).cloned();
            let conditions = facts.map(|facts| pod_conditions(&facts)).unwrap_or_default();
            self.condition(format!("podConditions.{pod}"), wanted, &conditions);
        }
        for (group, wanted) in &expect.pods {
            self.pods(group, wanted);
        }
        for (claim, wanted) in &expect.devices {
            let facts = self.world.store.resource_claims.get(&ObjectKey::parse(claim));
            let allocation = facts.and_then(|facts| facts.allocation.as_ref());
            let results = allocation.into_iter().flat_map(|allocation| &allocation.results);
            let devices: Vec<String> = results.map(|result| result.id.to_string()).collect();
            let (is_met, wanted) = (devices == *wanted, wanted.join(", "));
            self.expect(format!("devices.{claim}"), is_met, wanted, devices.join(", "));
        }
    }

    fn group(&mut self, name: &str, wanted: &GroupMatch, status: &PodGroupStatus) {
        let at = |field: &str| format!("podGroups.{name}.{field}");
        if let Some(phase) = &wanted.phase {
            self.expect(at("phase"), *phase == status.phase, phase, &status.phase);
        }
        self.quantity(at("running"), wanted.running, status.running.into());
        self.quantity(at("succeeded"), wanted.succeeded, status.succeeded.into());
        self.quantity(at("failed"), wanted.failed, status.failed.into());
        let conditions: Vec<Condition> = status
            .conditions
            .iter()
            .map(|c| Condition {
                type_: c.type_.clone(),
                status: c.status.clone(),
                reason: c.reason.clone(),
                message: c.message.clone(),
            })
            .collect();
        for (index, wanted) in wanted.conditions.iter().enumerate() {
            self.condition(at(&format!("conditions[{index}]")), wanted, &conditions);
        }
    }

    fn condition(&mut self, key: String, wanted: &ConditionMatch, conditions: &[Condition]) {
        let type_matches =
            |c: &&Condition| wanted.type_.as_ref().is_none_or(|type_| *type_ == c.type_);
        let got: Vec<String> = conditions.iter().map(Condition::to_string).collect();
        if wanted.status.as_deref() == Some("absent") {
            let is_met = !conditions.iter().filter(type_matches).any(|c| c.status == "True");
            self.expect(key, is_met, "no such condition with status True", got.join("; "));
            return;
        }
        let is_met = conditions.iter().filter(type_matches).any(|c| {
            wanted.status.as_ref().is_none_or(|status| *status == c.status)
                && wanted.reason.as_ref().is_none_or(|reason| *reason == c.reason)
                && wanted.message_contains.as_ref().is_none_or(|text| c.message.contains(text))
        });
        self.expect(key, is_met, describe_condition(wanted), got.join("; "));
    }

    fn pods(&mut self, group: &str, wanted: &PodsMatch) {
        let mine: Vec<TaskStatus> = self
            .world
            .pods()
            .filter(|facts| self.world.group_of(&facts.key).to_string() == group)
            .map(|facts| facts.status)
            .filter(|status| *status != TaskStatus::Releasing)
            .collect();
        let count = |statuses: &[TaskStatus]| {
            mine.iter().filter(|status| statuses.contains(status)).count() as i64
        };
        let running = count(&[TaskStatus::Running, TaskStatus::Succeeded]);
        let pending = count(&[TaskStatus::Pending, TaskStatus::Bound]);
        self.quantity(format!("pods.{group}.running"), wanted.running, running);
        self.quantity(format!("pods.{group}.pending"), wanted.pending, pending);
        self.quantity(format!("pods.{group}.total"), wanted.total, mine.len() as i64);
    }

    fn placed(
        &mut self,
        key: &str,
        wanted: &BTreeMap<String, NodeChoice>,
        got: &BTreeMap<String, Name>,
    ) {
        for (pod, choice) in wanted {
            let node = got.get(pod);
            let (is_met, wanted) = match choice {
                NodeChoice::One(any) if any == "*" => (node.is_some(), "any node".to_owned()),
                NodeChoice::One(one) => (node.is_some_and(|node| **node == **one), one.clone()),
                NodeChoice::Any(several) => {
                    let is_met = node.is_some_and(|node| several.iter().any(|one| **node == **one));
                    (is_met, several.join(" or "))
                }
            };
            self.expect(format!("{key}.{pod}"), is_met, wanted, show(node));
        }
    }

    fn count(&mut self, key: &str, wanted: Option<&Count>, places: &[(ObjectKey, Name)]) {
        match wanted {
            None => {}
            Some(Count::All(quantity)) => {
                self.quantity(key.to_owned(), Some(*quantity), places.len() as i64);
            }
            Some(Count::Of(CountOf { total, groups, queues, nodes })) => {
                self.quantity(format!("{key}.total"), *total, places.len() as i64);
                for (group, wanted) in groups {
                    let mine = places
                        .iter()
                        .filter(|(pod, _)| self.world.group_of(pod).to_string() == *group);
                    let got = mine.count() as i64;
                    self.quantity(format!("{key}.groups.{group}"), Some(*wanted), got);
                }
                for (queue, wanted) in queues {
                    let mine = places.iter().filter(|(pod, _)| *self.queue_of(pod) == **queue);
                    let got = mine.count() as i64;
                    self.quantity(format!("{key}.queues.{queue}"), Some(*wanted), got);
                }
                for (node, wanted) in nodes {
                    let got = places.iter().filter(|(_, on)| **on == **node).count() as i64;
                    self.quantity(format!("{key}.nodes.{node}"), Some(*wanted), got);
                }
            }
        }
    }

    fn queue_of(&self, pod: &ObjectKey) -> Name {
        let group = self.world.group_of(pod);
        let store = &self.world.store;
        let of_namespace =
            store.namespaces.get(&group.namespace).and_then(|facts| facts.queue.clone());
        let of_group = store.group_of_any_api(&group).and_then(|facts| facts.queue.clone());
        let facts = store.pods.get(pod);
        let of_pod = facts.and_then(|facts| facts.annotations.as_ref()?.queue.clone());
        let queue = of_group.or(of_pod).or(of_namespace);
        queue.unwrap_or_else(|| self.world.options().default_queue.clone())
    }

    fn quantity(&mut self, key: String, wanted: Option<ExpectedNumber>, got: i64) {
        match wanted {
            None => {}
            Some(ExpectedNumber::Exactly(exactly)) => {
                self.expect(key, got == exactly, exactly, got);
            }
            Some(ExpectedNumber::Between(Range { min, max })) => {
                let is_met = min.is_none_or(|min| got >= min) && max.is_none_or(|max| got <= max);
                let bound = |word, bound: Option<i64>| bound.map(|n| format!("{word} {n}"));
                let parts = [bound("at least", min), bound("at most", max)];
                let wanted: Vec<String> = parts.into_iter().flatten().collect();
                self.expect(key, is_met, wanted.join(", "), got);
            }
        }
    }
}

struct Condition {
    type_: String,
    status: String,
    reason: String,
    message: String,
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={} {}: {}", self.type_, self.status, self.reason, self.message)
    }
}

/// The PodScheduled condition of a simulated pod.
fn pod_conditions(facts: &TaskFacts) -> Vec<Condition> {
    let condition = |status: &str, reason: &str, message: &str| Condition {
        type_: "PodScheduled".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    match (&facts.unscheduled, &facts.node) {
        (Some((reason, message)), _) => vec![condition("False", reason, message)],
        (None, Some(_)) => vec![condition("True", "", "")],
        (None, None) => Vec::new(),
    }
}

fn event_matches(wanted: &EventMatch, event: &RecordedEvent) -> bool {
    wanted.object.as_ref().is_none_or(|object| *object == event.object)
        && wanted.type_.as_ref().is_none_or(|type_| type_ == event.type_)
        && wanted.reason.as_ref().is_none_or(|reason| reason == event.reason)
        && wanted.message_contains.as_ref().is_none_or(|text| event.message.contains(text))
}

fn describe_event(wanted: &EventMatch) -> String {
    let contains = wanted.message_contains.as_ref().map(|text| format!("with \"{text}\""));
    let parts = [wanted.type_.clone(), wanted.reason.clone(), wanted.object.clone(), contains];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn describe_condition(wanted: &ConditionMatch) -> String {
    let contains = wanted.message_contains.as_ref().map(|text| format!("with \"{text}\""));
    let parts = [wanted.type_.clone(), wanted.status.clone(), wanted.reason.clone(), contains];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn show_events(events: &[RecordedEvent]) -> String {
    let all: Vec<String> = events
        .iter()
        .map(|e| format!("{} {} {}: {}", e.type_, e.reason, e.object, e.message))
        .collect();
    if all.is_empty() { "no events".to_owned() } else { all.join("; ") }
}

fn show<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "nothing".to_owned(), |value| value.to_string())
}
