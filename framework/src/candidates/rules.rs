//! The predicates and scores that apply to one class.

use std::collections::BTreeMap;

use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, NodeIdx, Ordinal, TaskIdx},
    node_set::NodeSet,
    reason::{Cause, Inadmissible, Unfit},
};

use super::inputs::Inputs;
use crate::plugin::{
    Capacity, Dependencies, Dependency, DomainColumn, Extremes, NodeQuery, Scale, ScoreTerm,
};
use crate::policy::{Policy, Position};

/// The predicates and scores of one class, collected once in a cycle.
#[derive(Clone, Debug)]
pub(crate) struct ClassRules {
    pub(super) admission: Result<(), Inadmissible>,
    /// Whether it requests a resource that no node has.
    requests_unknown: bool,
    /// The plugins that have predicates for the class, and what those depend on.
    predicates: Vec<(Position, Dependencies)>,
    /// What any of these predicates depends on.
    dependencies: Dependencies,
    /// The plugins that score nodes for the class, and their terms.
    terms: Vec<(Position, ScoreTerm)>,
    /// The plugins of both, each once.
    plugins: Vec<Position>,
    /// The domain of each node, if tasks on other nodes decide about the class, and are the same for all
    /// nodes of a domain.
    domains: Option<Column<NodeIdx, u32>>,
}

/// If there are more domains, looking at each of them for each search is slow. Guessed.
const MAX_DOMAINS: usize = 64;

/// With fewer nodes a domain, hardly any node is spared by looking at one of each domain. Guessed.
const MIN_NODES_OF_DOMAIN: usize = 2;

/// See [`ClassRules::domains`].
fn domains(
    cluster: &Cluster,
    policy: &Policy,
    class: ClassIdx,
    predicates: &[(Position, Dependencies)],
    terms: &[(Position, ScoreTerm)],
) -> Option<Column<NodeIdx, u32>> {
    let predicates = predicates.iter().filter(|(_, own)| own.has(Dependency::Domain));
    let terms = terms.iter().filter(|(_, term)| is_of_domains(term));
    let mut columns = Vec::new();
    for at in predicates.map(|(at, _)| at).chain(terms.map(|(at, _)| at)) {
        columns.extend(policy.plugin(*at).domains(cluster, class)?);
    }
    if columns.is_empty() { None } else { joined(&columns, cluster.nodes.facts.len()) }
}

/// The domain of each node, numbered in the order of the first node of each: nodes of one domain have the
/// same number in every column. `None` if there are too many domains.
fn joined(columns: &[DomainColumn], n_nodes: usize) -> Option<Column<NodeIdx, u32>> {
    let mut numbers = BTreeMap::<Vec<u32>, u32>::new();
    let mut of_nodes = Column::new();
    let most = MAX_DOMAINS.min(n_nodes / MIN_NODES_OF_DOMAIN);
    for node in (0..n_nodes).map(NodeIdx::new) {
        let key: Vec<u32> = columns.iter().map(|column| column[node]).collect();
        let next = numbers.len() as u32;
        of_nodes.push(*numbers.entry(key).or_insert(next));
        if numbers.len() > most {
            return None;
        }
    }
    Some(of_nodes)
}

impl ClassRules {
    pub(super) fn new(cluster: &Cluster, policy: &Policy, class: ClassIdx) -> Self {
        let predicates = policy.about(cluster).dependencies(class);
        let terms = policy.about(cluster).score_terms(class);
        let mut plugins: Vec<Position> =
            predicates.iter().map(|(at, _)| *at).chain(terms.iter().map(|(at, _)| *at)).collect();
        plugins.sort_unstable();
        plugins.dedup();
        let domains = domains(cluster, policy, class, &predicates, &terms);
        Self {
            domains,
            admission: match &cluster.classes.template[class].refused {
                Some(message) => {
                    Err(Inadmissible { cause: Cause::Rules, message: message.clone() })
                }
                None => policy.about(cluster).class_admitted(class),
            },
            requests_unknown: !cluster.classes.request[class].unknown().is_empty(),
            dependencies: predicates.iter().fold(Dependencies::NONE, |all, (_, own)| all | *own),
            predicates,
            terms,
            plugins,
        }
    }

    /// The domain of each node, if the index may look at one node of each domain.
    pub(super) const fn domains(&self) -> Option<&Column<NodeIdx, u32>> {
        self.domains.as_ref()
    }

    /// Whether the class can be placed at all.
    pub(super) const fn admitted(&self) -> bool {
        self.admission.is_ok() && !self.requests_unknown
    }

