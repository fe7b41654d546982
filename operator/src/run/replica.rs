//! One replica of the scheduler: what runs between the API server and the configuration.
//!
//! A replica takes everything it needs from outside, so that a simulation can run several of them in
//! one process, on time that it controls.

use std::{
    hash::{DefaultHasher, Hasher},
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context as _, bail};
use kube::Client;
use kube_batch_cache::{snapshot::SnapshotOptions, store::Store};
use kube_batch_cli::scheduler_names;
use kube_batch_framework::candidates::Search;
use kube_batch_scheduler::{conf::Conf, core::Core, registry::Registry};
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    audit_log::AuditLog,
    clock::Clock,
    cycle::{CycleRunner, Scheduler},
    cycle_log::QueueLog,
    decision_writer::DecisionWriter,
    default_queue,
    effects::{Effects, claim_locks::ClaimLocks, context::Context, events::Reporter},
    health::Health,
    lease::{Election, Elector},
    metrics::Metrics,
    pace::Pace,
    report_metrics::ReportMetrics,
    scheduler_cache::SchedulerCache,
    status_writer::StatusWriter,
    supervisor::Supervisor,
    term::Terms,
    watch::{self as watches, Handler, WatchSource},
};
use crate::args::RunArgs;

/// How long a cycle and pending writes may take after a signal to stop. With the release of the lease it
/// is shorter than the 30 s that Kubernetes gives a pod to terminate.
const DRAIN: Duration = Duration::from_secs(20);

/// What a replica takes from outside.
pub(crate) struct ReplicaEnvironment {
    /// For watches and the lease, which must never wait behind a burst of writes.
    pub(crate) steady: Client,
    /// For writes.
    pub(crate) writes: Client,
    /// When this replica leads: not before the election has begun.
    pub(crate) terms: Terms,
    /// Who the replica is, in the lease, in events and in transition ids. Unique for each process.
    pub(crate) identity: String,
    pub(crate) clock: Clock,
    pub(crate) cycles: CycleRunner,
}

/// A replica that does not run yet.
pub(crate) struct RunningReplica {
    environment: ReplicaEnvironment,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) cache: Arc<SchedulerCache>,
    pub(crate) health: Arc<Health>,
}

impl RunningReplica {
    /// A replica with an empty cache.
    pub(crate) fn new(
        args: &RunArgs,
        registry: &Registry,
        environment: ReplicaEnvironment,
        metrics: Arc<Metrics>,
    ) -> Self {
        let store = Store::new(registry.metadata_prefixes());
        let kinds = selection(args).kinds();
        let cache = Arc::new(SchedulerCache::new(store, &kinds, Arc::clone(&metrics)));
        Self { environment, metrics, cache, health: Arc::default() }
    }

    /// Runs until `stop` completes, and then sends what was decided and releases the lease.
    ///
    /// # Errors
    ///
    /// If the scheduling loop or a required background task ends by itself: the process must end.
    pub(crate) async fn run(
        self,
        args: &RunArgs,
        conf: watch::Receiver<Arc<Conf>>,
        audit: AuditLog,
        mut tasks: Supervisor,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let cache = Arc::clone(&self.cache);
        tasks.spawn_restarted("sweep", move || Arc::clone(&cache).sweep_forever());
        let ReplicaEnvironment { steady, terms, identity, clock, .. } = &self.environment;
        let elector = Elector::from_args(args, steady, identity, &self.metrics, clock);
        let election = Election::start(elector, terms.clone(), &mut tasks);
        election.tried().await;
        self.start_watches(args, &election, &mut tasks);
        let effects = self.effects(args, election.terms());
        self.start_writers(&effects, election.terms(), &mut tasks);
        if args.create_default_queue {
            self.start_default_queue(args, &election, &mut tasks);
        }
        let scheduler = self.scheduler(args, &effects, election.terms(), conf, audit);
        let ended = run_until_stopped(scheduler, &effects, &mut tasks, stop).await;
        election.end(ended.as_ref().is_ok_and(|all_is_answered| *all_is_answered)).await;
        tasks.shutdown().await;
        ended.map(drop)
    }

    fn start_watches(&self, args: &RunArgs, election: &Election, tasks: &mut Supervisor) {
        let ReplicaEnvironment { steady, identity, clock, .. } = &self.environment;
        let (cache, metrics) = (Arc::clone(&self.cache), Arc::clone(&self.metrics));
        let handler = Handler { cache, metrics, clock: clock.clone() };
        let client = steady.clone();
        let source = WatchSource { client, terms: election.terms(), seed: seed(identity) };
        watches::start(&source, &handler, &selection(args), tasks);
    }

