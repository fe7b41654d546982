//! Decisions of a cycle: recorded in the scheduler cache, then sent.

use std::{collections::BTreeSet, sync::Arc};

use kube_batch_model::{
    decision::{Decision, EvictReason},
    name::JobKey,
};
use kube_batch_scheduler::writes::{DecisionWrite, Remark};
use tracing::warn;

use super::{
    effects::{Effects, context::Context},
    scheduler_cache::CacheState,
};

/// How many decisions are recorded before the lock of the cache is released for others.
const N_AT_ONCE: usize = 500;

/// Sends decisions, and reports what users should know.
pub(crate) struct DecisionWriter {
    effects: Arc<Effects>,
    /// What was reported and still holds.
    reported: BTreeSet<String>,
}

impl DecisionWriter {
    pub(crate) const fn new(effects: Arc<Effects>) -> Self {
        Self { effects, reported: BTreeSet::new() }
    }

    /// Records the decisions of a cycle in the cache and enqueues what is sent of them, some at a time.
    /// Ends early if the term does: what is queued then would be sent in a later term.
    pub(crate) async fn write(&self, decisions: &[Decision], writes: Vec<DecisionWrite>) {
        let terms = &self.effects.context.terms;
        let term = terms.number();
        self.measure(&writes);
        let mut writes = writes.into_iter().peekable();
        for decisions in decisions.chunks(N_AT_ONCE) {
            let noted = self.note(decisions);
            for (decision, is_noted) in decisions.iter().zip(noted) {
                let write = writes.next_if(|write| is_for(write, decision));
                write.filter(|_| is_noted).into_iter().for_each(|write| self.enqueue(write));
            }
            tokio::task::yield_now().await;
            if terms.number() != term {
                return;
            }
        }
        debug_assert!(writes.next().is_none(), "writes are in the order of their decisions");
    }

    /// Records decisions; returns of each whether it is in flight now.
    fn note(&self, decisions: &[Decision]) -> Vec<bool> {
        let Context { cache, clock, .. } = &self.effects.context;
        let (mut state, now) = (cache.lock(), clock.now());
        let CacheState { store, assumed, .. } = &mut *state;
        let note = |decision: &Decision| {
            let is_noted = assumed.note(decision, now);
            // Otherwise it would be settled later, which makes another cycle run, which nominates it again.
            if let Decision::Nominate { pod, .. } = decision {
                assumed.settle_pod(&pod.uid, store);
            }
            is_noted
        };
        decisions.iter().map(note).collect()
    }

    fn enqueue(&self, write: DecisionWrite) {
        if let DecisionWrite::Evict { events, .. } = &write {
            events.iter().for_each(|event| self.effects.enqueue_event(event.clone()));
        }
        let id = self.effects.context.cache.lock().assumed.id(&write.pod().uid);
        // It may have been forgotten at once, because its pod is gone.
        if let Some(id) = id {
            self.effects.enqueue_decision(id, write);
        }
    }

    fn measure(&self, writes: &[DecisionWrite]) {
        let preemptors: Vec<&JobKey> = writes
            .iter()
            .filter_map(|write| match write {
                DecisionWrite::Evict { reason: EvictReason::StaleGang, .. }
                | DecisionWrite::Bind { .. }
                | DecisionWrite::Deallocate { .. } => None,
                DecisionWrite::Evict { by, .. } => Some(by),
            })
            .collect();
        if preemptors.is_empty() {
            return;
        }
        let metrics = &self.effects.context.metrics;
        metrics.preemption_victims.set(preemptors.len() as i64);
        let different: BTreeSet<&JobKey> = preemptors.into_iter().collect();
        metrics.preemption_attempts.inc_by(different.len() as i64);
    }

    /// Reports what is new since the last cycle, each with its event.
    pub(crate) fn report(&mut self, remarks: Vec<Remark>) {
        let mut now = BTreeSet::new();
        for Remark { text, event } in remarks {
            if !self.reported.contains(&text) {
                warn!("{text}");
                event.into_iter().for_each(|event| self.effects.enqueue_event(event));
            }
            now.insert(text);
        }
        self.reported = now;
    }
}

