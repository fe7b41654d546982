//! All tests and benchmarks.

use std::{ffi::OsStr, process::Command};

use anyhow::{Context, bail, ensure};
use kube_batch_tests::build;

/// Runs unit, property, documentation, case and simulation tests, and simulates the operator.
pub(crate) fn run(seeds: u32) -> anyhow::Result<()> {
    let seeds = seeds.to_string();
    // One selection of packages, so that nothing is built twice; without benchmarks.
    cargo(
        &["test", "--workspace", "--lib", "--bins", "--tests", "--examples"],
        &[("KUBE_BATCH_SEEDS", &seeds)],
    )?;
    cargo(&["test", "--workspace", "--doc"], &[])?;
    simulate_operator(&["--steps".to_owned(), SIMULATED_STEPS.to_owned()])
}

/// Steps of the operator's simulation among the tests: a minute or two.
const SIMULATED_STEPS: &str = "1000000";

/// Simulates the operator.
pub(crate) fn simulate_operator(arguments: &[String]) -> anyhow::Result<()> {
    let binary = build::operator_sim().context("build the simulation")?;
    let status = Command::new(binary).args(arguments).status().context("run the simulation")?;
    ensure!(status.success(), "the simulation of the operator failed");
    Ok(())
}

/// Runs a benchmark.
pub(crate) fn bench(name: &str, arguments: &[String]) -> anyhow::Result<()> {
    let status = bench_command(name, arguments).status().context("run cargo")?;
    ensure!(status.success(), "the benchmark {name} failed");
    Ok(())
}

/// A command that runs a benchmark.
pub(crate) fn bench_command(name: &str, arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = build::cargo();
    command.args(["bench", "--quiet", "--package", "kube-batch-tests", "--bench", name, "--"]);
    command.args(arguments);
    command
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
