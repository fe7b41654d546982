//! The scheduling loop: when a cycle runs, and what happens with its decisions.
//!
//! A cycle starts when something changed that a decision can depend on, and never while another
//! runs. It runs outside the async threads, over a copy of the cache, which is locked only while some
//! changes are copied.

use std::{
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::bail;
use futures::future::LocalBoxFuture;
use kube_batch_cache::mirror::Mirror;
use kube_batch_framework::report::Cycle;
use kube_batch_model::decision::Decision;
use kube_batch_scheduler::{
    conf::Conf,
    core::{Core, CycleInput, CyclePoint, Writes},
    writes::eviction_events,
};
use tokio::{
    sync::{oneshot, watch},
    task::{JoinError, JoinHandle},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, trace};

use super::{
    audit_log::AuditLog,
    clock::Clock,
    cycle_log::{QueueLog, decided, log_cycle},
    decision_writer::{CycleDecisions, DecisionWriter},
    effects::Effects,
    forming::Forming,
    health::Health,
    hops::CycleHops,
    metrics::{Ended, Metrics},
    pace::Pace,
    report_metrics::ReportMetrics,
    scheduler_cache::SchedulerCache,
    status_writer::StatusWriter,
    term::Terms,
};

/// The shortest time between checks whether a cycle is due, if nothing changes.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// The shortest pause before a cycle that has only statuses to write: bindings were confirmed as
/// expected, which changes counts, or the throttle had put off a status.
const STATUS_REST: Duration = Duration::from_secs(1);
/// The shortest pause before a cycle that has only statuses to write while decisions wait to be sent: the statuses
/// would wait behind them.
const BUSY_STATUS_REST: Duration = Duration::from_secs(5);
/// The process ends after this many abandoned cycles in a row.
const MAX_ABANDONED: u32 = 3;

/// Where cycles run.
#[derive(Clone)]
pub(crate) enum CycleRunner {
    /// On a thread of their own, as calls to the API server go on meanwhile.
    Thread,
    /// On the thread of everything else; their decisions are known after the future that this makes. For
    /// simulations.
    Inline(Rc<dyn Fn() -> LocalBoxFuture<'static, ()>>),
}

/// Runs cycles while this replica leads.
pub(crate) struct Scheduler {
    pub(crate) cache: Arc<SchedulerCache>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) conf: watch::Receiver<Arc<Conf>>,
    pub(crate) terms: Terms,
    /// Maximum time between checks whether a cycle is due.
    pub(crate) period: Duration,
    pub(crate) decisions: DecisionWriter,
    pub(crate) statuses: StatusWriter,
    pub(crate) report: ReportMetrics,
    pub(crate) audit: AuditLog,
    pub(crate) queues: QueueLog,
    /// Who this process is, in the ids of cycles.
    pub(crate) identity: String,
    /// Number of cycles that were started.
    pub(crate) n_cycles: u64,
    pub(crate) effects: Arc<Effects>,
    pub(crate) clock: Clock,
    pub(crate) runner: CycleRunner,
    /// The term that was begun last.
    pub(crate) term: Option<u64>,
    /// When the process started.
    pub(crate) started: Instant,
    /// What is kept from cycle to cycle.
    pub(crate) core: Arc<Mutex<Core>>,
    pub(crate) pace: Pace,
}

/// The last cycle.
#[derive(Clone, Copy)]
struct LastCycle {
    /// The version of the cache that its snapshot was taken at.
    version: u64,
    ended: Instant,
    /// When another one is due even if nothing changes.
    next_due: Option<Instant>,
}

/// What a cycle needs, on its way to a thread of its own.
struct Inputs {
    cache: Arc<SchedulerCache>,
    metrics: Arc<Metrics>,
    conf: Arc<Conf>,
    core: Arc<Mutex<Core>>,
    /// The time since the process started.
    elapsed: Duration,
    clock: Clock,
    cycle_id: String,
}

/// What a cycle decided and reported.
struct Finished {
    cycle: Cycle,
    /// What is to be written besides, as the snapshot was.
    writes: Writes,
    /// The jobs that lack pods.
    forming: Forming,
    version: u64,
    /// The time until all was decided.
    duration: Duration,
}

/// A cycle that runs, or has run on this thread; `None` if a list has begun since it was due.
enum RunningCycle {
    Thread(JoinHandle<Option<Finished>>),
    Ended(Box<Option<Finished>>),
}

impl RunningCycle {
    async fn finished(self) -> Result<Option<Finished>, JoinError> {
        match self {
            Self::Thread(cycle) => cycle.await,
            Self::Ended(finished) => Ok(*finished),
        }
    }
}

impl Scheduler {
    /// Runs until `stop` is cancelled.
    ///
    /// # Errors
    ///
    /// If [`MAX_ABANDONED`] cycles in a row panicked: an invariant is broken, and a new process may
    /// repair it.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut last = None;
        let mut n_abandoned = 0;
        while stop.run_until_cancelled(self.wait(last)).await.is_some() {
            let started = Instant::now();
            self.n_cycles += 1;
            self.health.set_cycle(Some(started));
            let result = self.decide().await;
            self.health.set_cycle(None);
            self.pace.ran(started, Instant::now(), self.effects.has_pending_decisions());
            match result {
                Ok(None) => continue,
                Ok(Some(finished)) => {
                    n_abandoned = 0;
                    let next_due = finished.cycle.next_due.map(|after| started + after);
                    let (version, ended) = (finished.version, Instant::now());
                    last = Some(LastCycle { version, ended, next_due });
                    self.dispatch(finished).await;
                    self.metrics.cycles.get_or_create(&Ended { result: "done" }).inc();
                }
                Err(panic) => {
                    n_abandoned += 1;
                    self.record_abandoned(&panic, n_abandoned)?;
                }
            }
            let rested = tokio::time::sleep_until(self.pace.rested());
            if stop.run_until_cancelled(rested).await.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn record_abandoned(&self, panic: &JoinError, n_abandoned: u32) -> anyhow::Result<()> {
        error!(%panic, n_abandoned, "abandoned a cycle");
        lock(&self.core).forget_cycles();
        self.metrics.cycles.get_or_create(&Ended { result: "abandoned" }).inc();
        if n_abandoned == MAX_ABANDONED {
            bail!("abandoned {n_abandoned} cycles in a row");
        }
        Ok(())
    }

    /// Waits until a cycle is due: this replica leads, every list is complete, the default queue is not
    /// being created, and something changed since the last cycle.
    async fn wait(&mut self, last: Option<LastCycle>) {
        loop {
            let term = self.terms.number();
            let Some(number) = term else {
                if self.term.take().is_some() {
                    self.cache.end_term();
                }
                self.terms.changed_from(None).await;
                continue;
            };
            if self.term != term {
                self.term = term;
                self.cache.begin_term(number);
                lock(&self.core).forget();
                self.statuses.reset();
            }
            if self.cache.is_ready() && self.is_due(last) {
                return;
            }
            self.report.record_due(Instant::now());
            let rested = last.map(|last| last.ended + self.status_rest());
            let pause = pause(Instant::now(), self.period, self.statuses.due(), rested);
            tokio::select! {
                biased;
                () = self.cache.changed() => {}
                () = tokio::time::sleep(pause) => {}
                Ok(()) = self.conf.changed() => self.cache.wake(),
                () = self.terms.changed_from(term) => {}
            }
        }
    }

    fn is_due(&self, last: Option<LastCycle>) -> bool {
        let mut state = self.cache.lock();
        state.settle_some();
        let Some(last) = last.filter(|last| last.version == state.version) else { return true };
        if last.next_due.is_some_and(|due| due <= Instant::now()) {
            return true;
        }
        let has_statuses =
            state.wants_statuses || self.statuses.due().is_some_and(|due| due <= Instant::now());
        has_statuses && last.ended.elapsed() >= self.status_rest()
    }

    fn status_rest(&self) -> Duration {
        if self.effects.has_pending_decisions() { BUSY_STATUS_REST } else { STATUS_REST }
    }

    /// Runs one cycle, and sends what it decides before it has ended; `None` if a list has begun since it was due.
    async fn decide(&self) -> Result<Option<Finished>, JoinError> {
        let (sender, decided) = oneshot::channel();
        let cycle = self.start_cycle(sender).await;
        // Without an answer it has ended without decisions.
        if let Ok(decided) = decided.await
            && self.terms.number() == self.term
        {
            self.decisions.write(decided).await;
        }
        cycle.finished().await
    }

    async fn start_cycle(&self, decided: oneshot::Sender<CycleDecisions>) -> RunningCycle {
        let inputs = Inputs {
            cache: Arc::clone(&self.cache),
            metrics: Arc::clone(&self.metrics),
            conf: Arc::clone(&self.conf.borrow()),
            core: Arc::clone(&self.core),
            elapsed: self.started.elapsed(),
            clock: self.clock.clone(),
            cycle_id: self.cycle_id(),
        };
        match &self.runner {
            CycleRunner::Thread => {
                RunningCycle::Thread(tokio::task::spawn_blocking(move || inputs.decide(decided)))
            }
            CycleRunner::Inline(end) => {
                let finished = inputs.decide(decided);
                end().await;
                RunningCycle::Ended(Box::new(finished))
            }
        }
    }

    /// Enqueues the statuses that follow from a cycle, and logs and counts what it decided.
    async fn dispatch(&mut self, finished: Finished) {
        // What was decided in another term must not be written, even if this replica leads again: the
        // one that led meanwhile may have decided otherwise.
        if self.terms.number() != self.term {
            return;
        }
        let started = Instant::now();
        let Finished { cycle, writes, forming, duration, .. } = finished;
        self.cache.lock().forming = forming;
        self.log(&cycle, duration);
        self.decisions.report(writes.remarks);
        self.statuses.write(writes.statuses, started).await;
        self.report.count(&cycle, self.clock.now());
        self.report.record_later(cycle);
        self.metrics.observe_phase("dispatch", started.elapsed());
    }

    /// The id of the cycle at hand.
    fn cycle_id(&self) -> String {
        format!("{}-{}", self.identity, self.n_cycles)
    }

    /// Logs what a cycle decided, with the job of each decision.
    fn log(&mut self, cycle: &Cycle, duration: Duration) {
        let decisions = &cycle.decisions;
        self.queues.log(cycle);
        let decided = decided(cycle);
        self.audit.write(self.clock.now(), &self.cycle_id(), &decided);
        log_cycle(cycle, &decided);
        let count = |is_counted: fn(&Decision) -> bool| {
            decisions.iter().filter(|decision| is_counted(decision)).count()
        };
        let bindings = count(|decision| matches!(decision, Decision::Bind { .. }));
        let evictions = count(|decision| matches!(decision, Decision::Evict { .. }));
        if decisions.is_empty() {
            debug!(?duration, "scheduling cycle finished without decisions");
        } else {
            info!(bindings, evictions, ?duration, "scheduling cycle finished");
        }
    }
}

impl Inputs {
    /// Runs a cycle, unless a list has begun since it was due: a part of it may be stored already.
    fn decide(&self, decided: oneshot::Sender<CycleDecisions>) -> Option<Finished> {
        let started = Instant::now();
        let (mut mirror, begun) = self.cache.mirror(|state| {
            let is_synced = state.is_synced();
            state.wants_statuses &= !is_synced;
            is_synced.then(|| (state.version, state.begin_cycle()))
        });
        let (version, arrived) = begun?;
        let Mirror { store, assumed } = &mut *mirror;
        let now = self.clock.now();
        let mut core = lock(&self.core);
        core.set_conf(Arc::clone(&self.conf));
        let mut snapshot = started;
        let mut duration = Duration::ZERO;
        let mut send = Some((decided, arrived));
        let mut reached = started;
        let input = CycleInput { store, assumed, now, elapsed: self.elapsed };
        let outcome = core.cycle(input, &mut |progress| {
            match progress {
                CyclePoint::Snapshot(cluster) => {
                    snapshot = Instant::now();
                    self.metrics.observe_sizes(cluster);
                }
                CyclePoint::Decided(decisions, store) => {
                    let decided = Instant::now();
                    duration = decided - started;
                    if let Some((sender, arrived)) = send.take() {
                        let hops = CycleHops { arrived, began: started, snapshot, decided };
                        // If the process ends, there is no receiver any more.
                        drop(sender.send(CycleDecisions {
                            decisions: decisions.to_vec(),
                            evictions: eviction_events(decisions, store),
                            hops: Some(Arc::new(hops)),
                        }));
                    }
                }
                CyclePoint::Session(milestone) => {
                    self.metrics.observe_milestone(milestone, reached.elapsed());
                    trace!(?milestone, after = ?reached.elapsed(), "the cycle has reached a milestone");
                }
            }
            reached = Instant::now();
        });
        let writes = outcome.writes(store, assumed, &self.cycle_id, self.clock.now());
        let cycle = outcome.cycle;
        self.metrics.e2e_latency.observe(duration.as_secs_f64() * 1e3);
        let folded = snapshot - started;
        self.metrics.observe_phase("fold", folded);
        self.metrics.observe_phase("decide", duration.saturating_sub(folded));
        self.metrics.observe_phase("report", started.elapsed().saturating_sub(duration));
        let forming = Forming::of(cycle.unsettled_jobs());
        Some(Finished { cycle, writes, forming, version, duration })
    }
}

/// Locks what only one cycle at a time uses.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long to wait before checking again whether a cycle is due, if nothing changes: until a status
/// that was put off is due and a cycle may write it. Bounded, as confirmed decisions wake nothing.
fn pause(
    now: Instant,
    period: Duration,
    put_off: Option<Instant>,
    rested: Option<Instant>,
) -> Duration {
    let until = |moment: Instant| moment.saturating_duration_since(now);
    let due = put_off.map_or(period, until).max(rested.map_or(Duration::ZERO, until));
    due.min(period).clamp(SHORTEST_PAUSE, STATUS_REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overdue_status_waits_for_the_rest_without_spinning() {
        let now = Instant::now() + Duration::from_secs(60);
        let after = |millis| Some(now + Duration::from_millis(millis));
        let period = Duration::from_millis(800);
        let millis = |put_off, rested| pause(now, period, put_off, rested).as_millis();
        let past = Some(now - Duration::from_secs(1));
        assert_eq!(millis(None, past), 800, "no status is put off");
        assert_eq!(millis(after(300), past), 300);
        assert_eq!(millis(past, after(200)), 200, "overdue, and still to rest");
        assert_eq!(millis(past, past), 10);
        assert_eq!(millis(past, after(5000)), 800);
        assert_eq!(pause(now, Duration::from_secs(60), None, None), STATUS_REST);
    }
}
