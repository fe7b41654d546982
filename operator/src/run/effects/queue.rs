//! Which write is sent next: bindings and evictions, then statuses, then events.
//!
//! Status writes of one object are coalesced: the latest replaces one that waits, and none is sent
//! while an earlier one is in flight, as its answer may make the next one needless. An event about
//! a status is kept with it, so it is sent only if the status is written.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

use kube_batch_api::{
    crd::ApiVersion,
    decision::PodRef,
    name::{Name, ObjectKey},
};
use kube_batch_scheduler::writes::{DecisionWrite, Event};
use serde_json::Value;

/// An object with a status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    Pod(PodRef),
    Group(ApiVersion, ObjectKey),
    Queue(ApiVersion, Name),
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

/// A status to be written.
#[derive(Clone, Debug)]
pub(crate) struct StatusWrite {
    /// The patch, as JSON.
    pub(crate) patch: Value,
    /// The events to send once it is written.
    pub(crate) events: Vec<Event>,
}

/// A write that waits to be sent.
#[derive(Clone, Debug)]
pub(crate) enum PendingWrite {
    Decision(DecisionWrite),
    Status(Target, StatusWrite),
    Event(Box<Event>),
}

/// What has failed if a decision is not sent, as its event names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    Binding,
    Eviction,
}

impl Failed {
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Binding => "FailedScheduling",
            Self::Eviction => "FailedEviction",
        }
    }

    pub(crate) const fn action(self) -> &'static str {
        match self {
            Self::Binding => "Scheduling",
            Self::Eviction => "Evicting",
        }
    }
}

impl PendingWrite {
    /// The pod of a decision, and what has failed if it is not sent.
    pub(crate) const fn decided_pod(&self) -> Option<(&PodRef, Failed)> {
        match self {
            Self::Decision(DecisionWrite::Bind { pod, .. }) => Some((pod, Failed::Binding)),
            Self::Decision(DecisionWrite::Evict { pod, .. }) => Some((pod, Failed::Eviction)),
            Self::Status(..) | Self::Event(_) => None,
        }
    }

    /// Whether claims are to be bound before the pod is.
    pub(crate) const fn waits_for_volumes(&self) -> bool {
        matches!(self, Self::Decision(DecisionWrite::Bind { claims, .. }) if !claims.is_empty())
    }
}

/// Whether a cycle wanted to write a status while an earlier write of it was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Nothing,
    Another,
}

/// How many events wait at most. They are sent last, and while there are other writes they only take
/// memory: 10 000 of them take 5 MB.
const MAX_EVENTS: usize = 10_000;

/// Writes that wait, and how many are in flight.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    decisions: VecDeque<DecisionWrite>,
    status_order: VecDeque<Target>,
    status: BTreeMap<Target, StatusWrite>,
    /// Objects with a status write in flight, and whether a cycle wanted to write another.
    writing: BTreeMap<Target, Wanted>,
    events: VecDeque<Box<Event>>,
    /// Number of writes that were taken and are not finished.
    n_in_flight: usize,
}

impl WriteQueue {
    pub(crate) fn push_decision(&mut self, decision: DecisionWrite) {
        self.decisions.push_back(decision);
    }

    pub(crate) fn has_pending_decisions(&self) -> bool {
        !self.decisions.is_empty()
    }

    /// Adds a status write, in place of one that waits; returns whether there is one more now.
    pub(crate) fn push_status(&mut self, target: Target, write: StatusWrite) -> bool {
        if self.status.insert(target.clone(), write).is_some() {
            return false;
        }
        self.status_order.push_back(target);
        true
    }

    /// Adds an event; returns whether there was room for it.
    pub(crate) fn push_event(&mut self, event: Event) -> bool {
        let has_room = self.events.len() < MAX_EVENTS;
        if has_room {
            self.events.push_back(Box::new(event));
        }
        has_room
    }

    /// Whether a status write of the object is in flight. If so, [`Self::answered`] will say that
    /// another was wanted.
    pub(crate) fn defer_if_writing(&mut self, target: &Target) -> bool {
        let Some(wanted) = self.writing.get_mut(target) else { return false };
        *wanted = Wanted::Another;
        true
    }

    /// Takes the next write, which is in flight until [`Self::finish`]. For a status write
    /// [`Self::answered`] is called before that.
    pub(crate) fn pop(&mut self) -> Option<PendingWrite> {
        let write = self.next()?;
        self.n_in_flight += 1;
        Some(write)
    }

