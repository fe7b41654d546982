//! The writes to the API server (bindings, evictions, statuses and events), and the workers that send
//! them.
//!
//! Each class of writes has workers of its own. A write that fails goes back to its [`lane`] until it is
//! due again, so no worker waits. Where a response contains the object, it is stored in the scheduler
//! cache. The next cycle does not wait for them. A *decision* is a binding or an eviction; the cache
//! *assumes* it, as kube-scheduler does, until the watch or a read of the pod shows what became of it.

mod attempts;
mod back_off;
mod binding_conditions;
pub(crate) mod call;
pub(crate) mod claim_locks;
pub(crate) mod context;
pub(crate) mod devices;
pub(crate) mod events;
mod lane;
pub(crate) mod patch;
mod pods;
pub(crate) mod queue;
mod status;
#[cfg(test)]
pub(crate) mod test_effects;
#[cfg(test)]
mod tests;
mod volumes;
mod waiting_events;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use kube::{Api, api::PostParams};
use kube_batch_cache::assumed::DecisionId;
use kube_batch_model::{
    decision::{Decision, PodRef},
    name::Name,
};
use kube_batch_scheduler::writes::{self, Event, EventType, Regarding};
use serde_json::Value;
use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, trace, warn};

use self::{
    attempts::Attempts,
    back_off::BackOff,
    binding_conditions::Awaited,
    call::{WriteError, count},
    context::Context,
    events::Reporter,
    lane::{Sign, Ticket},
    pods::FoundPod,
    queue::{
        DecisionWrite, Release, StatusPatch, Taken, Target, Timer, Undo, WriteClass, WriteQueue,
        WriteStep,
    },
    waiting_events::EventWrite,
};
use super::{
    hops::PodHops,
    metrics::{Ended, Hop, Write},
    supervisor::{Panicked, contain},
};

/// How long claims may take to be bound. Kubernetes waits ten minutes; here the pod is decided again,
/// with the same node for volumes being provisioned.
const CLAIMS_TIMEOUT: Duration = Duration::from_secs(100);
/// How long the watch may take to show a decision that was answered, before the pod is read.
const SHOWN_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before a write is tried again for which this replica had no time left to lead.
const NOT_LEADING_PAUSE: Duration = Duration::from_millis(100);

/// Queue and workers for writes to the API server.
pub(crate) struct Effects {
    pub(crate) context: Context,
    reporter: Reporter,
    n_workers: usize,
    queue: Mutex<WriteQueue>,
    /// In the order of [`WriteClass::ALL`].
    workers: [Workers; 4],
    /// Notified when the next timer may be another one.
    timers: Notify,
    /// Notified when no write is queued or in flight.
    idle: Notify,
    back_off: Mutex<BackOff>,
    n_events: AtomicU64,
}

/// The workers of a class.
#[derive(Default)]
struct Workers {
    /// Notified when one of them can send a write.
    work: Notify,
    /// Whether one of them will look for the next write: it was notified, or has ended a write. Without
    /// this, each change of the queue would wake one more of them in vain. Changed with the queue locked
    /// only.
    wake_pending: AtomicBool,
}

impl Workers {
    fn notify(&self) {
        if !self.wake_pending.swap(true, Ordering::Relaxed) {
            self.work.notify_one();
        }
    }
}

/// What a step of a decision has led to.
enum StepOutcome {
    /// The next step.
    GoOn(WriteStep),
    /// The API server did what was decided.
    Done,
    /// It did not, for this reason.
    Rejected(String),
    /// The cache has the pod as it is now, whatever became of the decision.
    Known,
}

impl StepOutcome {
    /// What follows when a claim for devices is released, or cannot be.
    fn after_release(release: &Release) -> Self {
        release.clone().next().map_or_else(Self::Rejected, Self::GoOn)
    }
}

impl Effects {
    /// A queue for at most this many decisions in flight.
    pub(crate) fn new(context: Context, reporter: Reporter, n_workers: usize) -> Arc<Self> {
        Arc::new(Self {
            context,
            reporter,
            n_workers,
            queue: Mutex::new(WriteQueue::new(n_workers)),
            workers: Default::default(),
            timers: Notify::new(),
            idle: Notify::new(),
            back_off: Mutex::default(),
            n_events: AtomicU64::new(0),
        })
    }

