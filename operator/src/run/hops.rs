//! The way of a pod from the watch to its binding, hop by hop.
//!
//! Measured of the pods that are bound by the first cycle that sees them: others wait for room, which is no matter of
//! speed.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube_batch_model::name::Name;
use tokio::time::Instant;

/// When a cycle reached each of its points, and what arrived before it.
#[derive(Debug)]
pub(crate) struct CycleHops {
    /// When each pod was stored that no cycle had seen before.
    pub(crate) arrived: HashMap<Name, Instant>,
    pub(crate) began: Instant,
    /// When the snapshot was complete.
    pub(crate) snapshot: Instant,
    pub(crate) decided: Instant,
}

/// When a pod was stored, and the cycle that binds it.
#[derive(Clone, Debug)]
pub(crate) struct PodHops {
    pub(crate) stored: Instant,
    cycle: Arc<CycleHops>,
}

impl PodHops {
    /// `None` if an earlier cycle has seen the pod.
    pub(crate) fn new(cycle: &Arc<CycleHops>, uid: &Name) -> Option<Self> {
        let stored = *cycle.arrived.get(uid)?;
        Some(Self { stored, cycle: Arc::clone(cycle) })
    }

    /// How long each hop took, if the binding is sent now.
    pub(crate) fn durations(&self, now: Instant) -> [(&'static str, Duration); 4] {
        let CycleHops { began, snapshot, decided, .. } = *self.cycle;
        [
            // From its facts being stored until a cycle begins.
            ("wait", began.saturating_duration_since(self.stored)),
            ("snapshot", snapshot.saturating_duration_since(began)),
            ("decide", decided.saturating_duration_since(snapshot)),
            // Until a worker sends it.
            ("queue", now.saturating_duration_since(decided)),
        ]
    }
}
