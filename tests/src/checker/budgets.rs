//! Disruption budgets (docs/parity.md#p11).

use kube_batch_model::{
    decision::EvictReason,
    facts::policy::{BudgetFacts, HIGHEST_USER_PRIORITY},
};

use super::view::{Job, Pod, View};

/// No budget is exceeded. If budgets are only preferred, one may be where no other pod of the same node
/// could have left instead.
pub(super) fn budgets_are_kept(view: &View<'_>) -> Vec<String> {
    if !view.has_plugin("pdb") {
        return Vec::new();
    }
    view.store.budgets.values().filter_map(|budget| problem_of(view, budget)).collect()
}

fn problem_of(view: &View<'_>, budget: &BudgetFacts) -> Option<String> {
    let (key, allowed) = (&budget.key, budget.allowed);
    let victims: Vec<&Pod<'_>> = victims_of(view, budget).collect();
    if victims.len() as i64 <= i64::from(allowed.max(0)) {
        return None;
    }
    let exceeded = format!("budget {key} allows {allowed} evictions, not {}", victims.len());
    if view.requires_budgets() {
        return Some(exceeded);
    }
    let other = victims.iter().find_map(|victim| other_victim(view, victim))?;
    Some(format!("{exceeded}; pod {} could leave instead", other.key()))
}

fn victims_of<'p>(view: &View<'p>, budget: &BudgetFacts) -> impl Iterator<Item = &'p Pod<'p>> {
    let is_victim = |pod: &&Pod<'_>| {
        pod.eviction().is_some_and(|eviction| eviction.reason != EvictReason::StaleGang)
    };
    view.pods.iter().filter(move |pod| is_victim(pod) && protects(budget, pod))
}

/// Whether an eviction of the pod counts. As in kube-scheduler, an empty selector matches no pod.
fn protects(budget: &BudgetFacts, pod: &Pod<'_>) -> bool {
    let matches = |labels| {
        let selector = budget.selector.as_ref().filter(|selector| !selector.is_empty());
        selector.is_some_and(|selector| selector.matches(labels))
    };
    budget.key.namespace == pod.key().namespace
        && matches(&pod.facts.labels)
        && !budget.disrupted.contains(&pod.key().name)
}

/// A pod that could have been preempted in place of the victim: on the same node, at least as large, and
/// with no budget that forbids it.
fn other_victim<'p>(view: &View<'p>, victim: &Pod<'_>) -> Option<&'p Pod<'p>> {
    let eviction = victim.eviction().filter(|of| of.reason == EvictReason::Preempt)?;
    let taker = view.jobs.get(eviction.by)?;
    if !view.compares_priorities()
        || view.jobs[&victim.facts.job_key(view.store.served())].leaves_whole()
    {
        return None;
    }
    let node = view.nodes.get(victim.present_on()?)?;
    node.present.iter().copied().find(|other| {
        let key = other.facts.job_key(view.store.served());
        key != *eviction.by
            && may_leave(view, &view.jobs[&key], taker, other)
            && is_as_large(other, victim)
            && !is_protected(view, other)
    })
}

fn may_leave(view: &View<'_>, own: &Job<'_>, taker: &Job<'_>, pod: &Pod<'_>) -> bool {
    let has_spare = own.min <= 1 || own.n_ready() > own.min;
    let is_system =
        pod.facts.priority > HIGHEST_USER_PRIORITY || pod.key().namespace.as_str() == "kube-system";
    let mut queues = view.store.queues.values().filter(|queue| queue.name == own.queue);
    pod.is_running()
        && pod.is_ready()
        && own.queue == taker.queue
        && own.priority < taker.priority
        && has_spare
        && !is_system
        && queues.all(|queue| queue.min_runtime.unwrap_or_default().is_zero())
}

fn is_as_large(other: &Pod<'_>, than: &Pod<'_>) -> bool {
    let request = &other.facts.template.request;
    than.facts.template.request.iter().all(|(name, amount)| request.get(name) >= amount)
}

fn is_protected(view: &View<'_>, pod: &Pod<'_>) -> bool {
    let is_used_up = |budget: &BudgetFacts| {
        victims_of(view, budget).count() as i64 >= i64::from(budget.allowed.max(0))
    };
    view.store.budgets.values().any(|budget| protects(budget, pod) && is_used_up(budget))
}
