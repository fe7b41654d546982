//! What a cycle writes to the API server besides its decisions: statuses, nominations and events, and the texts of
//! bindings and evictions.
//!
//! All of it is decided here, from the cycle and what is stored, and nowhere else: a simulation
//! applies the writes at once, and the scheduler of a cluster throttles and sends them. So what a
//! simulation shows is what a user of the cluster sees.

use std::{cell::LazyCell, collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use kube_batch_cache::{
    assumed::{Assumed, InFlight},
    store::Store,
};
use kube_batch_framework::report::{
    Cycle, JobReport, QueueReport, next_group_status, next_queue_status,
};
use kube_batch_model::{
    decision::{Decision, EvictionCause, PodRef},
    dialect::Transition,
    facts::{device::claim::ClaimSource, group::GroupFacts, pod::TaskFacts, queue::QueueFacts},
    group_version::Join,
    name::{JobKey, Name, ObjectKey},
    object_status::{MISCONFIGURED, PodGroupStatus, QueueStatus, UNSCHEDULABLE},
    problem::Ignored,
    queue_condition::ACTIVE,
    reason::Reason,
    text::shortened,
};

/// The next status of an object; it differs from the stored one.
#[derive(Clone, Debug)]
pub enum StatusWrite {
    /// Of a pod: `nominatedNodeName` and the condition PodScheduled.
    Pod {
        /// The pod.
        pod: PodRef,
        /// Its nomination. Written at once: autoscalers and other schedulers depend on it.
        nomination: Nomination,
        /// Why it waits, if that is news.
        waits: Option<Waits>,
    },
    /// Of a PodGroup.
    Group {
        /// The PodGroup with its stored status.
        group: Arc<GroupFacts>,
        /// The next status.
        next: PodGroupStatus,
        /// How urgent the difference is.
        urgency: Urgency,
        /// To be sent once it is written.
        events: Vec<Event>,
    },
    /// Of a queue.
    Queue {
        /// The queue with its stored status.
        queue: Arc<QueueFacts>,
        /// The next status.
        next: QueueStatus,
        /// How urgent the difference is.
        urgency: Urgency,
        /// To be sent once it is written.
        events: Vec<Event>,
    },
}

/// What becomes of a pod's `nominatedNodeName`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nomination {
    /// It stays.
    #[default]
    Unchanged,
    /// It is removed.
    Clear,
    /// It is set.
    Set(Name),
}

/// Why a pod waits.
#[derive(Clone, Debug)]
pub struct Waits {
    /// The reason of the condition.
    pub reason: Reason,
    /// The message of the condition.
    pub message: String,
    /// [`Urgency::State`] if the condition is new, else [`Urgency::Text`].
    pub urgency: Urgency,
    /// To be sent once it is written; `None` if the pod waited already and only the text is new.
    pub event: Option<Event>,
}

/// What a change of a status is about, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A phase, or a condition's status or reason: users and controllers wait for it.
    State,
    /// That a gang lacks pods, or a pod a claim for devices, which a controller may be about to create.
    Forming,
    /// A count or an amount.
    Count,
    /// The text of a message of a PodGroup.
    Text,
    /// The text of a message of a pod, or its reason as the cluster fills up and becomes empty; of a message of a PodGroup
    /// only its last part, about other jobs and queues. There may be many of them, and all may change at once.
    PodText,
}

/// An event.
#[derive(Clone, Debug)]
pub struct Event {
    /// The object it is about.
    pub regarding: Regarding,
    /// Another object that it concerns: of an eviction, the PodGroup that gets the resources.
    pub related: Option<Regarding>,
    /// Its type.
    pub type_: EventType,
    /// Why, in one word.
    pub reason: &'static str,
    /// What the scheduler was doing, in one word.
    pub action: &'static str,
    /// What happened, in one sentence.
    pub message: String,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Something happened as it should.
    Normal,
    /// Something needs attention.
    Warning,
}

impl EventType {
    /// As the API spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The object of an event.
#[derive(Clone, Debug)]
pub enum Regarding {
    /// A pod.
    Pod(PodRef),
    /// A PodGroup.
    Group(Arc<GroupFacts>),
    /// A queue.
    Queue(Arc<QueueFacts>),
}

impl Regarding {
    /// Its namespace; empty for a queue.
    pub fn namespace(&self) -> Name {
        match self {
            Self::Pod(pod) => pod.key.namespace.clone(),
            Self::Group(group) => group.key.namespace.clone(),
            Self::Queue(_) => Name::default(),
        }
    }
}

impl fmt::Display for Regarding {
    /// Kind, namespace and name: `Pod ns/a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(pod) => write!(f, "Pod {}", pod.key),
            Self::Group(group) => write!(f, "PodGroup {}", group.key),
            Self::Queue(queue) => write!(f, "Queue {}", queue.name),
        }
    }
}

