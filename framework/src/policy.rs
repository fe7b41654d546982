//! The plugins of a cycle in their tiers, and how the answers of several plugins are combined.

mod extension_point;

use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeMap,
    time::Duration,
};

use jiff::Timestamp;
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, CompositeIdx, Dim, JobIdx, QueueIdx, TaskIdx},
    decision::{ClaimChoice, DeviceChoice},
    facts::queue::QueueOrder,
    name::{Name, ObjectKey},
    physical::PhysicalRequests,
    problem::JobProblem,
    reason::{Inadmissible, NodeReason, Unfit},
    resource::{Ledger, ResourceVector, Share},
};

pub use self::extension_point::{ExtensionPoint, ExtensionPoints};
use crate::{
    plugin::{
        Budgets, Capacity, Claims, Dependencies, JobProposal, JobShares, NodesByDomain, OrderScope,
        PlacementChange, Plugin, Prescription, Proposal, Provided, Provision, QueueShares,
        ScoreTerm, Settings, Shares, Topology, VictimQuestion, VictimScope, Vote, WholeJobs,
    },
    session_cache::SessionCache,
    topology::{JobLevel, JobTopology},
};

/// A plugin, and the extension points that its configuration enables.
pub struct ConfiguredPlugin {
    /// The plugin.
    pub plugin: Box<dyn Plugin>,
    /// The extension points at which it is called.
    pub extension_points: ExtensionPoints,
}

impl ConfiguredPlugin {
    fn is_enabled_at(&self, point: ExtensionPoint) -> bool {
        self.extension_points.has(point)
    }
}

/// The tier of a plugin, and its place in the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    tier: usize,
    place: usize,
}

/// How long a task that is being terminated counts as about to leave after the end of its grace period, where no
/// plugin says. Guessed: a kubelet that is alive needs seconds.
pub const TERMINATION_TIMEOUT: Duration = Duration::from_secs(300);

/// Counts the devices of each resource that classes of devices stand for, beside what nodes advertise.
pub type DeviceTotals = fn(&Cluster) -> ResourceVector;

/// Says what tasks request of physical devices.
pub type PhysicalDevices = fn(&Cluster) -> PhysicalRequests;

/// The plugins of a cycle, in tiers. This type combines the answers of several plugins.
pub struct Policy {
    tiers: Vec<Vec<ConfiguredPlugin>>,
    /// What the configuration of all plugins decides together.
    settings: Settings,
    /// The plugin that provides each thing.
    providers: [Option<Position>; Provision::ALL.len()],
    /// Whether the pods of some PodGroup are victims only together.
    has_marked_jobs: bool,
    pub(crate) device_totals: DeviceTotals,
    pub(crate) physical_requests: PhysicalDevices,
}

impl Policy {
    /// These plugins, the most important tier first, and no devices.
    pub fn new(tiers: Vec<Vec<ConfiguredPlugin>>) -> Self {
        Self {
            settings: combined_settings(tiers.iter().flatten()),
            providers: Provision::ALL.map(|provision| provider(&tiers, provision)),
            tiers,
            has_marked_jobs: false,
            device_totals: |cluster| ResourceVector::zero(cluster.dimensions.len()),
            physical_requests: |_| PhysicalRequests::default(),
        }
    }

    /// Sets what counts devices. That is no plugin: limits and totals are the same in every configuration.
    #[must_use]
    pub fn with_devices(self, totals: DeviceTotals, requests: PhysicalDevices) -> Self {
        Self { device_totals: totals, physical_requests: requests, ..self }
    }

    /// What the configuration of all plugins decides together.
    pub(crate) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How long a task that is being terminated counts as about to leave.
    pub(crate) fn termination_timeout(&self) -> Duration {
        self.settings.termination_timeout.unwrap_or(TERMINATION_TIMEOUT)
    }

    fn all(&self) -> impl Iterator<Item = &dyn Plugin> {
        self.tiers.iter().flatten().map(|configured| &*configured.plugin)
    }