    /// Starts the workers. They end when the token `stop` is cancelled, which aborts calls in progress.
    pub(crate) fn start(self: &Arc<Self>, stop: &CancellationToken) -> JoinSet<()> {
        let mut workers = JoinSet::new();
        for class in WriteClass::ALL {
            for _ in 0..class.limit(self.n_workers) {
                let (effects, stop) = (Arc::clone(self), stop.clone());
                workers.spawn_local(async move {
                    let _ = stop.run_until_cancelled(effects.send_all(class)).await;
                });
            }
        }
        let (effects, stop) = (Arc::clone(self), stop.clone());
        workers.spawn_local(async move {
            let _ = stop.run_until_cancelled(effects.keep_time()).await;
        });
        workers
    }

    /// Enqueues a decision, which the cache assumes under this id.
    pub(crate) fn enqueue_decision(
        &self,
        id: DecisionId,
        decision: Arc<Decision>,
        hops: Option<PodHops>,
    ) {
        self.with_queue(|queue| queue.push_decision(id, decision, hops));
    }

    /// Whether decisions wait for a worker, or for answers to others of their namespace.
    pub(crate) fn has_pending_decisions(&self) -> bool {
        self.with_queue(|queue| queue.has_pending_decisions())
    }

    /// Enqueues a patch of a status, and the events to send once the status is written. Replaces
    /// a queued patch of the same object, together with its events, which are then outdated too.
    pub(crate) fn enqueue_status(&self, target: Target, patch: Value, events: Vec<Event>) {
        self.with_queue(|queue| queue.push_status(target, patch, events));
    }

    /// Returns whether a status write of the object is in flight, and if so records that another write
    /// is wanted: a scheduling cycle starts when the first one completes.
    pub(crate) fn defer_if_writing(&self, target: &Target) -> bool {
        self.with_queue(|queue| queue.defer_if_writing(target))
    }

    /// Requests a cycle that writes statuses: at once, unless they would wait behind decisions.
    fn write_statuses(&self) {
        if self.has_pending_decisions() {
            self.context.cache.want_statuses();
        } else {
            self.context.cache.wake();
        }
    }

    /// Enqueues an event.
    pub(crate) fn enqueue_event(&self, event: Event) {
        if !self.with_queue(|queue| queue.push_event(event)) {
            self.context.metrics.events_dropped.inc();
        }
    }

