//! Events that wait to be sent.

use std::collections::{BTreeMap, BTreeSet};

use kube_batch_model::name::Name;
use kube_batch_scheduler::writes::Event;

use super::attempts::Attempts;

/// How many events wait at most. They are sent last, and while there are other writes they only take memory: 10 000 of
/// them take 5 MB.
pub(super) const MAX_EVENTS: usize = 10_000;

/// An event to be sent.
#[derive(Clone, Debug)]
pub(crate) struct EventWrite {
    pub(crate) event: Event,
    pub(crate) attempts: Attempts,
}

/// Events by number. If there are too many, the last one of the namespace that has most is dropped, so that a burst in
/// one namespace costs the events of no other.
#[derive(Debug, Default)]
pub(super) struct WaitingEvents {
    events: BTreeMap<u64, Box<EventWrite>>,
    of_namespaces: BTreeMap<Name, BTreeSet<u64>>,
    next: u64,
}

impl WaitingEvents {
    /// Adds an event, and returns its number, unless there is no room; and whether an event was dropped.
    pub(super) fn push(&mut self, write: Box<EventWrite>) -> (Option<u64>, bool) {
        let is_full = self.events.len() >= MAX_EVENTS;
        if is_full && !self.make_room(&write.event.regarding.namespace()) {
            return (None, true);
        }
        (Some(self.put_back(write)), is_full)
    }

    /// Adds an event that was taken before, and returns its new number.
    pub(super) fn put_back(&mut self, write: Box<EventWrite>) -> u64 {
        let number = self.next;
        self.next += 1;
        let namespace = write.event.regarding.namespace();
        self.of_namespaces.entry(namespace).or_default().insert(number);
        self.events.insert(number, write);
        number
    }

    pub(super) fn take(&mut self, number: u64) -> Option<Box<EventWrite>> {
        let write = self.events.remove(&number)?;
        let namespace = write.event.regarding.namespace();
        if let Some(own) = self.of_namespaces.get_mut(&namespace) {
            own.remove(&number);
            if own.is_empty() {
                self.of_namespaces.remove(&namespace);
            }
        }
        Some(write)
    }

    /// Drops an event of a namespace that has more than this one. Returns whether there is one.
    fn make_room(&mut self, namespace: &Name) -> bool {
        let n_own = self.of_namespaces.get(namespace).map_or(0, BTreeSet::len);
        let largest = self.of_namespaces.values().max_by_key(|own| own.len());
        let last = largest.filter(|own| own.len() > n_own + 1).and_then(BTreeSet::last).copied();
        last.is_some_and(|last| self.take(last).is_some())
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn clear(&mut self) {
        self.events.clear();
        self.of_namespaces.clear();
    }
}