    fn effects(&self, args: &RunArgs, terms: Terms) -> Arc<Effects> {
        let ReplicaEnvironment { writes, identity, clock, .. } = &self.environment;
        let context = Context {
            client: writes.clone(),
            cache: Arc::clone(&self.cache),
            metrics: Arc::clone(&self.metrics),
            terms,
            clock: clock.clone(),
            claim_locks: ClaimLocks::default(),
        };
        let (controller, instance) = (args.scheduler_names[0].to_string(), identity.clone());
        Effects::new(context, Reporter { controller, instance }, args.max_concurrent_writes)
    }

    fn start_writers(&self, effects: &Arc<Effects>, terms: Terms, tasks: &mut Supervisor) {
        let (effects, metrics) = (Arc::clone(effects), Arc::clone(&self.metrics));
        // Restarted: what is queued is kept.
        tasks.spawn_restarted("writers", move || {
            write_while_leading(Arc::clone(&effects), terms.clone(), Arc::clone(&metrics))
        });
    }

    fn start_default_queue(&self, args: &RunArgs, election: &Election, tasks: &mut Supervisor) {
        let (client, name) = (self.environment.writes.clone(), args.default_queue.clone());
        let (cache, metrics) = (Arc::clone(&self.cache), Arc::clone(&self.metrics));
        let terms = election.terms();
        cache.await_queue(Some(name.clone()));
        // It returns when the queue exists; restarted if it panics before that.
        tasks.spawn_until_done("default-queue", move || {
            let (cache, metrics) = (Arc::clone(&cache), Arc::clone(&metrics));
            default_queue::provide(client.clone(), name.clone(), cache, metrics, terms.clone())
        });
    }

    fn scheduler(
        &self,
        args: &RunArgs,
        effects: &Arc<Effects>,
        terms: Terms,
        conf: watch::Receiver<Arc<Conf>>,
        audit: AuditLog,
    ) -> Scheduler {
        let core = Core::new(Arc::clone(&conf.borrow()), snapshot_options(args), Search::Index);
        Scheduler {
            decisions: DecisionWriter::new(Arc::clone(effects)),
            statuses: StatusWriter::new(Arc::clone(effects)),
            audit,
            queues: QueueLog::default(),
            identity: self.environment.identity.clone(),
            n_cycles: 0,
            report: ReportMetrics::new(Arc::clone(&self.metrics), args.max_job_metrics),
            effects: Arc::clone(effects),
            cache: Arc::clone(&self.cache),
            metrics: Arc::clone(&self.metrics),
            health: Arc::clone(&self.health),
            conf,
            terms,
            term: None,
            started: Instant::now(),
            core: Arc::new(Mutex::new(core)),
            pace: Pace::new(Instant::now()),
            period: args.schedule_period,
            clock: self.environment.clock.clone(),
            runner: self.environment.cycles.clone(),
        }
    }
}

fn selection(args: &RunArgs) -> watches::Selection {
    let (priority_class, without) = (args.priority_class, args.without_apis.clone());
    watches::Selection { priority_class, without }
}

fn snapshot_options(args: &RunArgs) -> SnapshotOptions {
    SnapshotOptions {
        scheduler_names: scheduler_names(&args.scheduler_names),
        default_queue: args.default_queue.clone(),
        priority_class: args.priority_class,
    }
}