    /// Waits until all writes are finished, or until `timeout` elapses. Returns `false` on timeout.
    ///
    /// This includes bindings that wait for their claims or devices, but not the back-off of rejected decisions.
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
    }

    /// Runs `change` with the queue locked, then updates the metrics of the queue and notifies those who
    /// may go on.
    fn with_queue<T>(&self, change: impl FnOnce(&mut WriteQueue) -> T) -> T {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut queue);
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let metrics = &self.context.metrics;
        metrics.effects_queued.set(count(queue.len()));
        metrics.effects_in_flight.set(count(queue.n_in_flight()));
        metrics.bindings_waiting_for_claims.set(count(queue.n_parked()));
        for class in WriteClass::ALL.into_iter().filter(|class| queue.may_pop(*class)) {
            self.workers[class as usize].notify();
        }
        if queue.is_idle() {
            self.idle.notify_waiters();
        }
        result
    }

    /// Sends the writes of a class, one after the other.
    async fn send_all(self: &Arc<Self>, class: WriteClass) {
        loop {
            let (ticket, taken) = self.next(class).await;
            let in_flight = InFlight::new(self, class, ticket, &taken);
            match taken {
                Taken::Decision(write) => self.send_step(in_flight, *write).await,
                Taken::Status(target, write) => self.send_status(in_flight, target, write).await,
                Taken::Event(write) => self.send_event(in_flight, write).await,
            }
        }
    }

    /// The next write of a class, once there is one.
    async fn next(&self, class: WriteClass) -> (Ticket, Taken) {
        let Workers { work, wake_pending } = &self.workers[class as usize];
        loop {
            let taken = self.with_queue(|queue| {
                wake_pending.store(false, Ordering::Relaxed);
                queue.pop(class, Instant::now()).ok_or_else(|| queue.next_due(class))
            });
            let due = match taken {
                Ok(taken) => return taken,
                Err(due) => due,
            };
            tokio::select! {
                biased;
                () = work.notified() => {}
                () = sleep_until(due) => {}
            }
        }
    }

    /// Sends one step of a decision. If that panics, only this decision is affected: it counts as
    /// rejected, and the pod is not scheduled again until its back-off ends.
    async fn send_step(&self, in_flight: InFlight<'_>, write: DecisionWrite) {
        let sent = Instant::now();
        let answer = contain("write", &self.context.metrics, self.step(&write)).await;
        let sign = match &answer {
            Ok(Err(WriteError::Passing { is_general: false, .. })) => Sign::Failing,
            Ok(Err(WriteError::Passing { .. } | WriteError::NotLeading)) | Err(Panicked) => {
                Sign::None
            }
            Ok(_) => Sign::Alive,
        };
        let (ticket, is_latest) = in_flight.finish(sign);
        let outcome = match answer {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => match outcome_of(&write, error) {
                Ok(outcome) => outcome,
                Err(error) => {
                    if is_latest {
                        self.try_again(ticket, write, &error, sent);
                    }
                    return;
                }
            },
            Err(Panicked) => {
                StepOutcome::Rejected("internal error, see the log of the scheduler".to_owned())
            }
        };
        self.go_on(write, outcome, is_latest);
    }

    /// Makes the calls of one step.
    async fn step(&self, write: &DecisionWrite) -> Result<StepOutcome, WriteError> {
        let context = &self.context;
        match (&write.step, &*write.decision) {
            (WriteStep::Claim(n), Decision::Bind { node, claims, .. }) => {
                volumes::bind_claim(context, node, &claims[*n]).await?;
                let is_last = n + 1 == claims.len();
                Ok(StepOutcome::GoOn(if is_last {
                    WriteStep::WaitForClaims
                } else {
                    WriteStep::Claim(n + 1)
                }))
            }
            (WriteStep::Devices(n), Decision::Bind { pod, node, devices, .. }) => {
                context.cache.lock().assumed.hold(&pod.uid, write.id);
                if !devices::reserve(context, (pod, node), &devices[*n]).await? {
                    return Ok(StepOutcome::Known);
                }
                let is_last = n + 1 == devices.len();
                let next =
                    if is_last { WriteStep::WaitForDevices } else { WriteStep::Devices(n + 1) };
                Ok(StepOutcome::GoOn(next))
            }
            (WriteStep::Release(release), Decision::Bind { pod, node, devices, .. }) => {
                let choice = &devices[release.claim];
                devices::release(context, (pod, node), choice, release.undo).await?;
                Ok(StepOutcome::after_release(release))
            }
            (WriteStep::Deallocate, Decision::Deallocate { pod, claim }) => {
                devices::deallocate(context, pod, claim).await.map(|()| StepOutcome::Known)
            }
            (
                WriteStep::Bind,
                Decision::Bind { pod, node, queue, minimum, devices, protected_until, .. },
            ) => {
                devices::map_extended_resources(context, pod, devices).await?;
                self.record_hops(write);
                let protected_until =
                    pods::protection(&context.cache.lock().store, pod, *protected_until);
                let record = pods::BindingRecord {
                    queue,
                    minimum: *minimum,
                    protected_until: protected_until.as_deref(),
                };
                pods::bind(context, pod, node, &record).await.map(|()| StepOutcome::Done)
            }
            (WriteStep::Mark, Decision::Evict { pod, cause, .. }) => {
                pods::mark_as_victim(context, pod, &writes::eviction_message(cause)).await?;
                Ok(StepOutcome::GoOn(WriteStep::Delete))
            }
            (WriteStep::Delete, Decision::Evict { pod, .. }) => {
                pods::delete(context, pod).await.map(|()| StepOutcome::Done)
            }
            (WriteStep::Read(error), decision) => {
                let found = pods::read(context, write.pod()).await?;
                Ok(match (decision, error) {
                    (Decision::Bind { node, .. }, _) if found == FoundPod::Bound(node.clone()) => {
                        StepOutcome::Done
                    }
                    (_, Some(why)) if found != FoundPod::Leaves => {
                        StepOutcome::Rejected(why.clone())
                    }
                    _ => StepOutcome::Known,
                })
            }
            (WriteStep::Confirm, _) => {
                pods::read(context, write.pod()).await.map(|_| StepOutcome::Known)
            }
            (step, decision) => unreachable!("{step:?} of {decision:?}"),
        }
    }

    /// Measures the way of a pod whose binding is sent without having waited for claims, for the first time.
    fn record_hops(&self, write: &DecisionWrite) {
        let Some(hops) = write.hops.as_ref().filter(|_| !write.attempts.has_failed()) else {
            return;
        };
        let durations = hops.durations(Instant::now());
        for (hop, duration) in durations {
            let histogram = self.context.metrics.pod_hops.get_or_create(&Hop { hop });
            histogram.observe(duration.as_secs_f64());
        }
        let [wait, snapshot, decide, queue] = durations.map(|(_, took)| took.as_micros() as u64);
        trace!(pod = %write.pod().key, wait, snapshot, decide, queue, "the binding is sent; hops in µs");
    }

    /// Continues a decision after a step.
    fn go_on(&self, mut write: DecisionWrite, outcome: StepOutcome, is_latest: bool) {
        let pod = write.pod().clone();
        match outcome {
            StepOutcome::GoOn(step) if is_latest => {
                if matches!(
                    step,
                    WriteStep::Devices(_) | WriteStep::WaitForDevices | WriteStep::Release(_)
                ) {
                    write.attempts = Attempts::default();
                }
                if step == WriteStep::WaitForDevices {
                    self.context.cache.lock().assumed.let_go(&pod.uid, write.id);
                }
                write.step = step;
                let pending = binding_conditions::pending_event(&write);
                let waits = self.take_step(write);
                pending.filter(|_| waits).into_iter().for_each(|event| self.enqueue_event(event));
            }
            StepOutcome::GoOn(_) => {}
            StepOutcome::Done => {
                self.reset_back_off(&pod);
                if let Decision::Bind { node, .. } = &*write.decision {
                    self.record_binding(&pod, write.id);
                    self.enqueue_event(writes::scheduled(&pod, node));
                }
                if is_latest {
                    let due = Instant::now() + SHOWN_TIMEOUT;
                    self.set_timer(due, Timer::ShouldBeShown(Box::new(write)));
                }
            }
            StepOutcome::Known => {
                self.context.cache.drop_decision(&pod, write.id);
            }
            StepOutcome::Rejected(why) => self.give_up(write, why, is_latest),
        }
    }

    /// Gives a decision up. What was written to its claims for devices is taken back first, so that the pod
    /// is not decided again meanwhile.
    fn give_up(&self, mut write: DecisionWrite, why: String, is_latest: bool) {
        // The claims of a pod that another component has bound are needed there, and the claim controller
        // releases those of one that is gone.
        let waits = self.context.waits(write.pod());
        let end = if is_latest && waits { write.n_reserved() } else { 0 };
        if end == 0 {
            warn!(pod.key = %write.pod().key, why, "cannot bind or evict the pod");
            return self.reject(&write, &why);
        }
        let waited = write.step == WriteStep::WaitForDevices;
        let undo = if waited { Undo::Devices } else { Undo::Reservation };
        write.step = WriteStep::Release(Release { claim: 0, end, undo, why });
        write.attempts = Attempts::default();
        self.with_queue(|queue| queue.go_on(write));
    }

    /// Enqueues the next step of a decision, or lets it wait for its claims or devices. Returns whether it
    /// waits.
    fn take_step(&self, mut write: DecisionWrite) -> bool {
        match write.step {
            WriteStep::WaitForClaims => match self.are_claims_bound(&write) {
                Ok(true) => write.step = DecisionWrite::after_claims(&write.decision),
                Ok(false) => {}
                Err(why) => {
                    self.give_up(write, why, true);
                    return false;
                }
            },
            WriteStep::WaitForDevices => match self.awaited_devices(&write) {
                Awaited::Nothing => write.step = WriteStep::Bind,
                Awaited::Until(..) => {}
                Awaited::Failed(why) => {
                    self.give_up(write, why, true);
                    return false;
                }
            },
            WriteStep::Claim(_)
            | WriteStep::Devices(_)
            | WriteStep::Bind
            | WriteStep::Release(_)
            | WriteStep::Deallocate
            | WriteStep::Mark
            | WriteStep::Delete
            | WriteStep::Read(_)
            | WriteStep::Confirm => {}
        }
        self.with_queue(|queue| queue.go_on(write))
    }

    /// Whether the claims of a binding are bound. If not, it continues when one is, or after a time. An error says which
    /// of them was deleted.
    fn are_claims_bound(&self, write: &DecisionWrite) -> Result<bool, String> {
        let Decision::Bind { pod, claims, .. } = &*write.decision else { return Ok(true) };
        {
            let mut state = self.context.cache.lock();
            if volumes::are_bound(&state, claims)? {
                return Ok(true);
            }
            state.await_claims(&pod.uid, claims);
        }
        self.set_overdue(write, CLAIMS_TIMEOUT);
        Ok(false)
    }

    /// What a binding waits for. It continues when one of its claims changes, or after a time.
    fn awaited_devices(&self, write: &DecisionWrite) -> Awaited {
        let Decision::Bind { pod, devices, .. } = &*write.decision else { return Awaited::Nothing };
        let now = self.context.clock.now();
        let awaited = {
            let mut state = self.context.cache.lock();
            let awaited = binding_conditions::awaited(&state, devices, now);
            if let Awaited::Until(..) = awaited {
                state.await_devices(&pod.uid, devices);
            }
            awaited
        };
        if let Awaited::Until(_, end) = awaited {
            self.set_overdue(
                write,
                Duration::try_from(end.duration_since(now)).unwrap_or_default(),
            );
        }
        awaited
    }

    fn set_overdue(&self, write: &DecisionWrite, after: Duration) {
        let timer = Timer::Overdue(write.pod().uid.clone(), write.id, write.step.clone());
        self.set_timer(Instant::now() + after, timer);
    }

    /// Tries a step again later that may succeed then; if it was tried for long enough, the pod is read.
    fn try_again(
        &self,
        ticket: Ticket,
        mut write: DecisionWrite,
        error: &WriteError,
        sent: Instant,
    ) {
        let now = Instant::now();
        let due = match (error, &write.step) {
            (WriteError::Passing { .. }, WriteStep::Read(_) | WriteStep::Confirm) => {
                Some(now + write.attempts.next_pause(ticket.spread()))
            }
            (WriteError::Passing { retry_after, .. }, _) => {
                write.attempts.failed(sent, now, *retry_after, ticket.spread())
            }
            _ => Some(now + NOT_LEADING_PAUSE),
        };
        if let Some(due) = due {
            self.with_queue(|queue| queue.retry_decision(ticket, write, due));
            return;
        }
        count(&self.context.metrics, write_of(&write.step), "failed");
        let why = text_of(&write, error);
        debug!(%write.id, why, "no answer, reading the pod");
        match &write.step {
            WriteStep::Claim(_) | WriteStep::Devices(_) | WriteStep::Deallocate => {
                self.go_on(write, StepOutcome::Rejected(why), true);
            }
            WriteStep::Release(release) => {
                let outcome = StepOutcome::after_release(release);
                self.go_on(write, outcome, true);
            }
            _ => self.go_on(write, StepOutcome::GoOn(WriteStep::Read(Some(why))), true),
        }
    }

    fn record_binding(&self, pod: &PodRef, id: DecisionId) {
        let created = self.context.cache.record_binding(pod, id);
        let metrics = &self.context.metrics;
        metrics.pods_placed.inc();
        metrics.schedule_attempts.get_or_create(&Ended { result: "scheduled" }).inc();
        if let Some(created) = created {
            let waited = self.context.clock.now().duration_since(created);
            metrics.task_latency.observe(waited.as_secs_f64().max(0.0) * 1e6);
        }
    }

    /// Reports a rejected decision. The cache keeps assuming it until its back-off ends, so that the
    /// scheduler does not repeat it at once.
    fn reject(&self, write: &DecisionWrite, why: &str) {
        let attempts = &self.context.metrics.schedule_attempts;
        attempts.get_or_create(&Ended { result: "error" }).inc();
        let (reason, action) = match &*write.decision {
            Decision::Evict { .. } => ("FailedEviction", "Evicting"),
            Decision::Bind { .. }
            | Decision::Nominate { .. }
            | Decision::Withdraw { .. }
            | Decision::Deallocate { .. } => ("FailedScheduling", "Scheduling"),
        };
        let pod = write.pod().clone();
        if let Decision::Bind { .. } = &*write.decision {
            self.context.cache.reject_binding(&pod, write.id);
        }
        let regarding = Regarding::Pod(pod.clone());
        let (type_, message) = (EventType::Warning, why.to_owned());
        self.enqueue_event(Event { regarding, related: None, type_, reason, action, message });
        let back_off = self.back_off.lock().unwrap_or_else(PoisonError::into_inner).next(&pod.uid);
        self.set_timer(Instant::now() + back_off, Timer::BackOffEnds(pod, write.id));
    }

    fn reset_back_off(&self, pod: &PodRef) {
        self.back_off.lock().unwrap_or_else(PoisonError::into_inner).reset(&pod.uid);
    }

    fn set_timer(&self, due: Instant, timer: Timer) {
        if self.with_queue(|queue| queue.set_timer(due, timer)) {
            self.timers.notify_one();
        }
    }

    /// Does what is due, and continues bindings whose claims are bound or whose devices may be ready.
    async fn keep_time(&self) {
        loop {
            let now = Instant::now();
            while let Some(timer) = self.with_queue(|queue| queue.expired_timer(now)) {
                // A panic is already logged and counted.
                let expire = async { self.expire(timer) };
                let _ = contain("timers", &self.context.metrics, expire).await;
            }
            let bound = self.context.cache.take_bound();
            bound.iter().for_each(|uid| self.claim_has_changed(uid));
            let due = self.with_queue(|queue| queue.next_timer());
            tokio::select! {
                biased;
                () = self.timers.notified() => {}
                () = self.context.cache.claims_bound() => {}
                () = sleep_until(due) => {}
            }
        }
    }

    fn expire(&self, timer: Timer) {
        let cache = &self.context.cache;
        match timer {
            Timer::BackOffEnds(pod, id) => {
                if !cache.end_back_off(&pod, id) {
                    self.reset_back_off(&pod);
                }
            }
            Timer::ShouldBeShown(write) => {
                let is_shown = cache.lock().is_shown(&write.pod().uid, write.id);
                if !is_shown {
                    self.context.metrics.decisions_unconfirmed.inc();
                    self.with_queue(|queue| queue.push_read(*write));
                }
            }
            Timer::Overdue(uid, id, step) => {
                if let Some(write) = self.with_queue(|queue| queue.unpark_at(&uid, id, &step)) {
                    match self.why_overdue(&write) {
                        Some(why) => self.go_on(write, StepOutcome::Rejected(why), true),
                        None => {
                            self.take_step(write);
                        }
                    }
                }
            }
        }
    }

    /// Why a binding is given up that has waited for too long; `None` if it need not wait any more.
    fn why_overdue(&self, write: &DecisionWrite) -> Option<String> {
        if let Decision::Bind { devices, .. } = &*write.decision
            && write.step == WriteStep::WaitForDevices
        {
            let now = self.context.clock.now();
            return match binding_conditions::awaited(&self.context.cache.lock(), devices, now) {
                Awaited::Nothing => None,
                Awaited::Until(claim, _) => Some(binding_conditions::timeout_of(&claim)),
                Awaited::Failed(why) => Some(why),
            };
        }
        Some(format!("its claims were not bound within {} s", CLAIMS_TIMEOUT.as_secs()))
    }

    /// Continues a binding one of whose claims has changed, if all are bound and their devices ready.
    fn claim_has_changed(&self, uid: &Name) {
        if let Some(write) = self.with_queue(|queue| queue.unpark(uid)) {
            self.take_step(write);
        }
    }

    async fn send_status(&self, in_flight: InFlight<'_>, target: Target, mut write: StatusPatch) {
        // The pod no longer waits: its status must not get an outdated reason.
        if let Target::Pod(pod) = &target
            && self.context.cache.lock().waiting(pod).is_none()
        {
            return;
        }
        let sent = Instant::now();
        let metrics = &self.context.metrics;
        let patched = status::patch(&self.context, &target, &write.patch);
        let Ok(answer) = contain("write", metrics, patched).await else { return };
        match answer {
            Ok(()) => {
                write.events.into_iter().for_each(|event| self.enqueue_event(event));
            }
            Err(WriteError::NotFound) => debug!(%target, "deleted before its status was written"),
            Err(error @ WriteError::Forbidden(_)) => {
                debug!(%target, %error, "cannot write the status");
            }
            Err(WriteError::Conflict(why)) => {
                debug!(%target, why, "the status was written by others, reading it");
                let read = contain("write", metrics, status::read(&self.context, &target));
                let _ = read.await;
                self.defer_if_writing(&target);
            }
            Err(WriteError::NotLeading) => {
                let (ticket, _) = in_flight.finish(Sign::None);
                let due = Instant::now() + NOT_LEADING_PAUSE;
                self.with_queue(|queue| queue.retry_status(ticket, target, write, due));
            }
            Err(WriteError::Passing { why, retry_after, is_general }) => {
                let sign = if is_general { Sign::None } else { Sign::Failing };
                let (ticket, _) = in_flight.finish(sign);
                let now = Instant::now();
                match write.attempts.failed(sent, now, retry_after, ticket.spread()) {
                    Some(due) => {
                        self.with_queue(|queue| queue.retry_status(ticket, target, write, due));
                    }
                    None => {
                        count(metrics, status::write_of(&target), "failed");
                        warn!(%target, why, "cannot write the status");
                    }
                }
            }
            Err(error @ WriteError::Rejected(_)) => {
                warn!(%target, %error, "cannot write the status");
            }
        }
    }

    async fn send_event(&self, in_flight: InFlight<'_>, mut write: Box<EventWrite>) {
        let Context { client, metrics, clock, .. } = &self.context;
        let number = self.n_events.fetch_add(1, Ordering::Relaxed);
        let event = events::object(&self.reporter, &write.event, clock.now(), number);
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::namespaced(client.clone(), namespace);
        let (sent, params) = (Instant::now(), PostParams::default());
        let sending = self.context.call(Write::Event, api.create(&params, &event));
        let Ok(answer) = contain("write", metrics, sending).await else { return };
        match answer {
            // The namespace no longer exists, or another event has the same name.
            Ok(_) | Err(WriteError::NotFound | WriteError::Conflict(_)) => {}
            Err(WriteError::Passing { why, retry_after, is_general }) => {
                let sign = if is_general { Sign::None } else { Sign::Failing };
                let (ticket, _) = in_flight.finish(sign);
                let now = Instant::now();
                match write.attempts.failed(sent, now, retry_after, ticket.spread()) {
                    Some(due) => self.with_queue(|queue| queue.retry_event(ticket, write, due)),
                    None => {
                        count(metrics, Write::Event, "failed");
                        debug!(reason = write.event.reason, why, "cannot send an event");
                    }
                }
            }
            Err(WriteError::NotLeading) => {
                let (ticket, _) = in_flight.finish(Sign::None);
                let due = Instant::now() + NOT_LEADING_PAUSE;
                self.with_queue(|queue| queue.retry_event(ticket, write, due));
            }
            Err(error @ (WriteError::Rejected(_) | WriteError::Forbidden(_))) => {
                debug!(reason = write.event.reason, %error, "cannot send an event");
            }
        }
    }
}

