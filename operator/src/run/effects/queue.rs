//! Which write goes next: bindings and evictions, then status, then events.
//!
//! Status writes of one object are coalesced, the latest wins; and none of it is sent while an
//! earlier one is not answered, as the answer may make it needless. The event that tells of a status
//! goes with it: what is written once is told once.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

use jiff::Timestamp;
use kube_batch_api::{
    crd::ApiVersion,
    decision::{ClaimChoice, EvictReason, PodRef},
    name::{JobKey, Name, ObjectKey},
};
use serde_json::Value;

use super::events::PendingEvent;

/// A decision to be carried out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DecisionWrite {
    /// Bind a pod to a node.
    Bind {
        pod: PodRef,
        node: Name,
        /// What its claims get first.
        claims: Vec<ClaimChoice>,
        /// When the pod was created.
        created: Timestamp,
    },
    /// Delete a victim.
    Evict { pod: PodRef, reason: EvictReason, by: JobKey },
}

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
    /// What is told of it when it is written.
    pub(crate) event: Option<Box<PendingEvent>>,
}

/// Something to be written.
#[derive(Clone, Debug)]
pub(crate) enum PendingWrite {
    Decision(DecisionWrite),
    Status(Target, StatusWrite),
    Event(Box<PendingEvent>),
}

impl PendingWrite {
    /// The pod that a decision is about.
    pub(crate) const fn decided_pod(&self) -> Option<&PodRef> {
        match self {
            Self::Decision(DecisionWrite::Bind { pod, .. } | DecisionWrite::Evict { pod, .. }) => {
                Some(pod)
            }
            Self::Status(..) | Self::Event(_) => None,
        }
    }

    /// Whether it is a binding whose claims are to be bound before it.
    pub(crate) const fn waits_for_volumes(&self) -> bool {
        matches!(self, Self::Decision(DecisionWrite::Bind { claims, .. }) if !claims.is_empty())
    }
}

/// Writes that wait.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    decisions: VecDeque<DecisionWrite>,
    status_order: VecDeque<Target>,
    status: BTreeMap<Target, StatusWrite>,
    /// Objects with a status write that is sent and not answered, and whether somebody asked since.
    busy: BTreeMap<Target, bool>,
    events: VecDeque<Box<PendingEvent>>,
    /// Number of items that were taken and are not finished.
    n_in_flight: usize,
}

impl WriteQueue {
    pub(crate) fn push_decision(&mut self, decision: DecisionWrite) {
        self.decisions.push_back(decision);
    }

    pub(crate) fn has_pending_decisions(&self) -> bool {
        !self.decisions.is_empty()
    }

    /// Notes a status write, in place of one that waits; says whether there is one more write now.
    pub(crate) fn push_status(&mut self, target: Target, write: StatusWrite) -> bool {
        if self.status.insert(target.clone(), write).is_some() {
            return false;
        }
        self.status_order.push_back(target);
        true
    }

    pub(crate) fn push_event(&mut self, event: PendingEvent) {
        self.events.push_back(Box::new(event));
    }

    /// Whether a status write of the object is sent and not answered; that somebody asked is noted.
    pub(crate) fn is_busy(&mut self, target: &Target) -> bool {
        let Some(asked) = self.busy.get_mut(target) else { return false };
        *asked = true;
        true
    }

    /// Takes the next write, which is in flight until [`Self::finish`]; a status is to be given back
    /// with [`Self::answered`] before that.
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
            self.busy.insert(target.clone(), false);
            return Some(PendingWrite::Status(target, write));
        }
        self.events.pop_front().map(PendingWrite::Event)
    }

    /// An write that was taken is finished, or was abandoned.
    pub(crate) const fn finish(&mut self) {
        self.n_in_flight -= 1;
    }

    /// A status write was answered; says whether somebody asked for it meanwhile.
    pub(crate) fn answered(&mut self, target: &Target) -> bool {
        self.busy.remove(target).unwrap_or_default()
    }

    /// Number of items that wait.
    pub(crate) fn len(&self) -> usize {
        self.decisions.len() + self.status.len() + self.events.len()
    }

    /// Number of items that were taken and are not finished.
    pub(crate) const fn n_in_flight(&self) -> usize {
        self.n_in_flight
    }

    /// Whether nothing waits and nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.len() == 0 && self.n_in_flight == 0
    }

    /// Forgets everything that was not taken.
    pub(crate) fn clear(&mut self) {
        let busy = std::mem::take(&mut self.busy);
        *self = Self { busy, n_in_flight: self.n_in_flight, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;
    use serde_json::json;

    use super::*;

    fn target(name: &str) -> Target {
        Target::Queue(ApiVersion::V1Alpha2, name.into())
    }

    fn write(n: u32) -> StatusWrite {
        let event =
            PendingEvent::normal(ObjectReference::default(), "Reason", "Acting", n.to_string());
        StatusWrite { patch: json!(n), event: Some(Box::new(event)) }
    }

    fn bind(name: &str) -> DecisionWrite {
        let pod = PodRef { uid: name.into(), key: ObjectKey::new("ns", name) };
        DecisionWrite::Bind {
            pod,
            node: "n".into(),
            claims: vec![],
            created: Timestamp::UNIX_EPOCH,
        }
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
    fn the_latest_status_wins() {
        let mut queue = WriteQueue::default();
        assert!(queue.push_status(target("q"), write(1)));
        assert!(!queue.push_status(target("q"), write(2)));
        assert!(queue.push_status(target("r"), write(3)));
        assert_eq!(queue.len(), 2);
        let Some(PendingWrite::Status(taken, write)) = queue.pop() else { panic!("a status") };
        assert_eq!((taken, write.patch), (target("q"), json!(2)));
        assert!(queue.events.is_empty(), "nothing is told of what was not written");
        assert_eq!(write.event.map(|event| event.text), Some("2".to_owned()));
        assert!(queue.is_busy(&target("q")));
        assert!(!queue.is_busy(&target("r")));
        assert!(queue.answered(&target("q")), "somebody asked");
        assert!(!queue.is_busy(&target("q")));
    }

    #[test]
    fn what_was_taken_stays_busy_when_the_rest_is_forgotten() {
        let mut queue = WriteQueue::default();
        queue.push_status(target("q"), write(1));
        queue.pop();
        queue.push_decision(bind("a"));
        queue.clear();
        assert_eq!(queue.len(), 0);
        assert!(queue.is_busy(&target("q")));
        assert!(!queue.is_idle());
        queue.finish();
        assert!(queue.is_idle());
    }
}
