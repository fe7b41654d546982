//! Decisions in flight: sent, or about to be, and not yet confirmed by the watch.
//!
//! Kept beside the facts and laid over them by the fold, so that no pod update can erase a decision
//! and no decision can outlive its answer.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube_batch_api::{
    decision::{Decision, PodRef},
    name::{Name, ObjectKey},
    status::TaskStatus,
};
use serde::{Deserialize, Serialize};

use crate::store::Store;

/// What was decided for a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InFlight {
    /// It is being bound to a node.
    Bind {
        /// The node.
        node: Name,
    },
    /// It is being deleted.
    Evict,
}

/// Decisions in flight, by pod uid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assumed {
    by_uid: BTreeMap<Name, Entry>,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    pod: ObjectKey,
    in_flight: InFlight,
    since: Timestamp,
}

impl Assumed {
    /// Notes a decision before it is sent. Promises are not sent and not noted.
    pub fn note(&mut self, decision: &Decision, now: Timestamp) {
        let (pod, in_flight) = match decision {
            Decision::Bind { pod, node } => (pod, InFlight::Bind { node: node.clone() }),
            Decision::Evict { pod, .. } => (pod, InFlight::Evict),
            Decision::Nominate { .. } => return,
        };
        self.insert(pod.clone(), in_flight, now);
    }

    /// Forgets the decision about a pod: it failed, or the pod is gone.
    pub fn forget(&mut self, uid: &Name) {
        self.by_uid.remove(uid);
    }

    /// What is in flight for a pod.
    pub fn get(&self, uid: &Name) -> Option<&InFlight> {
        self.by_uid.get(uid).map(|entry| &entry.in_flight)
    }

    /// Notes what is in flight for a pod, since when.
    pub(crate) fn insert(&mut self, pod: PodRef, in_flight: InFlight, since: Timestamp) {
        self.by_uid.insert(pod.uid, Entry { pod: pod.key, in_flight, since });
    }

    /// Pods in order of their uid, what is in flight for each, and since when.
    pub fn iter(&self) -> impl Iterator<Item = (PodRef, &InFlight, Timestamp)> {
        self.by_uid.iter().map(|(uid, Entry { pod, in_flight, since })| {
            (PodRef { uid: uid.clone(), key: pod.clone() }, in_flight, *since)
        })
    }

    /// Number of decisions in flight.
    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }

    /// Forgets what the facts confirm or have overtaken.
    pub fn settle(&mut self, store: &Store) {
        self.by_uid.retain(|uid, Entry { pod, in_flight, .. }| {
            let known = store.pods.get(pod).filter(|facts| facts.uid == *uid);
            let Some(facts) = known else { return false };
            match in_flight {
                InFlight::Bind { .. } => {
                    facts.node.is_none() && facts.status == TaskStatus::Pending
                }
                InFlight::Evict => matches!(facts.status, TaskStatus::Running | TaskStatus::Bound),
            }
        });
    }

    /// Forgets what has waited longer than `after` for its answer, and returns the uids.
    pub fn expire(&mut self, now: Timestamp, after: SignedDuration) -> Vec<Name> {
        let late = |since: Timestamp| now.duration_since(since) > after;
        let expired: Vec<Name> = self
            .by_uid
            .iter()
            .filter(|(_, entry)| late(entry.since))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in &expired {
            self.by_uid.remove(uid);
        }
        expired
    }
}