/// What an error means for a decision, unless the step is to be tried again.
fn outcome_of(write: &DecisionWrite, error: WriteError) -> Result<StepOutcome, WriteError> {
    match (&error, &write.step) {
        (WriteError::Passing { .. } | WriteError::NotLeading, _) => Err(error),
        (_, WriteStep::Release(release)) => {
            debug!(%write.id, %error, "cannot release a claim for devices");
            Ok(StepOutcome::after_release(release))
        }
        // A conflict may be with our own write whose answer was lost.
        (
            WriteError::NotFound | WriteError::Conflict(_),
            WriteStep::Bind | WriteStep::Mark | WriteStep::Delete,
        ) => {
            debug!(%write.id, %error, "the write failed, reading the pod");
            Ok(StepOutcome::GoOn(WriteStep::Read(None)))
        }
        // An earlier attempt may have been done, and its answer lost.
        (
            WriteError::Rejected(_) | WriteError::Forbidden(_),
            WriteStep::Bind | WriteStep::Mark | WriteStep::Delete,
        ) if write.attempts.has_failed() => {
            debug!(%write.id, %error, "the write was rejected after another attempt, reading the pod");
            Ok(StepOutcome::GoOn(WriteStep::Read(Some(text_of(write, &error)))))
        }
        (
            WriteError::NotFound
            | WriteError::Conflict(_)
            | WriteError::Rejected(_)
            | WriteError::Forbidden(_),
            _,
        ) => Ok(StepOutcome::Rejected(text_of(write, &error))),
    }
}

