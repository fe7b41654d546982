//! Kubernetes' filters: on which nodes a task may be placed.
//!
//! Each file implements one of Kubernetes' filter plugins, under its name: node conditions and
//! cordons, taints, node selectors and affinity, host ports, volumes, topology spread, inter-pod
//! affinity and anti-affinity. Resources and pod slots are counted by the framework. Pods of every
//! scheduler count, and those placed earlier in the cycle too.
//!
//! A filter compiles its rules when the session opens, once for each constraint class. Filters that
//! count pods follow every placement; after a placement and its reverse, every count is as before.
//!
//! A filter declares for each constraint class what its answers depend on: node facts alone
//! ([`Dependency::Class`]), the pods on one node (host ports, disks, volume limits), those in one
//! topology domain (inter-pod anti-affinity), or the whole cluster (topology spread, inter-pod
//! affinity, claims in use or to be bound). A filter that
//! declares nothing for a class costs nothing for it, on no node; one that counts pods for no class
//! is not called for placements.
//!
//! To add a filter, write its file and list it in `BEFORE_RESOURCES` or `AFTER_RESOURCES`.
//!
//! Not watched, and so not considered: Services and their default spreading, CSIStorageCapacity,
//! VolumeAttachment.
//!
//! Source: Kubernetes 1.36 `pkg/scheduler/framework/plugins`; kube-batch v0.5.0
//! `plugins/predicates/predicates.go` for node conditions and the pressure arguments.

pub mod arguments;
mod dynamic_resources;
mod filter;
mod inter_pod_affinity;
mod node_affinity;
mod node_conflicts;
mod node_ports;
mod node_pressure;
mod node_ready;
mod node_unschedulable;
mod node_volume_limits;
mod pod_topology_spread;
mod taint_toleration;
mod volume_binding;
mod volume_restrictions;
mod volume_zone;

use kube_batch_framework::{
    plugin::{
        Capacity, Claims, Dependencies, Dependency, DomainColumn, NodeQuery, NodesByDomain,
        OrderScope, PlacementChange, Plugin, Prescription, Provided, Settings, VictimQuestion,
        VictimScope,
    },
    session_cache::SessionCache,
    spec::PluginSpec,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, JobIdx, NodeIdx, TaskIdx},
    decision::{ClaimChoice, DeviceChoice},
    name::ObjectKey,
    node_set::NodeSet,
    reason::{Inadmissible, Unfit},
};

use self::arguments::PredicatesArguments;
use self::filter::{BuildFilter, Filter, FilterSet, Query};
use crate::{
    compiled::{CompiledCluster, Opening},
    constraint_classes::ConstraintClassIdx,
    pod_count::{Placed, placements},
};

/// The filters before Kubernetes' filter for resources, in the order in which Kubernetes 1.36 runs its plugins, with
/// v0.5.0's node conditions among them. The first filter that refuses gives the reason, so the order is that of
/// [`Unfit`]; the framework compares resources itself.
const BEFORE_RESOURCES: &[BuildFilter] = &[
    node_affinity::build_pre_filter,
    node_ready::build,
    node_unschedulable::build,
    node_pressure::build,
    taint_toleration::build,
    node_affinity::build,
    node_ports::build,
];

/// The filters after it.
const AFTER_RESOURCES: &[BuildFilter] = &[
    volume_restrictions::build,
    node_volume_limits::build,
    volume_binding::build,
    volume_zone::build,
    pod_topology_spread::build,
    inter_pod_affinity::build,
    dynamic_resources::build,
];

const _: () = assert!(BEFORE_RESOURCES.len() + AFTER_RESOURCES.len() <= FilterSet::CAPACITY);

/// The plugin `predicates`.
#[derive(Debug, Default)]
pub struct Predicates {
    arguments: PredicatesArguments,
    /// Those of [`BEFORE_RESOURCES`], then those of [`AFTER_RESOURCES`].
    filters: Vec<Box<dyn Filter>>,
    /// Which filters apply to a constraint class, for each [`Dependency`].
    applicable: Column<ConstraintClassIdx, [FilterSet; Dependency::ALL.len()]>,
    /// Why a constraint class cannot be placed at all.
    refusals: Column<ConstraintClassIdx, Option<Inadmissible>>,
    /// The filters whose answers placements can change.
    following: FilterSet,
}

