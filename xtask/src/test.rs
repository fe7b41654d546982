//! All tests and benchmarks.

use anyhow::{Context, bail};
use kube_batch_tests::build;

/// Runs unit, property, documentation, case and simulation tests.
pub(crate) fn run(seeds: u32) -> anyhow::Result<()> {
    let seeds = seeds.to_string();
    // One selection of packages, so that nothing is built twice; without benchmarks.
    cargo(
        &["test", "--workspace", "--lib", "--bins", "--tests", "--examples"],
        &[("KUBE_BATCH_SEEDS", &seeds)],
    )?;
    cargo(&["test", "--workspace", "--doc"], &[])
}

/// Runs a benchmark.
pub(crate) fn bench(name: &str, arguments: &[String]) -> anyhow::Result<()> {
    let mut args = vec!["bench", "--quiet", "--package", "kube-batch-tests", "--bench", name, "--"];
    args.extend(arguments.iter().map(String::as_str));
    cargo(&args, &[])
}

fn cargo(args: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<()> {
    let status = build::cargo()
        .args(args)
        .envs(environment.iter().copied())
        .status()
        .context("run cargo")?;
    if !status.success() {
        bail!("cargo {} failed", args.join(" "));
    }
    Ok(())
}
