//! The interface of a plugin: the extension points of a cycle.
//!
//! A plugin is one policy. It is told things with `&mut self` and asked things with `&self`: a
//! policy cannot change while it is being asked. Every question has a default that means "no
//! opinion", so a plugin implements only what it is about.
//!
//! Rules about nodes are asked of a class of tasks, never of a task: what cannot be seen in the
//! class cannot decide. Each such rule states what its answer depends on ([`Dependency`]), and the
//! framework remembers answers accordingly.

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

/// One score a plugin gives a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoreTerm {
    /// The plugin's own number for it.
    pub id: u8,
    /// What the normalised score is multiplied by.
    pub weight: i64,
    /// What the raw score depends on.
    pub dependency: Dependency,
    /// How raw scores become scores.
    pub scale: Scale,
}

/// How the raw scores of the candidate nodes become scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// They are scores already.
    AsIs,
    /// `floor(100 * raw / largest)`; all 0 if the largest is 0.
    UpToLargest,
    /// `100 - floor(100 * raw / largest)`; all 100 if the largest is 0.
    DownFromLargest,
    /// The plugin sees all candidates at once, with [`Plugin::score_all`].
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
    /// Where it stood.
    pub from: Placement,
    /// Where it stands.
    pub to: Placement,
}

impl Change {
    /// +1 if the task is now held by its job and queue and was not, -1 the other way round, else 0.
    pub fn held(&self) -> i64 {
        i64::from(self.to.status.is_held()) - i64::from(self.from.status.is_held())
    }
}

/// What an order looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderScope {
    /// Only the two things compared: a key changes when a task of that job or queue moves.
    Own,
    /// Anything: keys may change whenever anything moves.
    Anything,
}

/// What a fairness policy knows of a queue, for status, reports and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueShares {
    /// What the queue deserves.
    pub deserved: ResourceVector,
    /// What its tasks hold.
    pub allocated: ResourceVector,
    /// What its tasks hold or ask for.
    pub request: ResourceVector,
    /// The largest part of what it deserves that is held.
    pub share: Share,
    /// Whether it gets no turn in the fair pass.
    pub overused: bool,
}

/// One policy.
///
/// # What to think of
///
/// A plugin implements the questions it is about. Two answers every plugin gives on purpose, because
/// what it does not say is taken for the worst, and that is paid by all plugins together:
///
/// - [`Plugin::order_scope`]: whether its orders look at anything but the two things compared. A
///   plugin that orders nothing says [`OrderScope::Own`] too.
/// - [`Plugin::dependencies`]: which kinds of rules it has for a class. A plugin without
///   [`Plugin::predicate`] says [`Dependencies::NONE`].
///
/// Declaring too broad a dependency costs time; declaring too narrow a one silently reuses stale
/// answers. Scores declare theirs for each term, in [`ScoreTerm`].
///
/// Then there is what the framework relies on and cannot check:
///
/// - An answer follows from the cluster, the arguments and the plugin's own state: not from the
///   clock, from chance, or from the order of a hash map.
/// - State that follows placements changes in [`Plugin::on_placement`] and nowhere else, and a move
///   and its reverse leave it as it was, to the last digit: statements are taken back. Integers do;
///   a sum of floats does not.
/// - A rule sees the class, never the task, and what it says [`Dependency::Class`] of holds for
///   all classes of the same constraints, whatever their request.
/// - `job_pipelined` holds exactly if `tasks_missing` is 0, and a job that is ready is pipelined.
///   A plugin that answers one of the three answers all.
/// - The cluster still shows the tasks in [`Proposal::evicted`], and in the parameter `evicted` of
///   other methods, as running: a plugin that counts subtracts them.
///
/// A plugin is told everything and its state is kept up whatever is switched off in the
/// configuration.
///
/// # Examples
///
/// A policy that knows what nodes cost: the cheapest node first, and none above a limit.
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
///     // It has no orders...
///     fn order_scope(&self) -> OrderScope {
///         OrderScope::Own
///     }
///
///     // ...and looks at nothing of a node that a placement changes.
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
/// // Three nodes, at 7, 4 and 2, and a class of pods that ask for nothing.
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
/// assert!(session.is_indexable(class), "nothing it said takes the class off the index");
///
/// let mut session = Session::open(cluster, thrift(1), Search::Index);
/// assert_eq!(session.best_node(class), None);
/// let why = session.explain(class).to_string();
/// assert_eq!(why, "0/3 nodes are available: 3 node(s) were too dear.");
/// ```
///
/// To configure it by name, list it in a [`Catalog`](crate::conf::Catalog) and make it where the
/// plugins of a configuration are made.
pub trait Plugin: Send {
    /// Its name in the configuration.
    fn name(&self) -> &'static str;