impl Predicates {
    /// The plugin with its arguments, before any session.
    pub fn new(arguments: PredicatesArguments) -> Self {
        Self { arguments, ..Self::default() }
    }

    fn open(arguments: PredicatesArguments, opening: Opening<'_>) -> Self {
        let all = BEFORE_RESOURCES.iter().chain(AFTER_RESOURCES);
        let filters: Vec<Box<dyn Filter>> = all.map(|build| build(opening, &arguments)).collect();
        let mut applicable = opening.by_class([FilterSet::default(); Dependency::ALL.len()]);
        let mut refusals = opening.by_class(None);
        let mut following = FilterSet::default();
        for class in opening.classes().to_place() {
            refusals[class] = filters.iter().find_map(|filter| filter.admit(class).err());
            for (at, filter) in filters.iter().enumerate() {
                let dependencies = filter.dependencies(class);
                for dependency in Dependency::ALL.into_iter().filter(|d| dependencies.has(*d)) {
                    applicable[class][dependency as usize].insert(at);
                    if dependency != Dependency::Class {
                        following.insert(at);
                    }
                }
            }
        }
        let mut opened = Self { arguments, filters, applicable, refusals, following };
        if !opened.following.is_empty() {
            for placed in placements(opening.cluster) {
                opened.follow(&placed);
            }
        }
        opened
    }

    fn follow(&mut self, placed: &Placed) {
        for at in self.following {
            self.filters[at].on_placement(placed);
        }
    }
}

/// How a configuration names the plugin.
pub const SPEC: PluginSpec = PluginSpec {
    name: "predicates",
    about: "Kubernetes' filters: where a pod may run",
    arguments: &arguments::SPECS,
    metadata_prefixes: &[],
    new: |arguments| Box::new(Predicates::new(PredicatesArguments::of(arguments))),
};