    pub(super) fn terms(&self) -> &[(Position, ScoreTerm)] {
        &self.terms
    }

    pub(super) const fn dependencies(&self) -> Dependencies {
        self.dependencies
    }

    /// Whether a placement on one node can change an answer about another.
    pub(super) fn depend_on_other_nodes(&self) -> bool {
        let dependencies = self.dependencies();
        dependencies.has(Dependency::Domain) || dependencies.has(Dependency::Cluster)
    }

    /// The plugins whose answers about the class placements can change.
    fn moving(&self) -> impl Iterator<Item = Position> {
        let moving = self.predicates.iter().filter(|(_, own)| {
            let fixed = Dependencies::NONE.with_if(Dependency::Class, own.has(Dependency::Class));
            *own != fixed
        });
        moving.map(|(at, _)| *at)
    }

    /// Whether moving some task may change an answer about the class.
    pub(super) fn may_depend_on_tasks(&self) -> bool {
        self.moving().next().is_some()
    }

    /// Whether moving a task may change an answer about the class.
    pub(super) fn depend_on(
        &self,
        policy: &Policy,
        cluster: &Cluster,
        class: ClassIdx,
        other: TaskIdx,
    ) -> bool {
        self.moving().any(|at| policy.plugin(at).depends_on(cluster, class, other))
    }

    /// The sum of the versions of all plugins.
    pub(super) fn version(&self, policy: &Policy, cluster: &Cluster, class: ClassIdx) -> u64 {
        self.plugins.iter().map(|at| policy.plugin(*at).version(cluster, class)).sum()
    }

    /// Whether the index supports every predicate and score: none depends on [`Dependency::Cluster`].
    pub(super) fn is_indexable(&self) -> bool {
        !self.dependencies().has(Dependency::Cluster)
            && self.terms.iter().all(|(_, term)| match term.scale {
                Scale::Joint => self.domains.is_some(),
                _ if self.domains.is_some() && is_of_domains(term) => true,
                Scale::AsIs => term.dependency != Dependency::Cluster,
                Scale::UpToLargest | Scale::DownFromLargest => term.dependency == Dependency::Class,
                Scale::FromLeast => term.dependency != Dependency::Cluster,
            })
    }

    /// The nodes that pass the predicates of [`Dependency::Class`].
    pub(super) fn eligible(&self, inputs: Inputs<'_>, class: ClassIdx) -> NodeSet {
        let Inputs { cluster, policy, .. } = inputs;
        let mut nodes = NodeSet::all(cluster.nodes.facts.len());
        for (at, dependencies) in &self.predicates {
            if dependencies.has(Dependency::Class) {
                policy.plugin(*at).retain_eligible(cluster, class, &mut nodes);
            }
        }
        nodes
    }

    /// Whether a task of the class fits on a node: its request does, and the predicates of these
    /// dependencies pass.
    pub(super) fn fits(
        &self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        node: NodeIdx,
        capacity: Capacity,
        dependencies: &[Dependency],
    ) -> bool {
        let request = &inputs.cluster.classes.request[class];
        inputs.cluster.nodes.fits(node, request, capacity)
            && self.pass(inputs, class, node, capacity, dependencies)
    }

    /// Keeps the nodes on which a task of the class fits, as [`ClassRules::fits`].
    pub(super) fn retain_fitting(
        &self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        nodes: &mut Vec<NodeIdx>,
        capacity: Capacity,
        dependencies: &[Dependency],
    ) {
        let request = &inputs.cluster.classes.request[class];
        inputs.cluster.nodes.retain_fitting(nodes, request, capacity);
        if !self.admitted() || dependencies.iter().any(|own| self.dependencies.has(*own)) {
            nodes.retain(|node| self.pass(inputs, class, *node, capacity, dependencies));
        }
    }

    /// Whether every predicate of these dependencies passes.
    pub(super) fn pass(
        &self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        node: NodeIdx,
        capacity: Capacity,
        dependencies: &[Dependency],
    ) -> bool {
        let Inputs { cluster, policy, .. } = inputs;
        self.admitted()
            && dependencies.iter().all(|dependency| {
                self.predicate(policy, cluster, class, node, *dependency, capacity).is_ok()
            })
    }

