//! The tables that `kube-batch simulate` prints for people: what waits and why first, then queues and nodes.

mod amounts;
mod jobs;
mod nodes;
mod placements;
mod queues;
mod section;

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use kube_batch_model::{
    name::Name,
    resource::{CPU, MEMORY, PODS},
};
use kube_batch_sim::outcome::{ClusterOutcome, CycleOutcome, Outcome};

use self::{
    amounts::{other_resources, parts},
    section::{MAX_ROWS, Section, more_rows},
};
use crate::{
    queue::{tree, view::QueueViews},
    table::{Align, TextTable, WIDTH, age, plural},
    terminal::{self, BAD, FAINT, GOOD, HEADING, WAITING, styled},
};

/// What queues used over time is shown of simulations with this many cycles.
const LONG: u64 = 600;

/// Prints the headline, a summary and the tables that have rows. All of them list every pod and node if `is_verbose`.
pub(super) fn print_tables(
    out: &mut dyn Write,
    outcome: &Outcome,
    queues: &QueueViews,
    (n_cycles, is_verbose): (u64, bool),
) -> io::Result<()> {
    let width = terminal::width();
    print_headline(out, outcome, n_cycles)?;
    print_summary(out, outcome)?;
    let (waiting, others) = jobs::tables(outcome);
    let mut parts = vec![
        ("WAITING", waiting),
        ("EVICTED", placements::evicted(outcome, is_verbose)),
        ("QUEUES", table_of_queues(outcome, queues, width)),
        ("OVER TIME", if n_cycles >= LONG { queues::over_time(outcome) } else { nothing() }),
        ("JOBS", others),
        ("NODES", nodes::table(outcome, is_verbose)),
        ("DEVICES", devices(outcome)),
    ];
    if is_verbose {
        parts.push(("PLACED", placements::placed(outcome)));
    }
    for (title, (table, note)) in parts {
        if table.is_empty() {
            continue;
        }
        writeln!(out, "\n{}", styled(HEADING, title))?;
        // A list is read by programs too.
        let narrow = (!is_verbose).then_some(WIDTH);
        table.print(out, width.or(narrow))?;
        if let Some(note) = note {
            writeln!(out, "{}", styled(FAINT, &note))?;
        }
    }
    Ok(())
}

fn nothing() -> Section {
    (TextTable::new([("", Align::Left)]), None)
}

fn table_of_queues(outcome: &Outcome, queues: &QueueViews, width: Option<usize>) -> Section {
    let is_flat = queues.all.values().all(|queue| queue.facts.parent.is_none());
    if is_flat {
        return queues::flat(outcome);
    }
    let resources: Vec<Name> = amounts::contended(outcome).into_iter().map(Name::from).collect();
    let mut table = tree::table(queues, &resources, width);
    table.leave_out(&["STATE"], |texts| texts.iter().all(|text| ["Open", ""].contains(text)));
    table.leave_out_equal(&["WAITS FOR"]);
    (table, queues::reserved(outcome))
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
    let names = [CPU, MEMORY].map(str::to_owned).into_iter().chain(other_resources(outcome));
    let names: Vec<String> = names.chain([PODS.to_owned()]).collect();
    let of = |used: &BTreeMap<String, String>, utilization: &BTreeMap<String, f64>| {
        let shares = names.iter().filter_map(|name| Some((name, utilization.get(name)? * 100.0)));
        let [used, all] = [used, allocatable].map(amounts::read);
        let shown = shares
            .map(|(name, percent)| format!("{name} {} ({percent:.0}%)", parts(name, &used, &all)));
        shown.collect::<Vec<String>>()
    };
    let (end, most) = (of(used, utilization), of(peak, peak_utilization));
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

/// The devices of each class on each node.
fn devices(outcome: &Outcome) -> Section {
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
