//! All tests and benchmarks.

mod output;
mod summary;

use std::{
    ffi::OsStr,
    io::{self, IsTerminal, Read, Write},
    process::{Command, ExitCode, ExitStatus},
};

use anyhow::{Context, ensure};
use cargo_metadata::{MetadataCommand, TargetKind};
use kube_batch_testbed::assets::Assets;
use kube_batch_tests::build::{self, root};
use xtask_launcher::{PROGRAMS, Program, SELECTION, Task, Use};

use self::{
    output::{Failure, Parser, Results},
    summary::Summary,
};

/// Which tests to run.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of random clusters in the simulation tests.
    #[arg(long, default_value_t = 1000)]
    seeds: u32,
    /// Leave out no tests: fail at the start if a program that some of them need is missing.
    #[arg(long)]
    complete: bool,
}

/// Runs unit, property, documentation, case and simulation tests, and simulates the operator. All of them run,
/// also after one failed; the last lines that are printed say what failed and what was left out.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let left_out = LeftOut::without(&missing());
    ensure!(
        !args.complete || left_out.reasons.is_empty(),
        "some tests cannot run:\n  {}",
        left_out.reasons.join("\n  ")
    );
    let mut results = cargo_test(&left_out.selection()?, &left_out.skipped, args.seeds)?;
    // Without the binaries, what follows would only repeat the messages of the compiler.
    if !results.has_compile_errors {
        results.append(cargo_test(&DOCUMENTATION, &[], args.seeds)?);
        results.failures.extend(operator_failure()?);
    }
    let summary = Summary {
        n_passed: results.n_passed,
        failures: results.failures,
        left_out: left_out.reasons,
    };
    println!("\n{}", summary.lines().join("\n"));
    Ok(if summary.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tests in documentation. Cargo runs them only apart from other tests.
const DOCUMENTATION: [&str; 2] = ["--workspace", "--doc"];

/// Programs without which some tests cannot run.
fn missing() -> Vec<Program> {
    let is_missing = |program: &Program| match program.used_by {
        Use::Servers(_) => !Assets::are_built() && !program.is_installed(),
        Use::CompletionsTest(_) | Use::All => !program.is_installed(),
    };
    let needed = PROGRAMS.into_iter().filter(|program| program.task == Task::Test);
    needed.filter(is_missing).collect()
}

/// Tests that cannot run, because programs are missing.
#[derive(Debug, Default)]
struct LeftOut {
    /// Names of tests.
    skipped: Vec<&'static str>,
    /// Test targets: package and name.
    targets: Vec<(&'static str, &'static str)>,
    /// What is left out without one program, and why.
    reasons: Vec<String>,
}

impl LeftOut {
    fn without(missing: &[Program]) -> Self {
        let mut left_out = Self::default();
        for program in missing {
            let tests = match program.used_by {
                Use::CompletionsTest(test) => {
                    left_out.skipped.push(test);
                    test.to_owned()
                }
                Use::Servers(targets) => {
                    left_out.targets.extend(targets);
                    let names =
                        targets.iter().map(|(package, name)| format!("-p {package} --test {name}"));
                    names.collect::<Vec<_>>().join(", ")
                }
                Use::All => continue,
            };
            left_out.reasons.push(format!("{tests}: {} is missing", program.name));
        }
        left_out
    }

    /// What Cargo tests: what it has compiled, except targets that are left out. Cargo has no flag for this, so all
    /// others are named.
    fn selection(&self) -> anyhow::Result<Vec<String>> {
        let mut selection: Vec<String> = SELECTION.iter().map(|&flag| flag.to_owned()).collect();
        if self.targets.is_empty() {
            return Ok(selection);
        }
        selection.retain(|flag| flag != "--tests");
        for package in MetadataCommand::new().current_dir(root()).no_deps().exec()?.packages {
            let is_left_out =
                |target: &str| self.targets.contains(&(package.name.as_str(), target));
            let targets = package.targets.iter().filter(|target| target.is_kind(TargetKind::Test));
            for target in targets.filter(|target| !is_left_out(&target.name)) {
                selection.extend(["--test".to_owned(), target.name.clone()]);
            }
        }
        Ok(selection)
    }
}

/// Runs `cargo test`, prints its output as it comes, and returns what it reports.
fn cargo_test(
    selection: &[impl AsRef<OsStr>],
    skipped: &[&str],
    seeds: u32,
) -> anyhow::Result<Results> {
    let mut command = build::cargo();
    command.args(["test", "--no-fail-fast"]).args(selection).arg("--");
    command.args(skipped.iter().flat_map(|test| ["--skip", test]));
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tests_that_may_be_left_out_exist() {
        let cli = fs::read_to_string(root().join("operator/tests/integration/cli.rs")).expect("a file");
        let left_out = LeftOut::without(&PROGRAMS);
        assert_eq!(left_out.skipped.len(), 3);
        for test in &left_out.skipped {
            assert!(cli.contains(&format!("#[test]\nfn {test}()")), "{test}");
        }
        let all = LeftOut { targets: vec![("", "")], ..LeftOut::default() }.selection();
        let all = all.expect("metadata").len();
        let rest = left_out.selection().expect("metadata");
        assert_eq!(rest.len(), all - 2 * left_out.targets.len(), "{rest:?}");
        // Cargo selects by the name alone: another package may not have such a target too.
        assert!(left_out.targets.iter().all(|(_, name)| !rest.contains(&(*name).to_owned())));
    }

    #[test]
    fn reasons_name_the_tests_and_the_program() {
        let go = PROGRAMS.into_iter().filter(|program| program.name == "go").collect::<Vec<_>>();
        let expected = "-p kube-batch-testbed --test control_plane, -p kube-batch-tests --test e2e: go is missing";
        assert_eq!(LeftOut::without(&go).reasons, [expected]);
    }

    #[test]
    fn continuous_integration_compiles_the_same_selection() {
        let script = fs::read_to_string(root().join(".ci/run")).expect("a file");
        assert!(script.contains(&format!("cargo build {} ", SELECTION.join(" "))));
    }
}
