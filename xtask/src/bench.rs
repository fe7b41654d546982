//! The benchmark of cycles.

use std::{fs, process::Stdio};

use anyhow::{Context, ensure};
use kube_batch_tests::{figures, shapes::kinds::documented};
use xtask_launcher::build::root;

use crate::{codegen, test};

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Shapes to run, such as FILL-1000-10000-100 (default: all standard ones).
    shapes: Vec<String>,
    /// Print one JSON object for each shape, on a line of its own: shape, snapshot_ms, cycle_min_ms,
    /// first_ms (the first cycle, if there are devices: it sorts them), cycle_median_ms, next_ms (snapshot
    /// and cycle, after the decisions of the first are sent), binds, evictions, nominations, peak_mb.
    #[arg(long)]
    json: bool,
    /// Add the plugin `reservation` to the configuration.
    #[arg(long)]
    reservations: bool,
    /// Run the shapes of docs/performance.md, and write their figures there.
    #[arg(long, conflicts_with_all = ["shapes", "json", "reservations"])]
    record: bool,
}

/// Runs the benchmark of cycles.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.record {
        return record();
    }
    let json = args.json.then(|| "--json".to_owned());
    let flag = args.reservations.then(|| "--reservations".to_owned());
    let flags = json.into_iter().chain(flag);
    let arguments: Vec<String> = flags.chain(args.shapes.iter().cloned()).collect();
    test::bench("cycle", &arguments)
}

/// Measures the shapes of the documents, and writes the files that are made from their figures.
fn record() -> anyhow::Result<()> {
    let arguments: Vec<&str> = ["--json"].into_iter().chain(documented()).collect();
    let output = test::bench_command("cycle", &arguments).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the benchmark failed");
    let path = root().join(figures::PATH);
    fs::write(&path, output.stdout).with_context(|| format!("write {}", path.display()))?;
    codegen::write()
}
