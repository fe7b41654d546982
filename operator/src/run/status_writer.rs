//! Statuses that follow from a cycle. One is written only if it differs from what is stored.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use jiff::Timestamp;
use kube_batch_api::{
    crd::{PodGroupCondition, PodGroupStatus, QueueStatus},
    decision::{Decision, PodRef},
    facts::pod::TaskFacts,
    name::Name,
    reason::JobProblem,
};
use kube_batch_framework::report::{
    Cycle, JobReport, QueueReport, next_group_status, next_queue_status,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    effects::{
        Effects,
        events::{PendingEvent, group_reference, pod_reference},
        patch,
        queue::Target,
    },
    metrics::{Ended, Metrics},
    scheduler_cache::SchedulerCache,
    throttle::{Throttle, Urgency},
};

/// The reason of PodScheduled conditions that autoscalers look for.
const UNSCHEDULABLE: &str = "Unschedulable";

/// Writes the statuses of pods, PodGroups and queues.
pub(crate) struct StatusWriter {
    cache: Arc<SchedulerCache>,
    effects: Arc<Effects>,
    metrics: Arc<Metrics>,
    /// Identity of this process, for transition ids.
    instance: String,
    n_cycles: u64,
    throttle: Throttle<Target>,
    /// When the next write that was put off is due.
    due: Option<Instant>,
}

impl StatusWriter {
    pub(crate) fn new(
        cache: Arc<SchedulerCache>,
        effects: Arc<Effects>,
        metrics: Arc<Metrics>,
        instance: String,
    ) -> Self {
        Self {
            cache,
            effects,
            metrics,
            instance,
            n_cycles: 0,
            throttle: Throttle::default(),
            due: None,
        }
    }

    /// When a write that was put off is due.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Forgets what was written when: another replica has led meanwhile.
    pub(crate) fn reset(&mut self) {
        self.throttle = Throttle::default();
        self.due = None;
    }

    /// Enqueues the statuses that follow from a cycle and may be written at `now`.
    pub(crate) fn write(&mut self, cycle: &Cycle, now: Instant) {
        self.n_cycles += 1;
        self.due = None;
        for report in &cycle.jobs {
            self.group_status(report, now);
        }
        self.pod_status(cycle, now);
        for report in &cycle.queues {
            self.queue_status(report, now);
        }
        self.throttle.sweep(now);
    }

    /// Whether the status may be written now; if not, [`Self::due`] says when.
    fn admit(&mut self, target: Target, urgency: Urgency, now: Instant) -> bool {
        if self.effects.is_writing(&target) {
            return false;
        }
        match self.throttle.admit(target, urgency, now) {
            Ok(()) => true,
            Err(due) => {
                self.due = Some(self.due.map_or(due, |other| other.min(due)));
                false
            }
        }
    }

    // Parity: see docs/parity.md#e1 and docs/parity.md#e2.
    fn group_status(&mut self, report: &JobReport, now: Instant) {
        let cycle_id = format!("{}-{}", self.instance, self.n_cycles);
        let Some(group) = &report.group else { return };
        let Some(next) = next_group_status(report, &cycle_id, Timestamp::now()) else { return };
        let target = Target::Group(group.version, group.key.clone());
        if !self.admit(target.clone(), urgency_of_group(&group.status, &next), now) {
            return;
        }
        let shown = group.status.conditions.iter().find(|condition| condition.status == "True");
        let news = report.unschedulable.as_ref().map(|(_, message)| message);
        let news = news.filter(|news| shown.is_none_or(|condition| condition.message != **news));
        let event = news.map(|news| {
            PendingEvent::warning(group_reference(group), UNSCHEDULABLE, "Scheduling", news.clone())
        });
        self.enqueue(target, &group.status, &next, event);
    }

    fn enqueue(
        &self,
        target: Target,
        stored: &impl Serialize,
        next: &impl Serialize,
        event: Option<PendingEvent>,
    ) {
        let difference = patch::merge(&json_of(stored), &json_of(next));
        if let Some(difference) = difference {
            self.effects.enqueue_status(target, json!({"status": difference}), event);
        }
    }

