//! Statuses that follow from a cycle. One is written only if it differs from what is stored.

use std::sync::Arc;

use jiff::Timestamp;
use kube_batch_api::dialect;
use kube_batch_model::{decision::PodRef, name::Name};
use kube_batch_scheduler::writes::{Event, Nomination, StatusWrite, Urgency, Waits, news_of_pod};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    cycle_log::log_group,
    effects::{Effects, patch, queue::Target},
    metrics::Ended,
    throttle::Throttle,
};

/// How many statuses are looked at before the thread is left to others.
const N_AT_ONCE: usize = 500;

/// Writes the statuses of pods, PodGroups and queues.
pub(crate) struct StatusWriter {
    effects: Arc<Effects>,
    throttle: Throttle<Target>,
    /// When the next write that was put off is due.
    due: Option<Instant>,
}

impl StatusWriter {
    pub(crate) fn new(effects: Arc<Effects>) -> Self {
        Self { effects, throttle: Throttle::default(), due: None }
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

    /// Enqueues the statuses that follow from a cycle and may be written at `now`, some at a time. Ends
    /// early if the term does.
    pub(crate) async fn write(&mut self, writes: Vec<StatusWrite>, now: Instant) {
        self.due = None;
        let term = self.effects.context.terms.number();
        for (n, write) in writes.into_iter().enumerate() {
            if n % N_AT_ONCE == N_AT_ONCE - 1 {
                tokio::task::yield_now().await;
                if self.effects.context.terms.number() != term {
                    return;
                }
            }
            self.enqueue(write, now);
        }
        self.throttle.sweep(now);
    }

    fn enqueue(&mut self, write: StatusWrite, now: Instant) {
        match write {
            StatusWrite::Pod { pod, nomination, waits } => {
                self.enqueue_pod(pod, &nomination, waits, now);
            }
            StatusWrite::Group { group, next, urgency, events } => {
                let target = Target::Group(group.version, group.key.clone());
                if self.is_current(&target, group.resource_version.as_ref())
                    && self.admit(target.clone(), urgency, now)
                {
                    log_group(&group, &next);
                    let dialect = dialect::of(group.version);
                    let values = [&group.status, &next].map(|status| dialect.status_value(status));
                    let version = group.resource_version.as_ref();
                    self.enqueue_difference(target, version, values, events);
                }
            }
            StatusWrite::Queue { queue, next, urgency, events } => {
                let target = Target::Queue(queue.version, queue.name.clone());
                if self.is_current(&target, queue.resource_version.as_ref())
                    && self.admit(target.clone(), urgency, now)
                {
                    let version = queue.resource_version.as_ref();
                    let values = [json_of(&queue.status), json_of(&next)];
                    self.enqueue_difference(target, version, values, events);
                }
            }
        }
    }

    fn enqueue_pod(
        &mut self,
        pod: PodRef,
        nomination: &Nomination,
        waits: Option<Waits>,
        now: Instant,
    ) {
        let target = Target::Pod(pod.clone());
        if self.effects.defer_if_writing(&target) {
            return;
        }
        let (mut status, mut events) = (Map::new(), Vec::new());
        match nomination {
            Nomination::Unchanged => {}
            Nomination::Clear => {
                status.insert("nominatedNodeName".to_owned(), Value::Null);
            }
            Nomination::Set(node) => {
                status.insert("nominatedNodeName".to_owned(), json!(&**node));
            }
        }
        if let Some(waits) = waits.and_then(|waits| self.still_news(&pod, &waits))
            && self.admit(target.clone(), waits.urgency, now)
        {
            let transition =
                (waits.urgency != Urgency::PodText).then(|| self.effects.context.clock.now());
            let condition = condition(waits.reason.as_str(), &waits.message, transition);
            status.insert("conditions".to_owned(), json!([condition]));
            let attempts = &self.effects.context.metrics.schedule_attempts;
            attempts.get_or_create(&Ended { result: "unschedulable" }).inc();
            events.extend(waits.event);
        }
        if !status.is_empty() {
            let patch = json!({"metadata": {"uid": &*pod.uid}, "status": status});
            self.effects.enqueue_status(target, patch, events);
        }
    }

    /// Why a pod waits, compared with what is known of it now. The answer to an earlier write may have come
    /// since the snapshot; without this its event would be sent again.
    fn still_news(&self, pod: &PodRef, waits: &Waits) -> Option<Waits> {
        let state = self.effects.context.cache.lock();
        let mut news = news_of_pod(state.waiting(pod)?, pod, waits.reason.clone(), &waits.message)?;
        if (news.urgency, waits.urgency) == (Urgency::State, Urgency::Forming) {
            news.urgency = Urgency::Forming;
        }
        Some(news)
    }

    /// Whether the cache still has this version of the object. If not, the answer to an earlier write may have come
    /// since the snapshot: the status would be logged again, and the API server would answer with a conflict. Another
    /// cycle then compares the status with the new version.
    fn is_current(&self, target: &Target, version: Option<&Name>) -> bool {
        let cache = &self.effects.context.cache;
        let is_current = cache.lock().version_of(target) == version;
        if !is_current {
            cache.want_statuses();
        }
        is_current
    }

    fn enqueue_difference(
        &self,
        target: Target,
        version: Option<&Name>,
        [mut stored, next]: [Value; 2],
        events: Vec<Event>,
    ) {
        // What is read as 0 may be absent. A 0 is written, so that `kubectl get` prints it.
        stored.as_object_mut().expect("a struct is an object").retain(|_, value| *value != 0);
        if let Some(difference) = patch::merge(&stored, &next) {
            // With the version it is a conflict if others have written meanwhile, and nothing of theirs
            // is lost.
            let mut patch = json!({"status": difference});
            if let Some(version) = version {
                patch["metadata"] = json!({"resourceVersion": &**version});
            }
            self.effects.enqueue_status(target, patch, events);
        }
    }

    /// Whether the status may be written now; if not, [`Self::due`] says when.
    fn admit(&mut self, target: Target, urgency: Urgency, now: Instant) -> bool {
        if self.effects.defer_if_writing(&target) {
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
}

/// The condition of a pod that cannot be scheduled; with the time, if that is new.
fn condition(reason: &str, because: &str, transition: Option<Timestamp>) -> Value {
    let mut condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": because,
    });
    if let Some(time) = transition {
        condition["lastTransitionTime"] = json!(time.to_string());
    }
    condition
}

fn json_of(status: &impl Serialize) -> Value {
    serde_json::to_value(status).expect("a status is JSON")
}

#[cfg(test)]
mod tests;