    /// After which time an answer of some plugin changes by itself.
    pub(crate) fn next_change(&self, cluster: &Cluster) -> Option<Duration> {
        self.all().filter_map(|plugin| plugin.next_change(cluster)).min()
    }

    pub(crate) fn prescribe(&mut self, prescription: Prescription) {
        for configured in self.tiers.iter_mut().flatten() {
            configured.plugin.on_prescription(prescription);
        }
    }

    /// What the plugin provides that provides this; nothing if there is none.
    fn provided(&self, provision: Provision) -> Provided<'_> {
        let provider = self.providers[provision as usize];
        provider.map_or_else(Provided::default, |at| self.plugin(at).provides())
    }

    fn shares(&self) -> Option<&dyn Shares> {
        self.provided(Provision::Shares).shares
    }

    fn job_shares(&self) -> Option<&dyn JobShares> {
        self.provided(Provision::JobShares).job_shares
    }

    /// See [`JobShares::share_scope`].
    pub(crate) fn share_scope(&self) -> OrderScope {
        self.job_shares().map_or(OrderScope::Own, JobShares::share_scope)
    }

    fn topologies(&self) -> Option<&dyn Topology> {
        self.provided(Provision::Topology).topology
    }

    fn claims(&self) -> Option<&dyn Claims> {
        self.provided(Provision::Claims).claims
    }

    /// What claims get, if predicates about claims are enabled.
    fn enabled_claims(&self) -> Option<&dyn Claims> {
        let at = self.providers[Provision::Claims as usize]?;
        let is_enabled = self.tiers[at.tier][at.place].is_enabled_at(ExtensionPoint::Predicate);
        self.claims().filter(|_| is_enabled)
    }

    fn budgets(&self) -> Option<&dyn Budgets> {
        self.provided(Provision::Budgets).budgets
    }

    fn enabled(&self, point: ExtensionPoint) -> impl Iterator<Item = &dyn Plugin> {
        let all = self.tiers.iter().flatten();
        all.filter(move |configured| configured.is_enabled_at(point))
            .map(|configured| &*configured.plugin)
    }

    /// The first plugin that does not return `Equal` decides.
    // Parity: kept, see docs/parity.md#o3.
    fn first_decision(
        &self,
        point: ExtensionPoint,
        call: impl Fn(&dyn Plugin) -> Ordering,
    ) -> Ordering {
        self.enabled(point).map(call).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// The claims for devices to deallocate.
    pub(crate) fn claims_to_deallocate(
        &self,
        cluster: &Cluster,
        is_refused: &dyn Fn(JobIdx) -> bool,
    ) -> Vec<(TaskIdx, ObjectKey)> {
        let claims = self.claims();
        claims.map_or_else(Vec::new, |claims| claims.claims_to_deallocate(cluster, is_refused))
    }

    /// Whether some work has been postponed to the next cycle.
    pub(crate) fn has_postponed(&self) -> bool {
        self.claims().is_some_and(Claims::has_postponed)
    }

    /// How much longer than usual predicates took, in evaluations of a node.
    pub(crate) fn work(&self) -> u64 {
        self.all().map(Plugin::work).sum()
    }

    /// The levels that a job asks for.
    pub(crate) fn topology(&self, cluster: &Cluster, job: JobIdx) -> Option<&JobTopology> {
        // Most jobs ask for none.
        if cluster.jobs.topology[job].is_none() && !cluster.is_in_larger_gang(job) {
            return None;
        }
        self.topologies()?.topology(job)
    }

    pub(crate) fn open(
        &mut self,
        cluster: &Cluster,
        now: Timestamp,
        mut opened: impl FnMut(&'static str),
    ) {
        self.has_marked_jobs = cluster.jobs.leaves_whole.values().any(|leaves_whole| *leaves_whole);
        let mut cache = SessionCache::new(cluster, now);
        for configured in self.tiers.iter_mut().flatten() {
            configured.plugin.on_session_open(cluster, &mut cache);
            opened(configured.plugin.name());
        }
    }

    pub(crate) fn placed(&mut self, cluster: &Cluster, change: &PlacementChange) {
        for configured in self.tiers.iter_mut().flatten() {
            configured.plugin.on_placement(cluster, change);
        }
    }

    /// [`OrderScope::Own`] if no plugin needs more.
    pub(crate) fn order_scope(&self) -> OrderScope {
        let orders = |configured: &&ConfiguredPlugin| {
            configured.is_enabled_at(ExtensionPoint::JobOrder)
                || configured.is_enabled_at(ExtensionPoint::QueueOrder)
        };
        let mut scopes = self.tiers.iter().flatten().filter(orders);
        if scopes.all(|configured| configured.plugin.order_scope() == OrderScope::Own) {
            OrderScope::Own
        } else {
            OrderScope::Anything
        }
    }

    fn positions(&self, point: ExtensionPoint) -> impl Iterator<Item = Position> + '_ {
        self.tiers.iter().enumerate().flat_map(move |(tier, plugins)| {
            let plugins = plugins.iter().enumerate();
            plugins
                .filter(move |(_, configured)| configured.is_enabled_at(point))
                .map(move |(place, _)| Position { tier, place })
        })
    }

    /// The plugin at a position.
    pub(crate) fn plugin(&self, at: Position) -> &dyn Plugin {
        &*self.tiers[at.tier][at.place].plugin
    }

    /// Whether all running tasks of some job may be evicted together.
    pub const fn evicts_whole_jobs(&self) -> bool {
        match self.settings.whole_jobs {
            WholeJobs::None => false,
            WholeJobs::Marked => self.has_marked_jobs,
            WholeJobs::All => true,
        }
    }

    /// The plugins, to be called about a cluster.
    pub(crate) const fn about<'a>(&'a self, cluster: &'a Cluster) -> Plugins<'a> {
        Plugins { policy: self, cluster }
    }
}

