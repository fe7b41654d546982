//! What is to be written: decisions, claims of decisions, statuses and events, each in a lane of its
//! own, and what happens later.
//!
//! There is at most one decision for each pod: a newer one replaces an older one that is not being sent.
//! Status writes of one object are coalesced: the latest replaces one that waits, and none is sent
//! while an earlier one is in flight, as its answer may make the next one needless. An event about
//! a status is kept with it, so it is sent only if the status is written.
//!
//! There are no calls and no clock in here: every time is an argument.

use std::{collections::BTreeMap, fmt, sync::Arc};

use kube_batch_cache::assumed::DecisionId;
use kube_batch_model::{
    decision::{Decision, PodRef},
    group_version::GroupVersion,
    name::{Name, ObjectKey},
};
use kube_batch_scheduler::writes::Event;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    attempts::Attempts,
    lane::{Lane, Limits, Sign, Ticket},
    waiting_events::{EventWrite, WaitingEvents},
};
use crate::run::hops::PodHops;

/// An object with a status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    Pod(PodRef),
    Group(GroupVersion, ObjectKey),
    Queue(GroupVersion, Name),
}

impl Target {
    fn namespace(&self) -> Name {
        match self {
            Self::Pod(pod) => pod.key.namespace.clone(),
            Self::Group(_, key) => key.namespace.clone(),
            Self::Queue(..) => Name::default(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(pod) => write!(f, "Pod {}", pod.key),
            Self::Group(_, key) => write!(f, "PodGroup {key}"),
            Self::Queue(_, name) => write!(f, "Queue {name}"),
        }
    }
}

/// A class of writes, which has workers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum WriteClass {
    /// Bindings and evictions.
    Decision,
    /// Volumes and claims of bindings, for storage and for devices.
    Volume,
    Status,
    Event,
}

impl WriteClass {
    pub(crate) const ALL: [Self; 4] = [Self::Decision, Self::Volume, Self::Status, Self::Event];

    /// How many writes of the class are in flight at most, if `n` decisions are.
    pub(crate) const fn limit(self, n: usize) -> usize {
        let share = match self {
            Self::Decision => n,
            Self::Status => n / 2,
            Self::Volume | Self::Event => n / 4,
        };
        if share == 0 { 1 } else { share }
    }
}

/// What a decision does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteStep {
    /// Gets the volume of its claim with this number, or names the node for its provisioner.
    Claim(usize),
    /// Waits until its claims are bound.
    WaitForClaims,
    /// Writes the devices of its claim for devices with this number, and that the pod uses it.
    Devices(usize),
    /// Waits until its devices are ready to be used.
    WaitForDevices,
    Bind,
    /// Takes back what was written to a claim for devices, before the decision counts as rejected.
    Release(Release),
    /// Takes the devices from a claim of a waiting pod, or deletes the claim.
    Deallocate,
    /// Writes why the victim is evicted.
    Mark,
    Delete,
    /// Reads what became of the pod, because an answer was lost or said something else; with the error
    /// of a write that may not have been done.
    Read(Option<String>),
    /// Reads the pod because the watch does not show a decision that was answered.
    Confirm,
}

/// A step on the way back, after a binding failed whose claims for devices were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    /// The number of the claim.
    pub(crate) claim: usize,
    /// The number after that of the last claim.
    pub(crate) end: usize,
    pub(crate) undo: Undo,
    /// Why the binding failed.
    pub(crate) why: String,
}

/// What is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// That the pod uses the claim: the claim keeps its devices, and the pod is tried with them again.
    Reservation,
    /// The devices too, where they are not ready and no other pod uses them.
    Devices,
}

impl Release {
    /// The step for the next claim, or why the binding failed if there is none.
    pub(crate) fn next(self) -> Result<WriteStep, String> {
        let claim = self.claim + 1;
        if claim < self.end {
            Ok(WriteStep::Release(Self { claim, ..self }))
        } else {
            Err(self.why)
        }
    }
}

