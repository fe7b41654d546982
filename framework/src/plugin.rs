//! The interface of a plugin: the extension points of a cycle.
//!
//! A plugin implements one policy. The handlers, whose names begin with `on_`, take `&mut self` and
//! update its state; all other methods take `&self`, so a decision never changes the policy.
//! The defaults mean "no opinion", except those of `order_scope`, `dependencies`, `depends_on` and
//! `victim_scope`, so a plugin implements only the extension points it needs.
//!
//! Several plugins may answer each question of [`Plugin`], and [`Policy`](crate::policy::Policy) combines their answers.
//! What a configuration decides by itself is not a question but a field of [`Settings`], and what only one plugin can
//! answer is in the traits of [`Provided`].
//!
//! # Terms
//!
//! A *task* is a pod, and a *job* a PodGroup with its tasks, or a pod without a PodGroup. A *pipelined*
//! task is assigned to a node and waits there for resources that terminating tasks still use; its pod
//! has `status.nominatedNodeName`.
//!
//! A *class* is a set of tasks that no rule can tell apart: they have the same requests and the same
//! scheduling constraints. Predicates and scores are evaluated for a class, not for each
//! task. Classes that differ only in their requests are of one *constraint class*. A plugin declares
//! what each answer depends on ([`Dependency`]), and the framework caches the answer until that
//! changes. For each class the framework keeps an *index* of the nodes by score, so that it need not
//! evaluate every node for every placement.
//!
//! A *statement* is a transaction: a list of tentative placements and evictions that is committed or
//! rolled back as a whole.

mod dependency;
mod nodes;
mod provided;
mod settings;
mod victims;

use std::{cmp::Ordering, time::Duration};

use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, CompositeIdx, DomainIdx, JobIdx, NodeIdx, QueueIdx, TaskIdx},
    node_set::NodeSet,
    problem::JobProblem,
    reason::{Inadmissible, Unfit},
    status::Placement,
};

pub use kube_batch_model::cluster::Capacity;

pub use self::{
    dependency::{Dependencies, Dependency, DomainColumn, OrderScope, VictimScope},
    nodes::{Extremes, NodeQuery, NodesByDomain, Scale, ScoreTerm},
    provided::{Budgets, Claims, JobShares, Provided, Provision, QueueShares, Shares, Topology},
    settings::{IgnoredResources, ReservationTerms, Settings, WholeJobs},
    victims::{JobProposal, Proposal, VictimQuestion, Vote},
};
use crate::session_cache::SessionCache;

/// A change of the status or node of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementChange {
    /// The task.
    pub task: TaskIdx,
    /// Its status and node before.
    pub from: Placement,
    /// Its status and node now.
    pub to: Placement,
}

impl PlacementChange {
    /// The change in the number of tasks whose resources are charged to the job and its queue: +1, 0
    /// or -1. See [`TaskStatus::is_held`](kube_batch_model::status::TaskStatus::is_held).
    pub fn held(&self) -> i64 {
        i64::from(self.to.status.is_held()) - i64::from(self.from.status.is_held())
    }
}

/// What the framework prescribes to the placements that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prescription {
    /// The alternative that is tried first where there is a choice, as of `firstAvailable` devices: then come those after
    /// it, and those before it last, so that it does not matter for whether a task fits. `None`, as when a session opens:
    /// the first, or the one that was prescribed when the task was placed on the node before.
    Alternative(Option<usize>),
    /// The only domain of the level that a composite PodGroup requires which the jobs below it may use while none of
    /// their tasks has a place; `None` if they may use any.
    Domain(CompositeIdx, Option<DomainIdx>),
}