    // Parity: see docs/parity.md#e3.
    fn pod_status(&mut self, cycle: &Cycle, now: Instant) {
        let mut writes: BTreeMap<PodRef, PodWrite<'_>> = BTreeMap::new();
        let cache = Arc::clone(&self.cache);
        let state = cache.lock();
        for decision in &cycle.decisions {
            let (pod, nomination) = match decision {
                Decision::Nominate { pod, node } => (pod, Nomination::Set(node)),
                Decision::Withdraw { pod } => (pod, Nomination::Clear),
                Decision::Bind { .. } | Decision::Evict { .. } => continue,
            };
            let differs = |facts: &TaskFacts| facts.nominated_node.as_ref() != nomination.node();
            if state.waiting(pod).is_some_and(differs) {
                writes.entry(pod.clone()).or_default().nomination = nomination;
            }
        }
        for report in &cycle.jobs {
            let because = &*report.unplaced_because;
            for pod in &report.unplaced {
                let Some(facts) = state.waiting(pod) else { continue };
                let condition = match &facts.unscheduled {
                    Some((reason, text)) if **reason == *UNSCHEDULABLE && **text == *because => {
                        continue;
                    }
                    Some((reason, _)) if **reason == *UNSCHEDULABLE => (Urgency::Text, because),
                    Some(_) | None => (Urgency::State, because),
                };
                writes.entry(pod.clone()).or_default().condition = Some(condition);
            }
        }
        drop(state);
        for (pod, write) in writes {
            self.write_pod(pod, &write, now);
        }
    }

    fn write_pod(&mut self, pod: PodRef, write: &PodWrite<'_>, now: Instant) {
        let target = Target::Pod(pod.clone());
        if self.effects.is_writing(&target) {
            return;
        }
        let (mut status, mut event) = (Map::new(), None);
        // Not throttled: autoscalers and other schedulers depend on it.
        if write.nomination != Nomination::Unchanged {
            let node = write.nomination.node().map(|node| &**node);
            status.insert("nominatedNodeName".to_owned(), json!(node));
        }
        if let Some((urgency, because)) = write.condition
            && self.admit(target.clone(), urgency, now)
        {
            let transition = (urgency == Urgency::State).then(Timestamp::now);
            status.insert("conditions".to_owned(), json!([condition(because, transition)]));
            self.metrics.schedule_attempts.get_or_create(&Ended { result: "unschedulable" }).inc();
            let (regarding, text) = (pod_reference(&pod), because.to_owned());
            event = Some(PendingEvent::warning(regarding, "FailedScheduling", "Scheduling", text));
        }
        if !status.is_empty() {
            let patch = json!({"metadata": {"uid": &*pod.uid}, "status": status});
            self.effects.enqueue_status(target, patch, event);
        }
    }

    // Parity: see docs/parity.md#e5.
    fn queue_status(&mut self, report: &QueueReport, now: Instant) {
        let Some(next) = next_queue_status(report) else { return };
        let queue = &report.queue;
        let target = Target::Queue(queue.version, queue.name.clone());
        let is_first = queue.status == QueueStatus::default();
        let urgency = if is_first { Urgency::State } else { Urgency::Count };
        if self.admit(target.clone(), urgency, now) {
            self.enqueue(target, &queue.status, &next, None);
        }
    }
}

/// The condition of a pod that cannot be scheduled; with the time, if that is new.
fn condition(because: &str, transition: Option<Timestamp>) -> Value {
    let mut condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": UNSCHEDULABLE,
        "message": because,
    });
    if let Some(time) = transition {
        condition["lastTransitionTime"] = json!(time.to_string());
    }
    condition
}

/// What becomes of a pod's `nominatedNodeName`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Nomination<'r> {
    #[default]
    Unchanged,
    Clear,
    Set(&'r Name),
}

impl<'r> Nomination<'r> {
    const fn node(self) -> Option<&'r Name> {
        match self {
            Self::Set(node) => Some(node),
            Self::Unchanged | Self::Clear => None,
        }
    }
}

/// What is to be written of a pod's status.
#[derive(Default)]
struct PodWrite<'r> {
    nomination: Nomination<'r>,
    /// Why it waits, and how urgent that is.
    condition: Option<(Urgency, &'r str)>,
}

fn json_of(status: &impl Serialize) -> Value {
    serde_json::to_value(status).expect("a status is JSON")
}

fn urgency_of_group(stored: &PodGroupStatus, next: &PodGroupStatus) -> Urgency {
    let states = |status: &PodGroupStatus| {
        let conditions = status.conditions.iter();
        let states = conditions.map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone()));
        (status.phase.clone(), states.collect::<Vec<_>>())
    };
    let counts = |status: &PodGroupStatus| (status.running, status.succeeded, status.failed);
    let is_short = |condition: &PodGroupCondition| {
        condition.status == "True" && condition.reason == JobProblem::NOT_ENOUGH_TASKS
    };
    if states(stored) != states(next) {
        if next.conditions.iter().any(is_short) { Urgency::Forming } else { Urgency::State }
    } else if counts(stored) != counts(next) {
        Urgency::Count
    } else {
        Urgency::Text
    }
}

#[cfg(test)]
mod tests;
