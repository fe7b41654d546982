//! Decisions and reports into API calls.
//!
//! Workers take what is queued, bindings first, and answer to the cache: what the API server says
//! of an object is what the scheduler believes. The next cycle does not wait for any of it.

pub(crate) mod call;
pub(crate) mod events;
pub(crate) mod patch;
pub(crate) mod queue;
mod volumes;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{
    Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::events::Reporter,
};
use kube_batch_api::{
    crd::v1alpha2,
    decision::{EvictReason, PodRef},
    name::{JobKey, Name, ObjectKey},
};
use kube_batch_cache::store::Change;
use serde::{de::DeserializeOwned, de::IgnoredAny};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::{
    call::{ANSWER_TIMEOUT, WriteError, call},
    events::PendingEvent,
    queue::{DecisionWrite, PendingWrite, StatusWrite, Target, WriteQueue},
};
use super::{
    metrics::{Ended, Metrics, Write},
    scheduler_cache::SchedulerCache,
    supervisor::{Panicked, contain},
};

/// How long a decision that the server refused stands before it can be taken again. Doubled with
/// each error of the same pod, up to [`LONGEST_BACK_OFF`], so that a webhook that says no is not
/// asked in every cycle.
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
/// The longest of them.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(60);
/// Sets what is named, removes what is null.
const MERGE_PATCH: &str = "application/merge-patch+json";
/// Name under which fields are written.
const FIELD_MANAGER: &str = "kube-batch";

/// Sends what is decided.
pub(crate) struct Effects {
    client: Client,
    reporter: Reporter,
    cache: Arc<SchedulerCache>,
    metrics: Arc<Metrics>,
    queue: Mutex<WriteQueue>,
    /// One permit for each write that waits.
    waiting: Semaphore,
    /// Notified when nothing waits and nothing is in flight.
    idle: Notify,
    /// How often each pod's decision was refused in a row.
    rejections: Mutex<BTreeMap<Name, u32>>,
}

