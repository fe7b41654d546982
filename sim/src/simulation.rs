//! A simulated cluster with a scheduler that runs cycle after cycle.

use std::sync::Arc;

use kube_batch_api::{cluster::Cluster, resource::Dimensions};
use kube_batch_framework::{candidates::Search, milestone::Milestone, report::Cycle};
use kube_batch_scheduler::conf::Conf;

use crate::world::World;

/// A simulated cluster and its scheduler.
pub struct Simulation {
    /// The simulated cluster.
    pub world: World,
    conf: Conf,
    search: Search,
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
        Self { world, conf, search, last: None }
    }

    /// Runs one cycle and applies its decisions to the cluster. `reached` is called at each
    /// milestone.
    pub fn cycle(&mut self, reached: &mut dyn FnMut(Milestone)) -> &LastCycle {
        self.world.tick();
        let snapshot = Arc::new(self.world.snapshot_of_cycle().cluster);
        let cluster = Cluster::clone(&snapshot);
        let dimensions = cluster.dimensions.clone();
        let cycle = self.conf.run_cycle(cluster, self.search, reached);
        self.world.apply_cycle(&cycle);
        self.last.insert(LastCycle { cycle, dimensions, snapshot })
    }

    /// The last cycle.
    pub const fn last(&self) -> Option<&LastCycle> {
        self.last.as_ref()
    }
}
