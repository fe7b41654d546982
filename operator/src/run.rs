//! `kube-batch run`: the scheduler of a cluster.
//!
//! Watches fill the mirror, cycles read it and decide, effects send what was decided and answer to
//! the mirror. Each of these is a task of its own; the only thing they share is the mirror.

mod conf_file;
mod connect;
mod cycle;
mod default_queue;
mod effects;
#[cfg(test)]
mod fake_api;
mod guard;
mod health;
mod http;
mod lease;
mod logging;
mod metrics;
mod mirror;
mod outcome;
mod throttle;
mod watch;

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use kube::runtime::events::Reporter;
use kube_batch_api::name::Name;
use kube_batch_cache::fold::SnapshotOptions;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch as channel,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::{
    conf_file::ConfFile, connect::Clients, cycle::Scheduler, effects::Effects, health::Health,
    http::Answers, lease::Election, metrics::Metrics, mirror::Mirror, outcome::Outbox,
};
use crate::{
    Ending,
    args::RunArgs,
    conf::{ReadConf, read_conf},
};

/// Threads that speak with the API server; cycles run on one of their own. One is enough for
/// thousands of calls a second, and needs no waking of one by another for each of them.
const N_TALKERS: usize = 1;

/// How long decisions that were taken before the end may still be sent. Below the 30 s that
/// Kubernetes gives a pod to end.
const DRAIN: Duration = Duration::from_secs(20);

/// Runs the command.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Ending> {
    logging::start(args);
    let problems = args.problems();
    if !problems.is_empty() {
        problems.iter().for_each(|problem| crate::terminal::error(problem));
        return Ok(Ending::Wrong);
    }
    let Some(conf) = read_conf(args.config.as_deref())? else { return Ok(Ending::Wrong) };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(N_TALKERS)
        .enable_all()
        .build()
        .context("cannot start threads")?;
    runtime.block_on(serve(args, conf))
}

async fn serve(args: &RunArgs, read: ReadConf) -> anyhow::Result<Ending> {
    let metrics = Arc::new(Metrics::new());
    let listener = match args.listen_address.as_str() {
        "" => None,
        address => Some(http::listen(address).await?),
    };
    let Clients { steady, writes } = Clients::new(args).await?;
    let identity = identity();
    let mirror = Arc::new(Mirror::new(&watch::kinds(args.priority_class), Arc::clone(&metrics)));
    let health = Arc::new(Health::default());
    let reporter =
        Reporter { controller: args.scheduler_name.clone(), instance: Some(identity.clone()) };
    let effects = Effects::new(writes.clone(), reporter, Arc::clone(&mirror), Arc::clone(&metrics));
    let election = Election::start(args, &steady, &identity, &metrics);

    let mut tasks = watch::start(&steady, &mirror, &metrics, args.priority_class);
    if let Some(listener) = listener {
        let answers = Answers {
            metrics: Arc::clone(&metrics),
            mirror: Arc::clone(&mirror),
            health: Arc::clone(&health),
            debug: args.debug_snapshot,
        };
        tasks.spawn(http::serve(listener, answers));
    }
    let confs = channel::Sender::new(Arc::new(read.conf));
    metrics.config_valid.set(1);
    if let Some(path) = &args.config {
        let file = ConfFile::new(path.clone(), read.text);
        tasks.spawn(file.follow(confs.clone(), Arc::clone(&metrics)));
    }
    tasks.spawn(work_while_leading(
        Arc::clone(&effects),
        election.leads(),
        args.max_concurrent_writes,
        Arc::clone(&metrics),
    ));
    if args.create_default_queue {
        tasks.spawn(default_queue::provide(
            writes,
            args.default_queue.clone(),
            Arc::clone(&mirror),
            Arc::clone(&metrics),
            election.leads(),
        ));
    }
    let scheduler = Scheduler {
        outbox: Outbox::new(
            Arc::clone(&mirror),
            Arc::clone(&effects),
            Arc::clone(&metrics),
            identity,
        ),
        mirror,
        metrics,
        health,
        options: snapshot_options(args),
        conf: confs.subscribe(),
        leads: election.leads(),
        period: args.schedule_period,
    };
    let ended = run_until_told(scheduler, &effects).await;
    election.end().await;
    tasks.shutdown().await;
    ended?;
    info!("stopped");
    Ok(Ending::Good)
}

fn snapshot_options(args: &RunArgs) -> SnapshotOptions {
    SnapshotOptions {
        scheduler_name: Name::from(args.scheduler_name.as_str()),
        default_queue: Name::from(args.default_queue.as_str()),
        priority_class: args.priority_class,
    }
}

/// Runs cycles until a signal comes, and then sends what was decided.
async fn run_until_told(scheduler: Scheduler, effects: &Effects) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let mut cycles = tokio::spawn(scheduler.run(stop.clone()));
    tokio::select! {
        ended = &mut cycles => return ended.context("the scheduling loop has panicked")?,
        () = told_to_stop() => {}
    }
    info!("told to stop: what was decided is still sent");
    stop.cancel();
    cycles.await.context("the scheduling loop has panicked")??;
    if !effects.drain(DRAIN).await {
        warn!("not everything that was decided could be sent");
    }
    Ok(())
}

/// Sends decisions while this replica leads, and not a moment longer.
async fn work_while_leading(
    effects: Arc<Effects>,
    mut leading: channel::Receiver<bool>,
    n_workers: usize,
    metrics: Arc<Metrics>,
) {
    loop {
        if leading.wait_for(|leads| *leads).await.map(drop).is_err() {
            return;
        }
        metrics.leader.set(1);
        let term = CancellationToken::new();
        let mut workers: JoinSet<()> = effects.start(n_workers, &term);
        let _ = leading.wait_for(|leads| !*leads).await.map(drop);
        term.cancel();
        workers.shutdown().await;
        effects.clear();
        metrics.leader.set(0);
    }
}

async fn told_to_stop() {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        // Without handlers the signals end the process by themselves.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Who this process is: the pod's name where there is one, and a part that no other process has.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let host = host.or_else(|| std::fs::read_to_string("/etc/hostname").ok());
    format!("{}_{}", host.unwrap_or_default().trim(), uuid::Uuid::new_v4())
}
