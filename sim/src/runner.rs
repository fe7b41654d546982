//! Runs cases in a simulated cluster.

use kube_batch_framework::candidates::Search;
use kube_batch_model::facts::FactError;
use kube_batch_yaml::Problem;

use crate::{
    case::{Case, Positioned, Seen, Step},
    check::{Mismatch, check},
    simulation::Simulation,
    world::World,
};

/// Runs a case; returns the expectations that are not met.
///
/// # Errors
///
/// Problems if an object cannot be used, or an object to change or in an expectation does not exist:
/// the case is invalid.
pub fn run_case(case: &Case, search: Search) -> Result<Vec<Mismatch>, Vec<Problem>> {
    run_case_observed(case, search, &mut |_| {})
}

/// Runs a case and calls `observe` after each cycle; returns the expectations that are not met.
///
/// # Errors
///
/// As [`run_case`].
pub fn run_case_observed(
    case: &Case,
    search: Search,
    observe: &mut dyn FnMut(&Simulation),
) -> Result<Vec<Mismatch>, Vec<Problem>> {
    let mut world =
        World::new(case.environment, case.options.clone(), case.conf.metadata_prefixes());
    for object in &case.objects {
        let applied = world.apply(object.value.clone());
        applied.map_err(|error| vec![at(object, &error)])?;
    }
    world.run_controllers();
    let mut simulation = Simulation::new(world, case.conf.clone(), search);
    let mut seen = Seen::default();
    seen.record(&simulation.world);
    let mut found = Vec::new();
    for step in &case.steps {
        let mismatches =
            run_step(&mut simulation, step, &mut seen, observe).map_err(|problem| vec![problem])?;
        found.extend(mismatches.into_iter().map(|mismatch| mismatch.under(&step.path)));
    }
    let unknown = seen.unknown(&case.references);
    if unknown.is_empty() { Ok(found) } else { Err(unknown) }
}

fn at<T>(placed: &Positioned<T>, error: &FactError) -> Problem {
    placed.problem(error.to_string())
}

fn run_step(
    simulation: &mut Simulation,
    step: &Step,
    seen: &mut Seen,
    observe: &mut dyn FnMut(&Simulation),
) -> Result<Vec<Mismatch>, Problem> {
    change(&mut simulation.world, step)?;
    simulation.world.run_controllers();
    seen.record(&simulation.world);
    let mut run = |simulation: &mut Simulation| {
        simulation.cycle(&mut |_| {});
        seen.record(&simulation.world);
        observe(simulation);
    };
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
            return Err(target.problem(format!("{kind} {key} does not exist")));
        }
    }
    for phase in set_pod_phase {
        let (pod, value) = &phase.value;
        if !world.set_phase(pod, *value) {
            return Err(phase.problem(format!("Pod {pod} does not exist")));
        }
    }
    Ok(())
}