/// A scheduling policy.
///
/// # Writing a plugin
///
/// Implement the extension points the policy needs. Every plugin should also implement two methods.
/// Their defaults are correct, but one plugin that keeps them slows down every scheduling cycle:
///
/// - [`Plugin::order_scope`]: what its orders depend on. A plugin without orders returns
///   [`OrderScope::Own`].
/// - [`Plugin::dependencies`]: what its predicates depend on. A plugin without predicates returns
///   [`Dependencies::NONE`].
///
/// So does a plugin without votes that keeps the default of [`Plugin::victim_scope`], in the search for victims:
/// it returns [`VictimScope::NONE`].
///
/// Declaring too broad a dependency costs time; declaring too narrow a one silently reuses stale
/// answers. Scores declare theirs for each term, in [`ScoreTerm`].
///
/// The framework relies on the following, and cannot check it:
///
/// - An answer depends on the cluster, the time of the cycle, the arguments and the plugin's own state only: not on
///   a clock, on randomness, or on the order of a hash map.
/// - State that is derived from placements changes in [`Plugin::on_placement`] only, and undoing a
///   placement restores it exactly, because statements are rolled back. Use integers: adding and then
///   subtracting a float can leave a rounding error.
/// - The answer of a predicate with [`Dependency::Class`] is the same for all classes that differ only
///   in their requests.
/// - The cluster still shows the tasks in [`Proposal::evicted`], and in the parameter `evicted` of
///   other methods, as running: a plugin that counts subtracts them.
///
/// Handlers are called even if the configuration disables some of the plugin's extension points, and of what a plugin
/// provides, only the predicates about claims can be disabled.
///
/// # Examples
///
/// A policy that prefers the cheapest node and uses none above a price limit.
///
/// ```
/// use kube_batch_framework::plugin::{
///     Dependencies, Dependency, NodeQuery, OrderScope, Plugin, Scale, ScoreTerm,
/// };
/// use kube_batch_model::{
///     cluster::Cluster,
///     column::{ClassIdx, NodeIdx},
///     reason::Unfit,
/// };
///
/// struct MaxPrice {
///     limit: i64,
/// }
///
/// fn price(cluster: &Cluster, node: NodeIdx) -> i64 {
///     let label = cluster.nodes.facts[node].labels.get("example.com/price");
///     label.and_then(|price| price.parse().ok()).unwrap_or(0)
/// }
///
/// impl Plugin for MaxPrice {
///     fn name(&self) -> &'static str {
///         "max-price"
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
///     fn predicate(&self, cluster: &Cluster, query: NodeQuery) -> Result<(), Unfit> {
///         let is_too_expensive = price(cluster, query.node) > self.limit;
///         if is_too_expensive { Err(Unfit::Other("node(s) exceeded the price limit")) } else { Ok(()) }
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
/// assert_eq!(MaxPrice { limit: 5 }.name(), "max-price");
/// ```
///
/// To configure it by name, give it a [`PluginSpec`](crate::spec::PluginSpec) and register that. `kube_batch::testing`
/// makes clusters of Kubernetes manifests for its tests; the documentation of that module tests this plugin.
pub trait Plugin: Send {
    /// The name of the plugin in the configuration.
    fn name(&self) -> &'static str;

