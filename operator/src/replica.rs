//! A replica of the scheduler without a process around it, for programs that simulate several of them.
//!
//! It is the code of `kube-batch run` from the API server's answers on; time, chance and the connection
//! are those of the simulation. It has to run on a [`LocalSet`](tokio::task::LocalSet).

use std::{collections::BTreeMap, rc::Rc, sync::Arc};

use anyhow::{Context, anyhow};
use clap::Parser;
use futures::future::LocalBoxFuture;
use kube::Client;
use kube_batch_cache::{assumed::Assumed, store::Store};
use kube_batch_scheduler::{
    conf::{self, Conf},
    registry::Registry,
};

pub use crate::run::{clock::Clock, retry_after::with_retry_after};
use crate::{
    args::{Cli, Command, RunArgs},
    run::{
        audit_log::AuditLog, conf_file, cycle::CycleRunner, metrics::Metrics, replica,
        replica::ReplicaEnvironment, scheduler_cache::SchedulerCache, supervisor::Supervisor,
        term::Terms,
    },
};

/// What a replica takes from a simulation.
pub struct Surroundings {
    /// The API server.
    pub client: Client,
    /// The name of this process in the lease, in events and in transition ids; unique.
    pub identity: String,
    /// The time of day.
    pub clock: Clock,
    /// A cycle takes no time by itself; its decisions are known after this.
    pub end_of_cycle: Rc<dyn Fn() -> LocalBoxFuture<'static, ()>>,
    /// The text of the configuration file as it is when it is read, or why it cannot be read.
    pub configuration: Rc<dyn Fn() -> Result<String, String>>,
}

/// A replica that does not run yet.
pub struct Replica {
    args: Box<RunArgs>,
    conf: Conf,
    /// The text of `conf`.
    text: String,
    source: conf_file::ConfSource,
    registry: Registry,
    replica: replica::RunningReplica,
}

impl Replica {
    /// A replica with the flags of `kube-batch run`.
    ///
    /// # Errors
    ///
    /// If a flag or the configuration is not valid.
    pub fn new(
        flags: &[&str],
        registry: &Registry,
        surroundings: Surroundings,
    ) -> anyhow::Result<Self> {
        let arguments = ["kube-batch", "run"].iter().chain(flags);
        let Command::Run(args) = Cli::try_parse_from(arguments).context("flags")?.command else {
            return Err(anyhow!("the flags name another command"));
        };
        let Surroundings { client, identity, clock, end_of_cycle, configuration } = surroundings;
        let text = configuration().map_err(|why| anyhow!(why))?;
        let read = conf::parse(&text, registry).map_err(|problems| anyhow!("{problems:?}"))?;
        let (steady, cycles) = (client.clone(), CycleRunner::Inline(end_of_cycle));
        let terms = Terms::new(clock.clone());
        let environment =
            ReplicaEnvironment { steady, writes: client, terms, identity, clock, cycles };
        let metrics = Arc::new(Metrics::new());
        let replica = replica::RunningReplica::new(&args, registry, environment, metrics);
        let (source, registry) =
            (conf_file::ConfSource::Simulated(configuration), registry.clone());
        Ok(Self { args, conf: read.conf, text, source, registry, replica })
    }

    /// A view of what the replica knows, which stays valid while it runs.
    pub fn view(&self) -> View {
        View { cache: Arc::clone(&self.replica.cache), metrics: Arc::clone(&self.replica.metrics) }
    }

    /// Runs until `stop` completes, and then sends what was decided and releases the lease.
    ///
    /// # Errors
    ///
    /// If the scheduling loop or a required background task ends by itself.
    pub async fn run(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let Self { args, conf, text, source, registry, replica } = self;
        let metrics = Arc::clone(&replica.metrics);
        let mut tasks = Supervisor::new(Arc::clone(&metrics));
        let conf = conf_file::follow(source, conf, text, &registry, (&metrics, &mut tasks));
        replica.run(&args, conf, AuditLog::default(), tasks, stop).await
    }
}

/// What a replica knows.
#[derive(Clone)]
pub struct View {
    cache: Arc<SchedulerCache>,
    metrics: Arc<Metrics>,
}

impl View {
    /// Looks at the facts and the decisions in flight.
    pub fn with<T>(&self, look: impl FnOnce(&Store, &Assumed) -> T) -> T {
        let state = self.cache.lock();
        look(&state.store, &state.assumed)
    }

    /// Kinds without a complete list, with the last error of their watch.
    pub fn unsynced(&self) -> BTreeMap<&'static str, Option<String>> {
        self.cache.unsynced()
    }

    /// The metrics, as they are served.
    pub fn metrics(&self) -> String {
        self.metrics.text()
    }
}
