//! Topology: places the tasks of a job near each other in the network.
//!
//! Node labels form levels. A PodGroup, or pods without one, may require all their tasks to be in one domain
//! of a level, or prefer it. The argument `levels` declares levels, the broadest first; a domain of a declared
//! level is made of the nodes with one value of its label and of those of all broader levels. A label that is
//! not declared is a level by itself.
//!
//! The plugin says which levels a job may use and where its tasks are; the actions choose the domain.
// Parity: new, see docs/parity.md#t1 to docs/parity.md#t6.

mod composites;
mod levels;
mod resolve;

use std::collections::{BTreeMap, BTreeSet};

use kube_batch_framework::{
    arguments::{ArgumentKind, ArgumentSpec, Arguments, ListItems},
    plugin::{
        self, Dependencies, OrderScope, PlacementChange, Plugin, Prescription, Provided,
        VictimQuestion, VictimScope,
    },
    session_cache::SessionCache,
    spec::PluginSpec,
    topology::{JobLevel, JobTopology, nodes_that_count},
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, CompositeIdx, JobIdx, TaskIdx},
    facts::topology::TopologyFacts,
    name::Name,
    problem::{JobProblem, Scattering},
    status::{Placement, TaskStatus},
};

use self::{
    composites::DomainsOfComposites,
    levels::LevelMaker,
    resolve::{LevelPath, NoTier, Resolved, of_composites, resolve},
};
use crate::compiled::CompiledCluster;

/// The plugin `topology`.
#[derive(Debug, Default)]
pub struct TopologyPlugin {
    /// The declared levels, the broadest first.
    levels: Vec<Name>,
    /// The jobs with waiting tasks that ask for a topology.
    jobs: BTreeMap<JobIdx, JobTopology>,
    composites: DomainsOfComposites,
}

const LEVELS: ArgumentSpec = ArgumentSpec {
    key: "levels",
    kind: ArgumentKind::List { default: &[], items: ListItems::LabelKeys },
    about: "node labels that form the levels of the topology, the broadest first",
};

/// How a configuration names the plugin.
pub const SPEC: PluginSpec = PluginSpec {
    name: "topology",
    about: "places the pods of a gang in one domain of the network, if it requires or prefers that",
    arguments: &[LEVELS],
    metadata_prefixes: &[],
    new: |arguments| Box::new(TopologyPlugin::new(arguments)),
};

impl TopologyPlugin {
    fn new(arguments: &Arguments) -> Self {
        let mut seen = BTreeSet::new();
        let levels = arguments.list(&LEVELS).into_iter().map(Name::from);
        Self {
            levels: levels.filter(|key| seen.insert(key.clone())).collect(),
            jobs: BTreeMap::new(),
            composites: DomainsOfComposites::default(),
        }
    }
}

impl TopologyPlugin {
    /// The levels that a job may use.
    fn resolve(&self, cluster: &Cluster, job: JobIdx) -> Result<Resolved, NoTier> {
        let above = cluster.jobs.composites[job].as_deref().unwrap_or_default();
        let of_composites = of_composites(above, &self.levels);
        let own = cluster.jobs.topology[job].as_deref();
        resolve(own.unwrap_or(&TopologyFacts::default()), &of_composites, &self.levels)
    }
}

/// Whether the job asks for a topology.
fn asks(cluster: &Cluster, job: JobIdx) -> bool {
    cluster.jobs.topology[job].is_some() || cluster.requires_domain_of_composite(job)
}

/// Whether the job has tasks to be placed.
fn waits(cluster: &Cluster, job: JobIdx) -> bool {
    cluster.jobs.counts[job].of(TaskStatus::Pending) > 0
}