/// The event of a pod that was bound.
pub fn scheduled(pod: &PodRef, node: &Name) -> Event {
    Event {
        regarding: Regarding::Pod(pod.clone()),
        related: None,
        type_: EventType::Normal,
        reason: "Scheduled",
        action: "Binding",
        message: format!("Successfully assigned {} to {node}", pod.key),
    }
}

/// The message of the condition of a pod that is evicted.
pub fn eviction_message(cause: &EvictionCause) -> String {
    shortened(&format!("kube-batch: {cause}")).into_owned()
}

/// The events about evictions, by the uid of the pod with whose eviction they are sent.
pub fn eviction_events(decisions: &[Decision], store: &Store) -> BTreeMap<Name, Vec<Event>> {
    let mut victims = victims_by_group(decisions, store);
    let events = decisions.iter().filter_map(|decision| {
        let Decision::Evict { pod, node, cause: why } = decision else { return None };
        let (cause, related) = (why.to_string(), taker(store, why));
        let events = events_of_victim(store, (pod, node), (&cause, related), &mut victims);
        Some((pod.uid.clone(), events))
    });
    events.collect()
}

/// The PodGroup of a pod, and why pods of it are evicted.
type GroupCause = (Join, ObjectKey, String);

/// How many pods of each PodGroup are evicted for each cause.
fn victims_by_group(decisions: &[Decision], store: &Store) -> BTreeMap<GroupCause, u32> {
    let mut victims = BTreeMap::new();
    for decision in decisions {
        if let Decision::Evict { pod, cause, .. } = decision
            && let Some((join, group)) = group_of(store, pod)
        {
            *victims.entry((join, group, cause.to_string())).or_default() += 1;
        }
    }
    victims
}

/// The PodGroup that a pod names.
fn group_of(store: &Store, pod: &PodRef) -> Option<(Join, ObjectKey)> {
    store.pods.get(&pod.key)?.group(store.served())
}

/// The PodGroup that gets the resources of a victim, if a job gets them and has one.
fn taker(store: &Store, cause: &EvictionCause) -> Option<Regarding> {
    let taker = cause.taker().filter(|taker| taker.is_named)?;
    match &taker.job {
        JobKey::Group(join, group) => {
            Some(Regarding::Group(Arc::clone(store.group(*join, group)?)))
        }
        JobKey::Shadow { .. } | JobKey::Pod { .. } => None,
    }
}

/// The event of the pod and, with the first victim of a PodGroup and cause, one event of the PodGroup
/// for all of them.
fn events_of_victim(
    store: &Store,
    (pod, node): (&PodRef, &Name),
    (cause, related): (&str, Option<Regarding>),
    victims: &mut BTreeMap<GroupCause, u32>,
) -> Vec<Event> {
    let victim = Event {
        regarding: Regarding::Pod(pod.clone()),
        related: related.clone(),
        type_: EventType::Normal,
        reason: "Preempted",
        action: "Preempting",
        message: format!("evicted from {node}: {cause}"),
    };
    let key = group_of(store, pod);
    let group = key.and_then(|(join, key)| {
        let group = Arc::clone(store.group(join, &key)?);
        let message = match victims.remove(&(join, key, cause.to_owned()))? {
            1 => format!("1 pod is evicted: {cause}"),
            n_pods => format!("{n_pods} pods are evicted: {cause}"),
        };
        let regarding = Regarding::Group(group);
        let type_ = EventType::Normal;
        Some(Event { regarding, related, type_, reason: "Evict", action: "Evicting", message })
    });
    [Some(victim), group].into_iter().flatten().collect()
}

/// Something about objects that their owners should know, with the event about one of them.
#[derive(Clone, Debug)]
pub struct Remark {
    /// What.
    pub text: String,
    /// `None` if the object is not stored any more.
    pub event: Option<Event>,
}

