//! Topology levels: which nodes are near each other, and which of them a search considers.
//!
//! A plugin reports the levels that a job requires or prefers, and counts the tasks that it has in each domain
//! ([`Topology::topology`](crate::plugin::Topology::topology)). While a statement for a job is open, searches consider
//! only the nodes that the job may use: those of its domain, if it requires one and has tasks there.
//! An action may confine a statement further.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_model::{
    cluster::Cluster,
    column::{Column, DomainIdx, JobIdx, NodeIdx, Ordinal},
    name::Name,
    status::{Placement, TaskStatus},
};

/// A level of the topology: domains, which are disjoint sets of nodes.
#[derive(Debug)]
pub struct Level {
    number: usize,
    key: Name,
    names: Column<DomainIdx, Name>,
    nodes: Column<DomainIdx, Vec<NodeIdx>>,
    of_node: Column<NodeIdx, Option<DomainIdx>>,
}

impl Level {
    /// A level with the domain of each node; `names` are those of the domains, ascending. Levels of one
    /// session have different numbers.
    pub fn new(
        number: usize,
        key: Name,
        names: Column<DomainIdx, Name>,
        of_node: Column<NodeIdx, Option<DomainIdx>>,
    ) -> Self {
        let mut nodes: Column<DomainIdx, Vec<NodeIdx>> = Column::filled(Vec::new(), names.len());
        for (node, domain) in of_node.iter() {
            if let Some(domain) = domain {
                nodes[*domain].push(node);
            }
        }
        Self { number, key, names, nodes, of_node }
    }

    /// Its number in the session.
    pub const fn number(&self) -> usize {
        self.number
    }

    /// The node label of its domains.
    pub const fn key(&self) -> &Name {
        &self.key
    }

    /// What a message calls one of its domains: the label without its prefix.
    pub fn noun(&self) -> &str {
        let key = self.key.as_str();
        match key.rsplit_once('/').map_or(key, |(_, name)| name) {
            "hostname" => "node",
            name => name,
        }
    }

    /// Its domains, ascending.
    pub fn domains(&self) -> impl ExactSizeIterator<Item = DomainIdx> + use<> {
        self.names.ids()
    }

    /// The name of a domain.
    pub fn name(&self, domain: DomainIdx) -> &Name {
        &self.names[domain]
    }

    /// The nodes of a domain, ascending.
    pub fn nodes(&self, domain: DomainIdx) -> &[NodeIdx] {
        &self.nodes[domain]
    }

    /// The domain of a node, if it is in one.
    pub fn domain(&self, node: NodeIdx) -> Option<DomainIdx> {
        self.of_node[node]
    }
}

/// The levels that a job asks for, and where its tasks are.
#[derive(Clone, Debug)]
pub struct JobTopology {
    /// The narrowest first. A domain of one level is inside one domain of the next.
    pub levels: Vec<JobLevel>,
    /// Whether all tasks must be in one domain of the last level. Otherwise they may be anywhere.
    pub is_required: bool,
}

/// A level, and the number of tasks that a job has in each of its domains.
#[derive(Clone, Debug)]
pub struct JobLevel {
    /// The level.
    pub level: Arc<Level>,
    /// `None` stands for the nodes that are in no domain.
    n_tasks: BTreeMap<Option<DomainIdx>, u32>,
    /// The only domains that may be used, ascending: those inside the domain of a composite PodGroup. `None` if
    /// all may be.
    allowed: Option<Arc<[DomainIdx]>>,
}

/// Where the tasks of a job are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// No task has a place.
    Nowhere,
    /// All those that have a place are in one domain.
    Domain(DomainIdx),
    /// They are in several domains, or on nodes that are in none.
    Scattered,
}

impl Home {
    /// The domains of the level in which all tasks could be.
    pub fn domains(self, level: &Level) -> Vec<DomainIdx> {
        match self {
            Self::Nowhere => level.domains().collect(),
            Self::Domain(domain) => vec![domain],
            Self::Scattered => Vec::new(),
        }
    }
}

impl JobLevel {
    /// A level of a job without tasks.
    pub const fn new(level: Arc<Level>) -> Self {
        Self { level, n_tasks: BTreeMap::new(), allowed: None }
    }

    /// Where the tasks of the job are.
    pub fn home(&self) -> Home {
        let mut domains = self.n_tasks.keys();
        match (domains.next(), domains.next()) {
            (None, _) => Home::Nowhere,
            (Some(Some(domain)), None) => Home::Domain(*domain),
            (Some(_), _) => Home::Scattered,
        }
    }

    /// The domains in which all tasks could be.
    pub fn domains(&self) -> Vec<DomainIdx> {
        let is_allowed = |domain: &DomainIdx| {
            self.allowed.as_ref().is_none_or(|allowed| allowed.binary_search(domain).is_ok())
        };
        let mut domains = self.home().domains(&self.level);
        domains.retain(is_allowed);
        domains
    }

    /// The domains in which all tasks could be, as scopes of a search.
    pub fn scopes(&self) -> Vec<Scope> {
        let scope = |domain| Scope { level: Arc::clone(&self.level), domain };
        self.domains().into_iter().map(scope).collect()
    }

