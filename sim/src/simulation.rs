//! A simulated cluster with a scheduler that runs cycle after cycle.

use std::sync::Arc;

use kube_batch_framework::{
    candidates::Search,
    memory::{DEFAULT_BUDGET, Memory},
    milestone::Milestone,
    report::Cycle,
};
use kube_batch_model::{cluster::Cluster, resource::Dimensions};
use kube_batch_scheduler::conf::Conf;

use crate::world::World;

/// A simulated cluster and its scheduler.
pub struct Simulation {
    /// The simulated cluster.
    pub world: World,
    conf: Conf,
    search: Search,
    memory: Memory,
    last: Option<LastCycle>,
}

/// The last cycle, with the dimensions of its resource vectors.
#[derive(Debug)]
pub struct LastCycle {
    /// Its report.
    pub cycle: Cycle,
    /// The dimensions of its resource vectors.
    pub dimensions: Dimensions,
    /// The snapshot it started from.
    pub snapshot: Arc<Cluster>,
}

impl Simulation {
    /// A scheduler with this configuration in a simulated cluster.
    pub const fn new(world: World, conf: Conf, search: Search) -> Self {
        Self { world, conf, search, memory: Memory::with_budget(DEFAULT_BUDGET), last: None }
    }

    /// This scheduler with another memory of earlier cycles.
    #[must_use]
    pub fn with_memory(self, memory: Memory) -> Self {
        Self { memory, ..self }
    }

    /// Runs one cycle and applies its decisions to the cluster. `reached` is called at each
    /// milestone.
    pub fn cycle(&mut self, reached: &mut dyn FnMut(Milestone)) -> &LastCycle {
        self.world.tick();
        let snapshot = self.world.snapshot_of_cycle();
        self.memory.set_generation(snapshot.generation);
        let snapshot = Arc::new(snapshot.cluster);
        let cluster = Cluster::clone(&snapshot);
        let dimensions = cluster.dimensions.clone();
        let now = self.world.now();
        let memory = &mut self.memory;
        let (cycle, cluster) = self.conf.run_next_cycle(cluster, now, self.search, memory, reached);
        debug_assert!(cluster == *snapshot, "a cycle returns the cluster as it was");
        self.world.keep(cluster);
        self.world.apply_cycle(&cycle);
        self.last.insert(LastCycle { cycle, dimensions, snapshot })
    }

    /// The last cycle.
    pub const fn last(&self) -> Option<&LastCycle> {
        self.last.as_ref()
    }
}
