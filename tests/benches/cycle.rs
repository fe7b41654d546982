//! Times one cycle over each shape, and the next ones, which follow what changed:
//! `cargo bench -p kube-batch-tests --bench cycle -- [SHAPE…]`.

use std::{
    fs,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Parser;
use jiff::Timestamp;
use kube_batch_cache::{
    assumed::Assumed,
    snapshot::{SnapshotOptions, take_snapshot},
};
use kube_batch_framework::{candidates::Search, memory::Memory, report::Cycle};
use kube_batch_model::{cluster::Cluster, decision::Decision, devices::PublishedDevices};
use kube_batch_scheduler::core::{Core, CycleInput, CyclePoint};
use kube_batch_tests::{
    checker::problems,
    figures::{self, Figures, peak_mb},
    performance,
    shapes::{
        Shape,
        kinds::{STANDARD, description, documented, parse},
        shape, with_reservations,
    },
};
use xtask_launcher::build::root;

/// Runs of each shape; the fastest and the median are shown.
const RUNS: usize = 5;

/// No more cycles are run after this time.
const ENOUGH_MS: f64 = 20e3;

/// Times one scheduling cycle over each shape, and checks what it decides.
///
/// Each shape runs five times in a process of its own, and fewer times if that takes more than 20 seconds.
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench", after_help = description())]
struct Args {
    /// Shapes to run, such as FILL-1000-10000-100 (default: all standard ones).
    #[arg(value_parser = shape_name)]
    shapes: Vec<String>,
    /// Print one JSON object for each shape, on a line of its own: shape, snapshot_ms, cycle_min_ms,
    /// first_ms (the first cycle, if there are devices: it sorts them), cycle_median_ms, next_ms (snapshot
    /// and cycle, after the decisions of the first are sent), binds, evictions, nominations, peak_mb.
    #[arg(long)]
    json: bool,
    /// Add the plugin `reservation` to the configuration.
    #[arg(long)]
    reservations: bool,
    /// Measure the shapes of docs/performance.md, and update that page.
    #[arg(long, conflicts_with_all = ["shapes", "json", "reservations"])]
    record: bool,
    /// Run this many cycles of each shape after the first, all in this process, and print how long each part of them
    /// takes: for use with a profiler.
    #[arg(long, value_name = "CYCLES", conflicts_with_all = ["json", "reservations"])]
    profile: Option<usize>,
    /// Measure one shape in this process.
    #[arg(long, hide = true)]
    measure: bool,
    /// Passed to every benchmark by Cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Checks the name of a shape without building it, which takes time.
fn shape_name(name: &str) -> Result<String, String> {
    let known = parse(name).map(|_| name.to_owned());
    known.ok_or_else(|| "no such shape; --help lists the shapes".to_owned())
}

fn main() -> ExitCode {
    let args = Args::parse();
    let standard = || STANDARD.map(str::to_owned).to_vec();
    let names = if args.shapes.is_empty() { standard() } else { args.shapes.clone() };
    if args.measure {
        return report(measure(&names[0], args.reservations).map(|figures| print_json(&figures)));
    }
    if let Some(n_cycles) = args.profile {
        names.iter().for_each(|name| profile(name, n_cycles));
        return ExitCode::SUCCESS;
    }
    if args.record {
        record();
        return ExitCode::SUCCESS;
    }
    if !args.json {
        print_heading();
    }
    let mut has_failed = false;
    for name in names {
        match measure_apart(&name, args.reservations) {
            Ok(figures) if args.json => print_json(&figures),
            Ok(figures) => print_row(&figures),
            Err(_) => has_failed = true,
        }
    }
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Measures the documented shapes, and writes their figures and the page with them.
///
/// # Panics
///
/// If decisions are wrong, or a file cannot be written.
fn record() {
    let lines = documented().map(|name| {
        let figures = measure_apart(name, false).expect("the decisions are right");
        serde_json::to_string(&figures).expect("figures are JSON") + "\n"
    });
    fs::write(root().join(figures::PATH), lines.collect::<String>()).expect("a writable file");
    let page = performance::document(root()).expect("the page has a table");
    fs::write(root().join(performance::DOCUMENT), page).expect("a writable file");
}

/// Measures a shape in another process, so that its peak memory is its own. That process has printed what
/// is wrong if there is an error.
fn measure_apart(name: &str, reservations: bool) -> Result<Figures, ()> {
    let binary = std::env::current_exe().expect("the path of this process is known");
    let mut command = Command::new(binary);
    command.args(reservations.then_some("--reservations"));
    let output = command.args(["--measure", name]).stderr(Stdio::inherit()).output();
    let output = output.expect("this binary can be run again");
    if !output.status.success() {
        return Err(());
    }
    Ok(serde_json::from_slice(&output.stdout).expect("the process prints its figures"))
}

/// Runs the cycles of a shape.
///
/// # Errors
///
/// What is wrong with the decisions.
fn measure(name: &str, reservations: bool) -> Result<Figures, Vec<String>> {
    let mut shape = shape(name).expect("the arguments are checked");
    if reservations {
        shape.conf = with_reservations(shape.conf);
    }
    let mut runs: Vec<Run> = Vec::new();
    let mut decisions = Vec::new();
    let mut published = None;
    while runs.len() < RUNS && runs.iter().map(|run| run.cycle_ms).sum::<f64>() < ENOUGH_MS {
        let (run, cycle) = run(&shape, &mut published);
        runs.push(run);
        decisions = cycle.decisions;
    }
    // Before the checker builds its own tables.
    let peak_mb = peak_mb();
    let problems = problems(&shape.store, &shape.conf, &decisions);
    if !problems.is_empty() {
        return Err(problems.into_iter().map(|problem| format!("{name}: {problem}")).collect());
    }
    let [binds, evictions, nominations] = counts(&decisions);
    let has_devices = published.is_some_and(|published| !published.slices.is_empty());
    let first_ms = runs.first().map(|run| run.cycle_ms).filter(|_| has_devices);
    let cycles = sorted(runs.iter().map(|run| run.cycle_ms));
    let figures = Figures {
        shape: name.to_owned(),
        snapshot_ms: sorted(runs.iter().map(|run| run.snapshot_ms))[0],
        cycle_min_ms: cycles[0],
        first_ms,
        cycle_median_ms: cycles[cycles.len() / 2],
        next_ms: next_ms(&mut shape),
        binds,
        evictions,
        nominations,
        peak_mb,
    };
    Ok(figures.rounded())
}

/// The times of one run.
struct Run {
    snapshot_ms: f64,
    cycle_ms: f64,
}

/// Takes a snapshot from scratch and runs a first cycle. What is derived from devices is kept from run to run, as a
/// scheduler keeps it while they stay the same.
fn run(shape: &Shape, published: &mut Option<Arc<PublishedDevices>>) -> (Run, Cycle) {
    let options = SnapshotOptions::default();
    let snapshot = || take_snapshot(&shape.store, &Assumed::default(), &options).cluster;
    let (mut cluster, snapshot_ms) = timed(snapshot);
    let devices = Arc::make_mut(&mut cluster.devices);
    devices.published = Arc::clone(published.get_or_insert_with(|| Arc::clone(&devices.published)));
    let mut memory = Memory::default();
    let ((cycle, _), cycle_ms) = timed(|| cycle(shape, cluster, &mut memory));
    (Run { snapshot_ms, cycle_ms }, cycle)
}

fn cycle(shape: &Shape, cluster: Cluster, memory: &mut Memory) -> (Cycle, Cluster) {
    memory.set_generation(shape.store.generation());
    let now = Timestamp::MAX;
    shape.conf.run_next_cycle(cluster, now, Search::Index, memory, &mut |_| {})
}

/// The fastest of the cycles after the first, with their snapshots, which follow what changed: the decisions
/// so far are in flight, and before each cycle the shape changes.
fn next_ms(shape: &mut Shape) -> f64 {
    sorted(next_cycles(shape, RUNS, &mut |_| {}).into_iter())[0]
}

/// Runs a first cycle and the next ones, and returns how many milliseconds each of these took. `reached` is called in them
/// only.
fn next_cycles(
    shape: &mut Shape,
    n_cycles: usize,
    reached: &mut dyn FnMut(CyclePoint<'_>),
) -> Vec<f64> {
    let mut assumed = Assumed::default();
    let conf = Arc::new(shape.conf.clone());
    let mut core = Core::new(conf, SnapshotOptions::default(), Search::Index);
    let mut times = Vec::new();
    for n in 0..=n_cycles {
        let input = CycleInput {
            store: &mut shape.store,
            assumed: &mut assumed,
            now: Timestamp::MAX,
            elapsed: Duration::ZERO,
        };
        let is_first = n == 0;
        let (outcome, ms) = timed(|| {
            core.cycle(input, &mut |point| {
                if !is_first {
                    reached(point);
                }
            })
        });
        times.extend((!is_first).then_some(ms));
        for decision in &outcome.cycle.decisions {
            assumed.note(decision, Timestamp::UNIX_EPOCH);
        }
        shape.change(n);
    }
    times
}

/// Prints the median time of each part of the cycles after the first.
fn profile(name: &str, n_cycles: usize) {
    let mut shape = shape(name).expect("the arguments are checked");
    let mut parts: Vec<(String, Vec<f64>)> = Vec::new();
    let (mut before, mut at) = (Instant::now(), 0);
    let cycles = next_cycles(&mut shape, n_cycles, &mut |point| {
        let part = match point {
            CyclePoint::Snapshot(_) => "snapshot".to_owned(),
            CyclePoint::Decided(..) => "decided".to_owned(),
            CyclePoint::Session(milestone) => format!("{milestone:?}"),
        };
        // The time before the snapshot is not only of the cycle.
        if part == "snapshot" {
            at = 0;
        } else {
            if at == parts.len() {
                parts.push((part, Vec::new()));
            }
            parts[at].1.push(before.elapsed().as_secs_f64() * 1e3);
            at += 1;
        }
        before = Instant::now();
    });
    let median = |times: &[f64]| sorted(times.iter().copied())[times.len() / 2];
    println!("{name}: {:.3} ms a cycle, with its snapshot", median(&cycles));
    for (part, times) in &parts {
        println!("{:>8.3} {part}", median(times));
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64() * 1e3)
}

fn sorted(times: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Binds, evictions and nominations.
fn counts(decisions: &[Decision]) -> [usize; 3] {
    let mut counts = [0; 3];
    for decision in decisions {
        match decision {
            Decision::Bind { .. } => counts[0] += 1,
            Decision::Evict { .. } => counts[1] += 1,
            Decision::Nominate { .. } => counts[2] += 1,
            Decision::Withdraw { .. } | Decision::Deallocate { .. } => {}
        }
    }
    counts
}

/// The most problems that are printed of one shape.
const MAX_PROBLEMS: usize = 20;

fn report(result: Result<(), Vec<String>>) -> ExitCode {
    let Err(problems) = result else { return ExitCode::SUCCESS };
    for problem in problems.iter().take(MAX_PROBLEMS) {
        eprintln!("{problem}");
    }
    if problems.len() > MAX_PROBLEMS {
        eprintln!("and {} more", problems.len() - MAX_PROBLEMS);
    }
    ExitCode::FAILURE
}

fn print_json(figures: &Figures) {
    println!("{}", serde_json::to_string(figures).expect("figures are JSON"));
}

fn print_heading() {
    println!(
        "{:<28} {:>11} {:>18} {:>8} {:>8} {:>7} {:>7} {:>11} {:>8}",
        "shape",
        "snapshot ms",
        "cycle ms min/med",
        "first ms",
        "next ms",
        "binds",
        "evicts",
        "nominations",
        "peak MB"
    );
}

fn print_row(figures: &Figures) {
    let Figures { shape, snapshot_ms, cycle_min_ms, cycle_median_ms, next_ms, .. } = figures;
    let Figures { binds, evictions, nominations, peak_mb, first_ms, .. } = figures;
    let first = first_ms.map(|ms| format!("{ms:.1}")).unwrap_or_default();
    println!(
        "{shape:<28} {snapshot_ms:>11.1} {cycle_min_ms:>9.1}/{cycle_median_ms:>8.1} {first:>8} \
         {next_ms:>8.1} {binds:>7} {evictions:>7} {nominations:>11} {peak_mb:>8.0}"
    );
}
