//! `kube-batch run`: schedules the pods of a cluster.
//!
//! Watches fill the scheduler cache, cycles read it and decide, effects send what was decided and
//! store the answers in the cache. Each of these is a task of its own; the cache is all they share.

mod audit_log;
pub(crate) mod clock;
mod conf_file;
mod connect;
mod cycle;
mod cycle_log;
mod decision_writer;
mod default_queue;
mod effects;
pub(crate) mod error;
mod exposition;
#[cfg(test)]
pub(crate) mod fake_api;
mod guard;
mod health;
mod http;
mod lease;
mod logging;
mod metrics;
mod permission;
mod report_metrics;
mod scheduler_cache;
mod status_writer;
mod supervisor;
mod throttle;
pub(crate) mod watch;

use std::{
    hash::{DefaultHasher, Hasher},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use kube::Client;
use kube_batch_api::name::Name;
use kube_batch_cache::{snapshot::SnapshotOptions, store::Store};
use kube_batch_scheduler::{conf::Conf, registry::Registry};
use tokio::{
    net::TcpListener,
    runtime::LocalOptions,
    signal::unix::{SignalKind, signal},
    sync::watch as channel,
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::{
    audit_log::AuditLog,
    clock::Clock,
    conf_file::ConfFile,
    connect::Clients,
    cycle::Scheduler,
    cycle_log::QueueLog,
    decision_writer::DecisionWriter,
    effects::{Effects, context::Context, events::Reporter},
    health::Health,
    http::Answers,
    lease::{Election, Elector, Terms, term_changed},
    metrics::Metrics,
    report_metrics::ReportMetrics,
    scheduler_cache::SchedulerCache,
    status_writer::StatusWriter,
    supervisor::Supervisor,
    watch::{Handler, Source},
};
use crate::{
    args::RunArgs,
    conf::{ReadConf, read_conf},
    exit::Exit,
};

/// How long a cycle and pending writes may take after a signal to stop. With the release of the lease it
/// is shorter than the 30 s that Kubernetes gives a pod to terminate.
const DRAIN: Duration = Duration::from_secs(20);

/// Runs the command.
pub(crate) fn run(args: &RunArgs, registry: &Registry) -> anyhow::Result<Exit> {
    logging::start(args);
    let problems = args.problems();
    if !problems.is_empty() {
        problems.iter().for_each(|problem| crate::terminal::error(problem));
        return Ok(Exit::Usage);
    }
    let Some(conf) = read_conf(args.config.as_deref(), registry)? else { return Ok(Exit::Usage) };
    // One thread for all calls to the API server: it is enough for thousands of them a second, and
    // spares the wake-ups between threads. Cycles run on a thread of their own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .context("cannot start the runtime")?;
    let ended = runtime.block_on(serve(args, conf, registry));
    // A cycle that still runs is not waited for: what it decides is not wanted any more.
    runtime.shutdown_background();
    ended
}

/// What the parts of the process share.
struct Shared {
    metrics: Arc<Metrics>,
    cache: Arc<SchedulerCache>,
    health: Arc<Health>,
    /// Who this process is, in the lease, in events and in transition ids.
    identity: String,
    clock: Clock,
}

async fn serve(args: &RunArgs, read: ReadConf, registry: &Registry) -> anyhow::Result<Exit> {
    let audit = args.audit_log.as_deref().map(AuditLog::open).transpose()?.unwrap_or_default();
    let metrics = Arc::new(Metrics::new());
    let listener = match args.listen_address.as_str() {
        "" => None,
        address => Some(http::listen(address).await?),
    };
    let Clients { steady, writes } = Clients::new(args).await?;
    let mut tasks = Supervisor::new(Arc::clone(&metrics));
    let shared = Shared::new(args, Store::new(registry.metadata_prefixes()), metrics);
    let cache = Arc::clone(&shared.cache);
    tasks.spawn_restarted("sweep", move || Arc::clone(&cache).sweep_forever());
    if let Some(listener) = listener {
        start_http(args, &shared, listener, &mut tasks);
    }
    let path =
        args.config.as_ref().map_or("built-in".to_owned(), |path| path.display().to_string());
    conf_file::log_conf(&path, &read.conf, "using the configuration");
    let conf = follow_conf(args, read, registry, &shared, &mut tasks);
    let Shared { identity, metrics, clock, .. } = &shared;
    let elector = Elector::from_args(args, &steady, identity, metrics, clock);
    let election = Election::start(elector, &mut tasks);
    election.tried().await;
    start_watches(args, &shared, &election, steady, &mut tasks);
    let effects = shared.effects(args, writes.clone(), election.terms());
    start_writers(&effects, &shared, &election, &mut tasks);
    if args.create_default_queue {
        start_default_queue(args, &shared, &election, writes, &mut tasks);
    }
    let scheduler = shared.scheduler(args, Arc::clone(&effects), conf, election.terms(), audit);
    let ended = run_until_stopped(scheduler, &effects, &mut tasks).await;
    election.end().await;
    tasks.shutdown().await;
    ended?;
    info!("stopped");
    Ok(Exit::Ok)
}

impl Shared {
    fn new(args: &RunArgs, store: Store, metrics: Arc<Metrics>) -> Self {
        let kinds = watch::kinds(args.priority_class);
        let cache = Arc::new(SchedulerCache::new(store, &kinds, Arc::clone(&metrics)));
        let (identity, clock) = (identity(), Clock::system());
        Self { metrics, cache, health: Arc::default(), identity, clock }
    }

    fn effects(&self, args: &RunArgs, client: Client, terms: Terms) -> Arc<Effects> {
        let context = Context {
            client,
            cache: Arc::clone(&self.cache),
            metrics: Arc::clone(&self.metrics),
            terms,
            clock: self.clock.clone(),
        };
        let (controller, instance) = (args.scheduler_name.clone(), self.identity.clone());
        Effects::new(context, Reporter { controller, instance }, args.max_concurrent_writes)
    }

    fn scheduler(
        &self,
        args: &RunArgs,
        effects: Arc<Effects>,
        conf: channel::Receiver<Arc<Conf>>,
        terms: Terms,
        audit: AuditLog,
    ) -> Scheduler {
        let (cache, metrics) = (Arc::clone(&self.cache), Arc::clone(&self.metrics));
        Scheduler {
            decisions: DecisionWriter::new(Arc::clone(&effects)),
            statuses: StatusWriter::new(Arc::clone(&effects)),
            audit,
            queues: QueueLog::default(),
            identity: self.identity.clone(),
            n_cycles: 0,
            report: ReportMetrics::new(Arc::clone(&metrics), args.max_job_metrics),
            effects,
            cache,
            metrics,
            health: Arc::clone(&self.health),
            options: snapshot_options(args),
            conf,
            terms,
            term: None,
            period: args.schedule_period,
            clock: self.clock.clone(),
        }
    }
}

fn start_watches(
    args: &RunArgs,
    shared: &Shared,
    election: &Election,
    client: Client,
    tasks: &mut Supervisor,
) {
    let (cache, metrics) = (Arc::clone(&shared.cache), Arc::clone(&shared.metrics));
    let handler = Handler { cache, metrics, clock: shared.clock.clone() };
    let source = Source { client, terms: election.terms(), seed: seed(&shared.identity) };
    watch::start(&source, &handler, args.priority_class, tasks);
}

fn start_http(args: &RunArgs, shared: &Shared, listener: TcpListener, tasks: &mut Supervisor) {
    let answers = Answers {
        metrics: Arc::clone(&shared.metrics),
        cache: Arc::clone(&shared.cache),
        health: Arc::clone(&shared.health),
        debug: args.debug_snapshot,
    };
    // Required: without it the kubelet's probes fail and it restarts the process, only later.
    tasks.spawn_required("http", http::serve(listener, answers));
}

/// The configuration that was read, and whatever its file holds later.
fn follow_conf(
    args: &RunArgs,
    read: ReadConf,
    registry: &Registry,
    shared: &Shared,
    tasks: &mut Supervisor,
) -> channel::Receiver<Arc<Conf>> {
    let (confs, conf) = channel::channel(Arc::new(read.conf));
    shared.metrics.config_valid.set(1);
    if let Some(path) = args.config.clone() {
        let (metrics, mut text) = (Arc::clone(&shared.metrics), Some(read.text));
        let registry = registry.clone();
        // Restarted: a file that breaks its reader leaves the configuration in force, as any faulty
        // one does. The text is that of the start only once; later it is not known which is used.
        tasks.spawn_restarted("config", move || {
            let file = ConfFile::new(path.clone(), text.take(), registry.clone());
            file.follow(confs.clone(), Arc::clone(&metrics))
        });
    }
    conf
}

fn start_writers(
    effects: &Arc<Effects>,
    shared: &Shared,
    election: &Election,
    tasks: &mut Supervisor,
) {
    let (effects, metrics) = (Arc::clone(effects), Arc::clone(&shared.metrics));
    let terms = election.terms();
    // Restarted: what is queued is kept.
    tasks.spawn_restarted("writers", move || {
        write_while_leading(Arc::clone(&effects), terms.clone(), Arc::clone(&metrics))
    });
}

fn start_default_queue(
    args: &RunArgs,
    shared: &Shared,
    election: &Election,
    client: Client,
    tasks: &mut Supervisor,
) {
    let (name, terms) = (args.default_queue.clone(), election.terms());
    let (cache, metrics) = (Arc::clone(&shared.cache), Arc::clone(&shared.metrics));
    // It returns when the queue exists; restarted if it panics before that.
    tasks.spawn_until_done("default-queue", move || {
        let (cache, metrics) = (Arc::clone(&cache), Arc::clone(&metrics));
        default_queue::provide(client.clone(), name.clone(), cache, metrics, terms.clone())
    });
}

fn snapshot_options(args: &RunArgs) -> SnapshotOptions {
    SnapshotOptions {
        scheduler_name: Name::from(args.scheduler_name.as_str()),
        default_queue: Name::from(args.default_queue.as_str()),
        priority_class: args.priority_class,
    }
}

/// Runs cycles until a signal comes, and then sends what was decided.
///
/// # Errors
///
/// If the scheduling loop or a required background task ends by itself: the process must end.
async fn run_until_stopped(
    scheduler: Scheduler,
    effects: &Effects,
    tasks: &mut Supervisor,
) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let mut cycles = tokio::task::spawn_local(scheduler.run(stop.clone()));
    tokio::select! {
        ended = &mut cycles => {
            ended.context("the scheduling loop panicked")??;
            bail!("the scheduling loop ended unexpectedly");
        }
        error = tasks.failed() => return Err(error),
        () = stop_signal() => {}
    }
    info!("received a signal to stop, draining pending writes");
    stop.cancel();
    let drain = async {
        let started = Instant::now();
        match tokio::time::timeout(DRAIN, cycles).await {
            Ok(ended) => ended.context("the scheduling loop panicked")??,
            Err(_) => warn!("a cycle is still running, its decisions are not sent"),
        }
        if !effects.drain(DRAIN.saturating_sub(started.elapsed())).await {
            warn!("could not send all pending writes in time");
        }
        Ok(())
    };
    tokio::select! {
        drained = drain => drained,
        error = tasks.failed() => Err(error),
    }
}

/// Runs the workers while this replica leads, and no longer. Returns if a worker does.
async fn write_while_leading(effects: Arc<Effects>, mut terms: Terms, metrics: Arc<Metrics>) {
    loop {
        let Some(term) = lease::number(&terms) else {
            term_changed(&mut terms, None).await;
            continue;
        };
        metrics.leader.set(1);
        let stop = CancellationToken::new();
        let mut workers: JoinSet<()> = effects.start(&stop);
        let is_worker_lost = tokio::select! {
            () = term_changed(&mut terms, Some(term)) => false,
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

async fn stop_signal() {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        // Without handlers the signals end the process.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// The identity of this process: the host name, which is the pod's name, and a unique part.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let host = host.or_else(|| std::fs::read_to_string("/etc/hostname").ok());
    format!("{}_{}", host.unwrap_or_default().trim(), uuid::Uuid::new_v4())
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
    use kube_batch_api::{decision::PodRef, name::ObjectKey};
    use kube_batch_scheduler::writes::{Event, EventType, Regarding};

    use super::*;
    use crate::{
        args::{Cli, Command},
        run::{fake_api::FakeApi, lease::Term},
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
        };
        let reporter = Reporter { controller: "kube-batch".to_owned(), instance: "me".to_owned() };
        (Effects::new(context, reporter, 2), api)
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn writes_are_sent_only_while_this_replica_leads() {
        let metrics = Arc::new(Metrics::new());
        let terms = channel::Sender::new(None);
        let (effects, api) = effects(&metrics, terms.subscribe());
        let (writes, receiver) = (Arc::clone(&effects), terms.subscribe());
        let writing = write_while_leading(writes, receiver, Arc::clone(&metrics));
        tokio::task::spawn_local(writing);
        let event = || Event {
            regarding: Regarding::Pod(PodRef { uid: "a".into(), key: ObjectKey::new("ns", "a") }),
            type_: EventType::Normal,
            reason: "Reason",
            action: "Acting",
            message: "text".to_owned(),
        };
        let mut n_sent = Vec::new();
        for is_leader in [false, true, false, true] {
            effects.enqueue_event(event());
            terms.send_replace(is_leader.then_some(Term::FOREVER));
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(metrics.leader.get(), i64::from(is_leader));
            n_sent.push(api.sent().len());
        }
        // The first two wait for the first term; the third is removed with the end of it.
        assert_eq!(n_sent, [0, 2, 2, 3]);
        effects.enqueue_event(event());
        terms.send_replace(None);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(effects.drain(Duration::ZERO).await, "nothing is left to the next term");
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_required_task_that_ends_ends_the_process_with_an_error() {
        let (confs, terms) = (channel::Sender::default(), channel::Sender::new(None));
        let metrics = Arc::new(Metrics::new());
        let (effects, _) = effects(&metrics, terms.subscribe());
        let command = Cli::try_parse_from(["kube-batch", "run"]).expect("the defaults").command;
        let Command::Run(args) = command else { panic!("not the command run") };
        let shared = Shared::new(&args, Store::default(), Arc::clone(&metrics));
        let (conf, terms) = (confs.subscribe(), terms.subscribe());
        let audit = AuditLog::default();
        let scheduler = shared.scheduler(&args, Arc::clone(&effects), conf, terms, audit);
        let mut tasks = Supervisor::new(metrics);
        tasks.spawn_required("http", tokio::time::sleep(Duration::from_secs(60)));
        let started = tokio::time::Instant::now();
        let ended = run_until_stopped(scheduler, &effects, &mut tasks).await;
        let error = ended.expect_err("the task has ended").to_string();
        assert_eq!(error, "the background task http ended unexpectedly");
        assert_eq!(started.elapsed().as_secs(), 60);
    }
}
