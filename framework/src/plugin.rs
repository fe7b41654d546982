//! The interface of a plugin: the extension points of a cycle.
//!
//! A plugin implements one policy. Events take `&mut self` and update its state; all other methods
//! take `&self`, so a decision never changes the policy. Every method except the name has a default
//! that means "no opinion", so a plugin implements only the extension points it needs.
//!
//! Predicates and scores are evaluated for a class of tasks, not for a single task: tasks of a class
//! are interchangeable. A plugin declares what each answer depends on ([`Dependency`]), and the
//! framework caches the answer until that changes.

use std::{cmp::Ordering, ops};

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, Column, Dim, JobIdx, NodeIdx, QueueIdx, TaskIdx},
    decision::ClaimChoice,
    name::Name,
    reason::{JobProblem, Unfit},
    resource::{ResourceVector, Share},
    status::Placement,
};

use crate::session_cache::SessionCache;

/// What an answer about a class and a node depends on, and so how long it stays valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dependency {
    /// The class's constraints (not its request) and the node's facts. Evaluated once in a cycle.
    Class,
    /// Also that node's ledgers and the tasks on it. Evaluated again when the node changes.
    Node,
    /// Also placements on other nodes. Evaluated again after each placement.
    Cluster,
}

impl Dependency {
    /// All, from the narrowest to the broadest.
    pub const ALL: [Self; 3] = [Self::Class, Self::Node, Self::Cluster];
}

/// The dependencies of a plugin's predicates for a class. [`Plugin::predicate`] is called once for
/// each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dependencies(u8);

impl Dependencies {
    /// No rule applies to the class.
    pub const NONE: Self = Self(0);

    /// Only this one.
    pub const fn only(dependency: Dependency) -> Self {
        Self(1 << dependency as u8)
    }

    /// Whether this one is among them.
    pub const fn has(self, dependency: Dependency) -> bool {
        self.0 & (1 << dependency as u8) != 0
    }

    /// With this one as well, if `condition` holds.
    #[must_use]
    pub const fn with_if(self, dependency: Dependency, condition: bool) -> Self {
        if condition { Self(self.0 | 1 << dependency as u8) } else { self }
    }
}

impl ops::BitOr for Dependencies {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Which resources of a node a task may use, and so which tasks count as being on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capacity {
    /// What is idle now: every task on the node counts.
    Idle,
    /// What is idle once the tasks that are being terminated are gone: those do not count.
    FutureIdle,
}

/// One score that a plugin computes for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoreTerm {
    /// The number by which the plugin knows the term.
    pub id: u8,
    /// The factor of the normalised score. A negative weight reverses the preference.
    pub weight: i64,
    /// What the raw score depends on.
    pub dependency: Dependency,
    /// How the raw scores are normalised.
    pub scale: Scale,
}

/// How the raw scores of the candidate nodes are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The raw scores are the scores.
    AsIs,
    /// `floor(100 * raw / largest)`; all 0 if the largest is 0.
    UpToLargest,
    /// `100 - floor(100 * raw / largest)`; all 100 if the largest is 0.
    DownFromLargest,
    /// The plugin computes the scores of all candidates at once, in [`Plugin::score_all`].
    Joint,
}

impl Scale {
    /// The score of a raw score, given the largest of all candidates.
    pub fn apply(self, raw: i64, largest: i64) -> i64 {
        match self {
            Self::AsIs | Self::Joint => raw,
            Self::UpToLargest if largest == 0 => 0,
            Self::UpToLargest => 100 * raw / largest,
            Self::DownFromLargest if largest == 0 => 100,
            Self::DownFromLargest => 100 - 100 * raw / largest,
        }
    }
}

/// A plugin's answer about one possible victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// No opinion: the other plugins decide.
    Abstain,
    /// The victim may be evicted.
    Permit,
    /// The victim must not be evicted.
    Reject,
}

/// The proposal to evict one task for another.
#[derive(Clone, Copy, Debug)]
pub struct Proposal<'a> {
    /// The task that would get the resources: the preemptor, or the reclaimer if the victim is of
    /// another queue.
    pub preemptor: TaskIdx,
    /// The task that would be evicted.
    pub victim: TaskIdx,
    /// Tasks already evicted in this dry run. The cluster still shows them as running, so a plugin
    /// that counts tasks or resources subtracts them.
    pub evicted: &'a [TaskIdx],
}

/// A task moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The task.
    pub task: TaskIdx,
    /// Its status and node before.
    pub from: Placement,
    /// Its status and node now.
    pub to: Placement,
}

impl Change {
    /// +1 if the task now counts as held by its job and queue and did not before, -1 for the
    /// reverse, else 0.
    pub fn held(&self) -> i64 {
        i64::from(self.to.status.is_held()) - i64::from(self.from.status.is_held())
    }
}