/// The text of the event about a decision that failed.
fn text_of(write: &DecisionWrite, error: &WriteError) -> String {
    match (&write.step, &*write.decision) {
        (WriteStep::Claim(_) | WriteStep::Devices(_), _) => error.to_string(),
        (_, Decision::Bind { node, .. }) => format!("cannot bind to {node}: {error}"),
        (_, Decision::Evict { .. }) => format!("cannot evict: {error}"),
        (_, Decision::Deallocate { .. }) => format!("cannot deallocate: {error}"),
        (_, Decision::Nominate { .. } | Decision::Withdraw { .. }) => error.to_string(),
    }
}

/// The kind of write, as it is counted.
const fn write_of(step: &WriteStep) -> Write {
    match step {
        WriteStep::Claim(_) | WriteStep::WaitForClaims => Write::Volume,
        WriteStep::Devices(_)
        | WriteStep::WaitForDevices
        | WriteStep::Release(_)
        | WriteStep::Deallocate => Write::ResourceClaim,
        WriteStep::Bind | WriteStep::Read(_) | WriteStep::Confirm => Write::Bind,
        WriteStep::Mark | WriteStep::Delete => Write::Evict,
    }
}

/// Sleeps until a time; without one it never returns.
async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// A guard for a write in flight. Dropping it marks the write as finished, however it ended.
struct InFlight<'e> {
    effects: &'e Effects,
    class: WriteClass,
    ticket: Option<Ticket>,
    of: Of,
}

