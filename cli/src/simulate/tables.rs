//! The tables that `kube-batch simulate` prints for people.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};

use kube_batch_model::resource::{CPU, MEMORY, PODS};
use kube_batch_sim::outcome::{ClusterOutcome, CycleOutcome, GroupOutcome, NodeOutcome, Outcome};

use crate::{
    queue::{tree, view::QueueViews},
    table::{Align, Cell, TextTable, age, bar, plural},
    terminal::{self, BAD, FAINT, GOOD, HEADING, WAITING, styled},
};

/// Maximum number of rows in a table; further ones are only counted.
const MAX_ROWS: usize = 50;
/// Width of a bar.
const BAR: usize = 20;

/// Prints the headline, a summary and the tables that have rows.
pub(super) fn print_tables(
    out: &mut dyn Write,
    outcome: &Outcome,
    queues: &QueueViews,
    n_cycles: u64,
) -> io::Result<()> {
    let width = terminal::width();
    let is_flat = queues.all.values().all(|queue| queue.facts.parent.is_none());
    print_headline(out, outcome, n_cycles)?;
    print_summary(out, outcome)?;
    let parts = [
        ("PLACED", placed(outcome)),
        ("EVICTED", evicted(outcome)),
        (
            "QUEUES",
            if is_flat { flat_queues(outcome) } else { (tree::table(queues, &[], width), None) },
        ),
        ("JOBS", jobs(outcome)),
        ("NODES", nodes(outcome)),
        ("DEVICES", devices(outcome)),
    ];
    for (title, (table, note)) in parts {
        if table.is_empty() {
            continue;
        }
        writeln!(out, "\n{}", styled(HEADING, title))?;
        table.print(out, width)?;
        if let Some(note) = note {
            writeln!(out, "{}", styled(FAINT, &note))?;
        }
    }
    Ok(())
}

fn print_headline(out: &mut dyn Write, outcome: &Outcome, n_cycles: u64) -> io::Result<()> {
    let count = |what: fn(&CycleOutcome) -> usize| outcome.cycles.iter().map(what).sum::<usize>();
    let waiting = outcome.pods.iter().filter(|pod| pod.status == "Pending").count();
    let placed = plural(count(|cycle| cycle.binds.len()), "pod");
    let mut parts = vec![styled(GOOD, &format!("{placed} placed"))];
    let evictions = count(|cycle| cycle.evictions.len());
    if evictions > 0 {
        parts.push(styled(BAD, &format!("{evictions} evicted")));
    }
    if waiting > 0 {
        parts.push(styled(WAITING, &format!("{waiting} waiting")));
    }
    writeln!(out, "{} after {}", parts.join(", "), plural(n_cycles, "cycle"))
}

/// How full the cluster is, and how long pods waited.
fn print_summary(out: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    let ClusterOutcome { allocatable, used, utilization, peak, peak_utilization } =
        &outcome.cluster;
    let amount = |list: &BTreeMap<String, String>, name: &str| {
        list.get(name).cloned().unwrap_or_else(|| "0".to_owned())
    };
    let names = [CPU, MEMORY].map(str::to_owned).into_iter().chain(other_resources(outcome));
    let names: Vec<String> = names.chain([PODS.to_owned()]).collect();
    let parts = |used: &BTreeMap<String, String>, utilization: &BTreeMap<String, f64>| {
        let of_name = |name: &String| {
            let percent = utilization.get(name)? * 100.0;
            let (used, whole) = (amount(used, name), amount(allocatable, name));
            Some(format!("{name} {used}/{whole} ({percent:.0}%)"))
        };
        names.iter().filter_map(of_name).collect::<Vec<String>>()
    };
    let (end, most) = (parts(used, utilization), parts(peak, peak_utilization));
    if end == most && !end.is_empty() {
        writeln!(out, "{} {}", styled(HEADING, "Used:"), end.join(", "))?;
    } else if end != most {
        writeln!(out, "{} {}", styled(HEADING, "Used at the end:"), end.join(", "))?;
        writeln!(out, "{} {}", styled(HEADING, "Used at the peak:"), most.join(", "))?;
    }
    let waiting = &outcome.waiting;
    let mut parts = Vec::new();
    if waiting.bound > 0 {
        let (min, max) = (age(waiting.min_seconds), age(waiting.max_seconds));
        let range = if min == max {
            format!("for {min}")
        } else {
            format!("for {min} to {max}, median {}", age(waiting.median_seconds))
        };
        parts.push(format!("placed pods {range}"));
    }
    if waiting.pending > 0 {
        parts.push(format!("pending pods for up to {}", age(waiting.pending_max_seconds)));
    }
    if !parts.is_empty() {
        writeln!(out, "{} {}", styled(HEADING, "Waited:"), parts.join("; "))?;
    }
    Ok(())
}