/// The objects that a snapshot ignored, the fields of queues that have no effect, and the mistakes in jobs that
/// have no PodGroup to report them on.
pub fn remarks(ignored: &[Ignored], cycle: &Cycle, store: &Store) -> Vec<Remark> {
    let ignored = ignored.iter().map(|ignored| Remark {
        text: shortened(&ignored.to_string()).into_owned(),
        event: ignored_event(ignored, store),
    });
    let queues = cycle.queues.iter().filter_map(not_honoured);
    let jobs = cycle.unsettled_jobs().flat_map(mistakes);
    ignored.chain(queues).chain(jobs).collect()
}

// Parity: see docs/parity.md#k2.
fn not_honoured(report: &QueueReport) -> Option<Remark> {
    let queue = &report.queue;
    let fields = queue.not_honoured.iter().map(ToString::to_string);
    let fields: Vec<String> = fields.chain(report.without_effect.iter().cloned()).collect();
    if fields.is_empty() {
        return None;
    }
    let text =
        format!("of queue \"{}\", these fields have no effect: {}", queue.name, fields.join(", "));
    let event = Event {
        regarding: Regarding::Queue(Arc::clone(queue)),
        related: None,
        type_: EventType::Warning,
        reason: "NotHonoured",
        action: "Ignoring",
        message: text.clone(),
    };
    Some(Remark { text, event: Some(event) })
}

// Parity: see docs/parity.md#k5.
fn mistakes(report: &JobReport) -> impl Iterator<Item = Remark> {
    report.first_pod.iter().flat_map(|pod| {
        report.warnings.iter().map(|warning| {
            let event = Event {
                regarding: Regarding::Pod(pod.clone()),
                related: None,
                type_: EventType::Warning,
                reason: warning.reason(),
                action: "Scheduling",
                message: warning.to_string(),
            };
            let text = shortened(&format!("job {}: {warning}", report.key)).into_owned();
            Remark { text, event: Some(event) }
        })
    })
}

/// The event about an object that a snapshot ignored, if the object is stored.
// Parity: differs, see docs/parity.md#j2.
fn ignored_event(ignored: &Ignored, store: &Store) -> Option<Event> {
    let regarding = match ignored {
        Ignored::DuplicateGroup(key, apis) => {
            Regarding::Group(Arc::clone(store.groups.get(&(key.clone(), apis.ignored))?))
        }
        Ignored::DuplicateQueue(name, apis) => {
            Regarding::Queue(Arc::clone(store.queues.get(&(name.clone(), apis.ignored))?))
        }
    };
    let message = ignored.to_string();
    let type_ = EventType::Warning;
    Some(Event {
        regarding,
        related: None,
        type_,
        reason: "Duplicate",
        action: "Ignoring",
        message,
    })
}

/// The statuses that follow from a cycle and differ from what is stored: PodGroups, then pods, then
/// queues. `cycle_id` is the transition id of conditions that change in this cycle.
pub fn status_writes(
    cycle: &Cycle,
    store: &Store,
    assumed: &Assumed,
    cycle_id: &str,
    now: Timestamp,
) -> Vec<StatusWrite> {
    let known = Known { store, assumed };
    let at = Transition { cycle_id, now };
    let of_jobs = known.status_writes(cycle, cycle.unsettled_jobs(), at);
    debug_assert_eq!(
        of_jobs.len(),
        known.status_writes(cycle, cycle.jobs.iter().map(|report| &**report), at).len(),
        "no status follows from the reports of settled jobs"
    );
    let queues = cycle.queues.iter().filter_map(|report| queue_status(report, at));
    of_jobs.into_iter().chain(queues).collect()
}

/// What a cycle has seen.
#[derive(Clone, Copy)]
struct Known<'s> {
    store: &'s Store,
    assumed: &'s Assumed,
}

impl Known<'_> {
    /// The statuses of PodGroups and pods that follow from these reports of a cycle.
    fn status_writes<'r>(
        self,
        cycle: &'r Cycle,
        reports: impl Iterator<Item = &'r JobReport> + Clone,
        at: Transition<'_>,
    ) -> Vec<StatusWrite> {
        let Self { store, assumed } = self;
        let groups = reports.clone().filter_map(|report| {
            let lacks_claims = || lacks_claims(report, store, assumed);
            group_status(report, at, lacks_claims)
        });
        groups.chain(pod_statuses(&cycle.decisions, reports, store, assumed)).collect()
    }
}

