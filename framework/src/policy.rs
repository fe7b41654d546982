//! The plugins of a cycle in their tiers, and how the answers of several are combined.

use std::cmp::Ordering;

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, Column, Dim, JobIdx, QueueIdx, TaskIdx},
    decision::ClaimChoice,
    name::Name,
    reason::JobProblem,
    resource::{Row, Share},
};

use crate::plugin::{
    Change, Dependencies, OrderScope, Plugin, Proposal, QueueShares, ScoreTerm, Verdict,
};

/// The questions that can be switched off in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// `enableJobOrder`
    JobOrder,
    /// `enableJobReady`
    JobReady,
    /// `enableJobPipelined`
    JobPipelined,
    /// `enableTaskOrder`
    TaskOrder,
    /// `enablePreemptable`
    Preemptable,
    /// `enableReclaimable`
    Reclaimable,
    /// `enableQueueOrder`
    QueueOrder,
    /// `enablePredicate`
    Predicate,
    /// `enableNodeOrder`
    NodeOrder,
}

impl Question {
    /// All, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::JobOrder,
        Self::JobReady,
        Self::JobPipelined,
        Self::TaskOrder,
        Self::Preemptable,
        Self::Reclaimable,
        Self::QueueOrder,
        Self::Predicate,
        Self::NodeOrder,
    ];

    /// The configuration key that switches it.
    pub const fn key(self) -> &'static str {
        match self {
            Self::JobOrder => "enableJobOrder",
            Self::JobReady => "enableJobReady",
            Self::JobPipelined => "enableJobPipelined",
            Self::TaskOrder => "enableTaskOrder",
            Self::Preemptable => "enablePreemptable",
            Self::Reclaimable => "enableReclaimable",
            Self::QueueOrder => "enableQueueOrder",
            Self::Predicate => "enablePredicate",
            Self::NodeOrder => "enableNodeOrder",
        }
    }
}

/// Which questions a plugin is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Questions(u16);

impl Questions {
    /// Every question.
    pub const ALL: Self = Self(u16::MAX);

    /// Whether it is asked this one.
    pub const fn has(self, question: Question) -> bool {
        self.0 & (1 << question as u8) != 0
    }

    /// Without this one.
    #[must_use]
    pub const fn without(self, question: Question) -> Self {
        Self(self.0 & !(1 << question as u8))
    }
}

/// A plugin with its switches.
pub struct Enabled {
    /// The plugin.
    pub plugin: Box<dyn Plugin>,
    /// The questions it is asked.
    pub questions: Questions,
}

/// Where a plugin stands in the tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    tier: usize,
    place: usize,
}

/// The plugins of a cycle, in tiers. Each way of combining answers is written once, here.
#[derive(Default)]
pub struct Policy {
    /// The most important tier first.
    pub tiers: Vec<Vec<Enabled>>,
}

impl Policy {
    fn all(&self) -> impl Iterator<Item = &dyn Plugin> {
        self.tiers.iter().flatten().map(|enabled| &*enabled.plugin)
    }

    fn asked(&self, question: Question) -> impl Iterator<Item = &dyn Plugin> {
        let all = self.tiers.iter().flatten();
        all.filter(move |enabled| enabled.questions.has(question)).map(|enabled| &*enabled.plugin)
    }

