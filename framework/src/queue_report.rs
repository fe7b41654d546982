//! The result of a cycle for a queue, and the status that follows from it.
// Parity: see docs/parity.md#q15.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kube_batch_model::{
    cluster::Cluster,
    column::{Column, Dim, QueueIdx},
    decision::EvictReason,
    dialect::Transition,
    division::{Part, Wish, divide},
    facts::queue::{QueueFacts, QueueState},
    job_report::Phase,
    name::{JobKey, Name},
    object_status::QueueStatus,
    people,
    queue_condition::{
        ACTIVE, Inactive, OVERSUBSCRIBED, Oversubscribed, QueueCondition, set_condition,
    },
    resource::{AmountsByName, PODS, ResourceList, ResourceVector, quantities},
};

use crate::{plugin::QueueShares, served::path_problem, session::Session};

/// The most resources that the column for people names.
const MAX_NAMED: usize = 4;

/// The result of a cycle for a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueReport {
    /// The queue.
    pub queue: Arc<QueueFacts>,
    /// Whether it starts jobs.
    pub state: QueueState,
    /// How many queues name it as parent.
    pub n_children: usize,
    /// Its shares when the cycle began; `None` if no plugin computes shares, or it has no jobs.
    pub opening: Option<QueueShares>,
    /// Its shares after the cycle.
    pub closing: Option<QueueShares>,
    /// What it would deserve if it and all leaves that have jobs requested all that there is.
    pub fair_share: AmountsByName,
    /// What it deserves.
    pub deserved: AmountsByName,
    /// What of that is kept free for it.
    pub guaranteed: AmountsByName,
    /// What its tasks hold after the cycle, and those of the queues below it.
    pub allocated: AmountsByName,
    /// What its tasks request that still wait after the cycle, and those of the queues below it.
    pub pending: AmountsByName,
    /// What is reserved for a job of it that still waits after the cycle.
    pub reserved: AmountsByName,
    /// The job, and the names of the reserved nodes, in order.
    pub reservation: Option<ReservationReport>,
    /// Number of its tasks that the cycle evicted.
    pub evicted: BTreeMap<EvictReason, u32>,
    /// Number of its PodGroups and gangs without one by phase, and of those of the queues below it.
    pub groups: BTreeMap<Phase, u32>,
    /// Its amounts that have no effect, with the names of their fields.
    pub without_effect: Vec<String>,
    /// Why it starts no jobs, if so.
    pub inactive: Option<Inactive>,
    /// What is promised below it beyond what there is; at the top, there.
    pub oversubscribed: Option<Oversubscribed>,
}

impl QueueReport {
    /// What tasks hold, and those that wait request.
    pub fn requested(&self) -> AmountsByName {
        let mut sums = self.allocated.clone();
        for (name, amount) in &self.pending {
            let sum = sums.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
        sums
    }
}

/// What is kept for a job that has waited long.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservationReport {
    /// The job.
    pub job: JobKey,
    /// Since when it has waited.
    pub since: Timestamp,
    /// When all of it is free at the latest; `None` if that is not known.
    pub start: Option<Timestamp>,
    /// The nodes, in order.
    pub nodes: Vec<Name>,
}

/// Why a queue starts no jobs, if so.
pub(crate) fn inactive(cluster: &Cluster, queue: QueueIdx) -> Option<Inactive> {
    let queues = &cluster.queues;
    let not_served = queues.tree.not_served(queue);
    if let Some(problem) = not_served.and_then(|why| path_problem(cluster, queue, why)) {
        return Some(Inactive::Path(problem));
    }
    let closed = queues.closed_by(queue)?;
    Some(Inactive::Closed((closed != queue).then(|| queues.facts[closed].name.clone())))
}

/// The amounts of a queue that have no effect: slots of pods, which are only limited, and resources that nothing in the
/// cluster has.
pub(crate) fn without_effect(
    cluster: &Cluster,
    queue: QueueIdx,
    total: &ResourceVector,
) -> Vec<String> {
    let facts = &cluster.queues.facts[queue];
    let of_field = |(field, amounts): (&'static str, &ResourceList)| -> Vec<String> {
        let because = |name: &Name| {
            let has_any = cluster.dimensions.get(name).is_some_and(|dim| total[dim] != 0);
            match &**name {
                PODS => Some(format!("{field}.{name} (slots of pods are only limited)")),
                _ if !has_any => Some(format!("{field}.{name} (no node has it)")),
                _ => None,
            }
        };
        amounts.iter().filter_map(|(name, _)| because(name)).collect()
    };
    let fields = [("deserved", &facts.deserved), ("guarantee", &facts.guarantee)];
    fields.into_iter().flat_map(of_field).collect()
}

/// What is promised below queues, and at the top, beyond what there is.
pub(crate) fn oversubscribed(session: &Session) -> BTreeMap<QueueIdx, Oversubscribed> {
    let cluster = session.cluster();
    let queues = &cluster.queues;
    let mut found = BTreeMap::new();
    let promises_nothing =
        |amounts: &Column<QueueIdx, Vec<(Dim, i64)>>| amounts.values().all(Vec::is_empty);
    if promises_nothing(&queues.guarantee) && promises_nothing(&queues.deserved) {
        return found;
    }
    let total = cluster.total_to_share();
    for dim in cluster.dimensions.shared() {
        let wishes: Column<QueueIdx, Wish> =
            queues.facts.ids().map(|queue| queues.wish(queue, dim)).collect();
        let parts = divide(&queues.tree, &wishes, total[dim]);
        let tops = queues.tree.roots().iter().map(|root| (*root, None));
        let above = queues.tree.parents_first().iter().map(|queue| (*queue, Some(*queue)));
        for (queue, of) in tops.chain(above) {
            let beyond = beyond(cluster, dim, &parts, total[dim], of);
            // At the top it stands on each queue that is concerned.
            let Part { guarantee, entitlement, .. } = parts[queue];
            let is_concerned = |own: &Oversubscribed| {
                of.is_some() || (if own.is_guaranteed { guarantee } else { entitlement }) > 0
            };
            if let Some(own) = beyond.filter(is_concerned) {
                found.entry(queue).or_insert(own);
            }
        }
    }
    found
}

