//! `kube-batch simulate`: shows what the scheduler would do.

mod tables;

use std::{
    io::{self, Write},
    sync::Arc,
};

use kube_batch_api::kind::Kind;
use kube_batch_cache::snapshot::SnapshotOptions;
use kube_batch_framework::{candidates::Search, report::next_queue_status};
use kube_batch_model::{dialect::Transition, problem::JobWarning};
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{
    outcome::{CycleOutcome, Outcome, Peak},
    picture,
    simulation::Simulation,
    usage::UseOverTime,
    world::{Environment, World},
};

use self::tables::print_tables;
use crate::{
    commands::{SimulateArgs, SimulateFormat, scheduler_names},
    conf::{ReadConf, read_conf},
    exit::Exit,
    live::{ClusterAccess, ClusterTarget, Lists, Namespaces},
    load::{InputRemark, Loaded, load, remarks},
    queue::view::QueueViews,
    table::plural,
    terminal::{self, Progress},
};

/// Maximum number of cycles if none is given.
const MAX_CYCLES: u64 = 10_000;

/// Runs the command.
pub(crate) fn run(
    args: &SimulateArgs,
    registry: &Registry,
    cluster: &dyn ClusterAccess,
) -> anyhow::Result<Exit> {
    let Some(ReadConf { conf, n_warnings, .. }) = read_conf(args.config.as_deref(), registry)?
    else {
        return Ok(Exit::Usage);
    };
    let options = SnapshotOptions {
        scheduler_names: scheduler_names(&args.scheduler_names),
        default_queue: args.default_queue.clone(),
        priority_class: args.priority_class,
    };
    let mut world = World::new(Environment::default(), options, conf.metadata_prefixes());
    let lists = if args.kubeconfig.is_some() || args.context.is_some() {
        let target = ClusterTarget {
            kubeconfig: args.kubeconfig.clone(),
            context: args.context.clone(),
            namespaces: Namespaces::All,
        };
        cluster.read(&target, Kind::ALL)?
    } else {
        Lists::default()
    };
    let loaded = load(&args.filenames, &args.traces, lists, &mut world);
    let Loaded { mut warnings, n_objects, n_errors, .. } = loaded;
    if loaded.n_unreadable > 0 {
        let sources = plural(loaded.n_unreadable, "source");
        terminal::error(&format!("{sources} cannot be read; nothing was run"));
        return Ok(Exit::Usage);
    }
    world.begin();
    world.run_controllers();
    warnings.extend(print_remarks(&mut world));
    let n_problems = warnings.len() + n_warnings;
    if args.strict && n_problems > 0 {
        let problems = plural(n_problems, "problem");
        terminal::error(&format!("{problems} in the input; nothing was run because of --strict"));
        return Ok(Exit::Failed);
    }
    let is_empty = world.pods().next().is_none() && world.store.nodes.is_empty();
    if is_empty && !world.expects_objects() {
        let input = if n_errors > 0 { "the readable part of the input" } else { "the input" };
        let objects = plural(n_objects, "object");
        terminal::error(&format!("{input} has no nodes and no pods ({objects}); nothing was run"));
        return Ok(Exit::Failed);
    }
    warnings.extend(world.snapshot().ignored.iter().map(ToString::to_string));
    let mut simulation = Simulation::new(world, conf, Search::Index);
    let mut peak = Peak::default();
    peak.record(&simulation.world);
    let mut usage = UseOverTime::default();
    usage.begin(&simulation.world);
    let cycles = run_cycles(&mut simulation, args, &mut peak, &mut usage);
    for mistake in mistakes(&simulation) {
        terminal::warning(&mistake);
        warnings.push(mistake);
    }
    let outcome = Outcome::of(cycles, &simulation.world, simulation.last(), peak, warnings);
    let outcome = outcome.with_usage(&usage);
    if args.output == SimulateFormat::Svg {
        return print_picture(&simulation, &usage);
    }
    let extent = (simulation.world.n_cycles(), args.verbose);
    print_outcome(&outcome, &queues(&simulation), args.output, extent)?;
    Ok(Exit::Ok)
}

/// Prints what may be wrong with the input as a whole, and returns the warnings.
fn print_remarks(world: &mut World) -> Vec<String> {
    let mut warnings = Vec::new();
    let problems = world.controllers.take_problems();
    let problems = problems.iter().map(|problem| InputRemark::Warning(problem.to_string()));
    for remark in problems.chain(remarks(world)) {
        match remark {
            InputRemark::Warning(problem) => {
                terminal::warning(&problem);
                warnings.push(problem);
            }
            InputRemark::Note(note) => terminal::note(&note),
        }
    }
    warnings
}

