//! A simulated cluster with a scheduler that runs cycle after cycle.

use std::sync::Arc;

use kube_batch_framework::{
    candidates::Search, memory::Memory, milestone::Milestone, report::Cycle,
};
use kube_batch_model::{cluster::Cluster, resource::Dimensions};
use kube_batch_scheduler::{
    conf::Conf,
    core::{Core, CycleInput, CyclePoint},
};

use crate::world::World;

/// A simulated cluster and its scheduler.
pub struct Simulation {
    /// The simulated cluster.
    pub world: World,
    core: Core,
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
    pub fn new(world: World, conf: Conf, search: Search) -> Self {
        let core = Core::new(Arc::new(conf), world.options().clone(), search);
        Self { world, core, last: None }
    }

    /// This scheduler with another memory of earlier cycles.
    #[must_use]
    pub fn with_memory(self, memory: Memory) -> Self {
        Self { core: self.core.with_memory(memory), ..self }
    }

    /// Runs one cycle and applies its decisions to the cluster. `reached` is called at each
    /// milestone.
    pub fn cycle(&mut self, reached: &mut dyn FnMut(Milestone<'_>)) -> &LastCycle {
        self.cycle_from(&mut |_, _| {}, reached)
    }

    /// Runs one cycle as [`Self::cycle`] does. `begin` is called before it with all that it depends on.
    pub fn cycle_from(
        &mut self,
        begin: &mut dyn FnMut(&mut Core, &CycleInput<'_>),
        reached: &mut dyn FnMut(Milestone<'_>),
    ) -> &LastCycle {
        self.world.tick();
        let mut snapshot = None;
        let input = self.world.begin_cycle();
        begin(&mut self.core, &input);
        let outcome = self.core.cycle(input, &mut |progress| match progress {
            CyclePoint::Snapshot(cluster) => snapshot = Some(Arc::new(cluster.clone())),
            CyclePoint::Decided(decisions, _) => reached(Milestone::Decided(decisions)),
            CyclePoint::Session(milestone) => reached(milestone),
        });
        self.world.apply_cycle(&outcome);
        let snapshot = snapshot.expect("a cycle begins with a snapshot");
        let dimensions = snapshot.dimensions.clone();
        self.last.insert(LastCycle { cycle: outcome.cycle, dimensions, snapshot })
    }

    /// The last cycle.
    pub const fn last(&self) -> Option<&LastCycle> {
        self.last.as_ref()
    }
}