/// The plugin that orders the jobs of queues that have an order of their own.
const PRIORITY: &str = "priority";

/// The plugins of a cycle and the cluster they are called about: what they answer together.
///
/// Each method is a question of [`Plugin`], or of a trait of [`Provided`]; its documentation says how the answers
/// of several plugins are combined.
#[derive(Clone, Copy)]
pub struct Plugins<'a> {
    policy: &'a Policy,
    cluster: &'a Cluster,
}

impl<'p> Plugins<'p> {
    /// The order of two queues: that of the siblings where they part. Ties: creation time, then name.
    pub fn queue_order(self, l: QueueIdx, r: QueueIdx) -> Ordering {
        let Some([l, r]) = self.cluster.queues.tree.parting(l, r) else { return l.cmp(&r) };
        self.policy
            .first_decision(ExtensionPoint::QueueOrder, |p| p.queue_order(self.cluster, l, r))
            .then(l.cmp(&r))
    }

    /// The order of two jobs of a queue. Ties: creation time, then namespace and name.
    pub fn job_order(self, l: JobIdx, r: JobIdx) -> Ordering {
        let is_asked = |plugin: &dyn Plugin| !self.is_fifo(l) || plugin.name() == PRIORITY;
        let order = |plugin: &dyn Plugin| match is_asked(plugin) {
            true => plugin.job_order(self.cluster, l, r),
            false => Ordering::Equal,
        };
        self.policy.first_decision(ExtensionPoint::JobOrder, order).then(l.cmp(&r))
    }

    /// Whether only priority and age order the jobs of the queue of a job.
    // Parity: see docs/parity.md#q12.
    fn is_fifo(self, job: JobIdx) -> bool {
        let queue = self.cluster.jobs.queue[job];
        let order = queue.map(|queue| self.cluster.queues.facts[queue].order);
        order.is_some_and(|order| order != QueueOrder::Priority)
    }

