//! All tests and benchmarks.

mod output;
mod summary;

use std::{
    ffi::OsStr,
    io::{self, IsTerminal, Read, Write},
    process::{Command, ExitCode, ExitStatus},
};

use anyhow::{Context, ensure};
use kube_batch_tests::build;

use self::{
    output::{Failure, Parser, Results},
    summary::Summary,
};

/// Which tests to run.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of random clusters in the simulation tests.
    #[arg(long, default_value_t = 2000)]
    seeds: u32,
}

/// Runs unit, property, documentation, case and simulation tests, and simulates the operator. All of them run,
/// also after one failed; the last lines that are printed say what failed.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut results = cargo_test(&SELECTION, args.seeds)?;
    // Without the binaries, what follows would only repeat the messages of the compiler.
    if !results.has_compile_errors {
        results.append(cargo_test(&DOCUMENTATION, args.seeds)?);
        results.failures.extend(operator_failure()?);
    }
    let summary = Summary { n_passed: results.n_passed, failures: results.failures };
    println!("\n{}", summary.lines().join("\n"));
    Ok(if summary.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One selection of packages, so that nothing is built twice; without benchmarks.
const SELECTION: [&str; 5] = ["--workspace", "--lib", "--bins", "--tests", "--examples"];

/// Tests in documentation. Cargo runs them only apart from other tests.
const DOCUMENTATION: [&str; 2] = ["--workspace", "--doc"];

/// Runs `cargo test`, prints its output as it comes, and returns what it reports.
fn cargo_test(selection: &[&str], seeds: u32) -> anyhow::Result<Results> {
    let mut command = build::cargo();
    command.args(["test", "--no-fail-fast"]).args(selection).arg("--");
    command.env("KUBE_BATCH_SEEDS", seeds.to_string());
    if io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always").args(["--color", "always"]);
    }
    // One pipe for both, so that their lines keep their order.
    let (reader, writer) = io::pipe().context("create a pipe")?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("run cargo")?;
    // It holds the writing end, without which the reader finds the end.
    drop(command);
    let mut parser = Parser::default();
    copy(reader, |bytes| parser.read(bytes)).context("read the output of cargo")?;
    let status = child.wait().context("run cargo")?;
    let mut results = parser.finish();
    if !status.success() && results.failures.is_empty() {
        results.failures.push(Failure::of_process("cargo test", status));
    }
    Ok(results)
}

/// Copies to standard output what is read, without waiting for the end of a line.
fn copy(mut reader: impl Read, mut observe: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = [0; 1 << 13];
    let mut stdout = io::stdout().lock();
    loop {
        let n = match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        stdout.write_all(&buffer[..n])?;
        stdout.flush()?;
        observe(&buffer[..n]);
    }
}

/// Steps of the operator's simulation among the tests: a minute or two.
const SIMULATED_STEPS: &str = "1000000";

fn operator_failure() -> anyhow::Result<Option<Failure>> {
    let arguments = ["--steps", SIMULATED_STEPS].map(str::to_owned);
    let status = operator_simulation(&arguments)?;
    let command = format!("cargo xtask simulate-operator {}", arguments.join(" "));
    Ok((!status.success()).then(|| Failure::of_process(&command, status)))
}

/// Simulates the operator.
pub(crate) fn simulate_operator(arguments: &[String]) -> anyhow::Result<()> {
    let status = operator_simulation(arguments)?;
    ensure!(status.success(), "the simulation of the operator failed");
    Ok(())
}

fn operator_simulation(arguments: &[String]) -> anyhow::Result<ExitStatus> {
    let binary = build::operator_sim().context("build the simulation")?;
    Command::new(binary).args(arguments).status().context("run the simulation")
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
