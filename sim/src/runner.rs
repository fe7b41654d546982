//! A scheduler that looks after a simulated world, and cases played with it.

use std::sync::Arc;

use kube_batch_api::{cluster::Cluster, facts::FactError, resource::Dimensions};
use kube_batch_framework::{candidates::Search, milestone::Milestone, report::Cycle};
use kube_batch_scheduler::conf::Conf;
use kube_batch_yaml::Problem;

use crate::{
    case::{Case, Placed, Step},
    check::{Mismatch, check},
    world::World,
};

/// A world and the scheduler that looks after it.
pub struct Simulation {
    /// The world.
    pub world: World,
    conf: Conf,
    search: Search,
    last: Option<LastCycle>,
}

/// The last cycle, with the dimensions its rows are in.
#[derive(Debug)]
pub struct LastCycle {
    /// Its report.
    pub cycle: Cycle,
    /// What its rows mean.
    pub dimensions: Dimensions,
    /// The picture it began with.
    pub picture: Arc<Cluster>,
}

impl Simulation {
    /// A scheduler of this configuration in a world.
    pub const fn new(world: World, conf: Conf, search: Search) -> Self {
        Self { world, conf, search, last: None }
    }

    /// Runs one cycle and lets the world answer. `reached` is told of each milestone.
    pub fn cycle(&mut self, reached: &mut dyn FnMut(Milestone)) -> &LastCycle {
        self.world.tick();
        let picture = Arc::new(self.world.snapshot().cluster);
        let cluster = Cluster::clone(&picture);
        let dimensions = cluster.dimensions.clone();
        let cycle = self.conf.run_cycle(cluster, self.search, reached);
        self.world.answer(&cycle);
        self.last.insert(LastCycle { cycle, dimensions, picture })
    }

    /// The last cycle.
    pub const fn last(&self) -> Option<&LastCycle> {
        self.last.as_ref()
    }
}

/// Plays a case; returns what does not hold.
///
/// # Errors
///
/// [`Problem`] if an object cannot be used or something to be changed is not there: the case says
/// nothing.
pub fn play(case: &Case, search: Search) -> Result<Vec<Mismatch>, Problem> {
    play_observed(case, search, &mut |_| {})
}

/// Plays a case and shows the simulation after each cycle; returns what does not hold.
///
/// # Errors
///
/// As [`play`].
pub fn play_observed(
    case: &Case,
    search: Search,
    observe: &mut dyn FnMut(&Simulation),
) -> Result<Vec<Mismatch>, Problem> {
    let mut world =
        World::new(case.environment, case.options.clone(), case.conf.metadata_prefixes());
    for object in &case.objects {
        let applied = world.apply(object.value.clone());
        applied.map_err(|error| at(object, &error))?;
    }
    world.run_controllers();
    let mut simulation = Simulation::new(world, case.conf.clone(), search);
    let mut found = Vec::new();
    for step in &case.steps {
        let mismatches = play_step(&mut simulation, step, observe)?;
        found.extend(mismatches.into_iter().map(|mismatch| mismatch.under(&step.path)));
    }
    Ok(found)
}

fn at<T>(placed: &Placed<T>, error: &FactError) -> Problem {
    placed.problem(error.to_string())
}

fn play_step(
    simulation: &mut Simulation,
    step: &Step,
    observe: &mut dyn FnMut(&Simulation),
) -> Result<Vec<Mismatch>, Problem> {
    let mut run = |simulation: &mut Simulation| {
        simulation.cycle(&mut |_| {});
        observe(simulation);
    };
    change(&mut simulation.world, step)?;
    simulation.world.run_controllers();
    for _ in 0..step.cycles {
        run(simulation);
    }
    let mut found = Vec::new();
    if let Some(eventually) = &step.eventually {
        let look = |s: &Simulation| check(&eventually.expect, &s.world, s.last());
        let mut missing = look(simulation);
        for _ in 0..eventually.max_cycles {
            if missing.is_empty() {
                break;
            }
            run(simulation);
            missing = look(simulation);
        }
        found.extend(missing.into_iter().map(|mismatch| mismatch.under("eventually")));
    }
    if let Some(expect) = &step.expect {
        found.extend(check(expect, &simulation.world, simulation.last()));
        simulation.world.record.clear();
    }
    Ok(found)
}

fn change(world: &mut World, step: &Step) -> Result<(), Problem> {
    let Step { apply, update, delete, set_pod_phase, .. } = step;
    if [apply.is_empty(), update.is_empty(), delete.is_empty(), set_pod_phase.is_empty()]
        .contains(&false)
    {
        world.tick();
    }
    for object in apply.iter().chain(update) {
        world.apply(object.value.clone()).map_err(|error| at(object, &error))?;
    }
    for target in delete {
        let (kind, key) = &target.value;
        if !world.delete(*kind, key) {
            return Err(target.problem(format!("there is no {kind} {key}")));
        }
    }
    for phase in set_pod_phase {
        let (pod, value) = &phase.value;
        if !world.set_phase(pod, *value) {
            return Err(phase.problem(format!("there is no Pod {pod}")));
        }
    }
    Ok(())
}