    /// What the plugin's configuration decides by itself. Called once in a cycle, before anything else.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// What the plugin provides for all, as the only one of a configuration. It provides the same as long as it exists:
    /// which plugin that is, is known before a session opens. Called often.
    fn provides(&self) -> Provided<'_> {
        Provided::default()
    }

    // Handlers.

    /// Called when a session opens, once the jobs that cannot be scheduled are marked. Each session has new plugins; one
    /// that is opened again, as in tests, discards its state.
    ///
    /// Values that several plugins derive from the cluster are computed once, in `cache`.
    fn on_session_open(&mut self, _cluster: &Cluster, _cache: &mut SessionCache<'_>) {}

    /// Called after the status or node of a task has changed. `cluster` shows the task where it is
    /// now.
    fn on_placement(&mut self, _cluster: &Cluster, _change: &PlacementChange) {}

    /// Called when the framework prescribes something to the placements that follow, or takes it back. It changes which
    /// of several possible placements a task gets.
    fn on_prescription(&mut self, _prescription: Prescription) {}

    /// After which time an answer of the plugin changes although nothing in the cluster does; `None` if there is no such
    /// time. A cycle runs then, and jobs that wait in vain are tried again. Called when a session opens and when it
    /// closes. The time must not be rounded: that it seems to be another one makes every job be tried again.
    fn next_change(&self, _cluster: &Cluster) -> Option<Duration> {
        None
    }

    // Order. `Less` means that the left one goes first.

    /// Compares two queues with the same parent: which one, or which of those below them, gets the next turn.
    fn queue_order(&self, _cluster: &Cluster, _l: QueueIdx, _r: QueueIdx) -> Ordering {
        Ordering::Equal
    }

    /// Compares two jobs of a queue: which one gets the next turn of the queue. Of a queue that is first in, first out, only
    /// the plugin `priority` is asked.
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

    // Jobs.

    /// Whether the job can be scheduled at all. Called before [`Plugin::on_session_open`], when the
    /// plugin has no state yet: use only `cluster`. Not called again for a job that is valid and of which nothing waits,
    /// while nothing about it changes.
    ///
    /// # Errors
    ///
    /// The reason why not. The job is skipped in this cycle, and its report gives the reason.
    fn job_valid(&self, _cluster: &Cluster, _job: JobIdx) -> Result<(), JobProblem> {
        Ok(())
    }

    /// How many waiting tasks of the job must still be placed, in this capacity, before the plugin lets it start: with
    /// [`Capacity::Idle`], until its allocated tasks may start; with [`Capacity::FutureIdle`], until they may once
    /// terminating tasks have released the resources that its pipelined tasks wait for, which is never more. 0 if there
    /// are none, or if the plugin has no minimum.
    ///
    /// The answer may depend on the job's own tasks only: the session asks again when one of them is placed, and keeps the
    /// answer for composite PodGroups until then.
    fn tasks_missing(&self, _cluster: &Cluster, _job: JobIdx, _capacity: Capacity) -> u32 {
        0
    }

    // Nodes.

    /// Whether tasks of the class can be placed at all, whatever the node, like the extension point
    /// PreFilter of kube-scheduler. Called once in a cycle.
    ///
    /// # Errors
    ///
    /// The message, which is reported for all nodes at once.
    fn class_admitted(&self, _cluster: &Cluster, _class: ClassIdx) -> Result<(), Inadmissible> {
        Ok(())
    }

    /// What the predicates of this plugin for the class depend on. Called once in a cycle.
    /// [`Plugin::predicate`] is called for these dependencies only.
    ///
    /// The default is correct for every plugin, but slow: with one such plugin the framework cannot
    /// use its index, and every placement evaluates every predicate for every node.
    fn dependencies(&self, _cluster: &Cluster, _class: ClassIdx) -> Dependencies {
        Dependencies::only(Dependency::Cluster)
    }

    /// Whether a task of the class may be placed on the node, according to the predicates with this
    /// dependency. The framework itself compares the request with the capacity.
    ///
    /// # Errors
    ///
    /// The reason given by the first predicate that refuses.
    fn predicate(&self, _cluster: &Cluster, _query: NodeQuery) -> Result<(), Unfit> {
        Ok(())
    }

    /// Removes the nodes that the predicates of [`Dependency::Class`] refuse to the class.
    ///
    /// [`Plugin::predicate`] is the definition. A plugin overrides this if it can answer for many nodes
    /// at once.
    fn retain_eligible(&self, cluster: &Cluster, class: ClassIdx, nodes: &mut NodeSet) {
        let (dependency, capacity) = (Dependency::Class, Capacity::Idle);
        nodes.retain(|node| {
            self.predicate(cluster, NodeQuery::new(class, node, dependency, capacity)).is_ok()
        });
    }

    /// Whether placing or evicting `other` may change an answer of [`Plugin::predicate`] for the class.
    /// Not called if the predicates depend on [`Dependency::Class`] alone.
    ///
    /// The default is correct for every plugin, but slow: to select victims, the framework then evicts
    /// and restores each of them.
    fn depends_on(&self, _cluster: &Cluster, _class: ClassIdx, _other: TaskIdx) -> bool {
        true
    }

    /// A number that changes whenever placing or evicting a task has changed an answer about the
    /// class that depends on [`Dependency::Domain`], on another node than those of the task.
    fn version(&self, _cluster: &Cluster, _class: ClassIdx) -> u64 {
        0
    }

    /// What decides about the class on each node, as far as tasks on other nodes do: nodes with equal
    /// numbers get equal answers from [`Plugin::predicate`] with [`Dependency::Domain`], equal raw scores
    /// for terms with that dependency, and equal scores for terms with [`Scale::Joint`], which do not change
    /// if of several equal candidates only one is given. Each column has a number for each node. `None` if
    /// there are no such numbers.
    ///
    /// With it the index keeps the best node of each domain, and asks about one node of each domain only.
    /// Without it, [`Plugin::version`] says when the index has to be built again.
    fn domains(&self, _cluster: &Cluster, _class: ClassIdx) -> Option<Vec<DomainColumn>> {
        None
    }

    /// The domains of which the first task chooses one for all tasks of the class: each a list of nodes, ascending.
    /// So it is with required pod affinity to the task's own labels or to those of a task that has no place yet, and
    /// with a claim that several tasks share. Empty if no rule confines them, or a placed task has chosen already.
    fn domains_to_choose(&self, _cluster: &Cluster, _class: ClassIdx) -> NodesByDomain {
        NodesByDomain::default()
    }

    /// At most how many further tasks of the class may be placed on the node together, as far as the predicates of
    /// [`Dependency::Node`] count them; [`u64::MAX`] if they do not. Called only if there are such predicates.
    ///
    /// The framework estimates with it how many tasks a topology domain holds. It may be too large, never too
    /// small, and changes only when tasks on the node do.
    fn max_on_node(
        &self,
        _cluster: &Cluster,
        _class: ClassIdx,
        _node: NodeIdx,
        _capacity: Capacity,
    ) -> u64 {
        u64::MAX
    }

    /// How much longer than usual the predicates of this plugin took since the session opened, in evaluations of a
    /// node, which usually take about 30 ns. It counts towards the bound on turns in vain.
    fn work(&self) -> u64 {
        0
    }

    /// The score terms of this plugin for the class. Called once in a cycle.
    ///
    /// Leave a term out if it cannot prefer one node to another for the class. The index supports
    /// terms that depend on [`Dependency::Class`], except with [`Scale::Joint`], terms that depend on
    /// [`Dependency::Node`] with [`Scale::AsIs`], terms that depend on [`Dependency::Domain`] with
    /// [`Scale::FromLeast`], and, if [`Plugin::domains`] answers for the class, all terms that depend on
    /// [`Dependency::Domain`] or have [`Scale::Joint`]. With any other term, every placement of the class
    /// scores every node.
    fn score_terms(&self, _cluster: &Cluster, _class: ClassIdx) -> Vec<ScoreTerm> {
        Vec::new()
    }

    /// The raw score of one node for one term. Not called for a term with [`Scale::Joint`].
    fn score(&self, _cluster: &Cluster, _class: ClassIdx, _node: NodeIdx, _term: u8) -> i64 {
        0
    }

    /// Writes the raw scores of several nodes for one term: for each what [`Plugin::score`] answers.
    ///
    /// A plugin overrides this if it answers for many nodes faster than for one after another. For a term with
    /// [`Scale::Joint`] it must: the nodes are all candidates, and what it writes are their scores. `scores` is then all 0.
    fn scores(
        &self,
        cluster: &Cluster,
        class: ClassIdx,
        nodes: &[NodeIdx],
        term: u8,
        scores: &mut [i64],
    ) {
        for (score, node) in scores.iter_mut().zip(nodes) {
            *score = self.score(cluster, class, *node, term);
        }
    }

    // Victims.

    /// Whether the task must not be evicted even where no other task is to get its place.
    fn is_protected(&self, _cluster: &Cluster, _task: TaskIdx) -> bool {
        false
    }

    /// Whether the victim may be evicted for the preemptor.
    fn vote(
        &self,
        _cluster: &Cluster,
        _proposal: &Proposal<'_>,
        _question: VictimQuestion,
    ) -> Vote {
        Vote::Abstain
    }

    /// Whether all running tasks of a job may be evicted together. By default, if [`Plugin::vote`] permits one after
    /// another.
    fn vote_on_job(
        &self,
        cluster: &Cluster,
        proposal: &JobProposal<'_>,
        question: VictimQuestion,
    ) -> Vote {
        proposal.each(|proposal| self.vote(cluster, proposal, question))
    }

    /// What [`Plugin::vote`] on the victim depends on; the preemptor is of another job.
    ///
    /// A plugin that abstains for some preemptors and not for others returns [`VictimScope::ANYTHING`]: where it
    /// abstains, later tiers decide, and what their votes depend on is not asked after the first tier that has a say.
    ///
    /// The default is correct for every plugin, but slow: with one such plugin the nodes of the victim are
    /// searched again for each task.
    fn victim_scope(
        &self,
        _cluster: &Cluster,
        _victim: TaskIdx,
        _question: VictimQuestion,
    ) -> VictimScope {
        VictimScope::ANYTHING
    }
}
