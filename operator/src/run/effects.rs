//! The queue of writes to the API server (bindings, evictions, statuses and events), and the workers
//! that send them.
//!
//! Workers send decisions first, then statuses, then events. Where a response contains the object, it
//! is stored in the scheduler cache. The next cycle does not wait for them. A *decision* is a binding or an
//! eviction; the cache *assumes* it, as kube-scheduler does, until the watch confirms it or it fails.

mod back_off;
pub(crate) mod call;
mod context;
pub(crate) mod events;
pub(crate) mod patch;
mod pods;
pub(crate) mod queue;
mod status;
#[cfg(test)]
pub(crate) mod test_effects;
#[cfg(test)]
mod tests;
mod volumes;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kube::{Client, runtime::events::Reporter};
use kube_batch_api::{
    decision::{ClaimChoice, PodRef},
    name::Name,
};
use kube_batch_scheduler::writes::{DecisionWrite, Event, EventType, Regarding};
use serde_json::Value;
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::{
    back_off::BackOff,
    call::{WriteError, call},
    context::Context,
    pods::Settled,
    queue::{Failed, PendingWrite, StatusWrite, Target, WriteQueue},
};
use super::{
    metrics::{Ended, Metrics, Write},
    scheduler_cache::SchedulerCache,
    supervisor::{Panicked, contain},
};

/// Queue and workers for writes to the API server.
pub(crate) struct Effects {
    context: Context,
    reporter: Reporter,
    queue: Mutex<WriteQueue>,
    /// One permit for each queued write.
    waiting: Semaphore,
    /// Notified when no write is queued or in flight.
    idle: Notify,
    back_off: Mutex<BackOff>,
}

