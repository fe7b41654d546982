//! Measures what hostile objects of one namespace cost everyone else:
//! `cargo bench -p kube-batch-tests --bench hostile -- [--reservations] [--large-turns] [KIND…]`.
//!
//! Every kind runs in two processes of its own: one with plain pods, one with the hostile objects. See
//! `tests/src/hostile.rs` for what plain means.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    process::Command,
    sync::Arc,
};

use clap::Parser;
use jiff::Timestamp;
use kube_batch_actions::{allocate, backfill, preempt, reclaim};
use kube_batch_cache::{
    assumed::Assumed,
    snapshot::{SnapshotOptions, take_snapshot},
};
use kube_batch_framework::{
    candidates::Search,
    memory::{DEFAULT_BUDGET, Memory},
};
use kube_batch_model::devices::PublishedDevices;
use kube_batch_tests::{
    figures::peak_mb,
    hostile::{Kind, Size, Variant, contents::kinds, decisions_about_others},
    shapes::{full, with_reservations},
};

/// Cycles of each process; the fastest is shown.
const CYCLES: usize = 5;

/// No more cycles are run after this time.
const ENOUGH_MS: f64 = 20_000.0;

/// The bound: how much longer a cycle may take, and how much more memory the process may use.
const MAX_MORE_MS: f64 = 100.0;
const MAX_MORE_MB: f64 = 50.0;

/// Measures what hostile objects of one namespace cost everyone else in time and memory.
#[derive(Parser)]
#[command(bin_name = "cargo xtask hostile")]
struct Args {
    /// Kinds of hostile objects (default: all).
    kinds: Vec<String>,
    #[command(flatten)]
    options: Options,
    /// Measure one kind in this process: with the hostile objects if this is true, and otherwise with plain pods.
    #[arg(long, hide = true)]
    measure_hostile: Option<bool>,
    /// Passed to every benchmark by Cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What is added to the usual cycle.
#[derive(Clone, Copy, clap::Args)]
struct Options {
    /// Add the plugin `reservation` to the configuration.
    #[arg(long)]
    reservations: bool,
    /// Put no turn off, however large it is.
    #[arg(long)]
    large_turns: bool,
}

impl Options {
    /// The flags of these options.
    fn flags(self) -> impl Iterator<Item = &'static str> {
        let flags = [(self.reservations, "--reservations"), (self.large_turns, "--large-turns")];
        flags.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag))
    }
}

fn main() -> io::Result<()> {
    let Args { kinds: names, options, measure_hostile, .. } = Args::parse();
    let all = kinds();
    let find = |name: &String| {
        let kind = all.iter().find(|kind| kind.name == name);
        kind.ok_or_else(|| io::Error::other(format!("unknown kind {name}")))
    };
    let named: Vec<&Kind> = names.iter().map(find).collect::<io::Result<_>>()?;
    if let Some(is_hostile) = measure_hostile {
        let variant = if is_hostile { Variant::Hostile } else { Variant::Plain };
        println!("{}", measure(named[0], variant, options));
        return Ok(());
    }
    let chosen = if named.is_empty() { all.iter().collect() } else { named };
    println!(
        "{:<20} {:>9} {:>9} {:>8} {:>12} {:>10} {:>9} {:>7} {:>7}  others' decisions",
        "kind",
        "plain ms",
        "with ms",
        "more ms",
        "snapshot ms",
        "more work",
        "plain MB",
        "with MB",
        "more MB"
    );
    for kind in chosen {
        let plain = measure_apart(kind, Variant::Plain, options)?;
        let hostile = measure_apart(kind, Variant::Hostile, options)?;
        let (more_ms, more_mb) =
            (hostile.cycle_ms - plain.cycle_ms, hostile.peak_mb - plain.peak_mb);
        let same = if plain.decisions == hostile.decisions { "same" } else { "DIFFERENT" };
        let above = if more_ms > MAX_MORE_MS || more_mb > MAX_MORE_MB { "  ABOVE" } else { "" };
        println!(
            "{:<20} {:>9.1} {:>9.1} {:>8.1} {:>12.1} {:>10} {:>9.1} {:>7.1} {:>7.1}  {same}{above}",
            kind.name,
            plain.cycle_ms,
            hostile.cycle_ms,
            more_ms,
            hostile.snapshot_ms - plain.snapshot_ms,
            hostile.work - plain.work,
            plain.peak_mb,
            hostile.peak_mb,
            more_mb
        );
    }
    Ok(())
}