/// What an order depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderScope {
    /// Only the two queues or jobs compared: their order changes only when a task of one of them
    /// moves.
    Own,
    /// Anything: the order may change whenever any task moves.
    Anything,
}

/// The amounts from which the share of a queue is computed, for status, reports and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueShares {
    /// What the queue deserves.
    pub deserved: ResourceVector,
    /// What its tasks hold.
    pub allocated: ResourceVector,
    /// What its tasks hold or request.
    pub request: ResourceVector,
    /// The largest fraction, over all resources, of what it deserves that it holds.
    pub share: Share,
    /// Whether it is at or above its fair share.
    pub overused: bool,
}

/// A scheduling policy.
///
/// # Writing a plugin
///
/// Implement the extension points the policy needs. Every plugin should also implement two methods
/// whose defaults are correct but slow, and slow for all plugins together:
///
/// - [`Plugin::order_scope`]: what its orders depend on. A plugin without orders returns
///   [`OrderScope::Own`].
/// - [`Plugin::dependencies`]: what its predicates depend on. A plugin without predicates returns
///   [`Dependencies::NONE`].
///
/// Declaring too broad a dependency costs time; declaring too narrow a one silently reuses stale
/// answers. Scores declare theirs for each term, in [`ScoreTerm`].
///
/// The framework relies on the following, and cannot check it:
///
/// - An answer depends on the cluster, the arguments and the plugin's own state only: not on the
///   clock, on randomness, or on the order of a hash map.
/// - State that follows placements changes in [`Plugin::on_placement`] only, and a placement and its
///   reverse leave it exactly as it was, because statements are rolled back. Integers do so; a sum of
///   floats does not.
/// - The answer of a predicate with [`Dependency::Class`] is the same for all classes of one
///   constraint class, whatever they request.
/// - `job_pipelined` is true exactly if `tasks_missing` is 0, and a job that is ready is pipelined.
///   A plugin that implements one of these three methods implements all of them.
/// - The cluster still shows the tasks in [`Proposal::evicted`], and in the parameter `evicted` of
///   other methods, as running: a plugin that counts subtracts them.
///
/// Events reach a plugin whichever of its extension points the configuration disables.
///
/// # Examples
///
/// A policy that prefers the cheapest node and uses none above a price limit.
///
/// ```
/// use kube_batch_api::{cluster::Cluster, column::*, reason::Unfit};
/// use kube_batch_framework::{candidates::Search, plugin::*, policy::*, session::Session};
///
/// struct Thrift {
///     limit: i64,
/// }
///
/// fn price(cluster: &Cluster, node: NodeIdx) -> i64 {
///     let label = cluster.nodes.facts[node].labels.get("example.com/price");
///     label.and_then(|price| price.parse().ok()).unwrap_or(0)
/// }
///
/// impl Plugin for Thrift {
///     fn name(&self) -> &'static str {
///         "thrift"
///     }
///
///     // It has no orders.
///     fn order_scope(&self) -> OrderScope {
///         OrderScope::Own
///     }
///
///     // A price is a label: no placement changes it.
///     fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
///         Dependencies::only(Dependency::Class)
///     }
///
///     fn predicate(
///         &self,
///         cluster: &Cluster,
///         _: ClassIdx,
///         node: NodeIdx,
///         _: Dependency,
///         _: Capacity,
///     ) -> Result<(), Unfit> {
///         let is_dear = price(cluster, node) > self.limit;
///         if is_dear { Err(Unfit::Other("node(s) were too dear")) } else { Ok(()) }
///     }
///
///     fn score_terms(&self, _: &Cluster, _: ClassIdx) -> Vec<ScoreTerm> {
///         let (dependency, scale) = (Dependency::Class, Scale::DownFromLargest);
///         vec![ScoreTerm { id: 0, weight: 1, dependency, scale }]
///     }
///
///     fn score(&self, cluster: &Cluster, _: ClassIdx, node: NodeIdx, _: u8) -> i64 {
///         price(cluster, node)
///     }
/// }
///
/// // Three nodes, with prices 7, 4 and 2, and a class of pods that request nothing.
/// # use kube_batch_api::{
/// #     cluster::{Classes, Nodes},
/// #     facts::{class::PodTemplate, node::NodeFacts},
/// #     resource::{Dimensions, Ledger},
/// #     selector::Labels,
/// # };
/// # let nodes = [("n0", "7"), ("n1", "4"), ("n2", "2")].map(|(name, price)| NodeFacts {
/// #     name: name.into(),
/// #     labels: Labels::from_map(Some(&[("example.com/price".into(), price.into())].into())),
/// #     ..NodeFacts::default()
/// # });
/// # let dimensions = Dimensions::new([]);
/// # let ledger = || Ledger::zero(dimensions.len(), nodes.len());
/// # let template = PodTemplate::default();
/// # let cluster = Cluster {
/// #     nodes: Nodes {
/// #         allocatable: ledger(),
/// #         idle: ledger(),
/// #         releasing: ledger(),
/// #         pipelined: ledger(),
/// #         used: ledger(),
/// #         tasks: nodes.iter().map(|_| Vec::new()).collect(),
/// #         facts: nodes.into_iter().map(Into::into).collect(),
/// #     },
/// #     queues: Default::default(),
/// #     jobs: Default::default(),
/// #     tasks: Default::default(),
/// #     classes: Classes {
/// #         request: [dimensions.request(&template.request)].into_iter().collect(),
/// #         matched_by: [Vec::new()].into_iter().collect(),
/// #         constraint_class: [ConstraintClassIdx::new(0)].into_iter().collect(),
/// #         group_metadata: [Default::default()].into_iter().collect(),
/// #         template: [template.into()].into_iter().collect(),
/// #     },
/// #     matchers: Default::default(),
/// #     storage: Default::default(),
/// #     dimensions,
/// # };
/// # let class = ClassIdx::new(0);
/// let thrift = |limit| {
///     let plugin: Box<dyn Plugin> = Box::new(Thrift { limit });
///     let extension_points = ExtensionPoints::ALL;
///     Policy { tiers: vec![vec![ConfiguredPlugin { plugin, extension_points }]] }
/// };
/// let mut session = Session::open(cluster.clone(), thrift(5), Search::Index);
/// assert_eq!(session.best_node(class).map(|best| best.node.at()), Some(2));
/// assert!(session.is_indexable(class), "the class can be indexed");
///
/// let mut session = Session::open(cluster, thrift(1), Search::Index);
/// assert_eq!(session.best_node(class), None);
/// let why = session.explain(class).to_string();
/// assert_eq!(why, "0/3 nodes are available: 3 node(s) were too dear.");
/// ```
///
/// To configure it by name, give it a [`PluginSpec`](crate::spec::PluginSpec) and register that.
pub trait Plugin: Send {
    /// The name of the plugin in the configuration.
    fn name(&self) -> &'static str;