impl Effects {
    pub(crate) fn new(
        client: Client,
        reporter: Reporter,
        cache: Arc<SchedulerCache>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            reporter,
            cache,
            metrics,
            queue: Mutex::default(),
            waiting: Semaphore::new(0),
            idle: Notify::new(),
            rejections: Mutex::default(),
        })
    }

    /// Starts workers, which stop in the middle of a call when `stop` is cancelled.
    pub(crate) fn start(
        self: &Arc<Self>,
        n_workers: usize,
        stop: &CancellationToken,
    ) -> JoinSet<()> {
        let mut workers = JoinSet::new();
        for _ in 0..n_workers {
            let (effects, stop) = (Arc::clone(self), stop.clone());
            workers.spawn(async move {
                let _ = stop.run_until_cancelled(effects.work(&stop)).await;
            });
        }
        workers
    }

    /// Changes the queue. Metrics show what it holds; nothing is ever read from them.
    fn with_queue<T>(&self, change: impl FnOnce(&mut WriteQueue) -> T) -> T {
        let mut queue = self.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let result = change(&mut queue);
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.effects_queued.set(count(queue.len()));
        self.metrics.effects_in_flight.set(count(queue.n_in_flight()));
        if queue.is_idle() {
            self.idle.notify_waiters();
        }
        result
    }

    /// Queues a decision.
    pub(crate) fn enqueue_decision(&self, decision: DecisionWrite) {
        self.with_queue(|queue| queue.push_decision(decision));
        self.waiting.add_permits(1);
    }

    /// Whether decisions wait that no worker has taken.
    pub(crate) fn has_pending_decisions(&self) -> bool {
        self.with_queue(|queue| queue.has_pending_decisions())
    }

    /// Queues a patch of a status, and what is told of it when it is written; the latest for an
    /// object wins.
    pub(crate) fn enqueue_status(&self, target: Target, patch: Value, event: Option<PendingEvent>) {
        let write = StatusWrite { patch, event: event.map(Box::new) };
        if self.with_queue(|queue| queue.push_status(target, write)) {
            self.waiting.add_permits(1);
        }
    }

    /// Whether a status write of the object is not answered yet; when it is, a cycle is woken to
    /// look again.
    pub(crate) fn is_writing(&self, target: &Target) -> bool {
        self.with_queue(|queue| queue.is_busy(target))
    }

    /// Queues an event.
    pub(crate) fn enqueue_event(&self, event: PendingEvent) {
        self.with_queue(|queue| queue.push_event(event));
        self.waiting.add_permits(1);
    }

    /// Waits until everything is sent and answered, or `timeout` ends; returns whether it was.
    ///
    /// A binding that waits for its volumes is in flight; a rejected decision that waits before it
    /// may be taken again is not.
    pub(crate) async fn drain(&self, timeout: Duration) -> bool {
        let idle = async {
            loop {
                let notified = self.idle.notified();
                if self.with_queue(|queue| queue.is_idle()) {
                    return;
                }
                notified.await;
            }
        };
        tokio::time::timeout(timeout, idle).await.is_ok()
    }

    /// Forgets everything that was not sent: somebody else decides now.
    pub(crate) fn clear(&self) {
        self.with_queue(WriteQueue::clear);
        self.waiting.forget_permits(usize::MAX);
    }

    async fn work(self: &Arc<Self>, stop: &CancellationToken) {
        loop {
            let write = self.waiting.acquire().await.expect("the semaphore is never closed");
            write.forget();
            let Some((write, in_flight)) = self.take() else { continue };
            if write.waits_for_volumes() {
                // Volumes can take minutes to be made: no worker waits for them.
                let (effects, stop) = (Arc::clone(self), stop.clone());
                tokio::spawn(async move {
                    let _in_flight = in_flight;
                    let _ = stop.run_until_cancelled(effects.send("volumes", write)).await;
                });
            } else {
                self.send("write", write).await;
            }
        }
    }

    /// Sends an write and does what follows the answer. A panic costs this write alone: a decision is
    /// treated as rejected, and waits before it may be taken again.
    async fn send(self: &Arc<Self>, task: &'static str, write: PendingWrite) {
        let pod = write.decided_pod().cloned();
        let sent = contain(task, &self.metrics, self.send_write(write)).await;
        if let (Err(Panicked), Some(pod)) = (sent, pod) {
            self.reject(&pod, "internal error, see the log of the scheduler");
        }
    }

    async fn send_write(self: &Arc<Self>, write: PendingWrite) {
        match write {
            PendingWrite::Decision(DecisionWrite::Bind { pod, node, claims, created }) => {
                match self.bind_claims(&node, &claims).await {
                    Ok(()) => self.bind(&pod, &node, created).await,
                    Err(why) => self.reject(&pod, &why),
                }
            }
            PendingWrite::Decision(DecisionWrite::Evict { pod, reason, by }) => {
                self.evict(&pod, reason, &by).await;
            }
            PendingWrite::Status(target, status) => {
                let _busy = Busy { effects: self, target: &target };
                self.send_status(&target, status).await;
            }
            PendingWrite::Event(event) => self.publish(&event).await,
        }
    }

    /// Takes the next write; it is in flight until the guard is dropped.
    fn take(self: &Arc<Self>) -> Option<(PendingWrite, InFlight)> {
        let write = self.with_queue(WriteQueue::pop)?;
        Some((write, InFlight(Arc::clone(self))))
    }

    fn pods(&self, pod: &PodRef) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.key.namespace)
    }

    async fn bind(self: &Arc<Self>, pod: &PodRef, node: &Name, created: Timestamp) {
        let pods = self.pods(pod);
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": &*pod.key.name,
                "namespace": &*pod.key.namespace,
                "uid": &*pod.uid,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": &**node},
        });
        let params = PostParams::default();
        let answer = call(&self.metrics, Write::Bind, || {
            pods.create_subresource::<_, IgnoredAny>("binding", &pod.key.name, &params, &binding)
        });
        let bound = match answer.await {
            Ok(_) => true,
            // It may be our own binding that it collides with, its answer lost.
            Err(
                error
                @ (WriteError::NotFound | WriteError::Conflict(_) | WriteError::Unanswered(_)),
            ) => {
                debug!(%pod.key, %node, why = %error, "not bound");
                self.look_again(pod).await.is_some_and(|found| found == *node)
            }
            Err(error @ WriteError::Rejected(_)) => {
                self.reject(pod, &format!("cannot bind to {node}: {error}"));
                return;
            }
        };
        if !bound {
            self.cache.drop_decision(pod);
            return;
        }
        self.cache.record_binding(pod);
        self.reset_back_off(pod);
        self.metrics.pods_placed.inc();
        self.metrics.schedule_attempts.get_or_create(&Ended { result: "scheduled" }).inc();
        let waited = Timestamp::now().duration_since(created);
        self.metrics.task_latency.observe(waited.as_secs_f64().max(0.0) * 1e6);
        let text = format!("Successfully assigned {} to {node}", pod.key);
        self.enqueue_event(PendingEvent::normal(
            events::pod_reference(pod),
            "Scheduled",
            "Binding",
            text,
        ));
    }

    /// Condition first, so that whoever sees the pod go can see why; then the deletion.
    // Parity: differs, see docs/parity.md#e6.
    async fn evict(self: &Arc<Self>, pod: &PodRef, reason: EvictReason, by: &JobKey) {
        let pods = self.pods(pod);
        let patch = Patch::Strategic(json!({
            "metadata": {"uid": &*pod.uid},
            "status": {"conditions": [{
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": format!("kube-batch: {reason} for {by}"),
                "lastTransitionTime": Timestamp::now().to_string(),
            }]},
        }));
        let params =
            PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let marked = call(&self.metrics, Write::Evict, || {
            pods.patch_subresource("status", &pod.key.name, &params, &patch)
        });
        let deleted = match marked.await {
            Ok(_) => {
                let uid = Some(pod.uid.to_string());
                let preconditions = Some(Preconditions { uid, resource_version: None });
                let params = DeleteParams { preconditions, ..DeleteParams::default() };
                call(&self.metrics, Write::Evict, || pods.delete(&pod.key.name, &params))
                    .await
                    .map(drop)
            }
            Err(error) => Err(error),
        };
        match deleted {
            Ok(()) => self.reset_back_off(pod),
            Err(WriteError::Rejected(why)) => {
                self.reject(pod, &format!("cannot evict: {why}"));
            }
            Err(error) => {
                debug!(%pod.key, why = %error, "not evicted");
                self.look_again(pod).await;
                self.cache.drop_decision(pod);
            }
        }
    }

    /// Reads a pod anew and stores what it is; returns its node.
    async fn look_again(&self, pod: &PodRef) -> Option<Name> {
        let pods = self.pods(pod);
        match timeout(ANSWER_TIMEOUT, pods.get_opt(&pod.key.name)).await {
            Ok(Ok(Some(found))) => {
                let is_same = found.metadata.uid.as_deref() == Some(&*pod.uid);
                let node = found.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
                let node = node.filter(|node| is_same && !node.is_empty()).map(Name::from);
                self.store(|store| store.apply_pod(&found));
                node
            }
            Ok(Ok(None)) => {
                let mut state = self.cache.lock();
                let known = state.store.pods.get(&pod.key);
                if known.is_some_and(|facts| facts.uid == pod.uid) {
                    state.store.pods.delete(&pod.key);
                    self.cache.record_change(&mut state, Change::Facts);
                }
                None
            }
            // The watch will tell.
            Ok(Err(_)) | Err(_) => None,
        }
    }

    fn store(
        &self,
        apply: impl FnOnce(
            &mut kube_batch_cache::store::Store,
        ) -> Result<Change, kube_batch_api::facts::FactError>,
    ) {
        let mut state = self.cache.lock();
        if let Ok(change) = apply(&mut state.store) {
            self.cache.record_change(&mut state, change);
        }
    }

    /// The server will not have it: say so, and let the decision stand for a while, so that it is
    /// not taken again at once.
    fn reject(self: &Arc<Self>, pod: &PodRef, why: &str) {
        warn!(%pod.key, why, "the API server refuses");
        self.metrics.schedule_attempts.get_or_create(&Ended { result: "error" }).inc();
        let event = PendingEvent::warning(
            events::pod_reference(pod),
            "FailedScheduling",
            "Scheduling",
            why.to_owned(),
        );
        self.enqueue_event(event);
        let back_off = {
            let mut rejections =
                self.rejections.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let n_rejections = rejections.entry(pod.uid.clone()).or_insert(0);
            *n_rejections += 1;
            FIRST_BACK_OFF.saturating_mul(1 << (*n_rejections - 1).min(10)).min(LONGEST_BACK_OFF)
        };
        let (effects, pod) = (Arc::clone(self), pod.clone());
        tokio::spawn(async move {
            tokio::time::sleep(back_off).await;
            if !effects.cache.drop_decision(&pod) {
                effects.reset_back_off(&pod);
            }
        });
    }

    /// What was refused before no longer counts: it went well, or the pod is gone.
    fn reset_back_off(&self, pod: &PodRef) {
        self.rejections.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&pod.uid);
    }

    async fn send_status(&self, target: &Target, write: StatusWrite) {
        // Why a pod waited is not to be written over its binding.
        if let Target::Pod(pod) = target
            && self.cache.lock().waiting(pod).is_none()
        {
            return;
        }
        match self.patch_status(target, &write.patch).await {
            Ok(()) => {
                if let Some(event) = write.event {
                    self.enqueue_event(*event);
                }
            }
            Err(WriteError::NotFound) => debug!(%target, "gone before its status was written"),
            Err(error) => warn!(%target, why = %error, "cannot write the status"),
        }
    }

    async fn patch_status(&self, target: &Target, patch: &Value) -> Result<(), WriteError> {
        match target {
            Target::Pod(pod) => {
                let path =
                    format!("/api/v1/namespaces/{}/pods/{}", pod.key.namespace, pod.key.name);
                // Merges conditions by type, where a merge patch would replace them all.
                let kind = "application/strategic-merge-patch+json";
                let answer = self.patch(Write::PodStatus, &path, kind, patch).await;
                answer.map(|pod: Pod| self.store(|store| store.apply_pod(&pod)))
            }
            Target::Group(version, ObjectKey { namespace, name }) => {
                let path = format!("/apis/{version}/namespaces/{namespace}/podgroups/{name}");
                let answer = self.patch(Write::GroupStatus, &path, MERGE_PATCH, patch).await;
                // The two groups are field for field the same.
                answer.map(|group: v1alpha2::PodGroup| {
                    let (meta, status) = (&group.metadata, group.status.as_ref());
                    self.store(|store| store.apply_group(*version, meta, &group.spec, status));
                })
            }
            Target::Queue(version, name) => {
                let path = format!("/apis/{version}/queues/{name}");
                let answer = self.patch(Write::QueueStatus, &path, MERGE_PATCH, patch).await;
                answer.map(|queue: v1alpha2::Queue| {
                    let (meta, status) = (&queue.metadata, queue.status.as_ref());
                    self.store(|store| store.apply_queue(*version, meta, &queue.spec, status));
                })
            }
        }
    }

    async fn patch<T: DeserializeOwned>(
        &self,
        write: Write,
        path: &str,
        kind: &'static str,
        patch: &Value,
    ) -> Result<T, WriteError> {
        let body = serde_json::to_vec(patch).expect("a value is JSON");
        call(&self.metrics, write, || {
            let request = Request::patch(format!("{path}/status?fieldManager={FIELD_MANAGER}"))
                .header(CONTENT_TYPE, kind)
                .header(ACCEPT, "application/json")
                .body(body.clone())
                .expect("a path of names is a URI");
            self.client.request(request)
        })
        .await
    }

    async fn publish(&self, event: &PendingEvent) {
        let told = call(&self.metrics, Write::Event, || {
            events::publish(&self.client, &self.reporter, event)
        });
        match told.await {
            // The namespace is going, or somebody told the same at the same nanosecond.
            Ok(()) | Err(WriteError::NotFound | WriteError::Conflict(_)) => {}
            Err(error) => debug!(reason = event.reason, why = %error, "cannot tell an event"),
        }
    }
}

/// An write that was taken and is not finished, also if its worker is stopped.
struct InFlight(Arc<Effects>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.with_queue(WriteQueue::finish);
    }
}

/// Holds an object's status for one write.
struct Busy<'e> {
    effects: &'e Effects,
    target: &'e Target,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        // What was wanted meanwhile is to be looked at again.
        if self.effects.with_queue(|queue| queue.answered(self.target)) {
            self.effects.cache.wake();
        }
    }
}

#[cfg(test)]
mod tests;
