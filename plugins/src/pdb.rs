//! Disruption budgets: which evictions a PodDisruptionBudget does not allow.
//!
//! A budget of the pod's namespace whose selector matches its labels allows `status.disruptionsAllowed`
//! more evictions, less the victims of this cycle. A pod in `status.disruptedPods` is counted there
//! already. With `pdb.mode: prefer`, other victims are chosen first; with `require`, a budget is never
//! violated. There, pods that are being terminated count as well: the controller of the budgets may not
//! have seen them yet.
//!
//! Source: kube-scheduler's preemption, which is `prefer`. There a pod without labels and an empty
//! selector match nothing; with `require` an empty selector matches every pod, as in the eviction API.
// Parity: new, see docs/parity.md#p11.

use std::collections::BTreeMap;

use kube_batch_framework::{
    arguments::{ArgumentKind, ArgumentSpec, Arguments},
    plugin::{
        Budgets, Dependencies, JobProposal, OrderScope, PlacementChange, Plugin, Proposal,
        Provided, VictimQuestion, VictimScope,
    },
    session_cache::SessionCache,
    spec::PluginSpec,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, TaskIdx},
    facts::policy::BudgetFacts,
    name::Name,
    status::TaskStatus,
};

/// The plugin `pdb`.
#[derive(Debug, Default)]
pub struct Pdb {
    is_required: bool,
    /// The budgets of each namespace that has pods of ours, as positions in [`Cluster::budgets`].
    by_namespace: BTreeMap<Name, Vec<usize>>,
    /// How many more evictions each budget allows.
    left: Vec<i64>,
}

const PREFER: &str = "prefer";
const REQUIRE: &str = "require";

const MODE: ArgumentSpec = ArgumentSpec {
    key: "pdb.mode",
    kind: ArgumentKind::Choice { choices: &[PREFER, REQUIRE] },
    about: "prefer: evict pods that a budget protects as a last resort; require: never",
};

/// How a configuration names the plugin.
pub const SPEC: PluginSpec = PluginSpec {
    name: "pdb",
    about: "PodDisruptionBudgets limit which pods are victims",
    arguments: &[MODE],
    metadata_prefixes: &[],
    new: |arguments| Box::new(Pdb::new(arguments)),
};

impl Pdb {
    fn new(arguments: &Arguments) -> Self {
        Self { is_required: arguments.text(&MODE) == REQUIRE, ..Self::default() }
    }

    /// The budgets that an eviction of the task would use up, as positions.
    fn budgets_of<'a>(
        &'a self,
        cluster: &'a Cluster,
        task: TaskIdx,
    ) -> impl Iterator<Item = usize> + 'a {
        let key = &cluster.tasks.facts[task].key;
        let of_namespace = self.by_namespace.get(&key.namespace).into_iter().flatten().copied();
        of_namespace.filter(move |at| self.protects(&cluster.budgets[*at], cluster, task))
    }

    fn protects(&self, budget: &BudgetFacts, cluster: &Cluster, task: TaskIdx) -> bool {
        let facts = &cluster.tasks.facts[task];
        let Some(selector) = &budget.selector else { return false };
        let is_matched = if self.is_required {
            selector.matches(&facts.labels)
        } else {
            !selector.is_empty() && !facts.labels.is_empty() && selector.matches(&facts.labels)
        };
        is_matched && budget.disrupted.binary_search(&facts.key.name).is_err()
    }

    fn count(&mut self, cluster: &Cluster, task: TaskIdx, evictions: i64) {
        let budgets: Vec<usize> = self.budgets_of(cluster, task).collect();
        for budget in budgets {
            self.left[budget] -= evictions;
        }
    }
}

impl Plugin for Pdb {
    fn name(&self) -> &'static str {
        "pdb"
    }

    fn provides(&self) -> Provided<'_> {
        Provided { budgets: Some(self), ..Provided::default() }
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
        Dependencies::NONE
    }

    fn on_session_open(&mut self, cluster: &Cluster, _: &mut SessionCache<'_>) {
        self.by_namespace.clear();
        for (at, budget) in cluster.budgets.iter().enumerate() {
            self.by_namespace.entry(budget.key.namespace.clone()).or_default().push(at);
        }
        self.left = cluster.budgets.iter().map(|budget| budget.allowed.into()).collect();
        if self.is_required && !self.left.is_empty() {
            for task in cluster.tasks_in(|status| status == TaskStatus::Releasing) {
                self.count(cluster, task, 1);
            }
        }
    }

    fn on_placement(&mut self, cluster: &Cluster, change: &PlacementChange) {
        let releasing = |status| i64::from(status == TaskStatus::Releasing);
        let evictions = releasing(change.to.status) - releasing(change.from.status);
        if evictions != 0 && !self.left.is_empty() {
            self.count(cluster, change.task, evictions);
        }
    }

    fn victim_scope(&self, _: &Cluster, _: TaskIdx, _: VictimQuestion) -> VictimScope {
        VictimScope::NONE
    }
}

impl Budgets for Pdb {
    fn may_veto(&self, cluster: &Cluster, victim: TaskIdx) -> bool {
        !self.left.is_empty() && self.budgets_of(cluster, victim).next().is_some()
    }

    fn violates_budget(&self, cluster: &Cluster, victims: &[TaskIdx]) -> Vec<bool> {
        if self.left.is_empty() {
            return Vec::new();
        }
        let mut used: BTreeMap<usize, i64> = BTreeMap::new();
        let violates = |victim: &TaskIdx| {
            // Each budget counts, also after one is violated.
            self.budgets_of(cluster, *victim).fold(false, |violates, budget| {
                let used = used.entry(budget).or_default();
                *used += 1;
                violates | (*used > self.left[budget])
            })
        };
        victims.iter().map(violates).collect()
    }

    fn vetoes(&self, cluster: &Cluster, proposal: &Proposal<'_>) -> bool {
        if !self.is_required || self.left.is_empty() {
            return false;
        }
        self.budgets_of(cluster, proposal.victim).any(|budget| {
            let is_of_budget = |task: &&TaskIdx| {
                self.protects(&cluster.budgets[budget], cluster, **task)
                    && cluster.tasks.facts[**task].key.namespace
                        == cluster.budgets[budget].key.namespace
            };
            let n_evicted = proposal.evicted.iter().filter(is_of_budget).count();
            self.left[budget] <= n_evicted as i64
        })
    }

    fn vetoes_job(&self, cluster: &Cluster, proposal: &JobProposal<'_>) -> bool {
        self.is_required && self.violates_budget(cluster, proposal.victims).contains(&true)
    }
}
