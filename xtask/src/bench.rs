//! Benchmarks: programs of `tests` that Cargo compiles as it compiles a release.

use anyhow::{Context, ensure};
use xtask_launcher::build;

/// Runs a benchmark with these arguments.
pub(crate) fn run(name: &str, arguments: &[String]) -> anyhow::Result<()> {
    let status = build::cargo()
        .args(["bench", "--quiet", "--package", "kube-batch-tests", "--bench", name, "--"])
        .args(arguments)
        .status()
        .context("run cargo")?;
    ensure!(status.success(), "the benchmark {name} failed");
    Ok(())
}