    /// The first plugin that is not indifferent decides.
    // Parity: kept, see docs/parity.md#o3.
    fn first_decision(
        &self,
        question: Question,
        ask: impl Fn(&dyn Plugin) -> Ordering,
    ) -> Ordering {
        self.asked(question).map(ask).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    pub(crate) fn open(&mut self, cluster: &Cluster, mut opened: impl FnMut(&'static str)) {
        for enabled in self.tiers.iter_mut().flatten() {
            enabled.plugin.on_session_open(cluster);
            opened(enabled.plugin.name());
        }
    }

    pub(crate) fn placed(&mut self, cluster: &Cluster, change: &Change) {
        for enabled in self.tiers.iter_mut().flatten() {
            enabled.plugin.on_placement(cluster, change);
        }
    }

    pub(crate) fn queue_order(&self, cluster: &Cluster, l: QueueIdx, r: QueueIdx) -> Ordering {
        self.first_decision(Question::QueueOrder, |p| p.queue_order(cluster, l, r)).then(l.cmp(&r))
    }

    pub(crate) fn job_order(&self, cluster: &Cluster, l: JobIdx, r: JobIdx) -> Ordering {
        self.first_decision(Question::JobOrder, |p| p.job_order(cluster, l, r)).then(l.cmp(&r))
    }

    pub(crate) fn task_order(&self, cluster: &Cluster, l: TaskIdx, r: TaskIdx) -> Ordering {
        self.first_decision(Question::TaskOrder, |p| p.task_order(cluster, l, r)).then(l.cmp(&r))
    }

    /// [`OrderScope::Own`] if no plugin needs more.
    pub(crate) fn order_scope(&self) -> OrderScope {
        let orders = |enabled: &&Enabled| {
            enabled.questions.has(Question::JobOrder) || enabled.questions.has(Question::QueueOrder)
        };
        let mut scopes = self.tiers.iter().flatten().filter(orders);
        if scopes.all(|enabled| enabled.plugin.order_scope() == OrderScope::Own) {
            OrderScope::Own
        } else {
            OrderScope::Anything
        }
    }

    /// All must pass; the first refusal speaks. Cannot be switched off.
    pub(crate) fn job_valid(&self, cluster: &Cluster, job: JobIdx) -> Result<(), JobProblem> {
        self.all().try_for_each(|plugin| plugin.job_valid(cluster, job))
    }

    /// All must agree.
    pub(crate) fn job_ready(&self, cluster: &Cluster, job: JobIdx) -> bool {
        self.asked(Question::JobReady).all(|plugin| plugin.job_ready(cluster, job))
    }

    /// All must agree.
    pub(crate) fn job_pipelined(&self, cluster: &Cluster, job: JobIdx) -> bool {
        self.asked(Question::JobPipelined).all(|plugin| plugin.job_pipelined(cluster, job))
    }

    /// The largest answer.
    pub(crate) fn tasks_missing(&self, cluster: &Cluster, job: JobIdx) -> u32 {
        let asked = self.asked(Question::JobReady);
        asked.map(|plugin| plugin.tasks_missing(cluster, job)).max().unwrap_or(0)
    }

    /// All must pass; the first refusal speaks.
    pub(crate) fn class_admitted(&self, cluster: &Cluster, class: ClassIdx) -> Result<(), Name> {
        self.asked(Question::Predicate).try_for_each(|p| p.class_admitted(cluster, class))
    }

    /// The plugins that have rules for the class, and what those depend on.
    pub(crate) fn dependencies(
        &self,
        cluster: &Cluster,
        class: ClassIdx,
    ) -> Vec<(Position, Dependencies)> {
        self.positions(Question::Predicate)
            .map(|at| (at, self.plugin(at).dependencies(cluster, class)))
            .filter(|(_, dependencies)| *dependencies != Dependencies::NONE)
            .collect()
    }

    /// The first plugin that has an answer speaks.
    pub(crate) fn claim_choices(&self, cluster: &Cluster, task: TaskIdx) -> Vec<ClaimChoice> {
        let answers = self.asked(Question::Predicate).map(|p| p.claim_choices(cluster, task));
        answers.into_iter().find(|choices| !choices.is_empty()).unwrap_or_default()
    }

    /// The terms of all plugins that score.
    pub(crate) fn score_terms(
        &self,
        cluster: &Cluster,
        class: ClassIdx,
    ) -> Vec<(Position, ScoreTerm)> {
        self.positions(Question::NodeOrder)
            .flat_map(|at| {
                let terms = self.plugin(at).score_terms(cluster, class);
                terms.into_iter().map(move |term| (at, term))
            })
            .filter(|(_, term)| term.weight != 0)
            .collect()
    }

    fn positions(&self, question: Question) -> impl Iterator<Item = Position> + '_ {
        self.tiers.iter().enumerate().flat_map(move |(tier, plugins)| {
            let asked = plugins.iter().enumerate();
            asked
                .filter(move |(_, enabled)| enabled.questions.has(question))
                .map(move |(place, _)| Position { tier, place })
        })
    }

    /// The plugin at a position.
    pub(crate) fn plugin(&self, at: Position) -> &dyn Plugin {
        &*self.tiers[at.tier][at.place].plugin
    }

    /// The first tier in which some plugin has an opinion decides; inside it all must allow.
    // Parity: an empty answer is final, see docs/parity.md#p8.
    pub(crate) fn preemptable(&self, cluster: &Cluster, proposal: &Proposal<'_>) -> bool {
        let verdicts = self.tiers.iter().map(|tier| {
            unanimous(
                tier.iter()
                    .filter(|enabled| enabled.questions.has(Question::Preemptable))
                    .map(|enabled| enabled.plugin.preemptable(cluster, proposal)),
            )
        });
        let decided = |verdict: &Verdict| *verdict != Verdict::Abstain;
        verdicts.into_iter().find(decided) == Some(Verdict::Allow)
    }

    /// Every plugin of every tier that has an opinion must allow.
    // Parity: differs, see docs/parity.md#c1.
    pub(crate) fn reclaimable(&self, cluster: &Cluster, proposal: &Proposal<'_>) -> bool {
        let asked = self.asked(Question::Reclaimable);
        unanimous(asked.map(|plugin| plugin.reclaimable(cluster, proposal))) == Verdict::Allow
    }

    /// Any plugin suffices. Cannot be switched off.
    pub(crate) fn overused(&self, cluster: &Cluster, queue: QueueIdx) -> bool {
        self.all().any(|plugin| plugin.overused(cluster, queue))
    }

    /// All must pass. Cannot be switched off.
    pub(crate) fn within_capability(
        &self,
        cluster: &Cluster,
        task: TaskIdx,
        gone: &[TaskIdx],
    ) -> Result<(), Dim> {
        self.all().try_for_each(|plugin| plugin.within_capability(cluster, task, gone))
    }

    /// The largest answer in each dimension.
    pub(crate) fn held_back(&self, cluster: &Cluster, placeable: &Column<QueueIdx, Row>) -> Row {
        let mut most = Row::zero(cluster.dimensions.len());
        for held in self.all().filter_map(|plugin| plugin.held_back(cluster, placeable)) {
            for dim in cluster.dimensions.ids() {
                most[dim] = most[dim].max(held[dim]);
            }
        }
        most
    }

    pub(crate) fn queue_share(
        &self,
        cluster: &Cluster,
        queue: QueueIdx,
        gone: &[TaskIdx],
    ) -> Share {
        let known = self.all().find_map(|plugin| plugin.queue_share(cluster, queue, gone));
        known.unwrap_or(Share::ZERO)
    }

    pub(crate) fn queue_shares(&self, cluster: &Cluster, queue: QueueIdx) -> Option<QueueShares> {
        self.all().find_map(|plugin| plugin.queue_shares(cluster, queue))
    }

    pub(crate) fn job_share(&self, cluster: &Cluster, job: JobIdx) -> Option<Share> {
        self.all().find_map(|plugin| plugin.job_share(cluster, job))
    }

    pub(crate) fn reports_unready_jobs(&self) -> bool {
        self.all().any(Plugin::reports_unready_jobs)
    }
}

/// Deny if any denies, else allow if any allows, else abstain.
fn unanimous(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    verdicts.fold(Verdict::Abstain, |so_far, verdict| match (so_far, verdict) {
        (Verdict::Deny, _) | (_, Verdict::Deny) => Verdict::Deny,
        (Verdict::Allow, _) | (_, Verdict::Allow) => Verdict::Allow,
        (Verdict::Abstain, Verdict::Abstain) => Verdict::Abstain,
    })
}