/// The queues as their status would be.
fn queues(simulation: &Simulation) -> QueueViews {
    let at = Transition { cycle_id: "", now: simulation.world.now() };
    let reports = simulation.last().into_iter().flat_map(|last| &last.cycle.queues);
    QueueViews::new(reports.map(|report| {
        let stored = &report.queue.status;
        let status = next_queue_status(report, at).unwrap_or_else(|| stored.clone());
        (Arc::clone(&report.queue), status)
    }))
}

/// Prints the picture.
fn print_picture(simulation: &Simulation, usage: &UseOverTime) -> anyhow::Result<Exit> {
    let total = simulation
        .last()
        .map(|last| last.snapshot.dimensions.by_name(&last.snapshot.total()))
        .unwrap_or_default();
    let Some(resource) = picture::main_resource(usage, &total) else {
        terminal::error("no queue requests anything; nothing was drawn");
        return Ok(Exit::Failed);
    };
    let amount = total.get(&resource).copied().unwrap_or(0);
    io::stdout().write_all(picture::draw(usage, &resource, amount).as_bytes())?;
    Ok(Exit::Ok)
}

fn print_outcome(
    outcome: &Outcome,
    queues: &QueueViews,
    format: SimulateFormat,
    extent: (u64, bool),
) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    match format {
        SimulateFormat::Table => print_tables(&mut out, outcome, queues, extent)?,
        SimulateFormat::Json => {
            serde_json::to_writer_pretty(&mut out, outcome).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        SimulateFormat::Svg => {}
        SimulateFormat::Yaml => write!(out, "{}", serde_saphyr::to_string(outcome)?)?,
    }
    out.flush()?;
    Ok(())
}

/// Mistakes in the objects of jobs that the scheduler reports in the last cycle.
fn mistakes(simulation: &Simulation) -> Vec<String> {
    let jobs = simulation.last().into_iter().flat_map(|last| last.cycle.jobs.iter());
    let is_fragile = |warning: &JobWarning| matches!(warning, JobWarning::FailsWhenEvicted { .. });
    let (mut mistakes, mut fragile) = (Vec::new(), Vec::new());
    for job in jobs {
        let (own, others): (Vec<&JobWarning>, Vec<&JobWarning>) =
            job.warnings.iter().partition(|warning| is_fragile(warning));
        fragile.extend(own.into_iter().map(|warning| (&job.key, warning)));
        let others: Vec<String> = others.into_iter().map(ToString::to_string).collect();
        if !others.is_empty() {
            mistakes.push(format!("job {}: {}", job.key, others.join("; ")));
        }
    }
    // They need the same remedy.
    if let Some((first, warning)) = fragile.first() {
        let more = fragile.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" ({more} more are alike)") };
        mistakes.push(format!("job {first}{more}: {warning}"));
    }
    mistakes
}

/// Runs cycles; returns those with a decision.
fn run_cycles(
    simulation: &mut Simulation,
    args: &SimulateArgs,
    peak: &mut Peak,
    usage: &mut UseOverTime,
) -> Vec<CycleOutcome> {
    let wanted = args.cycles.or(args.until);
    let progress = Progress::new(wanted, "cycles");
    let mut kept = Vec::new();
    let mut n_run = 0;
    loop {
        let number = simulation.world.n_cycles() + 1;
        // What ends in this cycle may let the next one decide something.
        let was_in_motion = simulation.world.is_in_motion();
        let outcome = CycleOutcome::of(number, &simulation.cycle(&mut |_| {}).cycle);
        // Only bindings use more; a snapshot of every cycle would take time.
        if !outcome.binds.is_empty() {
            peak.record(&simulation.world);
        }
        usage.record(simulation);
        progress.step();
        n_run += 1;
        let is_idle = outcome.is_idle();
        let decides = !outcome.binds.is_empty() || !outcome.evictions.is_empty();
        let is_last = match wanted {
            Some(wanted) => number >= wanted,
            None => !decides && !was_in_motion && !simulation.world.is_in_motion(),
        };
        if !is_idle || (is_last && wanted.is_some()) {
            kept.push(outcome);
        }
        if is_last {
            return kept;
        }
        if n_run == MAX_CYCLES && wanted.is_none() {
            let message =
                format!("stopped after {MAX_CYCLES} cycles, before the last change; set --until");
            terminal::warning(&message);
            return kept;
        }
        if is_idle {
            let limit = wanted.map_or(u64::MAX, |wanted| wanted - number - 1);
            simulation.world.skip_idle_cycles(limit);
        }
    }
}