/// Runs cycles until `stop` completes, and then sends what was decided. Returns whether all of it was answered.
///
/// # Errors
///
/// If the scheduling loop or a required background task ends by itself: the process must end.
async fn run_until_stopped(
    scheduler: Scheduler,
    effects: &Effects,
    tasks: &mut Supervisor,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<bool> {
    let stop_cycles = CancellationToken::new();
    let _stop = stop_cycles.clone().drop_guard();
    let mut cycles = tokio::task::spawn_local(scheduler.run(stop_cycles.clone()));
    tokio::select! {
        biased;
        ended = &mut cycles => {
            ended.context("the scheduling loop panicked")??;
            bail!("the scheduling loop ended unexpectedly");
        }
        error = tasks.failed() => return Err(error),
        () = stop => {}
    }
    info!("received a signal to stop, draining pending writes");
    stop_cycles.cancel();
    let drain = async {
        let started = Instant::now();
        match tokio::time::timeout(DRAIN, cycles).await {
            Ok(ended) => ended.context("the scheduling loop panicked")??,
            Err(_) => warn!("a cycle is still running, its decisions are not sent"),
        }
        let is_drained = effects.drain(DRAIN.saturating_sub(started.elapsed())).await;
        if !is_drained {
            warn!("could not send all pending writes in time");
        }
        Ok(is_drained)
    };
    tokio::select! {
        biased;
        drained = drain => drained,
        error = tasks.failed() => Err(error),
    }
}

/// Runs the workers while this replica leads, and no longer. Returns if a worker does.
async fn write_while_leading(effects: Arc<Effects>, terms: Terms, metrics: Arc<Metrics>) {
    loop {
        let Some(term) = terms.number() else {
            terms.changed_from(None).await;
            continue;
        };
        metrics.leader.set(1);
        let stop = CancellationToken::new();
        let mut workers: JoinSet<()> = effects.start(&stop);
        let is_worker_lost = tokio::select! {
            biased;
            () = terms.changed_from(Some(term)) => false,
            _ = workers.join_next() => true,
        };
        stop.cancel();
        workers.shutdown().await;
        if is_worker_lost {
            return;
        }
        effects.clear();
        metrics.leader.set(0);
    }
}

/// A number that is different for each process.
fn seed(identity: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(identity.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use kube_batch_model::{decision::PodRef, name::ObjectKey};
    use kube_batch_scheduler::writes::{Event, EventType, Regarding};

    use super::*;
    use crate::{
        args::{Cli, Command},
        run::{fake_api::FakeApi, term::Term},
    };

    /// The effects of a replica, and a server for them.
    fn effects(metrics: &Arc<Metrics>, terms: Terms) -> (Arc<Effects>, FakeApi) {
        let api = FakeApi::default();
        let context = Context {
            client: api.client(),
            cache: Arc::new(SchedulerCache::new(Store::default(), &["nodes"], Arc::clone(metrics))),
            metrics: Arc::clone(metrics),
            terms,
            clock: Clock::system(),
            claim_locks: ClaimLocks::default(),
        };
        let reporter = Reporter { controller: "kube-batch".to_owned(), instance: "me".to_owned() };
        (Effects::new(context, reporter, 2), api)
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn writes_are_sent_only_while_this_replica_leads() {
        let metrics = Arc::new(Metrics::new());
        let terms = Terms::default();
        let (effects, api) = effects(&metrics, terms.clone());
        let (writes, receiver) = (Arc::clone(&effects), terms.clone());
        let writing = write_while_leading(writes, receiver, Arc::clone(&metrics));
        tokio::task::spawn_local(writing);
        let event = || Event {
            regarding: Regarding::Pod(PodRef { uid: "a".into(), key: ObjectKey::new("ns", "a") }),
            related: None,
            type_: EventType::Normal,
            reason: "Reason",
            action: "Acting",
            message: "text".to_owned(),
        };
        let mut n_sent = Vec::new();
        for is_leader in [false, true, false, true] {
            effects.enqueue_event(event());
            terms.set(is_leader.then_some(Term::FOREVER));
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(metrics.leader.get(), i64::from(is_leader));
            n_sent.push(api.sent().len());
        }
        // The first two wait for the first term; the third is removed with the end of it.
        assert_eq!(n_sent, [0, 2, 2, 3]);
        effects.enqueue_event(event());
        terms.set(None);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(effects.drain(Duration::ZERO).await, "nothing is left to the next term");
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_required_task_that_ends_ends_the_process_with_an_error() {
        let (confs, terms) = (watch::Sender::default(), Terms::default());
        let metrics = Arc::new(Metrics::new());
        let (effects, _) = effects(&metrics, terms.clone());
        let command = Cli::try_parse_from(["kube-batch", "run"]).expect("the defaults").command;
        let Command::Run(args) = command else { panic!("not the command run") };
        let (clock, client) = (Clock::system(), effects.context.client.clone());
        let (steady, identity, cycles) = (client.clone(), "me".to_owned(), CycleRunner::Thread);
        let environment = ReplicaEnvironment {
            steady,
            writes: client,
            terms: terms.clone(),
            identity,
            clock,
            cycles,
        };
        let registry = Registry::builtin();
        let replica = RunningReplica::new(&args, &registry, environment, Arc::clone(&metrics));
        let (conf, terms) = (confs.subscribe(), terms.clone());
        let scheduler = replica.scheduler(&args, &effects, terms, conf, AuditLog::default());
        let mut tasks = Supervisor::new(metrics);
        tasks.spawn_required("http", tokio::time::sleep(Duration::from_secs(60)));
        let started = tokio::time::Instant::now();
        let ended =
            run_until_stopped(scheduler, &effects, &mut tasks, std::future::pending()).await;
        let error = ended.expect_err("the task has ended").to_string();
        assert_eq!(error, "the background task http ended unexpectedly");
        assert_eq!(started.elapsed().as_secs(), 60);
    }
}