/// What a process measured.
struct Measured {
    /// CPU time of a cycle with its snapshot, of which a running scheduler updates only what has changed.
    cycle_ms: f64,
    /// CPU time of a snapshot from scratch.
    snapshot_ms: f64,
    /// The work that was counted: see `kube_batch_framework::memory`.
    work: i64,
    peak_mb: f64,
    /// A hash of the decisions about other pods.
    decisions: String,
}

fn measure_apart(kind: &Kind, variant: Variant, options: Options) -> io::Result<Measured> {
    let is_hostile = variant == Variant::Hostile;
    let output = Command::new(std::env::current_exe()?)
        .args(options.flags())
        .arg(format!("--measure-hostile={is_hostile}"))
        .arg(kind.name)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let parts: Vec<&str> = text.split_whitespace().collect();
    let number = |text: &str| text.parse().map_err(io::Error::other);
    match parts.as_slice() {
        [cycle_ms, snapshot_ms, work, peak_mb, decisions] => Ok(Measured {
            cycle_ms: number(cycle_ms)?,
            snapshot_ms: number(snapshot_ms)?,
            work: work.parse().map_err(io::Error::other)?,
            peak_mb: number(peak_mb)?,
            decisions: (*decisions).to_owned(),
        }),
        _ => Err(io::Error::other(format!(
            "{}: {}",
            kind.name,
            String::from_utf8_lossy(&output.stderr)
        ))),
    }
}

fn measure(kind: &Kind, variant: Variant, options: Options) -> String {
    let store = kind.store(Size::FULL, variant);
    let mut conf = full(&[reclaim::SPEC, allocate::SPEC, backfill::SPEC, preempt::SPEC]);
    if options.reservations {
        conf = with_reservations(conf);
    }
    let (mut fastest, mut total, mut decisions, mut work) = (f64::INFINITY, 0.0, 0, 0);
    let mut fastest_snapshot = f64::INFINITY;
    let mut published: Option<Arc<PublishedDevices>> = None;
    for _ in 0..CYCLES {
        let start_ms = cpu_ms();
        let mut snapshot = take_snapshot(&store, &Assumed::default(), &SnapshotOptions::default());
        fastest_snapshot = fastest_snapshot.min(cpu_ms() - start_ms);
        // A scheduler keeps what it derives from devices as long as they stay the same.
        let devices = Arc::make_mut(&mut snapshot.cluster.devices);
        devices.published =
            Arc::clone(published.get_or_insert_with(|| Arc::clone(&devices.published)));
        // As the first cycle of a scheduler, which has tried no job before.
        let budget = if options.large_turns { u64::MAX } else { DEFAULT_BUDGET };
        let memory = &mut Memory::with_budget(budget);
        let (cycle, _) = conf.run_next_cycle(
            snapshot.cluster,
            Timestamp::MAX,
            Search::Index,
            memory,
            &mut |_| {},
        );
        let ms = cpu_ms() - start_ms;
        (fastest, total) = (fastest.min(ms), total + ms);
        let mut hasher = DefaultHasher::new();
        decisions_about_others(&cycle.decisions).hash(&mut hasher);
        (decisions, work) = (hasher.finish(), cycle.work);
        if total > ENOUGH_MS {
            break;
        }
    }
    format!("{fastest} {fastest_snapshot} {work} {} {decisions:x}", peak_mb())
}

/// CPU time of this thread: unlike the time of the clock, it does not depend on what else runs.
fn cpu_ms() -> f64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = stat.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok());
    ns.map_or(f64::NAN, |ns| ns / 1e6)
}