/// A decision that is being sent: its next step, and the attempts at that so far.
#[derive(Clone, Debug)]
pub(crate) struct DecisionWrite {
    pub(crate) id: DecisionId,
    pub(crate) decision: Arc<Decision>,
    pub(crate) step: WriteStep,
    pub(crate) attempts: Attempts,
    /// How the pod got here, if that is measured: a binding without claims of a pod that has just arrived.
    pub(crate) hops: Option<PodHops>,
}

impl DecisionWrite {
    /// `None` if the decision is not a write of its own.
    fn new(id: DecisionId, decision: Arc<Decision>, hops: Option<PodHops>) -> Option<Self> {
        let step = match &*decision {
            Decision::Bind { claims, .. } if !claims.is_empty() => WriteStep::Claim(0),
            Decision::Bind { .. } => Self::after_claims(&decision),
            Decision::Evict { .. } => WriteStep::Mark,
            Decision::Deallocate { .. } => WriteStep::Deallocate,
            Decision::Nominate { .. } | Decision::Withdraw { .. } => return None,
        };
        let hops = hops.filter(|_| step == WriteStep::Bind);
        Some(Self { id, decision, step, attempts: Attempts::default(), hops })
    }

    /// The step of a binding whose claims for volumes are bound.
    pub(crate) fn after_claims(decision: &Decision) -> WriteStep {
        match decision {
            Decision::Bind { devices, .. } if !devices.is_empty() => WriteStep::Devices(0),
            Decision::Bind { .. }
            | Decision::Evict { .. }
            | Decision::Nominate { .. }
            | Decision::Withdraw { .. }
            | Decision::Deallocate { .. } => WriteStep::Bind,
        }
    }

    /// The number of claims for devices that may be reserved for the pod: those before the step, and the one
    /// that it is about if an answer was lost.
    pub(crate) fn n_reserved(&self) -> usize {
        let Decision::Bind { devices, .. } = &*self.decision else { return 0 };
        match self.step {
            WriteStep::Devices(n) => n + usize::from(self.attempts.has_failed()),
            WriteStep::WaitForDevices | WriteStep::Bind | WriteStep::Read(_) => devices.len(),
            WriteStep::Claim(_)
            | WriteStep::WaitForClaims
            | WriteStep::Release(_)
            | WriteStep::Deallocate
            | WriteStep::Mark
            | WriteStep::Delete
            | WriteStep::Confirm => 0,
        }
    }

    pub(crate) fn pod(&self) -> &PodRef {
        self.decision.pod()
    }

    const fn class(&self) -> WriteClass {
        match self.step {
            WriteStep::Claim(_)
            | WriteStep::WaitForClaims
            | WriteStep::Devices(_)
            | WriteStep::WaitForDevices
            | WriteStep::Release(_)
            | WriteStep::Deallocate => WriteClass::Volume,
            WriteStep::Bind
            | WriteStep::Mark
            | WriteStep::Delete
            | WriteStep::Read(_)
            | WriteStep::Confirm => WriteClass::Decision,
        }
    }
}

/// A status to be written.
#[derive(Clone, Debug)]
pub(crate) struct StatusPatch {
    /// The patch, as JSON.
    pub(crate) patch: Value,
    /// The events to send once it is written.
    pub(crate) events: Vec<Event>,
    pub(crate) attempts: Attempts,
}

/// What waits in a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Key {
    /// The decision about the pod with this uid.
    Pod(Name),
    Status(Target),
    /// An event, by number.
    Event(u64),
}

/// A write that was taken.
#[derive(Clone, Debug)]
pub(crate) enum Taken {
    Decision(Box<DecisionWrite>),
    Status(Target, StatusPatch),
    Event(Box<EventWrite>),
}

/// Something that happens later.
#[derive(Clone, Debug)]
pub(crate) enum Timer {
    /// The back-off of a decision ends that the API server rejected.
    BackOffEnds(PodRef, DecisionId),
    /// The watch should have shown a decision by now.
    ShouldBeShown(Box<DecisionWrite>),
    /// A binding should not wait any more, at this step.
    Overdue(Name, DecisionId, WriteStep),
}