    /// Sorts jobs of several queues: by the plugins, and those of a queue in its own order.
    pub(crate) fn sort_jobs(self, jobs: &mut [(QueueIdx, JobIdx)]) {
        let by_plugins = |l: JobIdx, r: JobIdx| {
            let order = |plugin: &dyn Plugin| plugin.job_order(self.cluster, l, r);
            self.policy.first_decision(ExtensionPoint::JobOrder, order).then(l.cmp(&r))
        };
        jobs.sort_by(|(_, l), (_, r)| by_plugins(*l, *r));
        let mut of_queues: BTreeMap<QueueIdx, Vec<usize>> = BTreeMap::new();
        for (at, (queue, job)) in jobs.iter().enumerate() {
            if self.is_fifo(*job) {
                of_queues.entry(*queue).or_default().push(at);
            }
        }
        for (queue, places) in of_queues {
            let mut own: Vec<JobIdx> = places.iter().map(|at| jobs[*at].1).collect();
            own.sort_by(|l, r| self.job_order(*l, *r));
            places.into_iter().zip(own).for_each(|(at, job)| jobs[at] = (queue, job));
        }
    }

    /// The order of two tasks. Ties: creation time, then namespace and name.
    pub fn task_order(self, l: TaskIdx, r: TaskIdx) -> Ordering {
        self.policy
            .first_decision(ExtensionPoint::TaskOrder, |p| p.task_order(self.cluster, l, r))
            .then(l.cmp(&r))
    }

    /// Every plugin must agree. Returns the first error. Cannot be disabled.
    pub fn job_valid(self, job: JobIdx) -> Result<(), JobProblem> {
        self.policy.all().try_for_each(|plugin| plugin.job_valid(self.cluster, job))?;
        // Parity: see docs/parity.md#k7.
        if self.cluster.requires_domain(job) && self.policy.topologies().is_none() {
            return Err(JobProblem::TopologyNotSupported);
        }
        Ok(())
    }

    /// Whether the allocated tasks of a job may start: every plugin must agree.
    pub fn job_ready(self, job: JobIdx) -> bool {
        self.lacks_nothing(ExtensionPoint::JobReady, job, Capacity::Idle)
    }

    /// Whether a job will be ready once terminating tasks have released the resources that its pipelined tasks wait
    /// for: every plugin must agree.
    pub fn job_pipelined(self, job: JobIdx) -> bool {
        self.lacks_nothing(ExtensionPoint::JobPipelined, job, Capacity::FutureIdle)
    }

    fn lacks_nothing(self, point: ExtensionPoint, job: JobIdx, capacity: Capacity) -> bool {
        let mut plugins = self.policy.enabled(point);
        plugins.all(|plugin| plugin.tasks_missing(self.cluster, job, capacity) == 0)
    }

    /// The number of waiting tasks of a job that must still be placed before it is pipelined: the largest answer.
    pub fn tasks_missing(self, job: JobIdx) -> u32 {
        let plugins = self.policy.enabled(ExtensionPoint::JobReady);
        let missing =
            plugins.map(|plugin| plugin.tasks_missing(self.cluster, job, Capacity::FutureIdle));
        missing.max().unwrap_or(0)
    }

    /// How long an incomplete job may still run: zero if its running tasks are to be evicted. `None` if the job is
    /// not incomplete, or has no such limit.
    pub fn stale_after(self, job: JobIdx) -> Option<Duration> {
        let incomplete_for = self.cluster.jobs.incomplete_for[job]?;
        Some(self.policy.settings.staleness_grace_period?.saturating_sub(incomplete_for))
    }

    /// Every plugin must agree. Returns the first error.
    pub fn class_admitted(self, class: ClassIdx) -> Result<(), Inadmissible> {
        self.policy
            .enabled(ExtensionPoint::Predicate)
            .try_for_each(|p| p.class_admitted(self.cluster, class))
    }

    /// The plugins that have rules for the class, and what those depend on.
    pub(crate) fn dependencies(self, class: ClassIdx) -> Vec<(Position, Dependencies)> {
        self.policy
            .positions(ExtensionPoint::Predicate)
            .map(|at| (at, self.policy.plugin(at).dependencies(self.cluster, class)))
            .filter(|(_, dependencies)| *dependencies != Dependencies::NONE)
            .collect()
    }

