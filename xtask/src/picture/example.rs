//! The example that is simulated.

use anyhow::{Context, bail};
use kube_batch_cache::{dump::Dump, snapshot::SnapshotOptions};
use kube_batch_framework::candidates::Search;
use kube_batch_manifest::{
    diagnostic::Diagnostic,
    object::Object,
    place::Place,
    reader::{Reader, Sink},
    source::collect_sources,
};
use kube_batch_model::facts::FactError;
use kube_batch_scheduler::{conf, registry::Registry};
use kube_batch_sim::{
    simulation::Simulation,
    world::{Environment, World},
};
use kube_batch_tests::build::root;

/// The example and its configuration.
pub(super) const EXAMPLE: &str = "examples/borrow-and-reclaim.yaml";
const CONF: &str = "examples/scheduler.yaml";

struct WorldSink {
    world: World,
    problems: Vec<String>,
}

impl Sink for WorldSink {
    fn object(&mut self, object: Object, _: &Place<'_>) -> Result<(), FactError> {
        self.world.apply(object)
    }

    fn dump(&mut self, dump: Dump) {
        self.world.restore(dump);
    }

    fn problem(&mut self, problem: Diagnostic) {
        self.problems.push(problem.to_string());
    }
}

pub(super) fn simulation() -> anyhow::Result<Simulation> {
    let text =
        std::fs::read_to_string(root().join(CONF)).with_context(|| format!("read {CONF}"))?;
    let Ok(read) = conf::parse(&text, &Registry::builtin()) else { bail!("{CONF} has errors") };
    let options = SnapshotOptions::default();
    let world = World::new(Environment::default(), options, read.conf.metadata_prefixes());
    let mut sink = WorldSink { world, problems: Vec::new() };
    let (sources, _) = collect_sources(&[root().join(EXAMPLE)]);
    Reader::new().read_sources(&sources, &mut sink);
    if sources.is_empty() || !sink.problems.is_empty() {
        bail!("{EXAMPLE}: {}", sink.problems.join("; "));
    }
    sink.world.run_controllers();
    Ok(Simulation::new(sink.world, read.conf, Search::Index))
}