    /// Whether only some domains may be used, because a composite PodGroup is in one.
    pub const fn is_limited(&self) -> bool {
        self.allowed.is_some()
    }

    /// Sets the only domains that may be used, ascending; `None` if all may be.
    pub fn limit(&mut self, allowed: Option<Arc<[DomainIdx]>>) {
        self.allowed = allowed;
    }

    /// The domains inside a domain of a broader level, ascending.
    pub fn inside(&self, scope: &Scope) -> Arc<[DomainIdx]> {
        let is_inside = |domain: &DomainIdx| {
            let first = self.level.nodes(*domain).first();
            first.is_some_and(|node| scope.level.domain(*node) == Some(scope.domain))
        };
        self.level.domains().filter(is_inside).collect()
    }

    /// Counts a task that has been moved.
    pub fn on_placement(&mut self, from: Placement, to: Placement) {
        let (from, to) = (node_that_counts(from), node_that_counts(to));
        if from != to {
            from.into_iter().for_each(|node| self.remove(node));
            to.into_iter().for_each(|node| self.add(node));
        }
    }

    /// The domains in which the job has tasks, and how many; `None` stands for the nodes that are in no
    /// domain.
    pub const fn n_tasks(&self) -> &BTreeMap<Option<DomainIdx>, u32> {
        &self.n_tasks
    }

    fn add(&mut self, node: NodeIdx) {
        *self.n_tasks.entry(self.level.domain(node)).or_default() += 1;
    }

    fn remove(&mut self, node: NodeIdx) {
        let domain = self.level.domain(node);
        let n_tasks = self.n_tasks.get_mut(&domain).expect("the task was counted");
        *n_tasks -= 1;
        if *n_tasks == 0 {
            self.n_tasks.remove(&domain);
        }
    }
}

impl JobTopology {
    /// Counts a task that has been moved.
    pub fn on_placement(&mut self, from: Placement, to: Placement) {
        self.levels.iter_mut().for_each(|level| level.on_placement(from, to));
    }

    /// The required level: all tasks must be in one of its domains.
    pub fn required_level(&self) -> Option<&JobLevel> {
        self.levels.last().filter(|_| self.is_required)
    }

    /// The domains that could hold all tasks; `None` if no level is required.
    pub fn required_domains(&self) -> Option<Vec<Scope>> {
        self.required_level().map(JobLevel::scopes)
    }

    /// The nodes that its tasks may use; `None` if that is all of them.
    pub(crate) fn required(&self) -> Option<ScopeRef<'_>> {
        let last = self.required_level()?;
        let nodes = match last.home() {
            Home::Nowhere => match last.allowed.as_deref() {
                Some([domain]) => InLevel::Domain(*domain),
                Some(_) | None => InLevel::AnyDomain,
            },
            Home::Domain(domain) => InLevel::Domain(domain),
            Home::Scattered => InLevel::NoNode,
        };
        Some(ScopeRef { level: &last.level, nodes })
    }
}

/// The node of a task, if that decides where the others may be: not if the task is being terminated or has
/// finished.
pub fn node_that_counts(at: Placement) -> Option<NodeIdx> {
    at.node.filter(|_| at.status.is_on_node() && at.status != TaskStatus::Releasing)
}

/// The nodes of the tasks of a job that decide where the others may be.
pub fn nodes_that_count(cluster: &Cluster, job: JobIdx) -> impl Iterator<Item = NodeIdx> + '_ {
    let placements = cluster.jobs.tasks[job].iter().map(|task| cluster.tasks.placement[task]);
    placements.filter_map(node_that_counts)
}

/// A domain to which searches are confined.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Its level.
    pub level: Arc<Level>,
    /// The domain.
    pub domain: DomainIdx,
}

/// The nodes of a level that a search considers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScopeRef<'a> {
    pub(crate) level: &'a Level,
    pub(crate) nodes: InLevel,
}

/// Identifies the set of nodes that a search considers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScopeKey {
    level: usize,
    nodes: InLevel,
}

/// Which nodes of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InLevel {
    Domain(DomainIdx),
    AnyDomain,
    NoNode,
}

impl ScopeRef<'_> {
    pub(crate) const fn key(self) -> ScopeKey {
        ScopeKey { level: self.level.number(), nodes: self.nodes }
    }

    pub(crate) fn contains(self, node: NodeIdx) -> bool {
        match self.nodes {
            InLevel::Domain(domain) => self.level.domain(node) == Some(domain),
            InLevel::AnyDomain => self.level.domain(node).is_some(),
            InLevel::NoNode => false,
        }
    }
}

/// The nodes that a search considers, ascending: those of the scope, or all.
pub(crate) fn nodes_in(cluster: &Cluster, scope: Option<ScopeRef<'_>>) -> Vec<NodeIdx> {
    let all = || (0..cluster.nodes.facts.len()).map(NodeIdx::new);
    match scope {
        None => all().collect(),
        Some(ScopeRef { level, nodes: InLevel::Domain(domain) }) => level.nodes(domain).to_vec(),
        Some(scope) => all().filter(|node| scope.contains(*node)).collect(),
    }
}