    /// The levels that a job asks for. Cannot be disabled.
    pub fn topology(self, job: JobIdx) -> Option<&'p JobTopology> {
        self.policy.topology(self.cluster, job)
    }

    /// The level of which a composite PodGroup requires one domain. Cannot be disabled.
    pub fn level_of_composite(self, composite: CompositeIdx) -> Option<&'p JobLevel> {
        self.policy.topologies()?.level_of_composite(composite)
    }

    /// The answer of the first plugin that has one.
    pub fn domains_to_choose(self, class: ClassIdx) -> NodesByDomain {
        let mut answers = self
            .policy
            .enabled(ExtensionPoint::Predicate)
            .map(|p| p.domains_to_choose(self.cluster, class));
        answers.find(|domains| !domains.is_empty()).unwrap_or_default()
    }

    /// See [`Claims::n_alternatives`].
    pub fn n_alternatives(self, class: ClassIdx) -> usize {
        let claims = self.policy.enabled_claims();
        claims.map_or(1, |claims| claims.n_alternatives(self.cluster, class))
    }

    /// See [`Claims::claim_choices`].
    pub fn claim_choices(self, task: TaskIdx) -> Vec<ClaimChoice> {
        let claims = self.policy.enabled_claims();
        claims.map_or_else(Vec::new, |claims| claims.claim_choices(self.cluster, task))
    }

    /// See [`Claims::device_choices`].
    pub fn device_choices(self, task: TaskIdx) -> Vec<DeviceChoice> {
        let claims = self.policy.enabled_claims();
        claims.map_or_else(Vec::new, |claims| claims.device_choices(task))
    }

    /// Whether a nominated task waits on its node.
    pub(crate) fn must_wait(self, task: TaskIdx) -> bool {
        self.policy.enabled_claims().is_some_and(|claims| claims.must_wait(task))
    }

    /// A reason why a class does not fit, with its names.
    pub fn named_reason(self, class: ClassIdx, reason: Unfit) -> NodeReason {
        let claims = self.policy.enabled_claims();
        let own = claims.and_then(|claims| claims.reason_text(self.cluster, class, reason));
        let own = own.map(|text| NodeReason::Other(Name::from(text)));
        own.unwrap_or_else(|| self.cluster.named_reason(class, reason))
    }

    /// The score terms of all plugins.
    pub(crate) fn score_terms(self, class: ClassIdx) -> Vec<(Position, ScoreTerm)> {
        self.policy
            .positions(ExtensionPoint::NodeOrder)
            .flat_map(|at| {
                let terms = self.policy.plugin(at).score_terms(self.cluster, class);
                terms.into_iter().map(move |term| (at, term))
            })
            .filter(|(_, term)| term.weight != 0)
            .collect()
    }

    /// The first tier in which a plugin does not abstain decides. In that tier every plugin that does
    /// not abstain must allow it.
    // Parity: an empty answer is final, see docs/parity.md#p8.
    pub fn preemptable(self, proposal: &Proposal<'_>) -> bool {
        self.first_tier_permits(|plugin| {
            let vote = plugin.vote(self.cluster, proposal, VictimQuestion::Preemptable);
            debug_assert!(
                vote != Vote::Abstain || self.may_abstain(plugin, proposal),
                "a plugin abstains although it names a scope: later tiers decide, and their scope counts"
            );
            vote
        })
    }

    /// Whether [`Self::preemptable_scope`] is right if the plugin abstains.
    fn may_abstain(self, plugin: &dyn Plugin, proposal: &Proposal<'_>) -> bool {
        let job = |task: TaskIdx| self.cluster.tasks.job[task];
        let scope = plugin.victim_scope(self.cluster, proposal.victim, VictimQuestion::Preemptable);
        job(proposal.preemptor) == job(proposal.victim)
            || [VictimScope::NONE, VictimScope::ANYTHING].contains(&scope)
    }

    /// As [`Self::preemptable`].
    pub fn job_preemptable(self, proposal: &JobProposal<'_>) -> bool {
        self.first_tier_permits(|plugin| {
            plugin.vote_on_job(self.cluster, proposal, VictimQuestion::Preemptable)
        })
    }

    fn first_tier_permits(self, vote: impl Fn(&dyn Plugin) -> Vote) -> bool {
        let mut votes = self.policy.tiers.iter().map(|tier| {
            let point = ExtensionPoint::Preemptable;
            let enabled = tier.iter().filter(|configured| configured.is_enabled_at(point));
            Vote::unanimous(enabled.map(|configured| vote(&*configured.plugin)))
        });
        votes.find(|vote| *vote != Vote::Abstain) == Some(Vote::Permit)
    }

    /// Every plugin of every tier that does not abstain must allow it.
    // Parity: differs, see docs/parity.md#c1.
    pub fn reclaimable(self, proposal: &Proposal<'_>) -> bool {
        self.all_permit(|plugin| plugin.vote(self.cluster, proposal, VictimQuestion::Reclaimable))
    }

    /// As [`Self::reclaimable`].
    pub fn job_reclaimable(self, proposal: &JobProposal<'_>) -> bool {
        self.all_permit(|plugin| {
            plugin.vote_on_job(self.cluster, proposal, VictimQuestion::Reclaimable)
        })
    }

    fn all_permit(self, vote: impl Fn(&dyn Plugin) -> Vote) -> bool {
        let plugins = self.policy.enabled(ExtensionPoint::Reclaimable);
        Vote::unanimous(plugins.map(vote)) == Vote::Permit
    }

    /// What [`Self::preemptable`], [`Self::vetoes`] and [`Self::violates_budget`] depend on for the victim.
    pub fn preemptable_scope(self, victim: TaskIdx) -> VictimScope {
        let of_tiers = self.policy.tiers.iter().map(|tier| {
            let point = ExtensionPoint::Preemptable;
            let enabled = tier.iter().filter(|configured| configured.is_enabled_at(point));
            joined(enabled.map(|at| {
                at.plugin.victim_scope(self.cluster, victim, VictimQuestion::Preemptable)
            }))
        });
        let decides = |scope: &VictimScope| *scope != VictimScope::NONE;
        of_tiers.into_iter().find(decides).unwrap_or_default() | self.veto_scope(victim)
    }

    /// What [`Self::reclaimable`], [`Self::vetoes`] and [`Self::violates_budget`] depend on for the victim.
    pub fn reclaimable_scope(self, victim: TaskIdx) -> VictimScope {
        let plugins = self.policy.enabled(ExtensionPoint::Reclaimable);
        joined(
            plugins.map(|plugin| {
                plugin.victim_scope(self.cluster, victim, VictimQuestion::Reclaimable)
            }),
        ) | self.veto_scope(victim)
    }

    /// Whether some budget counts an eviction of the victim.
    pub fn may_be_vetoed(self, victim: TaskIdx) -> bool {
        self.policy.budgets().is_some_and(|budgets| budgets.may_veto(self.cluster, victim))
    }

    /// What budgets say about a victim may change whenever any task moves.
    fn veto_scope(self, victim: TaskIdx) -> VictimScope {
        if self.may_be_vetoed(victim) { VictimScope::ANYTHING } else { VictimScope::NONE }
    }

    /// See [`Shares::spare`]; `None` without shares. Cannot be disabled.
    pub fn spare(self, queue: QueueIdx, dim: Dim) -> Option<i64> {
        self.policy.shares().map(|shares| shares.spare(self.cluster, queue, dim))
    }

    /// Whether all running tasks of some job may be evicted together. Cannot be disabled.
    pub const fn evicts_whole_jobs(self) -> bool {
        self.policy.evicts_whole_jobs()
    }

    /// See [`Settings::max_loss`]. Cannot be disabled.
    pub const fn max_loss(self) -> Option<u32> {
        self.policy.settings.max_loss
    }

    /// See [`Shares::exceeds_deserved`]. Cannot be disabled.
    pub fn exceeds_deserved(self, queue: QueueIdx, job: JobIdx, other: Option<QueueIdx>) -> bool {
        let shares = self.policy.shares();
        shares.is_some_and(|shares| shares.exceeds_deserved(self.cluster, queue, job, other))
    }

    /// See [`Budgets::vetoes`]. Cannot be disabled.
    pub fn vetoes(self, proposal: &Proposal<'_>) -> bool {
        self.policy.budgets().is_some_and(|budgets| budgets.vetoes(self.cluster, proposal))
    }

    /// See [`Budgets::vetoes_job`]. Cannot be disabled.
    pub fn vetoes_job(self, proposal: &JobProposal<'_>) -> bool {
        self.policy.budgets().is_some_and(|budgets| budgets.vetoes_job(self.cluster, proposal))
    }

    /// See [`Budgets::violates_budget`]. Cannot be disabled.
    pub fn violates_budget(self, victims: &[TaskIdx]) -> Vec<bool> {
        let budgets = self.policy.budgets();
        budgets.map_or_else(Vec::new, |budgets| budgets.violates_budget(self.cluster, victims))
    }

    /// One plugin suffices. Cannot be disabled.
    pub fn is_protected(self, task: TaskIdx) -> bool {
        self.policy.all().any(|plugin| plugin.is_protected(self.cluster, task))
    }

    /// See [`Shares::overused`]. Cannot be disabled.
    pub fn overused(self, queue: QueueIdx) -> bool {
        self.overused_on_path(queue).is_some()
    }

    /// See [`Shares::overused`]. Cannot be disabled.
    pub fn overused_on_path(self, queue: QueueIdx) -> Option<QueueIdx> {
        self.policy.shares().and_then(|shares| shares.overused(self.cluster, queue))
    }

    /// See [`Shares::gets_loans_only`]. Cannot be disabled.
    pub fn gets_loans_only(self, job: JobIdx) -> bool {
        let shares = self.policy.shares();
        shares.is_some_and(|shares| shares.gets_loans_only(self.cluster, job))
    }

    /// See [`Shares::guaranteed`]; `None` without shares. Cannot be disabled.
    pub fn guaranteed(self) -> Option<Ledger<QueueIdx>> {
        self.policy.shares().map(|shares| shares.guaranteed().clone())
    }

    /// See [`Shares::excess`]; `None` without shares. Cannot be disabled.
    pub fn excess(self, queue: QueueIdx, dim: Dim) -> Option<i64> {
        self.policy.shares().map(|shares| shares.excess(self.cluster, queue, dim))
    }

    /// See [`Shares::withheld`]; nothing without shares. Cannot be disabled.
    pub fn withheld(self, placeable: &Column<QueueIdx, ResourceVector>) -> Ledger<QueueIdx> {
        match self.policy.shares() {
            Some(shares) => shares.withheld(self.cluster, placeable),
            None => Ledger::zero(self.cluster.dimensions.len(), placeable.len()),
        }
    }

    /// Which of two queues, for which tasks count, is served later without the tasks in `evicted`: `Greater` means the left
    /// one. Its tasks are reclaimed first.
    // Parity: see docs/parity.md#c5 and docs/parity.md#q7.
    pub fn served_later(
        self,
        l: Option<QueueIdx>,
        r: Option<QueueIdx>,
        evicted: &[TaskIdx],
    ) -> Ordering {
        let queues = &self.cluster.queues;
        let rank = |queue: Option<QueueIdx>| {
            let priority = queue.map_or(0, |queue| queues.facts[queue].priority);
            // Those of a queue that does not exist hold something and deserve nothing.
            let share = queue.map_or(Share::ONE, |queue| self.queue_share(queue, evicted));
            (Reverse(priority), share, queue.is_none(), queue)
        };
        let is_outside = |queue: Option<QueueIdx>| {
            queue.is_some_and(|queue| queues.tree.not_served(queue).is_some())
        };
        let top = |queue: Option<QueueIdx>| queue.and_then(|queue| queues.tree.path(queue).last());
        let of_siblings = || match l.zip(r).map(|(l, r)| (l, r, queues.tree.parting(l, r))) {
            None => rank(top(l)).cmp(&rank(top(r))),
            Some((_, _, Some([l, r]))) => rank(Some(l)).cmp(&rank(Some(r))),
            // Those of a queue itself are the first of all below it.
            Some((l, r, None)) => queues.tree.path(r).count().cmp(&queues.tree.path(l).count()),
        };
        is_outside(l).cmp(&is_outside(r)).then_with(of_siblings)
    }

    /// See [`Shares::queue_share`]; zero without shares. Cannot be disabled.
    pub fn queue_share(self, queue: QueueIdx, evicted: &[TaskIdx]) -> Share {
        let shares = self.policy.shares();
        shares.map_or(Share::ZERO, |shares| shares.queue_share(self.cluster, queue, evicted))
    }

    /// See [`Shares::fair_shares`]; `None` without shares. Cannot be disabled.
    pub fn fair_shares(self) -> Option<Ledger<QueueIdx>> {
        self.policy.shares().map(|shares| shares.fair_shares(self.cluster))
    }

    /// See [`Shares::queue_shares`]; `None` without shares. Cannot be disabled.
    pub fn queue_shares(self, queue: QueueIdx) -> Option<QueueShares> {
        self.policy.shares().map(|shares| shares.queue_shares(self.cluster, queue))
    }

    /// See [`JobShares::job_share`]; `None` without shares of jobs. Cannot be disabled.
    pub fn job_share(self, job: JobIdx) -> Option<Share> {
        self.policy.job_shares().map(|shares| shares.job_share(job))
    }
}

