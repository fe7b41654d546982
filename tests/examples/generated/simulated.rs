//! Simulations of the examples.

use std::fs;

use anyhow::ensure;
use kube_batch_framework::candidates::Search;
use kube_batch_manifest::{
    diagnostic::Diagnostic,
    object::Object,
    place::Place,
    reader::{Reader, Sink},
};
use kube_batch_model::facts::FactError;
use kube_batch_scheduler::{conf, registry::Registry};
use kube_batch_sim::{
    simulation::Simulation,
    world::{Environment, World},
};
use xtask_launcher::build::root;

/// A simulation of some files below `examples/`, with the configuration there, before its first cycle.
pub(super) fn simulated(files: &[&str]) -> anyhow::Result<Simulation> {
    let registry = Registry::builtin();
    let text = fs::read_to_string(root().join("examples/scheduler.yaml"))?;
    let read = conf::parse(&text, &registry);
    let conf = read.map_err(|errors| anyhow::anyhow!("{} errors", errors.len()))?.conf;
    let options = Default::default();
    let mut world = World::new(Environment::default(), options, conf.metadata_prefixes());
    let mut objects = Objects(&mut world, Vec::new());
    for file in files {
        let text = fs::read(root().join("examples").join(file))?;
        Reader::new().read(file, &text, &mut objects);
    }
    ensure!(objects.1.is_empty(), "{:?}", objects.1);
    world.begin();
    world.run_controllers();
    Ok(Simulation::new(world, conf, Search::Index))
}

struct Objects<'w>(&'w mut World, Vec<String>);

impl Sink for Objects<'_> {
    fn object(&mut self, object: Object, _: &Place<'_>) -> Result<(), FactError> {
        self.0.apply(object)
    }

    fn dump(&mut self, _: kube_batch_cache::dump::Dump) {}

    fn problem(&mut self, problem: Diagnostic) {
        self.1.push(problem.to_string());
    }
}
