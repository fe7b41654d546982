//! Cycles: when one runs, and what becomes of what it decided.
//!
//! A cycle starts when something changed that a decision can depend on, and never while another
//! runs. It runs off the async threads, over a picture of its own; the store is locked only while
//! that is made.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::bail;
use jiff::{SignedDuration, Timestamp};
use kube_batch_actions::action;
use kube_batch_cache::{
    assumed::Assumed,
    fold::{self, Ignored, SnapshotOptions},
};
use kube_batch_framework::{
    candidates::Search,
    conf::Conf,
    cycle::{Action, run_cycle},
    milestone::Milestone,
    report::Cycle,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    health::Health,
    metrics::{self, Ended, Kind, Metrics, Phase},
    scheduler_cache::SchedulerCache,
    status_writer::StatusWriter,
};

/// A decision without an answer is given up after so long: longer than calls are sent again and a
/// penalty lasts.
const ANSWER_DEADLINE: SignedDuration = SignedDuration::from_secs(120);
/// Part of a core that cycles may take while changes keep coming: one ninth is spent deciding, the
/// rest is left to the API server's answers.
const REST_FACTOR: u32 = 8;
/// The shortest pause between cycles; changes of that time are looked at together.
const SHORTEST_REST: Duration = Duration::from_millis(10);
/// The longest pause, however long a cycle takes, while changes wait.
const LONGEST_REST: Duration = Duration::from_secs(1);
/// How long after the last cycle one runs that has nothing to decide and something to tell: bindings
/// were answered as expected, which counts for statuses, or a status was written a moment ago.
const TELL_REST: Duration = Duration::from_secs(1);
/// The same, while decisions wait to be sent: what it would tell waits behind them.
const BUSY_TELL_REST: Duration = Duration::from_secs(5);
/// Cycles abandoned in a row after which the process ends.
const MAX_ABANDONED: u32 = 3;
/// How often labels and templates that no pod has any more are given back.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);

/// Runs cycles while this replica leads.
pub(crate) struct Scheduler {
    pub(crate) cache: Arc<SchedulerCache>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) options: SnapshotOptions,
    pub(crate) conf: watch::Receiver<Arc<Conf>>,
    pub(crate) leads: watch::Receiver<bool>,
    /// A cycle is due after so long at the latest, if anything changed or waits.
    pub(crate) period: Duration,
    pub(crate) status_writer: StatusWriter,
}

/// What the last cycle looked at.
#[derive(Clone, Copy)]
struct Seen {
    version: u64,
    /// When the cycle ended.
    at: Instant,
}

/// What a cycle leaves.
struct Done {
    cycle: Cycle,
    ignored: Vec<Ignored>,
    version: u64,
    took: Duration,
}