impl Effects {
    pub(crate) fn new(
        client: Client,
        reporter: Reporter,
        cache: Arc<SchedulerCache>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: Context { client, cache, metrics },
            reporter,
            queue: Mutex::default(),
            waiting: Semaphore::new(0),
            idle: Notify::new(),
            back_off: Mutex::default(),
        })
    }

    /// Starts `n_workers` workers. They end when the token `stop` is cancelled, which aborts calls in
    /// progress. Bindings that wait for volumes have tasks of their own: these end too, but are not
    /// joined.
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

    /// Enqueues a decision.
    pub(crate) fn enqueue_decision(&self, decision: DecisionWrite) {
        self.with_queue(|queue| queue.push_decision(decision));
        self.waiting.add_permits(1);
    }

    /// Returns whether a decision is still queued.
    pub(crate) fn has_pending_decisions(&self) -> bool {
        self.with_queue(|queue| queue.has_pending_decisions())
    }

    /// Enqueues a patch of a status, and the events to send once the status is written. Replaces
    /// a queued patch of the same object, together with its events, which are then outdated too.
    pub(crate) fn enqueue_status(&self, target: Target, patch: Value, events: Vec<Event>) {
        let write = StatusWrite { patch, events };
        if self.with_queue(|queue| queue.push_status(target, write)) {
            self.waiting.add_permits(1);
        }
    }

    /// Returns whether a status write of the object is in flight, and if so records that another write
    /// is wanted: a scheduling cycle starts when the first one completes.
    pub(crate) fn defer_if_writing(&self, target: &Target) -> bool {
        self.with_queue(|queue| queue.defer_if_writing(target))
    }

    /// Enqueues an event.
    pub(crate) fn enqueue_event(&self, event: Event) {
        if self.with_queue(|queue| queue.push_event(event)) {
            self.waiting.add_permits(1);
        } else {
            self.context.metrics.events_dropped.inc();
        }
    }

    /// Waits until all writes are finished, or until `timeout` elapses. Returns `false` on timeout.
    ///
    /// This includes bindings that wait for their volumes, but not the back-off of rejected decisions.
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

    /// Removes all queued writes, because another replica is the leader now.
    pub(crate) fn clear(&self) {
        self.with_queue(WriteQueue::clear);
        self.waiting.forget_permits(usize::MAX);
    }

    /// Runs `change` with the queue locked, then updates the metrics of the queue and notifies those who
    /// wait until it is idle.
    fn with_queue<T>(&self, change: impl FnOnce(&mut WriteQueue) -> T) -> T {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut queue);
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let metrics = &self.context.metrics;
        metrics.effects_queued.set(count(queue.len()));
        metrics.effects_in_flight.set(count(queue.n_in_flight()));
        if queue.is_idle() {
            self.idle.notify_waiters();
        }
        result
    }

    async fn work(self: &Arc<Self>, stop: &CancellationToken) {
        loop {
            let permit = self.waiting.acquire().await.expect("the semaphore is never closed");
            permit.forget();
            let Some((write, in_flight)) = self.take() else { continue };
            if write.waits_for_volumes() {
                // Provisioning can take long: no worker waits for it.
                let (effects, stop) = (Arc::clone(self), stop.clone());
                tokio::spawn(async move {
                    let _in_flight = in_flight;
                    let _ =
                        stop.run_until_cancelled(effects.send_contained("volumes", write)).await;
                });
            } else {
                self.send_contained("write", write).await;
            }
        }
    }

    /// Takes the next write; it is in flight until the guard is dropped.
    fn take(self: &Arc<Self>) -> Option<(PendingWrite, InFlight)> {
        let write = self.with_queue(WriteQueue::pop)?;
        Some((write, InFlight(Arc::clone(self))))
    }

    /// Sends a write. If sending panics, only this write is affected: its decision is treated as
    /// rejected, and the pod is not scheduled again until its back-off ends.
    async fn send_contained(self: &Arc<Self>, task: &'static str, write: PendingWrite) {
        let pod = write.decided_pod().map(|(pod, failed)| (pod.clone(), failed));
        let sent = contain(task, &self.context.metrics, self.send(write)).await;
        if let (Err(Panicked), Some((pod, failed))) = (sent, pod) {
            self.reject(&pod, failed, "internal error, see the log of the scheduler");
        }
    }

    /// Sends a write and handles the response.
    async fn send(self: &Arc<Self>, write: PendingWrite) {
        match write {
            PendingWrite::Decision(DecisionWrite::Bind { pod, node, claims, event }) => {
                let settled = self.bind(&pod, &node, &claims).await;
                if let Settled::Done = settled {
                    self.record_binding(&pod);
                    self.enqueue_event(event);
                }
                self.settle(&pod, Failed::Binding, settled);
            }
            PendingWrite::Decision(DecisionWrite::Evict { pod, message, .. }) => {
                let settled = pods::evict(&self.context, &pod, &message).await;
                self.settle(&pod, Failed::Eviction, settled);
            }
            PendingWrite::Status(target, write) => {
                let _writing = Writing { effects: self, target: &target };
                self.send_status(&target, write).await;
            }
            PendingWrite::Event(event) => self.send_event(&event).await,
        }
    }

    async fn bind(&self, pod: &PodRef, node: &Name, claims: &[ClaimChoice]) -> Settled {
        match volumes::bind_claims(&self.context, node, claims).await {
            Ok(()) => pods::bind(&self.context, pod, node).await,
            Err(why) => Settled::Rejected(why),
        }
    }

    fn record_binding(&self, pod: &PodRef) {
        let created = self.context.cache.record_binding(pod);
        let metrics = &self.context.metrics;
        metrics.pods_placed.inc();
        metrics.schedule_attempts.get_or_create(&Ended { result: "scheduled" }).inc();
        if let Some(created) = created {
            let waited = Timestamp::now().duration_since(created);
            metrics.task_latency.observe(waited.as_secs_f64().max(0.0) * 1e6);
        }
    }

    /// Handles the outcome of a decision. The cache assumes a successful decision until the watch
    /// confirms it.
    fn settle(self: &Arc<Self>, pod: &PodRef, failed: Failed, settled: Settled) {
        match settled {
            Settled::Done => self.reset_back_off(pod),
            Settled::NotDone => {
                self.context.cache.drop_decision(pod);
            }
            Settled::Rejected(why) => {
                warn!(%pod.key, why, "cannot bind or evict the pod");
                self.reject(pod, failed, &why);
            }
            Settled::Forbidden(why) => {
                debug!(%pod.key, why, "cannot bind or evict the pod");
                self.reject(pod, failed, &why);
            }
        }
    }

    /// Reports a rejected decision. The cache keeps assuming it until its back-off ends, so that the
    /// scheduler does not repeat it at once.
    fn reject(self: &Arc<Self>, pod: &PodRef, failed: Failed, why: &str) {
        let attempts = &self.context.metrics.schedule_attempts;
        attempts.get_or_create(&Ended { result: "error" }).inc();
        self.enqueue_event(Event {
            regarding: Regarding::Pod(pod.clone()),
            type_: EventType::Warning,
            reason: failed.reason(),
            action: failed.action(),
            message: why.to_owned(),
        });
        let back_off = self.back_off.lock().unwrap_or_else(PoisonError::into_inner).next(&pod.uid);
        let (effects, pod) = (Arc::clone(self), pod.clone());
        tokio::spawn(async move {
            let metrics = Arc::clone(&effects.context.metrics);
            let end_back_off = async {
                tokio::time::sleep(back_off).await;
                if !effects.context.cache.drop_decision(&pod) {
                    effects.reset_back_off(&pod);
                }
            };
            // A panic is already logged and counted.
            let _ = contain("back-off", &metrics, end_back_off).await;
        });
    }

    fn reset_back_off(&self, pod: &PodRef) {
        self.back_off.lock().unwrap_or_else(PoisonError::into_inner).reset(&pod.uid);
    }

    async fn send_status(&self, target: &Target, write: StatusWrite) {
        // The pod no longer waits: its status must not get an outdated reason.
        if let Target::Pod(pod) = target
            && self.context.cache.lock().waiting(pod).is_none()
        {
            return;
        }
        match status::patch(&self.context, target, &write.patch).await {
            Ok(()) => {
                write.events.into_iter().for_each(|event| self.enqueue_event(event));
            }
            Err(WriteError::NotFound) => debug!(%target, "deleted before its status was written"),
            Err(error @ WriteError::Forbidden(_)) => {
                debug!(%target, %error, "cannot write the status");
            }
            Err(error) => warn!(%target, %error, "cannot write the status"),
        }
    }

    async fn send_event(&self, event: &Event) {
        let Context { client, metrics, .. } = &self.context;
        let publish = || events::publish(client, &self.reporter, event);
        match call(metrics, Write::Event, publish).await {
            // The namespace no longer exists, or another event has the same name.
            Ok(()) | Err(WriteError::NotFound | WriteError::Conflict(_)) => {}
            Err(error) => debug!(reason = event.reason, %error, "cannot send an event"),
        }
    }
}

/// A guard for a write in flight. Dropping it marks the write as finished, whether it succeeded or
/// not.
struct InFlight(Arc<Effects>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.with_queue(WriteQueue::finish);
    }
}

/// A guard for a status write in flight.
struct Writing<'e> {
    effects: &'e Effects,
    target: &'e Target,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // Another write of this status was wanted meanwhile.
        if self.effects.with_queue(|queue| queue.answered(self.target)) {
            self.effects.context.cache.wake();
        }
    }
}
