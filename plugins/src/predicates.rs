//! Kubernetes' filters: where a task may not go.
//!
//! Room and pod slots are counted by the framework; here is every other rule, in Kubernetes' own
//! words: node state and cordons, taints, node selectors and affinity, host ports, volumes, topology
//! spread, inter-pod affinity and anti-affinity. Pods of every scheduler count, those placed earlier
//! in the cycle too.
//!
//! What does not change in a cycle is worked out when it opens, for each constraint class
//! (constraints without the request). What changes is counted and follows the moves one by one;
//! after a move and its reverse every count is as before.
//!
//! A rule asks for no more than it needs: node facts alone (`Class`), the tasks on one node (host
//! ports, disks, volume limits), or the whole cluster (spread, inter-pod terms, claims in use or
//! waiting for a volume). A class to which no rule of the last two kinds applies costs one look at
//! each node in a cycle.
//!
//! Not watched, so not known: Services and their default spreading, CSIDriver, CSIStorageCapacity,
//! VolumeAttachment, dynamic resources.
//!
//! Source: Kubernetes 1.36 `pkg/scheduler/framework/plugins`; kube-batch v0.5.0
//! `plugins/predicates/predicates.go` for node conditions and the pressure arguments.

mod attachments;
mod binding;
mod claims;
mod holdings;
mod node_state;
mod pod_terms;
mod spread_rules;
mod zone;

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, Column, NodeIdx, TaskIdx},
    decision::ClaimChoice,
    name::Name,
    reason::Unfit,
};
use kube_batch_framework::plugin::{
    Capacity, Change, Dependencies, Dependency, OrderScope, Plugin,
};
use kube_batch_framework::session_cache::SessionCache;

use self::{
    attachments::Attachments,
    binding::WaitingClaims,
    claims::{BoundVolumes, ClaimsInUse, resolve},
    holdings::Holdings,
    node_state::NodeStates,
    pod_terms::PodAffinity,
    spread_rules::SpreadRules,
};
use crate::{
    constraint_classes::{ConstraintClassIdx, ConstraintClasses},
    node_labels::NodeLabels,
    node_tests::Compiler,
    taints::TaintSets,
    topology_counts::{arrivals, deltas},
};

/// The arguments of the plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PredicatesArguments {
    /// `predicate.MemoryPressureEnable`: nodes under memory pressure refuse best-effort pods.
    pub memory_pressure: bool,
    /// `predicate.DiskPressureEnable`: nodes under disk pressure refuse.
    pub disk_pressure: bool,
    /// `predicate.PIDPressureEnable`: nodes short of process ids refuse.
    pub pid_pressure: bool,
}

/// The plugin `predicates`.
#[derive(Debug, Default)]
pub struct Predicates {
    arguments: PredicatesArguments,
    classes: ConstraintClasses,
    labels: NodeLabels,
    /// Why a constraint class can go nowhere.
    refusals: Column<ConstraintClassIdx, Option<Name>>,
    nodes: NodeStates,
    bound_volumes: BoundVolumes,
    ports: Holdings,
    disks: Holdings,
    attachments: Attachments,
    claims_in_use: ClaimsInUse,
    waiting_claims: WaitingClaims,
    spread: SpreadRules,
    pods: PodAffinity,
    /// Whether any constraint class that is asked about has a rule that counts tasks.
    counts: bool,
}

impl Predicates {
    /// The plugin with its arguments, before any session.
    pub fn new(arguments: PredicatesArguments) -> Self {
        Self { arguments, ..Self::default() }
    }

    fn open(arguments: PredicatesArguments, cluster: &Cluster) -> Self {
        let classes = ConstraintClasses::new(cluster);
        let mut labels = NodeLabels::default();
        let mut compiler = Compiler { cluster, labels: &mut labels };
        let taints = TaintSets::new(cluster);
        let mut opened = Self {
            arguments,
            refusals: Column::filled(None, classes.len()),
            nodes: NodeStates::new(&mut compiler, &classes, &taints, arguments),
            bound_volumes: BoundVolumes::new(classes.len()),
            ports: Holdings::of_ports(cluster, &classes),
            disks: Holdings::of_disks(cluster, &classes),
            attachments: Attachments::new(cluster, &classes),
            claims_in_use: ClaimsInUse::new(cluster, &classes),
            waiting_claims: WaitingClaims::new(classes.len()),
            spread: SpreadRules::new(&mut compiler, &classes, &taints),
            pods: PodAffinity::new(&mut compiler, &classes),
            ..Self::default()
        };
        for constraint_class in classes.to_place() {
            opened.refusals[constraint_class] =
                opened.admit(&mut compiler, &classes, constraint_class).err();
        }
        let counts = |constraint_class| {
            opened.of_one_node(constraint_class) || opened.of_the_cluster(constraint_class)
        };
        opened.counts = classes.to_place().any(counts);
        opened.classes = classes;
        opened.labels = labels;
        if opened.counts {
            for change in arrivals(cluster) {
                opened.on_placement(cluster, &change);
            }
        }
        opened
    }