/// Whether a cycle wanted to write a status while an earlier write of it was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Nothing,
    Another,
}

/// How many decisions are sent for each event while decisions wait. Guessed: half a percent of what the
/// API server can do.
const PER_EVENT: u32 = 200;

/// Writes that wait, and how many are in flight.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    /// In the order of [`WriteClass::ALL`].
    lanes: [Lane<Key>; 4],
    /// Decisions that are not being sent, by the pod's uid.
    decisions: BTreeMap<Name, DecisionWrite>,
    /// Newer decisions for pods whose decision is being sent.
    sending: BTreeMap<Name, Option<DecisionWrite>>,
    /// Bindings that wait until their claims are bound, or their devices ready.
    parked: BTreeMap<Name, DecisionWrite>,
    status: BTreeMap<Target, StatusPatch>,
    /// Objects with a status write in flight, and whether a cycle wanted to write another.
    writing: BTreeMap<Target, Wanted>,
    waiting_events: WaitingEvents,
    /// Decisions sent since the last event was.
    n_since_event: u32,
    timers: BTreeMap<(Instant, u64), Timer>,
    n_timers: u64,
}

impl WriteQueue {
    /// A queue with this many decisions in flight at most.
    pub(crate) fn new(n_workers: usize) -> Self {
        Self {
            lanes: WriteClass::ALL.map(|class| Lane::new(class.limit(n_workers))),
            decisions: BTreeMap::new(),
            sending: BTreeMap::new(),
            parked: BTreeMap::new(),
            status: BTreeMap::new(),
            writing: BTreeMap::new(),
            waiting_events: WaitingEvents::default(),
            n_since_event: 0,
            timers: BTreeMap::new(),
            n_timers: 0,
        }
    }

    /// Adds a decision, in place of an earlier one for the same pod. One that is being sent is answered
    /// first.
    pub(crate) fn push_decision(
        &mut self,
        id: DecisionId,
        decision: Arc<Decision>,
        hops: Option<PodHops>,
    ) {
        DecisionWrite::new(id, decision, hops).into_iter().for_each(|write| self.push_write(write));
    }

    /// Adds the reading of a pod whose decision the watch does not show.
    pub(crate) fn push_read(&mut self, write: DecisionWrite) {
        self.push_write(DecisionWrite {
            step: WriteStep::Confirm,
            attempts: Attempts::default(),
            ..write
        });
    }

    fn push_write(&mut self, write: DecisionWrite) {
        let uid = write.pod().uid.clone();
        self.parked.remove(&uid);
        if let Some(next) = self.sending.get_mut(&uid) {
            *next = Some(write);
            return;
        }
        let (class, namespace) = (write.class(), write.pod().key.namespace.clone());
        // Where the older one waits the newer one is found; it may wait in another lane too.
        let old = self.decisions.insert(uid.clone(), write);
        if old.is_none_or(|old| old.class() != class) {
            self.lane_mut(class).push(&namespace, Key::Pod(uid));
        }
    }

    const fn lane(&self, class: WriteClass) -> &Lane<Key> {
        &self.lanes[class as usize]
    }

    const fn lane_mut(&mut self, class: WriteClass) -> &mut Lane<Key> {
        &mut self.lanes[class as usize]
    }

    /// Whether decisions wait for a worker, or for answers to others of their namespace.
    pub(crate) fn has_pending_decisions(&self) -> bool {
        let lane = self.lane(WriteClass::Decision);
        lane.has_ready(&Limits::default()) || !lane.full().is_empty()
    }

    /// Adds a status write, in place of one that waits.
    pub(crate) fn push_status(&mut self, target: Target, patch: Value, events: Vec<Event>) {
        let write = StatusPatch { patch, events, attempts: Attempts::default() };
        if self.status.insert(target.clone(), write).is_none() {
            self.lane_mut(WriteClass::Status).push(&target.namespace(), Key::Status(target));
        }
    }

