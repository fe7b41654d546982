//! A scheduler that leads, without an API server.

use jiff::Timestamp;
use kube_batch_cache::{
    assumed::Assumed, live::LiveSnapshot, snapshot::SnapshotOptions, store::Store,
};
use kube_batch_framework::{candidates::Search, memory::Memory, report::Cycle};
use kube_batch_scheduler::{
    conf::{Conf, parse},
    registry::Registry,
};

/// A scheduler that leads. The test applies changes to `store` and carries out the decisions.
#[derive(Debug)]
pub struct Leader {
    /// What it has seen in the API server.
    pub store: Store,
    /// Its decisions that it has not seen carried out yet.
    pub assumed: Assumed,
    conf: Conf,
    live: LiveSnapshot,
    memory: Memory,
}

impl Leader {
    /// A leader with an empty store and this memory.
    ///
    /// # Panics
    ///
    /// If the configuration is wrong.
    pub fn new(configuration: &str, memory: Memory) -> Self {
        Self {
            store: Store::default(),
            assumed: Assumed::default(),
            conf: parse(configuration, &Registry::builtin()).expect("a configuration").conf,
            live: LiveSnapshot::default(),
            memory,
        }
    }

    /// Runs a cycle.
    pub fn cycle(&mut self, now: Timestamp, options: &SnapshotOptions) -> Cycle {
        self.assumed.settle(&self.store);
        let snapshot = self.live.refresh(&mut self.store, &mut self.assumed, options);
        let (cycle, cluster) = self.conf.run_next_cycle(
            snapshot.cluster,
            now,
            Search::Index,
            &mut self.memory,
            &mut |_| {},
        );
        self.live.keep(cluster);
        cycle
    }
}