    // Told.

    /// Called when a session opens, once jobs that cannot be scheduled are marked. The plugin drops
    /// all state of the cycle before.
    ///
    /// What several plugins derive from the cluster is computed once in `cache`.
    fn on_session_open(&mut self, _cluster: &Cluster, _cache: &mut SessionCache<'_>) {}

    /// A task has moved; the cluster shows it where it stands now.
    fn on_placement(&mut self, _cluster: &Cluster, _change: &Change) {}

    // Asked about order. `Less` means the left one goes first.

    /// Which queue is served first.
    fn queue_order(&self, _cluster: &Cluster, _l: QueueIdx, _r: QueueIdx) -> Ordering {
        Ordering::Equal
    }

    /// Which job of a queue goes first.
    fn job_order(&self, _cluster: &Cluster, _l: JobIdx, _r: JobIdx) -> Ordering {
        Ordering::Equal
    }

    /// Which task of a job goes first. Must not change during a cycle.
    fn task_order(&self, _cluster: &Cluster, _l: TaskIdx, _r: TaskIdx) -> Ordering {
        Ordering::Equal
    }

    /// What the queue and job orders look at.
    ///
    /// The default is slow and right: with one such plugin the next queue and the next job are
    /// searched for among all, each time.
    fn order_scope(&self) -> OrderScope {
        OrderScope::Anything
    }

    // Asked about gangs.

    /// Whether the job can be scheduled at all. Asked before [`Plugin::on_session_open`].
    ///
    /// # Errors
    ///
    /// Why it cannot: the job is left alone for this cycle and says so.
    fn job_valid(&self, _cluster: &Cluster, _job: JobIdx) -> Result<(), JobProblem> {
        Ok(())
    }

    /// Whether the job's allocated tasks may start.
    fn job_ready(&self, _cluster: &Cluster, _job: JobIdx) -> bool {
        true
    }

    /// Whether the job will be ready once the resources of its pipelined tasks are released.
    fn job_pipelined(&self, _cluster: &Cluster, _job: JobIdx) -> bool {
        true
    }

    /// How many of the job's waiting tasks must still be placed for it to be ready or pipelined;
    /// 0 if it is, or if the policy does not care.
    fn tasks_missing(&self, _cluster: &Cluster, _job: JobIdx) -> u32 {
        0
    }

    // Asked about nodes.

    /// Whether the class can go anywhere at all. Asked once in a cycle.
    ///
    /// # Errors
    ///
    /// The reason, for all nodes at once.
    fn class_admitted(&self, _cluster: &Cluster, _class: ClassIdx) -> Result<(), Name> {
        Ok(())
    }

    /// Which kinds of rules there are for the class; [`Plugin::predicate`] is asked for each, and
    /// for no other. Asked once in a cycle.
    ///
    /// The default is slow and right: with one such plugin no class is followed by the index, and
    /// every placement asks every plugin about every node.
    fn dependencies(&self, _cluster: &Cluster, _class: ClassIdx) -> Dependencies {
        Dependencies::only(Dependency::Cluster)
    }

    /// Whether a task of the class may go to the node, as far as the rules of one dependency say.
    /// The framework checks the request itself. A rule of [`Dependency::Class`] ignores `capacity`.
    ///
    /// # Errors
    ///
    /// The reason, of the first rule that refuses.
    fn predicate(
        &self,
        _cluster: &Cluster,
        _class: ClassIdx,
        _node: NodeIdx,
        _sensitivity: Dependency,
        _view: Capacity,
    ) -> Result<(), Unfit> {
        Ok(())
    }

    /// What the claims of a task that wait for it get on the node where the task stands. Asked when
    /// the task is bound.
    fn claim_choices(&self, _cluster: &Cluster, _task: TaskIdx) -> Vec<ClaimChoice> {
        Vec::new()
    }

    /// The scores the plugin gives nodes for the class. Asked once in a cycle.
    ///
    /// A term that cannot tell nodes apart for the class is better left out. The index follows a
    /// term of scale [`Scale::AsIs`] that depends on the node, or of any scale but [`Scale::Joint`]
    /// that depends on the class; one other term and every placement of the class asks about every
    /// node.
    fn score_terms(&self, _cluster: &Cluster, _class: ClassIdx) -> Vec<ScoreTerm> {
        Vec::new()
    }

    /// The raw score of one node for one term.
    fn score(&self, _cluster: &Cluster, _class: ClassIdx, _node: NodeIdx, _term: u8) -> i64 {
        0
    }

    /// The scores of all candidates for a term of scale [`Scale::Joint`]; `scores` is all 0.
    fn score_all(
        &self,
        _cluster: &Cluster,
        _class: ClassIdx,
        _nodes: &[NodeIdx],
        _term: u8,
        _scores: &mut [i64],
    ) {
    }

    // Asked about victims.

    /// Whether the victim may be evicted for a task of the same queue.
    fn preemptable(&self, _cluster: &Cluster, _proposal: &Proposal<'_>) -> Vote {
        Vote::Abstain
    }

    /// Whether the victim may be evicted for a task of another queue.
    fn reclaimable(&self, _cluster: &Cluster, _proposal: &Proposal<'_>) -> Vote {
        Vote::Abstain
    }

    // Asked about shares.

    /// Whether the queue holds what it deserves and gets no turn in the fair pass.
    fn overused(&self, _cluster: &Cluster, _queue: QueueIdx) -> bool {
        false
    }

    /// Whether the task's queue stays within its capability if the task is placed and the tasks in
    /// `evicted` are evicted.
    ///
    /// # Errors
    ///
    /// The dimension whose hard limit would be exceeded.
    fn within_capability(
        &self,
        _cluster: &Cluster,
        _task: TaskIdx,
        _gone: &[TaskIdx],
    ) -> Result<(), Dim> {
        Ok(())
    }

    /// The resources that must stay idle while idle resources are lent to overused queues.
    /// `placeable` holds, for each queue, what its waiting tasks that fit on an empty cluster
    /// request. `None` if the policy reserves nothing.
    fn reserved(
        &self,
        _cluster: &Cluster,
        _placeable: &Column<QueueIdx, ResourceVector>,
    ) -> Option<ResourceVector> {
        None
    }

    // Asked for reports.

    /// The share of a queue, without the tasks in `evicted`.
    fn queue_share(
        &self,
        _cluster: &Cluster,
        _queue: QueueIdx,
        _gone: &[TaskIdx],
    ) -> Option<Share> {
        None
    }

    /// What the policy knows of a queue.
    fn queue_shares(&self, _cluster: &Cluster, _queue: QueueIdx) -> Option<QueueShares> {
        None
    }

    /// The share by which the policy ranks a job.
    fn job_share(&self, _cluster: &Cluster, _job: JobIdx) -> Option<Share> {
        None
    }

    /// Whether an unready job is to be reported as unschedulable.
    fn reports_unready_jobs(&self) -> bool {
        false
    }
}