/// Why the waiting tasks of a job cannot be in one domain with the others.
fn scattered(cluster: &Cluster, job: JobIdx, required: &LevelPath) -> Option<JobProblem> {
    let mut domains: BTreeSet<Vec<Option<&Name>>> = BTreeSet::new();
    for node in nodes_that_count(cluster, job) {
        let labels = &cluster.nodes.facts[node].labels;
        if let Some(key) = required.needed().find(|key| labels.get(key).is_none()) {
            let (node, key) = (cluster.node_name(node).clone(), key.clone());
            return Some(JobProblem::Scattered(Scattering::NoLabel { node, key }));
        }
        domains.insert(required.keys().iter().map(|key| labels.get(key)).collect());
    }
    if domains.len() < 2 {
        return None;
    }
    let own: BTreeSet<_> = domains.iter().filter_map(|values| *values.last()?).collect();
    // Racks of one name are in different blocks.
    let n_shown = if own.len() == domains.len() { 1 } else { required.keys().len() };
    let name = |values: &Vec<Option<&Name>>| {
        let shown = &values[values.len() - n_shown..];
        shown.iter().map(|value| value.map_or("", Name::as_str)).collect::<Vec<_>>().join("/")
    };
    let names = domains.iter().map(|values| Name::from(name(values)));
    Some(JobProblem::Scattered(Scattering::Domains(names.collect())))
}

impl Plugin for TopologyPlugin {
    fn name(&self) -> &'static str {
        "topology"
    }

    fn provides(&self) -> Provided<'_> {
        Provided { topology: Some(self), ..Provided::default() }
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
        Dependencies::NONE
    }

    fn victim_scope(&self, _: &Cluster, _: TaskIdx, _: VictimQuestion) -> VictimScope {
        VictimScope::NONE
    }

    fn job_valid(&self, cluster: &Cluster, job: JobIdx) -> Result<(), JobProblem> {
        if !asks(cluster, job) {
            return Ok(());
        }
        let resolved = self
            .resolve(cluster, job)
            .map_err(|NoTier { tier, n_tiers }| JobProblem::TierNotDeclared { tier, n_tiers })?;
        let required = resolved.required().filter(|_| waits(cluster, job));
        required.and_then(|level| scattered(cluster, job, level)).map_or(Ok(()), Err)
    }

    fn on_session_open(&mut self, cluster: &Cluster, cache: &mut SessionCache<'_>) {
        self.jobs.clear();
        self.composites = DomainsOfComposites::default();
        let asking = cluster.jobs.key.ids().filter(|job| {
            asks(cluster, *job) && cluster.is_schedulable(*job) && waits(cluster, *job)
        });
        let asking: Vec<JobIdx> = asking.collect();
        if asking.is_empty() {
            return;
        }
        let compiled = cache.get::<CompiledCluster>();
        let mut maker = LevelMaker::new(cluster, compiled.labels());
        for job in asking {
            // Otherwise the job is not valid.
            let Ok(resolved) = self.resolve(cluster, job) else { continue };
            let levels = resolved.levels.iter().map(|path| JobLevel::new(maker.level(path)));
            let mut topology =
                JobTopology { levels: levels.collect(), is_required: resolved.is_required };
            for node in nodes_that_count(cluster, job) {
                let at = Placement { status: TaskStatus::Running, node: Some(node) };
                topology.on_placement(Placement::PENDING, at);
            }
            self.jobs.insert(job, topology);
        }
        self.composites = DomainsOfComposites::of(cluster, cache.get(), &self.levels, &mut maker);
        for row in self.composites.rows() {
            self.composites.limit(row, &mut self.jobs);
        }
    }

    fn on_placement(&mut self, cluster: &Cluster, change: &PlacementChange) {
        if self.jobs.is_empty() {
            return;
        }
        let Some(job) = cluster.tasks.job[change.task] else { return };
        if let Some(topology) = self.jobs.get_mut(&job) {
            topology.on_placement(change.from, change.to);
        }
        self.composites.on_placement(job, change, &mut self.jobs);
    }

    fn on_prescription(&mut self, prescription: Prescription) {
        match prescription {
            Prescription::Domain(composite, domain) => {
                self.composites.choose(composite, domain, &mut self.jobs);
            }
            Prescription::Alternative(_) => {}
        }
    }
}

impl plugin::Topology for TopologyPlugin {
    fn topology(&self, job: JobIdx) -> Option<&JobTopology> {
        self.jobs.get(&job)
    }

    fn level_of_composite(&self, composite: CompositeIdx) -> Option<&JobLevel> {
        self.composites.level(composite)
    }
}