    /// At most how many tasks of the class a node holds, as far as plugins count them.
    pub(super) fn max_on_node(
        &self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> u64 {
        let Inputs { cluster, policy, .. } = inputs;
        let counting = self.predicates.iter().filter(|(_, own)| own.has(Dependency::Node));
        let counts =
            counting.map(|(at, _)| policy.plugin(*at).max_on_node(cluster, class, node, capacity));
        counts.min().unwrap_or(u64::MAX)
    }

    /// Whether variants of the class may share an index: no score depends on which selectors match them.
    pub(super) fn scores_are_of_nodes(&self) -> bool {
        let is_of_nodes = |term: &ScoreTerm| match term.dependency {
            Dependency::Class | Dependency::Node => true,
            Dependency::Domain | Dependency::Cluster => false,
        };
        self.terms.iter().all(|(_, term)| is_of_nodes(term))
    }

    /// The refusals of a node that come before a lack of resources, one for each dependency: on a node that lacks
    /// resources, later ones are not reported.
    pub(super) fn refusals_before_resources(
        &self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        node: NodeIdx,
    ) -> Vec<Unfit> {
        let Inputs { cluster, policy, .. } = inputs;
        let of = |dependency: Dependency| {
            let predicates = self.predicates.iter().filter(|(_, own)| own.has(dependency));
            let refusals = predicates.filter_map(|(at, _)| {
                let query = NodeQuery::new(class, node, dependency, Capacity::Idle);
                let query = NodeQuery { lacks_resources: true, ..query };
                policy.plugin(*at).predicate(cluster, query).err()
            });
            refusals.min().filter(|refusal| *refusal < Unfit::TooManyPods)
        };
        Dependency::ALL.into_iter().filter_map(of).collect()
    }

    /// Evaluates the predicates of one dependency. Of several reasons, returns the one Kubernetes
    /// would report.
    pub(super) fn predicate(
        &self,
        policy: &Policy,
        cluster: &Cluster,
        class: ClassIdx,
        node: NodeIdx,
        dependency: Dependency,
        capacity: Capacity,
    ) -> Result<(), Unfit> {
        if !self.dependencies.has(dependency) {
            return Ok(());
        }
        let query = NodeQuery::new(class, node, dependency, capacity);
        let asked = self.predicates.iter().filter(|(_, own)| own.has(dependency));
        let refusals =
            asked.filter_map(|(at, _)| policy.plugin(*at).predicate(cluster, query).err());
        refusals.min().map_or(Ok(()), Err)
    }

    /// The scores of these nodes for the class, normalised over them.
    pub(super) fn scores(
        &self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        nodes: &[NodeIdx],
    ) -> Vec<i64> {
        let mut totals = vec![0; nodes.len()];
        let mut raw = vec![0; nodes.len()];
        for (at, term) in self.terms() {
            write_raw_scores(inputs, class, (*at, *term), nodes, &mut raw);
            if term.scale == Scale::AsIs {
                add(&mut totals, term.weight, &raw);
                continue;
            }
            let among = Extremes::of(raw.iter().copied());
            for (total, raw) in totals.iter_mut().zip(&raw) {
                *total += term.weight * term.scale.apply(*raw, among);
            }
        }
        totals
    }
}

/// Whether the scores of the term are the same for all nodes of a domain.
pub(super) const fn is_of_domains(term: &ScoreTerm) -> bool {
    matches!(term.dependency, Dependency::Domain) || matches!(term.scale, Scale::Joint)
}

/// The sum of these terms, none of which is normalised, for each node.
pub(super) fn absolute_scores<'a>(
    inputs: Inputs<'_>,
    class: ClassIdx,
    terms: impl Iterator<Item = &'a (Position, ScoreTerm)>,
    nodes: &[NodeIdx],
) -> Vec<i64> {
    let mut totals = vec![0; nodes.len()];
    let mut raw = vec![0; nodes.len()];
    for (at, term) in terms {
        write_raw_scores(inputs, class, (*at, *term), nodes, &mut raw);
        add(&mut totals, term.weight, &raw);
    }
    totals
}

fn add(totals: &mut [i64], weight: i64, raw: &[i64]) {
    for (total, raw) in totals.iter_mut().zip(raw) {
        *total += weight * raw;
    }
}

/// Writes the raw score of each node for one term.
pub(super) fn write_raw_scores(
    inputs: Inputs<'_>,
    class: ClassIdx,
    (at, term): (Position, ScoreTerm),
    nodes: &[NodeIdx],
    raw: &mut [i64],
) {
    let Inputs { cluster, policy, .. } = inputs;
    if term.scale == Scale::Joint {
        raw.fill(0);
    }
    policy.plugin(at).scores(cluster, class, nodes, term.id, raw);
}