/// Whether a write is that of a decision. A nomination has none, and its pod may have another decision.
fn is_for(write: &DecisionWrite, decision: &Decision) -> bool {
    let is_same_kind = match decision {
        Decision::Bind { .. } => matches!(write, DecisionWrite::Bind { .. }),
        Decision::Evict { .. } => matches!(write, DecisionWrite::Evict { .. }),
        Decision::Deallocate { .. } => matches!(write, DecisionWrite::Deallocate { .. }),
        Decision::Nominate { .. } | Decision::Withdraw { .. } => false,
    };
    is_same_kind && write.pod() == decision.pod()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube_batch_api::kind::ApplyObject as _;
    use kube_batch_model::{decision::PodRef, name::ObjectKey};

    use kube_batch_cache::store::Store;
    use kube_batch_scheduler::writes::{Event, EventType, Regarding, decision_writes};
    use serde_json::json;

    use super::*;
    use crate::run::effects::test_effects::TestEffects;

    /// A writer whose writes stay in the queue, as there are no workers.
    fn writer() -> DecisionWriter {
        DecisionWriter::new(TestEffects::idle().effects)
    }

    fn pod(name: &str) -> PodRef {
        PodRef { uid: name.into(), key: ObjectKey::new("ns", name) }
    }

    #[tokio::test(flavor = "local")]
    async fn a_nomination_that_the_facts_show_is_not_in_flight() {
        let writer = writer();
        let cache = &writer.effects.context.cache;
        let nominated = |node: &str| {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "b", "namespace": "ns", "uid": "b"},
                "spec": {"schedulerName": "kube-batch", "containers": [{"name": "c"}]},
                "status": {"phase": "Pending", "nominatedNodeName": node},
            });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            cache.lock().store.apply(&pod).expect("facts");
        };
        let nominate = [Decision::Nominate { pod: pod("b"), node: "n".into(), devices: [].into() }];
        for (shown, n_in_flight) in [("n", 0), ("other", 1), ("n", 0)] {
            nominated(shown);
            writer.write(&nominate, vec![]).await;
            assert_eq!(cache.lock().assumed.len(), n_in_flight, "{shown} is shown");
        }
    }

    fn evict(name: &str, by: &str) -> Decision {
        let by = JobKey::annotated(ObjectKey::new("ns", by));
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
        let bind = Decision::Bind {
            minimum: 1,
            protected_until: None,
            queue: "q".into(),
            pod: pod("a"),
            node: "n".into(),
            claims: vec![],
            devices: Vec::new(),
        };
        let nominate = Decision::Nominate { pod: pod("b"), node: "n".into(), devices: [].into() };
        let decisions = [bind, nominate, evict("c", "x"), evict("d", "x"), evict("e", "y")];
        writer.write(&decisions, decision_writes(&decisions, &Store::default())).await;
        // The facts show no pod that could be nominated.
        assert_eq!(writer.effects.context.cache.lock().assumed.len(), 4);
        assert!(writer.effects.has_pending_decisions());
        // A binding, three evictions, and an event of each eviction.
        assert_eq!(writer.effects.context.metrics.effects_queued.get(), 7);
        assert_eq!(writer.effects.context.metrics.preemption_victims.get(), 3);
        assert_eq!(writer.effects.context.metrics.preemption_attempts.get(), 2);
        writer.write(&[], Vec::new()).await;
        assert_eq!(
            writer.effects.context.metrics.preemption_victims.get(),
            3,
            "of the last cycle with victims"
        );
    }

    #[tokio::test(flavor = "local")]
    async fn nothing_is_enqueued_after_the_end_of_the_term() {
        let writer = writer();
        let bind = |n: usize| {
            let pod = pod(&format!("p{n}"));
            Decision::Bind {
                minimum: 1,
                protected_until: None,
                queue: "q".into(),
                pod,
                node: "n".into(),
                claims: vec![],
                devices: Vec::new(),
            }
        };
        let decisions: Vec<Decision> = (0..3 * N_AT_ONCE).map(bind).collect();
        let terms = writer.effects.context.terms.clone();
        tokio::task::spawn_local(async move { terms.set(None) });
        writer.write(&decisions, decision_writes(&decisions, &Store::default())).await;
        assert_eq!(writer.effects.context.cache.lock().assumed.len(), N_AT_ONCE);
        assert_eq!(writer.effects.context.metrics.effects_queued.get(), N_AT_ONCE as i64);
    }

    #[tokio::test(flavor = "local")]
    async fn a_remark_is_reported_once_while_it_holds() {
        let mut writer = writer();
        let remark = || {
            let event = Event {
                regarding: Regarding::Pod(pod("p")),
                related: None,
                type_: EventType::Warning,
                reason: "Reason",
                action: "Acting",
                message: "a text".to_owned(),
            };
            vec![Remark { text: "a text".to_owned(), event: Some(event) }]
        };
        for (remarks, n_events) in [(remark(), 1), (remark(), 1), (vec![], 1), (remark(), 2)] {
            writer.report(remarks);
            assert_eq!(writer.effects.context.metrics.effects_queued.get(), n_events);
        }
    }
}
