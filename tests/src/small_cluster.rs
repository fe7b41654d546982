//! Small clusters, written as test cases, whose first cycle is compared with a model.

use kube_batch_framework::candidates::Search;
use kube_batch_model::decision::Decision;
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, simulation::Simulation, world::World};
use kube_batch_yaml::{Limits, parse};

/// The decisions of the first cycle of a case.
///
/// # Panics
///
/// If the text is not a valid case.
pub fn first_decisions(text: &str, search: Search) -> Vec<Decision> {
    let document = parse(text, &Limits::default()).expect("YAML");
    let case = Case::read(&document, &Registry::builtin()).expect("a case");
    let mut world =
        World::new(case.environment, case.options.clone(), case.conf.metadata_prefixes());
    for object in &case.objects {
        world.apply(object.value.clone()).expect("the object is valid");
    }
    let mut simulation = Simulation::new(world, case.conf.clone(), search);
    simulation.cycle(&mut |_| {}).cycle.decisions.clone()
}