// Parity: see docs/parity.md#e1 and docs/parity.md#e2.
fn group_status(
    report: &JobReport,
    at: Transition<'_>,
    lacks_claims: impl Fn() -> bool,
) -> Option<StatusWrite> {
    let group = report.group.as_ref()?;
    let next = next_group_status(report, at)?;
    let dialect = group.version.statuses();
    let event = |type_: &str, reason, action, (own, message): (&str, &str)| {
        let is_shown = match dialect.has_conditions() {
            true => dialect.reports(&group.status, type_, own),
            // There is no field for the message: each phase in which it waits has an event.
            false => group.status.phase == next.phase,
        };
        let regarding = Regarding::Group(Arc::clone(group));
        let type_ = EventType::Warning;
        (!is_shown).then(|| Event {
            regarding,
            related: None,
            type_,
            reason,
            action,
            message: message.to_owned(),
        })
    };
    let unschedulable = report.unschedulable_in_words();
    // The part about other jobs and queues changes with each of their pods.
    let own_words = report.unschedulable.as_ref().map(|why| why.own_words()).unwrap_or_default();
    let events = [
        unschedulable.as_ref().and_then(|(_, words)| {
            event(UNSCHEDULABLE, UNSCHEDULABLE, "Scheduling", (&own_words, words))
        }),
        report.misconfigured().and_then(|(reason, words)| {
            event(MISCONFIGURED, reason, "Scheduling", (&words, &words))
        }),
    ];
    let events = events.into_iter().flatten().collect();
    let lacks_tasks = unschedulable.is_some_and(|(reason, _)| reason == Reason::NotEnoughTasks);
    let forms = || lacks_tasks || lacks_claims();
    let mut urgency = urgency_of_group(&group.status, &next, forms);
    if urgency == Urgency::Text && begins_with(&group.status, &own_words) {
        urgency = Urgency::PodText;
    }
    Some(StatusWrite::Group { group: Arc::clone(group), next, urgency, events })
}

/// Whether a stored status has the same message already, apart from its part about other jobs and queues.
fn begins_with(stored: &PodGroupStatus, own_words: &str) -> bool {
    let mut conditions = stored.conditions.iter().filter(|own| own.type_ == UNSCHEDULABLE);
    !own_words.is_empty() && conditions.any(|own| own.message.starts_with(own_words))
}

fn urgency_of_group(
    stored: &PodGroupStatus,
    next: &PodGroupStatus,
    forms: impl Fn() -> bool,
) -> Urgency {
    let states = |status: &PodGroupStatus| {
        let conditions = status.conditions.iter();
        let states = conditions.map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone()));
        (status.phase.clone(), states.collect::<Vec<_>>())
    };
    let counts = |status: &PodGroupStatus| (status.running, status.succeeded, status.failed);
    if states(stored) != states(next) {
        if forms() { Urgency::Forming } else { Urgency::State }
    } else if counts(stored) != counts(next) {
        Urgency::Count
    } else {
        Urgency::Text
    }
}

// Parity: see docs/parity.md#e3.
fn pod_statuses<'r>(
    decisions: &'r [Decision],
    reports: impl Iterator<Item = &'r JobReport>,
    store: &Store,
    assumed: &Assumed,
) -> Vec<StatusWrite> {
    let mut pods: BTreeMap<&PodRef, (Nomination, Option<Waits>)> = BTreeMap::new();
    for decision in decisions {
        let (pod, node) = match decision {
            Decision::Nominate { pod, node, .. } => (pod, Some(node)),
            Decision::Withdraw { pod } => (pod, None),
            Decision::Bind { .. } | Decision::Evict { .. } | Decision::Deallocate { .. } => {
                continue;
            }
        };
        // What another component has written stays, or each would overwrite the other's.
        let facts = waiting(store, assumed, pod).filter(|facts| !facts.nominated_by_other);
        if facts.is_some_and(|facts| facts.nominated_node.as_ref() != node) {
            let nomination = node.map_or(Nomination::Clear, |node| Nomination::Set(node.clone()));
            pods.entry(pod).or_default().0 = nomination;
        }
    }
    for report in reports {
        let forms =
            LazyCell::new(|| lacks_pods_or_group(report) || lacks_claims(report, store, assumed));
        for pod in &report.unplaced {
            let because = report.unplaced_because.as_ref();
            let news = waiting(store, assumed, pod).zip(because).and_then(|(facts, because)| {
                news_of_pod(facts, pod, because.reason_of_pods(), because.words())
            });
            if let Some(mut waits) = news {
                if waits.urgency == Urgency::State && *forms {
                    waits.urgency = Urgency::Forming;
                }
                pods.entry(pod).or_default().1 = Some(waits);
            }
        }
    }
    let statuses = pods.into_iter().map(|(pod, (nomination, waits))| StatusWrite::Pod {
        pod: pod.clone(),
        nomination,
        waits,
    });
    statuses.collect()
}

