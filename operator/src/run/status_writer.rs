//! What a cycle decided and reported, as writes: each only if a reader would see a difference.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Instant,
};

use jiff::Timestamp;
use kube_batch_api::{
    crd::{ApiVersion, PodGroupCondition, PodGroupStatus, QueueStatus},
    decision::{Decision, PodRef},
    facts::pod::TaskFacts,
    name::{Name, ObjectKey},
    quantity::Quantity,
    reason::JobProblem,
};
use kube_batch_cache::fold::Ignored;
use kube_batch_framework::report::{
    Cycle, JobReport, Phase, QueueReport, next_group_status, next_queue_status,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tracing::warn;

use super::{
    effects::{
        Effects,
        events::{PendingEvent, group_reference, pod_reference, queue_reference},
        patch,
        queue::{DecisionWrite, Target},
    },
    metrics::{Ended, Job, Metrics, Queue, QueuePhase, QueueResource},
    scheduler_cache::{CacheState, SchedulerCache},
    throttle::{Throttle, Urgency},
};

/// The word of PodScheduled conditions that autoscalers look for.
const UNSCHEDULABLE: &str = "Unschedulable";

/// Makes writes of cycles.
pub(crate) struct StatusWriter {
    cache: Arc<SchedulerCache>,
    effects: Arc<Effects>,
    metrics: Arc<Metrics>,
    /// Names this process in transition ids.
    instance: String,
    n_cycles: u64,
    throttle: Throttle<Target>,
    /// When the next write that was put off is due.
    due: Option<Instant>,
    /// Series that the last cycle left.
    unready_jobs: HashSet<Job>,
    queues: HashSet<Queue>,
    resources: HashSet<QueueResource>,
    /// Duplicates that were told of.
    ignored: BTreeSet<String>,
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
            unready_jobs: HashSet::new(),
            queues: HashSet::new(),
            resources: HashSet::new(),
            ignored: BTreeSet::new(),
        }
    }

    /// When a write that was put off is due.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether decisions wait to be sent.
    pub(crate) fn is_sending(&self) -> bool {
        self.effects.has_pending_decisions()
    }

    /// Forgets what was written: somebody else has led meanwhile.
    pub(crate) fn forget(&mut self) {
        self.throttle = Throttle::default();
        self.due = None;
    }

    /// Takes what a cycle decided and reported.
    pub(crate) fn write(&mut self, cycle: &Cycle, ignored: &[Ignored]) {
        self.n_cycles += 1;
        self.due = None;
        let now = Instant::now();
        self.decisions(&cycle.decisions);
        self.tell_ignored(ignored);
        for report in &cycle.jobs {
            self.group_status(report, now);
        }
        self.pod_status(cycle, now);
        for report in &cycle.queues {
            self.queue_status(report, now);
        }
        self.throttle.sweep(now);
        self.count_jobs(&cycle.jobs);
        self.count_queues(&cycle.queues);
    }

    /// Notes each decision before it is sent.
    fn decisions(&self, decisions: &[Decision]) {
        let mut writes = Vec::with_capacity(decisions.len());
        let mut state = self.cache.lock();
        let now = Timestamp::now();
        let mut takers = BTreeSet::new();
        let mut n_victims = 0;
        for decision in decisions {
            state.assumed.note(decision, now);
            match decision {
                Decision::Bind { pod, node, claims } => {
                    let created = state.store.pods.get(&pod.key).map_or(now, |f| f.created);
                    let (pod, node, claims) = (pod.clone(), node.clone(), claims.clone());
                    writes.push(DecisionWrite::Bind { pod, node, claims, created });
                }
                Decision::Evict { pod, reason, by, .. } => {
                    takers.insert(by);
                    n_victims += 1;
                    self.tell_of_eviction(&state, decision);
                    writes.push(DecisionWrite::Evict {
                        pod: pod.clone(),
                        reason: *reason,
                        by: by.clone(),
                    });
                }
                // Written with the rest of the pod's status.
                Decision::Nominate { .. } | Decision::Withdraw { .. } => {}
            }
        }
        drop(state);
        if n_victims > 0 {
            self.metrics.preemption_victims.set(n_victims);
            self.metrics.preemption_attempts.inc_by(takers.len() as i64);
        }
        for write in writes {
            self.effects.enqueue_decision(write);
        }
    }

    fn tell_of_eviction(&self, state: &CacheState, decision: &Decision) {
        let Decision::Evict { pod, node, reason, by } = decision else { return };
        let text = format!("{reason} on {node} for {by}");
        self.effects.enqueue_event(PendingEvent::normal(
            pod_reference(pod),
            "Preempted",
            "Preempting",
            text,
        ));
        let facts = state.store.pods.get(&pod.key);
        let group = facts.and_then(|facts| facts.group.as_ref());
        let found = group.and_then(|group| {
            let key = ObjectKey { namespace: pod.key.namespace.clone(), name: group.clone() };
            state.store.group(&key)
        });
        if let Some(group) = found {
            let event = PendingEvent::normal(
                group_reference(group),
                "Evict",
                "Evicting",
                reason.to_string(),
            );
            self.effects.enqueue_event(event);
        }
    }

    // Parity: differs, see docs/parity.md#j2.
    fn tell_ignored(&mut self, ignored: &[Ignored]) {
        let now: BTreeSet<String> = ignored.iter().map(ToString::to_string).collect();
        for ignored in ignored.iter().filter(|one| !self.ignored.contains(&one.to_string())) {
            let text = ignored.to_string();
            warn!(object = text, "two objects of one name");
            let state = self.cache.lock();
            let older = ApiVersion::V1Alpha1;
            let regarding = match ignored {
                Ignored::DuplicateGroup(key) => {
                    let group = state.store.groups.get(&(key.clone(), older));
                    group.map(|group| group_reference(group))
                }
                Ignored::DuplicateQueue(name) => {
                    let queue = state.store.queues.get(&(name.clone(), older));
                    queue.map(|queue| queue_reference(queue))
                }
            };
            drop(state);
            if let Some(regarding) = regarding {
                self.effects.enqueue_event(PendingEvent::warning(
                    regarding,
                    "Duplicate",
                    "Ignoring",
                    text,
                ));
            }
        }
        self.ignored = now;
    }

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
        let said = group.status.conditions.iter().find(|condition| condition.status == "True");
        let news = report.unschedulable.as_ref().map(|(_, message)| message);
        let news = news.filter(|news| said.is_none_or(|condition| condition.message != **news));
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
            let (pod, node) = match decision {
                Decision::Nominate { pod, node } => (pod, Some(node)),
                Decision::Withdraw { pod } => (pod, None),
                Decision::Bind { .. } | Decision::Evict { .. } => continue,
            };
            let differs = |facts: &TaskFacts| facts.nominated_node.as_ref() != node;
            if state.waiting(pod).is_some_and(differs) {
                writes.entry(pod.clone()).or_default().nominated = Some(node);
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
        // Others go by it at once: autoscalers, and whoever looks where the pod will be.
        if let Some(node) = write.nominated {
            status.insert("nominatedNodeName".to_owned(), json!(node.map(|node| &**node)));
        }
        if let Some((urgency, because)) = write.condition
            && self.admit(target.clone(), urgency, now)
        {
            let is_new = urgency == Urgency::State;
            status.insert("conditions".to_owned(), json!([condition(because, is_new)]));
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

    fn count_jobs(&mut self, jobs: &[JobReport]) {
        let mut unready = HashSet::new();
        for report in jobs.iter().filter(|report| report.unschedulable.is_some()) {
            let job = Job { job_id: report.key.to_string() };
            self.metrics.unready_tasks.get_or_create(&job).set(report.lacking.into());
            self.metrics.job_retries.get_or_create(&job).inc();
            unready.insert(job);
        }
        self.metrics.unready_jobs.set(i64::try_from(unready.len()).unwrap_or(i64::MAX));
        for gone in self.unready_jobs.difference(&unready) {
            self.metrics.unready_tasks.remove(gone);
            self.metrics.job_retries.remove(gone);
        }
        self.unready_jobs = unready;
    }

    fn count_queues(&mut self, reports: &[QueueReport]) {
        let (mut queues, mut resources) = (HashSet::new(), HashSet::new());
        for report in reports {
            let name = report.queue.name.to_string();
            let queue = Queue { queue: name.clone() };
            let share = report.closing.as_ref().map_or(0.0, |shares| shares.share.as_f64());
            self.metrics.queue_share.get_or_create(&queue).set(share);
            for (amounts, gauge) in [
                (&report.deserved, &self.metrics.queue_deserved),
                (&report.allocated, &self.metrics.queue_allocated),
            ] {
                for (resource, amount) in amounts {
                    let labels = QueueResource { queue: name.clone(), resource: resource.clone() };
                    let value: Option<Quantity> = amount.parse().ok();
                    gauge.get_or_create(&labels).set(value.map_or(0.0, |v| v.milli() as f64 / 1e3));
                    resources.insert(labels);
                }
            }
            for phase in Phase::ALL {
                let labels = QueuePhase { queue: name.clone(), phase: phase.name() };
                let count = report.groups.get(&phase).copied().unwrap_or(0);
                self.metrics.queue_groups.get_or_create(&labels).set(count.into());
            }
            queues.insert(queue);
        }
        for gone in self.queues.difference(&queues) {
            self.metrics.queue_share.remove(gone);
            for phase in Phase::ALL {
                let labels = QueuePhase { queue: gone.queue.clone(), phase: phase.name() };
                self.metrics.queue_groups.remove(&labels);
            }
        }
        for gone in self.resources.difference(&resources) {
            self.metrics.queue_deserved.remove(gone);
            self.metrics.queue_allocated.remove(gone);
        }
        (self.queues, self.resources) = (queues, resources);
    }
}

fn condition(because: &str, is_new: bool) -> Value {
    let mut condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": UNSCHEDULABLE,
        "message": because,
    });
    if is_new {
        condition["lastTransitionTime"] = json!(Timestamp::now().to_string());
    }
    condition
}

/// What is to be written of a pod's status.
#[derive(Default)]
struct PodWrite<'r> {
    /// The node it is promised, or none any more.
    nominated: Option<Option<&'r Name>>,
    /// Why it waits.
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