    /// Looks at a constraint class as a whole, in Kubernetes' order, and notes its volumes.
    fn admit(
        &mut self,
        compiler: &mut Compiler<'_>,
        classes: &ConstraintClasses,
        constraint_class: ConstraintClassIdx,
    ) -> Result<(), Name> {
        let cluster = compiler.cluster;
        let template = classes.template(cluster, constraint_class);
        if let Some(reason) = node_state::refusal(template) {
            return Err(reason);
        }
        let task = &cluster.tasks.facts[classes.first_task(constraint_class)];
        let resolved = resolve(&cluster.storage, &template.claims, task)?;
        self.bound_volumes.add(compiler, constraint_class, &resolved);
        self.waiting_claims.add(compiler, constraint_class, &resolved);
        pod_terms::refusal(template).map_or(Ok(()), Err)
    }

    /// Whether rules for the constraint class look at the tasks on a node.
    fn of_one_node(&self, constraint_class: ConstraintClassIdx) -> bool {
        self.ports.concerns(constraint_class)
            || self.disks.concerns(constraint_class)
            || self.attachments.concerns(constraint_class)
    }

    /// Whether rules for the constraint class look at tasks anywhere.
    fn of_the_cluster(&self, constraint_class: ConstraintClassIdx) -> bool {
        self.claims_in_use.concerns(constraint_class)
            || self.waiting_claims.concerns(constraint_class)
            || self.spread.concerns(constraint_class)
            || self.pods.concerns(constraint_class)
    }

    fn check_node(&self, constraint_class: ConstraintClassIdx, node: NodeIdx) -> Result<(), Unfit> {
        self.nodes.check(&self.labels, constraint_class, node)?;
        self.bound_volumes.check(&self.labels, constraint_class, node)
    }

    fn check_tasks_there(
        &self,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> Result<(), Unfit> {
        if self.ports.clashes(constraint_class, node, capacity) {
            Err(Unfit::HostPorts)
        } else if self.disks.clashes(constraint_class, node, capacity) {
            Err(Unfit::DiskConflict)
        } else if !self.attachments.fit(constraint_class, node, capacity) {
            Err(Unfit::MaxVolumeCount)
        } else {
            Ok(())
        }
    }

    fn check_cluster(
        &self,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> Result<(), Unfit> {
        self.claims_in_use.check(constraint_class, capacity)?;
        self.waiting_claims.check(&self.labels, constraint_class, node)?;
        self.spread.check(&self.labels, constraint_class, node)?;
        self.pods.check(&self.labels, constraint_class, node, capacity)
    }
}

impl Plugin for Predicates {
    fn name(&self) -> &'static str {
        "predicates"
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn on_session_open(&mut self, cluster: &Cluster, _: &mut SessionCache<'_>) {
        *self = Self::open(self.arguments, cluster);
    }

    fn on_placement(&mut self, cluster: &Cluster, change: &Change) {
        if !self.counts {
            return;
        }
        let constraint_class = self.classes.of_task(cluster, change.task);
        self.waiting_claims.moved(&self.labels, constraint_class, change.from, change.to);
        for (node, change) in deltas(change) {
            self.ports.moved(constraint_class, node, change);
            self.disks.moved(constraint_class, node, change);
            self.attachments.moved(constraint_class, node, change);
            self.claims_in_use.moved(constraint_class, change);
            self.spread.moved(&self.labels, constraint_class, node, change);
            self.pods.moved(&self.labels, constraint_class, node, change);
        }
    }

    fn class_admitted(&self, _cluster: &Cluster, class: ClassIdx) -> Result<(), Name> {
        self.refusals[self.classes.of(class)].clone().map_or(Ok(()), Err)
    }

    fn claim_choices(&self, cluster: &Cluster, task: TaskIdx) -> Vec<ClaimChoice> {
        self.waiting_claims.choices(self.classes.of_task(cluster, task))
    }

    fn dependencies(&self, _cluster: &Cluster, class: ClassIdx) -> Dependencies {
        let constraint_class = self.classes.of(class);
        Dependencies::only(Dependency::Class)
            .with_if(Dependency::Node, self.of_one_node(constraint_class))
            .with_if(Dependency::Cluster, self.of_the_cluster(constraint_class))
    }

    fn predicate(
        &self,
        _cluster: &Cluster,
        class: ClassIdx,
        node: NodeIdx,
        dependency: Dependency,
        capacity: Capacity,
    ) -> Result<(), Unfit> {
        let constraint_class = self.classes.of(class);
        match dependency {
            Dependency::Class => self.check_node(constraint_class, node),
            Dependency::Node => self.check_tasks_there(constraint_class, node, capacity),
            Dependency::Cluster => self.check_cluster(constraint_class, node, capacity),
        }
    }
}