/// Why a pod waits, unless its condition says so already.
pub fn news_of_pod(facts: &TaskFacts, pod: &PodRef, reason: Reason, words: &str) -> Option<Waits> {
    let is_of_load = |known: &Name| Reason::from(known.clone()).is_of_load();
    let urgency = match &facts.unscheduled {
        Some((known, text)) if **known == *reason.as_str() && **text == *words => return None,
        Some((known, _)) if **known == *reason.as_str() => Urgency::PodText,
        Some((known, _)) if is_of_load(known) && reason.is_of_load() => Urgency::PodText,
        Some(_) | None => Urgency::State,
    };
    let event = (urgency == Urgency::State).then(|| Event {
        regarding: Regarding::Pod(pod.clone()),
        related: None,
        type_: EventType::Warning,
        reason: "FailedScheduling",
        action: "Scheduling",
        message: words.to_owned(),
    });
    Some(Waits { reason, message: words.to_owned(), urgency, event })
}

/// Whether a controller may be about to create what a job lacks: its PodGroup, or more pods.
fn lacks_pods_or_group(report: &JobReport) -> bool {
    let reason = report.unschedulable.as_ref().map(|why| why.reason());
    matches!(reason, Some(Reason::PodGroupNotFound | Reason::NotEnoughTasks))
}

/// Whether a claim for devices is still to be made for a pod of a job. The others wait for it too.
fn lacks_claims(report: &JobReport, store: &Store, assumed: &Assumed) -> bool {
    let waiting = report.unplaced.iter().filter_map(|pod| waiting(store, assumed, pod));
    let mut entries = waiting.flat_map(|facts| &facts.device_claims);
    entries.any(|entry| matches!(entry.source, ClaimSource::NotCreated(_)))
}

/// The facts of a pod, if it is still the same one and waits for a node.
pub fn waiting<'s>(store: &'s Store, assumed: &Assumed, pod: &PodRef) -> Option<&'s TaskFacts> {
    let facts = store.pods.get(&pod.key)?;
    let is_bound =
        facts.node.is_some() || matches!(assumed.get(&pod.uid), Some(InFlight::Bind { .. }));
    (facts.uid == pod.uid && !is_bound).then_some(&**facts)
}

// Parity: see docs/parity.md#e5.
fn queue_status(report: &QueueReport, at: Transition<'_>) -> Option<StatusWrite> {
    let next = next_queue_status(report, at)?;
    let queue = Arc::clone(&report.queue);
    let events: Vec<Event> = condition_events(&queue, &next).collect();
    let is_first = queue.status == QueueStatus::default();
    let urgency = if is_first || !events.is_empty() { Urgency::State } else { Urgency::Count };
    Some(StatusWrite::Queue { queue, next, urgency, events })
}

/// The reasons of conditions of queues.
const EVENT_REASONS: [&str; 8] = [
    ACTIVE,
    "ParentNotFound",
    "ParentLoop",
    "TooDeep",
    "Closed",
    "Guarantees",
    "Deserved",
    "Enough",
];

/// The events about conditions of a queue whose status has changed. That a new queue starts jobs is no news.
// Parity: see docs/parity.md#q15.
fn condition_events(queue: &Arc<QueueFacts>, next: &QueueStatus) -> impl Iterator<Item = Event> {
    next.conditions.iter().filter_map(|condition| {
        let mut stored = queue.status.conditions.iter();
        let before = stored.find(|own| own.type_ == condition.type_);
        let is_true = condition.status == "True";
        let is_good = (condition.type_ == ACTIVE) == is_true;
        let is_news = match before {
            Some(before) => before.status != condition.status,
            None => !is_good,
        };
        let is_closed = condition.reason == "Closed";
        let reason = EVENT_REASONS.into_iter().find(|reason| *reason == condition.reason)?;
        is_news.then(|| Event {
            regarding: Regarding::Queue(Arc::clone(queue)),
            related: None,
            type_: if is_good || is_closed { EventType::Normal } else { EventType::Warning },
            reason,
            action: "Scheduling",
            message: if condition.message.is_empty() {
                format!("{} is {}", condition.type_, condition.status)
            } else {
                condition.message.clone()
            },
        })
    })
}