/// What is in flight.
enum Of {
    Decision(PodRef),
    Status(Target),
    Event,
}

impl<'e> InFlight<'e> {
    fn new(effects: &'e Effects, class: WriteClass, ticket: Ticket, taken: &Taken) -> Self {
        let of = match taken {
            Taken::Decision(write) => Of::Decision(write.pod().clone()),
            Taken::Status(target, _) => Of::Status(target.clone()),
            Taken::Event(_) => Of::Event,
        };
        Self { effects, class, ticket: Some(ticket), of }
    }

    /// Ends it; the write may be tried again with the ticket. Also returns whether there is no newer
    /// decision about the same pod.
    fn finish(mut self, sign: Sign) -> (Ticket, bool) {
        let ticket = self.ticket.take().expect("it is finished once");
        let is_latest = self.end(&ticket, sign);
        (ticket, is_latest)
    }

    fn end(&self, ticket: &Ticket, sign: Sign) -> bool {
        let now = Instant::now();
        let (is_latest, is_wanted) = self.effects.with_queue(|queue| {
            self.effects.workers[self.class as usize].wake_pending.store(true, Ordering::Relaxed);
            queue.finish(self.class, ticket, sign, now);
            match &self.of {
                Of::Decision(pod) => (queue.sent(pod), false),
                // Another write of this status may have been wanted meanwhile.
                Of::Status(target) => (true, queue.answered(target)),
                Of::Event => (true, false),
            }
        });
        if is_wanted {
            self.effects.write_statuses();
        }
        is_latest
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.end(&ticket, Sign::Alive);
        }
    }
}