    /// Adds an event; returns whether there was room for it and all others.
    pub(crate) fn push_event(&mut self, event: Event) -> bool {
        let namespace = event.regarding.namespace();
        let write = EventWrite { event, attempts: Attempts::default() };
        let (number, is_dropped) = self.waiting_events.push(Box::new(write));
        if let Some(number) = number {
            self.lane_mut(WriteClass::Event).push(&namespace, Key::Event(number));
        }
        !is_dropped
    }

    /// Whether a status write of the object is in flight. If so, [`Self::answered`] will say that
    /// another was wanted.
    pub(crate) fn defer_if_writing(&mut self, target: &Target) -> bool {
        let Some(wanted) = self.writing.get_mut(target) else { return false };
        *wanted = Wanted::Another;
        true
    }

    /// Takes the next write of a class, which is in flight until [`Self::finish`].
    pub(crate) fn pop(&mut self, class: WriteClass, now: Instant) -> Option<(Ticket, Taken)> {
        self.lane_mut(class).advance(now);
        let limits = self.limits(class);
        loop {
            let (ticket, key) = self.lane_mut(class).pop(&limits, now)?;
            match self.take(class, key) {
                Some(taken) => {
                    match class {
                        WriteClass::Decision => {
                            self.n_since_event = (self.n_since_event + 1).min(PER_EVENT);
                        }
                        WriteClass::Event => self.n_since_event = 0,
                        WriteClass::Volume | WriteClass::Status => {}
                    }
                    return Some((ticket, taken));
                }
                // It was replaced by one that waits elsewhere.
                None => self.finish(class, &ticket, Sign::None, now),
            }
        }
    }

    /// While decisions wait, the API server is left to them, but for one status at a time, and one event
    /// for [`PER_EVENT`] decisions; while statuses wait, one event is sent at a time.
    fn limits(&self, class: WriteClass) -> Limits {
        let mut limits = Limits::default();
        match class {
            WriteClass::Decision | WriteClass::Volume => {}
            WriteClass::Status => {
                limits.yield_to(self.lane(WriteClass::Decision), &Limits::default(), 1);
            }
            WriteClass::Event => {
                let beside_decisions = usize::from(self.n_since_event >= PER_EVENT);
                let of_statuses = self.limits(WriteClass::Status);
                limits.yield_to(self.lane(WriteClass::Status), &of_statuses, 1);
                limits.yield_to(
                    self.lane(WriteClass::Decision),
                    &Limits::default(),
                    beside_decisions,
                );
            }
        }
        limits
    }

    /// Whether [`Self::pop`] would return a write of the class.
    pub(crate) fn may_pop(&self, class: WriteClass) -> bool {
        self.lane(class).may_pop(&self.limits(class))
    }

    fn take(&mut self, class: WriteClass, key: Key) -> Option<Taken> {
        match key {
            Key::Pod(uid) => {
                let write = self.decisions.remove(&uid)?;
                if write.class() != class {
                    self.decisions.insert(uid, write);
                    return None;
                }
                self.sending.insert(uid, None);
                Some(Taken::Decision(Box::new(write)))
            }
            Key::Status(target) => {
                let write = self.status.remove(&target)?;
                self.writing.insert(target.clone(), Wanted::Nothing);
                Some(Taken::Status(target, write))
            }
            Key::Event(number) => self.waiting_events.take(number).map(Taken::Event),
        }
    }

    /// Records that a write that was taken was attempted.
    pub(crate) fn finish(&mut self, class: WriteClass, ticket: &Ticket, sign: Sign, now: Instant) {
        self.lane_mut(class).finish(ticket, sign, now);
    }

    /// Records that a decision is no longer being sent; returns whether it is still the latest one. Then
    /// the caller continues it. If not, the newer one is sent next.
    pub(crate) fn sent(&mut self, pod: &PodRef) -> bool {
        match self.sending.remove(&pod.uid).flatten() {
            Some(newer) => {
                self.push_write(newer);
                false
            }
            None => true,
        }
    }

