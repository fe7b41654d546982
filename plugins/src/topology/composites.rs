//! The domains of composite PodGroups: all jobs below one that requires a domain are in the same.
// Parity: see docs/parity.md#k8.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_framework::{
    plugin::PlacementChange,
    topology::{Home, JobLevel, JobTopology, Scope, nodes_that_count},
};
use kube_batch_model::{
    cluster::Cluster,
    column::{CompositeIdx, DomainIdx, JobIdx},
    gang::tree::{Gang, GangTree},
    name::Name,
    status::{Placement, TaskStatus},
};

use super::{
    levels::LevelMaker,
    resolve::{LevelPath, of_composites},
};

/// The composite PodGroups that require a domain.
#[derive(Debug, Default)]
pub(super) struct DomainsOfComposites {
    tree: Arc<GangTree>,
    domains: BTreeMap<CompositeIdx, Domain>,
}

/// The level of which a composite PodGroup requires a domain, and the one that it uses.
#[derive(Debug)]
struct Domain {
    /// With the tasks of all jobs below.
    level: JobLevel,
    /// The domain to use while none of these tasks has a place.
    chosen: Option<DomainIdx>,
}

impl Domain {
    /// The only domain that the jobs below may use, if it is known.
    fn scope(&self) -> Option<Scope> {
        let domain = match self.level.home() {
            Home::Domain(domain) => Some(domain),
            Home::Nowhere | Home::Scattered => self.chosen,
        };
        domain.map(|domain| Scope { level: Arc::clone(&self.level.level), domain })
    }
}

impl DomainsOfComposites {
    pub(super) fn of(
        cluster: &Cluster,
        tree: Arc<GangTree>,
        declared: &[Name],
        maker: &mut LevelMaker<'_>,
    ) -> Self {
        let mut domains = BTreeMap::new();
        for row in tree.ids().filter(|row| tree.get(*row).facts.topology.is_some()) {
            let jobs = tree.jobs(row);
            let Some(above) = jobs.first().and_then(|job| cluster.jobs.composites[*job].as_ref())
            else {
                continue;
            };
            let own = &tree.get(row).facts.key;
            let inner = above.iter().position(|composite| composite.key == *own).unwrap_or(0);
            let path = LevelPath::required(of_composites(&above[inner..], declared));
            let mut level = JobLevel::new(maker.level(&path));
            for node in jobs.iter().flat_map(|job| nodes_that_count(cluster, *job)) {
                let at = Placement { status: TaskStatus::Running, node: Some(node) };
                level.on_placement(Placement::PENDING, at);
            }
            domains.insert(row, Domain { level, chosen: None });
        }
        Self { tree, domains }
    }

    pub(super) fn rows(&self) -> Vec<CompositeIdx> {
        self.domains.keys().copied().collect()
    }

    pub(super) fn level(&self, row: CompositeIdx) -> Option<&JobLevel> {
        self.domains.get(&row).map(|domain| &domain.level)
    }

    pub(super) fn choose(
        &mut self,
        row: CompositeIdx,
        chosen: Option<DomainIdx>,
        jobs: &mut BTreeMap<JobIdx, JobTopology>,
    ) {
        if let Some(domain) = self.domains.get_mut(&row) {
            domain.chosen = chosen;
            self.limit(row, jobs);
        }
    }

    /// Counts a task of a job that has been moved.
    pub(super) fn on_placement(
        &mut self,
        job: JobIdx,
        change: &PlacementChange,
        jobs: &mut BTreeMap<JobIdx, JobTopology>,
    ) {
        if self.domains.is_empty() {
            return;
        }
        let above: Vec<CompositeIdx> = self.tree.above(job).collect();
        for row in above {
            let Some(domain) = self.domains.get_mut(&row) else { continue };
            let before = domain.level.home();
            domain.level.on_placement(change.from, change.to);
            if domain.level.home() != before {
                self.limit(row, jobs);
            }
        }
    }

    /// Limits everything below a composite PodGroup to the domain that it uses.
    pub(super) fn limit(&mut self, row: CompositeIdx, jobs: &mut BTreeMap<JobIdx, JobTopology>) {
        let scope = self.scope_above(Gang::Composite(row));
        let children = self.tree.get(row).children.clone();
        self.limit_children(&children, scope.as_ref(), jobs);
    }

    /// The domain that everything below must be in: that of the innermost composite PodGroup that has one.
    fn scope_above(&self, child: Gang) -> Option<Scope> {
        let Gang::Composite(row) = child else { return None };
        let mut rows = std::iter::successors(Some(row), |row| self.tree.get(*row).parent);
        rows.find_map(|row| self.domains.get(&row)?.scope())
    }

    fn limit_children(
        &mut self,
        children: &[Gang],
        scope: Option<&Scope>,
        jobs: &mut BTreeMap<JobIdx, JobTopology>,
    ) {
        for child in children {
            match child {
                Gang::Job(job) => {
                    let levels = jobs.get_mut(job).map(|topology| &mut topology.levels);
                    for level in levels.into_iter().flatten() {
                        limit(level, scope);
                    }
                }
                Gang::Composite(row) => {
                    let mut own = None;
                    if let Some(domain) = self.domains.get_mut(row) {
                        limit(&mut domain.level, scope);
                        own = domain.scope();
                    }
                    let children = self.tree.get(*row).children.clone();
                    self.limit_children(&children, own.as_ref().or(scope), jobs);
                }
            }
        }
    }
}

fn limit(level: &mut JobLevel, scope: Option<&Scope>) {
    let allowed = scope.map(|scope| level.inside(scope));
    level.limit(allowed);
}
