//! A scheduler that leads, without an API server.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube_batch_cache::{assumed::Assumed, snapshot::SnapshotOptions, store::Store};
use kube_batch_framework::{candidates::Search, memory::Memory, report::Cycle};
use kube_batch_scheduler::{
    conf::parse,
    core::{Core, CycleInput},
    registry::Registry,
};

/// A scheduler that leads. The test applies changes to `store` and carries out the decisions.
#[derive(Debug)]
pub struct Leader {
    /// What it has seen in the API server.
    pub store: Store,
    /// Its decisions that it has not seen carried out yet.
    pub assumed: Assumed,
    core: Core,
}

impl Leader {
    /// A leader with an empty store and this memory.
    ///
    /// # Panics
    ///
    /// If the configuration is wrong.
    pub fn new(configuration: &str, options: SnapshotOptions, memory: Memory) -> Self {
        let conf = parse(configuration, &Registry::builtin()).expect("a configuration").conf;
        Self {
            store: Store::default(),
            assumed: Assumed::default(),
            core: Core::new(Arc::new(conf), options, Search::Index).with_memory(memory),
        }
    }

    /// Runs a cycle.
    pub fn cycle(&mut self, now: Timestamp) -> Cycle {
        self.assumed.settle(&self.store);
        let elapsed: Duration = now.duration_since(Timestamp::UNIX_EPOCH).unsigned_abs();
        let Self { store, assumed, core } = self;
        core.cycle(CycleInput { store, assumed, now, elapsed }, &mut |_| {}).cycle
    }
}