    /// Continues a decision with its next step; returns whether it waits.
    pub(crate) fn go_on(&mut self, write: DecisionWrite) -> bool {
        let uid = write.pod().uid.clone();
        let waits = matches!(write.step, WriteStep::WaitForClaims | WriteStep::WaitForDevices);
        if waits {
            self.parked.insert(uid, write);
        } else {
            self.push_write(write);
        }
        waits
    }

    /// Tries a step of a decision again later.
    pub(crate) fn retry_decision(&mut self, ticket: Ticket, write: DecisionWrite, due: Instant) {
        let (class, uid) = (write.class(), write.pod().uid.clone());
        self.decisions.insert(uid.clone(), write);
        self.lane_mut(class).retry(ticket, Key::Pod(uid), due);
    }

    /// Tries a status write again later, unless there is a newer one.
    pub(crate) fn retry_status(
        &mut self,
        ticket: Ticket,
        target: Target,
        write: StatusPatch,
        due: Instant,
    ) {
        if !self.status.contains_key(&target) {
            self.status.insert(target.clone(), write);
            self.lane_mut(WriteClass::Status).retry(ticket, Key::Status(target), due);
        }
    }

    /// Tries to send an event again later.
    pub(crate) fn retry_event(&mut self, ticket: Ticket, write: Box<EventWrite>, due: Instant) {
        let number = self.waiting_events.put_back(write);
        self.lane_mut(WriteClass::Event).retry(ticket, Key::Event(number), due);
    }

    /// Takes the binding of a pod that waits.
    pub(crate) fn unpark(&mut self, uid: &Name) -> Option<DecisionWrite> {
        self.parked.remove(uid)
    }

    /// Takes a binding if it waits at this step.
    pub(crate) fn unpark_at(
        &mut self,
        uid: &Name,
        id: DecisionId,
        step: &WriteStep,
    ) -> Option<DecisionWrite> {
        let is_it = |write: &DecisionWrite| write.id == id && write.step == *step;
        self.parked.get(uid).is_some_and(is_it).then(|| self.parked.remove(uid)).flatten()
    }

    /// Records that a status write was answered; returns whether another was wanted meanwhile.
    pub(crate) fn answered(&mut self, target: &Target) -> bool {
        self.writing.remove(target) == Some(Wanted::Another)
    }

    /// Adds a timer; returns whether it is now the first one.
    pub(crate) fn set_timer(&mut self, due: Instant, timer: Timer) -> bool {
        let is_first = self.next_timer().is_none_or(|first| due < first);
        self.timers.insert((due, self.n_timers), timer);
        self.n_timers += 1;
        is_first
    }

    /// Takes something that is to happen now.
    pub(crate) fn expired_timer(&mut self, now: Instant) -> Option<Timer> {
        let first = self.timers.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// When something is to happen next.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((due, _), _)| *due)
    }

    /// When a write of a class may become ready that is not now.
    pub(crate) fn next_due(&self, class: WriteClass) -> Option<Instant> {
        self.lane(class).next_due()
    }

    /// Number of writes that wait.
    pub(crate) fn len(&self) -> usize {
        // The lane of events has keys of some that were dropped.
        let others = WriteClass::ALL.into_iter().filter(|class| *class != WriteClass::Event);
        others.map(|class| self.lane(class).len()).sum::<usize>() + self.waiting_events.len()
    }

    /// Number of writes that were taken and are not finished, and of bindings that wait for their claims.
    pub(crate) fn n_in_flight(&self) -> usize {
        self.lanes.iter().map(Lane::n_in_flight).sum::<usize>() + self.parked.len()
    }

    /// Number of bindings that wait for their claims.
    pub(crate) fn n_parked(&self) -> usize {
        self.parked.len()
    }

