//! Decisions of a cycle: recorded in the scheduler cache, then sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube_batch_cache::assumed::DecisionId;
use kube_batch_model::{
    decision::Decision,
    name::{JobKey, Name},
};
use kube_batch_scheduler::writes::{Event, Remark};
use tracing::warn;

use super::{
    effects::{Effects, context::Context},
    hops::{CycleHops, PodHops},
    scheduler_cache::CacheState,
};

/// How many decisions are recorded before the lock of the cache is released for others.
const N_AT_ONCE: usize = 500;

/// What a cycle has decided, before it reports.
#[derive(Debug, Default)]
pub(crate) struct CycleDecisions {
    pub(crate) decisions: Vec<Decision>,
    /// The events about evictions, by the uid of the pod with whose eviction they are sent.
    pub(crate) evictions: BTreeMap<Name, Vec<Event>>,
    /// When the cycle reached its points.
    pub(crate) hops: Option<Arc<CycleHops>>,
}

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

    /// Records the decisions of a cycle in the cache and enqueues those that are writes, some at a time, each eviction
    /// with its events. Ends early if the term does: what is queued then would be sent in a later term.
    pub(crate) async fn write(&self, decided: CycleDecisions) {
        let CycleDecisions { decisions, mut evictions, hops } = decided;
        let terms = &self.effects.context.terms;
        let term = terms.number();
        self.measure(&decisions);
        let mut decisions = decisions.into_iter().map(Arc::new).peekable();
        while decisions.peek().is_some() {
            for (decision, id) in self.note(decisions.by_ref().take(N_AT_ONCE)) {
                if let Decision::Evict { pod, .. } = &*decision {
                    let events = evictions.remove(&pod.uid).unwrap_or_default();
                    events.into_iter().for_each(|event| self.effects.enqueue_event(event));
                }
                let hops = hops.as_ref().and_then(|of| PodHops::new(of, &decision.pod().uid));
                self.effects.enqueue_decision(id, decision, hops);
            }
            tokio::task::yield_now().await;
            if terms.number() != term {
                return;
            }
        }
    }

    /// Records decisions; returns those that are in flight now, with their ids.
    fn note(
        &self,
        decisions: impl Iterator<Item = Arc<Decision>>,
    ) -> Vec<(Arc<Decision>, DecisionId)> {
        let Context { cache, clock, .. } = &self.effects.context;
        let (mut state, now) = (cache.lock(), clock.now());
        let CacheState { store, assumed, .. } = &mut *state;
        let note = |decision: Arc<Decision>| {
            let is_noted = assumed.note(&decision, now);
            let uid = &decision.pod().uid;
            // Otherwise it would be settled later, which makes another cycle run, which nominates it again.
            if let Decision::Nominate { .. } = &*decision {
                assumed.settle_pod(uid, store);
            }
            let id = assumed.id(uid).filter(|_| is_noted)?;
            Some((decision, id))
        };
        decisions.filter_map(note).collect()
    }

    fn measure(&self, decisions: &[Decision]) {
        let takers: Vec<&JobKey> = decisions
            .iter()
            .filter_map(|decision| match decision {
                Decision::Evict { cause, .. } => Some(&cause.taker()?.job),
                Decision::Bind { .. }
                | Decision::Nominate { .. }
                | Decision::Withdraw { .. }
                | Decision::Deallocate { .. } => None,
            })
            .collect();
        if takers.is_empty() {
            return;
        }
        let metrics = &self.effects.context.metrics;
        metrics.preemption_victims.set(takers.len() as i64);
        let different: BTreeSet<&JobKey> = takers.into_iter().collect();
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube_batch_api::kind::ApplyObject as _;
    use kube_batch_model::{
        decision::{EvictionCause, JobInQueue, PodRef},
        name::ObjectKey,
    };

    use kube_batch_cache::store::Store;
    use kube_batch_scheduler::writes::{EventType, Regarding, eviction_events};
    use serde_json::json;

    use super::*;
    use crate::run::effects::test_effects::TestEffects;

    /// A writer whose writes stay in the queue, as there are no workers.
    fn writer() -> DecisionWriter {
        DecisionWriter::new(TestEffects::idle().effects)
    }

    fn deciding(decisions: Vec<Decision>) -> CycleDecisions {
        let evictions = eviction_events(&decisions, &Store::default());
        CycleDecisions { decisions, evictions, hops: None }
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
        let nominate = Decision::Nominate { pod: pod("b"), node: "n".into(), devices: [].into() };
        for (shown, n_in_flight) in [("n", 0), ("other", 1), ("n", 0)] {
            nominated(shown);
            writer.write(deciding(vec![nominate.clone()])).await;
            assert_eq!(cache.lock().assumed.len(), n_in_flight, "{shown} is shown");
        }
    }

    fn evict(name: &str, by: &str) -> Decision {
        let by = JobKey::annotated(ObjectKey::new("ns", by));
        Decision::Evict {
            pod: pod(name),
            node: "n".into(),
            cause: EvictionCause::Reclaim(JobInQueue {
                job: by,
                queue: "q".into(),
                is_named: true,
            }),
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
        let decisions = vec![bind, nominate, evict("c", "x"), evict("d", "x"), evict("e", "y")];
        writer.write(deciding(decisions)).await;
        // The facts show no pod that could be nominated.
        assert_eq!(writer.effects.context.cache.lock().assumed.len(), 4);
        assert!(writer.effects.has_pending_decisions());
        // A binding, three evictions, and an event of each eviction.
        assert_eq!(writer.effects.context.metrics.effects_queued.get(), 7);
        assert_eq!(writer.effects.context.metrics.preemption_victims.get(), 3);
        assert_eq!(writer.effects.context.metrics.preemption_attempts.get(), 2);
        writer.write(CycleDecisions::default()).await;
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
        writer.write(deciding(decisions)).await;
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
