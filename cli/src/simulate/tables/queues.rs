//! Queues that are not below each other.

use std::collections::BTreeMap;

use kube_batch_sim::outcome::{Outcome, QueueOutcome, QueueWaits};

use super::{
    amounts,
    section::{MAX_ROWS, Section, more_rows},
};
use crate::{
    queue::tree::heading,
    table::{Align, Cell, TextTable, age, plural},
};

/// The queues, in the resources that they divide.
pub(super) fn flat(outcome: &Outcome) -> Section {
    let resources = amounts::contended(outcome);
    let columns = [
        ("QUEUE", Align::Left),
        ("WEIGHT", Align::Right),
        ("CAPABILITY", Align::Left),
        ("FAIR SHARE", Align::Left),
        ("DESERVED", Align::Left),
        ("ALLOCATED", Align::Left),
        ("SHARE", Align::Right),
        ("PENDING", Align::Right),
        ("RUNNING", Align::Right),
    ];
    let mut table = TextTable::new(columns);
    for queue in outcome.queues.iter().take(MAX_ROWS) {
        let of = |list| Cell::from(amounts::of(list, &resources));
        let limits: Vec<String> = queue.capability.keys().cloned().collect();
        table.row([
            queue.queue.as_str().into(),
            queue.weight.to_string().into(),
            amounts::of(&queue.capability, &limits).into(),
            of(&queue.fair_share),
            of(&queue.deserved),
            of(&queue.allocated),
            format!("{:.2}", queue.share).into(),
            queue.pending.to_string().into(),
            queue.running.to_string().into(),
        ]);
    }
    if outcome.queues.iter().all(|queue| queue.capability.is_empty()) {
        table.leave_out_equal(&["CAPABILITY"]);
    }
    if outcome.queues.len() > 1 {
        table.leave_out_equal(&["WEIGHT", "CAPABILITY", "PENDING", "RUNNING"]);
    }
    let notes: Vec<String> =
        more_rows(outcome.queues.len(), "queues").into_iter().chain(reserved(outcome)).collect();
    (table, (!notes.is_empty()).then(|| notes.join("\n")))
}

/// What queues used over time, how long their pods waited, and how many were evicted.
pub(super) fn over_time(outcome: &Outcome) -> Section {
    let resources = amounts::contended(outcome);
    let hours: Vec<String> =
        if resources.is_empty() { most_used(outcome).into_iter().collect() } else { resources };
    let columns = [
        ("QUEUE".to_owned(), Align::Left),
        ("PODS".to_owned(), Align::Right),
        ("WAITED p50".to_owned(), Align::Right),
        ("p95".to_owned(), Align::Right),
        ("LONGEST".to_owned(), Align::Right),
        ("EVICTED".to_owned(), Align::Right),
    ];
    let of_hours = |name: &String| (format!("{} HOURS", heading(name)), Align::Right);
    let mut table = TextTable::new(columns.into_iter().chain(hours.iter().map(of_hours)));
    let shown = |queue: &&QueueOutcome| queue.waits.pods > 0 || !queue.hours.is_empty();
    let all: Vec<&QueueOutcome> = outcome.queues.iter().filter(shown).collect();
    for queue in all.iter().take(MAX_ROWS) {
        let QueueWaits { pods, p50_seconds, p95_seconds, longest_seconds } = queue.waits;
        let mut row: Vec<Cell> = vec![queue.queue.as_str().into(), pods.to_string().into()];
        row.extend([p50_seconds, p95_seconds, longest_seconds].map(|wait| Cell::from(age(wait))));
        row.push(queue.evictions.to_string().into());
        let of = |name: &String| queue.hours.get(name).copied().unwrap_or(0.0);
        row.extend(hours.iter().map(|name| Cell::from(format!("{:.1}", of(name)))));
        table.row(row);
    }
    (table, more_rows(all.len(), "queues"))
}

/// Where nothing is requested at the end, the device or else the resource of which most was used.
fn most_used(outcome: &Outcome) -> Option<String> {
    let mut sums: BTreeMap<&String, f64> = BTreeMap::new();
    for (name, hours) in outcome.queues.iter().flat_map(|queue| &queue.hours) {
        *sums.entry(name).or_default() += hours;
    }
    let all = amounts::read(&outcome.cluster.allocatable);
    let part = |name: &str, hours: f64| (name.contains('/'), hours / all.get(name).max(1) as f64);
    let best = sums.into_iter().max_by(|(l, l_hours), (r, r_hours)| {
        let (l, r) = (part(l, *l_hours), part(r, *r_hours));
        l.0.cmp(&r.0).then(l.1.total_cmp(&r.1))
    });
    best.map(|(name, _)| name.clone())
}

/// What is reserved for jobs that have waited long.
pub(super) fn reserved(outcome: &Outcome) -> Option<String> {
    let names = amounts::contended(outcome);
    let of_queues = outcome.queues.iter().filter_map(|queue| {
        let own = queue.reservation.as_ref()?;
        let (amounts, n_nodes) = (amounts::of(&own.reserved, &names), own.nodes.len());
        Some(format!(
            "{amounts} on {} reserved for job {} of queue {}",
            plural(n_nodes as u64, "node"),
            own.job,
            queue.queue
        ))
    });
    let lines: Vec<String> = of_queues.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}