impl Scheduler {
    /// Runs until `stop` is cancelled.
    ///
    /// # Errors
    ///
    /// If cycle after cycle had to be abandoned: a rule of the house is broken, and the process
    /// should start anew.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut seen = None;
        let mut n_abandoned = 0;
        let mut swept = Instant::now();
        while stop.run_until_cancelled(self.wait(seen)).await.is_some() {
            let started = Instant::now();
            self.health.set_cycle(Some(started));
            let done = self.decide().await;
            self.health.set_cycle(None);
            let took = started.elapsed();
            match done {
                Ok(done) => {
                    n_abandoned = 0;
                    seen = Some(Seen { version: done.version, at: Instant::now() });
                    self.hand_on(done);
                    self.metrics.cycles.get_or_create(&Ended { result: "done" }).inc();
                }
                Err(panic) => {
                    n_abandoned += 1;
                    error!(panic = %panic, n_abandoned, "a cycle was abandoned");
                    self.metrics.cycles.get_or_create(&Ended { result: "abandoned" }).inc();
                    if n_abandoned == MAX_ABANDONED {
                        bail!("{n_abandoned} cycles in a row had to be abandoned");
                    }
                }
            }
            if swept.elapsed() > SWEEP_PERIOD {
                self.cache.lock().store.sweep();
                swept = Instant::now();
            }
            let rest = (took * REST_FACTOR).clamp(SHORTEST_REST, LONGEST_REST);
            if stop.run_until_cancelled(tokio::time::sleep(rest)).await.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Waits until a cycle is due: this replica leads, every list is complete, and something
    /// changed since the version that was last seen.
    async fn wait(&mut self, seen: Option<Seen>) {
        loop {
            if !*self.leads.borrow_and_update() {
                // Whoever led before knew what was in flight; now the facts are all there is.
                if self.leads.changed().await.is_err() {
                    // The elector is gone, and the process is about to end.
                    std::future::pending::<()>().await;
                }
                self.cache.lock().assumed = Assumed::default();
                self.status_writer.forget();
                self.cache.wake();
                continue;
            }
            if self.cache.is_synced() && self.is_due(seen) {
                return;
            }
            let rested = seen.map(|seen| seen.at + self.tell_rest());
            let pause = pause(Instant::now(), self.period, self.status_writer.due(), rested);
            tokio::select! {
                () = self.cache.changed() => {}
                () = tokio::time::sleep(pause) => {}
                Ok(()) = self.conf.changed() => self.cache.wake(),
                Ok(()) = self.leads.changed() => {}
            }
        }
    }

    fn is_due(&self, seen: Option<Seen>) -> bool {
        let mut state = self.cache.lock();
        let n_expired = state.settle(Timestamp::now(), ANSWER_DEADLINE, &self.metrics);
        if n_expired > 0 {
            warn!(n_expired, "decisions were given up, as no answer came");
            self.metrics.decisions_expired.inc_by(n_expired as u64);
            return true;
        }
        let Some(seen) = seen.filter(|seen| seen.version == state.version) else { return true };
        let has_to_tell = state.has_confirmed
            || self.status_writer.due().is_some_and(|due| due <= Instant::now());
        has_to_tell && seen.at.elapsed() >= self.tell_rest()
    }

    fn tell_rest(&self) -> Duration {
        if self.status_writer.is_sending() { BUSY_TELL_REST } else { TELL_REST }
    }

    /// Runs one cycle on a thread of its own.
    async fn decide(&self) -> Result<Done, tokio::task::JoinError> {
        let (cache, metrics) = (Arc::clone(&self.cache), Arc::clone(&self.metrics));
        let (options, conf) = (self.options.clone(), Arc::clone(&self.conf.borrow()));
        tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let (snapshot, version) = {
                let mut state = cache.lock();
                state.has_confirmed = false;
                (fold::snapshot(&state.store, &state.assumed, &options), state.version)
            };
            let folded = started.elapsed();
            note_sizes(&metrics, &snapshot.cluster);
            let actions: Vec<Box<dyn Action>> = conf
                .actions
                .iter()
                .map(|name| action(name).expect("a configuration names known actions"))
                .collect();
            let policy = kube_batch_plugins::policy(&conf);
            let mut reached = Instant::now();
            let cycle =
                run_cycle(snapshot.cluster, policy, &actions, Search::Index, &mut |milestone| {
                    let micros = reached.elapsed().as_secs_f64() * 1e6;
                    match milestone {
                        Milestone::PluginOpened(plugin) => {
                            let plugin = metrics::Plugin { plugin, OnSession: "OnSessionOpen" };
                            metrics.plugin_latency.get_or_create(&plugin).observe(micros);
                        }
                        Milestone::Acted(action) => {
                            let action = metrics::Action { action };
                            metrics.action_latency.get_or_create(&action).observe(micros);
                        }
                        Milestone::Validated | Milestone::Opened | Milestone::Closed => {}
                    }
                    reached = Instant::now();
                });
            let took = started.elapsed();
            metrics.e2e_latency.observe(took.as_secs_f64() * 1e3);
            for (phase, time) in [("fold", folded), ("decide", took - folded)] {
                metrics.cycle_phases.get_or_create(&Phase { phase }).observe(time.as_secs_f64());
            }
            Done { cycle, ignored: snapshot.ignored, version, took }
        })
        .await
    }

    fn hand_on(&mut self, done: Done) {
        // Whoever lost the lease meanwhile has nothing to say.
        if !*self.leads.borrow() {
            return;
        }
        let started = Instant::now();
        let n_decisions = done.cycle.decisions.len();
        self.status_writer.take(&done.cycle, &done.ignored);
        let dispatch = Phase { phase: "dispatch" };
        let took = started.elapsed();
        self.metrics.cycle_phases.get_or_create(&dispatch).observe(took.as_secs_f64());
        let cycle_ms = done.took.as_millis();
        if n_decisions > 0 {
            info!(n_decisions, cycle_ms, "decided");
        } else {
            debug!(cycle_ms, "nothing to decide");
        }
    }
}

/// How long nothing needs to be asked, if nothing changes: until what was put off is due, if a cycle
/// may tell it by then. What was confirmed and what has expired is looked for all the same.
fn pause(
    now: Instant,
    period: Duration,
    put_off: Option<Instant>,
    rested: Option<Instant>,
) -> Duration {
    let until = |moment: Instant| moment.saturating_duration_since(now);
    let due = put_off.map_or(period, until).max(rested.map_or(Duration::ZERO, until));
    due.min(period).clamp(SHORTEST_REST, TELL_REST)
}

fn note_sizes(metrics: &Metrics, cluster: &kube_batch_api::cluster::Cluster) {
    for (kind, n_objects) in [
        ("nodes", cluster.nodes.facts.len()),
        ("queues", cluster.queues.facts.len()),
        ("jobs", cluster.jobs.key.len()),
        ("tasks", cluster.tasks.facts.len()),
        ("task_classes", cluster.classes.template.len()),
    ] {
        let n_objects = i64::try_from(n_objects).unwrap_or(i64::MAX);
        metrics.snapshot_objects.get_or_create(&Kind { kind }).set(n_objects);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_overdue_waits_for_the_rest_without_spinning() {
        let now = Instant::now() + Duration::from_secs(60);
        let after = |millis| Some(now + Duration::from_millis(millis));
        let period = Duration::from_millis(800);
        let millis = |put_off, rested| pause(now, period, put_off, rested).as_millis();
        let past = Some(now - Duration::from_secs(1));
        assert_eq!(millis(None, past), 800, "nothing is to be told");
        assert_eq!(millis(after(300), past), 300);
        assert_eq!(millis(past, after(200)), 200, "overdue, and still to rest");
        assert_eq!(millis(past, past), 10);
        assert_eq!(millis(past, after(5000)), 800);
        assert_eq!(pause(now, Duration::from_secs(60), None, None), TELL_REST);
    }
}
