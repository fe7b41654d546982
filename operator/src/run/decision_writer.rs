//! Decisions of a cycle: recorded in the scheduler cache, then sent.

use std::{collections::BTreeSet, sync::Arc};

use kube_batch_api::{decision::Decision, reason::Ignored};
use kube_batch_scheduler::writes::{DecisionWrite, decision_writes, ignored_event};
use tracing::warn;

use super::effects::{Effects, context::Context};

/// Sends decisions, and reports what a cycle ignored.
pub(crate) struct DecisionWriter {
    effects: Arc<Effects>,
    /// Ignored objects that were reported.
    reported: BTreeSet<String>,
}

impl DecisionWriter {
    pub(crate) const fn new(effects: Arc<Effects>) -> Self {
        Self { effects, reported: BTreeSet::new() }
    }

    /// Records each decision in the cache, then enqueues it.
    pub(crate) fn write(&self, decisions: &[Decision]) {
        let Context { cache, metrics, clock, .. } = &self.effects.context;
        let writes = {
            let mut state = cache.lock();
            let now = clock.now();
            decisions.iter().for_each(|decision| state.assumed.note(decision, now));
            let writes = decision_writes(decisions, &state.store).into_iter();
            let with_id = writes.map(|write| (state.assumed.id(&write.pod().uid), write));
            with_id.collect::<Vec<_>>()
        };
        let mut preemptors = BTreeSet::new();
        let mut n_victims = 0;
        for (id, write) in writes {
            if let DecisionWrite::Evict { by, events, .. } = &write {
                preemptors.insert(by.clone());
                n_victims += 1;
                events.iter().for_each(|event| self.effects.enqueue_event(event.clone()));
            }
            let id = id.expect("it was noted");
            self.effects.enqueue_decision(id, write);
        }
        if n_victims > 0 {
            metrics.preemption_victims.set(n_victims);
            metrics.preemption_attempts.inc_by(preemptors.len() as i64);
        }
    }

    /// Reports objects that are ignored since this cycle.
    pub(crate) fn report_ignored(&mut self, ignored: &[Ignored]) {
        let now: BTreeSet<String> = ignored.iter().map(ToString::to_string).collect();
        for ignored in ignored.iter().filter(|one| !self.reported.contains(&one.to_string())) {
            warn!(object = %ignored, "ignored one of two objects with the same name");
            let event = ignored_event(ignored, &self.effects.context.cache.lock().store);
            event.into_iter().for_each(|event| self.effects.enqueue_event(event));
        }
        self.reported = now;
    }
}

#[cfg(test)]
mod tests {
    use kube_batch_api::{
        crd::ApiVersion,
        decision::{EvictReason, PodRef},
        name::{JobKey, ObjectKey},
    };

    use super::*;
    use crate::run::effects::test_effects::TestEffects;

    /// A writer whose writes stay in the queue, as there are no workers.
    fn writer() -> DecisionWriter {
        DecisionWriter::new(TestEffects::idle().effects)
    }

    fn pod(name: &str) -> PodRef {
        PodRef { uid: name.into(), key: ObjectKey::new("ns", name) }
    }

    fn evict(name: &str, by: &str) -> Decision {
        let by = JobKey::Group(ObjectKey::new("ns", by));
        Decision::Evict {
            pod: pod(name),
            node: "n".into(),
            reason: EvictReason::Reclaim,
            by,
            queue: "q".into(),
        }
    }

    #[tokio::test(flavor = "local")]
    async fn decisions_are_in_flight_before_they_are_sent() {
        let writer = writer();
        let bind = Decision::Bind { pod: pod("a"), node: "n".into(), claims: vec![] };
        let nominate = Decision::Nominate { pod: pod("b"), node: "n".into() };
        writer.write(&[bind, nominate, evict("c", "x"), evict("d", "x"), evict("e", "y")]);
        assert_eq!(writer.effects.context.cache.lock().assumed.len(), 5);
        assert!(writer.effects.has_pending_decisions());
        // A binding, three evictions, and an event of each eviction.
        assert_eq!(writer.effects.context.metrics.effects_queued.get(), 7);
        assert_eq!(writer.effects.context.metrics.preemption_victims.get(), 3);
        assert_eq!(writer.effects.context.metrics.preemption_attempts.get(), 2);
        writer.write(&[]);
        assert_eq!(
            writer.effects.context.metrics.preemption_victims.get(),
            3,
            "of the last cycle with victims"
        );
    }

    #[tokio::test(flavor = "local")]
    async fn an_ignored_object_is_reported_once_while_it_is_ignored() {
        let mut writer = writer();
        let queue = json_queue();
        writer
            .effects
            .context
            .cache
            .lock()
            .store
            .apply_queue(ApiVersion::V1Alpha1, &queue.metadata, &queue.spec, None)
            .expect("facts of a queue");
        let ignored = [Ignored::DuplicateQueue("q".into())];
        for (ignored, n_events) in [(&ignored[..], 1), (&ignored, 1), (&[], 1), (&ignored, 2)] {
            writer.report_ignored(ignored);
            assert_eq!(writer.effects.context.metrics.effects_queued.get(), n_events);
        }
    }

    fn json_queue() -> kube_batch_api::crd::v1alpha2::Queue {
        let queue = serde_json::json!({"metadata": {"name": "q", "uid": "q"}, "spec": {}});
        serde_json::from_value(queue).expect("a queue")
    }
}