    /// Whether nothing waits and nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.len() == 0 && self.n_in_flight() == 0
    }

    /// Removes everything that was not taken.
    pub(crate) fn clear(&mut self) {
        self.lanes.iter_mut().for_each(Lane::clear);
        self.decisions.clear();
        self.sending.values_mut().for_each(|next| *next = None);
        self.parked.clear();
        self.status.clear();
        self.waiting_events.clear();
        self.timers.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use kube_batch_cache::assumed::Assumed;
    use kube_batch_model::decision::ClaimChoice;
    use kube_batch_scheduler::writes::{EventType, Regarding};
    use serde_json::json;

    use super::{super::waiting_events::MAX_EVENTS, *};

    struct World {
        queue: WriteQueue,
        assumed: Assumed,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            Self::with_workers(4)
        }

        fn with_workers(n: usize) -> Self {
            let (queue, assumed) = (WriteQueue::new(n), Assumed::default());
            Self { queue, assumed, now: Instant::now() }
        }

        /// Decides to bind a pod, with a claim if `claim` is set.
        fn bind(&mut self, name: &str, node: &str, claim: Option<&str>) -> DecisionId {
            let claims = claim.map(|claim| {
                let claim = ObjectKey::new("ns", claim);
                vec![ClaimChoice { claim, volume: None, made_for: None }]
            });
            let claims = claims.unwrap_or_default();
            let bind = Decision::Bind {
                minimum: 1,
                protected_until: None,
                queue: "q".into(),
                pod: pod(name),
                node: node.into(),
                claims,
                devices: Vec::new(),
            };
            self.assumed.note(&bind, Timestamp::UNIX_EPOCH);
            let id = self.assumed.id(&name.into()).expect("it was noted");
            self.queue.push_decision(id, Arc::new(bind), None);
            id
        }

        fn status(&mut self, name: &str, n: u32) {
            self.queue.push_status(target(name), json!(n), vec![event(n)]);
        }

        fn pop(&mut self, class: WriteClass) -> Option<(Ticket, Taken)> {
            self.queue.pop(class, self.now)
        }

        /// Takes a decision, whose step is this.
        fn pop_write(&mut self, class: WriteClass) -> Option<(Ticket, DecisionWrite)> {
            let (ticket, taken) = self.pop(class)?;
            let Taken::Decision(write) = taken else { panic!("{taken:?}") };
            Some((ticket, *write))
        }

        fn finish(&mut self, class: WriteClass, ticket: &Ticket) {
            self.queue.finish(class, ticket, Sign::Alive, self.now);
        }
    }

    fn pod(name: &str) -> PodRef {
        PodRef { uid: name.into(), key: ObjectKey::new("ns", name) }
    }

    fn target(name: &str) -> Target {
        Target::Queue(GroupVersion::V1Alpha2, name.into())
    }

    fn event(n: u32) -> Event {
        event_of(pod("a"), n)
    }

    fn event_of(pod: PodRef, n: u32) -> Event {
        Event {
            regarding: Regarding::Pod(pod),
            related: None,
            type_: EventType::Normal,
            reason: "Reason",
            action: "Acting",
            message: n.to_string(),
        }
    }

    #[test]
    fn while_decisions_wait_there_is_one_status_at_a_time() {
        let mut world = World::with_workers(8);
        for name in ["a", "b", "c"] {
            world.status(name, 1);
        }
        for name in ["1", "2", "3", "4", "5", "6", "7", "8"] {
            world.bind(name, "n", None);
        }
        assert!(world.pop(WriteClass::Status).is_some());
        assert!(
            world.pop(WriteClass::Status).is_none() && !world.queue.may_pop(WriteClass::Status)
        );
        let taken: Vec<_> = std::iter::from_fn(|| world.pop(WriteClass::Decision)).collect();
        assert_eq!(taken.len(), 6, "a namespace never has all workers");
        world.finish(WriteClass::Decision, &taken[0].0);
        world.finish(WriteClass::Decision, &taken[1].0);
        while world.pop(WriteClass::Decision).is_some() {}
        assert!(!world.queue.has_pending_decisions());
        assert!(world.pop(WriteClass::Status).is_some());
    }

    #[test]
    fn while_decisions_of_a_namespace_wait_few_of_its_events_are_sent() {
        let mut world = World::with_workers(32);
        for n in 0..40 {
            world.bind(&n.to_string(), "n", None);
        }
        let taken: Vec<_> = std::iter::from_fn(|| world.pop(WriteClass::Decision)).collect();
        assert_eq!(taken.len(), 24);
        assert!(world.queue.has_pending_decisions());
        let about = |namespace| {
            let pod = PodRef { key: ObjectKey::new(namespace, "a"), ..pod("a") };
            Event { regarding: Regarding::Pod(pod), ..event(0) }
        };
        for namespace in ["ns", "ns", "other", "other", "other"] {
            assert!(world.queue.push_event(about(namespace)));
        }
        let n_events =
            |world: &mut World| std::iter::from_fn(|| world.pop(WriteClass::Event)).count();
        assert_eq!(n_events(&mut world), 3, "of the other namespace");
        let mut taken = taken.into_iter();
        while world.queue.has_pending_decisions() {
            assert!(!world.queue.may_pop(WriteClass::Event));
            world.finish(WriteClass::Decision, &taken.next().expect("in flight").0);
            world.pop(WriteClass::Decision);
        }
        assert_eq!(n_events(&mut world), 2);
    }

    #[test]
    fn while_decisions_wait_one_event_is_sent_for_many_of_them() {
        let mut world = World::new();
        for n in 0..1000 {
            world.bind(&n.to_string(), "n", None);
        }
        (0..10).for_each(|n| assert!(world.queue.push_event(event(n))));
        let mut n_events = 0;
        for _ in 0..3 * PER_EVENT {
            let (ticket, _) = world.pop(WriteClass::Decision).expect("a decision");
            if let Some((event, _)) = world.pop(WriteClass::Event) {
                n_events += 1;
                world.finish(WriteClass::Event, &event);
            }
            world.finish(WriteClass::Decision, &ticket);
        }
        assert_eq!(n_events, 3);
    }

    #[test]
    fn the_latest_status_wins() {
        let mut world = World::new();
        for (name, n) in [("q", 1), ("q", 2), ("r", 3)] {
            world.status(name, n);
        }
        assert_eq!(world.queue.len(), 2);
        let Some((ticket, Taken::Status(taken, write))) = world.pop(WriteClass::Status) else {
            panic!("a status")
        };
        assert_eq!((taken, &write.patch), (target("q"), &json!(2)));
        assert_eq!(write.events.iter().map(|event| &*event.message).collect::<Vec<_>>(), ["2"]);
        assert!(world.pop(WriteClass::Event).is_none(), "the event waits with its status");
        assert!(world.queue.defer_if_writing(&target("q")));
        assert!(!world.queue.defer_if_writing(&target("r")));
        world.finish(WriteClass::Status, &ticket);
        assert!(world.queue.answered(&target("q")), "another was wanted");
        assert!(!world.queue.defer_if_writing(&target("q")));
        // A newer one is not replaced by an older one that is tried again.
        world.status("q", 4);
        let due = world.now + Duration::from_secs(1);
        world.queue.retry_status(ticket, target("q"), write, due);
        assert_eq!(world.queue.next_due(WriteClass::Status), None);
        assert_eq!(world.queue.len(), 2);
    }

    #[test]
    fn a_newer_decision_replaces_one_that_waits() {
        let mut world = World::new();
        world.bind("a", "n", None);
        let second = world.bind("a", "m", None);
        let (ticket, write) = world.pop_write(WriteClass::Decision).expect("a decision");
        assert_eq!(write.id, second);
        assert!(world.pop(WriteClass::Decision).is_none());
        // One that is being sent is answered first.
        let third = world.bind("a", "o", Some("c"));
        assert!(world.pop(WriteClass::Volume).is_none());
        world.finish(WriteClass::Decision, &ticket);
        assert!(!world.queue.sent(&pod("a")), "it is not the latest");
        let (_, write) = world.pop_write(WriteClass::Volume).expect("a decision");
        assert_eq!((write.id, write.step), (third, WriteStep::Claim(0)));
    }

    #[test]
    fn a_newer_decision_replaces_one_that_waits_in_another_lane() {
        let mut world = World::new();
        world.bind("a", "n", Some("c"));
        let second = world.bind("a", "m", None);
        assert!(world.pop(WriteClass::Volume).is_none());
        assert_eq!(world.pop_write(WriteClass::Decision).expect("a decision").1.id, second);
        assert_eq!((world.queue.len(), world.queue.n_in_flight()), (0, 1));
    }

    #[test]
    fn a_binding_waits_for_its_claims_until_they_are_bound_or_a_newer_one_replaces_it() {
        let mut world = World::new();
        let first = world.bind("a", "n", Some("c"));
        let (ticket, write) = world.pop_write(WriteClass::Volume).expect("a decision");
        world.finish(WriteClass::Volume, &ticket);
        assert!(world.queue.sent(&pod("a")));
        world.queue.go_on(DecisionWrite { step: WriteStep::WaitForClaims, ..write });
        assert!(!world.queue.is_idle() && world.queue.n_parked() == 1);
        world.bind("a", "m", None);
        assert_eq!(world.queue.n_parked(), 0);
        assert!(world.queue.unpark_at(&"a".into(), first, &WriteStep::WaitForClaims).is_none());
    }

    #[test]
    fn events_without_room_are_dropped() {
        let mut world = World::new();
        for n in 0..MAX_EVENTS {
            assert!(world.queue.push_event(event(n as u32)));
        }
        assert!(!world.queue.push_event(event(0)));
        assert_eq!(world.queue.len(), MAX_EVENTS);
        world.pop(WriteClass::Event);
        assert!(world.queue.push_event(event(0)));
    }

    #[test]
    fn the_events_of_a_namespace_drop_none_of_another() {
        let mut world = World::new();
        let of = |namespace: &str| PodRef { key: ObjectKey::new(namespace, "p"), ..pod("p") };
        for n in 0..3 * MAX_EVENTS {
            world.queue.push_event(event_of(of("burst"), n as u32));
        }
        for n in 0..100 {
            assert!(
                !world.queue.push_event(event_of(of("other"), n)),
                "one of the burst is dropped"
            );
        }
        assert_eq!(world.queue.len(), MAX_EVENTS);
        let mut sent = BTreeMap::<String, Vec<u32>>::new();
        while let Some((ticket, Taken::Event(write))) = world.pop(WriteClass::Event) {
            let namespace = write.event.regarding.namespace().to_string();
            sent.entry(namespace).or_default().push(write.event.message.parse().expect("a number"));
            world.finish(WriteClass::Event, &ticket);
        }
        assert_eq!(sent["other"], (0..100).collect::<Vec<_>>());
        // The first of the burst are sent: they say how it began.
        assert_eq!(sent["burst"], (0..MAX_EVENTS as u32 - 100).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_in_flight_stays_when_the_queue_is_cleared() {
        let mut world = World::new();
        world.status("q", 1);
        let (ticket, _) = world.pop(WriteClass::Status).expect("a status");
        let id = world.bind("a", "n", None);
        world.queue.set_timer(world.now, Timer::Overdue("a".into(), id, WriteStep::WaitForClaims));
        world.queue.clear();
        assert_eq!(world.queue.len(), 0);
        assert_eq!(world.queue.next_timer(), None);
        assert!(world.queue.defer_if_writing(&target("q")));
        assert!(!world.queue.is_idle());
        world.finish(WriteClass::Status, &ticket);
        assert!(world.queue.is_idle());
    }

    #[test]
    fn timers_expire_in_the_order_of_their_times() {
        let mut world = World::new();
        let (a, b) = (world.bind("a", "n", None), world.bind("b", "n", None));
        let at = |millis| world.now + Duration::from_millis(millis);
        world.queue.set_timer(at(20), Timer::BackOffEnds(pod("a"), a));
        world.queue.set_timer(at(10), Timer::BackOffEnds(pod("b"), b));
        assert_eq!(world.queue.next_timer(), Some(at(10)));
        assert!(world.queue.expired_timer(at(9)).is_none());
        let mut expired = || match world.queue.expired_timer(at(20)) {
            Some(Timer::BackOffEnds(pod, _)) => pod.uid.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!([expired(), expired()], ["b", "a"]);
    }
}
