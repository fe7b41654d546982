//! `kube-batch simulate`: shows what the scheduler would do.

use std::{
    collections::BTreeMap,
    fmt::Display,
    io::{self, Write},
};

use kube_batch_api::{
    name::Name,
    resource::{CPU, MEMORY, PODS},
};
use kube_batch_cache::snapshot::SnapshotOptions;
use kube_batch_framework::candidates::Search;
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{
    outcome::{CycleOutcome, GroupOutcome, NodeOutcome, Outcome},
    simulation::Simulation,
    world::{Environment, World},
};

use crate::{
    args::{Format, SimulateArgs},
    conf::{ReadConf, read_conf},
    exit::Exit,
    load::{Loaded, load},
    table::{Align, Cell, Table},
    terminal::{self, BAD, FAINT, GOOD, HEADING, Progress, WAITING, styled},
};

/// Maximum number of cycles if none is given.
const MAX_CYCLES: u64 = 10_000;
/// Maximum number of rows in a table; further ones are only counted.
const MAX_ROWS: usize = 50;
/// Width of a bar.
const BAR: usize = 20;

/// Runs the command.
pub(crate) fn run(args: &SimulateArgs, registry: &Registry) -> anyhow::Result<Exit> {
    let Some(ReadConf { conf, n_warnings, .. }) = read_conf(args.config.as_deref(), registry)?
    else {
        return Ok(Exit::Usage);
    };
    let options = SnapshotOptions {
        scheduler_name: Name::from(args.scheduler_name.as_str()),
        default_queue: Name::from(args.default_queue.as_str()),
        priority_class: args.priority_class,
    };
    let mut world = World::new(Environment::default(), options, conf.metadata_prefixes());
    let Loaded { mut warnings, n_objects, n_errors } = load(&args.filenames, &mut world);
    let n_problems = warnings.len() + n_warnings;
    if args.strict && n_problems > 0 {
        let problems = plural(n_problems, "problem");
        terminal::error(&format!("{problems} in the input; nothing was run because of --strict"));
        return Ok(Exit::Failed);
    }
    world.run_controllers();
    for problem in world.controllers.take_problems() {
        terminal::warning(&problem.to_string());
        warnings.push(problem.to_string());
    }
    if world.pods().next().is_none() && world.store.nodes.is_empty() {
        let input = if n_errors > 0 { "the readable part of the input" } else { "the input" };
        let objects = plural(n_objects, "object");
        terminal::error(&format!("{input} has no nodes and no pods ({objects}); nothing was run"));
        return Ok(Exit::Failed);
    }
    warnings.extend(world.snapshot().ignored.iter().map(ToString::to_string));
    let mut simulation = Simulation::new(world, conf, Search::Index);
    let cycles = run_cycles(&mut simulation, args);
    let outcome = Outcome::of(cycles, &simulation.world, simulation.last(), warnings);
    let mut out = anstream::stdout().lock();
    match args.output {
        Format::Table => print_tables(&mut out, &outcome, simulation.world.n_cycles())?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, &outcome).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Format::Yaml => write!(out, "{}", serde_saphyr::to_string(&outcome)?)?,
    }
    out.flush()?;
    Ok(Exit::Ok)
}

/// Runs cycles; returns those with a decision.
fn run_cycles(simulation: &mut Simulation, args: &SimulateArgs) -> Vec<CycleOutcome> {
    let wanted = args.cycles.or(args.until);
    let progress = Progress::new(wanted, "cycles");
    let mut kept = Vec::new();
    for number in 1..=wanted.unwrap_or(MAX_CYCLES) {
        let outcome = CycleOutcome::of(number, &simulation.cycle(&mut |_| {}).cycle);
        progress.step();
        let is_over = outcome.binds.is_empty()
            && outcome.evictions.is_empty()
            && !simulation.world.is_in_motion();
        if !outcome.is_idle() || wanted.is_some_and(|wanted| wanted == number) {
            kept.push(outcome);
        }
        if wanted.is_none() && is_over {
            break;
        }
    }
    kept
}