/// Resources other than CPU, memory and pods that some node has and is not merely a default of
/// Kubernetes, or that some pod uses: each has a column.
fn other_resources(outcome: &Outcome) -> BTreeSet<String> {
    let ClusterOutcome { allocatable, utilization, .. } = &outcome.cluster;
    let is_shown = |name: &&String| {
        let is_used = utilization.get(*name).is_some_and(|used| *used > 0.0);
        let is_there = allocatable.get(*name).is_some_and(|amount| amount != "0");
        // Extended resources have a domain; storage and huge pages are on every node.
        ![CPU, MEMORY, PODS].contains(&name.as_str())
            && (is_used || (is_there && name.contains('/')))
    };
    allocatable.keys().chain(utilization.keys()).filter(is_shown).cloned().collect()
}

type Part = (TextTable, Option<String>);

/// Pods, or if there are many, counts by job and node.
fn placed(outcome: &Outcome) -> Part {
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

fn evicted(outcome: &Outcome) -> Part {
    let evictions = || {
        outcome
            .cycles
            .iter()
            .flat_map(|cycle| cycle.evictions.iter().map(move |e| (cycle.cycle, e)))
    };
    let mut table = TextTable::new([
        ("POD", Align::Left),
        ("NODE", Align::Left),
        ("CYCLE", Align::Right),
        ("REASON", Align::Left),
        ("FOR", Align::Left),
    ]);
    for (cycle, eviction) in evictions().take(MAX_ROWS) {
        table.row([
            eviction.pod.as_str().into(),
            eviction.node.as_str().into(),
            cycle.to_string().into(),
            eviction.reason.as_str().into(),
            eviction.for_.as_str().into(),
        ]);
    }
    (table, more_rows(evictions().count(), "evictions"))
}

fn flat_queues(outcome: &Outcome) -> Part {
    let limited = outcome.queues.iter().any(|queue| !queue.capability.is_empty());
    let capability = limited.then_some(("CAPABILITY", Align::Left));
    let reserves = outcome.queues.iter().any(|queue| queue.reservation.is_some());
    let reserved = reserves.then_some(("RESERVED", Align::Left));
    let amounts_of_all =
        [("FAIR SHARE", Align::Left), ("DESERVED", Align::Left), ("ALLOCATED", Align::Left)];
    let counts = [("SHARE", Align::Right), ("PENDING", Align::Right), ("RUNNING", Align::Right)];
    let first = [("QUEUE", Align::Left), ("WEIGHT", Align::Right)].into_iter().chain(capability);
    let mut table = TextTable::new(first.chain(amounts_of_all).chain(reserved).chain(counts));
    for queue in outcome.queues.iter().take(MAX_ROWS) {
        let capability = limited.then(|| all_amounts(&queue.capability));
        let mut row: Vec<Cell> = vec![queue.queue.as_str().into(), queue.weight.to_string().into()];
        row.extend(capability.map(Cell::from));
        row.extend([
            amounts(&queue.fair_share).into(),
            amounts(&queue.deserved).into(),
            amounts(&queue.allocated).into(),
        ]);
        let reservation = queue.reservation.as_ref();
        let reserved = reservation.map(|own| amounts(&own.reserved)).unwrap_or_default();
        row.extend(reserves.then(|| Cell::from(reserved)));
        row.extend([
            format!("{:.2}", queue.share).into(),
            queue.pending.to_string().into(),
            queue.running.to_string().into(),
        ]);
        table.row(row);
    }
    (table, more_rows(outcome.queues.len(), "queues"))
}

fn jobs(outcome: &Outcome) -> Part {
    let has_bound = outcome.pod_groups.iter().any(|group| group.bound > 0);
    let mut columns = vec![
        ("JOB", Align::Left),
        ("QUEUE", Align::Left),
        ("MIN", Align::Right),
        ("RUNNING", Align::Right),
    ];
    columns.extend(has_bound.then_some(("BOUND", Align::Right)));
    columns.extend([
        ("PENDING", Align::Right),
        ("PHASE", Align::Left),
        ("WAITS", Align::Right),
        ("WHY IT WAITS", Align::Left),
    ]);
    let mut table = TextTable::new(columns);
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for group in &outcome.pod_groups {
        *names.entry(&group.pod_group).or_default() += 1;
    }
    // Pods without a PodGroup form a job with the name of their controller.
    let name = |group: &GroupOutcome| match names[&*group.pod_group] {
        2.. if !group.has_pod_group => format!("{} (no PodGroup)", group.pod_group),
        _ => group.pod_group.clone(),
    };
    // Pending jobs first: users look for these.
    let waits = |group: &&GroupOutcome| group.message.is_some();
    let (waiting, others): (Vec<_>, Vec<_>) = outcome.pod_groups.iter().partition(waits);
    for group in waiting.into_iter().chain(others).take(MAX_ROWS) {
        let mut row: Vec<Cell> = vec![
            name(group).into(),
            group.queue.as_deref().unwrap_or("-").into(),
            group.min_member.to_string().into(),
            group.running.to_string().into(),
        ];
        row.extend(has_bound.then(|| Cell::from(group.bound.to_string())));
        row.extend([
            group.pending.to_string().into(),
            Cell::styled(
                match group.phase.as_str() {
                    "Running" | "Completed" => GOOD,
                    "Failed" => BAD,
                    _ => WAITING,
                },
                group.phase.as_str(),
            ),
            group.waiting_seconds.map(age).unwrap_or_default().into(),
            group.message.as_deref().unwrap_or_default().into(),
        ]);
        table.row(row);
    }
    (table, more_rows(outcome.pod_groups.len(), "jobs"))
}

fn nodes(outcome: &Outcome) -> Part {
    let others = other_resources(outcome);
    let names = [CPU, MEMORY].map(str::to_owned).into_iter().chain(others).chain([PODS.to_owned()]);
    let names: Vec<String> = names.collect();
    let has_taints = outcome.nodes.iter().any(|node| !node.taints.is_empty());
    let mut columns = vec![
        ("NODE".to_owned(), Align::Left),
        ("STATUS".to_owned(), Align::Left),
        ("USE".to_owned(), Align::Left),
    ];
    columns.extend(names.iter().map(|name| (name.to_uppercase(), Align::Right)));
    columns.extend(has_taints.then(|| ("TAINTS".to_owned(), Align::Left)));
    let mut table = TextTable::new(columns);
    for node in outcome.nodes.iter().take(MAX_ROWS) {
        let mut row: Vec<Cell> = vec![node.node.as_str().into(), status(node), used(node)];
        row.extend(names.iter().map(|name| Cell::from(used_of(node, name))));
        row.extend(has_taints.then(|| Cell::from(node.taints.join(", "))));
        table.row(row);
    }
    (table, more_rows(outcome.nodes.len(), "nodes"))
}

/// The devices of each class on each node.
fn devices(outcome: &Outcome) -> Part {
    let mut table = TextTable::new([
        ("CLASS", Align::Left),
        ("NODE", Align::Left),
        ("USED", Align::Right),
        ("DEVICES", Align::Right),
    ]);
    for devices in outcome.devices.iter().take(MAX_ROWS) {
        table.row([
            devices.class.as_str().into(),
            devices.node.as_deref().unwrap_or("-").into(),
            devices.used.to_string().into(),
            devices.total.to_string().into(),
        ]);
    }
    (table, more_rows(outcome.devices.len(), "rows"))
}

/// Used and allocatable, or nothing where the node has none.
fn used_of(node: &NodeOutcome, name: &str) -> String {
    let amount = |list: &BTreeMap<String, String>| list.get(name).cloned();
    match (amount(&node.used), amount(&node.allocatable)) {
        (None, None) => "-".to_owned(),
        (used, whole) => {
            let or_none = |amount: Option<String>| amount.unwrap_or_else(|| "0".to_owned());
            format!("{}/{}", or_none(used), or_none(whole))
        }
    }
}

/// As kubectl shows it.
fn status(node: &NodeOutcome) -> Cell {
    let ready = if node.ready { "Ready" } else { "NotReady" };
    let cordoned = if node.unschedulable { ",SchedulingDisabled" } else { "" };
    let style = match (node.ready, node.unschedulable) {
        (true, false) => GOOD,
        (true, true) => WAITING,
        (false, _) => BAD,
    };
    Cell::styled(style, format!("{ready}{cordoned}"))
}

/// The utilization of a node.
fn used(node: &NodeOutcome) -> Cell {
    let text =
        format!("{} {:>3.0}%", bar(node.utilization.min(1.0), BAR), node.utilization * 100.0);
    Cell::styled(if node.utilization > 1.0 { BAD } else { GOOD }, text)
}

/// Amounts without the number of pods.
fn amounts(list: &BTreeMap<String, String>) -> String {
    join(list.iter().filter(|(name, _)| name.as_str() != PODS))
}

fn all_amounts(list: &BTreeMap<String, String>) -> String {
    join(list.iter())
}

fn join<'a>(amounts: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    let shown: Vec<String> = amounts.map(|(name, amount)| format!("{name} {amount}")).collect();
    if shown.is_empty() { "-".to_owned() } else { shown.join(", ") }
}

fn more_rows(n_rows: usize, what: &str) -> Option<String> {
    let more = n_rows.checked_sub(MAX_ROWS).filter(|more| *more > 0)?;
    Some(format!("… and {more} more {what}"))
}