    // Events.

    /// Called when a session opens, once the jobs that cannot be scheduled are marked. The plugin
    /// discards all state of the previous cycle.
    ///
    /// Values that several plugins derive from the cluster are computed once, in `cache`.
    fn on_session_open(&mut self, _cluster: &Cluster, _cache: &mut SessionCache<'_>) {}

    /// Called after the status or node of a task has changed. `cluster` shows the task where it is
    /// now.
    fn on_placement(&mut self, _cluster: &Cluster, _change: &Change) {}

    // Order. `Less` means that the left one goes first.

    /// Compares two queues: which one gets the next turn.
    fn queue_order(&self, _cluster: &Cluster, _l: QueueIdx, _r: QueueIdx) -> Ordering {
        Ordering::Equal
    }

    /// Compares two jobs of a queue: which one gets the next turn of the queue.
    fn job_order(&self, _cluster: &Cluster, _l: JobIdx, _r: JobIdx) -> Ordering {
        Ordering::Equal
    }

    /// Compares two tasks of a job: which one is placed first. Must not change during a cycle.
    fn task_order(&self, _cluster: &Cluster, _l: TaskIdx, _r: TaskIdx) -> Ordering {
        Ordering::Equal
    }

    /// What [`Plugin::queue_order`] and [`Plugin::job_order`] read.
    ///
    /// The default is correct for every plugin, but slow: with one such plugin, the session compares
    /// all queues, or all jobs of a queue, for each turn.
    fn order_scope(&self) -> OrderScope {
        OrderScope::Anything
    }

    // Gangs.

    /// Whether the job can be scheduled at all. Called before [`Plugin::on_session_open`].
    ///
    /// # Errors
    ///
    /// The reason why not. The job is skipped in this cycle, and its report gives the reason.
    fn job_valid(&self, _cluster: &Cluster, _job: JobIdx) -> Result<(), JobProblem> {
        Ok(())
    }

    /// Whether the allocated tasks of the job may start.
    fn job_ready(&self, _cluster: &Cluster, _job: JobIdx) -> bool {
        true
    }

    /// Whether the job will be ready once the resources of its pipelined tasks are released.
    fn job_pipelined(&self, _cluster: &Cluster, _job: JobIdx) -> bool {
        true
    }

    /// The number of waiting tasks of the job that must still be placed before it is pipelined; 0 if
    /// it is, or if the plugin has no minimum.
    fn tasks_missing(&self, _cluster: &Cluster, _job: JobIdx) -> u32 {
        0
    }

    // Nodes.

    /// Whether tasks of the class can be placed at all, whatever the node. Called once in a cycle.
    ///
    /// # Errors
    ///
    /// The reason why not, for all nodes at once.
    fn class_admitted(&self, _cluster: &Cluster, _class: ClassIdx) -> Result<(), Name> {
        Ok(())
    }

    /// What the predicates of this plugin for the class depend on. Called once in a cycle.
    /// [`Plugin::predicate`] is called for these dependencies only.
    ///
    /// The default is correct for every plugin, but slow: with one such plugin, no class is indexed,
    /// and every placement evaluates every predicate for every node.
    fn dependencies(&self, _cluster: &Cluster, _class: ClassIdx) -> Dependencies {
        Dependencies::only(Dependency::Cluster)
    }

    /// Whether a task of the class may be placed on the node, according to the predicates with this
    /// dependency.
    ///
    /// The framework itself compares the request with `capacity`. A predicate of
    /// [`Dependency::Class`] ignores `capacity`.
    ///
    /// # Errors
    ///
    /// The reason given by the first predicate that refuses.
    fn predicate(
        &self,
        _cluster: &Cluster,
        _class: ClassIdx,
        _node: NodeIdx,
        _dependency: Dependency,
        _capacity: Capacity,
    ) -> Result<(), Unfit> {
        Ok(())
    }

    /// The volumes chosen for the unbound claims of a task that has been placed. Called when the
    /// task is bound.
    fn claim_choices(&self, _cluster: &Cluster, _task: TaskIdx) -> Vec<ClaimChoice> {
        Vec::new()
    }

    /// The score terms of this plugin for the class. Called once in a cycle.
    ///
    /// Leave a term out if it cannot prefer one node to another for the class. The index supports
    /// terms that depend on [`Dependency::Class`], except with [`Scale::Joint`], and terms that
    /// depend on [`Dependency::Node`] with [`Scale::AsIs`]. With any other term, every placement of
    /// the class scores every node.
    fn score_terms(&self, _cluster: &Cluster, _class: ClassIdx) -> Vec<ScoreTerm> {
        Vec::new()
    }

    /// The raw score of one node for one term.
    fn score(&self, _cluster: &Cluster, _class: ClassIdx, _node: NodeIdx, _term: u8) -> i64 {
        0
    }

    /// Writes the scores of all candidate nodes for a term with [`Scale::Joint`]. `scores` is all 0.
    fn score_all(
        &self,
        _cluster: &Cluster,
        _class: ClassIdx,
        _nodes: &[NodeIdx],
        _term: u8,
        _scores: &mut [i64],
    ) {
    }

    // Victims.

    /// Whether the victim may be evicted for a task of the same queue.
    fn preemptable(&self, _cluster: &Cluster, _proposal: &Proposal<'_>) -> Vote {
        Vote::Abstain
    }

    /// Whether the victim may be evicted for a task of another queue.
    fn reclaimable(&self, _cluster: &Cluster, _proposal: &Proposal<'_>) -> Vote {
        Vote::Abstain
    }

    // Shares.

    /// Whether the queue is at or above its fair share. An overused queue gets no turn in the fair
    /// pass of allocate, nor in reclaim.
    fn overused(&self, _cluster: &Cluster, _queue: QueueIdx) -> bool {
        false
    }

    /// Whether the task's queue stays within its capability if the task is placed and the tasks in
    /// `evicted` are evicted.
    ///
    /// # Errors
    ///
    /// The dimension whose limit would be exceeded.
    fn within_capability(
        &self,
        _cluster: &Cluster,
        _task: TaskIdx,
        _evicted: &[TaskIdx],
    ) -> Result<(), Dim> {
        Ok(())
    }

    /// The resources that must stay idle while idle resources are lent to overused queues; `None` if
    /// the plugin reserves nothing.
    ///
    /// `placeable` holds, for each queue, what its waiting tasks request, as far as they would fit on
    /// an empty cluster.
    fn reserved(
        &self,
        _cluster: &Cluster,
        _placeable: &Column<QueueIdx, ResourceVector>,
    ) -> Option<ResourceVector> {
        None
    }

    // Reports.

    /// The share of a queue, without the tasks in `evicted`; `None` if the plugin computes none.
    fn queue_share(
        &self,
        _cluster: &Cluster,
        _queue: QueueIdx,
        _evicted: &[TaskIdx],
    ) -> Option<Share> {
        None
    }

    /// The amounts behind the share of a queue; `None` if the plugin computes none.
    fn queue_shares(&self, _cluster: &Cluster, _queue: QueueIdx) -> Option<QueueShares> {
        None
    }

    /// The share by which the plugin orders jobs; `None` if it computes none.
    fn job_share(&self, _cluster: &Cluster, _job: JobIdx) -> Option<Share> {
        None
    }

    /// Whether a job that is not ready is reported as unschedulable.
    fn reports_unready_jobs(&self) -> bool {
        false
    }
}