    fn next(&mut self) -> Option<PendingWrite> {
        if let Some(decision) = self.decisions.pop_front() {
            return Some(PendingWrite::Decision(decision));
        }
        if let Some(target) = self.status_order.pop_front() {
            let write = self.status.remove(&target).expect("what is in the order is there");
            self.writing.insert(target.clone(), Wanted::Nothing);
            return Some(PendingWrite::Status(target, write));
        }
        self.events.pop_front().map(PendingWrite::Event)
    }

    /// Records that a write that was taken is answered or abandoned.
    pub(crate) const fn finish(&mut self) {
        self.n_in_flight -= 1;
    }

    /// Records that a status write was answered; returns whether another was wanted meanwhile.
    pub(crate) fn answered(&mut self, target: &Target) -> bool {
        self.writing.remove(target) == Some(Wanted::Another)
    }

    /// Number of writes that wait.
    pub(crate) fn len(&self) -> usize {
        self.decisions.len() + self.status.len() + self.events.len()
    }

    /// Number of writes that were taken and are not finished.
    pub(crate) const fn n_in_flight(&self) -> usize {
        self.n_in_flight
    }

    /// Whether nothing waits and nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.len() == 0 && self.n_in_flight == 0
    }

    /// Removes everything that was not taken.
    pub(crate) fn clear(&mut self) {
        let writing = std::mem::take(&mut self.writing);
        *self = Self { writing, n_in_flight: self.n_in_flight, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use kube_batch_api::decision::Decision;
    use kube_batch_cache::store::Store;
    use kube_batch_scheduler::writes::{EventType, Regarding, decision_writes};
    use serde_json::json;

    use super::*;

    fn target(name: &str) -> Target {
        Target::Queue(ApiVersion::V1Alpha2, name.into())
    }

    fn write(n: u32) -> StatusWrite {
        let pod = PodRef { uid: "a".into(), key: ObjectKey::new("ns", "a") };
        let event = Event {
            regarding: Regarding::Pod(pod),
            type_: EventType::Normal,
            reason: "Reason",
            action: "Acting",
            message: n.to_string(),
        };
        StatusWrite { patch: json!(n), events: vec![event] }
    }

    fn bind(name: &str) -> DecisionWrite {
        let pod = PodRef { uid: name.into(), key: ObjectKey::new("ns", name) };
        let bind = Decision::Bind { pod, node: "n".into(), claims: vec![] };
        decision_writes(&[bind], &Store::default()).remove(0)
    }

    #[test]
    fn bindings_go_first() {
        let mut queue = WriteQueue::default();
        queue.push_status(target("q"), write(1));
        queue.push_decision(bind("a"));
        assert!(matches!(queue.pop(), Some(PendingWrite::Decision(_))));
        assert!(matches!(queue.pop(), Some(PendingWrite::Status(..))));
        assert!(queue.pop().is_none());
    }

    #[test]
    fn events_without_room_are_dropped() {
        let mut queue = WriteQueue::default();
        let event = || write(1).events.remove(0);
        for _ in 0..MAX_EVENTS {
            assert!(queue.push_event(event()));
        }
        assert!(!queue.push_event(event()));
        assert_eq!(queue.len(), MAX_EVENTS);
        queue.pop();
        assert!(queue.push_event(event()));
    }

    #[test]
    fn the_latest_status_wins() {
        let mut queue = WriteQueue::default();
        assert!(queue.push_status(target("q"), write(1)));
        assert!(!queue.push_status(target("q"), write(2)));
        assert!(queue.push_status(target("r"), write(3)));
        assert_eq!(queue.len(), 2);
        let Some(PendingWrite::Status(taken, write)) = queue.pop() else { panic!("a status") };
        assert_eq!((taken, write.patch), (target("q"), json!(2)));
        assert!(queue.events.is_empty(), "the event waits with its status");
        assert_eq!(write.events.into_iter().map(|event| event.message).collect::<Vec<_>>(), ["2"]);
        assert!(queue.defer_if_writing(&target("q")));
        assert!(!queue.defer_if_writing(&target("r")));
        assert!(queue.answered(&target("q")), "another was wanted");
        assert!(!queue.defer_if_writing(&target("q")));
    }

    #[test]
    fn a_write_in_flight_stays_when_the_queue_is_cleared() {
        let mut queue = WriteQueue::default();
        queue.push_status(target("q"), write(1));
        queue.pop();
        queue.push_decision(bind("a"));
        queue.clear();
        assert_eq!(queue.len(), 0);
        assert!(queue.defer_if_writing(&target("q")));
        assert!(!queue.is_idle());
        queue.finish();
        assert!(queue.is_idle());
    }
}