fn print_tables(out: &mut dyn Write, outcome: &Outcome, n_cycles: u64) -> io::Result<()> {
    let width = terminal::width();
    print_headline(out, outcome, n_cycles)?;
    let parts = [
        ("PLACED", placed(outcome)),
        ("EVICTED", evicted(outcome)),
        ("QUEUES", queues(outcome)),
        ("JOBS", jobs(outcome)),
        ("NODES", nodes(outcome)),
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

fn plural(count: impl Display + PartialEq + From<u8>, noun: &str) -> String {
    let ending = if count == 1.into() { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

type Part = (Table, Option<String>);

/// Pods, or if there are many, counts by job and node.
fn placed(outcome: &Outcome) -> Part {
    let binds = || {
        outcome.cycles.iter().flat_map(|cycle| cycle.binds.iter().map(move |b| (cycle.cycle, b)))
    };
    let total = binds().count();
    if total <= MAX_ROWS {
        let mut table =
            Table::new(&[("POD", Align::Left), ("NODE", Align::Left), ("CYCLE", Align::Right)]);
        for (cycle, bind) in binds() {
            table.row([
                bind.pod.as_str().into(),
                bind.node.as_str().into(),
                cycle.to_string().into(),
            ]);
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
        Table::new(&[("JOB", Align::Left), ("PODS", Align::Right), ("NODES", Align::Left)]);
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
    let mut table = Table::new(&[
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

fn queues(outcome: &Outcome) -> Part {
    let mut table = Table::new(&[
        ("QUEUE", Align::Left),
        ("WEIGHT", Align::Right),
        ("DESERVED", Align::Left),
        ("ALLOCATED", Align::Left),
        ("SHARE", Align::Right),
        ("PENDING", Align::Right),
        ("RUNNING", Align::Right),
    ]);
    for queue in outcome.queues.iter().take(MAX_ROWS) {
        table.row([
            queue.queue.as_str().into(),
            queue.weight.to_string().into(),
            amounts(&queue.deserved).into(),
            amounts(&queue.allocated).into(),
            format!("{:.2}", queue.share).into(),
            queue.pending.to_string().into(),
            queue.running.to_string().into(),
        ]);
    }
    (table, more_rows(outcome.queues.len(), "queues"))
}

fn jobs(outcome: &Outcome) -> Part {
    let mut table = Table::new(&[
        ("JOB", Align::Left),
        ("QUEUE", Align::Left),
        ("MIN", Align::Right),
        ("RUNNING", Align::Right),
        ("PENDING", Align::Right),
        ("PHASE", Align::Left),
        ("WHY IT WAITS", Align::Left),
    ]);
    // Pending jobs first: users look for these.
    let waits = |group: &&GroupOutcome| group.message.is_some();
    let (waiting, others): (Vec<_>, Vec<_>) = outcome.pod_groups.iter().partition(waits);
    for group in waiting.into_iter().chain(others).take(MAX_ROWS) {
        table.row([
            group.pod_group.as_str().into(),
            group.queue.as_deref().unwrap_or("-").into(),
            group.min_member.to_string().into(),
            group.running.to_string().into(),
            group.pending.to_string().into(),
            Cell::styled(
                match group.phase.as_str() {
                    "Running" | "Completed" => GOOD,
                    _ => WAITING,
                },
                group.phase.as_str(),
            ),
            group.message.as_deref().unwrap_or_default().into(),
        ]);
    }
    (table, more_rows(outcome.pod_groups.len(), "jobs"))
}

fn nodes(outcome: &Outcome) -> Part {
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("USE", Align::Left),
        ("CPU", Align::Right),
        ("MEMORY", Align::Right),
        ("PODS", Align::Right),
        ("OTHER", Align::Left),
    ]);
    for node in outcome.nodes.iter().take(MAX_ROWS) {
        let of = |name: &str| {
            let amount = |list: &BTreeMap<String, String>| {
                list.get(name).cloned().unwrap_or_else(|| "0".to_owned())
            };
            format!("{}/{}", amount(&node.used), amount(&node.allocatable))
        };
        let others =
            node.allocatable.keys().filter(|name| ![CPU, MEMORY, PODS].contains(&name.as_str()));
        let others: Vec<String> = others.map(|name| format!("{name} {}", of(name))).collect();
        table.row([
            node.node.as_str().into(),
            bar(node),
            of(CPU).into(),
            of(MEMORY).into(),
            of(PODS).into(),
            others.join(", ").into(),
        ]);
    }
    (table, more_rows(outcome.nodes.len(), "nodes"))
}

/// The utilization of a node.
fn bar(node: &NodeOutcome) -> Cell {
    let full = (node.utilization * BAR as f64).round().clamp(0.0, BAR as f64) as usize;
    let text = format!(
        "{}{} {:>3.0}%",
        "█".repeat(full),
        "░".repeat(BAR - full),
        node.utilization * 100.0
    );
    Cell::styled(if node.utilization > 1.0 { BAD } else { GOOD }, text)
}

fn amounts(list: &BTreeMap<String, String>) -> String {
    let shown = list.iter().filter(|(name, _)| name.as_str() != PODS);
    let shown: Vec<String> = shown.map(|(name, amount)| format!("{name} {amount}")).collect();
    if shown.is_empty() { "-".to_owned() } else { shown.join(", ") }
}

fn more_rows(n_rows: usize, what: &str) -> Option<String> {
    let more = n_rows.checked_sub(MAX_ROWS).filter(|more| *more > 0)?;
    Some(format!("… and {more} more {what}"))
}
