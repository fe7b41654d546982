//! Pods that were placed and evicted.

use std::collections::BTreeMap;

use kube_batch_sim::outcome::{EvictionOutcome, Outcome};

use super::section::{MAX_ROWS, Section, more_rows};
use crate::table::{Align, Cell, TextTable, plural};

/// More evictions than this are not listed one by one.
const MAX_EVICTIONS: usize = 20;

/// For at most this many jobs, then, there are numbers.
const MAX_JOBS: usize = 10;

/// Pods, or if there are many, counts by job and node.
pub(super) fn placed(outcome: &Outcome) -> Section {
    let binds = || {
        outcome.cycles.iter().flat_map(|cycle| cycle.binds.iter().map(move |b| (cycle.cycle, b)))
    };
    let total = binds().count();
    if total <= MAX_ROWS {
        let devices: BTreeMap<&str, String> = outcome
            .pods
            .iter()
            .filter(|pod| !pod.devices.is_empty())
            .map(|pod| (pod.pod.as_str(), pod.devices.join(", ")))
            .collect();
        let columns = [("POD", Align::Left), ("NODE", Align::Left), ("CYCLE", Align::Right)];
        let of_devices = (!devices.is_empty()).then_some(("DEVICES", Align::Left));
        let mut table = TextTable::new(columns.into_iter().chain(of_devices));
        for (cycle, bind) in binds() {
            let mut row: Vec<Cell> =
                vec![bind.pod.as_str().into(), bind.node.as_str().into(), cycle.to_string().into()];
            let own = devices.get(bind.pod.as_str()).map_or("-", String::as_str);
            row.extend((!devices.is_empty()).then(|| Cell::from(own)));
            table.row(row);
        }
        return (table, None);
    }
    let group_of: BTreeMap<&str, &str> =
        outcome.pods.iter().map(|pod| (pod.pod.as_str(), pod.pod_group.as_str())).collect();
    let mut by_job: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (_, bind) in binds() {
        let job = group_of.get(bind.pod.as_str()).copied().unwrap_or(&bind.pod);
        *by_job.entry(job).or_default().entry(&bind.node).or_default() += 1;
    }
    let mut table =
        TextTable::new([("JOB", Align::Left), ("PODS", Align::Right), ("NODES", Align::Left)]);
    for (job, nodes) in by_job.iter().take(MAX_ROWS) {
        let shown: Vec<String> =
            nodes.iter().take(4).map(|(node, n)| format!("{node} ({n})")).collect();
        let more = nodes.len().checked_sub(4).filter(|n| *n > 0);
        let more = more.map(|n| format!(", {n} more")).unwrap_or_default();
        let pods: usize = nodes.values().sum();
        table.row([
            (*job).into(),
            pods.to_string().into(),
            format!("{}{more}", shown.join(", ")).into(),
        ]);
    }
    (table, more_rows(by_job.len(), "jobs; -o json lists every pod"))
}

/// The evictions, or if there are many, their numbers by the job that gets the resources.
pub(super) fn evicted(outcome: &Outcome, is_verbose: bool) -> Section {
    let evictions = || {
        let cycles = outcome.cycles.iter();
        cycles.flat_map(|cycle| cycle.evictions.iter().map(move |e| (cycle.cycle, e)))
    };
    let n_evictions = evictions().count();
    if n_evictions > MAX_EVICTIONS && !is_verbose {
        return evicted_for(evictions(), n_evictions);
    }
    let mut table = TextTable::new([
        ("POD", Align::Left),
        ("NODE", Align::Left),
        ("CYCLE", Align::Right),
        ("REASON", Align::Left),
        ("FOR", Align::Left),
    ]);
    for (cycle, eviction) in evictions() {
        table.row([
            eviction.pod.as_str().into(),
            eviction.node.as_str().into(),
            cycle.to_string().into(),
            eviction.reason.as_str().into(),
            eviction.for_.as_str().into(),
        ]);
    }
    (table, None)
}

fn evicted_for<'a>(
    evictions: impl Iterator<Item = (u64, &'a EvictionOutcome)>,
    n_evictions: usize,
) -> Section {
    let mut by_job: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for (cycle, eviction) in evictions {
        by_job.entry((&eviction.for_, &eviction.reason)).or_default().push(cycle);
    }
    let mut table = TextTable::new([
        ("FOR", Align::Left),
        ("REASON", Align::Left),
        ("PODS", Align::Right),
        ("CYCLES", Align::Left),
    ]);
    let n_jobs = by_job.len();
    let mut by_job: Vec<_> = by_job.into_iter().collect();
    // Of equal ones the first by name.
    by_job.sort_by_key(|(_, cycles)| std::cmp::Reverse(cycles.len()));
    for ((job, reason), cycles) in by_job.into_iter().take(MAX_JOBS) {
        let (first, last) = (cycles[0], cycles[cycles.len() - 1]);
        let when = if first == last { first.to_string() } else { format!("{first} to {last}") };
        table.row([job.into(), reason.into(), cycles.len().to_string().into(), when.into()]);
    }
    let jobs = plural(n_jobs as u64, "job");
    let note = format!("{} for {jobs}; -v lists them", plural(n_evictions as u64, "eviction"));
    (table, Some(note))
}
