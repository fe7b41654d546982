//! `kube-batch run`: schedules the pods of a cluster.
//!
//! Watches fill the scheduler cache, cycles read it and decide, effects send what was decided and
//! store the answers in the cache. Each of these is a task of its own; the cache is all they share.

pub(crate) mod audit_log;
pub(crate) mod claim_waits;
pub(crate) mod clock;
pub(crate) mod conf_file;
mod connect;
mod credentials;
pub(crate) mod cycle;
mod cycle_log;
mod decision_writer;
mod default_queue;
mod device_holders;
mod effects;
pub(crate) mod error;
mod exposition;
#[cfg(test)]
pub(crate) mod fake_api;
mod fence;
mod forming;
mod guard;
mod health;
mod hops;
mod http;
mod lease;
mod logging;
pub(crate) mod metrics;
mod pace;
mod permission;
pub(crate) mod replica;
mod report_metrics;
pub(crate) mod retry_after;
pub(crate) mod scheduler_cache;
mod status_writer;
pub(crate) mod supervisor;
pub(crate) mod term;
mod throttle;
pub(crate) mod watch;

use std::sync::Arc;

use anyhow::{Context, bail};
use kube_batch_cli::{
    Exit,
    conf::{ReadConf, read_conf},
    terminal,
};
use kube_batch_scheduler::{conf::Conf, registry::Registry};
use tokio::{
    net::TcpListener,
    runtime::LocalOptions,
    signal::unix::{SignalKind, signal},
    sync::watch as channel,
};
use tracing::info;

use self::{
    audit_log::AuditLog,
    clock::Clock,
    connect::Clients,
    cycle::CycleRunner,
    http::Answers,
    metrics::Metrics,
    replica::{ReplicaEnvironment, RunningReplica},
    supervisor::Supervisor,
    term::Terms,
};
use crate::args::RunArgs;

/// Runs the command.
pub(crate) fn run(args: &RunArgs, registry: &Registry) -> anyhow::Result<Exit> {
    logging::start(args);
    let problems = args.problems();
    if !problems.is_empty() {
        problems.iter().for_each(|problem| terminal::error(problem));
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

async fn serve(args: &RunArgs, read: ReadConf, registry: &Registry) -> anyhow::Result<Exit> {
    let metrics = Arc::new(Metrics::new());
    let audit = match &args.audit_log {
        Some(path) => AuditLog::open(path, &metrics.audit_lines_lost)?,
        None => AuditLog::default(),
    };
    let listener = match args.listen_address.as_str() {
        "" => None,
        address => Some(http::listen(address).await?),
    };
    let clock = Clock::system();
    let terms = Terms::new(clock.clone());
    let Clients { steady, writes, credentials } = Clients::new(args, &terms).await?;
    let mut tasks = Supervisor::new(Arc::clone(&metrics));
    let (identity, cycles) = (identity(), CycleRunner::Thread);
    let environment = ReplicaEnvironment { steady, writes, terms, identity, clock, cycles };
    let replica = RunningReplica::new(args, registry, environment, metrics);
    if let Some(listener) = listener {
        start_http(args, &replica, listener, &mut tasks);
    }
    let path =
        args.config.as_ref().map_or("built-in".to_owned(), |path| path.display().to_string());
    conf_file::log_conf(&path, &read.conf, "using the configuration");
    let conf = follow_conf(args, read, registry, &replica.metrics, &mut tasks);
    tokio::select! {
        ended = replica.run(args, conf, audit, tasks, stop_signal()) => ended?,
        () = credentials.expired() => bail!(
            "the API server has rejected the credentials (401 Unauthorized) for 30 s: they may have expired; \
             kube-batch reads them when it starts"
        ),
    }
    info!("stopped");
    Ok(Exit::Ok)
}

fn start_http(
    args: &RunArgs,
    replica: &RunningReplica,
    listener: TcpListener,
    tasks: &mut Supervisor,
) {
    let answers = Answers {
        metrics: Arc::clone(&replica.metrics),
        cache: Arc::clone(&replica.cache),
        health: Arc::clone(&replica.health),
        debug: args.debug_snapshot,
        rendered: http::RenderedMetrics::default(),
        snapshots: http::Snapshots::default(),
    };
    // Required: without it the kubelet's probes fail and it restarts the process, only later.
    tasks.spawn_required("http", http::serve(listener, answers));
}

/// The configuration that was read, and whatever its file holds later.
fn follow_conf(
    args: &RunArgs,
    read: ReadConf,
    registry: &Registry,
    metrics: &Arc<Metrics>,
    tasks: &mut Supervisor,
) -> channel::Receiver<Arc<Conf>> {
    let ReadConf { conf, text, .. } = read;
    let Some(path) = args.config.clone() else {
        metrics.config_valid.set(1);
        return channel::channel(Arc::new(conf)).1;
    };
    let source = conf_file::ConfSource::File(path);
    conf_file::follow(source, conf, text, registry, (metrics, tasks))
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