/// The plugin that provides this. Of one that several tiers list, it is the first that is not disabled there.
fn provider(tiers: &[Vec<ConfiguredPlugin>], provision: Provision) -> Option<Position> {
    let places = tiers.iter().enumerate().flat_map(|(tier, plugins)| {
        plugins.iter().enumerate().map(move |(place, own)| (Position { tier, place }, own))
    });
    let providers = places.filter(|(_, own)| provision.is_in(&own.plugin.provides()));
    let is_disabled = |own: &ConfiguredPlugin| match provision {
        Provision::Claims => !own.is_enabled_at(ExtensionPoint::Predicate),
        Provision::Shares | Provision::JobShares | Provision::Topology | Provision::Budgets => {
            false
        }
    };
    providers.min_by_key(|(at, own)| (is_disabled(own), *at)).map(|(at, _)| at)
}

/// What the configuration of several plugins decides together.
fn combined_settings<'a>(plugins: impl Iterator<Item = &'a ConfiguredPlugin>) -> Settings {
    let smaller = |one: Option<u32>, other: Option<u32>| one.into_iter().chain(other).min();
    let shorter = |one: Option<Duration>, other| one.into_iter().chain(other).min();
    plugins.fold(Settings::default(), |mut all, configured| {
        let mut own = configured.plugin.settings();
        if !configured.is_enabled_at(ExtensionPoint::JobReady) {
            own.staleness_grace_period = None;
        }
        all.ignored_resources.extend(own.ignored_resources);
        Settings {
            ignored_resources: all.ignored_resources,
            termination_timeout: all.termination_timeout.or(own.termination_timeout),
            staleness_grace_period: shorter(all.staleness_grace_period, own.staleness_grace_period),
            whole_jobs: all.whole_jobs.max(own.whole_jobs),
            max_loss: smaller(all.max_loss, own.max_loss),
            reservation_terms: all.reservation_terms.or(own.reservation_terms),
            enqueues_strictly: all.enqueues_strictly || own.enqueues_strictly,
            reports_unready_jobs: all.reports_unready_jobs || own.reports_unready_jobs,
            shows_other_namespaces: all.shows_other_namespaces || own.shows_other_namespaces,
        }
    })
}

/// What the answers of several plugins depend on together. Of two that depend on what a queue can spare, each
/// may mean another amount.
fn joined(scopes: impl Iterator<Item = VictimScope>) -> VictimScope {
    scopes.fold(VictimScope::NONE, |all, own| {
        let both = all.has(VictimScope::QUEUE) && own.has(VictimScope::QUEUE);
        all | own | if both { VictimScope::ANYTHING } else { VictimScope::NONE }
    })
}

#[cfg(test)]
mod tests;