/// What is promised to the children of a queue, or to the queues at the top, beyond what there is.
fn beyond(
    cluster: &Cluster,
    dim: Dim,
    parts: &Column<QueueIdx, Part>,
    total: i64,
    of: Option<QueueIdx>,
) -> Option<Oversubscribed> {
    let queues = &cluster.queues;
    let siblings = of.map_or(queues.tree.roots(), |queue| queues.tree.children(queue));
    let sum = |amount: &dyn Fn(&Part) -> i64| -> i64 {
        siblings.iter().fold(0, |sum: i64, queue| sum.saturating_add(amount(&parts[*queue])))
    };
    let number = |queue: QueueIdx| {
        let mut deserved = queues.deserved[queue].iter();
        let own = deserved.find(|(own, _)| *own == dim).map(|(_, amount)| *amount);
        own.map(|own| own.max(parts[queue].guarantee))
    };
    let has = of.map_or(Some(total), |queue| {
        let is_cut = parts[queue].guaranteed < sum(&|part| part.guarantee);
        is_cut.then_some(parts[queue].guaranteed)
    });
    let own_number = of.map_or(Some(total), number);
    let found = |is_guaranteed, promised, available: Option<i64>| {
        let available = available.filter(|available| promised > *available)?;
        let resource = cluster.dimensions.name(dim).clone();
        Some(Oversubscribed {
            is_guaranteed,
            resource,
            promised,
            available,
            is_at_top: of.is_none(),
        })
    };
    found(true, sum(&|part| part.guarantee), has)
        .or_else(|| found(false, sum(&|part| part.entitlement), own_number))
}

/// The status a queue should have after a cycle, if it differs from the one it has.
// Parity: new, see docs/parity.md#e5.
pub fn next_queue_status(report: &QueueReport, at: Transition<'_>) -> Option<QueueStatus> {
    let count =
        |phase| i32::try_from(report.groups.get(&phase).copied().unwrap_or(0)).unwrap_or(i32::MAX);
    let stored = &report.queue.status;
    let next = QueueStatus {
        state: report.state.to_string(),
        children: i32::try_from(report.n_children).unwrap_or(i32::MAX),
        unknown: count(Phase::Unknown),
        pending: count(Phase::Pending),
        running: count(Phase::Running),
        allocated: quantities(&report.allocated),
        requested: quantities(&report.requested()),
        deserved: quantities(&report.deserved),
        guaranteed: quantities(&report.guaranteed),
        fair_share: quantities(&report.fair_share),
        reserved: quantities(&report.reserved),
        share: report
            .closing
            .as_ref()
            .map(|s| format!("{:.2}", s.share.as_f64()))
            .unwrap_or_default(),
        usage: usage(report),
        conditions: conditions(report, at),
    };
    let next = report.queue.version.statuses().next_queue_status(stored, next);
    (next != *stored).then_some(next)
}

/// The conditions after a cycle.
fn conditions(report: &QueueReport, at: Transition<'_>) -> Vec<QueueCondition> {
    let mut conditions = report.queue.status.conditions.clone();
    let condition = |type_: &str, status: &str, reason: &str, message: String| QueueCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: Some(at.now),
        observed_generation: report.queue.generation,
    };
    let active = match &report.inactive {
        None => condition(ACTIVE, "True", ACTIVE, String::new()),
        Some(why) => condition(ACTIVE, "False", why.reason(), why.to_string()),
    };
    set_condition(&mut conditions, active);
    let is_known = conditions.iter().any(|own| own.type_ == OVERSUBSCRIBED);
    match &report.oversubscribed {
        Some(own) => {
            let next = condition(OVERSUBSCRIBED, "True", own.reason(), own.to_string());
            set_condition(&mut conditions, next);
        }
        None if is_known => {
            let next = condition(OVERSUBSCRIBED, "False", "Enough", String::new());
            set_condition(&mut conditions, next);
        }
        None => {}
    }
    conditions
}

/// What is held of what is deserved, for people: CPU, memory, then others by name, at most four.
fn usage(report: &QueueReport) -> String {
    let of = |amounts: &AmountsByName, name: &str| {
        amounts.iter().find(|(own, _)| &***own == name).map_or(0, |(_, amount)| *amount)
    };
    let mut names: Vec<&str> =
        report.allocated.keys().chain(report.deserved.keys()).map(|name| &**name).collect();
    let is_used = |name: &str| of(&report.allocated, name) != 0 || of(&report.deserved, name) != 0;
    // Queues do not share slots of pods.
    names.retain(|name| *name != PODS && is_used(name));
    let place = |name: &str| match name {
        "cpu" => 0,
        "memory" => 1,
        _ => 2,
    };
    names.sort_by_key(|name| (place(name), (*name).to_owned()));
    names.dedup();
    let part = |name: &&str| {
        let [held, deserved] = [&report.allocated, &report.deserved].map(|list| of(list, name));
        format!("{name} {}", people::part(name, held, deserved))
    };
    let mut parts: Vec<String> = names.iter().take(MAX_NAMED).map(part).collect();
    if names.len() > MAX_NAMED {
        parts.push("…".to_owned());
    }
    parts.join(", ")
}