impl Plugin for Predicates {
    fn name(&self) -> &'static str {
        "predicates"
    }

    fn settings(&self) -> Settings {
        Settings {
            ignored_resources: self.arguments.ignored_resources.clone(),
            ..Settings::default()
        }
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn provides(&self) -> Provided<'_> {
        Provided { claims: Some(self), ..Provided::default() }
    }

    fn on_session_open(&mut self, cluster: &Cluster, cache: &mut SessionCache<'_>) {
        let compiled = cache.get::<CompiledCluster>();
        *self = Self::open(self.arguments.clone(), Opening { cluster, compiled: &compiled });
    }

    fn on_placement(&mut self, cluster: &Cluster, change: &PlacementChange) {
        if !self.following.is_empty() {
            self.follow(&Placed::new(cluster, change));
        }
    }

    fn on_prescription(&mut self, prescription: Prescription) {
        match prescription {
            Prescription::Alternative(alternative) => {
                self.filters.iter_mut().for_each(|filter| filter.try_first(alternative));
            }
            Prescription::Domain(..) => {}
        }
    }

    fn class_admitted(&self, cluster: &Cluster, class: ClassIdx) -> Result<(), Inadmissible> {
        self.refusals[cluster.classes.constraint_class[class]].clone().map_or(Ok(()), Err)
    }

    fn work(&self) -> u64 {
        self.filters.iter().map(|filter| filter.work()).sum()
    }

    fn domains_to_choose(&self, cluster: &Cluster, class: ClassIdx) -> NodesByDomain {
        let class = cluster.classes.constraint_class[class];
        let [_, _, domain, all] = self.applicable[class];
        let domains = domain.union(all).find_map(|at| {
            let domains = self.filters[at].domains_to_choose(class);
            (!domains.is_empty()).then_some(domains)
        });
        domains.unwrap_or_default()
    }

    fn dependencies(&self, cluster: &Cluster, class: ClassIdx) -> Dependencies {
        let applicable = &self.applicable[cluster.classes.constraint_class[class]];
        Dependency::ALL.into_iter().fold(Dependencies::NONE, |all, dependency| {
            all.with_if(dependency, !applicable[dependency as usize].is_empty())
        })
    }

    fn version(&self, cluster: &Cluster, class: ClassIdx) -> u64 {
        let class = cluster.classes.constraint_class[class];
        self.applicable[class][Dependency::Domain as usize]
            .map(|at| self.filters[at].version(class))
            .sum()
    }

    fn domains(&self, cluster: &Cluster, class: ClassIdx) -> Option<Vec<DomainColumn>> {
        let class = cluster.classes.constraint_class[class];
        let mut filters = self.applicable[class][Dependency::Domain as usize];
        let labels = filters.try_fold(Vec::new(), |mut labels, at| {
            labels.extend(self.filters[at].domains(class)?);
            Some(labels)
        });
        Some(labels?.into_iter().map(|labels| labels.numbers()).collect())
    }

    fn depends_on(&self, cluster: &Cluster, class: ClassIdx, other: TaskIdx) -> bool {
        let class = cluster.classes.constraint_class[class];
        let other = cluster.classes.constraint_class[cluster.tasks.class[other]];
        let [_, node, domain, all] = self.applicable[class];
        node.union(domain).union(all).any(|at| self.filters[at].depends_on(class, other))
    }

    fn max_on_node(
        &self,
        cluster: &Cluster,
        class: ClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> u64 {
        let class = cluster.classes.constraint_class[class];
        let filters = self.applicable[class][Dependency::Node as usize];
        let counts = filters.map(|at| self.filters[at].max_on_node(class, node, capacity));
        counts.min().unwrap_or(u64::MAX)
    }

    fn retain_eligible(&self, cluster: &Cluster, class: ClassIdx, nodes: &mut NodeSet) {
        let class = cluster.classes.constraint_class[class];
        for at in self.applicable[class][Dependency::Class as usize] {
            self.filters[at].retain_eligible(class, nodes);
        }
    }

    fn predicate(&self, cluster: &Cluster, query: NodeQuery) -> Result<(), Unfit> {
        let NodeQuery { node, dependency, capacity, .. } = query;
        let class = cluster.classes.constraint_class[query.class];
        let mut applicable = self.applicable[class][dependency as usize];
        if query.lacks_resources {
            applicable = applicable.before(BEFORE_RESOURCES.len());
        }
        applicable
            .try_for_each(|at| self.filters[at].check(Query { class, node, dependency, capacity }))
    }

    fn victim_scope(&self, _: &Cluster, _: TaskIdx, _: VictimQuestion) -> VictimScope {
        VictimScope::NONE
    }
}

impl Claims for Predicates {
    fn claim_choices(&self, cluster: &Cluster, task: TaskIdx) -> Vec<ClaimChoice> {
        let class = cluster.classes.constraint_class[cluster.tasks.class[task]];
        self.filters.iter().flat_map(|filter| filter.claim_choices(class)).collect()
    }

    fn device_choices(&self, task: TaskIdx) -> Vec<DeviceChoice> {
        self.filters.iter().flat_map(|filter| filter.device_choices(task)).collect()
    }

    fn must_wait(&self, task: TaskIdx) -> bool {
        self.filters.iter().any(|filter| filter.must_wait(task))
    }

    fn n_alternatives(&self, cluster: &Cluster, class: ClassIdx) -> usize {
        let class = cluster.classes.constraint_class[class];
        self.filters.iter().map(|filter| filter.n_alternatives(class)).max().unwrap_or(1)
    }

    fn reason_text(&self, cluster: &Cluster, class: ClassIdx, reason: Unfit) -> Option<String> {
        let class = cluster.classes.constraint_class[class];
        self.filters.iter().find_map(|filter| filter.reason_text(class, reason))
    }

    fn claims_to_deallocate(
        &self,
        cluster: &Cluster,
        is_refused: &dyn Fn(JobIdx) -> bool,
    ) -> Vec<(TaskIdx, ObjectKey)> {
        let claims =
            self.filters.iter().flat_map(|filter| filter.claims_to_deallocate(cluster, is_refused));
        claims.collect()
    }

    fn has_postponed(&self) -> bool {
        self.filters.iter().any(|filter| filter.has_postponed())
    }
}
